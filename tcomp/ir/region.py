"""Regions: the bodies of control flow in a GRAPH, as attributes of nodes.

A region is closed: its results depend on its parameters, on constants and on symbols alone; what it needs from outside is an
operand of its node (a *capture*). Parameters have canonical names (`p0`, `p1`, ...), so that equal regions are equal. Sizes that
are data inside are symbols of the region, as in a function; no other node may name them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from tcomp.ir import index
from tcomp.ir.index import INDEX
from tcomp.ir.node import Node, node, rewrite, walk, with_operands
from tcomp.ir.ops.movement import parameter
from tcomp.ir.types import TensorType, TupleType

_REPEATABLE = frozenset(["broadcast", "iota", "dimension", "reshape"])  # over constants: cheaper made again than carried around


@dataclass(frozen=True, slots=True)
class Region:
    """A function without a name: from parameter nodes to results. sizes: symbols whose values are data: the last results, one
    i64 for each, in order; a value may depend on earlier ones."""

    params: tuple[Node, ...]
    results: tuple[Node, ...]
    sizes: tuple[Node, ...] = ()

    @property
    def visible(self) -> tuple[Node, ...]:
        """The results that the node of the region takes."""
        return self.results[: len(self.results) - len(self.sizes)]

    def nodes(self) -> list[Node]:
        """What the results need, operands before users, without the insides of inner regions."""
        return list(walk(self.results))


def region_parameter(position: int, t: TensorType) -> Node:
    """The parameter at a position of a region."""
    return parameter(f"p{position}", t.dtype, t.shape)


def regions(n: Node) -> dict[str, Region]:
    """The regions of a node, by the name of the attribute."""
    return {key: value for key, value in n.attrs if isinstance(value, Region)}


def own_dims(n: Node) -> list[Node]:
    """The index expressions in the type and the attributes of a node."""
    types = n.type.elements if isinstance(n.type, TupleType) else (n.type,)
    return [d for t in types for d in t.shape if isinstance(d, Node)] + _dims(tuple(v for _, v in n.attrs))


def _dims(value: object) -> list[Node]:
    if isinstance(value, tuple):
        return [d for v in value for d in _dims(v)]
    return [value] if isinstance(value, Node) and value.type is INDEX else []


def with_regions(n: Node, operands: tuple[Node, ...], new: Mapping[str, Region]) -> Node:
    """`n` over other operands and with other regions, of the same types."""
    return node(n.op, operands, tuple((key, new.get(key, value)) for key, value in n.attrs), n.type)


def deep_walk(roots: Iterable[Node]) -> Iterator[Node]:
    """Every node reachable from `roots`, those inside regions too: before the node whose region it is. Each once."""
    seen: set[Node] = set()
    for n in walk(roots):
        for region in regions(n).values():
            for inner in deep_walk(region.results):
                if inner not in seen:
                    seen.add(inner)
                    yield inner
        if n not in seen:
            seen.add(n)
            yield n


def used_symbols(roots: Iterable[Node]) -> dict[Node, None]:
    """Every symbol in the types, attributes and regions of what `roots` need."""
    found: dict[Node, None] = {}
    for n in deep_walk(roots):
        found.update(dict.fromkeys(s for r in regions(n).values() for s in r.sizes))
        found.update(dict.fromkeys(index.symbols(own_dims(n))))
    return found


def local_sizes(roots: Iterable[Node]) -> dict[Node, None]:
    """The sizes of all regions below `roots`."""
    return dict.fromkeys(s for n in deep_walk(roots) for r in regions(n).values() for s in r.sizes)


def replaced(roots: Iterable[Node], values: Mapping[Node, Node]) -> tuple[Node, ...]:
    """`roots` with other nodes in the place of some, which have the same types."""
    return rewrite(roots, lambda n, operands: values[n] if n in values else with_operands(n, operands))


def canonical(params: tuple[Node, ...], results: tuple[Node, ...], sizes: tuple[Node, ...] = ()) -> Region:
    """The region from `params`, whatever they are named, to `results`."""
    named = tuple(region_parameter(k, p.type) for k, p in enumerate(params))
    return Region(named, replaced(results, dict(zip(params, named))), sizes)


def grown(body: Region, carried: int) -> dict[Node, int]:
    """The sizes of a loop's body that are carried values, each with the value's position: dimensions that change from turn to
    turn."""
    values = body.results[len(body.visible) :]
    places = {p: k for k, p in enumerate(body.params[:carried])}
    return {symbol: places[v] for symbol, v in zip(body.sizes, values) if v in places}


def is_leaving(n: Node) -> bool:
    """Whether `n` is a result of control flow whose size only this control flow finds: its memory is made inside."""
    if n.op != "item" or n.operands[0].op not in ("cond", "loop"):
        return False
    gives = dict(n.operands[0].attrs).get("gives", ())
    return any(d in gives for d in n.type.shape)


def first_capture(n: Node) -> int:
    """Where the captures begin among the operands of a `cond` or `loop`."""
    return 1 if n.op == "cond" else int(n["carried"])


def sunk(n: Node) -> Node:
    """`n` with captures that are known, or made of nothing, inside its regions, and without those that no region needs."""
    start = first_capture(n)
    lead = 0 if n.op == "cond" else start  # parameters that are not captures
    captures, parts = n.operands[start:], regions(n)
    needed = {p for r in parts.values() for p in walk(r.results) if p.op == "parameter"}
    keep = []
    for k, o in enumerate(captures):
        used = any(r.params[lead + k] in needed for r in parts.values())
        if used and not is_known(o):
            keep.append(k)
    if len(keep) == len(captures):
        return n
    new = {key: _without(r, lead, captures, keep) for key, r in parts.items()}
    return with_regions(n, (*n.operands[:start], *(captures[k] for k in keep)), new)


def _without(r: Region, lead: int, captures: tuple[Node, ...], keep: list[int]) -> Region:
    """`r` with the captures that are not kept in the place of their parameters."""
    inside = {r.params[lead + k]: o for k, o in enumerate(captures) if k not in keep}
    kept = (*r.params[:lead], *(r.params[lead + k] for k in keep))
    named = dict(zip(kept, (region_parameter(k, p.type) for k, p in enumerate(kept))))
    return replace(r, params=tuple(named.values()), results=replaced(r.results, {**inside, **named}))


def is_known(n: Node) -> bool:
    """Whether `n` is a constant, or repeats or counts what is."""
    return n.op == "constant" or (n.op in _REPEATABLE and all(is_known(o) for o in n.operands))


def inlined(r: Region, operands: Iterable[Node]) -> tuple[Node, ...]:
    """The results of a region without sizes on these operands."""
    return replaced(r.results, dict(zip(r.params, operands, strict=True)))
