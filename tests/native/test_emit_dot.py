"""Micro-kernels: both forms, all rows of the intrinsic table that run here, operands in any layout."""

import numpy as np
import pytest
from reg import HOST, MACHINES, Native, check, emit, kernel, machine, memory_of, same, window

from tcomp.codegen.llvm.compile import compile_text, named
from tcomp.ir import dtype as dt
from tcomp.ir import index, tile
from tcomp.ir.interp.tile import run_kernel
from tcomp.ir.stmts import Alloc, Carry, For, Let, Store
from tcomp.ir.tile import full, pointwise, ref
from tcomp.ir.types import Buffer, TileType

F32 = dt.f32
K = index.symbol("k", 0, 300)
N = index.symbol("n", 0, 300)
M = index.symbol("m", 0, 300)
TOLERANCE = {"f32": 1e-5, "f64": 1e-13, "i32": 0.0, "i64": 0.0}


def product(m, n, k, dtype=F32, form="splat", machine=HOST, unroll=4, symbols=(), acc=None, name="dot"):
    """c = acc + a b of one register tile: a[m, k], b[k, n], or for `lanes` b[n, k]."""
    a = Buffer("a", dtype, (m, k))
    b = Buffer("b", dtype, (k, n) if form == "splat" else (n, k))
    c = Buffer("c", dtype, (m, n))
    x = tile.whole(a)
    y = tile.whole(b) if form == "splat" else tile.load(b, (tile.axis(1, n), tile.axis(0, k)), (k, n))
    start = full(0, dtype) if acc is None else window(c, extents=(m, n))
    value = tile.dot(x, y, start, machine.intrinsic(dtype, form).name, unroll)
    return kernel([a, b], [c], Store(window(c, extents=(m, n)), value), symbols=symbols, name=f"{name}_{m}_{n}_{dtype}_{form}")


@pytest.mark.parametrize("form", ["splat", "lanes"])
@pytest.mark.parametrize("dtype", [dt.f32, dt.f64, dt.i32, dt.i64], ids=str)
@pytest.mark.parametrize("name", MACHINES)
def test_every_row_of_the_table(name, dtype, form):
    m = MACHINES[name]
    check(product(3, 16, 37, dtype, form, m), m, rtol=TOLERANCE[str(dtype)])


@pytest.mark.parametrize("form", ["splat", "lanes"])
@pytest.mark.parametrize(
    ("m", "n", "k"), [(14, 32, 64), (1, 16, 1), (6, 64, 7), (14, 32, 0), (8, 48, 16), (13, 32, 33), (5, 16, 100)]
)
def test_shapes(m, n, k, form):
    check(product(m, n, k, form=form), rtol=1e-5)


@pytest.mark.parametrize("form", ["splat", "lanes"])
def test_adding_to_what_is_there(form):
    check(product(6, 32, 21, form=form, acc=True, name="acc"), rtol=1e-5)


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("form", ["splat", "lanes"])
def test_a_symbolic_depth(form, name):
    m = MACHINES[name]
    k = product(4, 16, K, form=form, machine=m, symbols=[K])
    run = Native(k, m)
    for depth in (0, 1, 3, 4, 5, 15, 16, 17, 64, 100):
        check(k, symbols={"k": depth}, rtol=1e-5, native=run)


def symbolic(form):
    """Rows and columns of a symbolic stride: a tile inside larger matrices."""
    a, b, c = Buffer("a", F32, (M, K)), Buffer("b", F32, (K, N) if form == "splat" else (N, K)), Buffer("c", F32, (M, N))
    x = tile.load(a, (tile.axis(0, 7), tile.axis(1, K)), (7, K))
    at = (tile.axis(0, K), tile.axis(1, 32)) if form == "splat" else (tile.axis(1, 32), tile.axis(0, K))
    value = tile.dot(x, tile.load(b, at, (K, 32)), full(0, F32), HOST.intrinsic(F32, form).name, 3)
    return kernel([a, b], [c], Store(window(c, extents=(7, 32)), value), symbols=[M, N, K], name=f"symbolic_{form}")


