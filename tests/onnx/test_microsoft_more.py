"""com.microsoft: quantised layers, hashes and small fused operators; operators that ONNX took back. Against onnxruntime."""

import numpy as np
import pytest
from compiled_support import MICROSOFT, agree, native, one
from onnx import TensorProto as T
from onnx import helper as h
from onnx_support import model, theirs
from test_control_operators import value

import tcomp

RNG = np.random.default_rng(37)


def f32(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def u8(*shape):
    return RNG.integers(0, 256, shape).astype(np.uint8)


def scale(*shape):
    return (RNG.random(shape) * 0.01 + 0.005).astype(np.float32)


# --- products --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("size", [(6, 40), (3, 7)])
def test_products_by_entries_of_a_table(kind, size):
    n, k = size
    feeds, constants = {"a": f32(2, 3, k)}, {"b": u8(-(-n * k // 2)), "m": scale(-(-n * k // 16))}
    agree(one("MatMulBnb4", feeds, ("y",), constants, N=n, K=k, block_size=16, quant_type=kind), feeds, 1e-3)


def test_products_of_sixteen_bits():
    feeds = {"a": RNG.integers(-200, 200, (2, 3, 5)).astype(np.int16), "b": RNG.integers(-200, 200, (5, 4)).astype(np.int16)}
    ports = [value(n, v) for n, v in feeds.items()]
    graph = h.make_graph(
        [h.make_node("MatMulInteger16", ["a", "b"], ["y"], domain=MICROSOFT)], "g", ports, [value("y", None, T.INT32)]
    )
    m = h.make_model(graph, opset_imports=[h.make_opsetid("", 17), h.make_opsetid(MICROSOFT, 1)], ir_version=8)
    np.testing.assert_array_equal(tcomp.compile(m).run(feeds)["y"], feeds["a"].astype(np.int32) @ feeds["b"].astype(np.int32))


@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_an_lstm_by_bytes(by_column, direction):
    d, size, hidden = 1 + (direction == "bidirectional"), 5, 6
    per = (d, 4 * hidden) if by_column else (d,)
    constants = {"w": u8(d, size, 4 * hidden), "r": u8(d, hidden, 4 * hidden), "b": f32(d, 8 * hidden)}
    constants |= {"ws": scale(*per), "wz": np.full(per, 117, np.uint8), "rs": scale(*per), "rz": np.full(per, 131, np.uint8)}
    feeds = {"x": f32(7, 3, size)}
    names = ["x", "w", "r", "b", "", "", "", "", "ws", "wz", "rs", "rz"]
    m = one("DynamicQuantizeLSTM", feeds, ("y", "h", "c"), constants, names, hidden_size=hidden, direction=direction)
    for got, want in zip(native(m, feeds), theirs(m, feeds), strict=True):
        assert got.shape == want.shape and np.abs(got - want).max() < 0.01


# --- embeddings and norms --------------------------------------------------------------------------------


@pytest.mark.parametrize("segments", [False, True])
@pytest.mark.parametrize("mask", [False, True])
def test_embeddings_in_bytes(segments, mask):
    feeds = {"ids": RNG.integers(0, 9, (2, 4)).astype(np.int32)}
    tables = {"words": u8(9, 8), "positions": u8(6, 8), "gamma": u8(8), "beta": u8(8)} | ({"rows": u8(2, 8)} if segments else {})
    constants = dict(tables)
    for name in tables:
        constants |= {f"{name}_s": np.array(scale(1)[0]), f"{name}_z": np.array(RNG.integers(100, 150), np.uint8)}
    if segments:
        feeds["types"] = RNG.integers(0, 2, (2, 4)).astype(np.int32)
    if mask:
        feeds["mask"] = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32)
    names = ["ids", "types", "words", "positions", "rows", "gamma", "beta", "mask"]
    names += [f"{n}_{part}" for part in "sz" for n in ("words", "positions", "rows", "gamma", "beta")]
    names = [n if n in feeds or n in constants else "" for n in names]
    agree(one("QEmbedLayerNormalization", feeds, {"y": "float32", "count": "int32"}, constants, names), feeds, 1e-3)


@pytest.mark.parametrize("activation", ["silu", "swish", "sigmoid"])
def test_gated_norms(activation):
    feeds, constants = {"x": f32(2, 3, 12), "g": f32(2, 3, 12)}, {"s": f32(4)}
    agree(one("GatedRMSNorm", feeds, ("y",), constants, ["x", "s", "g"], activation=activation), feeds)


# --- small ones ------------------------------------------------------------------------------------------


def test_fused_pointwise_operators():
    feeds = {"x": f32(2, 3, 4)}
    agree(one("ScaledSiLU", feeds, alpha=1.5), feeds)
    agree(one("ScaledSiLU", feeds, ("y",), {"s": np.array(-0.5, np.float32)}), feeds)
    feeds = {"x": f32(2, 3, 4), "y0": f32(2, 3, 4), "gate": f32(2, 3, 1)}
    agree(one("GatedAdd", feeds), feeds)


def test_a_new_axis_and_a_range():
    feeds = {"x": f32(2, 3)}
    for axis in (0, 1, 2, -1, -3):
        agree(one("ExpandDims", feeds, ("y",), {"axis": np.array(axis, np.int32)}), feeds)
    feeds = {"a": np.array([2.0], np.float32), "b": np.array([7.5], np.float32)}
    agree(one("Range", feeds), feeds)
    agree(one("Range", feeds, ("y",), {"step": np.array([1.5], np.float32)}), feeds)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.float32, np.float64])
@pytest.mark.parametrize("positive", [0, 1])
def test_hashes(dtype, positive):
    x = (RNG.integers(-(2**31), 2**31 - 1, (3, 40))).astype(dtype)
    port, out = value("x", x), value("y", None, T.UINT32 if positive else T.INT32)
    node = h.make_node("MurmurHash3", ["x"], ["y"], domain=MICROSOFT, positive=positive, seed=42)
    opsets = [h.make_opsetid("", 17), h.make_opsetid(MICROSOFT, 1)]
    m = h.make_model(h.make_graph([node], "g", [port], [out]), opset_imports=opsets, ir_version=8)
    np.testing.assert_array_equal(tcomp.compile(m).run({"x": x})["y"], theirs(m, {"x": x})[0])


TAKEN_BACK = {
    "Affine": {"alpha": 2.0, "beta": -1.0},
    "Scale": {"scale": 0.3},
    "ScaledTanh": {"alpha": 2.0, "beta": 0.5},
    "ParametricSoftplus": {"alpha": 2.0, "beta": 0.5},
    "ImageScaler": {"scale": 0.5, "bias": [1.0, 2.0, 3.0]},
    "Crop": {"border": [1, 2, 0, 1]},
    "Crop of a size": {"border": [1, 2, 0, 0], "scale": [2, 3]},
}


@pytest.mark.parametrize("case", TAKEN_BACK)
def test_operators_that_onnx_took_back(case):
    feeds = {"x": f32(2, 3, 6, 5)}
    m = model([h.make_node(case.split()[0], ["x"], ["y"], **TAKEN_BACK[case])], feeds, ["y"], 9, ir_version=7)
    agree(m, feeds)


def test_packed_zero_points_count_in_groups_that_an_operand_names():
    """As the document says; onnxruntime's CPU kernel takes the middle of the range instead."""
    n, k, block, bits = 4, 32, 16, 4
    codes, zeros = RNG.integers(0, 16, (n, k)).astype(np.uint8), RNG.integers(0, 16, (n, 2)).astype(np.uint8)
    pack = lambda v: v[..., 0::2] | v[..., 1::2] << 4  # noqa: E731
    groups, s = RNG.permutation(np.arange(k) // block).astype(np.int32), scale(n, 2)
    constants = {"b": pack(codes).reshape(n, 2, -1), "s": s, "z": pack(zeros).reshape(-1), "g": groups}
    feeds = {"a": f32(3, k)}
    m = one("MatMulNBits", feeds, ("y",), constants, K=k, N=n, block_size=block, bits=bits)
    weights = (codes.astype(np.float32) - zeros[:, groups]) * s[:, groups]
    np.testing.assert_allclose(native(m, feeds)[0], feeds["a"] @ weights.T, rtol=1e-4, atol=1e-4)
