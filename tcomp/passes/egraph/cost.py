"""What an e-node costs, from rates of the machine; and the cheapest order of contraction inside one sum of products.

Pointwise work is streamed into what it reads or feeds: it costs arithmetic, no bytes, unless it makes more elements than it
reads. What stays inside one pass of dependent reductions is never stored: no bytes either. Products and reductions cost the
larger of arithmetic and bytes, and a step; a sum of what a product over the same indices reads is taken in the same pass.
What constants alone determine is computed once: nearly free. Costs are integers of `UNIT` seconds. What the text does not have
costs a little more than what it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from tcomp.passes.egraph.engine import ENode, Frozen
from tcomp.passes.egraph.terms import EMPTY, Names, elements

UNIT = 1e-11
FORBIDDEN = 10**15  # of an exp that a rule made and whose argument may be large
_SLOW = {
    **dict.fromkeys(("inv", "sqrt", "rsqrt"), 3),
    **dict.fromkeys(("exp", "log", "tanh", "sigmoid", "sin", "cos", "erf"), 10),
    "pow": 20,
}  # pointwise operations that one of these counts for
EXACT_FACTORS = 6


@dataclass(frozen=True, slots=True)
class Rates:
    """Of a machine: product flops and pointwise operations a second, bytes a second, seconds of a step, bytes of an element."""

    flops: float
    pointwise: float
    bandwidth: float
    step: float
    element: int

    def time(self, seconds: float) -> int:
        return int(seconds / UNIT)

    def product(self, flops: float, moved: float) -> int:
        return self.time(max(flops / self.flops, moved / self.bandwidth) + self.step)

    def streamed(self, operations: float, moved: float = 0.0) -> int:
        return self.time(operations / self.pointwise + moved / self.bandwidth)


@dataclass(frozen=True, slots=True)
class Factor:
    """A factor of a sum of products: its indices, whether it is known at compile time, bytes that are read for it."""

    names: Names
    weight: bool
    moved: int


Plan = int | tuple["Plan", "Plan"]  # a factor, or the product of two plans


@dataclass(frozen=True, slots=True)
class Contraction:
    """An order of contraction and its cost."""

    cost: int
    plan: Plan


class Sizes:
    """Sizes of index names, hashable by identity so that contractions are remembered."""

    def __init__(self, sizes: Mapping[str, int], rates: Rates) -> None:
        self.sizes, self.rates = sizes, rates

    def elements(self, names: Iterable[str]) -> int:
        return elements(self.sizes, names)

    @cache  # noqa: B019 - lives as long as one extraction
    def contract(self, factors: tuple[Factor, ...], summed: Names, stored: bool = True) -> Contraction:
        """The cheapest order; beyond `EXACT_FACTORS` factors opt_einsum's. stored: whether the result is written."""
        out = EMPTY.union(*(f.names for f in factors)) - summed
        if len(factors) > EXACT_FACTORS:
            return self.planned(factors, out)
        return _Subsets(self, factors, out, stored).best()

    def planned(self, factors: Sequence[Factor], out: Names) -> Contraction:
        import opt_einsum

        letters: dict[str, str] = {}
        for n in sorted(EMPTY.union(*(f.names for f in factors))):
            letters[n] = opt_einsum.get_symbol(len(letters))
        sizes = {letters[n]: self.elements((n,)) for n in letters}
        inputs = [frozenset(letters[n] for n in f.names) for f in factors]
        find = opt_einsum.DynamicProgramming(minimize="flops")
        path = find(inputs, frozenset(letters[n] for n in out), sizes)
        return self.along(path, factors, out)

    def along(self, path: Sequence[Sequence[int]], factors: Sequence[Factor], out: Names) -> Contraction:
        """The contraction that a path of pairs of positions stands for; what only one factor has is summed before."""
        live: list[tuple[Factor, Plan]] = []
        total = 0
        for k, f in enumerate(factors):
            made, cost = self.single(f, out.union(*(o.names for at, o in enumerate(factors) if at != k)))
            live.append((made, k))
            total += cost
        for step in path:
            taken = [live[k] for k in step]
            live = [x for k, x in enumerate(live) if k not in step]
            first = taken[0]
            for second in taken[1:]:
                needed = out.union(*(f.names for f, _ in live))
                merged, cost = self.pair(first[0], second[0], (first[0].names | second[0].names) & needed)
                total += cost
                first = (merged, (first[1], second[1]))
            live.append(first)
        return Contraction(total, live[0][1])

    def pair(self, a: Factor, b: Factor, kept: Names, stored: bool = True) -> tuple[Factor, int]:
        """The product of two factors, summed over what is not kept, and its cost."""
        over = a.names | b.names
        count = self.elements(kept)
        moved = count * self.rates.element if stored else 0
        out = Factor(kept, a.weight and b.weight, moved)
        if out.weight:
            return out, 1
        if over != kept:
            return out, self.rates.product(2.0 * self.elements(over), a.moved + b.moved + moved)
        grows = count > max(self.elements(a.names), self.elements(b.names))
        return out, self.rates.streamed(count, 2.0 * moved if grows else 0.0)

    def single(self, a: Factor, kept: Names) -> tuple[Factor, int]:
        """A factor summed over what is not kept."""
        if a.names <= kept:
            return a, 0
        names = a.names & kept
        moved = self.elements(names) * self.rates.element
        cost = 1 if a.weight else self.rates.product(0.0, a.moved + moved) + self.rates.streamed(self.elements(a.names))
        return Factor(names, a.weight, moved), cost


