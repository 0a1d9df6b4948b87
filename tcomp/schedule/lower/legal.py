"""What must hold before a program can be lowered, and what its sizes must satisfy when it runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tcomp.errors import Error
from tcomp.ir.demands import demands as demands_of
from tcomp.ir.graph import Func
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import OPS
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
    """Index expressions that must not be 0, each with the node that demands it first."""
    found: dict[Dim, Node] = {}
    for n in nodes:
        for d in demands_of(n):
            found.setdefault(d, n)
    return [(n, d) for d, n in found.items()]
