"""Elements of reductions, read from a GRAPH: pointwise work becomes a scalar expression, everything else a leaf."""

from __future__ import annotations

from tcomp.ir import tile
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import MONOIDS, OPS
from tcomp.passes.cascade.expression import leaf, leaves

Shape = tuple[Dim, ...]


def is_pointwise(n: Node) -> bool:
    return OPS[n.op].kind == "pointwise" or n.op == "copy"


def row_operand(n: Node) -> Node | None:
    """What a broadcast repeats along a new last axis: one value for each row."""
    if n.op != "broadcast" or not n.type.shape:
        return None
    rank = len(n.type.shape)
    x = n.operands[0]
    return x if n["axes"] == tuple(range(rank - 1)) and x.type.shape == n.type.shape[:-1] else None


def scalar_constant(n: Node) -> Node | None:
    """The constant of one element that `n` repeats."""
    while n.op in ("broadcast", "reshape"):
        n = n.operands[0]
    return n if n.op == "constant" and n["value"].array.size == 1 else None


class Elements:
    """Scalar expressions over one domain. results: the leaf of each stage that is known so far."""

    def __init__(self, domain: Shape, members: frozenset[Node]) -> None:
        self.domain, self.members = domain, members
        self.results: dict[Node, Node] = {}
        self._done: dict[Node, Node] = {}
        self._leaves: dict[Node, Node] = {}

    def of(self, n: Node) -> Node:
        """The element of `n`, of the domain or of its rows."""
        if n in self.results:
            return self.results[n]
        if n not in self._done:
            self._done[n] = self._new(n)
        return self._done[n]

    def _new(self, n: Node) -> Node:
        constant = scalar_constant(n)
        if constant is not None:
            return tile.full(constant["value"].array.reshape(()).item(), n.type.dtype)
        row = row_operand(n)
        if row is not None and n.type.shape == self.domain:
            return self.of(row)
        if n.op == "copy":
            return self.of(n.operands[0])
        if is_pointwise(n) and n in self.members:
            return tile.pointwise(n.op, *map(self.of, n.operands), **dict(n.attrs))
        return self._leaf(n)

    def _leaf(self, n: Node) -> Node:
        if n not in self._leaves:
            kind = "x" if n.type.shape == self.domain else "p"
            number = sum(x["name"][0] == kind for x in self._leaves.values())
            self._leaves[n] = leaf(kind, number, n.type.dtype)
        return self._leaves[n]

    def leaves(self, kind: str) -> tuple[tuple[Node, Node], ...]:
        """The leaves of a kind, each with its value in the graph."""
        return tuple((x, n) for n, x in self._leaves.items() if x["name"][0] == kind)

    def identities(self, e: Node) -> dict[Node, float]:
        """What the results that `e` reads are before any element."""
        stages = {x: n for n, x in self.results.items()}
        found: dict[Node, float] = {}
        for m in leaves(e, "m"):
            n = stages[m]
            found[m] = float(MONOIDS[n["monoid"]].identity(n.type.dtype)) if n.op == "reduce" else 0.0
        return found
