"""QDQ models run on integers: what they give is what onnxruntime gives, and their products are of bytes."""

import numpy as np
import pytest
from onnx import helper
from onnx_support import model, ours, theirs

import tcomp
from tcomp.codegen.llvm.machines import machine_for
from tcomp.driver import stages_of
from tcomp.frontend.jit import Options
from tcomp.frontend.onnx import load
from tcomp.ir.printer import print_module

WORDS = machine_for("cpu")[0].words()
node = helper.make_node


def dequantise(name, source, scale, zero, axis=None):
    return node("DequantizeLinear", [source, scale, zero], [name], **({} if axis is None else {"axis": axis}))


def quantise(name, source, scale, zero):
    return node("QuantizeLinear", [source, scale, zero], [name])


def agree(m, feeds, products):
    """Compiled code, the interpreter and onnxruntime agree but for one step of quantisation in a hundred results."""
    text = print_module(stages_of(load(m.SerializeToString()), Options())["tile"])
    assert WORDS is None or text.count(f"@{WORDS.name}") >= products
    native = list(tcomp.compile(m.SerializeToString(), use_cache=False).run(feeds).values())
    for want in (theirs(m, feeds), ours(m, feeds)):
        for got, w in zip(native, want, strict=True):
            assert got.dtype == w.dtype and got.shape == w.shape
            if w.dtype.kind == "f":
                np.testing.assert_allclose(got, w, rtol=1e-5, atol=1e-5 * np.abs(w).max())
                continue
            apart = np.abs(got.astype(np.int64) - w.astype(np.int64))
            assert apart.max() <= 1 and (apart != 0).mean() < 0.01


def rng(*shape, low=-128, high=128, dtype=np.int8, seed=0):
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("zero", [np.uint8(0), np.uint8(121)])
def test_matmul(per_channel, zero):
    w = rng(40, 24)
    constants = {
        "w": w, "sx": np.float32(0.02), "zx": zero, "sy": np.float32(0.9), "zy": np.uint8(7),
        "sw": np.linspace(0.01, 0.03, 24, dtype=np.float32) if per_channel else np.float32(0.015),
        "zw": np.zeros(24, np.int8) if per_channel else np.int8(0), "b": np.linspace(-1, 1, 24, dtype=np.float32),
    }  # fmt: skip
    nodes = [
        quantise("q", "x", "sx", "zx"), dequantise("d", "q", "sx", "zx"), dequantise("v", "w", "sw", "zw", 1),
        node("MatMul", ["d", "v"], ["p"]), node("Add", ["p", "b"], ["r"]), quantise("y", "r", "sy", "zy"),
    ]  # fmt: skip
    x = np.random.default_rng(1).standard_normal((3, 5, 40)).astype(np.float32)
    agree(model(nodes, {"x": x}, {"y": "uint8", "r": "float32"}, constants=constants), {"x": x}, 1)


@pytest.mark.parametrize("zero", [np.uint8(0), np.uint8(130)])
@pytest.mark.parametrize("attributes", [{"pads": [1, 1, 1, 1]}, {"strides": [2, 2], "pads": [0, 1, 1, 0]}])
def test_two_convolutions(zero, attributes):
    """Padding of a zero that is a byte; a bias quantised to 32 bits; integers between the layers."""
    constants = {
        "w": rng(16, 8, 3, 3), "sw": np.linspace(0.0107, 0.0311, 16, dtype=np.float32), "zw": np.zeros(16, np.int8),
        "u": rng(9, 16, 1, 1, seed=2), "su": np.float32(0.0041), "zu": np.int8(0), "sx": np.float32(0.02), "zx": zero,
        "bias": rng(16, low=-999, high=999, dtype=np.int32), "sb": np.float32(0.0004), "zb": np.int32(0),
        "sy": np.float32(0.2137), "zy": np.uint8(99),
    }  # fmt: skip
    nodes = [
        quantise("q", "x", "sx", "zx"), dequantise("d", "q", "sx", "zx"), dequantise("v", "w", "sw", "zw", 0),
        dequantise("b", "bias", "sb", "zb"), node("Conv", ["d", "v", "b"], ["p"], **attributes), node("Relu", ["p"], ["a"]),
        quantise("m", "a", "sy", "zy"), dequantise("e", "m", "sy", "zy"), dequantise("t", "u", "su", "zu"),
        node("Conv", ["e", "t"], ["r"]), quantise("y", "r", "sy", "zy"),
    ]  # fmt: skip
    x = np.random.default_rng(1).standard_normal((2, 8, 9, 10)).astype(np.float32)
    agree(model(nodes, {"x": x}, {"m": "uint8", "y": "uint8"}, constants=constants), {"x": x}, 2)


