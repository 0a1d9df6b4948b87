"""Control and memory in REG: branches, checks, carries, versions of memory, phases, routines."""

import numpy as np
import pytest
from reg import MACHINES, Native, check, kernel, window

from tcomp.ir import dtype as dt
from tcomp.ir import index, tile
from tcomp.ir.stmts import Call, Carry, Check, For, Grid, GridAxis, If, Kernel, Let, Store
from tcomp.ir.tile import full, pointwise, ref
from tcomp.ir.types import Buffer, TileType

F32 = dt.f32
N = index.symbol("n", 0, 4096)


def loop(name, hi, step=1):
    return index.symbol(name, 0, 4096, step)


def test_values_loaded_before_a_loop_are_not_reused_after_its_stores():
    """y[0:16] is read before, inside (where it grows) and after."""
    y, z = Buffer("y", F32, (16,)), Buffer("z", F32, (16,))
    i = index.symbol("i", 0, 5)
    here = window(y, extents=(16,))
    k = kernel(
        [],
        [y, z],
        Store(here, full(1, F32)),
        Let("before", here),
        For(i, 0, 5, 1, (Store(here, pointwise("add", here, here)),)),
        Store(window(z, extents=(16,)), pointwise("sub", here, ref("before", TileType(F32, (16,))))),
        name="versions",
    )
    got = check(k)
    assert (got["z"] == 31).all()


@pytest.mark.parametrize("dtype", [F32, dt.bf16], ids=str)
def test_a_store_reads_all_of_its_value_before_it_writes(dtype):
    """Transposed in place, and reversed in place."""
    y = Buffer("y", dtype, (16, 32))
    r, c = tile.axis(0, 16), tile.axis(1, 16)
    turned = Store(tile.load(y, (r, c), (16, 16)), tile.load(y, (c, r), (16, 16)))
    reversed_ = Store(
        window(y, extents=(16, 32)), pointwise("neg", tile.load(y, (index.sub(15, r), index.sub(31, tile.axis(1, 32))), (16, 32)))
    )
    check(kernel([], [y], turned, reversed_, name=f"in_place_{dtype}"))


def test_indices_of_elements_that_do_not_exist_are_not_read():
    """Three indices; the others, and what they would point at, are nobody's memory."""
    x, rows, y = Buffer("x", F32, (10,)), Buffer("rows", dt.i64, (3,)), Buffer("y", F32, (5,))
    far = index.mul(index.less(2, tile.axis(0, 5)), 1 << 40)  # the address of an index past the third faults
    at = index.read(rows, [index.add(tile.axis(0, 5), far)])
    n = index.symbol("n", 0, 5)
    source = tile.load(x, (at,), (5,), (n,))
    target = tile.load(y, (tile.axis(0, 5),), (5,))
    k = kernel([x, rows], [y], Store(target, source), symbols=[n], name="guarded")
    arrays = {"rows": np.array([7, 0, 3])}
    for n in (0, 2, 3):
        check(k, symbols={"n": n}, arrays=arrays)


def test_stores_in_a_branch_are_seen_after_it():
    y, z, flag = Buffer("y", F32, (16,)), Buffer("z", F32, (16,)), Buffer("flag", dt.i64, ())
    here = window(y, extents=(16,))
    k = kernel(
        [flag],
        [y, z],
        Store(here, full(1, F32)),
        If(index.read(flag, []), (Store(here, full(2, F32)),), (Store(window(z, extents=(16,)), full(9, F32)),)),
        Store(window(z, extents=(16,)), here),
        name="branches",
    )
    for value in (0, 1, -1):
        check(k, arrays={"flag": np.array(value, np.int64)})


@pytest.mark.parametrize("flag", [0, 1])
def test_a_uniform_branch_inside_a_value_runs_one_side(flag):
    """The side not taken would read outside the buffer."""
    x, y, f = Buffer("x", F32, (16,)), Buffer("y", F32, (2, 16)), Buffer("f", dt.u8, ())
    far = index.mul(index.read(f, [], 0, 1), 1 << 40)
    side = tile.load(x, (index.add(far, tile.axis(1, 16)),), (2, 16))
    value = pointwise("neg", tile.when(index.equal(index.read(f, [], 0, 1), 0), side, full(3, F32)))
    check(kernel([x, f], [y], Store(window(y, extents=(2, 16)), value), name="when"), arrays={"f": np.array(flag, np.uint8)})


