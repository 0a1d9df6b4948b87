"""`windows`: which operations of a GRAPH are saturated together.

A window holds operations of one dtype that index notation can say, at most `LARGEST` of them (movement is free), cut where the
fewest values cross, so at the borders of layers. It is convex: no value leaves it and comes back changed. For that, operations
get a stage, which rises behind every operation that is not expressible; a window has one stage, and a range of one topological
order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from tcomp.ir import dtype as dt
from tcomp.ir.graph import Func
from tcomp.ir.node import Node
from tcomp.ir.types import TensorType
from tcomp.passes.egraph.encode import is_expressible
from tcomp.passes.egraph.rule import IndexRule
from tcomp.passes.egraph.spelling import LARGEST_RANK
from tcomp.passes.egraph.terms import Terms

LARGEST = 60
DTYPES = (dt.f32, dt.f64)
_FREE = frozenset(["transpose", "broadcast", "reshape"])


@dataclass(frozen=True, slots=True)
class Window:
    """nodes: operands first; leaves: what they read from outside; roots: those that others, or the results, need."""

    nodes: tuple[Node, ...]
    leaves: tuple[Node, ...]
    roots: tuple[Node, ...]


def windows(func: Func, opaque: Collection[Node] = ()) -> list[Window]:
    """The windows of a function. opaque: nodes that are to stay outside."""
    nodes = func.nodes()
    inside = {n for n in nodes if n not in opaque and _is_inside(n)}
    users: dict[Node, list[Node]] = defaultdict(list)
    for n in nodes:
        for o in set(n.operands):
            users[o].append(n)
    needed = set(func.results)
    out = []
    for group in _groups(nodes, inside):
        for part in _cut(group, users):
            out.append(_window(part, users, needed))
    return [w for w in out if w.roots]


def _is_inside(n: Node) -> bool:
    if not n.operands or not isinstance(n.type, TensorType) or n.type.dtype not in DTYPES or not is_expressible(n):
        return False
    types = [o.type for o in n.operands[1:] if n.op == "where"] or [o.type for o in n.operands]
    if any(not isinstance(t, TensorType) or t.dtype != n.type.dtype for t in types):
        return False
    return all(t.rank <= LARGEST_RANK and 0 not in t.shape for t in (n.type, *(o.type for o in n.operands)))


def _groups(nodes: Sequence[Node], inside: Collection[Node]) -> list[list[Node]]:
    """Nodes of one stage and dtype that are connected, in topological order."""
    stage: dict[Node, int] = {}
    for n in nodes:
        crossed = [stage[o] + (n in inside and o not in inside and bool(o.operands)) for o in n.operands]
        stage[n] = max(crossed, default=0)
    parent = {n: n for n in nodes if n in inside}

    def find(n: Node) -> Node:
        while parent[n] is not n:
            parent[n] = parent[parent[n]]
            n = parent[n]
        return n

    readers: dict[tuple[Node, int], Node] = {}
    for n in parent:
        for o in n.operands:
            if o in parent and stage[o] == stage[n] and o.type.dtype == n.type.dtype:
                parent[find(o)] = find(n)
            elif o.op not in ("constant", "broadcast"):  # all readers of one value are in one window
                first = readers.setdefault((o, stage[n]), n)
                parent[find(first)] = find(n)
    groups: dict[Node, list[Node]] = defaultdict(list)
    for n in parent:
        groups[find(n)].append(n)
    return list(groups.values())


def _cut(group: list[Node], users: dict[Node, list[Node]]) -> Iterable[list[Node]]:
    """Ranges of a topological order with at most `LARGEST` operations, cut where the fewest values cross."""
    while sum(n.op not in _FREE for n in group) > LARGEST:
        at = _best_cut(group, users)
        yield group[:at]
        group = group[at:]
    yield group


def _best_cut(group: list[Node], users: dict[Node, list[Node]]) -> int:
    """The position, past half of the largest size, before which the fewest values live on; the last of equals."""
    place = {n: k for k, n in enumerate(group)}
    last = {n: max((place.get(u, -1) for u in users[n]), default=-1) for n in group}
    best, fewest, count = 1, len(group) + 1, 0
    for k, n in enumerate(group):
        count += n.op not in _FREE
        if count > LARGEST:
            break
        crossing = sum(last[m] > k for m in group[: k + 1])
        if count >= LARGEST // 2 and crossing <= fewest:
            best, fewest = k + 1, crossing
    return best


def _window(part: list[Node], users: dict[Node, list[Node]], needed: set[Node]) -> Window:
    inside = set(part)
    leaves = dict.fromkeys(o for n in part for o in n.operands if o not in inside)
    roots = [n for n in part if n in needed or any(u not in inside for u in users[n])]
    return Window(tuple(part), tuple(leaves), tuple(roots))


def may_match(terms: Terms, rules: Iterable[IndexRule]) -> bool:
    """Whether the left side of some rule could match in a window as it is, or products and the sum of one operand merge."""
    below: dict[str, set[str]] = defaultdict(set)
    for op, _, kids in terms.rows:
        below[op] |= {terms.rows[k][0] for k in kids}
    roots = [r.roots for r in rules if not r.simplifies]
    return _shares_operand(terms) or any(inner and inner <= below.get(root, set()) for root, inner in roots)


def _shares_operand(terms: Terms) -> bool:
    seen: dict[tuple[object, int], int] = {}
    for k, (op, attrs, kids) in enumerate(terms.rows):
        for x in set(kids) if op == "ein" and attrs[0] and len(kids) <= 2 else ():
            if seen.setdefault((attrs, x), k) != k:
                return True
    return False
