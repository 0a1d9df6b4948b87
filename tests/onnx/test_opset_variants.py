"""Operators whose meaning or form changed between opsets, against onnxruntime at each of them."""

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator
from onnx_support import compare, model, normal, ours

X = normal(2, 3, 4, 5)


def one(op, feeds, opset, constants=None, outputs=("y",), **attributes):
    names = [*feeds, *(constants or {})]
    node = helper.make_node(op, names, list(outputs), **attributes)
    return model([node], feeds, list(outputs), opset, constants)


@pytest.mark.parametrize("opset", [7, 11, 12, 13, 18])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("axis", [None, 0, 2, -1])
def test_softmax_normalises_all_later_axes_before_opset_13_and_one_axis_since(op, opset, axis):
    if axis == -1 and opset < 11:
        pytest.skip("negative axes came with opset 11")
    attributes = {} if axis is None else {"axis": axis}
    compare(one(op, {"x": X}, opset, **attributes), {"x": X})


@pytest.mark.parametrize("opset", [11, 12, 13, 18])
def test_axes_are_attributes_and_then_operands(opset):
    axes = np.array([0, 2])
    if opset < 13:
        nodes = [
            helper.make_node("Unsqueeze", ["x"], ["u"], axes=[0, 2]),
            helper.make_node("ReduceSum", ["u"], ["r"], axes=[1, 3], keepdims=1),
            helper.make_node("Squeeze", ["r"], ["y"], axes=[0, 2]),
        ]
        constants = {}
    else:
        nodes = [
            helper.make_node("Unsqueeze", ["x", "a"], ["u"]),
            helper.make_node("ReduceSum", ["u", "b"], ["r"], keepdims=1),
            helper.make_node("Squeeze", ["r", "a"], ["y"]),
        ]
        constants = {"a": axes, "b": np.array([1, 3])}
    compare(model(nodes, {"x": X}, ["y"], opset, constants), {"x": X})


@pytest.mark.parametrize("op", ["ReduceMean", "ReduceMax", "ReduceL2", "ReduceLogSumExp", "ReduceProd"])
@pytest.mark.parametrize("opset", [11, 13, 18])
def test_reductions(op, opset):
    if opset < 18:
        compare(one(op, {"x": X}, opset, axes=[1, -1], keepdims=0), {"x": X}, 1e-4)
    else:
        compare(one(op, {"x": X}, opset, {"axes": np.array([1, -1])}, keepdims=0), {"x": X}, 1e-4)


@pytest.mark.parametrize("opset", [7, 11, 13])
def test_clip(opset):
    if opset < 11:
        compare(one("Clip", {"x": X}, opset, min=-0.5, max=0.25), {"x": X})
        compare(one("Clip", {"x": X}, opset, max=0.25), {"x": X})
    else:
        compare(one("Clip", {"x": X}, opset, {"lo": np.float32(-0.5), "hi": np.float32(0.25)}), {"x": X})


@pytest.mark.parametrize("opset", [9, 10, 13])
def test_slice(opset):
    if opset < 10:
        compare(one("Slice", {"x": X}, opset, starts=[1, -3], ends=[2**31 - 1, -1], axes=[1, 3]), {"x": X})
    else:
        constants = {"s": np.array([-1, 4]), "e": np.array([-100, 0]), "a": np.array([1, 3]), "t": np.array([-1, -2])}
        compare(one("Slice", {"x": X}, opset, constants), {"x": X})


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
@pytest.mark.parametrize("opset", [7, 11, 13])
def test_pad(opset, mode):
    pads = [0, 1, 2, 1, 0, 0, 1, 2]
    if opset < 11:
        compare(one("Pad", {"x": X}, opset, pads=pads, mode=mode), {"x": X})
    else:
        compare(one("Pad", {"x": X}, opset, {"p": np.array(pads)}, mode=mode), {"x": X})


def test_negative_padding_crops():
    compare(one("Pad", {"x": X}, 13, {"p": np.array([0, -1, 0, 1, 0, 0, -2, 0])}), {"x": X})


@pytest.mark.parametrize("opset", [9, 10, 11])
def test_top_k(opset):
    if opset < 10:
        m = model([helper.make_node("TopK", ["x"], ["y", "i"], k=2, axis=1)], {"x": X}, {"y": "float32", "i": "int64"}, opset)
    else:
        node = helper.make_node("TopK", ["x", "k"], ["y", "i"], axis=1)
        m = model([node], {"x": X}, {"y": "float32", "i": "int64"}, opset, {"k": np.array([2])})
    compare(m, {"x": X})


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("op,opset", [("Upsample", 7), ("Upsample", 9), ("Resize", 10)])
def test_upsample_and_the_first_resize(op, opset, mode):
    scales = [1.0, 1.0, 2.0, 1.6]
    if opset == 7:
        compare(one(op, {"x": X}, opset, scales=scales, mode=mode), {"x": X})
    else:
        compare(one(op, {"x": X}, opset, {"s": np.array(scales, np.float32)}, mode=mode), {"x": X})


@pytest.mark.parametrize("transform", ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("factors", [(2.0, 3.0), (0.5, 0.6), (1.5, 1.0)])
def test_resize(mode, transform, factors):
    x = normal(1, 2, 6, 5)
    constants = {"s": np.array([1, 1, *factors], np.float32)}
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], mode=mode, coordinate_transformation_mode=transform)
    compare(model([node], {"x": x}, ["y"], 13, constants), {"x": x}, 1e-4, 1e-5)


