"""Values that need memory of their own: results, and what loops carry. Such a value is a `copy`, which shares the kernel that
computes it where there is one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from tcomp.ir import index
from tcomp.ir.graph import Func
from tcomp.ir.node import Node, rewrite, with_operands
from tcomp.ir.ops import apply
from tcomp.ir.region import is_leaving
from tcomp.passes.fusion import MOVEMENTS


def with_own_memory(func: Func, numbers: Iterator[int], late: Collection[Node] = ()) -> Func:
    """`func` with each result, and each value that a loop starts from, a value of its own. A result that is a reshape of such a
    value is replaced by it: it has the same elements in memory, or the call fails before it is computed (`demands`). What leaves
    control flow with a size that is still to be bound stays as it is. numbers: those of copies, no two of which are one value, in
    whatever part of the program they are. late: the sizes that are data."""

    def copy(n: Node) -> Node:
        own = apply("copy", n, number=next(numbers))
        func.locs.add(own, *func.locs.of(n))
        return own

    def change(n: Node, operands: tuple[Node, ...]) -> Node:
        count = n["carried"] if n.op == "loop" else 0
        new = with_operands(n, (*map(copy, operands[:count]), *operands[count:]))
        func.locs.add(new, *func.locs.of(n))
        return new

    results: list[Node] = []
    seen: set[Node] = set()
    for r in rewrite(func.results, change):
        base = through_reshapes(r)
        if base not in seen and _has_memory(base) and _same_elements(base, r, late):
            results.append(base)
        elif is_leaving(r) or (r.op in MOVEMENTS - {"reshape"} and r not in results):
            results.append(r)
        else:
            results.append(copy(r))
        seen.add(base)
    return replace(func, results=tuple(results))


def _same_elements(base: Node, r: Node, late: Collection[Node]) -> bool:
    """Whether a reshape has as many elements as its operand, for certain or because the call fails where it has not."""
    sizes = [index.product(n.type.shape) for n in (base, r)]
    return sizes[0] == sizes[1] or any(s in late for s in index.symbols(sizes))


def _has_memory(base: Node) -> bool:
    """Whether a value is computed into memory that nothing else claims."""
    if base.op == "item":
        source = base.operands[0]
        return source.op == "cond" or (source.op == "loop" and base["index"] >= source["carried"])
    return base.op not in ("parameter", "constant") and base.op not in MOVEMENTS


def through_reshapes(n: Node) -> Node:
    """What `n` is a reshape of."""
    while n.op == "reshape":
        n = n.operands[0]
    return n
