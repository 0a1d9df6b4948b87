"""Windows of REG in every layout: loads, stores, masks, padding in place, positions."""

import numpy as np
import pytest
from reg import COMPUTED, MACHINES, Native, check, kernel, window

from tcomp.ir import dtype as dt
from tcomp.ir import index, tile
from tcomp.ir.stmts import For, GridAxis, Store
from tcomp.ir.tile import full, pointwise
from tcomp.ir.types import Buffer

F32 = dt.f32
N = index.symbol("n", 0, 4096)


def loop(name, hi, step=1):
    return index.symbol(name, 0, 4096, step)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("dtype", COMPUTED, ids=str)
def test_every_way_that_lanes_can_lie(dtype, machine):
    """Contiguous, one element, columns (transposed in registers), strided, reversed, bent, gathered; masked or not."""
    x, rows = Buffer("x", dtype, (64, 77)), Buffer("rows", dt.i32, (64,))
    l16, r5, r16 = tile.axis(1, 16), tile.axis(0, 5), tile.axis(0, 16)
    places = {
        "contiguous": (r5, index.add(l16, 3)),
        "uniform": (r5, 7),
        "columns": (l16, index.add(r5, 2)),
        "strided": (r5, index.add(index.mul(l16, 2), 1)),
        "reversed": (r5, index.sub(30, l16)),
        **{f"by{k}": (tile.axis(0, 5), index.add(60 * (k < 0), index.mul(l16, k))) for k in (-4, -3, 3, 4, 5)},
        "divided": (index.floordiv(index.add(index.mul(r5, 16), l16), 3), index.mod(index.add(l16, r5), 7)),
        "chosen": (index.minimum(l16, 9), index.maximum(r5, 2)),
        "gathered": (index.read(rows, [l16], 0, 63), r5),
        "row": (index.read(rows, [r5], 0, 63), l16),
    }
    outputs, body = [], []
    for name, at in places.items():
        for valid in (None, 11):
            y = Buffer(f"{name}_{valid}", dtype, (5, 16))
            outputs.append(y)
            body.append(Store(window(y, extents=(5, 16)), tile.load(x, at, (5, 16), (None, valid))))
    square = Buffer("square", dtype, (16, 16))
    body.append(Store(window(square, extents=(16, 16)), tile.load(x, (l16, r16), (16, 16))))
    k = kernel([x, rows], [*outputs, square], *body, name=f"lanes_{dtype}")
    check(k, MACHINES[machine], arrays={"rows": np.random.default_rng(5).integers(0, 64, 64).astype(np.int32)})


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("dtype", [dt.f32, dt.u8, dt.f64, dt.f16], ids=str)
def test_every_way_to_write_lanes(dtype, machine):
    x = Buffer("x", dtype, (5, 16))
    l16, r5 = tile.axis(1, 16), tile.axis(0, 5)
    places = {
        "rows": (r5, index.add(l16, 3)),
        "columns": (l16, index.add(r5, 2)),
        "strided": (r5, index.add(index.mul(l16, 2), 1)),
        "bent": (index.add(index.mul(r5, 2), index.floordiv(l16, 8)), index.mod(l16, 8)),
    }
    outputs = [Buffer(f"{n}{v or ''}", dtype, (17, 40)) for n in places for v in (None, 11)]
    body = [
        Store(tile.load(y, at, (5, 16), (None, v)), window(x, extents=(5, 16)))
        for y, (at, v) in zip(outputs, [(at, v) for at in places.values() for v in (None, 11)])
    ]
    check(kernel([x], outputs, *body, name=f"writes_{dtype}"), MACHINES[machine])


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("count", range(0, 17))
def test_narrowed_values_stay_within_their_count(count, machine):
    """Nothing past the count is written, whatever constant mask it becomes."""
    x = Buffer("x", dt.i64, (2, 32))
    outputs = [Buffer(f"y{t}", t, (2, 32)) for t in (dt.i8, dt.i16, dt.i32, dt.bool_, dt.bf16)]
    v = window(x, extents=(2, 32), valid=count + 3)
    stores = [Store(window(y, extents=(2, 32), valid=count + 3), pointwise("cast", v, dtype=y.dtype)) for y in outputs]
    check(kernel([x], outputs, *stores, name=f"narrowed_{count}"), MACHINES[machine])
    stores = [Store(window(y, extents=(2, 32), valid=count), pointwise("cast", v, dtype=y.dtype)) for y in outputs]
    check(kernel([x], outputs, *stores, name=f"narrow_{count}"), MACHINES[machine])


