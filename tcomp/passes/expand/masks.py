"""Masks: foreign memory has tails, own memory does not.

Narrowing a window to a tile that passes the end leaves a valid count on it. On a buffer of our own that has room for the whole
tile the count is dropped: what is read there is padding, and nobody looks at the result.
"""

from __future__ import annotations

from tcomp.ir import index, layout
from tcomp.ir import tile as t
from tcomp.ir.node import Dim, Node
from tcomp.ir.types import Buffer
from tcomp.passes.tiles import loads, swap

_COUNT = index.symbol("?", 0, None)  # stands for a count when asking which windows would be masked


def padded(buffer: Buffer, axis: int) -> Dim:
    """What memory covers along an axis of an own buffer: its capacity, rounded up by the blocks of the order."""
    block = 1
    for a, b in buffer.order or ():
        if a == axis:
            block *= b or 1
    return index.round_up(layout.capacity(buffer)[axis], block)


def lies_along(w: t.Window, k: int) -> tuple[int, Dim] | None:
    """The buffer axis that tile axis k runs along, one by one and alone, and where it starts; or None."""
    along = t.axis(k, w.extents[k])
    found = [(a, p) for a, p in enumerate(w.positions) if any(s is along for s in index.symbols([p]))]
    if len(found) != 1:
        return None
    start = index.sub(found[0][1], along)
    return None if any(s is along for s in index.symbols([start])) else (found[0][0], start)


def has_room(w: t.Window, k: int, unit: int) -> bool:
    """Whether memory of our own goes on to the next multiple of `unit` past any end of the window along tile axis k."""
    if w.buffer.space == "global":
        return False
    found = lies_along(w, k)
    if found is None:
        return False
    return index.divisible(found[1], unit) and index.divisible(padded(w.buffer, found[0]), unit)


def unmask(e: Node, count: Dim | None, unit: int) -> Node:
    """`e` without the valid counts `count` on windows of our own that have room."""
    if count is None:
        return e
    return swap(e, {n: new for n in loads(e) if (new := _unmasked(n, count, unit)) is not n})


def _unmasked(n: Node, count: Dim, unit: int) -> Node:
    w = t.window(n)
    if w.buffer.space == "global" or w.other is not None:
        return n
    kept = tuple(None if v is not None and v == count and has_room(w, k, unit) else v for k, v in enumerate(w.valid))
    return n if kept == w.valid else t.load(w.buffer, w.positions, w.extents, kept, w.other)


def needs_mask(e: Node, k: int, unit: int) -> bool:
    """Whether a tile that passes the end along axis k of `e` would need a mask."""
    return any(any(v is not None and _mentions(v) for v in t.window(n).valid) for n in loads(probe(e, k, unit)))


def probe(e: Node, k: int, unit: int) -> Node:
    """`e` narrowed to a tile of `unit` along axis k with an unknown count, own windows unmasked."""
    narrow = tuple((0, unit, _COUNT) if a == k else None for a in range(e.type.rank))
    return unmask(t.restrict(e, narrow), _COUNT, unit)


def _mentions(count: Dim) -> bool:
    return any(s is _COUNT for s in index.symbols([count]))


def own_rows(window: Node, value: Node) -> int | None:
    """The rows that memory has for a store into an own tile from the first row on, if all that is read by rows has them too."""
    narrow = ((0, 1 << 20, _COUNT), None)
    capacity: int | None = None
    for e in (window, value):
        for n in loads(t.restrict(e, narrow[: e.type.rank])) if e.type.rank else ():
            w = t.window(n)
            if not any(v is not None and _mentions(v) for v in w.valid):
                continue
            k = next(k for k, v in enumerate(w.valid) if v is not None and _mentions(v))
            found = lies_along(w, k) if w.buffer.space in ("stack", "scratch") else None
            if found is None or found[1] != 0 or w.valid[k] is not _COUNT:
                return None
            rows = index.constant(padded(w.buffer, found[0]))
            assert rows is not None
            capacity = rows if capacity is None else min(capacity, rows)
    return capacity
