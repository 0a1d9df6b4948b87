"""What all passes over a GRAPH share: rebuilding a function node by node while places in the source follow.

`rebuilt` keeps the function's parameters, result names and their order; every replacement has the type of what it replaces.
A replacement gets the places of the node it stands for, and so do the nodes that were made on the way,
unless their origin is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from tcomp.ir.loc import Locs
from tcomp.ir.module import Module
from tcomp.ir.node import Node, node, rewrite
from tcomp.ir.ops import OPS
from tcomp.ir.ops.table import CONTROL
from tcomp.ir.region import deep_walk, regions, sunk, with_regions

Change = Callable[[Node, tuple[Node, ...]], Node]
_SOURCES = frozenset(["parameter", "constant"])


def rebuilt(module: Module, change: Change, origins: Mapping[Node, Node] = MappingProxyType({})) -> Module:
    """`module` with `change(old, new operands)` for every node of its function. TC0401 where it is not a GRAPH.

    origins: where `change` replaces many nodes at once, the old node whose value a new one has; it gets the places of that one.
    """
    func = module.graph("a pass over GRAPH")
    locs = Locs(dict(func.locs.table))
    known: set[Node] = set(func.params)

    def step(old: Node, operands: tuple[Node, ...]) -> Node:
        if OPS[old.op].kind == CONTROL:
            old, operands = _inside(old, operands, step)
        new = change(old, operands)
        assert new.type == old.type or old.op in ("sort", "top_k"), f"{old.op}: {old.type} became {new.type}"
        _pass_on(locs, old, new, known, origins)
        return new

    results = rewrite(func.results, step)
    changed = replace(func, results=results, locs=locs)
    living = set(deep_walk(changed.results))
    return replace(module, func=replace(changed, locs=Locs({n: p for n, p in locs.table.items() if n in living})))


def _inside(old: Node, operands: tuple[Node, ...], step: Change) -> tuple[Node, tuple[Node, ...]]:
    """Control flow with its regions rebuilt like functions, and its operands; what is known of these is in the regions."""
    n = sunk(node(old.op, operands, old.attrs, old.type))
    n = with_regions(n, n.operands, {key: replace(r, results=rewrite(r.results, step)) for key, r in regions(n).items()})
    return n, n.operands


def _pass_on(locs: Locs, old: Node, new: Node, known: set[Node], origins: Mapping[Node, Node]) -> None:
    """Give the places of `old` to `new`; nodes under it that did not exist before get those of their origin or their reader."""
    known.add(old)
    stack = [(new, locs.of(old))] if new is not old else []
    first = True
    while stack:
        n, places = stack.pop()
        if not first and n in known:
            continue
        first = False
        fresh = n not in known
        known.add(n)
        if fresh and n in origins:
            places = locs.of(origins[n]) or places
        if places and n.op not in _SOURCES:
            locs.add(n, *places)
        if fresh:
            stack.extend((o, places) for o in n.operands)
