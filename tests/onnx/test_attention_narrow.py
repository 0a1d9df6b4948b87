"""Attention of 16-bit floats runs in one pass, whose sums are in f32."""

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper as h

import tcomp

RNG = np.random.default_rng(23)


def attention(kind, inputs, outputs, **attributes):
    given = [h.make_tensor_value_info(n, kind, shape) for n, shape in inputs.items()]
    names = [n if n in inputs else "" for n in ("q", "k", "v", "mask", "past_k", "past_v")]
    node = h.make_node("Attention", names, outputs, **attributes)
    graph = h.make_graph([node], "g", given, [h.make_tensor_value_info(n, kind, None) for n in outputs])
    return tcomp.compile(h.make_model(graph, opset_imports=[h.make_opsetid("", 24)], ir_version=11))


def exact(q, k, v, causal=False, mask=0.0):
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]) + mask
    s = np.where(np.tri(*s.shape[-2:], s.shape[-1] - s.shape[-2]) == 0, -np.inf, s) if causal else s
    p = np.exp(s - s.max(-1, keepdims=True))
    return p @ v / p.sum(-1, keepdims=True)


KINDS = [(T.FLOAT16, np.float16, 2e-3), (T.BFLOAT16, ml_dtypes.bfloat16, 2e-2)]


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize(("kind", "dtype", "step"), KINDS)
def test_one_pass(kind, dtype, step, causal):
    shape = (1, 2, 256, 32)
    exe = attention(kind, dict.fromkeys("qkv", shape), ["y"], is_causal=causal)
    q, k, v = (RNG.standard_normal(shape).astype(dtype) for _ in "qkv")
    got = exe.run({"q": q, "k": k, "v": v})["y"]
    assert got.dtype == dtype and "reduce_dot" in exe.text("tile")
    np.testing.assert_allclose(got.astype(np.float64), exact(q, k, v, causal), rtol=step, atol=step / 2)


@pytest.mark.parametrize(("kind", "dtype", "step"), KINDS)
def test_masks_and_pasts_have_the_same_dtype(kind, dtype, step):
    shape, past = (2, 2, 6, 8), (2, 2, 3, 8)
    inputs = dict.fromkeys("qkv", shape) | {"mask": (6, 9), "past_k": past, "past_v": past}
    exe = attention(kind, inputs, ["y", "all_k", "all_v"])
    feed = {n: RNG.standard_normal(s).astype(dtype) for n, s in inputs.items()}
    got = exe.run(feed)
    k, v = (np.concatenate([feed[f"past_{n}"], feed[n]], 2) for n in "kv")
    want = exact(feed["q"], k, v, mask=feed["mask"].astype(np.float64))
    np.testing.assert_allclose(got["y"].astype(np.float64), want, rtol=step, atol=step)
    assert np.array_equal(got["all_k"], k) and np.array_equal(got["all_v"], v)
    assert got["all_k"].dtype == dtype
