"""Rules as data: patterns match what they say, the normaliser reaches the fixpoint, and what is wrong is refused."""

from collections import Counter

import numpy as np
import pytest

from tcomp import trace
from tcomp.errors import Error
from tcomp.ir import dtype as dt
from tcomp.ir import graph as g
from tcomp.ir import index as ix
from tcomp.ir.interp.graph import run
from tcomp.ir.loc import Loc
from tcomp.ir.module import Module
from tcomp.ir.ops import apply, constant, parameter
from tcomp.ir.rewrite import Rule
from tcomp.passes.normal import Normaliser, by_root
from tcomp.passes.rebuild import rebuilt

N = ix.symbol("n")
X, Y = parameter("x", dt.f32, (N, 3)), parameter("y", dt.f32, (N, 3))
I = parameter("i", dt.i64, (4,))  # noqa: E741

DOUBLE = Rule("double_negation", "neg(neg(x))", "x")
TWICE = Rule("transpose_twice", "transpose(transpose(x, perm = p), perm = q)", "transpose(x, perm = compose(p, q))")
STILL = Rule("transpose_nothing", "transpose(x, perm = p)", "x", where=("ascending(p)",))
ZERO = Rule("add_zero", "add(x, 0)", "x", where=("integer(x)",))
SELF = Rule("sub_self", "sub(x, x)", "0", where=("integer(x)",))
FACTOR = Rule("factor", "add(mul(x, z), mul(y, z))", "mul(add(x, y), z)", fp="reassociates")


def func(*results, params=(X, Y)):
    return g.Func("f", params, results, tuple(f"r{k}" for k in range(len(results))))


def neg(x):
    return apply("neg", x)


def rewrite(f, rules):
    """(the function after the rules, how often each fired)"""
    fired = Counter()
    with trace.listening(lambda kind, data: fired.update([data["name"]])):
        module = rebuilt(Module("graph", f.name, f), Normaliser(by_root(rules)).change)
    return module.func, fired


def only(rules, result, params=(X, Y)):
    """(the result after the rules, how often each fired)"""
    new, fired = rewrite(func(result, params=params), rules)
    return new.results[0], dict(fired)


def test_what_a_rule_makes_is_rewritten_in_turn():
    assert only([DOUBLE], neg(neg(neg(neg(neg(X)))))) == (neg(X), {"double_negation": 1})


def test_attributes_are_bound_and_computed():
    x = parameter("x", dt.f32, (2, 3, 4))
    twice = g.transpose(g.transpose(x, (1, 2, 0)), (2, 0, 1))
    assert only([TWICE, STILL], twice, (x,)) == (x, {"transpose_twice": 1, "transpose_nothing": 1})
    other = g.transpose(g.transpose(x, (1, 2, 0)), (1, 0, 2))
    new, _ = only([TWICE, STILL], other, (x,))
    value = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    assert new.op == "transpose" and new.operands == (x,)
    assert np.array_equal(run(func(new, params=(x,)), [value])[0], run(func(other, params=(x,)), [value])[0])


def test_numbers_match_constants_through_broadcasts_and_both_orders():
    zero = g.full(0, dt.i64, (4,))
    assert only([ZERO], apply("add", I, zero), (I,))[0] is I
    assert only([ZERO], apply("add", zero, I), (I,))[0] is I
    one = apply("add", I, g.full(1, dt.i64, (4,)))
    assert only([ZERO], one, (I,)) == (one, {})


def test_zero_has_a_sign():
    rule = Rule("minus_zero", "add(x, -0.0)", "x")
    for value, fires in ((-0.0, True), (0.0, False)):
        result = apply("add", X, g.full(value, dt.f32, (N, 3)))
        assert (only([rule], result)[0] is X) == fires


def test_conditions_hold_it_back():
    same = apply("sub", X, X)
    assert only([SELF], same) == (same, {})
    assert only([SELF], apply("sub", I, I), (I,))[0] is g.full(0, dt.i64, (4,))


