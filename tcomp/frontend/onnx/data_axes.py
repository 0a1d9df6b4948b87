"""Axes that are data: their number is known while importing, so the rank of a result is too, but not which axes they are.

An operation along such axes is written on `split_axes`: every axis becomes a pair of axes (n, m), one of which is the whole axis
and the other 1. What the operation does along the m's, whichever they are, it does along the axes that the data names.
"""

from __future__ import annotations

from collections.abc import Sequence

from tcomp.frontend.onnx import build
from tcomp.frontend.onnx.ops_math import position
from tcomp.frontend.onnx.registry import Context
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.graph import broadcast, cast, reshape
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import apply


def axis_flags(c: Context, axes: Node, rank: int) -> Node:
    """bool[rank]: which axes the integers `axes` name, negative ones counted from the end. The call fails where one is out of
    range or named twice."""
    return apply("reduce", axis_hits(c, axes, rank), monoid="or", axes=(0,))


def axis_hits(c: Context, axes: Node, rank: int) -> Node:
    """bool[count, rank]: which axis each of the `count` integers names; checked as `axis_flags` says."""
    count = index.product(axes.type.shape)
    named = build.normal_positions(reshape(cast(axes, dt.i64), (count,)), rank)
    hits = apply("eq", broadcast(named, (count, rank), (0,)), position((count, rank), 1))
    found = cast(apply("reduce", hits, monoid="or", axes=(0,)), dt.i64)
    total = apply("reduce", found, monoid="add", axes=(0,))
    c.require(apply("eq", total, build.dimension(count, dt.i64)), f"{index.show(count)} different axes of rank {rank}")
    return hits


def per_axis(hits: Node, values: Node, rest: int) -> Node:
    """For each axis the one of `values` whose axis it is (see `axis_hits`), `rest` for an axis that is not named."""
    count, rank = hits.type.shape
    wide = broadcast(values, (count, rank), (0,))
    found = apply("reduce", apply("where", hits, wide, build.scalar(0, wide)), monoid="add", axes=(0,))
    return apply("where", apply("reduce", hits, monoid="or", axes=(0,)), found, build.scalar(rest, found))


def split_axes(c: Context, x: Node, flags: Node) -> tuple[Node, tuple[Dim, ...], tuple[Dim, ...]]:
    """(x of shape (n_0, m_0, n_1, m_1, ...), the n's, the m's): n_i * m_i is the size of axis i of `x`; where flag i holds n_i
    is 1, else m_i is 1 (0 where the axis has no elements)."""
    shape = x.type.shape
    sizes = build.dimensions(shape)
    kept = apply("where", flags, build.scalar(1, sizes), sizes)
    most = [d if isinstance(d, int) else None for d in shape]
    least = [min(1, d) if isinstance(d, int) else 0 for d in shape]
    found = c.sizes(kept, "which axes", [d if d is None else max(1, d) for d in most], least)
    outer = tuple(1 if d == 1 else n for d, n in zip(shape, found))
    inner = tuple(index.floordiv(d, n) for d, n in zip(shape, outer))
    return reshape(x, [d for pair in zip(outer, inner) for d in pair]), outer, inner


def around_axis(c: Context, sizes: Sequence[Dim], axis: Node) -> tuple[Dim, Dim, Dim]:
    """The product of the sizes before the one axis that `axis` names, its own size, and the product of those behind it."""
    rank = len(sizes)
    at = position((rank,), 0)
    named = cast(axis_flags(c, axis, rank), dt.i64)
    place = broadcast(apply("reduce", apply("mul", named, at), monoid="add", axes=(0,)), (rank,), ())
    have, parts = build.dimensions(sizes), []
    for relation in ("lt", "eq", "gt"):
        chosen = apply("where", apply(relation, at, place), have, build.scalar(1, have))
        parts.append(c.size(apply("reduce", chosen, monoid="mul", axes=(0,)), "which axis"))
    return parts[0], parts[1], parts[2]


def kept_sizes(c: Context, sizes: Sequence[Dim], flags: Node, count: int) -> tuple[Dim, ...]:
    """The sizes, of `sizes`, of the `count` axes whose flag does not hold, in order."""
    if not count:
        return ()
    chosen = _places(flags, count)
    found = _selected(apply("transpose", chosen, perm=(1, 0)), sizes)
    return c.sizes(found, "which axes", _most(sizes))


def widened_sizes(c: Context, sizes: Sequence[Dim], flags: Node) -> tuple[Dim, ...]:
    """`sizes` in order where no flag holds, 1 where one does."""
    found = apply("add", _selected(_places(flags, len(sizes)), sizes), cast(flags, dt.i64))
    most = _most(sizes)
    return c.sizes(found, "which axes", None if most is None else max(1, most))


def _places(flags: Node, count: int) -> Node:
    """bool[rank, count]: which of the `count` axes whose flag does not hold, in order, an axis is."""
    rank = flags.type.shape[0]
    square, wide = (rank, rank), (rank, count)
    kept = apply("not", flags)
    ahead = apply("and", apply("gt", position(square, 0), position(square, 1)), broadcast(kept, square, (1,)))
    place = apply("reduce", cast(ahead, dt.i64), monoid="add", axes=(1,))
    return apply("and", apply("eq", broadcast(place, wide, (0,)), position(wide, 1)), broadcast(kept, wide, (0,)))


def _selected(chosen: Node, sizes: Sequence[Dim]) -> Node:
    """For each row of `chosen` the one of `sizes` that it marks, or 0."""
    wide = broadcast(build.dimensions(sizes), chosen.type.shape, (1,))
    return apply("reduce", apply("where", chosen, wide, build.scalar(0, wide)), monoid="add", axes=(1,))


def _most(sizes: Sequence[Dim]) -> int | None:
    known = [d for d in sizes if isinstance(d, int)]
    return max(known, default=0) if len(known) == len(sizes) else None
