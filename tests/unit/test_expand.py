"""expand keeps the meaning of nests and column passes, whatever the sizes turn out to be."""

import itertools

import numpy as np
import pytest
import sample_kernels as k
from forms import agree, all_statements, run, same
from sample_kernels import Alloc, Buffer, By, For, Grid, GridAxis, Kernel, Let, Store, ax, f32, ix, t

from tcomp.errors import Error
from tcomp.ir import dtype as dt
from tcomp.ir.module import Module
from tcomp.ir.types import TileType
from tcomp.passes.expand import expand, expand_kernel

M, N, K = (ix.symbol(s, 0, None) for s in "mnk")
ZERO = t.full(0.0, f32)


def dims(*sizes):
    """Symbols and values for sizes: negative ones are symbolic."""
    names = [ix.symbol("mnk"[a], 0, None) if s < 0 else s for a, s in enumerate(sizes)]
    values = {"mnk"[a]: -s - 1 for a, s in enumerate(sizes) if s < 0}
    return names, values


def symbols(*sizes):
    return tuple(d for d in sizes if not isinstance(d, int))


PRODUCT = By((14, 32))


def gemm(m, n, kk, by=PRODUCT, epilogue=None, step=60, block=64, pack=True):
    """c = epilogue(a b), split along k, b packed (PLACED)."""
    a, b, c = Buffer("a", f32, (m, kk)), Buffer("b", f32, (kk, n)), Buffer("c", f32, (m, n))
    bias = Buffer("bias", f32, (n,))
    j, s = ix.symbol("j", 0, None, block), ix.symbol("s", 0, None, step)
    nc, kc = ix.minimum(block, ix.sub(n, j)), ix.minimum(step, ix.sub(kk, s))
    bp = Buffer("bp", f32, (kc, nc), "scratch", ((1, 0), (0, 0), (1, 32)))
    source = t.load(b, (s + ax(0, kc), j + ax(1, nc)), (kc, nc))
    window = t.load(c, (ax(0, m), j + ax(1, nc)), (m, nc))
    acc = t.when(ix.less(0, s), window, ZERO)
    product = t.dot(t.load(a, (ax(0, m), s + ax(1, kc)), (m, kc)), t.whole(bp) if pack else source, acc, "fma512_f32")
    value = product
    if epilogue:
        last = ix.less(ix.sub(kk, 1), s + step)
        value = t.when(last, epilogue(product, t.expand(t.load(bias, (j + ax(0, nc),), (nc,)), 0)), product)
    packing = (Alloc(bp), Store(t.whole(bp), source, By((1, 32), "ji"))) if pack else ()
    loop = For(s, 0, kk, step, (*packing, Store(window, value, by)))
    grid = Grid((GridAxis(j, n, block),), (loop,))
    return Kernel("gemm", (a, b, bias), (c,), symbols(m, n, kk), (grid,))


def relu_bias(x, bias):
    return t.pointwise("max", t.pointwise("add", x, bias), ZERO)


EDGES = [0, 1, 13, 14, 15, 28, 33]


@pytest.mark.parametrize("tail", ["binary", "balanced", "masked"])
def test_gemm_of_any_size(tail):
    kernel = gemm(M, N, K, By((14, 32), "ij", tail), relu_bias)
    sizes = [{"m": m, "n": n, "k": 70} for m, n in itertools.product(EDGES, (0, 1, 32, 65))]
    agree(kernel, [*sizes, {"m": 15, "n": 17, "k": 1}, {"m": 3, "n": 5, "k": 60}], places=False)


@pytest.mark.parametrize("by", [By((14, 32), spill=True), By((6, 64), "ji"), By((1, 16)), By((14, 32), "ij", "masked", True)])
def test_gemm_of_any_rows(by):
    agree(gemm(M, 70, 61, by, relu_bias), [{"m": m} for m in EDGES], places=False)


@pytest.mark.parametrize("m,n", [*itertools.product([1, 14, 15, 29], [16, 31, 32, 70])])
def test_gemm_of_static_size(m, n):
    agree(gemm(m, n, 7, By((14, 32)), relu_bias), places=False)
    agree(gemm(m, n, 7, By((14, 32)), pack=False), places=False)


