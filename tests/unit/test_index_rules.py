"""Every rule of the e-graph: random instances of both sides agree, and rules made wrong are caught by fuzz and by audit."""

import random
from dataclasses import replace

import pytest

from tcomp.passes.egraph.audit import audit
from tcomp.passes.egraph.engine import Engine
from tcomp.passes.egraph.instances import counterexample, instances, random_term
from tcomp.passes.egraph.rule import IndexRule
from tcomp.passes.egraph.schedule import Budget, saturate
from tcomp.passes.egraph.terms import Terms
from tcomp.passes.rules.families import FAMILIES, RULES

BY_NAME = {r.name: r for r in RULES}
SIZES = {"a": 2, "b": 3, "c": 2, "d": 3, "h": 7}


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_both_sides_agree(rule):
    compared, found = counterexample(rule, seed=1, tries=1500 if "win(" in rule.lhs else 250)
    assert found is None, (found.terms.rows[found.left], found.terms.rows[found.right], found.terms.sizes)
    assert compared >= 10


def test_families_hold_each_rule_once():
    assert sum(map(len, FAMILIES.values())) == len(BY_NAME) == len(RULES)


def without(name: str, *conditions: str) -> IndexRule:
    rule = BY_NAME[name]
    left = tuple(c for c in rule.where if c not in conditions)
    assert len(left) == len(rule.where) - len(conditions)
    return replace(rule, where=left)


def changed(name: str, old: str, new: str, side: str = "rhs") -> IndexRule:
    rule = BY_NAME[name]
    text = getattr(rule, side)
    assert old in text
    return replace(rule, **{side: text.replace(old, new, 1)})


MUTANTS = {
    "flatten captures a free index": without("flatten", "disjoint(free(R), C)"),
    "flatten joins two sums over one index": without("flatten", "disjoint(B, C)"),
    "a factor leaves the sum over its index": without("factor_out", "disjoint(free(f), B)"),
    "a common factor leaves a sum over its index": without("common_factor", "disjoint(B - C, free(f))"),
    "common factor keeps the wrong sum": changed("common_factor", "ein(C - B, {*Q})", "ein(B - C, {*Q})"),
    "distribution forgets the other factors": changed("distribute", "ein(B, {t, *R})", "ein(B, {t})"),
    "a name is put under the sum that binds it": without("rename_ein", "absent(i, B)"),
    "a name is captured by the sum": without("rename_ein", "absent(j, B)"),
    "substitution the wrong way round": changed("rename_add", "ren(i, j, t)", "ren(j, i, t)"),
    "a maximum lets a term with its index out": without("max_of_sum", "absent(i, free(a))"),
    "a negative factor leaves a maximum": without("max_of_scaled", "positive(c)"),
    "exp of a sum is a sum": changed("exp_of_sum", "ein({}, {exp(t) for t in N})", "add({exp(t) for t in N})"),
}


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS.keys())
def test_the_fuzzer_catches_mutants(mutant):
    assert counterexample(mutant, seed=2, tries=3000)[1] is not None


def audited(engine: Engine, rules, t: Terms) -> bool:
    """Whether an audit of the saturated terms finds something wrong."""
    engine.open(t.rows, t.sizes)
    saturate(engine, rules, Budget(nodes=300, turns=3, matches=20))
    return bool(audit(engine.freeze(t.rows, t.sizes)).wrong)


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS.keys())
def test_the_audit_catches_mutants(mutant):
    """In e-graphs of instances of the rule's own left side, with all other rules about."""
    rules = tuple(mutant if r.name == mutant.name else r for r in RULES)
    engine = Engine(rules)
    tables = []
    for found in instances(mutant, seed=3, tries=4000):
        if found.terms.sizes["a"] == 2:
            tables.append(found.terms)
    assert any(audited(engine, rules, t) for t in tables[:400])


def test_the_audit_finds_nothing_wrong_in_random_terms():
    engine = Engine(RULES)
    for seed in range(150):
        t = Terms(dict(SIZES))
        random_term(random.Random(seed), t, 3)
        assert not audited(engine, RULES, t), seed


def test_a_rule_must_bind_what_it_makes():
    with pytest.raises(AssertionError, match="nothing binds"):
        IndexRule("wrong", "inv(a)", "add({a, b})")
    with pytest.raises(AssertionError, match="no condition"):
        IndexRule("wrong", "inv(a)", "a", ("surely(a)",)).conditions  # noqa: B018
