"""Masks: foreign memory has tails, own memory does not.

Narrowing a window to a tile that passes the end leaves a valid count on it. Where memory goes on to the end of the tile, which
memory of our own does if it has room, the count of a read is dropped: what is read there is padding, and nobody looks at the
result. A store to our own memory covers the whole tile if what lies past its window's end is padding too.
"""

from __future__ import annotations

from tcomp.ir import index, layout
from tcomp.ir import tile as t
from tcomp.ir.index import as_dim
from tcomp.ir.node import Dim, Node
from tcomp.passes.tiles import loads, swap

_COUNT = index.symbol("?", 0, None)  # stands for a count when asking which windows would be masked


def lies_along(w: t.Window, k: int) -> tuple[int, Dim] | None:
    """The buffer axis that tile axis k runs along, one by one and alone, and where it starts; or None."""
    along = t.axis(k, w.extents[k])
    found = [(a, p) for a, p in enumerate(w.positions) if any(s is along for s in index.symbols([p]))]
    if len(found) != 1:
        return None
    start = index.sub(found[0][1], along)
    return None if any(s is along for s in index.symbols([start])) else (found[0][0], start)


def _has_room(w: t.Window, axis: int, start: Dim, unit: int) -> bool:
    """Whether memory of our own goes on to the next multiple of `unit` past any end of a window that starts at `start`."""
    return w.buffer.space != "global" and index.divisible(start, unit) and index.divisible(layout.room(w.buffer)[axis], unit)


def readable(w: t.Window, k: int, unit: int) -> bool:
    """Whether all of a window that passes the end along tile axis k, to a multiple of `unit`, is memory of the buffer."""
    found = lies_along(w, k)
    if found is None:
        return False
    inside = index.less(index.add(found[1], index.sub(w.extents[k], 1)), w.buffer.shape[found[0]]) == 1
    return inside or _has_room(w, *found, unit)


def may_round_up(w: t.Window, k: int, unit: int) -> bool:
    """Whether a store may write to the next multiple of `unit` past the end of its window along tile axis k.

    There must be room in memory of our own with nothing else in it: the window is a tile of its own, from the start of the
    thread's memory, or it ends where the buffer's extent does or at a multiple of `unit`.
    """
    found = lies_along(w, k)
    if found is None or not _has_room(w, *found, unit):
        return False
    axis, start = found
    return (start == 0 and w.buffer.space != "ws") or _ends_well(w.extents[k], start, w.buffer.shape[axis], unit)


def _ends_well(extent: Dim, start: Dim, edge: Dim, unit: int) -> bool:
    if isinstance(extent, Node) and extent.op == "min":
        return all(_ends_well(as_dim(o), start, edge, unit) for o in extent.operands)
    end = index.add(start, extent)
    return end == edge or index.divisible(end, unit)


def unmask(e: Node, count: Dim | None, unit: int) -> Node:
    """`e` without the valid counts `count` on windows that can be read beyond."""
    if count is None:
        return e
    return swap(e, {n: new for n in loads(e) if (new := _unmasked(n, count, unit)) is not n})


def _unmasked(n: Node, count: Dim, unit: int) -> Node:
    w = t.window(n)
    if w.other is not None:
        return n
    kept = tuple(None if v is not None and v == count and readable(w, k, unit) else v for k, v in enumerate(w.valid))
    return n if kept == w.valid else t.load(w.buffer, w.positions, w.extents, kept, w.other)


def needs_mask(e: Node, k: int, unit: int) -> bool:
    """Whether a tile of `unit` somewhere along axis k of `e` that passes the end would need a mask."""
    narrow = tuple((index.symbol("?at", 0, None, unit), unit, _COUNT) if a == k else None for a in range(e.type.rank))
    narrowed = unmask(t.restrict(e, narrow), _COUNT, unit)
    return any(any(v is not None and _mentions(v) for v in t.window(n).valid) for n in loads(narrowed))


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
            rows = index.constant(layout.room(w.buffer)[found[0]])
            assert rows is not None
            capacity = rows if capacity is None else min(capacity, rows)
    return capacity
