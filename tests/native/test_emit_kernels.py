"""REG kernels through the emitter against the interpreter: loops, rows, reductions."""

import numpy as np
import pytest
from reg import COMPUTED, MACHINES, Native, check, emit, kernel, window

from tcomp.ir import dtype as dt
from tcomp.ir import index, tile
from tcomp.ir.stmts import Alloc, Carry, For, GridAxis, Let, Store
from tcomp.ir.tile import full, pointwise, ref
from tcomp.ir.types import Buffer, TileType

F32 = dt.f32
N = index.symbol("n", 0, 4096)


def loop(name, hi, step=1):
    return index.symbol(name, 0, 4096, step)


def chain(n, dtype=F32):
    """y = x * x + x, 64 wide and then masked 16 wide."""
    x, y = Buffer("x", dtype, (n,)), Buffer("y", dtype, (n,))
    main = index.sub(n, index.mod(n, 64))
    i, j = loop("i", main, 64), loop("j", n, 16)

    def body(at, width, valid):
        v = window(x, at, extents=(width,), valid=valid)
        value = pointwise("add", pointwise("mul", v, v), v)
        return Store(window(y, at, extents=(width,), valid=valid), value)

    return kernel(
        [x],
        [y],
        For(i, 0, main, 64, (body(i, 64, None),)),
        For(j, main, n, 16, (body(j, 16, index.sub(n, j)),)),
        symbols=[N] if n is N else [],
        name=f"chain_{index.show(n)}_{dtype}",
    )


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("n", [0, 1, 16, 63, 64, 200])
def test_a_pointwise_loop_of_static_size(n, machine):
    check(chain(n), MACHINES[machine])


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("dtype", COMPUTED, ids=str)
def test_a_pointwise_loop_of_any_size(dtype, machine):
    if dtype.kind == "bool":
        pytest.skip("no arithmetic")
    k = chain(N, dtype)
    run = Native(k, MACHINES[machine])
    for n in (0, 1, 15, 16, 17, 64, 129, 1000):
        check(k, symbols={"n": n}, native=run)


# --- rows ----------------------------------------------------------------------------------------------


def softmax(rows, n, dtype=F32):
    """Three loops over each row: the maximum, exp and its sum kept on the stack, the quotient."""
    x, y = Buffer("x", dtype, (rows, n)), Buffer("y", dtype, (rows, n))
    e = Buffer("e", dtype, (n + 15,), "stack")
    r, i, j, q = index.symbol("r", 0, rows), loop("i", n, 16), loop("j", n, 16), loop("q", n, 16)
    v16 = TileType(dtype, (16,))

    def part(b, at, *lead):
        return window(b, *lead, at, extents=(16,), valid=index.sub(n, at))

    low = full(-np.inf, dtype)
    top = pointwise("max", ref("m", v16), tile.valid(part(x, i, r), index.sub(n, i), low))
    m = ref("top", TileType(dtype))
    exp = tile.valid(pointwise("exp", pointwise("sub", part(x, j, r), m)), index.sub(n, j), full(0, dtype))
    s = ref("sum", TileType(dtype))
    body = (
        For(i, 0, n, 16, (), (Carry("m", "ms", v16, low),), (top,)),
        Let("top", tile.reduce("max", ref("ms", v16))),
        For(
            j,
            0,
            n,
            16,
            (Store(window(e, j, extents=(16,)), exp),),
            (Carry("s", "ss", v16, full(0, dtype)),),
            (pointwise("add", ref("s", v16), window(e, j, extents=(16,))),),
        ),
        Let("sum", tile.reduce("add", ref("ss", v16))),
        For(q, 0, n, 16, (Store(part(y, q, r), pointwise("div", window(e, q, extents=(16,)), s)),)),
    )
    return kernel([x], [y], Alloc(e), *body, axes=[GridAxis(r, rows, 1)], name=f"softmax_{rows}_{n}_{dtype}")


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("n", [1, 16, 45])
def test_softmax(n, machine):
    check(softmax(3, n), MACHINES[machine], rtol=1e-6)


@pytest.mark.parametrize("dtype", [dt.f64, dt.f16, dt.bf16], ids=str)
def test_softmax_of_other_floats(dtype):
    check(softmax(2, 37, dtype), rtol={"f64": 1e-14, "f16": 2e-3, "bf16": 2e-2}[str(dtype)])


