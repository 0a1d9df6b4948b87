"""Products of one operand with several others, merged into one: `x a, x b, x c` become parts of `x [a | b | c]`.

A sum of x alone is its product with a column of ones: `x a` and `sum x` become parts of `x [a | 1]`. One n-way pass over the
frozen e-graph: as rewrite rules with two roots, merges feed on their own results and explode. What is added is only an
alternative: extraction takes it when reading the operand once and running one step pays for joining the others.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from tcomp.passes.egraph.engine import ENode, Frozen
from tcomp.passes.egraph.terms import EMPTY, Names, elements

MOST = 8  # products merged at once


@dataclass(frozen=True, slots=True)
class _Product:
    """`cls` is the sum of `x` times `other`; `own`: indices of the other operand alone, in order."""

    cls: int
    other: int
    own: tuple[str, ...]
    shared: Names


def merge(graph: Frozen) -> int:
    """Add merged products to `graph`; how many groups there were."""
    groups: dict[tuple[tuple[str, ...], int], dict[int, _Product]] = defaultdict(dict)
    sums: dict[tuple[tuple[str, ...], int], int] = {}
    for n in graph.nodes:
        if n.op == "ein" and n.attrs[0] and len(n.kids) == 2 and n.kids[0] != n.kids[1]:
            for x, other in (n.kids, n.kids[::-1]):
                if x not in graph.weights:
                    groups[n.attrs[0], x].setdefault(other, _product(graph, n, x, other))
        elif n.op == "ein" and n.attrs[0] and len(n.kids) == 1:
            sums[n.attrs[0], n.kids[0]] = n.cls
    added = 0
    fresh = 1 + max((n.cls for n in graph.nodes), default=0)
    ones, fresh = _ones(graph, fresh) if sums.keys() & groups.keys() else (fresh, fresh)
    for (summed, x), products in groups.items():
        for group in _mergeable(graph, list(products.values()), sums.get((summed, x)), ones):
            fresh = _add(graph, summed, x, group, fresh)
            added += 1
    return added


def _ones(graph: Frozen, fresh: int) -> tuple[int, int]:
    """The class of 1, which is added where there is none; the next free class."""
    known = next((n.cls for n in graph.nodes if n.op == "const" and n.attrs == (1.0,)), None)
    if known is not None:
        return known, fresh
    graph.nodes.append(ENode(fresh, "const", (1.0,), ()))
    graph.weights.add(fresh)
    return fresh, fresh + 1


def _product(graph: Frozen, n: ENode, x: int, other: int) -> _Product:
    names = graph.free.get(other, EMPTY)
    common = names & (graph.free.get(x, EMPTY) | frozenset(n.attrs[0]))
    return _Product(n.cls, other, tuple(sorted(names - common)), common)


def _mergeable(graph: Frozen, products: list[_Product], total: int | None, ones: int) -> list[list[_Product]]:
    """Groups whose other operands have the same indices in common with x, and some of their own. total: the sum of x alone."""
    by: dict[tuple[Names, bool], list[_Product]] = defaultdict(list)
    seen: set[int] = set()
    for p in products:
        if p.own and p.cls not in seen:
            seen.add(p.cls)
            by[p.shared, p.other in graph.weights].append(p)
    more = [] if total is None else [_Product(total, ones, (), EMPTY)]
    return [merged for group in by.values() if len(merged := [*group[: MOST - 1], *more] if more else group[:MOST]) > 1]


def _add(graph: Frozen, summed: tuple[str, ...], x: int, group: list[_Product], fresh: int) -> int:
    """The joined operand, its product with x, and the parts; the next free class."""
    name, own, joined = "", group[0].own, group[0].other
    steps: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = []
    weight = group[0].other in graph.weights
    for p in group[1:]:
        name = f"g{fresh}"
        graph.sizes[name] = elements(graph.sizes, own) + elements(graph.sizes, p.own)
        graph.nodes.append(ENode(fresh, "cat", (name, own, p.own), (joined, p.other)))
        graph.free[fresh] = group[0].shared | {name}
        if weight:
            graph.weights.add(fresh)
        steps.append((name, own, p.own))
        joined, own, fresh = fresh, (name,), fresh + 1
    product = fresh
    graph.nodes.append(ENode(product, "ein", (summed,), tuple(sorted((x, joined)))))
    graph.free[product] = ((graph.free.get(x, EMPTY) | group[0].shared) - frozenset(summed)) | {name}
    return _parts(graph, group, steps, product)


def _parts(graph: Frozen, group: list[_Product], steps: list[tuple[str, tuple[str, ...], tuple[str, ...]]], at: int) -> int:
    """Each product as a part of `at`, the last joined one first; the next free class."""
    fresh = at + 1
    for k in range(len(steps) - 1, -1, -1):
        name, before, after = steps[k]
        graph.nodes.append(ENode(group[k + 1].cls, "part", (name, 1, after), (at,)))
        if k == 0:
            graph.nodes.append(ENode(group[0].cls, "part", (name, 0, before), (at,)))
            break
        graph.nodes.append(ENode(fresh, "part", (name, 0, before), (at,)))
        graph.free[fresh] = (graph.free[at] - {name}) | set(before)
        at, fresh = fresh, fresh + 1
    return fresh