@pytest.mark.parametrize("form", ["splat", "lanes"])
def test_symbolic_strides(form):
    k = symbolic(form)
    run = Native(k)
    for m, n, depth in ((7, 32, 10), (9, 50, 1), (30, 100, 35)):
        check(k, symbols={"m": m, "n": n, "k": depth}, rtol=1e-5, native=run)


def test_a_transposed_left_operand():
    """Rows of a are columns in memory: the stride along k is symbolic."""
    a, b, c = Buffer("a", F32, (K, N)), Buffer("b", F32, (K, 32)), Buffer("c", F32, (6, 32))
    x = tile.load(a, (tile.axis(1, K), tile.axis(0, 6)), (6, K))
    value = tile.dot(x, tile.whole(b), full(0, F32), HOST.intrinsic(F32).name)
    k = kernel([a, b], [c], Store(window(c, extents=(6, 32)), value), symbols=[N, K], name="left_transposed")
    check(k, symbols={"n": 9, "k": 23}, rtol=1e-5)


def packed(m, n, k):
    """b packed into panels of 32 columns in scratch, then the product tile by tile."""
    a, b, c = Buffer("a", F32, (m, k)), Buffer("b", F32, (k, n)), Buffer("c", F32, (m, n))
    panels = Buffer("p", F32, (k, n), "scratch", ((1, 0), (0, 0), (1, 32)))
    r, j, q = index.symbol("r", 0, k), index.symbol("j", 0, n, 32), index.symbol("q", 0, n, 32)
    pack = Store(window(panels, r, j, extents=(1, 32)), window(b, r, j, extents=(1, 32), valid=index.sub(n, j)))
    left = tile.load(a, (tile.axis(0, m), tile.axis(1, k)), (m, k))
    right = tile.load(panels, (tile.axis(0, k), index.add(q, tile.axis(1, 32))), (k, 32))
    value = tile.dot(left, right, full(0, F32), HOST.intrinsic(F32).name)
    out = Store(window(c, 0, q, extents=(m, 32), valid=index.sub(n, q)), value)
    return kernel(
        [a, b],
        [c],
        Alloc(panels),
        For(r, 0, k, 1, (For(j, 0, n, 32, (pack,)),)),
        For(q, 0, n, 32, (out,)),
        name=f"packed_{m}_{n}_{k}",
    )


@pytest.mark.parametrize(("m", "n", "k"), [(14, 64, 30), (5, 70, 13), (1, 32, 1)])
def test_packed_panels(m, n, k):
    check(packed(m, n, k), rtol=1e-5)


def test_the_panels_advance_by_constants():
    """No multiplication and no address but displacements inside the loop over k."""
    text, _ = emit(packed(14, 64, 64))
    loops = [part for part in text.split("\nloop")[1:] if "llvm.fma" in part.split("\nafter")[0]]
    assert len(loops) == 1
    body = loops[0].split("\nafter")[0]
    assert body.count("@llvm.fma.v16f32") == 14 * 2 * 4
    assert " mul " not in body


def test_products_over_a_loop_that_carries_the_accumulator():
    """A convolution along rows: 8 output pixels of stride 2, a window of 3 by 5 channels merged into k."""
    x, weights, y = Buffer("x", F32, (19, 5)), Buffer("w", F32, (4, 15, 32)), Buffer("y", F32, (8, 32))
    h = index.symbol("h", 0, 3)
    merged = tile.axis(1, 15)
    pixel = index.add(index.mul(tile.axis(0, 8), 2), index.floordiv(merged, 5))
    left = tile.load(x, (pixel, index.mod(merged, 5)), (8, 15))
    right = tile.load(weights, (h, tile.axis(0, 15), tile.axis(1, 32)), (15, 32))
    acc = Carry("acc", "sum", TileType(F32, (8, 32)), full(0, F32))
    step = tile.dot(left, right, ref("acc", TileType(F32, (8, 32))), HOST.intrinsic(F32).name)
    k = kernel(
        [x, weights],
        [y],
        For(h, 0, 4, 1, (), (acc,), (step,)),
        Store(window(y, extents=(8, 32)), ref("sum", TileType(F32, (8, 32)))),
        name="conv",
    )
    check(k, rtol=1e-5)
    body = emit(k)[0]
    assert "udiv" not in body and "ashr" not in body  # the merged axis is one stride


