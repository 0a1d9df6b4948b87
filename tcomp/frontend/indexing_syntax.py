"""`x[...]` as NumPy defines it: integers, slices, None, Ellipsis, integer arrays (constant or traced), constant masks.

A key becomes entries, one for each axis of x or new axis. Then, in order: one `slice` over all axes; one `reshape` that drops
integers and adds new axes; one `gather` or `gather_nd` for integer arrays, whose axes stand where NumPy puts them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tcomp.errors import Error
from tcomp.frontend.dimension import is_size, raw
from tcomp.frontend.registry import FUNCTIONS, with_place
from tcomp.frontend.shapes import broadcast_shapes
from tcomp.frontend.tracer import Traced, array
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.graph import broadcast_trailing, cast, full, reshape, transpose
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import apply, constant
from tcomp.ir.ops.table import show_shape


@dataclass(frozen=True, slots=True)
class New:
    """A new axis of size 1."""


@dataclass(frozen=True, slots=True)
class At:
    """One position of an axis, which vanishes."""

    position: Dim


@dataclass(frozen=True, slots=True)
class Positions:
    """Positions of an axis from an integer array, already counted from its start."""

    node: Node


Entry = New | At | slice | Positions
ALL = slice(None)


def getitem(x: Any, key: Any) -> Any:
    """`x[key]`. Raises TC0604 for a known position out of range, TC0102 for too many indices, TC0105 for other keys."""
    x = array(x)
    entries = _entries(x.node, key if isinstance(key, tuple) else (key,))
    if any(isinstance(e, Positions) for e in entries):
        return Traced(_advanced(x.node, entries), x.weak)
    return Traced(_basic(x.node, entries), x.weak)


def _entries(x: Node, key: tuple[Any, ...]) -> list[Entry]:
    """One entry for each axis of x and each new axis, the Ellipsis spelled out."""
    taken = sum(_axes_taken(k) for k in key)
    if sum(k is Ellipsis for k in key) > 1:
        raise Error("TC0105", "an index with more than one Ellipsis", "one at most")
    rank = x.type.rank
    if taken > rank:
        raise Error("TC0102", f"{taken} indices into {x.type}", f"{rank} at most")
    rest = rank - taken
    if not any(k is Ellipsis for k in key):
        key = (*key, Ellipsis)
    entries: list[Entry] = []
    axis = 0
    for k in key:
        new = [ALL] * rest if k is Ellipsis else _entry(x, k, axis)
        entries += new
        axis += sum(not isinstance(e, New) for e in new)
    return entries


def _axes_taken(k: Any) -> int:
    """How many axes of x an item of the key consumes."""
    if k is None or k is Ellipsis:
        return 0
    if isinstance(k, (slice, int, np.integer)) and not isinstance(k, (bool, np.bool_)):
        return 1
    if isinstance(k, Traced) and k.dtype.kind == "b":
        hint = "`where(mask, x, fill)` keeps the shape"
        raise Error("TC0105", "a traced boolean mask as an index", "a size that is known while tracing", hint=hint)
    mask = _mask(k)
    return 1 if mask is None else mask.ndim


def _mask(k: Any) -> np.ndarray | None:
    """A constant boolean mask, or None."""
    if isinstance(k, Traced) or is_size(k):
        return None
    value = np.asarray(k) if not isinstance(k, (list, tuple)) or not _has_traced(k) else None
    return value if value is not None and value.dtype.kind == "b" else None


def _has_traced(k: Any) -> bool:
    return any(map(_has_traced, k)) if isinstance(k, (list, tuple)) else isinstance(k, Traced)


def _entry(x: Node, k: Any, axis: int) -> list[Entry]:
    if k is None:
        return [New()]
    if isinstance(k, slice):
        return [k]
    if is_size(k):
        return [At(position(raw(k), x.type.shape[axis]))]
    mask = _mask(k)
    if mask is None:
        return [Positions(positions(k, x.type.shape[axis]))]
    shape = x.type.shape[axis : axis + mask.ndim]
    if mask.ndim == 0 or mask.shape != shape:
        raise Error("TC0102", f"a mask of shape {list(mask.shape)} for axes {show_shape(shape)}", "equal shapes")
    return [Positions(constant(p.astype(np.int64))) for p in np.nonzero(mask)]


def position(k: Dim, size: Dim) -> Dim:
    """A position counted from the start of an axis of this size. TC0604 where it is surely outside."""
    low, high = index.bounds(k)
    if isinstance(k, int) and isinstance(size, int) and not -size <= k < size:
        raise Error("TC0604", f"index {k} for an axis of size {size}", f"{-size} to {size - 1}" if size else "no index at all")
    if high is not None and high < 0:
        return index.add(k, size)
    if low is None or low < 0:
        raise Error("TC0105", f"the symbolic index {index.show(k)}, which may be negative", "one whose sign is known")
    return k


def positions(k: Any, size: Dim) -> Node:
    """An integer array of positions, negative ones counted from the end."""
    n = array(np.zeros(0, np.int64) if isinstance(k, (list, tuple)) and not len(k) else k).node
    if not n.type.dtype.is_integer:
        raise Error("TC0103", f"an index of dtype {n.type.dtype}", "integers, or a constant boolean mask")
    if n.op == "constant" and isinstance(size, int):
        return constant(_checked(n["value"].array.astype(np.int64), size))
    if n.type.dtype.kind == "uint":
        return n
    n = cast(n, dt.i64)
    end = full(size, dt.i64, n.type.shape) if isinstance(size, int) else _spread(size, n.type.shape)
    return apply("where", apply("lt", n, full(0, dt.i64, n.type.shape)), apply("add", n, end), n)


def _spread(size: Dim, shape: tuple[Dim, ...]) -> Node:
    return broadcast_trailing(apply("dimension", dim=size, dtype=dt.i64), shape)


def _checked(values: np.ndarray, size: int) -> np.ndarray:
    if values.size and (values.min() < -size or values.max() >= size):
        bad = values[(values < -size) | (values >= size)].flat[0]
        raise Error("TC0604", f"index {bad} for an axis of size {size}", f"{-size} to {size - 1}" if size else "no index at all")
    return np.where(values < 0, values + size, values)


def _basic(x: Node, entries: list[Entry]) -> Node:
    """Slices, single positions and new axes."""
    shape: list[Dim] = []
    x, taken = _sliced(x, [e for e in entries if not isinstance(e, New)])
    sizes = iter(taken)
    for e in entries:
        if isinstance(e, New):
            shape.append(1)
            continue
        size = next(sizes)
        if not isinstance(e, At):
            shape.append(size)
    return reshape(x, shape)


def _sliced(x: Node, entries: list[Any]) -> tuple[Node, list[Dim]]:
    """x cut to the entries of its axes, and the sizes left; a single position leaves 1."""
    cuts: list[tuple[Dim, Dim, int]] = []
    for a, (e, size) in enumerate(zip(entries, x.type.shape)):
        if isinstance(e, At) and not _surely_inside(e.position, size):
            x = apply("gather", x, apply("dimension", dim=e.position, dtype=dt.i64), axis=a)
            x = reshape(x, (*x.type.shape[:a], 1, *x.type.shape[a:]))
            cuts.append((0, 1, 1))
            continue
        cuts.append((e.position, 1, 1) if isinstance(e, At) else extent(e, size) if isinstance(e, slice) else (0, size, 1))
    start, shape, step = (tuple(c[k] for c in cuts) for k in range(3))
    if shape == x.type.shape and all(s == 1 for s in step) and all(b == 0 for b in start):
        return x, list(shape)
    return apply("slice", x, start=start, shape=shape, step=step), list(shape)


def _surely_inside(position: Dim, size: Dim) -> bool:
    low, above = index.bounds(position)[0], index.bounds(index.sub(position, size))[1]
    return low is not None and low >= 0 and above is not None and above < 0


def extent(s: slice, size: Dim) -> tuple[Dim, Dim, int]:
    """(start, count, step) of a slice of an axis, clamped as Python does."""
    step = 1 if s.step is None else raw(s.step)
    if not isinstance(step, int) or step == 0:
        raise Error("TC0105", f"a slice with step {s.step}", "a known step that is not 0")
    if isinstance(size, int) and all(b is None or isinstance(b, (int, np.integer)) for b in (s.start, s.stop)):
        b, e, _ = slice(s.start, s.stop, step).indices(size)
        n = len(range(b, e, step))
        return (b if n else 0), n, step
    if any(isinstance(b, Traced) for b in (s.start, s.stop)):
        hint = "take a window of known size with x[start + arange(size)]"
        raise Error("TC0101", "a slice with a traced bound", "bounds that are known while tracing", hint=hint)
    if step > 0:
        begin = 0 if s.start is None else _from_start(s.start, size, 0)
        end = size if s.stop is None else index.minimum(_from_start(s.stop, size), size)
        if s.start is not None and end == size and step == 1 and begin not in (0, raw(s.start)):
            return begin, index.minimum(index.mul(raw(s.start), -1), size), 1  # the last few
        span = index.sub(end, begin)
    else:
        last = index.sub(size, 1)
        begin = last if s.start is None else index.minimum(_from_start(s.start, size), last)
        end = -1 if s.stop is None else _from_start(s.stop, size, -1)
        span = index.sub(begin, end)
    return begin, index.maximum(index.ceildiv(span, abs(step)), 0), step


def _from_start(bound: Any, size: Dim, least: int | None = None) -> Dim:
    """A bound of a slice counted from the start of the axis, and at least `least`. What is left unclamped belongs to an empty
    slice, which reads nothing; so that equal counts have equal forms."""
    low, high = index.bounds(raw(bound))
    if low is not None and low >= 0:
        return raw(bound)
    if high is None or high >= 0:
        raise Error("TC0105", f"the symbolic bound {bound}, which may be negative", "one whose sign is known")
    moved = index.add(raw(bound), size)
    return moved if least is None else index.maximum(moved, least)


def _advanced(x: Node, entries: list[Entry]) -> Node:
    """Integer arrays: all of them and single positions beside them are broadcast together."""
    x, _ = _sliced(x, [ALL if isinstance(e, At) else e for e in entries if not isinstance(e, New)])
    old = iter(x.type.shape)
    x = reshape(x, tuple(1 if isinstance(e, New) else next(old) for e in entries))
    chosen = [a for a, e in enumerate(entries) if isinstance(e, (Positions, At))]
    nodes = [_as_positions(entries[a]) for a in chosen]
    together = chosen == list(range(chosen[0], chosen[-1] + 1))
    place = chosen[0] if together else 0
    if len(chosen) == 1:
        return apply("gather", x, nodes[0], axis=chosen[0])
    return _gather_many(x, chosen, nodes, place)


def _as_positions(entry: Entry) -> Node:
    if isinstance(entry, Positions):
        return entry.node
    assert isinstance(entry, At)
    return (
        apply("dimension", dim=entry.position, dtype=dt.i64) if not isinstance(entry.position, int) else _single(entry.position)
    )


def _single(k: int) -> Node:
    return constant(np.asarray(k, np.int64))


def _gather_many(x: Node, chosen: list[int], nodes: list[Node], place: int) -> Node:
    """The elements at tuples of positions; their shape stands at axis `place` of what is left."""
    shape = broadcast_shapes(n.type.shape for n in nodes)
    columns = [reshape(broadcast_trailing(cast(n, dt.i64), shape), (*shape, 1)) for n in nodes]
    rest = [a for a in range(x.type.rank) if a not in chosen]
    moved = transpose(x, (*chosen, *rest))
    picked = apply("gather_nd", moved, apply("concat", *columns, axis=len(shape)), batch=0)
    k = len(shape)
    before = range(k, k + place)
    return transpose(picked, (*before, *range(k), *range(k + place, picked.type.rank)))


FUNCTIONS["getitem"] = with_place(getitem)