class _Subsets:
    """Dynamic programming over the subsets of the factors."""

    def __init__(self, sizes: Sizes, factors: Sequence[Factor], out: Names, stored: bool) -> None:
        self.sizes, self.factors, self.out, self.stored = sizes, factors, out, stored
        self.full = (1 << len(factors)) - 1

    def kept(self, subset: int) -> Names:
        """Indices that others, or the result, need."""
        outside = (f.names for k, f in enumerate(self.factors) if not subset >> k & 1)
        return self.out.union(*outside)

    def best(self) -> Contraction:
        table: dict[int, tuple[int, Factor, Plan]] = {}
        for k, f in enumerate(self.factors):
            made, cost = self.sizes.single(f, self.kept(1 << k))
            table[1 << k] = (cost, made, k)
        for subset in sorted(range(1, self.full + 1), key=lambda s: bin(s).count("1")):
            if subset not in table:
                table[subset] = self.split(subset, table)
        cost, _, plan = table[self.full]
        return Contraction(cost, plan)

    def split(self, subset: int, table: Mapping[int, tuple[int, Factor, Plan]]) -> tuple[int, Factor, Plan]:
        """The best way to make a subset from two."""
        kept = self.kept(subset)
        best: tuple[int, Factor, Plan] | None = None
        part = (subset - 1) & subset
        while part:
            rest = subset & ~part
            if part > rest:
                (c1, f1, p1), (c2, f2, p2) = table[part], table[rest]
                made, cost = self.sizes.pair(f1, f2, (f1.names | f2.names) & kept, self.stored or subset != self.full)
                if best is None or c1 + c2 + cost < best[0]:
                    best = (c1 + c2 + cost, made, (p1, p2))
            part = (part - 1) & subset
        assert best is not None
        return best


@dataclass(slots=True)
class Costs:
    """Costs of the e-nodes of a frozen e-graph. streamed: classes of what one pass of dependent reductions keeps inside."""

    graph: Frozen
    rates: Rates
    streamed: frozenset[int] = frozenset()
    sizes: Sizes = field(init=False)
    _moved: dict[int, int] = field(init=False)
    _read: frozenset[tuple[Any, int]] = field(init=False)  # (summed, class) of factors of products

    def __post_init__(self) -> None:
        self.sizes = Sizes(self.graph.sizes, self.rates)
        products = (n for n in self.graph.nodes if n.op == "ein" and n.attrs[0] and len(set(n.kids)) == 2)
        self._read = frozenset((n.attrs[0], x) for n in products for x in n.kids)
        self._moved = dict.fromkeys(self.streamed, 0) | {n.cls: 0 for n in self.graph.nodes if n.op == "const"}
        for n in self.graph.nodes:
            if n.op == "win":
                self._moved[n.cls] = min(self.moved(n.kids[0]), self.moved(n.cls))

    def moved(self, cls: int) -> int:
        """Bytes that reading a class takes."""
        return self._moved.get(cls, self.graph.elements(cls) * self.rates.element)

    def factor(self, cls: int) -> Factor:
        return Factor(self.graph.free.get(cls, EMPTY), cls in self.graph.weights, self.moved(cls))

    def of(self, n: ENode) -> int:
        """The cost of an e-node, its operands being there."""
        if n.op in ("leaf", "const"):
            return FORBIDDEN if n.op == "leaf" and len(set(n.attrs[1])) < len(n.attrs[1]) else 0
        if n.op == "ren" and n.attrs[1] in self.graph.free.get(n.kids[0], EMPTY):  # diagonals are no operation of the GRAPH
            return FORBIDDEN
        cost = 1 if n.cls in self.graph.weights else max(1, self._of(n))
        return cost if n.key in self.graph.given else cost + cost // 10000 + 2

    def _of(self, n: ENode) -> int:
        count = self.graph.elements(n.cls)
        match n.op:
            case "ein" if len(n.kids) == 1 and (n.attrs[0], n.kids[0]) in self._read:
                return self.rates.streamed(self.graph.elements(n.kids[0]))
            case "ein":
                factors = sorted(map(self.factor, n.kids), key=lambda f: (sorted(f.names), f.weight, f.moved))
                return self.sizes.contract(tuple(factors), frozenset(n.attrs[0]), n.cls not in self.streamed).cost
            case "add":
                return self.rates.streamed((len(n.kids) - 1) * count)
            case "un" | "bin" | "tri":
                if n.attrs[0] == "exp" and n.cls not in self.graph.exps and n.kids[0] not in self.graph.bounded:
                    return FORBIDDEN
                return self.rates.streamed(_SLOW.get(n.attrs[0], 1) * count)
            case "max":
                return self.sizes.single(self.factor(n.kids[0]), self.graph.free.get(n.cls, EMPTY))[1]
            case "cat":
                return self.rates.product(0.0, 2.0 * count * self.rates.element)
            case "part":  # what reads it wants it in one piece
                return self.rates.streamed(0.0, 2.0 * count * self.rates.element)
        return 1


def rates_from(data: Mapping[str, Any]) -> Rates:
    return Rates(data["flops"], data["pointwise"], data["bandwidth"], data["step"], data["element"])
