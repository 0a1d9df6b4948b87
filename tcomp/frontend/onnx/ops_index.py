"""Operators whose positions are data: gathers, scatters, one-hot, top-k, and their kin. Negative positions count from the end."""

from __future__ import annotations

import numpy as np

from tcomp.frontend.onnx import build
from tcomp.frontend.onnx.build import normal_positions, unify
from tcomp.frontend.onnx.ops_math import position
from tcomp.frontend.onnx.registry import Context, operator
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.graph import broadcast, cast, full, reshape
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import apply, constant, item


@operator("Gather")
def gather(c: Context, x: Node, positions: Node) -> Node:
    axis = c.axis(c.integer("axis", 0), x.type.rank)
    known = c.constant(positions)
    if known is not None and known.size == 1 and known.dtype.kind in "iu":
        return _one(c, x, axis, int(known.reshape(())), positions.type.shape)
    return apply("gather", x, normal_positions(positions, x.type.shape[axis]), axis=axis)


def _one(c: Context, x: Node, axis: int, at: int, shape: build.Shape) -> Node:
    """A single known position is a slice."""
    d = x.type.shape[axis]
    if isinstance(d, int) and not -d <= at < d:
        raise c.broken(f"position {at} of a dimension of {d}", f"{-d} to {d - 1}")
    if isinstance(d, Node):
        at_node = normal_positions(build.integers([at]), d)
        at_node = reshape(at_node, shape)
        return apply("gather", x, at_node, axis=axis)
    part = build.take(x, axis, at % d, 1)
    return reshape(part, (*x.type.shape[:axis], *shape, *x.type.shape[axis + 1 :]))


@operator("GatherElements", since=11)
def gather_elements(c: Context, x: Node, positions: Node) -> Node:
    axis = c.axis(c.integer("axis", 0), x.type.rank)
    return apply("gather_elements", x, normal_positions(positions, x.type.shape[axis]), axis=axis)


def _coordinates(positions: Node, shape: build.Shape) -> Node:
    """Coordinate vectors in the last axis, negative ones counted from the end of each dimension of `shape`."""
    sizes = build.dimensions(shape, positions.type.dtype)
    end = broadcast(sizes, positions.type.shape, (positions.type.rank - 1,))
    return apply("where", build.with_scalar("lt", positions, 0), apply("add", positions, end), positions)


@operator("GatherND", since=11)
def gather_nd(c: Context, x: Node, positions: Node) -> Node:
    batch, depth = c.integer("batch_dims", 0), _depth(c, positions)
    if not 0 <= batch < positions.type.rank or batch + depth > x.type.rank:
        raise c.broken(f"coordinates of length {depth} after {batch} batch axes, of rank {x.type.rank}", "coordinates that fit")
    lead = tuple(unify(a, b) for a, b in zip(x.type.shape[:batch], positions.type.shape[:batch]))
    x = reshape(x, (*lead, *x.type.shape[batch:]))
    positions = reshape(positions, (*lead, *positions.type.shape[batch:]))
    return apply("gather_nd", x, _coordinates(positions, x.type.shape[batch : batch + depth]), batch=batch)


def _depth(c: Context, positions: Node) -> int:
    depth = positions.type.shape[-1] if positions.type.rank else None
    if not isinstance(depth, int):
        raise c.unsupported("coordinate vectors whose length is not known")
    return depth


_MONOIDS = {"none": None, "add": "add", "mul": "mul", "max": "max", "min": "min"}


def _monoid(c: Context) -> str | None:
    how = c.string("reduction", "none")
    if how not in _MONOIDS:
        raise c.broken(f"reduction {how!r}", f"one of {', '.join(_MONOIDS)}")
    return _MONOIDS[how]


@operator("Scatter", "ScatterElements", since=9)
def scatter_elements(c: Context, x: Node, positions: Node, updates: Node) -> Node:
    axis = c.axis(c.integer("axis", 0), x.type.rank)
    at = normal_positions(positions, x.type.shape[axis])
    return apply("scatter_elements", x, at, build.relabel(updates, at.type.shape), axis=axis, monoid=_monoid(c))


@operator("ScatterND", since=11)
def scatter_nd(c: Context, x: Node, positions: Node, updates: Node) -> Node:
    depth = _depth(c, positions)
    at = _coordinates(positions, x.type.shape[:depth])
    want = (*at.type.shape[:-1], *x.type.shape[depth:])
    return apply("scatter_nd", x, at, build.relabel(updates, want), monoid=_monoid(c))


@operator("TensorScatter", since=24)
def tensor_scatter(c: Context, x: Node, updates: Node, start: Node | None = None) -> Node:
    """Updates written along `axis`, for each batch from its own start; `circular` wraps around."""
    axis, mode = c.axis(c.integer("axis", -2), x.type.rank), c.string("mode", "linear")
    shape = updates.type.shape
    at = position(shape, axis)
    if start is not None:
        at = apply("add", at, broadcast(build.relabel(cast(start, dt.i64), shape[:1]), shape, (0,)))
    if mode == "circular":
        at = apply("mod", at, build.size_like(x.type.shape[axis], at))
    return apply("scatter_elements", x, at, updates, axis=axis, monoid=None)


