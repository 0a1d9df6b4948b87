"""Text round trips: print(parse(text)) == text, and the parsed nodes are the printed ones. Faults carry line and caret."""

import numpy as np
import pytest
import sample_kernels as k
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_kernels import Buffer, N, f32, ix, t

from tcomp.errors import Error
from tcomp.ir import dtype as dt
from tcomp.ir import graph as g
from tcomp.ir.dtype import to_numpy
from tcomp.ir.dump import load_dump, save_dump
from tcomp.ir.literals import read_array, show_array
from tcomp.ir.module import Module
from tcomp.ir.ops import OPS, apply, constant, parameter
from tcomp.ir.parser import parse
from tcomp.ir.printer import large_constants, print_module
from tcomp.ir.stmts import By, Carry, For, Grid, Kernel, Launch, Let, Main, Store
from tcomp.ir.types import TileType


def round_trip(module):
    """The module parsed from its text, which must print as the same text."""
    text = print_module(module)
    again = parse(text, large_constants(module))
    assert print_module(again) == text
    return again


def graph(*results, params=(), names=None, defaults=()):
    names = names or tuple(f"y{i}" for i in range(len(results)))
    return Module("graph", "g", g.Func("f", params, results, names, defaults=defaults))


@pytest.mark.parametrize("stage, make", [(stage, f) for stage, fs in k.KERNELS.items() for f in fs])
def test_sample_kernels(stage, make):
    kernel = make()
    assert round_trip(Module(stage, "m", None, (kernel,))).kernels == (kernel,)


def test_main_constants_nodes():
    base = k.two_step_module()
    large, small = np.arange(40, dtype=np.int16).reshape(8, 5), np.array([True, False])
    module = Module(
        "tile", "odd name", None, base.kernels, base.main, {"w": large, "b 1": small}, ('m.py:3 "x"', ""), (("Gemm", "native"),)
    )
    again = round_trip(module)
    assert again.main == base.main and again.nodes == module.nodes and again.realised == module.realised
    assert np.array_equal(again.constants["w"], large) and np.array_equal(again.constants["b 1"], small)


def test_the_notation():
    """One example of the text, as people are meant to read it."""
    text = print_module(Module("placed", "m", None, (k.gemm_kernel(),)))
    assert text == (
        "module @m stage placed target cpu\n\n"
        "kernel @gemm symbols(n) (a : f32[n, 100], b : f32[100, 70]) -> (c : f32[n, 70])\n"
        "  grid (j in 70 by 64)\n"
        "    for s in 0..100 by 60\n"
        "      alloc bp : f32[min(100 - s, 60), min(64, 70 - j)] @scratch order(1, 0, 1%32)\n"
        "      store bp[:, :] = b[s : min(100 - s, 60), j : min(64, 70 - j)]  by 1x32 ji\n"
        "      %v0 = dot(a[:, s : min(100 - s, 60)], bp[:, :], when((0 < s), c[:, j : min(64, 70 - j)], 0.0))"
        " @fma512_f32 unroll 4\n"
        "      store c[:, j : min(64, 70 - j)] = when((99 < (s + 60)), max(%v0, 0.0), %v0)  by 14x32 spill\n"
    )


def test_graph_text():
    x = parameter("x:0", f32, (N, 2))
    y = apply("max", x, g.broadcast(constant(np.float32(0.1)), (N, 2), ()))
    text = print_module(graph(y, x, params=(x,), names=("y", "same")))
    assert text == (
        "module @g stage graph target cpu\n"
        'func @f symbols(n) (%"x:0" : f32[n, 2]) -> (y = %max, same = %"x:0")\n'
        "  %constant : f32[] = constant {value = [0x1.99999ap-4]}\n"
        "  %broadcast : f32[n, 2] = broadcast %constant {shape = (n, 2), axes = ()}\n"
        '  %max : f32[n, 2] = max %"x:0", %broadcast\n'
    )
    again = parse(text)
    assert again.func.results == (y, x) and again.func.result_names == ("y", "same")


def test_names_that_clash_or_need_quotes():
    a, b = parameter("add", f32, (3,)), parameter("max", f32, (ix.symbol("batch size"), 3))
    module = graph(apply("add", a, a), apply("neg", b), params=(a, b), names=("in", "y 2"))
    assert round_trip(module).func.results == module.func.results


