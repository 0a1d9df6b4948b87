"""com.microsoft: layers with a state, against onnxruntime and against their definition step by step."""

import numpy as np
import pytest
from compiled_support import MICROSOFT, agree, native, one
from onnx import helper as h
from onnx_support import theirs
from test_control_operators import value

import tcomp

RNG = np.random.default_rng(31)


def f32(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


# --- causal convolution ----------------------------------------------------------------------------------

CONVOLUTIONS = {
    "plain": ((2, 3, 7), 4, {}, False),
    "silu, after a past": ((2, 3, 7), 4, {"activation": "silu"}, True),
    "shorter than the taps": ((1, 2, 2), 4, {"activation": "swish"}, True),
    "one tap": ((1, 2, 3), 1, {}, False),
    "spaced": ((2, 3, 9), 3, {"dilation": 2}, True),
}


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_causal_convolution(case):
    shape, taps, attributes, with_past = CONVOLUTIONS[case]
    feeds, constants = {"x": f32(*shape)}, {"w": f32(shape[1], 1, taps), "b": f32(shape[1])}
    if with_past:
        feeds["past"] = f32(*shape[:2], (taps - 1) * attributes.get("dilation", 1))
    names = ["x", "w", "b"] + ["past"] * with_past
    agree(one("CausalConvWithState", feeds, ("y", "state"), constants, names, **attributes), feeds)


def test_causal_convolution_of_channels_that_come_last():
    feeds, constants = {"x": f32(2, 5, 2, 3), "past": f32(2, 3, 2, 3)}, {"w": f32(6, 1, 4)}
    first = {k: v.reshape(*v.shape[:2], 6).transpose(0, 2, 1) for k, v in feeds.items()}
    names = ["x", "w", "", "past"]
    wanted = native(one("CausalConvWithState", first, ("y", "state"), constants, names), first)
    found = native(one("CausalConvWithState", feeds, ("y", "state"), constants, names, channels_last=1), feeds)
    for got, want in zip(found, wanted):
        np.testing.assert_allclose(got.reshape(2, -1, 6).transpose(0, 2, 1), want, rtol=1e-5, atol=1e-6)


# --- linear attention ------------------------------------------------------------------------------------


def by_steps(rule, q, k, v, past, decay, beta, scale):
    """The recurrence; q, k, v, decay, beta: [B, T, heads, ...]."""
    state, out = past.astype(np.float64), []
    for t in range(q.shape[1]):
        if decay is not None:
            state = state * np.exp(decay[:, t])[..., None]
        value = v[:, t]
        if "delta" in rule:
            value = beta[:, t] * (value - np.einsum("bhk,bhkv->bhv", k[:, t], state))
        state = state + k[:, t][..., None] * value[..., None, :]
        out.append(scale * np.einsum("bhk,bhkv->bhv", q[:, t], state))
    return np.stack(out, 1), state


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
@pytest.mark.parametrize("heads", [(2, 2), (4, 2)])
def test_linear_attention(rule, heads):
    (own, shared), b, t, dk, dv = heads, 2, 5, 4, 3
    feeds = {"q": f32(b, t, own * dk), "k": f32(b, t, shared * dk), "v": f32(b, t, shared * dv), "past": f32(b, shared, dk, dv)}
    feeds["k"] /= np.linalg.norm(feeds["k"].reshape(b, t, shared, dk), axis=-1, keepdims=True).repeat(dk, -1).reshape(b, t, -1)
    names = [*feeds, "decay" if "gated" in rule else "", "beta" if "delta" in rule else ""]
    if "gated" in rule:
        feeds["decay"] = -RNG.random((b, t, shared)).astype(np.float32)
    if "delta" in rule:
        feeds["beta"] = RNG.random((b, t, shared)).astype(np.float32)
    while names[-1] == "":
        names.pop()
    m = one("LinearAttention", feeds, ("y", "state"), names=names, q_num_heads=own, kv_num_heads=shared, update_rule=rule)
    agree(m, feeds, 1e-3)


def test_linear_attention_that_forgets_by_key_and_starts_with_nothing():
    b, t, heads, d = 1, 6, 2, 4
    feeds = {"q": f32(b, t, heads * d), "k": f32(b, t, heads * d), "v": f32(b, t, heads * d)}
    feeds["decay"] = -RNG.random((b, t, heads * d)).astype(np.float32)
    m = one("LinearAttention", feeds, ("y", "state"), names=["q", "k", "v", "", "decay"], q_num_heads=heads, kv_num_heads=heads,
            update_rule="gated", scale=0.3)  # fmt: skip
    split = [v.reshape(b, t, heads, d) for v in feeds.values()]
    y, state = by_steps("gated", *split[:3], np.zeros((b, heads, d, d)), split[3], None, 0.3)
    agree(m, feeds, 1e-4, [y.reshape(b, t, -1).astype(np.float32), state.astype(np.float32)])


def test_queries_that_are_shared():
    """Fewer heads of queries than of keys and values."""
    b, t, own, shared, d = 2, 3, 2, 4, 3
    feeds = {"q": f32(b, t, own * d), "k": f32(b, t, shared * d), "v": f32(b, t, shared * d)}
    m = one("LinearAttention", feeds, ("y", "state"), q_num_heads=own, kv_num_heads=shared, update_rule="linear", scale=1.0)
    q = feeds["q"].reshape(b, t, own, d).repeat(2, 2)
    k, v = (feeds[n].reshape(b, t, shared, d) for n in "kv")
    y, state = by_steps("linear", q, k, v, np.zeros((b, shared, d, d)), None, None, 1.0)
    agree(m, feeds, 1e-4, [y.reshape(b, t, -1).astype(np.float32), state.astype(np.float32)])


def test_one_program_for_all_lengths():
    node = h.make_node("LinearAttention", ["q", "k", "v"], ["y", "s"], domain=MICROSOFT, q_num_heads=1, kv_num_heads=1,
                       update_rule="linear")  # fmt: skip
    graph = h.make_graph([node], "g", [value(n, ("b", "t", 4)) for n in "qkv"], [value("y", None), value("s", None)])
    m = h.make_model(graph, opset_imports=[h.make_opsetid("", 17), h.make_opsetid(MICROSOFT, 1)], ir_version=8)
    exe = tcomp.compile(m)
    for b, t in ((1, 1), (2, 9)):
        feeds = {n: f32(b, t, 4) for n in "qkv"}
        for got, want in zip(exe.run(feeds).values(), theirs(m, feeds)):
            np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)