def split_reduction(k):
    """acc = when(k > 0, c, 0), an epilogue in the last step alone."""
    a, b, bias, c = Buffer("a", F32, (6, k)), Buffer("b", F32, (k, 32)), Buffer("v", F32, (32,)), Buffer("c", F32, (6, 32))
    s = index.symbol("s", 0, k, 8)
    here = window(c, extents=(6, 32))
    depth = index.minimum(8, index.sub(k, s))
    left = tile.load(a, (tile.axis(0, 6), index.add(s, tile.axis(1, depth))), (6, depth))
    right = tile.load(b, (index.add(s, tile.axis(0, depth)), tile.axis(1, 32)), (depth, 32))
    value = tile.dot(left, right, tile.when(index.less(0, s), here, full(0, F32)), HOST.intrinsic(F32).name)
    d = ref("d", TileType(F32, (6, 32)))
    last = index.less(index.sub(k, 9), s)
    epilogue = pointwise("max", pointwise("add", d, tile.expand(window(bias, extents=(32,)), 0)), full(0, F32))
    body = (Let("d", value), Store(here, tile.when(last, epilogue, d)))
    return kernel([a, b, bias], [c], For(s, 0, k, 8, body), name=f"split_{k}")


@pytest.mark.parametrize("k", [8, 16, 27])
def test_a_split_reduction_with_an_epilogue(k):
    check(split_reduction(k), rtol=1e-5)


@pytest.mark.parametrize("form", ["splat", "lanes"])
def test_operands_that_are_no_plain_windows(form):
    """Padding in place, arithmetic, a gather: one k at a time."""
    a, b, c = Buffer("a", F32, (6, 20)), Buffer("b", F32, (25, 16)), Buffer("c", F32, (6, 16))
    rows = Buffer("rows", dt.i64, (24,))
    x = tile.load(a, (tile.axis(0, 6), index.sub(tile.axis(1, 24), 2)), (6, 24), None, full(0.5, F32))
    place = index.read(rows, [tile.axis(0, 24)], 0, 24)
    y = pointwise("neg", tile.load(b, (place, tile.axis(1, 16)), (24, 16)))
    value = tile.dot(x, y, full(1, F32), HOST.intrinsic(F32, form).name)
    k = kernel([a, b, rows], [c], Store(window(c, extents=(6, 16)), value), name=f"general_{form}")
    check(k, arrays={"rows": np.random.default_rng(1).integers(0, 25, 24)}, rtol=1e-5)


@pytest.mark.parametrize(("dtype", "wide"), [(dt.bf16, dt.f32), (dt.i8, dt.i32), (dt.f16, dt.f32), (dt.f32, dt.f64)], ids=str)
def test_operands_narrower_than_the_row(dtype, wide):
    a, b, c = Buffer("a", dtype, (5, 20)), Buffer("b", dtype, (20, 32)), Buffer("c", wide, (5, 32))
    value = tile.dot(tile.whole(a), tile.whole(b), full(0, wide), HOST.intrinsic(wide).name)
    check(kernel([a, b], [c], Store(window(c, extents=(5, 32)), value), name=f"narrow_{dtype}"), rtol=1e-5)


def test_infinities_and_nan_go_through():
    k = product(2, 16, 5)
    rng = np.random.default_rng(2)
    arrays = {b.name: memory_of(b, {}, rng) for b in (*k.inputs, *k.outputs)}
    arrays["a"][0, 1], arrays["b"][3, 4] = np.inf, np.nan
    check(k, arrays=arrays, rtol=1e-5)


def test_an_object_for_aarch64():
    m = machine("aarch64")
    for form in ("splat", "lanes"):
        text, _ = emit(product(4, 16, 20, form=form, machine=m), m)
        assert compile_text(text, named("aarch64"))[:4] == b"\x7fELF"


def test_a_wrong_product_would_show():
    k = product(2, 16, 5)
    arrays = {b.name: memory_of(b, {}, np.random.default_rng(3)) for b in (*k.inputs, *k.outputs)}
    expected = {n: a.copy() for n, a in arrays.items()}
    run_kernel(k, expected, {})
    Native(k)(arrays)
    arrays["c"][1, 15] += 1
    with pytest.raises(AssertionError):
        same(arrays["c"], expected["c"], 1e-5)
