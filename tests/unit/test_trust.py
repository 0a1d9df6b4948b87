"""Proofs of rules by z3, and equality of whole terms in finite fields and in float64."""

from dataclasses import replace
from itertools import pairwise

import pytest
from test_egraph import SIZES, TARGETS, Builder

from tcomp.passes.egraph.equal import difference, equal, primes, small_sizes
from tcomp.passes.egraph.prove import prove
from tcomp.passes.rules.families import RULES

BY_NAME = {r.name: r for r in RULES}


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_z3_proves_the_scalar_core(rule):
    """Small instances hold for all reals; z3 may give up on some, never refute one."""
    found = prove(rule, count=2, tries=1500)
    assert found.proved >= 1 and found.refuted == 0, found.witness


@pytest.mark.parametrize(
    "rule",
    [
        replace(BY_NAME["flatten"], where=("some(B)", "disjoint(B, C)", "short(6, R, N)")),
        replace(BY_NAME["distribute"], rhs="add({ein(B, {t}) for t in N})"),
        replace(BY_NAME["exp_of_sum"], rhs="add({exp(t) for t in N})"),
        replace(BY_NAME["max_of_scaled"], where=("filled(R)",)),
        replace(BY_NAME["inverse_of_exp"], rhs="exp(a)"),
    ],
    ids=lambda r: r.name,
)
def test_z3_refutes_what_is_wrong(rule):
    assert prove(rule, count=30, tries=4000).refuted > 0


def test_primes_form_a_chain():
    found, orders = primes(4)
    assert all((p - 1) % q == 0 for p, q in pairwise(found)) and found[-1] > 2**61
    assert all(w != 1 and pow(w, q, p) == 1 for p, q, w in zip(found, found[1:], orders))


@pytest.mark.parametrize("target", TARGETS, ids=lambda f: f.__name__)
def test_equal_terms_are_equal(target):
    t = Builder(dict(SIZES))
    verdict = equal(t, *target(t))
    has_max = any(op == "max" for op, _, _ in t.rows)
    assert verdict.equal and verdict.how == ("float64" if has_max else "field")
    assert verdict.bound < 1e-12


def test_nested_exps_have_their_own_primes():
    t = Builder(dict(SIZES))
    a, b = t.L("a", "i"), t.L("b", "i")
    left = t.exp(t.exp(t.add(a, b)))
    assert equal(t, left, t.exp(t.mul(t.exp(a), t.exp(b)))).how == "field"
    assert not equal(t, left, t.exp(t.exp(t.mul(a, b)))).equal
    assert not equal(t, left, t.exp(t.exp(a))).equal


def wrong_pairs(t: Builder):
    a, b, c = t.L("a", "ic"), t.L("b", "co"), t.L("c", "ic")
    yield t.ein("c", a, b), t.ein("c", c, b)
    yield t.ein("c", t.add(a, c), b), t.add(t.ein("c", a, b), t.ein("c", c, t.mul(b, b)))
    yield t.exp(t.add(a, c)), t.add(t.exp(a), t.exp(c))
    yield t.inv(t.ein("c", a, b)), t.ein("c", t.inv(a), t.inv(b))
    yield t.un("tanh", t.add(a, c)), t.un("tanh", t.add(a, a))


@pytest.mark.parametrize("which", range(5))
def test_unequal_terms_are_not(which):
    t = Builder(dict(SIZES))
    assert not equal(t, *list(wrong_pairs(t))[which]).equal


def test_sizes_fit_windows_and_names():
    t = Builder({n: 50 for n in "ijcpquvab"})
    x = t.row("win", ("p", "u", "a", 2, 3), (t.L("x", "ip"),))
    y = t.ren("i", "j", t.ein("a", x))
    sizes = small_sizes(t)
    assert sizes["i"] == sizes["j"] and sizes["p"] >= 2 * (sizes["u"] - 1) + 3 * (sizes["a"] - 1) + 1
    t.sizes = sizes
    assert difference(t, [(y, y)]) == 0.0