# --- rotation --------------------------------------------------------------------------------------------

ROTATIONS = {
    "blocks": ((2, 5, 24), {"mrope_section": [2, 3, 1], "num_heads": 2}),
    "woven": ((2, 5, 24), {"mrope_section": [2, 2, 2], "mrope_layout": 1, "num_heads": 2}),
    "by heads, in pairs": ((2, 2, 5, 12), {"mrope_section": [1, 4, 1], "interleaved": 1}),
    "a part": ((1, 5, 32), {"mrope_section": [2, 2, 2], "rotary_embedding_dim": 12, "num_heads": 2}),
}


@pytest.mark.parametrize("case", ROTATIONS)
def test_rotation_by_three_places(case):
    shape, attributes = ROTATIONS[case]
    feeds = {"x": f32(*shape), "at": RNG.integers(0, 9, (3, shape[0], 5))}
    constants = {"cos": f32(9, 6), "sin": f32(9, 6)}
    agree(one("MRotaryEmbedding", feeds, ("y",), constants, **attributes), feeds)


REFUSED = [
    ("CausalConvWithState", {"x": (1, 2, 5), "w": (2, 1, 3)}, {"ndim": 2}, 2),
    (
        "LinearAttention",
        {"q": (1, 2, 4), "k": (1, 2, 4), "v": (1, 2, 4)},
        {"q_num_heads": 1, "kv_num_heads": 1, "update_rule": "gated"},
        2,
    ),
    (
        "LinearAttention",
        {"q": (1, 2, 4), "k": (1, 2, 4), "v": (1, 2, 4)},
        {"q_num_heads": 1, "kv_num_heads": 1, "update_rule": "odd"},
        3,
    ),
]


@pytest.mark.parametrize("op, shapes, attributes, code", REFUSED)
def test_refusals(op, shapes, attributes, code):
    with pytest.raises(tcomp.Error, match=f"TC020{code}"):
        tcomp.compile(one(op, {k: f32(*s) for k, s in shapes.items()}, ("y", "s"), **attributes))


def test_sections_have_to_add_up():
    feeds = {"x": f32(2, 5, 24), "at": np.zeros((3, 2, 5), np.int64)}
    with pytest.raises(tcomp.Error, match="TC0203"):
        tcomp.compile(one("MRotaryEmbedding", feeds, ("y",), {"cos": f32(9, 6), "sin": f32(9, 6)}, mrope_section=[1, 1, 1]))