def test_static_gemm_is_balanced_panels_without_loops_of_one():
    loops = [st for st in all_statements(expand_kernel(gemm(16, 32, 7))) if isinstance(st, For)]
    rows = [(st.lo, st.hi, st.step) for st in loops if st.var["name"].startswith("i")]
    assert rows[-1:] == [(0, 16, 8)]


def test_panels_in_own_memory_are_read_without_masks():
    reg = expand_kernel(gemm(M, N, 60, By((14, 32))))
    loads = [d.operands[1] for st in all_statements(reg) if isinstance(st, Let) for d in [st.value] if d.op == "dot"]
    assert len(loads) == 10 and not any(any(b["masked"]) for b in loads)


@pytest.mark.parametrize("space", ["ws", "stack"])
def test_a_store_does_not_round_up_into_its_neighbour(space):
    """The second half of a buffer is written before the first, whose end is no end of the buffer."""
    both, y = Buffer("both", f32, (40,), space, ((0, 0), (0, 16))), Buffer("y", f32, (40,))
    n = ix.symbol("n", 16, 30)
    first = Store(t.load(both, (ax(0, n),), (n,)), t.full(1.0, f32), By((16,)))
    second = Store(t.load(both, (16 + ax(0, 24),), (24,)), t.full(2.0, f32), By((16,)))
    early = Store(t.load(both, (16 + ax(0, 3),), (3,)), t.full(3.0, f32), By((16,)))
    read = Store(t.whole(y), t.whole(both), By((64,)))
    own = () if space == "ws" else (Alloc(both),)
    body = (*own, second, early, read) if space == "stack" else (second, first, read)
    kernel = Kernel("halves", (), (y,), (n,), (Grid((), body),), () if own else (both,))
    agree(kernel, [{"n": size} for size in (16, 17, 30)], places=False, exact=True)


def test_prepacked_panels_are_read_without_masks():
    """Whole panels of a foreign buffer lie inside it, though the result's columns end in one."""
    n = 40
    a, b, c = Buffer("a", f32, (M, 9)), Buffer("b", f32, (2, 9, 32)), Buffer("c", f32, (M, n))
    column = ax(1, n)
    panel = t.load(b, (ix.floordiv(column, 32), ax(0, 9), ix.mod(column, 32)), (9, n))
    kernel = Kernel("panels", (a, b), (c,), (M,), (Grid((), (Store(t.whole(c), t.dot(t.whole(a), panel, ZERO, "f"), PRODUCT),)),))
    agree(kernel, [{"m": m} for m in (0, 1, 17)], places=False)
    dots = [st.value for st in all_statements(expand_kernel(kernel)) if isinstance(st, Let) and st.value.op == "dot"]
    assert len(dots) == 10 and not any(any(d.operands[1]["masked"]) for d in dots)


def test_two_products_in_one_store():
    """silu-like gate: (a w) * (a v), with a third sharing nothing, under a `when`."""
    kk, n = 9, 40
    a, w, v, c = (Buffer(x, f32, s) for x, s in (("a", (M, kk)), ("w", (kk, n)), ("v", (kk, n)), ("c", (M, n))))
    flag = ix.symbol("flag", 0, 1)
    x, y = (t.dot(t.load(a, (ax(0, M), ax(1, kk)), (M, kk)), t.whole(b), ZERO, "fma512_f32") for b in (w, v))
    gate = t.pointwise("mul", t.pointwise("sigmoid", x), y)
    store = Store(t.whole(c), t.when(flag, gate, y), By((4, 32), spill=True))
    kernel = Kernel("gate", (a, w, v), (c,), (M, flag), (Grid((), (store,)),))
    agree(kernel, [{"m": m, "flag": f} for m in (0, 5, 17) for f in (0, 1)], places=False)
    dots = [st for st in all_statements(expand_kernel(kernel)) if isinstance(st, Let) and st.value.op == "dot"]
    assert len(dots) == 2 * 2 * 3  # both once for each of 3 sizes of rows and 2 of columns


SIDES = [16, 5, 33, -1, -2, -17, -36]