def test_several_results_and_every_attribute_kind():
    m = ix.symbol("m", 2, 64, 2)
    x = parameter("x", f32, (m, N))
    top = apply("top_k", x, k=2, axis=0, largest=True)
    parts = (
        apply("reduce", x, monoid="add", axes=(1,)),
        apply("item", top, index=1),
        apply("iota", shape=(m // 2 + 1, N), axis=0, dtype=dt.i32),
        apply("dimension", dim=(m // 2) * 2 - N, dtype=dt.i64),
        apply("slice", x, start=(0, N - 1), shape=(m, 1), step=(1, -1)),
    )
    assert round_trip(graph(*parts, params=(x,))).func.results == parts


def test_defaults():
    x = parameter("x", f32, (64,))
    module = graph(apply("neg", x), params=(x,), defaults=(("x", np.arange(64, dtype=np.float32)),))
    again = round_trip(module)
    assert again.func.defaults[0][0] == "x" and np.array_equal(again.func.defaults[0][1], np.arange(64))


# --- numbers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", dt.ALL.values(), ids=str)
def test_all_bits_of_elements_survive(dtype):
    rng = np.random.default_rng(1)
    t_ = to_numpy(dtype)
    raw = rng.integers(0, 256, 400 * t_.itemsize, dtype=np.uint8)
    raw = raw % 2**dtype.bits if dtype.bits < 8 else raw
    array = (raw[:400] % 2).astype(bool) if dtype.kind == "bool" else raw.view(t_)
    if dtype.is_float:  # the special values beside the random ones, among which NaNs with payloads are frequent enough
        array = np.concatenate([array, np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1e-45], t_)])
    text = show_array(array, dtype)
    again = read_array(text[1:-1].split(", "), dtype, array.shape)
    assert again.dtype == array.dtype and again.tobytes() == array.tobytes()


@settings(max_examples=100, deadline=None)
@given(st.floats(), st.sampled_from([dt.f32, dt.f64, dt.bf16]))
def test_scalars_of_tiles(x, dtype):
    module = Module("reg", "m", None, (Kernel("k", (), (), (), (Grid((), (Let("v", t.full(x, dtype)),)),)),))
    assert round_trip(module).kernels == module.kernels


# --- random programs -----------------------------------------------------------------------------------

UNARY = sorted(n for n, row in OPS.items() if row.kind == "pointwise" and row.arity == 1 and not row.attrs)
BINARY = ["add", "sub", "mul", "div", "max", "min", "pow", "atan2"]


@st.composite
def graphs(draw):
    """Programs over f32[n, 4] values, of pointwise operations, movement, reductions and constants."""
    x, w = parameter("x", f32, (N, 4)), parameter("w", f32, (N, 4))
    values = [x, w]
    for _ in range(draw(st.integers(1, 12))):
        a, b = draw(st.sampled_from(values)), draw(st.sampled_from(values))
        match draw(st.integers(0, 7)):
            case 0:
                floats = st.floats(width=32, allow_nan=False)
                v = g.broadcast(constant(np.array(draw(st.lists(floats, min_size=4, max_size=4)), np.float32)), (N, 4), (1,))
            case 1:
                v = apply("slice", apply("concat", a, b, axis=1), start=(0, draw(st.integers(0, 4))), shape=(N, 4), step=(1, 1))
            case 2:
                v = g.reduce_keep(a, draw(st.sampled_from(["add", "max"])), (draw(st.integers(0, 1)),))
            case 3:
                v = apply("where", apply("lt", a, b), a, b)
            case 4:
                v = g.transpose(g.reshape(g.transpose(a, (1, 0)), (4, N)), (1, 0))
            case 5:
                v = g.cast(g.cast(a, draw(st.sampled_from([dt.i32, dt.bf16, dt.f64]))), f32)
            case _:
                v = apply(draw(st.sampled_from(BINARY)), a, b)
        values.append(v)
    results = tuple(draw(st.lists(st.sampled_from(values), min_size=1, max_size=3)))
    return graph(*results, params=(x, w))


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_random_graphs(module):
    assert round_trip(module).func.results == module.func.results


X, W = Buffer("x", f32, (N, 64)), Buffer("w", f32, (64, N))
ROW, COLUMN = ix.symbol("i", 0, None, 4), ix.symbol("j", 0, 48, 16)
WHERE = Buffer("where", dt.i64, (N,))


def windows(draw):
    """A window of 4 x 16 of x or w: ordinary, transposed, strided, masked, gathered or padded."""
    a, b = t.axis(0, 4), t.axis(1, 16)
    count = draw(st.sampled_from([None, N - ROW, ix.minimum(N, 5)]))
    match draw(st.integers(0, 5)):
        case 0:
            return t.load(X, (ROW + a, COLUMN + b), (4, 16), (None, count))
        case 1:
            return t.load(W, (COLUMN + b, ROW + a), (4, 16), (count, None))
        case 2:
            return t.load(X, (3 * a + ROW, ix.floordiv(b + COLUMN, 2) + 1), (4, 16))
        case 3:
            return t.load(X, (ix.read(WHERE, (ROW + a,), 0, 99), b), (4, 16), (count, count))
        case 4:
            return t.load(X, (ROW + a - 1, COLUMN + b), (4, 16), None, t.full(draw(st.floats(width=32)), f32))
        case _:
            return t.load(X, (ROW, COLUMN + b), (1, 16), (None, count))


@st.composite
def kernels(draw):
    """Kernels of random expressions on 4 x 16 tiles, with loops, carries and shared parts."""
    tile = TileType(f32, (4, 16))
    values = [t.ref("acc", tile), t.full(draw(st.floats(width=32)), f32), windows(draw)]
    for _ in range(draw(st.integers(1, 14))):
        a, b = draw(st.sampled_from(values)), draw(st.sampled_from(values))
        match draw(st.integers(0, 6)):
            case 0:
                values.append(windows(draw))
            case 1:
                values.append(t.pointwise(draw(st.sampled_from(UNARY[:6])), a) if a.type.dtype == f32 else a)
            case 2:
                values.append(t.when(ix.less(ROW, N - 4), a, b))
            case 3:
                row = t.reduce("max", t.pointwise("add", windows(draw), t.ref("acc", tile)))
                values.append(t.expand(row, 1))
            case 4:
                values.append(t.position(ix.mod(ROW + t.axis(0, 4), 3) + t.axis(1, 16), f32, (4, 16)))
            case _:
                values.append(t.pointwise(draw(st.sampled_from(BINARY)), a, b))
    values = [v for v in values if v.type.dtype == f32]
    value = t.pointwise("add", t.ref("acc", tile), values[-1])
    y = Buffer("y", f32, (N, 64), "stack", draw(st.sampled_from([None, ((1, 0), (0, 0), (1, 16))])), draw(st.integers(0, 2)))
    by = draw(st.sampled_from([None, By((16,)), By((4, 16), "ji", "masked", True, -0.0), By((2, 16), "ij", "balanced")]))
    store = Store(t.load(y, (ROW + t.axis(0, 4), COLUMN + t.axis(1, 16)), (4, 16)), value, by)
    loop = For(COLUMN, 0, 64, 16, (store,), (Carry("acc", "sum", tile, values[1]),), (value,))
    return Kernel("k", (X, W, WHERE), (y,), (N,), (Grid((k.GridAxis(ROW, N, 4),), (loop,)),))


@settings(max_examples=100, deadline=None)
@given(kernels())
def test_random_kernels(kernel):
    assert round_trip(Module("placed", "m", None, (kernel,))).kernels == (kernel,)


def test_long_chains_print_and_parse():
    """A thousand operations deep: neither side recurses with the depth of the program."""
    x = Buffer("x", f32, (16,))
    value = t.whole(x)
    for i in range(1000):
        value = t.pointwise("mul" if i % 2 else "add", value, t.full(float(i), f32))
    y = Buffer("y", f32, (16,))
    module = Module("reg", "m", None, (Kernel("k", (x,), (y,), (), (Grid((), (Store(t.whole(y), value),)),)),))
    assert round_trip(module).kernels == module.kernels
    assert max(map(len, print_module(module).splitlines())) < 160


def test_shared_parts_are_written_once():
    x, y = Buffer("x", f32, (16,)), Buffer("y", f32, (16,))
    value = t.whole(x)
    for _ in range(60):
        value = t.pointwise("add", value, value)
    module = Module("reg", "m", None, (Kernel("k", (x,), (y,), (), (Grid((), (Store(t.whole(y), value),)),)),))
    assert round_trip(module).kernels == module.kernels
    assert len(print_module(module)) < 5000


# --- dumps ---------------------------------------------------------------------------------------------


def test_dump_keeps_constants_beside_the_text(tmp_path):
    import ml_dtypes

    arrays = [np.arange(100, dtype=np.float32), np.arange(100).astype(ml_dtypes.bfloat16), np.ones((3, 9), bool)]
    nodes = tuple(constant(a) for a in arrays)
    path = tmp_path / "01_import.tc"
    save_dump(graph(*nodes), path)
    again = load_dump(path)
    assert again.func.results == nodes and "sha256:" in path.read_text()


def test_altered_constants_are_refused(tmp_path):
    path = tmp_path / "x.tc"
    save_dump(graph(constant(np.arange(100, dtype=np.float32))), path)
    beside = path.with_suffix(".safetensors")
    beside.write_bytes(beside.read_bytes()[:-1] + b"\x01")
    with pytest.raises(Error, match="TC0701"):
        load_dump(path)
    beside.unlink()
    with pytest.raises(Error, match=r"TC0301(?s:.)*safetensors file beside the text"):
        load_dump(path)


# --- faults --------------------------------------------------------------------------------------------

GRAPH = "module @m stage graph target cpu\nfunc @f (%x : f32[3]) -> (y = %a)\n"
KERNEL = "module @m stage tile target cpu\nkernel @k symbols(n) (x : f32[n, 8]) -> (y : f32[n, 8])\n  grid (i in n)\n"
FAULTS = {
    "empty": ("", "empty text"),
    "no stage": ("module @m stage loops target cpu", "expected: one of graph, tile, placed, reg"),
    "unknown operation": (GRAPH + "  %a : f32[3] = frob %x\n", "3:17\n    %a : f32[3] = frob %x\n                  ^"),
    "unknown value": (GRAPH + "  %a : f32[3] = neg %z\n", "`z`\n"),
    "a name twice": (GRAPH + "  %x : f32[3] = neg %x\n", "not taken yet"),
    "no result": (GRAPH, "`a`"),
    "unknown symbol": (GRAPH.replace("[3]", "[n]"), "`n`, which is not declared here"),
    "a wrong count of elements": (GRAPH + "  %a : f32[3] = constant {value = [1.0]}\n", "3 elements of f32"),
    "a sign": (GRAPH + "  %a ; f32[3]\n", "`;`"),
    "a missing bracket": (KERNEL + "    store y[i, : = 0.0\n", "4:18"),
    "not a buffer": (KERNEL + "    store z[i] = 0.0\n", "`z`, which is no buffer here"),
    "no such value": (KERNEL + "    store y[i, :] = t\n", "`t`, which names no value here"),
    "too few positions": (KERNEL + "    store y[i] = 0.0\n", "2 positions, as many as `y` has axes"),
    "arity": (KERNEL + "    a = max(1.0)\n", "2 operands of `max`"),
    "ranks": (KERNEL + "    a = x[:, :] + x[0, :]\n", "tiles of one rank"),
    "indentation": (KERNEL + "       a = 1.0\n", "indented too far"),
    "after the end": (KERNEL + "    a = 1.0 2.0\n", "the end of the line"),
    "yield of a branch": (KERNEL + "    if i\n      yield 1.0\n", "at the end of a loop"),
    "a monoid": (KERNEL + "    a = reduce avg(x[i, :]) axis 0\n", "one of add, mul"),
    "a register tile": (KERNEL + "    store y[i, :] = x[i, :]  by 14xj\n", "14x32"),
    "half a register tile": (KERNEL + "    store y[i, :] = x[i, :]  by 14x\n", "14x32"),
    "a quoted name": ('module @"a\x01b" stage graph target cpu\n', "quoted as JSON does"),
    "an escape": (KERNEL + '    "\\q" = 1.0\n', "quoted as JSON does"),
    "digits without end": (KERNEL + f"    a = {'9' * 5000}\n", "at most 100 digits"),
    "too deep": (KERNEL + f"    a = {'(' * 5000}1.0\n", "nested too deeply"),
    "a statement of main": ("module @m stage tile target cpu\nmain () -> ()\n  frob x\n", "`launch`"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults(name):
    text, message = FAULTS[name]
    with pytest.raises(Error) as caught:
        parse(text)
    assert caught.value.code == "TC0301" and message in str(caught.value), str(caught.value)


def test_launches_are_kept():
    main = Main((), (), (), (), (Launch("k", ("a b", "c"), (3, 4), 5, (1, 2)),))
    assert round_trip(Module("reg", "m", None, (), main)).main == main