def test_a_failed_check_ends_the_block_with_its_status():
    x, y = Buffer("x", dt.i32, (4,)), Buffer("y", F32, (4,))
    i = index.symbol("i", 0, 4)
    at = index.read(x, [i])
    table = Buffer("t", F32, (10,))
    inside = index.mul(index.less(-1, at), index.less(at, 10))
    body = (Check(inside, 1, 77), Store(tile.load(y, (i,)), tile.load(table, (at,))))
    k = kernel([x, table], [y], For(i, 0, 4, 1, body), name="checked")
    check(k, arrays={"x": np.array([3, 0, 9, 5], np.int32)})
    run = Native(k)
    for bad in (-1, 10, 2**31 - 1):
        arrays = {"x": np.array([3, 0, bad, 5], np.int32), "t": np.arange(10, dtype=np.float32), "y": np.zeros(4, np.float32)}
        assert run(arrays) == 1 << 32 | 77
        assert (arrays["y"] == [3, 0, 0, 0]).all()


def test_carries_of_several_kinds_in_nested_loops():
    x = Buffer("x", F32, (7, 64))
    y, s = Buffer("y", F32, (64,)), Buffer("s", dt.i64, ())
    i, j = index.symbol("i", 0, 7), loop("j", 64, 64)
    t64 = TileType(F32, (64,))
    inner = For(
        j,
        0,
        64,
        64,
        (),
        (Carry("b", "b1", t64, ref("a", t64)),),
        (pointwise("add", ref("b", t64), window(x, i, j, extents=(64,))),),
    )
    k = kernel(
        [x],
        [y, s],
        For(
            i,
            0,
            7,
            1,
            (inner,),
            (Carry("a", "a1", t64, full(0, F32)), Carry("c", "c1", TileType(dt.i64), full(5, dt.i64))),
            (ref("b1", t64), pointwise("mul", ref("c", TileType(dt.i64)), tile.position(index.add(i, 1), dt.i64))),
        ),
        Store(window(y, extents=(64,)), ref("a1", t64)),
        Store(window(s, extents=()), ref("c1", TileType(dt.i64))),
        name="nested",
    )
    got = check(k, rtol=1e-6)
    assert got["s"] == 5 * 5040


def test_loops_that_never_run_keep_their_first_values():
    y, z = Buffer("y", F32, (16,)), Buffer("z", F32, ())
    n = index.symbol("n", 0, 9)
    i, j = index.symbol("i", 0, 9), index.symbol("j", 0, 9)
    one = ref("a", TileType(F32, (16,)))
    k = kernel(
        [],
        [y, z],
        For(i, 0, n, 1, (), (Carry("a", "a1", TileType(F32, (16,)), full(4, F32)),), (pointwise("add", one, one),)),
        For(j, 3, 3, 1, (), (Carry("b", "b1", TileType(F32), full(7, F32)),), (full(0, F32),)),
        Store(window(y, extents=(16,)), ref("a1", TileType(F32, (16,)))),
        Store(window(z, extents=()), ref("b1", TileType(F32))),
        symbols=[n],
        name="never",
    )
    for n in (0, 1, 3):
        check(k, symbols={"n": n})


@pytest.mark.parametrize(
    ("combine", "dtype"), [("add", dt.f32), ("max", dt.i8), ("add", dt.bf16), ("or", dt.bool_), ("min", dt.f64)]
)
@pytest.mark.parametrize("machine", MACHINES)
def test_stores_that_combine(combine, dtype, machine):
    """Duplicate targets, and lanes past the count."""
    x, at, y = Buffer("x", dtype, (40,)), Buffer("at", dt.i64, (40,)), Buffer("y", dtype, (6,))
    i = loop("i", 40, 16)
    spot = index.read(at, [index.add(i, tile.axis(0, 16))], 0, 5)
    body = (
        Store(
            tile.load(y, (spot,), (16,), (index.sub(40, i),)),
            window(x, i, extents=(16,), valid=index.sub(40, i)),
            None,
            combine,
        ),
    )
    k = kernel([x, at], [y], For(i, 0, 40, 16, body), name=f"combine_{combine}_{dtype}")
    rng = np.random.default_rng(4)
    arrays = {"at": rng.integers(0, 6, 40)}
    if dtype.name == "bf16":
        import ml_dtypes

        arrays["x"] = rng.integers(0, 3, 40).astype(ml_dtypes.bfloat16)
        arrays["y"] = np.zeros(6, ml_dtypes.bfloat16)
    check(k, MACHINES[machine], arrays=arrays, rtol=1e-5)


