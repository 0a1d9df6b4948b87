"""Random instances of a rule's two sides: what the fuzzer evaluates and the prover proves.

Index names come from a pool of few, free and bound alike, so that capture happens; sizes from tables with 0, 1 and unequal ones.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tcomp.passes.egraph.evaluate import FLOATS, Domain, Named, align, evaluate, normal, union_of
from tcomp.passes.egraph.pattern import sorts
from tcomp.passes.egraph.rule import IndexRule
from tcomp.passes.egraph.terms import Row, Terms, size_of

POOL = "abcdh"
SIZES: tuple[dict[str, int], ...] = (
    {"a": 2, "b": 3, "c": 2, "d": 3, "h": 7},
    {"a": 2, "b": 2, "c": 2, "d": 2, "h": 4},
    {"a": 1, "b": 2, "c": 1, "d": 2, "h": 5},
    {"a": 0, "b": 2, "c": 0, "d": 2, "h": 4},
)
FUNCTIONS = ("exp", "tanh")


@dataclass(frozen=True, slots=True)
class Instance:
    """Rows of a table that a rule says are equal."""

    terms: Terms
    left: int
    right: int


def random_term(rng: random.Random, t: Terms, depth: int = 2) -> int:
    """A random term over the names of the pool."""
    if depth == 0 or rng.random() < 0.4:
        names = rng.sample("abcd", rng.choice((0, 1, 1, 2, 2, 3)))
        return t.leaf("L" + "".join(names) + str(rng.randrange(2)), names, rng.random() < 0.5)
    kids = [random_term(rng, t, depth - 1) for _ in range(rng.choice((1, 2, 2, 3)))]
    kind = rng.random()
    if kind < 0.45:
        return t.ein((i for i in "abcd" if rng.random() < 0.3), *kids)
    if kind < 0.7:
        return t.add(*kids)
    if kind < 0.8:
        return t.un(rng.choice(FUNCTIONS), t.ein((), t.const(0.25), kids[0]))
    if kind < 0.9:
        return t.row("max", (rng.choice("abcd"),), kids[:1])
    i, j = rng.choice(("ac", "ca", "bd", "db"))
    return t.row("ren", (i, j), kids[:1])


def _random_value(rng: random.Random, sort: str, t: Terms) -> Any:
    match sort:
        case "E":
            return t.const(rng.choice((2.0, -1.5))) if rng.random() < 0.1 else random_term(rng, t)
        case "Bag":
            return tuple(random_term(rng, t, 1) for _ in range(rng.choice((1, 1, 2, 3))))
        case "Names":
            return frozenset(i for i in "abcd" if rng.random() < 0.35)
        case "Name":
            return rng.choice(POOL)
        case "Axes":
            return tuple(rng.sample("ab", rng.choice((1, 2))))
    return rng.choice((0, 1, 1, 2))


def _values(rule: IndexRule, rng: random.Random, t: Terms) -> dict[str, Any]:
    wanted = dict(sorts(rule.left))
    for c in rule.conditions:
        for a in c.args:
            if not isinstance(a, int):
                wanted.update({n: s for n, s in sorts(a).items() if n not in wanted})
    v = {name: _random_value(rng, sort, t) for name, sort in wanted.items()}
    if wanted.get("n") == "Name" and "un(" in rule.lhs:
        v["n"] = rng.choice(FUNCTIONS)
    return v


def _is_well_formed(t: Terms) -> bool:
    """Whether substitutions keep sizes and windows have a positive step."""
    for op, attrs, _ in t.rows:
        if op == "ren" and size_of(t.sizes, attrs[0]) != size_of(t.sizes, attrs[1]):
            return False
        if op == "win" and (min(attrs[3:]) < 1 or len(set(attrs[:3])) < 3):
            return False
    return True


def instances(rule: IndexRule, seed: int, tries: int) -> Iterator[Instance]:
    """Random instances in which the rule's conditions hold, of at most `tries` attempts."""
    rng = random.Random(seed)
    for _ in range(tries):
        t = Terms(dict(rng.choice(SIZES)))
        v = _values(rule, rng, t)
        if not rule.holds(v, t):
            continue
        left, right = rule.sides(v, t)
        if _is_well_formed(t):
            yield Instance(t, left, right)


def leaf_values(sizes: Mapping[str, int], seed: int = 0) -> Any:
    """Operands by name: random arrays away from zero, the same for the same name and shape."""

    def leaf(row: Row) -> Named:
        name, indices, _ = row[1]
        rng = np.random.default_rng([seed, *name.encode()])
        shape = [size_of(sizes, i) for i in indices]
        return normal(indices, rng.uniform(0.5, 1.5, shape) * rng.choice((-1.0, 1.0), shape))

    return leaf


def value_of(t: Terms, row: int, leaf: Any, domain: Domain = FLOATS, known: dict[int, Named] | None = None) -> Named:
    """The value of a row of a table."""
    known = {} if known is None else known
    if row not in known:
        kids = [value_of(t, k, leaf, domain, known) for k in t.rows[row][2]]
        known[row] = evaluate(t.rows[row], kids, leaf, t.sizes, domain)
    return known[row]


def agree(a: Named, b: Named, tolerance: float = 1e-6) -> bool:
    """Whether two values are equal up to rounding, an axis that one lacks being repeated."""
    names = union_of((a, b))
    try:
        x, y = np.broadcast_arrays(align(a, names), align(b, names))
    except ValueError:
        return False
    finite = x[np.isfinite(x)]
    scale = 1.0 + (float(np.abs(finite).max()) if finite.size else 0.0)
    return bool(np.allclose(x, y, rtol=tolerance, atol=tolerance * scale, equal_nan=True))


def counterexample(rule: IndexRule, seed: int = 0, tries: int = 400) -> tuple[int, Instance | None]:
    """How many instances were compared, and the first in which the sides differ."""
    compared = 0
    for found in instances(rule, seed, tries):
        leaf = leaf_values(found.terms.sizes)
        known: dict[int, Named] = {}
        try:
            with np.errstate(all="ignore"):
                left, right = (value_of(found.terms, r, leaf, FLOATS, known) for r in (found.left, found.right))
        except ValueError:  # a maximum of nothing, a window outside its operand
            continue
        compared += 1
        if not agree(left, right):
            return compared, found
    return compared, None
