"""Positions of extremes: what does not change the order of elements is not computed, and the positions are the same."""

import numpy as np
import pytest

import tcomp
import tcomp.numpy as xp
from tcomp.codegen.llvm.machines import machine_for
from tcomp.driver import func_of, passes_for, run_passes
from tcomp.frontend.spec import spec
from tcomp.ir.module import Module
from tcomp.ir.node import walk


def softmax(x, n=xp):
    e = n.exp(x - n.max(x, axis=-1, keepdims=True))
    return e / n.sum(e, axis=-1, keepdims=True)


CASES = {
    "a row's term": lambda x, r, t, n=xp: n.argmin(x * 0.5 + r[:, None], axis=-1),
    "what a row is subtracted from": lambda x, r, t, n=xp: n.argmax(r[:, None] - x, axis=-1),
    "terms on both sides": lambda x, r, t, n=xp: n.argmax((r[:, None] + x) - (t[None, :] - r[:, None]), axis=-1),
    "a term along the axis": lambda x, r, t, n=xp: n.argmin(x + t[None, :], axis=-1),
    "the other axis": lambda x, r, t, n=xp: n.argmin(x + t[None, :], axis=0),
    "softmax": lambda x, r, t, n=xp: n.argmax(softmax(x, n), axis=-1),
    "a negative softmax": lambda x, r, t, n=xp: n.argmin(-3.0 * softmax(x, n), axis=-1),
    "a factor of any sign": lambda x, r, t, n=xp: n.argmin(x * r[:, None], axis=-1),
    "the logarithm of a softmax, and a term": lambda x, r, t, n=xp: n.argmax(n.log(softmax(x, n)) + t[None, :], axis=-1),
    "a logarithm of a product": lambda x, r, t, n=xp: n.argmin(n.log(n.exp(x) * n.exp(r[:, None])) - t[None, :], axis=-1),
    "a logarithm of what may be negative": lambda x, r, t, n=xp: n.argmax(n.log((x + 9) * r[:, None] ** 2) + t[None, :], axis=-1),
    "tanh of a sum": lambda x, r, t, n=xp: n.argmax(n.tanh(x * 0.1 + r[:, None] * 0.01), axis=-1),
}


@pytest.mark.parametrize("name", CASES)
def test_positions_are_those_of_the_text(name):
    rng = np.random.default_rng(0)
    x, r, t = (rng.standard_normal(s).astype("f4") for s in ((37, 50), (37,), (50,)))
    f = CASES[name]
    np.testing.assert_array_equal(tcomp.jit(lambda x, r, t: f(x, r, t))(x, r, t), f(*(a.astype("f8") for a in (x, r, t)), n=np))


def operations(f, fp=None):
    module = Module("graph", "f", func_of(f, (spec("f32[9, 20]"), spec("f32[9]"), spec("f32[20]"))))
    module = run_passes(module, ("canonicalise", "extremes"), passes_for(machine_for("cpu")[0], fp))
    return [n.op for n in module.func.nodes() if n.operands and n.op not in ("broadcast", "reshape")]


@pytest.mark.parametrize(
    "name", ["a row's term", "what a row is subtracted from", "softmax", "a negative softmax", "tanh of a sum"]
)
def test_what_only_moves_a_row_is_not_computed(name):
    assert operations(CASES[name]) == ["argreduce"]
    assert len(operations(CASES[name], fp="bitwise")) > 1


def test_of_the_logarithm_of_a_softmax_only_its_elements_matter():
    assert sorted(operations(CASES["the logarithm of a softmax, and a term"])) == ["add", "argreduce"]
    assert sorted(operations(CASES["a logarithm of a product"])) == ["argreduce", "sub"]


def peak(x, n, k=True):
    return n.max(x, axis=-1, keepdims=k)


VALUES = {
    "a softmax": lambda x, r, t, n=xp: peak(softmax(x, n), n, False),
    "the least of a negative softmax": lambda x, r, t, n=xp: n.min(-3.0 * softmax(x, n), axis=-1),
    "distances from the largest": lambda x, r, t, n=xp: n.max(peak(x, n) - x, axis=-1),
    "of both sides": lambda x, r, t, n=xp: n.max(n.tanh(-(x - peak(x, n)) / n.sum(n.exp(t))), axis=-1),
    "of a column": lambda x, r, t, n=xp: n.max(x - n.max(x, axis=0, keepdims=True), axis=0),
    "of all": lambda x, r, t, n=xp: n.max(x * n.sum(n.exp(x), axis=(0, 1), keepdims=True), axis=(0, 1)),
    "by what may have any sign": lambda x, r, t, n=xp: n.max(x * n.sum(x, axis=-1, keepdims=True), axis=-1),
    "of what a function is divided by": lambda x, r, t, n=xp: n.max(n.sum(n.exp(x), axis=-1, keepdims=True) / x, axis=-1),
}


@pytest.mark.parametrize("name", VALUES)
def test_extremes_are_those_of_the_text(name):
    rng = np.random.default_rng(1)
    x, r, t = (rng.standard_normal(s).astype("f4") for s in ((37, 50), (37,), (50,)))
    f = VALUES[name]
    want = f(*(a.astype("f8") for a in (x, r, t)), n=np)
    np.testing.assert_allclose(tcomp.jit(lambda x, r, t: f(x, r, t))(x, r, t), want, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", list(VALUES)[:6])
def test_what_reductions_give_comes_after_the_extreme(name):
    """Of no extreme's operand depends a term or a factor on a reduction."""
    (last,) = extremes_of(VALUES[name])
    assert not any(n.op == "reduce" for o in last.operands for n in walk([o]))


@pytest.mark.parametrize("name", list(VALUES)[6:])
def test_what_may_turn_the_order_stays(name):
    assert any(n.op == "reduce" for last in extremes_of(VALUES[name]) for n in walk(last.operands))


def extremes_of(f):
    """The outermost reductions by `max` or `min` of a program after the pass."""
    module = Module("graph", "f", func_of(f, (spec("f32[9, 20]"), spec("f32[9]"), spec("f32[20]"))))
    module = run_passes(module, ("canonicalise", "extremes"), passes_for(machine_for("cpu")[0]))
    found = [n for n in module.func.nodes() if n.op == "reduce" and n["monoid"] in ("max", "min")]
    return found[-1:]


def test_long_and_shared_chains_are_followed_only_so_far():
    """Thousands of operations one after the other, and each twice: neither the stack nor the time runs out."""

    def f(x, r, t):
        deep, twice, same = x, x, r[:, None] + xp.zeros_like(x)
        for _ in range(1500):
            deep = deep + 0.5
        for _ in range(60):
            twice, same = twice + twice * 0.25, same + same * 0.25
        return [
            g(v, axis=-1)
            for v in (deep, twice, x + same, deep - xp.max(deep, axis=-1, keepdims=True))
            for g in (xp.argmax, xp.max)
        ]

    assert operations(f).count("argreduce") == 4


def test_what_is_needed_itself_is_what_is_searched():
    def f(x, r, t):
        p = softmax(x)
        return p, xp.argmax(p, axis=-1)

    assert "div" in operations(f) and operations(f).count("exp") == 1
