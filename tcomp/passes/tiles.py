"""Questions and replacements on tile expressions that the passes share."""

from __future__ import annotations

from collections.abc import Mapping

from tcomp.errors import Error
from tcomp.ir import index
from tcomp.ir import tile as t
from tcomp.ir.dtype import i64
from tcomp.ir.index import as_dim
from tcomp.ir.node import Dim, Node, walk
from tcomp.ir.types import Buffer


def loads(e: Node) -> list[Node]:
    """All loads in an expression, each once."""
    return [n for n in t.nodes(e) if n.op == "load"]


def has(e: Node, *ops: str) -> bool:
    """Whether one of `ops` occurs in the expression."""
    return any(n.op in ops for n in t.nodes(e))


def names_read(e: Node) -> set[str]:
    """The names of values that the expression refers to."""
    return {n["name"] for n in t.nodes(e) if n.op == "ref"}


def buffers_read(e: Node) -> set[str]:
    """The names of buffers that the expression reads, by windows or by indices."""
    found = {n["buffer"].name for n in t.nodes(e) if n.op == "load"}
    return found | {b.name for b in index_buffers(e)}


def index_buffers(e: Node) -> list[Buffer]:
    """The buffers that index expressions of `e` read elements of."""
    return [n["buffer"] for n in walk([e]) if n.op == "read"]


def swap(e: Node, values: Mapping[Node, Node]) -> Node:
    """`e` with whole subexpressions replaced (what replaces them is not searched again)."""
    return t.replace(e, values.get) if values else e


def pick(e: Node, at: Dim) -> Node:
    """Element `at` along the first axis of a tile expression; the axis vanishes. Raises TC0302 where rows are not independent."""
    return t.replace(e, lambda n: _pick(n, at))


def _pick(e: Node, at: Dim) -> Node | None:
    """`pick` of a node; None where it is that of its operands."""
    if not e.type.shape:
        return e
    match e.op:
        case "load":
            return _pick_load(e, at)
        case "position":
            extents = e.type.shape
            x = index.substitute(as_dim(e.operands[0]), _dropped(extents, at))
            return t.position(x, e["dtype"], extents[1:])
        case "expand":
            x = e.operands[0]
            return x if e["axis"] == 0 else pick(x, at) if x.type.rank == 1 else t.expand(pick(x, at), e["axis"] - 1)
        case "reduce" if e["axis"] > 0:
            return t.reduce(e["monoid"], pick(e.operands[0], at), e["axis"] - 1)
        case "valid" if e.type.rank == 1:
            x, n, pad = e.operands
            inside = t.pointwise("lt", t.position(at, i64), t.position(as_dim(n), i64))
            return t.pointwise("where", inside, pick(x, at), pad)
        case "ref" | "reduce" | "dot":
            raise Error("TC0302", f"`{e.op}` of type {e.type} among statements over rows", "independent rows")
        case "scan" | "last" | "fold" if e.operands[0].type.rank == 1:
            raise Error("TC0302", f"`{e.op}` along rows", "independent rows")
    return None


def _pick_load(e: Node, at: Dim) -> Node:
    w = t.window(e)
    moved = _dropped(w.extents, at)
    counts = w.valid[1:]
    if w.valid[0] is not None:
        exists = index.less(at, w.valid[0])
        if not counts and exists != 1:
            raise Error("TC0302", f"single elements of {w.buffer.name}, of which some exist", "a window without valid counts")
        counts = (*counts[:-1], index.mul(exists, w.extents[-1] if counts[-1] is None else counts[-1])) if counts else ()
    return t.load(w.buffer, tuple(index.substitute(p, moved) for p in w.positions), w.extents[1:], counts, w.other)


def _dropped(extents: tuple[Dim, ...], at: Dim) -> dict[Node, Dim]:
    """What each tile axis becomes when the first takes the value `at` and the rest move up."""
    moved: dict[Node, Dim] = {}
    for k, d in enumerate(extents):
        old = t.axis(k, d)
        if isinstance(old, Node):
            moved[old] = at if k == 0 else t.axis(k - 1, d)
    return moved


def spread(e: Node) -> Node:
    """`e` with each `expand` of a rank-1 expression pushed down to its windows, which become windows with a unit axis."""

    def change(n: Node) -> Node | None:
        if n.op != "expand" or n.type.rank != 2:
            return None
        x, axis = n.operands[0], n["axis"]
        return t.replace(x, lambda o: _spread(o, axis))

    return t.replace(e, change)


def _spread(x: Node, axis: int) -> Node | None:
    """The rank-1 expression x with a unit axis before (0) or after (1) its own; None where its operands get it."""
    if not x.type.shape:
        return x
    n = x.type.shape[0]
    extents = (1, n) if axis == 0 else (n, 1)
    old = t.axis(0, n)
    moved: dict[Node, Dim] = {old: t.axis(1, n)} if axis == 0 and isinstance(old, Node) else {}
    match x.op:
        case "load":
            w = t.window(x)
            counts = (None, w.valid[0]) if axis == 0 else (w.valid[0], None)
            return t.load(w.buffer, tuple(index.substitute(p, moved) for p in w.positions), extents, counts, w.other)
        case "position":
            return t.position(index.substitute(as_dim(x.operands[0]), moved), x["dtype"], extents)
        case "ref" | "reduce" | "scan" | "last" | "fold" | "dot":
            return t.expand(x, axis)
        case "valid" if axis == 1:
            return t.expand(x, axis)
    return None