def test_stored_vectors_are_read_back_from_registers():
    """In the loop that stores exp and sums it, what was stored is not loaded again."""
    body = emit(softmax(1, 48))[0].split("\nloop")[2].split("\nafter")[0]
    assert "store <16 x float>" in body and " load <16 x float>" not in body


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("dtype", [dt.f32, dt.i8, dt.u16, dt.i64, dt.bool_, dt.bf16], ids=str)
@pytest.mark.parametrize("monoid", ["add", "mul", "max", "min", "and", "or"])
def test_reductions_of_register_tiles(monoid, dtype, machine):
    """To one element, to a column of 5, to a vector of 16 rows, and along rows."""
    if (dtype.is_float and monoid in ("and", "or")) or (dtype.kind == "bool" and monoid in ("add", "mul")):
        pytest.skip("not an operation of this dtype")
    x = Buffer("x", dtype, (16, 32))
    a, b, c, d = (Buffer(n, dtype, s) for n, s in (("a", ()), ("b", (5,)), ("c", (16,)), ("d", (32,))))
    k = kernel(
        [x],
        [a, b, c, d],
        Store(window(a, extents=()), tile.reduce(monoid, tile.load(x, (3, tile.axis(0, 32)), (32,)))),
        Store(window(b, extents=(5,)), tile.reduce(monoid, window(x, 2, extents=(5, 32)))),
        Store(window(c, extents=(16,)), tile.reduce(monoid, window(x, extents=(16, 32)))),
        Store(window(d, extents=(32,)), tile.reduce(monoid, window(x, extents=(16, 32)), 0)),
        name=f"reduce_{monoid}_{dtype}",
    )
    check(k, MACHINES[machine], rtol={"f32": 1e-5, "bf16": 2e-2}.get(str(dtype), 0.0))


def test_rows_of_scalars_named_and_used_again():
    x, y, z = Buffer("x", F32, (5, 32)), Buffer("y", F32, (5, 32)), Buffer("z", F32, (16, 32))
    rows = tile.reduce("max", window(x, extents=(5, 32)))
    many = tile.reduce("add", window(z, extents=(16, 32)))
    column = tile.expand(ref("top", TileType(F32, (5,))), 1)
    k = kernel(
        [x],
        [y, z],
        Let("top", rows),
        Store(window(y, extents=(5, 32)), pointwise("sub", window(x, extents=(5, 32)), column)),
        Store(window(z, extents=(16, 32)), pointwise("exp", full(0.5, F32))),
        Let("sums", pointwise("mul", many, full(2, F32))),
        Store(
            window(z, extents=(16, 32)),
            pointwise("add", window(z, extents=(16, 32)), tile.expand(ref("sums", TileType(F32, (16,))), 1)),
        ),
        name="rows_of_scalars",
    )
    check(k, rtol=1e-5)


@pytest.mark.parametrize("dtype", [dt.f32, dt.i32, dt.bf16], ids=str)
def test_fold_scan_and_last(dtype):
    x = Buffer("x", dtype, (3, 64))
    a, b, c = Buffer("a", dtype, (3, 16)), Buffer("b", dtype, (3, 64)), Buffer("c", dtype, (3,))
    whole = window(x, extents=(3, 64))
    k = kernel(
        [x],
        [a, b, c],
        Store(window(a, extents=(3, 16)), tile.fold("add", whole, 16)),
        Store(window(b, extents=(3, 64)), tile.scan("add", whole)),
        Store(window(c, extents=(3,)), tile.last(tile.scan("max", whole))),
        name=f"fold_{dtype}",
    )
    check(k, rtol={"f32": 1e-5, "bf16": 2e-2}.get(str(dtype), 0.0))


def test_a_scan_carried_along_a_row():
    n = 200
    x, y = Buffer("x", F32, (n,)), Buffer("y", F32, (n,))
    i = loop("i", n, 16)
    v = window(x, i, extents=(16,), valid=index.sub(n, i))
    p = ref("p", TileType(F32, (16,)))
    k = kernel(
        [x],
        [y],
        For(
            i,
            0,
            n,
            16,
            (
                Let("p", pointwise("add", tile.scan("add", v), ref("c", TileType(F32)))),
                Store(window(y, i, extents=(16,), valid=index.sub(n, i)), p),
            ),
            (Carry("c", "end", TileType(F32), full(0, F32)),),
            (tile.last(p),),
        ),
        name="cumsum",
    )
    check(k, rtol=1e-5)