@pytest.mark.parametrize("opset", [7, 9, 14, 15])
def test_batch_normalization(opset):
    constants = {n: np.abs(normal(3, seed=k)) + 0.1 for k, n in enumerate(("scale", "bias", "mean", "var"))}
    compare(one("BatchNormalization", {"x": X}, opset, constants, epsilon=1e-3), {"x": X})


@pytest.mark.parametrize("opset", [7, 10, 12, 13])
def test_dropout_is_the_identity(opset):
    compare(one("Dropout", {"x": X}, opset), {"x": X})


@pytest.mark.parametrize("opset", [7, 9, 11])
def test_gemm(opset):
    a, constants = normal(4, 3), {"b": normal(5, 4, seed=1), "c": normal(5, seed=2)}
    compare(one("Gemm", {"x": a}, opset, constants, transA=1, transB=1, alpha=0.5, beta=2.0), {"x": a})


@pytest.mark.parametrize("opset", [7, 10, 11, 19])
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_pooling(op, opset):
    x = normal(2, 3, 9, 8)
    attributes = {"kernel_shape": [3, 2], "strides": [2, 3], "pads": [1, 0, 1, 1]}
    if opset >= 10:
        attributes["ceil_mode"] = 1
    if op == "AveragePool":
        attributes["count_include_pad"] = 1
    compare(one(op, {"x": x}, opset, **attributes), {"x": x})


@pytest.mark.parametrize("auto", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_convolutions_with_automatic_padding(op, auto):
    x, w = normal(1, 4, 9, 8), normal(4, 2, 3, 2, seed=1)
    compare(one(op, {"x": x}, 11, {"w": w}, auto_pad=auto, strides=[2, 3], group=2), {"x": x}, 1e-4, 1e-5)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_convolutions_of_every_rank(rank):
    space = (9, 7, 6)[:rank]
    x, w, b = normal(2, 4, *space), normal(6, 2, *(3, 2, 1)[:rank], seed=1), normal(6, seed=2)
    attributes = {"strides": [2, 1, 1][:rank], "dilations": [1, 2, 1][:rank], "pads": [1] * 2 * rank, "group": 2}
    compare(one("Conv", {"x": x}, 11, {"w": w, "b": b}, **attributes), {"x": x}, 1e-4, 1e-5)
    w = normal(4, 3, *(3, 2, 1)[:rank], seed=1)
    pads, extra = [1, 0, 0][:rank] * 2, [1, 0, 0][:rank]
    attributes |= {"pads": pads, "output_padding": extra}
    compare(one("ConvTranspose", {"x": x}, 11, {"w": w, "b": b}, **attributes), {"x": x}, 1e-4, 1e-5)


@pytest.mark.parametrize("equation", ["ij,jk->ik", "bij,bjk->bik", "...ij,...jk->...ik", "ij->ji", "ii->i", "ij,kj->", "i,j->ij"])
def test_einsum(equation):
    sizes = {"b": 2, "i": 3, "j": 4, "k": 5}
    terms = equation.split("->")[0].replace("...", "b").split(",")
    feeds = {f"x{k}": normal(*(sizes[c] for c in t), seed=k) for k, t in enumerate(terms)}
    node = helper.make_node("Einsum", list(feeds), ["y"], equation=equation)
    compare(model([node], feeds, ["y"], 12), feeds)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("op,gates", [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_recurrent_cells_are_unrolled(op, gates, direction):
    n, x = 2 if direction == "bidirectional" else 1, normal(5, 2, 3)
    constants = {"w": normal(n, gates * 4, 3, seed=1), "r": normal(n, gates * 4, 4, seed=2), "b": normal(n, gates * 8, seed=3)}
    compare(one(op, {"x": x}, 14, constants, ("y", "h"), hidden_size=4, direction=direction), {"x": x}, 1e-4)


def test_integers_divide_towards_zero_and_mod_takes_the_divisor_s_sign():
    a, b = np.array([7, -7, 7, -7], np.int32), np.array([2, 2, -2, -2], np.int32)
    nodes = [helper.make_node("Div", ["a", "b"], ["q"]), helper.make_node("Mod", ["a", "b"], ["m"])]
    nodes.append(helper.make_node("Mod", ["a", "b"], ["r"], fmod=1))
    m = model(nodes, {"a": a, "b": b}, dict.fromkeys("qmr", "int32"), 13)
    compare(m, {"a": a, "b": b})


def test_quantisation_round_trip():
    x = normal(2, 3, 4)
    constants = {"s": np.array([0.1, 0.02, 0.5], np.float32), "z": np.array([3, 0, 250], np.uint8)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], axis=1),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], axis=1),
    ]
    compare(model(nodes, {"x": x}, {"q": "uint8", "y": "float32"}, 13, constants), {"x": x})


def test_opset_6_broadcasts_along_a_named_axis():
    x, b = normal(2, 3, 4), normal(3, seed=1)
    m = one("Add", {"x": x}, 6, {"b": b}, broadcast=1, axis=1)
    np.testing.assert_array_equal(ours(m, {"x": x})[0], x + b[:, None])


def test_an_operator_without_a_row_is_its_schema_s_function_body():
    node = helper.make_node("AffineGrid", ["t", "size"], ["y"], align_corners=0)
    t = normal(2, 2, 3)
    m = model([node], {"t": t}, ["y"], 20, {"size": np.array([2, 1, 3, 4])})
    want = ReferenceEvaluator(m).run(None, {"t": t})
    np.testing.assert_allclose(ours(m, {"t": t})[0], want[0], rtol=1e-5, atol=1e-6)
