"""What must hold before a program can be lowered, and what its sizes must satisfy when it runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tcomp.errors import Error
from tcomp.ir import index
from tcomp.ir.graph import Func
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import OPS
from tcomp.ir.types import TensorType
from tcomp.passes.fusion import GATHERS, VIRTUAL


def require_known(func: Func, lowered: Collection[str]) -> None:
    """TC0501, with its place, for an operation that no kernel and no statement is made of. lowered: those that have a way of
    their own."""
    for n in func.nodes():
        if OPS[n.op].kind == "pointwise" or n.op in VIRTUAL or n.op in GATHERS or n.op in lowered:
            continue
        place = ", ".join(map(str, func.locs.of(n)))
        raise Error("TC0501", f"`{n.op}` of {n.type} is not supported by the code generator", place=place)


def demands(nodes: Iterable[Node]) -> list[tuple[Node, Dim]]:
    """Index expressions that must not be 0, each with the node that demands it, first of those that need others to hold:
    sizes are not negative, a reshape keeps the number of elements, what is stretched was 1, and what is taken is there."""
    found: dict[Dim, Node] = {}
    for n in nodes:
        for d in (*_not_negative(n), *_of_operation(n)):
            if d != 1:
                found.setdefault(d, n)
    return [(n, d) for d, n in found.items()]


def _not_negative(n: Node) -> list[Dim]:
    return [index.less(-1, d) for d in n.type.shape] if isinstance(n.type, TensorType) else []


def _of_operation(n: Node) -> list[Dim]:
    """What an operation demands beside sizes that are none below 0."""
    if not n.operands or not isinstance(n.operands[0].type, TensorType):
        return []
    shape = n.operands[0].type.shape
    match n.op:
        case "reshape":
            return [index.equal(index.product(shape), index.product(n.type.shape))]
        case "stretch":
            return [index.maximum(index.equal(d, e), index.equal(d, 1)) for d, e in zip(shape, n.type.shape)]
        case "top_k":
            return [index.less(index.sub(n["k"], 1), shape[n["axis"]])]
        case "gather_elements" | "scatter_elements":
            places = n.operands[1].type.shape
            inside = [index.less(index.sub(p, 1), d) for a, (p, d) in enumerate(zip(places, shape)) if a != n["axis"]]
            none = index.equal(index.product(places), 0)
            return [index.maximum(none, d) if d != 1 else 1 for d in inside]
    return []
