"""A body whose sizes are data, cut where these become known: what a size needs is computed before what has that size.

What a later segment reads of an earlier one is a result there, and a parameter here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from tcomp.ir.graph import Func
from tcomp.ir.loc import Locs
from tcomp.ir.node import Node, rewrite, walk, with_operands
from tcomp.ir.ops import parameter
from tcomp.ir.region import is_known
from tcomp.ir.types import TupleType


@dataclass(frozen=True, slots=True)
class Segment:
    """func: its first result is the value of `size`, the others are what later segments know as `given`, in order."""

    size: Node
    func: Func
    given: tuple[Node, ...]


def segments(func: Func) -> tuple[list[Segment], Func]:
    """A segment for each size of `func`, and the rest."""
    found: list[Segment] = []
    sizes, results = list(func.sizes), list(func.results)
    params = func.params
    while sizes:
        k = len(results) - len(sizes)
        value = results[k]
        shared = _shared(value, [*results[:k], *results[k + 1 :]])
        given = tuple(parameter(f"given {len(found)}.{j}", n.type.dtype, n.type.shape) for j, n in enumerate(shared))
        names = tuple(f"r{j}" for j in range(1 + len(shared)))
        part = replace(func, params=params, results=(value, *shared), result_names=names, sizes=())
        found.append(Segment(sizes.pop(0), part, given))
        results = _reading([*results[:k], *results[k + 1 :]], dict(zip(shared, given)), func.locs)
        params = (*params, *given)
    return found, replace(func, params=params, results=tuple(results), result_names=func.result_names[: len(results)], sizes=())


def _reading(results: list[Node], given: Mapping[Node, Node], locs: Locs) -> list[Node]:
    """`results` with parameters in the place of what is given. What changes by that keeps its places."""

    def change(old: Node, operands: tuple[Node, ...]) -> Node:
        if old in given:
            return given[old]
        new = with_operands(old, operands)
        if new is not old:
            locs.add(new, *locs.of(old))
        return new

    return list(rewrite(results, change))


def _shared(value: Node, others: Iterable[Node]) -> list[Node]:
    """The values that both `value` and the others need, at the edge between them."""
    others = list(others)
    inside = {n for n in walk([value]) if n.op != "parameter" and not is_known(n)}
    found: dict[Node, None] = {r: None for r in others if r in inside}
    for n in walk(others):
        if n in inside:
            continue
        for o in n.operands:
            if o in inside:
                found[n if isinstance(o.type, TupleType) else o] = None
    return list(found)