@pytest.mark.parametrize("m,n", [*itertools.product(SIDES, SIDES)])
def test_transpose(m, n):
    (rows, columns), values = dims(m, n)
    x, y = Buffer("x", f32, (columns, rows)), Buffer("y", f32, (rows, columns))
    i, j = ix.symbol("i", 0, None, 32), ix.symbol("j", 0, None, 32)
    mc, nc = ix.minimum(32, ix.sub(rows, i)), ix.minimum(32, ix.sub(columns, j))
    value = t.load(x, (j + ax(1, nc), i + ax(0, mc)), (mc, nc))
    store = Store(t.load(y, (i + ax(0, mc), j + ax(1, nc)), (mc, nc)), value, By((16, 16)))
    grid = Grid((GridAxis(i, rows, 32), GridAxis(j, columns, 32)), (store,))
    agree(Kernel("transpose", (x,), (y,), symbols(rows, columns), (grid,)), [values], places=False, exact=True)


def test_rows_of_which_some_exist_are_filled_with_zero():
    """A copy into an own tile of 8 rows of those that there are."""
    x, y = Buffer("x", f32, (M, 20)), Buffer("y", f32, (8, 20))
    own = Buffer("own", f32, (8, 32), "stack")
    there = t.load(x, (ax(0, 8), ax(1, 20)), (8, 20), (M, None))
    fill = Store(t.load(own, (ax(0, 8), ax(1, 20)), (8, 20)), there, By((8, 16)))
    copy = Store(t.whole(y), t.load(own, (ax(0, 8), ax(1, 20)), (8, 20)), By((8, 32)))
    kernel = Kernel("rows", (x,), (y,), (M,), (Grid((), (Alloc(own), fill, copy)),))
    agree(kernel, [{"m": m} for m in (0, 3, 8)], places=False, exact=True)


def rows_kernel(n, body, outputs=("y",), dtype=f32, rank=2):
    """A kernel that runs `body(x row, y windows)` for each row of x[m, n]."""
    x, r = Buffer("x", dtype, (M, n)), ix.symbol("r", 0, None)
    ys = [Buffer(y, dtype, (M, n) if rank == 2 else (M,)) for y in outputs]
    windows = [t.load(y, (r, ax(0, n)), (n,)) if rank == 2 else t.load(y, (r,)) for y in ys]
    body = body(t.load(x, (r, ax(0, n)), (n,)), windows)
    return Kernel("rows", (x,), tuple(ys), symbols(M, n), (Grid((GridAxis(r, M, 1),), body),))


def scalar(name, dtype=f32):
    return t.ref(name, TileType(dtype))


WIDTHS = [1, 14, 16, 32, 48, 63, 64, 65, 100, 200, -1, -2, -16, -17, -65, -200]


def width(n):
    (_, columns), values = dims(1, n)
    return columns, {"m": 3, **values}


@pytest.mark.parametrize("n", WIDTHS)
@pytest.mark.parametrize("monoid", ["add", "max", "min", "mul"])
def test_reduction(n, monoid):
    columns, values = width(n)
    kernel = rows_kernel(columns, lambda x, y: (Store(y[0], t.reduce(monoid, x)),), rank=1)
    agree(kernel, [values], places=False)


@pytest.mark.parametrize("n", [1, 5, 16, 70, 128, -2, -6, -71, -129])
def test_sum_keeps_the_sign_of_zero_and_nan(n):
    columns, values = width(n)
    kernel = rows_kernel(columns, lambda x, y: (Store(y[0], t.reduce("add", x)),), rank=1)
    x = np.full((3, values.get("n", n)), -0.0, np.float32)
    x[1, -1], x[2, 0] = 0.0, np.nan
    (y,) = run(expand_kernel(kernel), values, [x])
    assert same(y, x.sum(1))


@pytest.mark.parametrize("n", [0, -1])
def test_sum_of_nothing_is_positive_zero(n):
    columns, values = width(n)
    kernel = rows_kernel(columns, lambda x, y: (Store(y[0], t.reduce("add", x)),), rank=1)
    (y,) = run(expand_kernel(kernel), values, [np.zeros((3, 0), np.float32)])
    assert same(y, np.zeros(3, np.float32))