@pytest.mark.parametrize("machine", MACHINES)
def test_narrowed_values_stay_within_any_count(machine):
    x = Buffer("x", dt.i64, (32,))
    outputs = [Buffer(f"y{t}", t, (32,)) for t in (dt.i8, dt.i16, dt.i32, dt.bool_, dt.bf16, dt.f16)]
    v = window(x, extents=(32,), valid=N)
    stores = [Store(window(y, extents=(32,), valid=N), pointwise("cast", v, dtype=y.dtype)) for y in outputs]
    k = kernel([x], outputs, *stores, symbols=[N], name="narrow")
    run = Native(k, MACHINES[machine])
    for n in range(33):
        check(k, symbols={"n": n}, native=run)


@pytest.mark.parametrize("machine", MACHINES)
def test_transposition_of_a_matrix_of_any_size(machine):
    m, n = index.symbol("m", 0, 300), N
    x, y = Buffer("x", F32, (n, m)), Buffer("y", F32, (m, n))
    i, j = index.symbol("i", 0, 300, 16), loop("j", n, 16)
    # rows of the last block that do not exist are moved back into the matrix, so a matrix has at least 16 rows
    at = index.minimum(i, index.sub(m, 16))
    left = index.sub(n, j)
    block = tile.load(x, (index.add(j, tile.axis(1, 16)), index.add(at, tile.axis(0, 16))), (16, 16), (None, left))
    store = Store(tile.load(y, (index.add(at, tile.axis(0, 16)), index.add(j, tile.axis(1, 16))), (16, 16), (None, left)), block)
    k = kernel([x], [y], For(j, 0, n, 16, (store,)), axes=[GridAxis(i, m, 16)], symbols=[m, n], name="transpose")
    run = Native(k, MACHINES[machine])
    for sizes in ((16, 16), (50, 33), (17, 1)):
        check(k, symbols=dict(zip("mn", sizes)), native=run)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("dtype", [dt.f32, dt.i8, dt.bool_], ids=str)
def test_padding_in_place(dtype, machine):
    """`else`: rows outside, lanes outside on both sides, and both with a count."""
    x = Buffer("x", dtype, (4, 20))
    y, z, u = (Buffer(n, dtype, (8, 32)) for n in "yzu")
    row, lane = index.sub(tile.axis(0, 8), 2), index.sub(tile.axis(1, 32), 5)
    other = full(1, dtype)
    s = Buffer("s", dtype, (8, 3))
    k = kernel(
        [x],
        [y, z, u, s],
        Store(window(y, extents=(8, 32)), tile.load(x, (row, lane), (8, 32), None, other)),
        Store(window(z, extents=(8, 32)), tile.load(x, (row, lane), (8, 32), (None, 18), other)),
        Store(window(u, extents=(8, 32)), tile.load(x, (row, 3), (8, 32), None, other)),
        Store(window(s, extents=(8, 3)), tile.load(x, (row, index.sub(tile.axis(1, 3), 1)), (8, 3), None, other)),
        name=f"padding_{dtype}",
    )
    check(k, MACHINES[machine])


def test_counts_that_depend_on_the_row():
    """A causal mask: row r sees r + 2 elements; the others become -1. The second count is past the end for some rows."""
    x, y = Buffer("x", F32, (6, 16)), Buffer("y", F32, (6, 16))
    count = index.mul(index.add(tile.axis(0, 6), 2), 3)
    masked = tile.valid(window(x, extents=(6, 16)), count, full(-1, F32))
    check(kernel([x], [y], Store(window(y, extents=(6, 16)), masked), name="causal"))


@pytest.mark.parametrize("dtype", [dt.f32, dt.i64, dt.u8, dt.f16, dt.bool_], ids=str)
def test_positions_as_values(dtype):
    y, z = Buffer("y", dtype, (3, 32)), Buffer("z", dtype, (3, 5))
    i = index.symbol("i", 0, 3)
    x = index.add(index.add(tile.axis(0, 3), index.mul(tile.axis(1, 32), 2)), index.sub(i, 40))
    small = index.less(tile.axis(1, 5), tile.axis(0, 3))
    body = (
        Store(window(y, extents=(3, 32)), tile.position(x, dtype, (3, 32))),
        Store(window(z, extents=(3, 5)), tile.position(small, dtype, (3, 5))),
    )
    check(kernel([], [y, z], For(i, 1, 2, 1, body), name=f"positions_{dtype}"))
