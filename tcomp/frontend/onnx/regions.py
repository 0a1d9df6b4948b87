"""Bodies of control flow as regions: what they read from outside becomes captures.

A subgraph is imported over parameters with names of its own; afterwards every node that needs none of them is outside: a capture,
computed once. What could fault stays inside, for the body may not run at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tcomp.frontend.onnx.registry import Context
from tcomp.ir import index
from tcomp.ir.index import INDEX
from tcomp.ir.node import Dim, Node, walk
from tcomp.ir.ops import apply, item, parameter
from tcomp.ir.ops.table import INDEXING, OPS
from tcomp.ir.region import canonical, is_known, regions
from tcomp.ir.types import TupleType


def cond(pred: Node, then: Sequence[Node], orelse: Sequence[Node], before: frozenset[Node]) -> tuple[Node, ...]:
    """The values of one side, computed only where `pred` says so. before: the nodes that are computed in any case."""
    inside = _inside([*then, *orelse], lambda n: n not in before)
    captures = _captures([*then, *orelse], inside)
    sides = [canonical(captures, tuple(side)) for side in (then, orelse)]
    both = apply("cond", pred, *captures, then=sides[0], orelse=sides[1])
    return tuple(item(both, k) for k in range(len(then)))


def loop(
    c: Context, start: Sequence[Node], extent: Dim | None, body: Callable[[Node, tuple[Node, ...]], Sequence[Node]],
    conditional: bool = False,
) -> tuple[Node, ...]:  # fmt: skip
    """The last carried values, then what the body collects. body: from the counter, an index symbol, and the carried values to
    the next ones and to what is collected."""
    counter = c.facts.counter(extent)
    before = c.facts.seen()
    params = tuple(parameter(f"{counter['name']}.{k}", s.type.dtype, s.type.shape) for k, s in enumerate(start))
    c.facts.nested += 1
    c.facts.turns.append(counter)
    try:
        results = tuple(body(counter, params))
    finally:
        c.facts.nested -= 1
        c.facts.turns.pop()
    for s, r in zip(start, results):
        if r.type != s.type:
            raise c.unsupported(f"a carried value of type {s.type} that becomes {r.type}")
    inside = _inside(results, lambda n: n in params or (_may_fault(n) and n not in before), counter)
    captures = _captures(results, inside | set(params))
    region = canonical((*params, *captures), results)
    node = apply(
        "loop", *start, *captures, body=region, carried=len(start), extent=extent, counter=counter, conditional=conditional
    )
    return tuple(item(node, k) for k in range(len(results)))


def _inside(results: Iterable[Node], seed: Callable[[Node], bool], counter: Node | None = None) -> set[Node]:
    """The nodes that need a seed or the counter."""
    inside: set[Node] = set()
    for n in walk(results):
        if seed(n) or any(o in inside for o in n.operands) or (counter is not None and _mentions(n, counter)):
            inside.add(n)
    return inside


def _captures(results: Sequence[Node], inside: set[Node]) -> tuple[Node, ...]:
    """What is read from outside, in order of first use; constants are not, they are put inside."""
    found: dict[Node, None] = {}
    for n in walk(results):
        if n in inside:
            found.update((o, None) for o in n.operands if o not in inside and not is_known(o))
    found.update((r, None) for r in results if r not in inside and not is_known(r))
    return tuple(found)


def _mentions(n: Node, symbol: Node) -> bool:
    """Whether the type, an attribute or a region of `n` contains the symbol."""
    types = n.type.elements if isinstance(n.type, TupleType) else (n.type,)
    dims = [d for t in types for d in t.shape] + _dims(tuple(v for _, v in n.attrs))
    if symbol in index.symbols(dims):
        return True
    return any(_mentions(inner, symbol) for r in regions(n).values() for inner in walk(r.results))


def _dims(value: object) -> list[Dim]:
    if isinstance(value, tuple):
        return [d for v in value for d in _dims(v)]
    return [value] if isinstance(value, Node) and value.type is INDEX else []


def _may_fault(n: Node) -> bool:
    """Whether computing `n` where the program would not have could raise: positions from data, sizes that may contradict."""
    if n.op == "reshape":
        return index.product(n.type.shape) != index.product(n.operands[0].type.shape)
    return OPS[n.op].kind == INDEXING and n.op not in ("item", "sort", "top_k") and n.operands[1].op != "constant"


def may_fault(roots: Iterable[Node], before: frozenset[Node]) -> bool:
    """Whether anything new could raise."""
    return any(_may_fault(n) for n in walk(roots) if n not in before)