@operator("OneHot", since=9)
def one_hot(c: Context, positions: Node, depth: Node, values: Node) -> Node:
    count, rank = c.sizes(cast(depth, dt.i64), "the depth")[0], positions.type.rank
    axis = c.axis(c.integer("axis", -1), rank + 1)
    at = normal_positions(cast(positions, dt.i64), count)
    shape = c.bounded((*at.type.shape[:axis], count, *at.type.shape[axis:]))
    rest = tuple(a for a in range(rank + 1) if a != axis)
    hit = apply("eq", broadcast(at, shape, rest), position(shape, axis))
    off, on = (broadcast(build.pick(values, 0, k), shape, ()) for k in (0, 1))
    return apply("where", hit, on, off)


def _top_k(c: Context, x: Node, k: Dim, largest: bool) -> tuple[Node, Node]:
    axis = c.axis(c.integer("axis", -1), x.type.rank)
    both = apply("top_k", x, k=k, axis=axis, largest=largest)
    return item(both, 0), item(both, 1)


@operator("TopK")
def top_k_attribute(c: Context, x: Node) -> tuple[Node, Node]:
    return _top_k(c, x, c.integer("k"), True)


@operator("TopK", since=10)
def top_k(c: Context, x: Node, k: Node) -> tuple[Node, Node]:
    size = x.type.shape[c.axis(c.integer("axis", -1), x.type.rank)]
    count = c.sizes(k, "k", size if isinstance(size, int) else None)[0]
    return _top_k(c, x, count, bool(c.integer("largest", 1)))


@operator("ReverseSequence", since=10)
def reverse_sequence(c: Context, x: Node, lengths: Node) -> Node:
    """Along the time axis, the first `lengths[b]` elements in reverse order."""
    time, batch = c.integer("time_axis", 0), c.integer("batch_axis", 1)
    shape = x.type.shape
    at = position(shape, c.axis(time, len(shape)))
    lengths = build.relabel(cast(lengths, dt.i64), (shape[batch],))
    inside = apply("and", build.with_scalar("ge", lengths, 0), apply("le", lengths, build.size_like(shape[time], lengths)))
    c.require(apply("reduce", inside, monoid="and", axes=(0,)), "lengths of the time axis at most")
    length = broadcast(lengths, shape, (batch,))
    mirrored = build.with_scalar("sub", apply("sub", length, at), 1)
    return apply("gather_elements", x, apply("where", apply("lt", at, length), mirrored, at), axis=time)


@operator("Compress", since=9)
def compress(c: Context, x: Node, condition: Node) -> Node:
    if not c.has("axis"):
        x, axis = reshape(x, (index.product(x.type.shape),)), 0
    else:
        axis = c.axis(c.integer("axis"), x.type.rank)
    return apply("gather", x, chosen(c, condition), axis=axis)


@operator("NonZero", since=9)
def non_zero(c: Context, x: Node) -> Node:
    known, shape = c.constant(x), x.type.shape
    if known is not None:
        return constant(np.array(np.nonzero(known), np.int64).reshape(known.ndim, -1))
    size = index.product(shape)
    places = chosen(c, apply("ne", reshape(x, (size,)), full(0, x.type.dtype, (size,))))
    rows = []
    for k, d in enumerate(shape):
        inner = build.dimension(index.product(shape[k + 1 :]), dt.i64)
        outer = build.pointwise("floordiv", places, inner)
        rows.append(reshape(build.pointwise("mod", outer, build.dimension(d, dt.i64)), (1, *places.type.shape)))
    return build.concat(rows, 0) if rows else full(0, dt.i64, (0, *places.type.shape))


def chosen(c: Context, flags: Node) -> Node:
    """The positions where a vector of booleans holds, rising: each is written where the flags before it are counted to."""
    known, n = c.constant(flags), flags.type.shape[0]
    if known is not None:
        return build.integers(int(k) for k in np.flatnonzero(known))
    ones = cast(flags, dt.i64)
    count = c.facts.data_size(apply("reduce", ones, monoid="add", axes=(0,)), n if isinstance(n, int) else None)
    before = build.with_scalar("sub", apply("scan", ones, monoid="add", axis=0, exclusive=False, reverse=False), 1)
    last = build.size_like(count, before)  # a place for those that are not chosen, which is cut off
    at = apply("where", flags, before, last)
    room = full(0, dt.i64, (index.add(count, 1),))
    places = apply("scatter_elements", room, at, position((n,), 0), axis=0, monoid=None)
    return build.take(places, 0, 0, count)
