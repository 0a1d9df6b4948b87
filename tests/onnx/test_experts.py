"""Mixtures of experts against onnxruntime, and against the sum written out where it has no kernel."""

import numpy as np
import pytest
from compiled_support import agree, native, one
from onnx_support import theirs

import tcomp

RNG = np.random.default_rng(23)
TOKENS, HIDDEN, INNER, EXPERTS = 5, 16, 32, 4


def f32(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def u8(*shape):
    return RNG.integers(0, 256, shape).astype(np.uint8)


def tokens(*lead):
    return {"x": f32(*(lead or (TOKENS,)), HIDDEN), "logits": f32(int(np.prod(lead or (TOKENS,))), EXPERTS)}


def layers(wide=1, biases=True):
    found = {"w1": f32(EXPERTS, wide * INNER, HIDDEN), "b1": f32(EXPERTS, wide * INNER), "w2": f32(EXPERTS, HIDDEN, INNER),
             "b2": f32(EXPERTS, HIDDEN)}  # fmt: skip
    return found if biases else {k: v for k, v in found.items() if k[0] == "w"}


CASES = {
    "one of them": ({"k": 1}, 1),
    "two, shares of all": ({"k": 2}, 1),
    "two, shares of two": ({"k": 2, "normalize_routing_weights": 1}, 1),
    "all, gelu": ({"k": 4, "activation_type": "gelu"}, 1),
    "silu": ({"k": 2, "activation_type": "silu"}, 1),
    "swiglu": ({"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1, "normalize_routing_weights": 1, "activation_alpha": 1.7,
                "activation_beta": 1.0, "swiglu_limit": 3.0}, 2),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_mixtures(case):
    attributes, wide = CASES[case]
    feeds = tokens()
    agree(one("MoE", feeds, constants=layers(wide), **attributes), feeds, 1e-3)


def test_batches_without_biases():
    feeds, weights = tokens(2, 3), layers(biases=False)
    m = one("MoE", feeds, constants=weights, names=["x", "logits", "w1", "", "w2"], k=2, activation_type="identity")
    agree(m, feeds, 1e-3)


def mixture(feeds, inner, w, k, **how):
    """By its definition; the shares are of the chosen ones."""
    out = np.zeros_like(feeds["x"])
    for t, (x, logits) in enumerate(zip(feeds["x"], feeds["logits"])):
        chosen = np.argsort(-logits, kind="stable")[:k]
        shares = np.exp(logits[chosen] - logits.max())
        for e, share in zip(chosen, shares / shares.sum()):
            out[t] += share * (w["w2"][e] @ inner(w, e, x) + w["b2"][e])
    return out


def swiglu(gate, line):
    return gate / (1 + np.exp(-gate)) * line


def test_gates_in_layers_of_their_own_and_side_by_side():
    feeds, w = tokens(), layers()
    w |= {"w3": f32(EXPERTS, INNER, HIDDEN), "b3": f32(EXPERTS, INNER)}
    options = {"k": 2, "normalize_routing_weights": 1, "activation_type": "swiglu"}
    expected = mixture(feeds, lambda w, e, x: swiglu(w["w1"][e] @ x + w["b1"][e], w["w3"][e] @ x + w["b3"][e]), w, 2)
    np.testing.assert_allclose(native(one("MoE", feeds, constants=w, **options), feeds)[0], expected, rtol=1e-3, atol=1e-3)
    joined = {k: np.concatenate([w[k], w[k.replace("1", "3")]], 1) if "1" in k else w[k] for k in ("w1", "b1", "w2", "b2")}
    found = native(one("MoE", feeds, constants=joined, swiglu_fusion=2, **options), feeds)[0]
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("block", [0, 16])
@pytest.mark.parametrize("zeros", [False, True])
def test_quantised_experts(bits, block, zeros):
    each, scale = 8 // bits, 0.02 if bits == 8 else 0.2

    def weights(k, rows, columns):
        blocks = [columns // block] if block else []
        found = {
            f"w{k}": u8(EXPERTS, rows, columns // each),
            f"s{k}": (RNG.random((EXPERTS, rows, *blocks)) * scale).astype(np.float32),
            f"b{k}": f32(EXPERTS, rows),
        }
        shape = (rows, -(-blocks[0] // each)) if block else (-(-rows // each),)
        return found | ({f"z{k}": u8(EXPERTS, *shape)} if zeros else {})

    constants = weights(1, INNER, HIDDEN) | weights(2, HIDDEN, INNER)
    names = ["x", "logits", "w1", "s1", "b1", "w2", "s2", "b2"] + ["", "", "", "z1", "z2"] * zeros
    options = {"block_size": block} if block else {}
    feeds = tokens()
    m = one("QMoE", feeds, constants=constants, names=names, k=2, normalize_routing_weights=1, expert_weight_bits=bits, **options)
    if bits == 4 or not block:
        agree(m, feeds, 5e-3)
    else:  # onnxruntime rounds what is multiplied by blocks of bytes to bytes, too
        got, want = native(m, feeds)[0], theirs(m, feeds)[0]
        assert np.abs(got - want).max() < 0.02 * np.abs(want).max()


def test_an_expert_that_nobody_chose_does_not_count():
    feeds, w = tokens(), layers()
    feeds["logits"][:, 0] = -9
    w["w1"][0] = np.inf
    found = native(one("MoE", feeds, constants=w, k=2), feeds)[0]
    assert np.isfinite(found).all()


def test_refusals():
    for attributes in ({"use_sparse_mixer": 1}, {"activation_type": "relu2"}):
        with pytest.raises(tcomp.Error, match="TC0202"):
            tcomp.compile(one("MoE", tokens(), constants=layers(), k=2, **attributes))
    with pytest.raises(tcomp.Error, match="TC0203"):
        tcomp.compile(one("MoE", tokens(), constants=layers(), k=9))