def test_repeated_variables_and_commutative_operands():
    z = parameter("z", dt.f32, (N, 3))
    left = apply("add", apply("mul", z, X), apply("mul", Y, z))
    new, fired = only([FACTOR], left, (X, Y, z))
    assert fired == {"factor": 1} and new.op == "mul" and z in new.operands
    other = apply("add", apply("mul", X, X), apply("mul", Y, Y))
    assert only([FACTOR], other)[1] == {}


def test_sharing_is_kept_and_deep_programs_are_fine():
    value = X
    for _ in range(5000):
        value = neg(neg(apply("add", value, value)))
    new, fired = rewrite(func(value), [DOUBLE])
    assert fired.total() == 5000 and len(new.nodes()) == 5001


def test_places_follow():
    f = func(apply("abs", neg(neg(X))))
    f.locs.add(neg(neg(X)), Loc("a.py", 1))
    f.locs.add(f.results[0], Loc("a.py", 2))
    new, _ = rewrite(f, [DOUBLE])
    assert new.locs.of(new.results[0]) == (Loc("a.py", 2),)


def test_listeners_hear_of_every_rule():
    heard = []
    with trace.listening(lambda kind, data: heard.append((kind, data["name"], data["after"]))):
        rewrite(func(neg(neg(X))), [DOUBLE])
    rewrite(func(neg(neg(X))), [DOUBLE])
    assert heard == [("rule", "double_negation", X)]


def test_all_that_a_rule_makes_is_normal():
    rule = Rule("abs_twice", "abs(x)", "neg(neg(max(x, neg(x))))")
    assert only([rule, DOUBLE], apply("abs", X)) == (apply("max", X, neg(X)), {"abs_twice": 1, "double_negation": 1})


@pytest.mark.parametrize(
    "rule",
    [Rule("swap", "sub(x, y)", "neg(sub(y, x))"), Rule("grow", "exp(x)", "abs(exp(x))"), Rule("turn", "add(x, y)", "add(y, x)")],
)
def test_rules_without_an_end(rule):
    op = rule.root
    with pytest.raises(Error, match=f"TC0001.*`{op}`"):
        rewrite(func(apply(op, *(X, Y)[: 1 if op == "exp" else 2])), [rule])


@pytest.mark.parametrize(
    "parts, fault",
    [
        (("neg(x)", "y"), "needs"),
        (("x", "x"), "must be an operation"),
        (("neg(x)", "x", ("frob(x)",)), "no predicate `frob`"),
        (("neg(x)", "x", ("float(y)",)), "does not bind"),
        (("neg(x)", "x", (), "exact"), "exact"),
    ],
)
def test_rules_that_are_not_well_formed(parts, fault):
    with pytest.raises(AssertionError, match=fault):
        Rule("r", *parts)


@pytest.mark.parametrize("text", ["frob(x)", "neg(x", "neg(x) y", "neg(x, perm = frob(p))"])
def test_patterns_that_do_not_parse(text):
    with pytest.raises(Error, match="TC0301"):
        Rule("r", text, "x")


def test_a_rule_that_changes_the_type():
    wrong = Rule("wrong", "isnan(x)", "x")
    with pytest.raises(AssertionError, match="the rule wrong made"):
        rewrite(func(apply("isnan", X)), [wrong])


def test_literals_of_attributes():
    rule = Rule("sum_of_negated", 'reduce(neg(x), monoid = "add", axes = a)', 'neg(reduce(x, monoid = "add", axes = a))')
    total = apply("reduce", neg(X), monoid="add", axes=(1,))
    assert only([rule], total)[0] is neg(apply("reduce", X, monoid="add", axes=(1,)))
    largest = apply("reduce", neg(X), monoid="max", axes=(1,))
    assert only([rule], largest)[0] is largest


def test_a_constant_that_is_not_one_number():
    mixed = apply("add", I, constant(np.array([0, 0, 0, 1])))
    assert only([ZERO], mixed, (I,))[0] is mixed
