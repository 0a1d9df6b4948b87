"""Which dependent reductions one pass can compute: ranks, corrections, selections, and the chains found in graphs."""

import itertools

import numpy as np
import pytest

import tcomp.numpy as xp
from tcomp.driver import PASSES, PIPELINE, func_of, run_passes
from tcomp.frontend.spec import spec
from tcomp.ir import dtype as dt
from tcomp.ir import tile
from tcomp.ir.module import Module
from tcomp.passes.cascade import correction, expression, order, rank
from tcomp.passes.cascade.cascade import find
from tcomp.passes.cascade.expression import add, div, factored, leaf, mul, neg, number, show, sub
from tcomp.schedule.lower.own import with_own_memory

X, Y, V, W = (leaf("x", k, dt.f32) for k in range(4))
M, L, MU, RHO = (leaf("u", k, dt.f32) for k in range(4))
MASK = leaf("x", 9, dt.bool_)
ONE, ZERO = number(1.0, dt.f32), number(0.0, dt.f32)


def op(name, *args):
    return tile.pointwise(name, *args)


def cube(e):
    return mul(mul(e, e), e)


# element, rank, correction (None: as the test of equality says)
ACCEPTED = {
    "softmax": (op("exp", sub(X, M)), 1, "[[exp(neg(d0))]]"),
    "softmax in base 2": (op("exp2", sub(X, M)), 1, "[[exp((-0.693147 * d0))]]"),
    "softmax, masked": (op("where", MASK, op("exp", sub(X, M)), ZERO), 1, "[[exp(neg(d0))]]"),
    "softmax times a vector": (mul(op("exp", sub(X, M)), V), 1, "[[exp(neg(d0))]]"),
    "softmin": (op("exp", sub(M, X)), 1, "[[exp(d0)]]"),
    "entropy": (mul(op("exp", sub(X, M)), sub(X, M)), 2, None),
    "Kullback-Leibler": (mul(op("exp", sub(X, M)), sub(sub(X, M), op("log", Y))), 2, None),
    "variance": (mul(sub(X, MU), sub(X, MU)), 3, "[[1, d2, (0.5 * (d2 * d2))], [0, 1, d2], [0, 0, 1]]"),
    "third moment": (cube(sub(X, MU)), 4, None),
    "covariance": (mul(sub(X, MU), sub(Y, M)), 4, None),
    "centred, times weights": (mul(sub(X, MU), W), 2, "[[1, d2], [0, 1]]"),
    "polynomial kernel": (cube(add(mul(X, M), ONE)), 4, None),
    "cosine": (op("cos", sub(X, M)), 2, "[[cos(d0), sin(d0)], [neg(sin(d0)), cos(d0)]]"),
}
FIRST_ONLY = {  # what does not stream is taken out first: rank 1, and nothing to correct
    "softmax, normalised": mul(div(op("exp", sub(X, M)), L), V),
    "norm, then weights": mul(mul(X, RHO), W),
    "cosine of vectors": div(mul(X, Y), mul(M, L)),
    "scaled by the largest": mul(X, div(W, M)),
}
REJECTED = {
    "sigmoid": op("sigmoid", sub(X, M)),
    "tanh": op("tanh", sub(X, M)),
    "Gauss": op("exp", neg(mul(sub(X, M), sub(X, M)))),
    "x exp(m x)": mul(X, op("exp", mul(M, X))),
    "Cauchy": div(ONE, add(X, M)),
    "relu": op("max", sub(X, M), ZERO),
    "absolute deviation": op("abs", sub(X, MU)),
    "relu of a norm": op("max", mul(sub(X, MU), RHO), ZERO),
    "where by a result": op("where", op("gt", X, M), X, ZERO),
    "logarithm": op("log", add(X, M)),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_finite_ranks(name):
    element, expected, text = ACCEPTED[name]
    assert rank.rank_of([element]).rank == expected
    found = correction.transfer(element, {M: float("inf") if name == "softmin" else float("-inf")})
    assert not isinstance(found, str), found
    assert len(found.basis) == expected and found.text() == (text or found.text())
    _is_exact(found)


def _is_exact(found):
    """b(x, u + d) = T(d) b(x, u), in float64."""
    rng = np.random.default_rng(0)
    wide = {n: tile.ref(n["name"], tile.TileType(dt.f64)) for n in (X, Y, V, W, M, L, MU, RHO)}
    values = {n: rng.uniform(0.2, 1.0) for n in wide} | {MASK: 1.0}
    moved = {u: rng.uniform(-0.5, 0.5) for u in found.states}
    distances = {correction.distance(u): d for u, d in moved.items()}
    before = [correction.at(b, values) for b in found.basis]
    after = [correction.at(b, {**values, **{u: values[u] + d for u, d in moved.items()}}) for b in found.basis]
    got = [sum(correction.at(t, distances) * b for t, b in zip(row, before)) for row in found.matrix]
    np.testing.assert_allclose(got, after, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", FIRST_ONLY)
def test_what_does_not_stream_comes_last(name):
    core, steps = factored(FIRST_ONLY[name])
    found = correction.transfer(core, {M: float("-inf")}) if "u" in expression.kinds(core) else None
    assert rank.rank_of([core]).rank == 1 and steps
    assert found is None or found.text() == "[[exp(neg(d0))]]"


@pytest.mark.parametrize("name", REJECTED)
def test_growing_ranks_are_rejected_with_a_witness(name):
    measured = rank.rank_of([REJECTED[name]])
    assert measured.rank is None
    assert "it grows" in measured.witness or "has no finite sum" in measured.witness
    assert isinstance(correction.transfer(REJECTED[name], {}), str)


def test_linear_attention_has_the_rank_of_its_state():
    keys = [leaf("x", k, dt.f32) for k in range(4)]
    dotted = add(add(mul(keys[0], M), mul(keys[1], L)), add(mul(keys[2], MU), mul(keys[3], RHO)))
    assert rank.rank_of([mul(dotted, leaf("x", 8, dt.f32))]).rank == 4


def test_a_correction_that_would_grow_is_refused():
    """exp(x + m) of a largest m: the sum so far would be multiplied by ever larger numbers."""
    assert "grows" in correction.transfer(op("exp", add(X, M)), {M: float("-inf")})


POSITIVE = frozenset(["u0", "u1", "u3"])


@pytest.mark.parametrize(
    "element",
    [sub(X, M), op("exp2", sub(X, M)), div(op("exp2", sub(X, M)), L), mul(X, RHO), div(mul(W, op("exp2", X)), L), add(X, Y)],
)
def test_orders_that_do_not_depend_on_results(element):
    assert order.order_free(element, POSITIVE) == ""


@pytest.mark.parametrize("element", [op("abs", sub(X, M)), mul(mul(sub(X, MU), RHO), W), add(div(X, M), Y)])
def test_orders_that_do(element):
    assert "change their order" in order.order_free(element, POSITIVE)


def graph(f, *specs):
    module = Module("graph", "f", func_of(f, tuple(map(spec, specs))))
    module = run_passes(module, PIPELINE[: PIPELINE.index("lower")], PASSES)
    return with_own_memory(module.func, itertools.count())


def softmax(x):
    e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)


def test_attention_is_found():
    (c,), refused = find(graph(lambda q, k, v: softmax(q @ k) @ v, "f32[9, 4]", "f32[4, 8]", "f32[8, 5]"))
    assert not refused and c.domain == (9, 8) and len(c.products) == 1
    assert [(s.monoid, s.is_product) for s in c.stages] == [("max", False), ("add", False), ("add", True)]
    assert [show(x) for _, x in c.stages[2].steps] == ["m1"]
    assert [o.op for o in c.outputs] == ["dot"]


def test_one_row_is_a_row():
    (c,), _ = find(graph(lambda q, k, v: softmax(q @ k) @ v, "f32[3, 1, 4]", "f32[3, 4, 8]", "f32[3, 8, 5]"))
    assert [s.node.op for s in c.stages] == ["reduce", "reduce", "dot"]


def test_what_is_needed_in_memory_is_not_fused():
    def f(q, k, v):
        p = softmax(q @ k)
        return p @ v, p

    found, (refusal,) = find(graph(f, "f32[9, 4]", "f32[4, 8]", "f32[8, 5]"))
    assert not found and "is needed in memory" in refusal.reason


def test_a_chain_that_needs_two_passes_is_refused_with_the_witness():
    def f(x, w):
        return xp.maximum(x - xp.mean(x, axis=-1, keepdims=True), 0) @ w

    found, (refusal,) = find(graph(f, "f32[9, 8]", "f32[8, 5]"))
    assert not found and "rank" in refusal.reason and "it grows" in refusal.reason


def test_a_path_that_leaves_and_comes_back_is_refused():
    def f(q, k, v):
        s = q @ k
        m = xp.max(s, axis=-1, keepdims=True)
        shift = xp.cumulative_sum(m, axis=0)
        return xp.exp(s - m) @ v + xp.sum(xp.exp(s - shift), axis=-1, keepdims=True)

    found, refused = find(graph(f, "f32[9, 4]", "f32[4, 8]", "f32[8, 5]"))
    assert not found and [r.reason for r in refused] == ["what it gives is read by what it needs"]


def test_layers_that_share_a_mask_are_apart():
    def f(x, bias):
        for _ in range(2):
            x = softmax(x @ x.T + bias) @ x
        return x

    found, refused = find(graph(f, "f32[9, 4]", "f32[9, 9]"))
    assert len(found) == 2 and not refused


def test_passes_over_one_value_are_one():
    def f(x, t):
        m = xp.max(x, axis=-1)
        return xp.log(xp.sum(xp.exp(x - m[:, None]), axis=-1)) + m - xp.sum(xp.where(t, x, 0.0), axis=-1)

    (c,), _ = find(graph(f, "f32[9, 80]", "bool[9, 80]"))
    assert len(c.stages) == 3


def test_layers_of_equal_width_are_apart():
    """What one chain reduces is what the next one streams, over a domain of the same shape."""

    def f(x, a, b, c):
        return xp.tanh(xp.tanh(xp.tanh(x) @ a) @ b) @ c

    found, _ = find(graph(f, "f32[64, 16]", "f32[16, 16]", "f32[16, 16]", "f32[16, 16]"))
    assert [len(c.stages) for c in found] == [1] * len(found) and len(found) >= 2


def test_argmax_follows_its_extreme():
    (c,), _ = find(graph(lambda h, w: xp.argmax(h @ w, axis=-1), "f32[4, 6]", "f32[6, 30]"))
    assert c.stages[1].kept is not None and c.stages[1].kept[0] is c.stages[0].result


def test_bitwise_keeps_the_text():
    import tcomp

    f = tcomp.jit(lambda q, k, v: softmax(q @ k) @ v, fp="bitwise")
    q, k, v = (np.ones(s, np.float32) for s in ((64, 16), (16, 256), (256, 32)))
    low = f.lower(q, k, v)
    assert low.compile().report()["cascades"] == [] and low.text("tile").count("kernel @") == 3
    assert tcomp.jit(lambda q, k, v: softmax(q @ k) @ v).lower(q, k, v).text("tile").count("kernel @") == 1
