"""Canonical reductions: over the last axis alone, or over axes that do not include the last one."""

from __future__ import annotations

import math

import numpy as np

from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.dtype import accumulator, to_numpy
from tcomp.ir.graph import broadcast, cast, full, reshape, transpose
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import apply

_WINDOW = 256  # a window of at most so many elements is walked by loops around the lanes of the axis before it


def reduced(x: Node, monoid: str, axes: tuple[int, ...]) -> Node:
    """The canonical form of `reduce`: known sizes of 1 vanish, trailing axes are merged, a mixed set is reduced in two steps."""
    shape = tuple(d for a, d in enumerate(x.type.shape) if a not in axes)
    x, axes = _without_units(x, axes, keep=not _mixed(x.type.rank, axes) and x.type.shape[-1:] != (1,))
    if not axes:
        return reshape(_from_zero(x) if monoid == "add" else x, shape)
    if _over_window(x, axes):
        x, axes = _window_first(x, axes)
    if x.type.rank - 1 not in axes:
        return reshape(apply("reduce", x, monoid=monoid, axes=axes), shape)
    run = _trailing_run(x.type.rank, axes)
    dtype = x.type.dtype
    if len(run) < len(axes) and monoid in ("add", "mul"):
        x = cast(x, accumulator(dtype))  # rounded once, at the end
    rows = x.type.shape[: run[0]]
    small = apply("reduce", _merged(x, run[0]), monoid=monoid, axes=(len(rows),))
    rest = tuple(a for a in axes if a not in run)
    if rest:
        small = reduced(small, monoid, rest)
    return reshape(cast(small, dtype), shape)


def _from_zero(x: Node) -> Node:
    """A sum of one element: it starts from +0, so that -0 becomes +0."""
    return apply("add", x, full(0, x.type.dtype, x.type.shape)) if x.type.dtype.is_float else x


def _merged(x: Node, start: int) -> Node:
    """`x` with the axes from `start` on as one."""
    return reshape(x, (*x.type.shape[:start], index.product(x.type.shape[start:])))


def _trailing_run(rank: int, axes: tuple[int, ...]) -> tuple[int, ...]:
    first = rank
    while first - 1 in axes:
        first -= 1
    return tuple(range(first, rank))


def _mixed(rank: int, axes: tuple[int, ...]) -> bool:
    return rank - 1 in axes and len(_trailing_run(rank, axes)) < len(axes)


def _without_units(x: Node, axes: tuple[int, ...], keep: bool) -> tuple[Node, tuple[int, ...]]:
    """`x` without the axes of size 1 among `axes`; without all of size 1 unless `keep`."""
    gone = {a for a, d in enumerate(x.type.shape) if d == 1 and (a in axes or not keep)}
    left = [a for a in range(x.type.rank) if a not in gone]
    return reshape(x, [x.type.shape[a] for a in left]), tuple(k for k, a in enumerate(left) if a in axes)


def _over_window(x: Node, axes: tuple[int, ...]) -> bool:
    """Whether `axes` are the trailing axes that a `window` made: few elements, beside an axis that gives longer vectors."""
    sizes = [x.type.shape[a] for a in axes]
    if axes != _trailing_run(x.type.rank, axes) or len(axes) == x.type.rank or not all(isinstance(d, int) for d in sizes):
        return False
    while x.op in ("slice", "cast"):
        x = x.operands[0]
    return x.op == "window" and math.prod(int(d) for d in sizes if isinstance(d, int)) <= _WINDOW


def _window_first(x: Node, axes: tuple[int, ...]) -> tuple[Node, tuple[int, ...]]:
    """`x` with the axes inside the window before the last one that stays, which then is the last."""
    lanes = axes[0] - 1
    perm = (*range(lanes), *axes, lanes)
    return transpose(x, perm), tuple(range(lanes, lanes + len(axes)))


def arg_reduced(x: Node, monoid: str, axis: int, last: bool, dtype: dt.DType) -> Node:
    """The position of the extreme: where an element equals it (or is NaN, as the extreme then is), the first or last position."""
    shape = x.type.shape
    kept = tuple(a for a in range(len(shape)) if a != axis)
    if shape[axis] == 1:
        return full(0, dtype, tuple(shape[a] for a in kept))
    hit = apply("eq", x, broadcast(reduced(x, monoid, (axis,)), shape, kept))
    if x.type.dtype.is_float:
        hit = apply("or", hit, apply("isnan", x))
    t = _position_dtype(shape[axis])
    miss = full(-1 if last else np.iinfo(to_numpy(t)).max, t, shape)
    at = apply("where", hit, apply("iota", shape=shape, axis=axis, dtype=t), miss)
    found = reduced(at, "max" if last else "min", (axis,))
    return cast(found if (index.bounds(shape[axis])[0] or 0) > 0 else _of_some(found, shape[axis]), dtype)


def _of_some(found: Node, size: Dim) -> Node:
    """The position `found`, at most the last one: this changes nothing, but a call has to show that there is a last one."""
    positions = apply("iota", shape=(size,), axis=0, dtype=found.type.dtype)
    last = apply("slice", positions, start=(index.sub(size, 1),), shape=(1,), step=(1,))
    return apply("min", found, broadcast(reshape(last, ()), found.type.shape, ()))


def _position_dtype(size: Dim) -> dt.DType:
    """i32 where positions along an axis of `size` certainly fit."""
    hi = index.bounds(size)[1]
    return dt.i32 if hi is not None and hi < 2**31 else dt.i64
