"""Accumulators that select: the position of an extreme, and the test for selecting under a changing order.

`where(x == m, h, e)` with m the extreme of x and e the identity of the reduction around it: what was selected stays while the
extreme does, and goes when it moves. T[m -> m'](a) = where(m' == m, a, e) is additive for the reduction and exact, since no
element seen so far equals an m' that is beyond all of them. NaN is an extreme of its own that stays.

A selection (argmax, top-k) under g(., m) may be made with any m iff the order of elements under g does not depend on m:
`order_free` tests that at random, in exact arithmetic.
"""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

from tcomp.ir import tile
from tcomp.ir.node import Node
from tcomp.ir.ops import MONOIDS
from tcomp.passes.cascade import rank
from tcomp.passes.cascade.expression import is_streamed, kinds, show

TRIALS = 2000


def selection(element: Node, monoid: str, extremes: dict[Node, tuple[str, Node]]) -> tuple[Node, Node] | None:
    """(m, e) where an element selects by equality with an extreme. extremes: (monoid, element) of each extreme, by its leaf."""
    if monoid not in ("min", "max") or element.op != "where":
        return None
    hit, chosen, other = element.operands
    if other.op != "full" or "m" in kinds(chosen) or not _neutral(other, chosen, monoid):
        return None
    tests = list(hit.operands) if hit.op == "or" else [hit]
    equal = [t for t in tests if t.op == "eq"]
    if len(equal) != 1:
        return None
    for x, m in (equal[0].operands, equal[0].operands[::-1]):
        known = extremes.get(m)
        if known is not None and known[0] in ("min", "max") and known[1] == x:
            rest = [t for t in tests if t is not equal[0]]
            return (m, other) if all(t.op == "isnan" and t.operands[0] is x for t in rest) else None
    return None


def _neutral(other: Node, chosen: Node, monoid: str) -> bool:
    """Whether the value for what is not selected changes nothing: the identity, or below all positions."""
    value = other["value"].value
    counts = chosen.op == "ref" and chosen.type.dtype.is_integer
    return bool(value == MONOIDS[monoid].identity(other.type.dtype)) or (monoid == "max" and counts and value == -1)


def kept(before: Node, after: Node) -> Node:
    """Whether what was selected stays when the extreme goes from `before` to `after`."""
    same = tile.pointwise("eq", before, after)
    return tile.pointwise("or", same, tile.pointwise("isnan", before)) if before.type.dtype.is_float else same


def order_free(element: Node, positive: frozenset[str] = frozenset(), seed: int = 0) -> str:
    """'' where the order of elements under `element` does not depend on earlier results, else a witness.

    positive: names of leaves that are known to be above 0."""
    rng = random.Random(seed)
    atoms = rank.atoms(element)
    streamed = [a for a in atoms if is_streamed(a)]
    others = [a for a in atoms if not is_streamed(a)]

    def draw(a: Node) -> Any:
        low = 1 if a.op == "ref" and a["name"] in positive else -9
        return rng.random() < 0.5 if a.type.dtype.kind == "bool" else Fraction(rng.randrange(low, 10))

    for _ in range(TRIALS):
        xs = [{a: draw(a) for a in streamed} for _ in range(2)]
        us = [{a: draw(a) for a in others} for _ in range(2)]
        try:
            signs = [_sign(element, xs, u) for u in us]
        except ZeroDivisionError:
            continue
        except rank.NotAlgebraic as e:
            return f"`{e}` in {show(element)} cannot be ordered exactly"
        if signs[0] != signs[1]:
            shown = [{show(a): str(v) for a, v in values.items()} for values in (*xs, *us)]
            return f"{shown[0]} and {shown[1]} change their order between {shown[2]} and {shown[3]}"
    return ""


def _sign(element: Node, xs: list[dict[Node, Any]], u: dict[Node, Any]) -> int:
    a, b = (rank.evaluate(element, {**x, **u}, rank.ORDERED, Fraction) for x in xs)
    return int(a > b) - int(a < b)
