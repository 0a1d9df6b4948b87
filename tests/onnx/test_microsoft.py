"""com.microsoft against onnxruntime, in native code; what its CPU kernels leave out against NumPy."""

import numpy as np
import pytest
from compiled_support import agree, native, one
from onnx_support import theirs

import tcomp
from tcomp.errors import Error

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((2, 6, 16)).astype(np.float32)


def f32(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def positive(*shape):
    return np.abs(f32(*shape))


def u8(*shape):
    return RANDOM.integers(0, 256, shape).astype(np.uint8)


def i8(*shape):
    return RANDOM.integers(-128, 128, shape).astype(np.int8)


def scale(value):
    return np.array(value, np.float32)


def zero(value, dtype=np.uint8):
    return np.array(value, dtype)


PRODUCTS = {
    "transposed": ("FusedMatMul", {"a": f32(2, 6, 5), "b": f32(2, 6, 7)}, {"transA": 1, "alpha": 0.5}),
    "batch moved": ("FusedMatMul", {"a": f32(6, 2, 5), "b": f32(2, 7, 5)}, {"transBatchA": 1, "transB": 1}),
    "gemm": ("FusedGemm", {"a": f32(3, 5), "b": f32(4, 5), "c": f32(4)},
             {"transB": 1, "alpha": 0.5, "activation": "LeakyRelu", "activation_alpha": 0.3}),
    "conv and sum": ("FusedConv", {"x": f32(1, 4, 7, 7), "w": f32(6, 4, 3, 3), "b": f32(6), "z": f32(1, 6, 7, 7)},
                     {"pads": [1, 1, 1, 1], "activation": "Relu"}),
    "conv clipped": ("FusedConv", {"x": f32(1, 4, 7, 7), "w": f32(6, 4, 3, 3)},
                     {"activation": "Clip", "activation_params": [-0.5, 0.5]}),
    "gelu": ("Gelu", {"x": X}, {}),
    "bias gelu": ("BiasGelu", {"x": X, "b": f32(16)}, {}),
    "fast gelu": ("FastGelu", {"x": X, "b": f32(16)}, {}),
    "quick gelu": ("QuickGelu", {"x": X}, {}),
    "trilu": ("Trilu", {"x": f32(4, 5)}, {"upper": 0}),
}  # fmt: skip


@pytest.mark.parametrize("case", PRODUCTS)
def test_products_and_activations(case):
    op, feeds, attributes = PRODUCTS[case]
    agree(one(op, feeds, **attributes), feeds)


def test_channels_last_pooling():
    feeds = {"x": u8(1, 8, 8, 3)}
    agree(one("NhwcMaxPool", feeds, {"y": "uint8"}, kernel_shape=[2, 2], strides=[2, 2]), feeds, 0)


def test_channels_last_convolution():
    x, w, bias = f32(1, 7, 7, 4), f32(6, 3, 3, 4), f32(6)
    m = one("NhwcFusedConv", {"x": x, "w": w, "b": bias}, activation="Relu")
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (1, 2))
    want = np.maximum(np.einsum("nhwcij,oijc->nhwo", windows, w) + bias, 0)
    agree(m, {"x": x, "w": w, "b": bias}, 1e-4, [want])


def test_group_norm_with_activation():
    x, g, b = f32(2, 4, 4, 8), f32(8), f32(8)
    parts = x.reshape(2, 16, 4, 2)
    y = ((parts - parts.mean((1, 3), keepdims=True)) / np.sqrt(parts.var((1, 3), keepdims=True) + 1e-5)).reshape(x.shape) * g + b
    agree(
        one("GroupNorm", {"x": x, "g": g, "b": b}, groups=4, activation=1), {"x": x, "g": g, "b": b}, 1e-4, [y / (1 + np.exp(-y))]
    )


def test_bias_and_skip():
    feeds = {"x": X, "b": f32(16), "s": f32(2, 6, 16)}
    agree(one("BiasAdd", feeds), feeds, 1e-6, [feeds["x"] + feeds["b"] + feeds["s"]])


SKIPS = {
    "layer": ("SkipLayerNormalization", {"x": X, "s": f32(2, 6, 16), "g": f32(16), "b": f32(16), "c": f32(16)}),
    "layer, one skip for all": ("SkipLayerNormalization", {"x": X, "s": f32(1, 6, 16), "g": f32(16)}),
    "rms": ("SkipSimplifiedLayerNormalization", {"x": X, "s": f32(2, 6, 16), "g": f32(16)}),
}


@pytest.mark.parametrize("case", SKIPS)
def test_skip_normalisations(case):
    op, feeds = SKIPS[case]
    agree(one(op, feeds, ("y", "", "", "sum")), feeds)