def test_operators_on_integers():
    """QLinearMatMul and QLinearConv multiply bytes."""
    constants = {
        "w": rng(32, 24), "v": rng(16, 8, 3, 3), "s": np.float32(0.02), "t": np.float32(0.7), "z": np.int8(0), "zx": np.uint8(90),
    }  # fmt: skip
    nodes = [
        node("QLinearMatMul", ["x", "s", "zx", "w", "s", "z", "t", "zx"], ["y"]),
        node("QLinearConv", ["i", "s", "zx", "v", "s", "z", "t", "zx"], ["r"], pads=[1, 1, 1, 1]),
    ]
    feeds = {"x": rng(7, 32, low=0, high=256, dtype=np.uint8), "i": rng(1, 8, 6, 6, low=0, high=256, dtype=np.uint8)}
    agree(model(nodes, feeds, {"y": "uint8", "r": "uint8"}, constants=constants), feeds, 2)


def test_bitwise_keeps_the_products_of_the_text():
    constants = {"w": rng(40, 24), "s": np.float32(0.02), "z": np.int8(0)}
    nodes = [dequantise("d", "x", "s", "z"), dequantise("v", "w", "s", "z"), node("MatMul", ["d", "v"], ["y"])]
    func = load(model(nodes, {"x": rng(4, 40)}, ["y"], constants=constants).SerializeToString())
    chosen = [print_module(stages_of(func, Options(fp=fp))["tile"]) for fp in (None, "bitwise")]
    assert WORDS is None or [f"@{WORDS.name}" in text for text in chosen] == [True, False]


def test_dynamic_quantisation():
    """The zero point of the first operand is known only when it runs; rows of sizes that are, too."""
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]), node("MatMulInteger", ["q", "w", "z", "zw"], ["p"]),
        node("Cast", ["p"], ["f"], to=1), node("Mul", ["s", "t"], ["st"]), node("Mul", ["f", "st"], ["y"]),
    ]  # fmt: skip
    constants = {"w": rng(40, 24), "zw": np.int8(0), "t": np.float32(0.013)}
    x = np.random.default_rng(1).standard_normal((3, 5, 40)).astype(np.float32)
    agree(model(nodes, {"x": ("float32", [3, "rows", 40])}, ["y"], constants=constants), {"x": x}, 1)


def test_products_too_deep_for_the_sum_stay():
    """i32 does not hold the sum of 40000 products of bytes."""
    constants = {"w": rng(40000, 16), "s": np.float32(0.02), "z": np.int8(0)}
    nodes = [dequantise("d", "x", "s", "z"), dequantise("v", "w", "s", "z"), node("MatMul", ["d", "v"], ["y"])]
    m = model(nodes, {"x": ("int8", [2, 40000])}, ["y"], constants=constants)
    text = print_module(stages_of(load(m.SerializeToString()), Options())["tile"])
    assert WORDS is None or f"@{WORDS.name}" not in text


@pytest.mark.parametrize("rows, dtype", [(1, "i8"), (4, "i8"), (5, "f32")])
def test_weights_of_products_of_few_rows_stay_small(rows, dtype):
    """Reading them is the work; more rows take them as floats, packed at compile time."""
    w, s = rng(600, 512), np.linspace(0.01, 0.02, 512, dtype=np.float32)
    constants = {"w": w, "s": s, "z": np.zeros(512, np.int8)}
    m = model([dequantise("v", "w", "s", "z", 1), node("MatMul", ["x", "v"], ["y"])], {"x": ("float32", [rows, 600])}, ["y"],
              constants=constants)  # fmt: skip
    kernel = print_module(stages_of(load(m.SerializeToString()), Options())["tile"]).split("\nkernel ")[1].split("\n")[0]
    assert f"in1 : {dtype}[" in kernel
    x = np.random.default_rng(1).standard_normal((rows, 600)).astype(np.float32)
    (got,) = tcomp.compile(m.SerializeToString(), use_cache=False).run({"x": x}).values()
    np.testing.assert_allclose(got, x @ (w * s), rtol=1e-4, atol=1e-3)