@pytest.mark.parametrize("n", [9, -40])
@pytest.mark.parametrize("dtype", [dt.f16, dt.bf16, dt.i64, dt.u8, dt.f64])
def test_reduction_of_other_types(n, dtype):
    columns, values = width(n)
    kernel = rows_kernel(columns, lambda x, y: (Store(y[0], t.reduce("add", x)),), dtype=dtype, rank=1)
    agree(kernel, [values], places=False, exact=not dtype.is_float)


def softmax(x, y):
    return (
        Let("top", t.reduce("max", x)),
        Store(y[0], t.pointwise("exp", t.pointwise("sub", x, scalar("top"))), By((64,))),
        Let("total", t.reduce("add", y[0])),
        Store(y[0], t.pointwise("div", y[0], scalar("total")), By((64,))),
    )


@pytest.mark.parametrize("n", WIDTHS)
def test_softmax_in_three_passes(n):
    columns, values = width(n)
    kernel = rows_kernel(columns, softmax)
    agree(kernel, [values], places=False)
    loops = [st for st in all_statements(expand_kernel(rows_kernel(128, softmax))) if isinstance(st, For)]
    assert len(loops) == 3


def layernorm(x, y):
    """Mean and variance in one pass, the rest in the second; a scalar expression that is no statement of its own."""
    n = t.position(x.type.shape[0], f32)
    mean = t.pointwise("div", scalar("sum"), n)
    square = t.pointwise("sub", t.pointwise("div", scalar("squares"), n), t.pointwise("mul", mean, mean))
    scale = t.pointwise("rsqrt", t.pointwise("add", square, t.full(1e-5, f32)))
    return (
        Let("sum", t.reduce("add", x)),
        Let("squares", t.reduce("add", t.pointwise("mul", x, x))),
        Store(y[0], t.pointwise("mul", t.pointwise("sub", x, mean), scale), By((64,))),
    )


@pytest.mark.parametrize("n", [3, 70, 130, -4, -71, -131])
def test_layernorm_in_two_passes(n):
    columns, values = width(n)
    agree(rows_kernel(columns, layernorm), [values], places=False)
    body = expand_kernel(rows_kernel(128, layernorm)).phases[0].body
    assert [type(st).__name__ for st in body].count("For") == 2
    last = body[-1]
    assert isinstance(last, For) and len(last.body) == 1, "scalar work stays out of the loop"


@pytest.mark.parametrize("n", [70, -71])
def test_order_is_kept_where_lanes_differ(n):
    """y is read shifted after it was written, and written again after it was read."""
    columns, values = width(n)

    def body(x, y):
        w = t.window(y[0])
        back = t.load(w.buffer, (w.positions[0], ix.sub(ix.sub(columns, 1), ax(0, columns))), (columns,))
        return (
            Store(y[0], t.pointwise("mul", x, x), By((64,))),
            Store(y[1], t.pointwise("add", back, x), By((64,))),
            Let("total", t.reduce("add", y[1])),
            Store(y[1], t.pointwise("sub", y[1], scalar("total")), By((64,))),
            Store(y[0], y[1], By((64,))),
        )

    agree(rows_kernel(columns, body, ("y", "z")), [values], places=False)


def test_a_reduction_reads_what_a_later_store_overwrites():
    def body(x, y):
        return (
            Store(y[0], x, By((64,))),
            Let("total", t.reduce("add", y[0])),
            Store(y[0], t.full(1.0, f32), By((64,))),
            Store(y[1], t.pointwise("mul", y[0], scalar("total")), By((64,))),
        )

    agree(rows_kernel(N, body, ("y", "z")), [{"m": 2, "n": n} for n in (0, 1, 70)], places=False)


def test_columns_of_different_extents():
    """Two reductions over rows of different widths, and what depends on both."""
    x, z, y = Buffer("x", f32, (M,)), Buffer("z", f32, (N,)), Buffer("y", f32, (N,))
    body = (
        Let("a", t.reduce("add", t.whole(x))),
        Let("b", t.reduce("max", t.whole(z))),
        Store(t.whole(y), t.pointwise("mul", t.whole(z), t.pointwise("add", scalar("a"), scalar("b"))), By((16,))),
    )
    kernel = Kernel("two", (x, z), (y,), (M, N), (Grid((), body),))
    agree(kernel, [{"m": m, "n": n} for m, n in itertools.product((0, 1, 17, 64), (0, 1, 33))], places=False)