def test_a_name_that_onnxruntime_writes_into_the_default_domain():
    feeds = {"x": X, "g": f32(16)}
    agree(one("SimplifiedLayerNormalization", feeds, domain="", epsilon=1e-6), feeds)


def test_embeddings():
    ids, segments = RANDOM.integers(0, 20, (2, 5)).astype(np.int32), RANDOM.integers(0, 2, (2, 5)).astype(np.int32)
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    feeds = {"i": ids, "s": segments, "w": f32(20, 8), "p": f32(10, 8), "t": f32(2, 8), "g": f32(8), "b": f32(8), "m": mask}
    agree(one("EmbedLayerNormalization", feeds, {"y": "float32", "n": "int32", "sum": "float32"}), feeds)


def test_embeddings_at_given_positions():
    at = RANDOM.integers(0, 10, (2, 5)).astype(np.int32)
    ids = RANDOM.integers(0, 20, (2, 5)).astype(np.int32)
    feeds = {"i": ids, "w": f32(20, 8), "p": f32(10, 8), "g": f32(8), "b": f32(8), "at": at}
    names = ["i", "", "w", "p", "", "g", "b", "", "at"]
    agree(one("EmbedLayerNormalization", feeds, {"y": "float32", "n": "int32"}, names=names), feeds)


