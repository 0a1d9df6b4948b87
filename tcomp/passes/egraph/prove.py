"""z3 proves rules on their scalar core: for fixed small sizes, every element of both sides is the same expression of reals.

Elements of operands are real variables. Functions are uninterpreted, with the axioms that a rule may use instantiated for the
arguments at hand: exp(a + b) = exp(a) exp(b), exp > 0, x * (1/x) = 1 for x other than 0. A maximum is a choice by comparison.
Proofs hold for the sizes and index sets of an instance; that a rule holds for others is the fuzzer's to say.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np

from tcomp.passes.egraph.evaluate import Domain, Named, align, union_of
from tcomp.passes.egraph.instances import Instance, instances, value_of
from tcomp.passes.egraph.rule import IndexRule
from tcomp.passes.egraph.terms import Row, size_of

SECONDS = 2.0
LARGEST = 16  # rows of an instance, and elements of a side: larger ones are left out
MOST_EXPS = 6


@dataclass(frozen=True, slots=True)
class Proof:
    """proved, refuted and undecided instances of a rule. `witness`: the model of a refutation, as text."""

    proved: int
    refuted: int
    undecided: int
    witness: str = ""


@dataclass(slots=True)
class _Reals:
    """Arrays of z3 reals, and the axioms that their functions need."""

    z3: Any
    axioms: list[Any] = field(default_factory=list)
    exps: dict[Any, Any] = field(default_factory=dict)
    functions: dict[str, Any] = field(default_factory=dict)

    def leaf(self, sizes: dict[str, int]) -> Any:
        def make(row: Row) -> Named:
            name, indices, _ = row[1]
            order = sorted(indices)
            shape = [size_of(sizes, i) for i in order]
            out = np.empty(shape, object)
            for at in itertools.product(*map(range, shape)):
                by = dict(zip(order, at))
                out[at] = self.z3.Real(f"{name}_{'_'.join(str(by[i]) for i in indices)}")
            return tuple(order), out

        return make

    def apply(self, op: str, *xs: np.ndarray) -> np.ndarray:
        return np.asarray(np.frompyfunc(lambda *a: self.scalar(op, *a), len(xs), 1)(*xs), object)

    def scalar(self, op: str, *xs: Any) -> Any:
        xs = tuple(map(self.z3.simplify, map(self._real, xs)))
        f = self.functions.get(op)
        if f is None:
            real = self.z3.RealSort()
            f = self.functions[op] = self.z3.Function(op, *(real for _ in xs), real)
        y = f(*xs)
        if op == "inv":
            self.axioms += [xs[0] != 0, xs[0] * y == 1]
        if op == "exp":
            self.exps[xs[0]] = y
        return y

    def _real(self, x: Any) -> Any:
        return x if self.z3.is_expr(x) else self.z3.RealVal(repr(float(x)))

    def exp_axioms(self) -> list[Any]:
        """exp is positive; exp(a) exp(b) = exp(a + b) for the arguments at hand and their negatives, exp(0) = 1."""
        f, simplify = self.functions["exp"], self.z3.simplify
        arguments = list(dict.fromkeys(a for x in self.exps for a in (x, simplify(-x))))
        out = [f(a) > 0 for a in arguments] + [f(self.z3.RealVal(0)) == 1]
        pairs = itertools.combinations_with_replacement(arguments, 2)
        return out + [f(a) * f(b) == f(simplify(a + b)) for a, b in pairs]

    def largest(self, x: np.ndarray, axis: int) -> np.ndarray:
        if not x.shape[axis]:
            raise ValueError("a maximum of nothing")
        parts = list(np.moveaxis(x, axis, 0))
        choose = np.frompyfunc(lambda a, b: self.z3.If(self._real(a) >= self._real(b), self._real(a), self._real(b)), 2, 1)
        return np.asarray(reduce(choose, parts), object)

    def domain(self) -> Domain:
        return Domain(
            lambda v: self._real(v),
            lambda a, b: np.asarray(np.add(np.asarray(a, object), np.asarray(b, object)), object),
            lambda a, b: np.asarray(np.multiply(np.asarray(a, object), np.asarray(b, object)), object),
            lambda x, axes: np.asarray(x.sum(axes), object) if x.size else np.zeros(np.sum(x.astype(float), axes).shape, object),
            self.largest,
            self.apply,
        )


def prove(rule: IndexRule, count: int = 3, seed: int = 0, tries: int = 4000) -> Proof:
    """Try to prove `count` small instances of a rule."""
    proved = refuted = undecided = 0
    witness = ""
    for instance in _small(instances(rule, seed, tries)):
        verdict, model = _decide(instance)
        proved += verdict == "unsat"
        undecided += verdict == "unknown"
        if verdict == "sat":
            refuted, witness = refuted + 1, model
        if proved + refuted + undecided >= count:
            break
    return Proof(proved, refuted, undecided, witness)


def _small(found: Iterable[Instance]) -> Iterable[Instance]:
    return (i for i in found if len(i.terms.rows) <= LARGEST and all(1 <= s <= 7 for s in i.terms.sizes.values()))


def _decide(instance: Instance) -> tuple[str, str]:
    """`unsat` where no reals make the sides differ, `sat` with such reals, `unknown`, or `skipped` where a side has no value."""
    import z3

    reals = _Reals(z3)
    leaf, domain = reals.leaf(instance.terms.sizes), reals.domain()
    known: dict[int, Named] = {}
    try:
        left, right = (value_of(instance.terms, r, leaf, domain, known) for r in (instance.left, instance.right))
    except (ValueError, IndexError):
        return "skipped", ""
    names = union_of((left, right))
    x, y = np.broadcast_arrays(align(left, names), align(right, names))
    if not 0 < x.size <= LARGEST or len(reals.exps) > MOST_EXPS:
        return "skipped", ""
    solver = z3.Solver()
    solver.set("timeout", int(SECONDS * 1000))
    solver.add(*reals.axioms, *(reals.exp_axioms() if reals.exps else ()))
    solver.add(z3.Or([reals._real(a) != reals._real(b) for a, b in zip(x.reshape(-1), y.reshape(-1))]))
    verdict = str(solver.check())
    return verdict, str(solver.model()) if verdict == "sat" else ""