def test_reductions_feed_what_a_loop_carries():
    x, y = Buffer("x", f32, (M, N)), Buffer("y", f32, ())
    r = ix.symbol("r", 0, None)
    row = t.reduce("add", t.load(x, (r, ax(0, N)), (N,)))
    first = t.reduce("max", t.load(x, (0, ax(0, N)), (N,)))
    loop = For(r, 0, M, 1, (), (k.Carry("acc", "all", TileType(f32), first),), (t.pointwise("add", scalar("acc"), row),))
    kernel = Kernel("sum", (x,), (y,), (M, N), (Grid((), (loop, Store(t.load(y, ()), scalar("all")))),))
    agree(kernel, [{"m": m, "n": n} for m, n in itertools.product((1, 3), (0, 1, 70))], places=False)


def test_an_element_of_an_empty_buffer_is_not_read():
    x, y = Buffer("x", f32, (N,)), Buffer("y", f32, (N,))
    value = t.pointwise("sub", t.whole(x), t.load(x, (0,)))
    kernel = Kernel("first", (x,), (y,), (N,), (Grid((), (Store(t.whole(y), value, By((64,))),)),))
    for n in (0, 1, 70):
        given = np.arange(n, dtype=np.float32)
        assert same(run(expand_kernel(kernel), {"n": n}, [given])[0], given - given[:1])


def test_padding_that_is_asked_for():
    """Columns past a row's extent hold `pad`, up to the vector."""
    own, y = Buffer("own", f32, (32,), "stack"), Buffer("y", f32, (32,))
    n = ix.symbol("n", 0, 20)
    part = Store(t.load(own, (ax(0, n),), (n,)), t.full(1.0, f32), By((16,), pad=5.0))
    clear = Store(t.whole(own), t.full(2.0, f32), By((32,)))
    x = t.pointwise("mul", t.load(own, (ax(0, n),), (n,)), t.full(3.0, f32))
    again = Store(t.load(own, (ax(0, n),), (n,)), x, By((16,), pad=5.0))
    kernel = Kernel(
        "pad", (), (y,), (n,), (Grid((), (Alloc(own), clear, part, again, Store(t.whole(y), t.whole(own), By((32,))))),)
    )
    (found,) = run(expand_kernel(kernel), {"n": 3}, [])
    assert found.tolist() == [3.0] * 3 + [5.0] * 13 + [2.0] * 16


def test_sample_kernels():
    for f, sizes in (
        (k.map_kernel, [{"n": n} for n in (0, 1, 9)]),
        (k.two_phase_kernel, [{"n": n} for n in (0, 1, 9, 40)]),
        (k.gemm_kernel, [{"n": n} for n in (0, 1, 33)]),
        (k.convolution_kernel, [{}]),
        (k.column_sum_kernel, [{"m": 3, "n": n} for n in (1, 100)]),
        (k.row_sum_kernel, [{"n": 3}]),
    ):
        agree(f(), sizes, places=False)


def refused(store, message):
    y = store.window["buffer"]
    with pytest.raises(Error, match=message) as fault:
        expand_kernel(Kernel("bad", (), (y,), (M, N), (Grid((), (store,)),)))
    assert fault.value.code == "TC0302"


def test_what_cannot_be_expanded_is_refused():
    x, y = Buffer("x", f32, (M, N)), Buffer("y", f32, (N,))
    refused(Store(t.whole(y), t.reduce("add", t.whole(x), 0), By((64,))), "axis 0")
    refused(Store(t.whole(y), t.scan("add", t.whole(y)), By((64,))), "scan")
    refused(Store(t.whole(x), t.whole(x), By((64,))), "as many sizes as axes")
    refused(Store(t.whole(x), t.whole(x), By((4, 24))), "24 columns")
    refused(Store(t.whole(y), t.reduce("add", t.whole(x), 1), By((64,))), "one row")


def test_stage():
    with pytest.raises(Error, match="TC0401"):
        expand(Module("tile", "m"))
    assert expand(Module("placed", "m", kernels=(k.gemm_kernel(),))).stage == "reg"
