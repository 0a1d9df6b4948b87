"""Positions of extremes: what does not change the order of elements is not computed, and the positions are the same."""

import numpy as np
import pytest

import tcomp
import tcomp.numpy as xp
from tcomp.codegen.llvm.machines import machine_for
from tcomp.driver import func_of, passes_for, run_passes
from tcomp.frontend.spec import spec
from tcomp.ir.module import Module


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


def test_what_is_needed_itself_is_what_is_searched():
    def f(x, r, t):
        p = softmax(x)
        return p, xp.argmax(p, axis=-1)

    assert "div" in operations(f) and operations(f).count("exp") == 1