BATCH, LENGTH, HEADS, SIZE = 2, 5, 2, 4
HIDDEN = HEADS * SIZE
MASKS = {
    "none": None,
    "by key": np.array([[1, 1, 1, 0, 0], [1] * 5], np.int32),
    "ends": np.array([3, 5], np.int32),
    "ends and starts": np.array([3, 5, 1, 2], np.int32),
    "by query and key": RANDOM.integers(0, 2, (BATCH, LENGTH, LENGTH)).astype(np.int32) | np.eye(LENGTH, dtype=np.int32),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("causal", [0, 1])
def test_attention(mask, causal):
    feeds = {"x": f32(BATCH, LENGTH, 12)} | ({} if MASKS[mask] is None else {"m": MASKS[mask]})
    constants = {"w": f32(12, 3 * HIDDEN), "b": f32(3 * HIDDEN)}
    names = ["x", "w", "b"] + (["m"] if MASKS[mask] is not None else [])
    agree(one("Attention", feeds, constants=constants, names=names, num_heads=HEADS, unidirectional=causal), feeds)


def test_attention_after_a_past():
    feeds = {"x": f32(BATCH, 1, 12), "past": f32(2, BATCH, HEADS, 3, SIZE)}
    constants, names = {"w": f32(12, 3 * HIDDEN), "b": f32(3 * HIDDEN)}, ["x", "w", "b", "", "past"]
    agree(one("Attention", feeds, ("y", "p"), constants, names, num_heads=HEADS, unidirectional=1), feeds)


def test_attention_with_a_bias_of_scores():
    feeds = {"x": f32(BATCH, LENGTH, 12), "s": f32(1, HEADS, LENGTH, LENGTH)}
    constants, names = {"w": f32(12, 3 * HIDDEN), "b": f32(3 * HIDDEN)}, ["x", "w", "b", "", "", "s"]
    agree(one("Attention", feeds, ("y",), constants, names, num_heads=HEADS), feeds)


QKV = {"q": f32(BATCH, LENGTH, HIDDEN), "k": f32(BATCH, 7, HIDDEN), "v": f32(BATCH, 7, HIDDEN)}
BY_HEADS = {"q": f32(BATCH, LENGTH, HIDDEN), "k": f32(BATCH, HEADS, 7, SIZE), "v": f32(BATCH, HEADS, 7, SIZE)}
MULTI_HEAD = {
    "bias": (QKV | {"b": f32(3 * HIDDEN)}, ["q", "k", "v", "b"]),
    "padding": (QKV | {"m": RANDOM.integers(0, 2, (BATCH, 7)).astype(np.int32)}, ["q", "k", "v", "", "m"]),
    "keys by heads": (BY_HEADS | {"b": f32(3 * HIDDEN)}, ["q", "k", "v", "b"]),
}


@pytest.mark.parametrize("case", MULTI_HEAD)
def test_multi_head_attention(case):
    feeds, names = MULTI_HEAD[case]
    agree(one("MultiHeadAttention", feeds, names=names, num_heads=HEADS), feeds)


def test_multi_head_attention_after_a_past():
    new, past = (BATCH, 2, HIDDEN), (BATCH, HEADS, 3, SIZE)
    feeds = {"q": f32(*new), "k": f32(*new), "v": f32(*new), "pk": f32(*past), "pv": f32(*past)}
    names = ["q", "k", "v", "", "", "", "pk", "pv"]
    agree(one("MultiHeadAttention", feeds, ("y", "k1", "v1"), names=names, num_heads=HEADS, unidirectional=1), feeds)


def test_packed_queries_keys_and_values_are_the_same_as_separate_ones():
    packed = f32(BATCH, LENGTH, HEADS, 3, SIZE)
    q, k, v = (np.ascontiguousarray(packed[:, :, :, n]).reshape(BATCH, LENGTH, HIDDEN) for n in range(3))
    want = native(one("MultiHeadAttention", {"q": q, "k": k, "v": v}, num_heads=HEADS), {"q": q, "k": k, "v": v})
    agree(one("MultiHeadAttention", {"q": packed}, num_heads=HEADS), {"q": packed}, 1e-6, want)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("by_heads", [False, True])
def test_rotary_embedding(interleaved, by_heads):
    tables = {"c": f32(16, SIZE // 2), "s": f32(16, SIZE // 2)}
    feeds = {"x": f32(BATCH, HEADS, LENGTH, SIZE) if by_heads else f32(BATCH, LENGTH, HIDDEN)}
    feeds["at"] = np.array([3]) if by_heads else RANDOM.integers(0, 16, (BATCH, LENGTH))
    agree(one("RotaryEmbedding", feeds, constants=tables, interleaved=interleaved), feeds)


def test_rotary_embedding_of_a_part():
    feeds = {"x": f32(BATCH, LENGTH, HIDDEN), "at": RANDOM.integers(0, 16, (BATCH, LENGTH))}
    tables = {"c": f32(16, 1), "s": f32(16, 1)}
    agree(one("RotaryEmbedding", feeds, constants=tables, num_heads=HEADS, rotary_embedding_dim=2), feeds)


# length of the call, of the cache before it (None: there is none), keys of each sequence less one, attributes
GROUPED = {
    "first call": (5, None, [4, 4], {"do_rotary": 1}),
    "one token": (1, 6, [6, 6], {"do_rotary": 1}),
    "window": (6, None, [5, 5], {"local_window_size": 3}),
    "capped": (5, None, [4, 4], {"softcap": 5.0}),
    "smooth": (5, None, [4, 4], {"smooth_softmax": 1}),
    "interleaved": (5, None, [4, 4], {"do_rotary": 1, "rotary_interleaved": 1}),
    "sequences of their own lengths": (1, 6, [4, 6], {"do_rotary": 1}),
    "a cache with room": (1, 12, [4, 6], {"do_rotary": 1}),
}


@pytest.mark.parametrize("case", GROUPED)
def test_group_query_attention(case):
    length, past, lengths, attributes = GROUPED[case]
    size, total = 16, max(lengths) + 1
    feeds = {"q": f32(BATCH, length, 4 * size), "k": f32(BATCH, length, 2 * size), "v": f32(BATCH, length, 2 * size)}
    names = [*feeds, "", "", "l", "t"]
    if past is not None:
        feeds |= {"pk": f32(BATCH, 2, past, size), "pv": f32(BATCH, 2, past, size)}
        names[3:5] = ["pk", "pv"]
    feeds["l"], constants = np.array(lengths, np.int32), {"t": np.array(total, np.int32)}
    if attributes.get("do_rotary"):
        constants |= {"c": f32(32, size // 2), "s": f32(32, size // 2)}
        names += ["c", "s"]
    outputs = ("y", "k1", "v1")
    m = one("GroupQueryAttention", feeds, outputs, constants, names, num_heads=4, kv_num_heads=2, **attributes)
    for name, got, want in zip(outputs, native(m, feeds), theirs(m, feeds), strict=True):
        assert got.shape == want.shape
        for row, (a, b) in enumerate(zip(got, want)):  # behind a sequence's end the cache holds nothing that is defined
            n = None if name == "y" else lengths[row] + 1
            parts = (a, b) if n is None else (a[:, :n], b[:, :n])
            np.testing.assert_allclose(*parts, rtol=1e-4, atol=1e-5)


def test_norms_of_heads_come_before_everything_else():
    size = 16
    q, k, v = f32(BATCH, 5, 4 * size), f32(BATCH, 5, 2 * size), f32(BATCH, 5, 2 * size)
    weights = {"qn": f32(size), "kn": f32(size)}
    lengths, total = np.array([4, 4], np.int32), {"t": np.array(5, np.int32)}

    def normed(x, w):
        heads = x.reshape(BATCH, 5, -1, size)
        return (heads / np.sqrt((heads**2).mean(-1, keepdims=True) + 1e-6) * w).reshape(x.shape)

    feeds, names = {"q": q, "k": k, "v": v, "l": lengths}, ["q", "k", "v", "", "", "l", "t"]
    before = feeds | {"q": normed(q, weights["qn"]), "k": normed(k, weights["kn"])}
    common = {"num_heads": 4, "kv_num_heads": 2}
    want = native(one("GroupQueryAttention", before, ("y", "k1", "v1"), total, names, **common), before)
    names = [*names, *[""] * 7, "qn", "kn"]
    agree(one("GroupQueryAttention", feeds, ("y", "k1", "v1"), total | weights, names, **common), feeds, 1e-4, want)


ONE_STEP = {"sx": scale(0.03), "zx": zero(120), "sy": scale(0.02), "zy": zero(100)}
QUANTISED = {
    "sigmoid": ("QLinearSigmoid", u8(3, 9), {}),
    "leaky relu": ("QLinearLeakyRelu", u8(3, 9), {"alpha": 0.2}),
    "global average": ("QLinearGlobalAveragePool", u8(2, 4, 5, 5), {}),
    "average": ("QLinearAveragePool", u8(2, 4, 6, 6), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "softmax": ("QLinearSoftmax", u8(3, 9), {"axis": -1, "opset": 13}),
}


@pytest.mark.parametrize("case", QUANTISED)
def test_quantised_functions_are_within_one_step(case):
    op, x, attributes = QUANTISED[case]
    steps = ONE_STEP | ({"sy": scale(1 / 256), "zy": zero(0)} if case == "softmax" else {})
    m = one(op, {"x": x}, {"y": "uint8"}, steps, **attributes)
    within_one(m, {"x": x})


def within_one(m, feeds):
    for got, want in zip(native(m, feeds), theirs(m, feeds), strict=True):
        assert got.dtype == want.dtype and got.shape == want.shape
        assert np.abs(got.astype(int) - want.astype(int)).max() <= 1
        assert len(np.unique(got)) > 1


PAIR = {"sa": scale(0.03), "za": zero(120), "sb": scale(0.02), "zb": zero(100), "sy": scale(0.04), "zy": zero(110)}


@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_quantised_arithmetic(op):
    feeds = {"a": u8(2, 3, 4), "b": u8(3, 4)}
    within_one(one(op, feeds, {"y": "uint8"}, PAIR, ["a", "sa", "za", "b", "sb", "zb", "sy", "zy"]), feeds)


def test_quantised_concat_and_where():
    feeds = {"a": u8(2, 3), "b": u8(2, 3)}
    within_one(one("QLinearConcat", feeds, {"y": "uint8"}, PAIR, ["sy", "zy", "a", "sa", "za", "b", "sb", "zb"], axis=1), feeds)
    feeds["c"] = np.array([[True], [False]])
    names = ["c", "a", "sa", "za", "b", "sb", "zb", "sy", "zy"]
    within_one(one("QLinearWhere", feeds, {"y": "uint8"}, PAIR, names), feeds)


def test_integer_products():
    feeds = {"a": u8(3, 8)}
    constants = {"b": i8(8, 5), "sa": scale(0.02), "sb": positive(5), "za": zero(120), "zb": np.zeros(5, np.int8), "c": f32(5)}
    names = ["a", "b", "sa", "sb", "za", "zb", "c"]
    agree(one("MatMulIntegerToFloat", feeds, constants=constants, names=names), feeds, 1e-4)
    names = ["a", "sa", "za", "b", "sb", "zb"]
    del constants["c"]
    agree(one("QGemm", feeds, constants=constants, names=names), feeds, 1e-4)


def test_a_product_quantised_by_its_range():
    feeds, constants = {"a": f32(3, 8)}, {"b": i8(8, 5), "sb": scale(0.02), "zb": zero(3, np.int8), "c": f32(5)}
    agree(one("DynamicQuantizeMatMul", feeds, constants=constants), feeds, 1e-3)


def test_a_quantised_gemm():
    feeds, bias = {"a": u8(3, 8)}, RANDOM.integers(-500, 500, 5).astype(np.int32)
    constants = {"sa": scale(0.02), "za": zero(120), "b": i8(5, 8), "sb": scale(0.03), "zb": zero(0, np.int8), "c": bias}
    within_one(one("QGemm", feeds, {"y": "uint8"}, constants | {"sy": scale(0.1), "zy": zero(128)}, transB=1), feeds)


def test_quantised_attention():
    feeds = {"x": u8(BATCH, LENGTH, 12)}
    constants = {"w": i8(12, 3 * HIDDEN), "b": f32(3 * HIDDEN), "sx": scale(0.02), "sw": scale(0.01), "zx": zero(120)}
    constants["zw"] = zero(0, np.int8)
    names = ["x", "w", "b", "sx", "sw", "", "zx", "zw"]
    agree(one("QAttention", feeds, constants=constants, names=names, num_heads=HEADS), feeds, 1e-3)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", ["none", "packed", "floats"])
def test_products_by_weights_of_few_bits(bits, zeros):
    n, k, block = 6, 40, 16
    blocks = -(-k // block)
    constants = {"b": u8(n, blocks, block * bits // 8), "s": positive(n, blocks)}
    given = {"none": {}, "packed": {"z": u8(n, -(-blocks * bits // 8))}, "floats": {"z": f32(n, blocks)}}[zeros]
    if zeros == "floats" and bits == 8:
        pytest.skip("onnxruntime has no kernel for it")
    feeds = {"a": f32(3, k)}
    m = one("MatMulNBits", feeds, constants=constants | given, K=k, N=n, block_size=block, bits=bits)
    agree(m, feeds, 2e-3)


def test_weights_in_groups_that_an_operand_names():
    n, k, block = 6, 48, 16
    groups = RANDOM.permutation(np.arange(k) // block).astype(np.int32)
    constants = {"b": u8(n, 3, 8), "s": positive(n, 3), "g": groups}
    feeds = {"a": f32(3, k)}
    m = one("MatMulNBits", feeds, constants=constants, names=["a", "b", "s", "", "g"], K=k, N=n, block_size=block, bits=4)
    agree(m, feeds, 2e-3)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", [False, True])
def test_gathers_of_quantised_rows(bits, zeros):
    feeds, names = {"i": RANDOM.integers(-10, 10, (2, 3))}, ["x", "i", "s"] + ["z"] * zeros
    constants = {"x": u8(10, 48 * bits // 8), "s": positive(10, 3)} | ({"z": u8(10, -(-3 * bits // 8))} if zeros else {})
    m = one("GatherBlockQuantized", feeds, ("y",), constants, names, block_size=16, bits=bits, gather_axis=0, quantize_axis=1)
    agree(m, feeds, 1e-5)


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
def test_distances(metric):
    feeds = {"a": f32(5, 4), "b": f32(7, 4)}
    agree(one("CDist", feeds, metric=metric), feeds)


def test_padding():
    feeds = {"x": f32(3, 4)}
    agree(one("Pad", feeds, constants={"p": np.array([1, 0, 0, 2])}), feeds, 0)


def test_a_softmax_with_a_bias():
    x, bias = f32(2, 3, 4, 5), f32(2, 1, 1, 5)
    e = np.exp((x + bias) - (x + bias).max(-1, keepdims=True))
    agree(one("BiasSoftmax", {"x": x, "b": bias}, axis=3), {"x": x, "b": bias}, 1e-5, [e / e.sum(-1, keepdims=True)])


def test_a_product_with_gelu():
    x, w, bias = f32(2, 3, 4), f32(4, 5), f32(5)
    z = x @ w + bias
    want = z / 2 * (1 + np.tanh(np.float32(np.sqrt(2 / np.pi)) * (z + np.float32(0.044715) * z**3)))
    agree(one("GemmFastGelu", {"x": x, "w": w, "b": bias}), {"x": x, "w": w, "b": bias}, 1e-5, [want])


def test_halves_gated_by_gelu():
    from math import erf

    x, bias = f32(2, 3, 8), f32(8)
    left, right = np.split(x + bias, 2, -1)
    want = left * right * 0.5 * (1 + np.vectorize(erf)(right / np.sqrt(2))).astype(np.float32)
    agree(one("BiasSplitGelu", {"x": x, "b": bias}), {"x": x, "b": bias}, 1e-5, [want.astype(np.float32)])


REFUSED = {
    "an unknown activation": ("FusedGemm", {"a": f32(3, 5), "b": f32(5, 4)}, {"activation": "Mystery"}),
    "an operator that is not there": ("BeamSearch", {"x": f32(3, 3)}, {}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_name_the_operator(case):
    op, feeds, attributes = REFUSED[case]
    with pytest.raises(Error) as caught:
        tcomp.compile(one(op, feeds, **attributes).SerializeToString(), use_cache=False)
    assert caught.value.code == "TC0202" and op in str(caught.value)


def test_operands_that_do_not_fit_a_row():
    with pytest.raises(Error) as caught:
        tcomp.compile(one("FusedMatMul", {"a": f32(3, 5)}).SerializeToString(), use_cache=False)
    assert caught.value.code == "TC0203"
