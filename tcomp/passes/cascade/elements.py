"""Elements of reductions, read from a GRAPH: pointwise work becomes a scalar expression, everything else a leaf."""

from __future__ import annotations

from tcomp.ir import tile
from tcomp.ir.graph import uniform
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import MONOIDS, OPS
from tcomp.passes.cascade.expression import leaf, leaves
from tcomp.passes.regroup import runs

Shape = tuple[Dim, ...]


def is_pointwise(n: Node) -> bool:
    """Whether an element of `n` is computed from the same element of its operands: a copy is, too."""
    return OPS[n.op].kind == "pointwise" or n.op == "copy"


def lead_axes(shape: Shape, domain: Shape) -> tuple[int | None, ...] | None:
    """The axis of the domain that each axis of a value of its rows is (None: of size 1), or None where it is no such value."""
    real = [a for a, d in enumerate(domain[:-1]) if d != 1]
    mine = [k for k, d in enumerate(shape) if d != 1]
    if [domain[a] for a in real] != [shape[k] for k in mine]:
        return None
    known = dict(zip(mine, real))
    return tuple(known.get(k) for k in range(len(shape)))


def row_operand(n: Node) -> Node | None:
    """What a broadcast repeats along its last axis: one value for each row, but for axes of size 1."""
    if n.op != "broadcast" or not n.type.shape:
        return None
    x = n.operands[0]
    found = lead_axes(x.type.shape, n.type.shape)
    same = found is not None and all(a is None or a == b for a, b in zip(found, n["axes"]))
    return x if same else None


def is_row_reshape(n: Node, domain: Shape) -> bool:
    """Whether a value of the domain's rows is written with other axes of size 1."""
    return n.op == "reshape" and all(lead_axes(x.type.shape, domain) is not None for x in (n, n.operands[0]))


def streams_in_columns(n: Node, product: Node) -> bool:
    """Whether the last axis of `n`, which reads a product through reshapes and transposes, is among the product's columns: then
    its second factor streams and its first one stays."""
    axes = {n.type.rank - 1}
    while n is not product:
        x = n.operands[0]
        if n.op == "transpose":
            axes = {n["perm"][a] for a in axes}
        else:
            axes = {a for old, new in runs(x.type.shape, n.type.shape) if axes & {*new} for a in old}
        n = x
    return axes <= {product.type.rank - 1}


def _inverse(n: Node) -> Node | None:
    """One over a constant, if it is a number that arithmetic can go on with."""
    constant = uniform(n)
    value = None if constant is None or not n.type.dtype.is_float else float(constant)
    return tile.full(1 / value, n.type.dtype) if value and 1e-30 < abs(value) < 1e30 else None


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
        constant = uniform(n)
        if constant is not None:
            return tile.full(constant.item(), n.type.dtype)
        row = row_operand(n)
        if row is not None and n.type.shape == self.domain:
            return self.of(row)
        if n.op == "copy" or is_row_reshape(n, self.domain):
            return self.of(n.operands[0])
        if n.op == "div" and n in self.members and (inverse := _inverse(n.operands[1])) is not None:
            return tile.pointwise("mul", self.of(n.operands[0]), inverse)
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
