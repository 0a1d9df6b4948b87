"""`IndexRule`: a rule of the e-graph as data, and the closed vocabulary of its conditions.

    FLATTEN = IndexRule("flatten", "ein(B, {ein(C, N), *R})", "ein(B | C, {*R, *N})",
                        where=("disjoint(free(R), C)", "disjoint(B, C)", "short(7, R, N)"), fp="reassociates")

One object has four readers: the e-graph (`spelling.py`), the fuzzer (`instances.py`), the prover (`prove.py`) and the docs. The
Python meaning of a condition is in `CONDITIONS`, egglog's in `spelling.py`; z3 proves instances, in which names are concrete,
so it needs the meaning of conditions on numbers only: `positive`. Conditions on free indices are of the kind "does not depend
on", which stays true as the analysis learns more.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tcomp.ir.rewrite import FP_CLASSES
from tcomp.passes.egraph.pattern import Op, Part, Values, denote, parse, sorts, walk
from tcomp.passes.egraph.terms import Terms

# name -> (sorts of its arguments, meaning); `short` takes any number of bags after its number
CONDITIONS: dict[str, tuple[tuple[str, ...], Callable[..., bool]]] = {
    "disjoint": (("Names", "Names"), lambda a, b: not a & b),
    "some": (("Names",), lambda a: bool(a)),
    "none": (("Names",), lambda a: not a),
    "absent": (("Name", "Names"), lambda i, a: i not in a),
    "present": (("Name", "Names"), lambda i, a: i in a),
    "other": (("Name", "Name"), lambda i, j: i != j),
    "filled": (("Bag",), lambda bag: len(bag) > 0),
    "short": (("Int", "Bag", "Bag"), lambda most, *bags: sum(map(len, bags)) <= most),
    "named": (("Name",), lambda i: "'" not in i),  # a name that may be primed
    "weight": (("E",), lambda x: True),  # known at compile time: steers the search, decides nothing about truth
    "weights": (("Bag",), lambda bag: True),  # likewise
    "known": (("E",), lambda x: True),  # likewise: the term is already in the e-graph
    "positive": (("E",), lambda value: value is not None and value > 0),
}


@dataclass(frozen=True, slots=True)
class Condition:
    name: str
    args: tuple[Part | int, ...]


@dataclass(frozen=True, slots=True)
class IndexRule:
    """lhs becomes rhs (both stay) where all of `where` hold; see `pattern.py` for the texts."""

    name: str
    lhs: str
    rhs: str
    where: tuple[str, ...] = ()
    fp: str = "reassociates"
    simplifies: bool = False  # run to a fixpoint after every other rule: the right side is smaller

    def __post_init__(self) -> None:
        """AssertionError or ValueError where the rule is not well formed."""
        assert self.fp in FP_CLASSES, f"{self.name}: {self.fp}"
        left = self.left
        assert isinstance(left, Op), f"{self.name}: the left side must be an operation"
        bound = {**sorts(left), **{n: s for c in self.conditions for n, s in self._binds(c).items()}}
        for part in (self.right, *(a for c in self.conditions for a in c.args if not isinstance(a, int))):
            assert sorts(part).keys() <= bound.keys(), f"{self.name}: nothing binds {sorts(part).keys() - bound.keys()}"

    @property
    def _bags(self) -> frozenset[str]:
        return frozenset(n for n, s in sorts(parse(self.lhs)).items() if s == "Bag")

    @property
    def left(self) -> Part:
        return parse(self.lhs)

    @property
    def right(self) -> Part:
        return parse(self.rhs, "E", self._bags)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        return tuple(_condition(text, self._bags) for text in self.where)

    @property
    def roots(self) -> tuple[str, frozenset[str]]:
        """The operation at the top of the left side, and those below it: a window without them cannot match."""
        assert isinstance(self.left, Op)
        return self.left.op, frozenset(p.op for a in self.left.args for p in walk(a) if isinstance(p, Op))

    @staticmethod
    def _binds(c: Condition) -> dict[str, str]:
        """Variables that a condition binds: `named(i)` runs through all names."""
        return sorts(c.args[0]) if c.name in ("named", "known") and not isinstance(c.args[0], int) else {}

    def holds(self, v: Values, t: Terms) -> bool:
        """Whether all conditions hold of concrete terms."""
        return all(_holds(c, v, t) for c in self.conditions)

    def sides(self, v: Values, t: Terms) -> tuple[int, int]:
        """Both sides as rows of `t`."""
        return denote(self.left, v, t), denote(self.right, v, t)


def _condition(text: str, bags: frozenset[str]) -> Condition:
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call) and isinstance(call.func, ast.Name), text
    name = call.func.id
    assert name in CONDITIONS, f"no condition `{name}`"
    kinds: Sequence[str] = CONDITIONS[name][0]
    args: list[Part | int] = []
    for k, a in enumerate(call.args):
        kind = kinds[min(k, len(kinds) - 1)]
        args.append(int(ast.literal_eval(a)) if kind == "Int" else parse(ast.unparse(a), kind, bags))
    return Condition(name, tuple(args))


def _holds(c: Condition, v: Values, t: Terms) -> bool:
    args: list[Any] = [a if isinstance(a, int) else denote(a, v, t) for a in c.args]
    if c.name == "positive":
        op, attrs, _ = t.rows[args[0]]
        args = [attrs[0] if op == "const" else None]
    return CONDITIONS[c.name][1](*args)