def test_copies_of_16_bit_floats_keep_signalling_nan():
    x, y = Buffer("x", dt.f16, (32,)), Buffer("y", dt.f16, (32,))
    k = kernel([x], [y], Store(window(y, extents=(32,)), window(x, extents=(32,))), name="copy")
    bits = np.arange(0x7C00, 0x7C20, dtype=np.uint16)
    arrays = {"x": bits.view(np.float16), "y": np.zeros(32, np.float16)}
    assert Native(k)(arrays) == 0
    np.testing.assert_array_equal(arrays["y"].view(np.uint16), bits)


def test_phases_share_a_workspace():
    x, y, work = Buffer("x", F32, (64,)), Buffer("y", F32, (64,)), Buffer("w", F32, (64,), "ws")
    i, j = loop("i", 64, 16), loop("j", 64, 16)
    first = Store(window(work, i, extents=(16,)), pointwise("neg", window(x, i, extents=(16,))))
    second = Store(window(y, j, extents=(16,)), tile.load(work, (index.sub(63, index.add(j, tile.axis(0, 16))),), (16,)))
    grids = (Grid((GridAxis(i, 64, 16),), (first,)), Grid((GridAxis(j, 64, 16),), (second,)))
    check(Kernel("phases", (x,), (y,), (), grids, (work,)))


def test_the_last_axis_of_a_grid_runs_fastest():
    a, b = index.symbol("a", 0, 2), index.symbol("b", 0, 20, 10)
    n = index.symbol("n", 0, 30)
    y = Buffer("y", dt.i64, (3, n))
    value = tile.position(index.add(index.mul(a, 100), b), dt.i64)
    k = kernel(
        [], [y], Store(tile.load(y, (a, b)), value), axes=[GridAxis(a, 3, 1), GridAxis(b, n, 10)], symbols=[n], name="grid"
    )
    check(k, symbols={"n": 25})


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("dtype", [dt.f32, dt.i8, dt.u64, dt.f16, dt.bool_], ids=str)
@pytest.mark.parametrize("down", [False, True])
def test_sort_and_top_k(down, dtype, machine):
    x = Buffer("x", dtype, (3, 21, 2))
    v, p = Buffer("v", dtype, (3, 21, 2)), Buffer("p", dt.i64, (3, 21, 2))
    tv, tp = Buffer("tv", dtype, (3, 21, 1)), Buffer("tp", dt.i64, (3, 21, 1))
    k = kernel(
        [x],
        [v, p, tv, tp],
        Call("sort", (tile.whole(v), tile.whole(p)), (tile.whole(x),), (("axis", 1), ("descending", down))),
        Call("top_k", (tile.whole(tv), tile.whole(tp)), (tile.whole(x),), (("axis", 2), ("largest", down))),
        name=f"sort_{dtype}_{down}",
    )
    rng = np.random.default_rng(8)
    values = (
        rng.integers(-4, 5, (3, 21, 2)).astype(dt.to_numpy(dtype)) if dtype.kind != "uint" else rng.integers(0, 9, (3, 21, 2))
    )
    values = values.astype(dt.to_numpy(dtype))
    if dtype.is_float:
        values[0, 3, 0] = values[0, 9, 0] = np.nan
        values[1, 3, 0], values[1, 4, 0], values[1, 5, 0] = -0.0, 0.0, -np.inf
    check(k, MACHINES[machine], arrays={"x": values})


@pytest.mark.parametrize("n", [0, 1, 2, 1000])
def test_sorting_lines_of_any_length(n):
    x, v, p = Buffer("x", F32, (2, N)), Buffer("v", F32, (2, N)), Buffer("p", dt.i64, (2, N))
    k = kernel([x], [v, p], Call("sort", (tile.whole(v), tile.whole(p)), (tile.whole(x),)), symbols=[N], name="sort_any")
    check(k, symbols={"n": n})
