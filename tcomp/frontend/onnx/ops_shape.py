"""Movement: reshapes, transposes, joins, repetition, and tensors made from shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tcomp.frontend.onnx import build
from tcomp.frontend.onnx.build import broadcast_shapes, spread, unify
from tcomp.frontend.onnx.data_axes import axis_flags, kept_sizes, widened_sizes
from tcomp.frontend.onnx.ops_math import position
from tcomp.frontend.onnx.registry import Context, element, operator
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.graph import broadcast, broadcast_trailing, cast, full, reshape, transpose
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import apply, constant


@operator("Constant")
def constant_of(c: Context) -> Node:
    if c.has("value"):
        return constant(c.tensor("value"))
    if c.has("value_float"):
        return constant(np.float32(c.real("value_float")))
    if c.has("value_floats"):
        return constant(np.array(c.reals("value_floats"), np.float32))
    if c.has("value_int"):
        return constant(np.int64(c.integer("value_int")))
    if c.has("value_ints"):
        return build.integers(c.integers("value_ints"))
    raise c.unsupported(f"a constant given as {sorted(c.attributes)}")


@operator("Reshape")
def legacy_reshape(c: Context, x: Node) -> Node:
    return reshape(x, target_shape(c, x.type.shape, c.integers("shape"), False))


@operator("Reshape", since=5)
def reshape_to(c: Context, x: Node, shape: Node) -> Node:
    zero, given = bool(c.integer("allowzero", 0)), c.facts.dims(shape)
    if given is None:
        return reshape(x, _late_shape(c, x.type.shape, shape, zero))
    wanted = target_shape(c, x.type.shape, tuple(given.reshape(-1)), zero)
    build.require_count(x.type.shape, wanted)
    return reshape(x, wanted)


def target_shape(c: Context, now: build.Shape, wanted: Sequence[Dim], zero: bool) -> build.Shape:
    """The shape that is meant: 0 copies a size (unless `zero`), -1 is what is left."""
    shape = list(wanted)
    for k, d in enumerate(shape):
        if d == 0 and not zero:
            if k >= len(now):
                raise c.broken(f"0 at place {k} of the shape of a tensor of rank {len(now)}", "a size to copy")
            shape[k] = now[k]
    free = [k for k, d in enumerate(shape) if d == -1]
    if len(free) > 1 or any(isinstance(d, int) and d < -1 for d in shape):
        raise c.broken(f"shape {list(map(index.show, wanted))}", "sizes, and at most one -1")
    if free:
        shape[free[0]] = quotient(c, now, [d for k, d in enumerate(shape) if k != free[0]])
    return c.bounded(shape)


def _late_shape(c: Context, now: build.Shape, shape: Node, zero: bool) -> build.Shape:
    """The same of a shape of which some sizes are data."""
    wanted = [c.facts.dims(element(shape, k)) for k in range(c.count(shape))]
    known = [None if d is None else d.item() for d in wanted]
    known = [now[k] if d == 0 and not zero and k < len(now) else d for k, d in enumerate(known)]
    if any(isinstance(d, int) and d < -1 for d in known) or known.count(-1) > 1:
        raise c.broken(f"shape {known}", "sizes, and at most one -1")
    raw = cast(shape, dt.i64)
    if known.count(None) == 1 and all(isinstance(d, int) and d > 0 for d in known if d is not None):
        return _only_one_fits(c, now, raw, known, zero)
    copied = raw if zero else _copied(raw, [*now, *(-2,) * len(known)][: len(known)])
    sizes = _determined(copied, now)
    return c.bounded([d if d not in (None, -1) else c.size(element(sizes, k), "the shape") for k, d in enumerate(known)])


def _only_one_fits(c: Context, now: build.Shape, raw: Node, known: Sequence[Dim | None], zero: bool) -> build.Shape:
    """The shape whose one size that is data can only be what the others leave: the data has to say so."""
    at = known.index(None)
    left = quotient(c, now, [d for d in known if d is not None])
    rest = [d for d in known[at + 1 :] if d is not None]
    meant = element(raw if zero or at >= len(now) else _copied(raw, [*now[: at + 1], *rest]), at)
    fits = apply("or", apply("eq", meant, build.dimension(left, dt.i64)), build.with_scalar("eq", meant, -1))
    c.require(fits, "a shape with the same number of elements")
    return tuple(left if d is None else d for d in known)


def _copied(shape: Node, sizes: Sequence[Dim]) -> Node:
    """`shape` with those of `sizes` in the place of its zeros."""
    return apply("where", build.with_scalar("eq", shape, 0), build.dimensions(sizes), shape)


def _determined(shape: Node, now: build.Shape) -> Node:
    """`shape` with what is left in the place of -1; numbers below 0 where there is no such shape of as many elements."""
    free = build.with_scalar("eq", shape, -1)
    count = apply("reduce", cast(free, dt.i64), monoid="add", axes=(0,))
    total, none = build.dimension(index.product(now), dt.i64), full(-2, dt.i64, shape.type.shape)
    others = apply("reduce", apply("where", free, build.scalar(1, shape), shape), monoid="mul", axes=(0,))
    sizes = apply("where", free, broadcast(apply("floordiv", total, others), shape.type.shape, ()), shape)
    same = apply("eq", apply("reduce", sizes, monoid="mul", axes=(0,)), total)
    clear = build.with_scalar("eq", count, 0)
    clear = apply("or", clear, apply("and", build.with_scalar("eq", count, 1), build.with_scalar("ne", others, 0)))
    return apply("where", broadcast(apply("and", same, clear), shape.type.shape, ()), sizes, none)


def quotient(c: Context, dims: Sequence[Dim], divisors: Sequence[Dim]) -> Dim:
    """The product of `dims` by that of `divisors`; equal factors cancel first."""
    top, bottom = list(dims), []
    for d in divisors:
        if d in top and d != 0:
            top.remove(d)
        else:
            bottom.append(d)
    result = index.product(top)
    for d in sorted(bottom, key=lambda d: isinstance(d, int)):
        if d == 0:
            raise c.broken("a -1 beside a size of 0", "a shape that is determined")
        result = index.floordiv(result, d)
    return result


@operator("Flatten")
def flatten(c: Context, x: Node) -> Node:
    axis = c.integer("axis", 1)
    axis = axis if axis == x.type.rank else c.axis(axis, x.type.rank)
    return reshape(x, (index.product(x.type.shape[:axis]), index.product(x.type.shape[axis:])))


@operator("Squeeze")
def squeeze(c: Context, x: Node, axes: Node | None = None) -> Node:
    given = c.integers("axes", None) if axes is None else c.known(axes)
    if axes is not None and given is None:
        return _squeeze_late(c, x, axes)
    drop = _ones(c, x) if given is None else c.axes(given, x.type.rank)
    for a in drop:
        unify(x.type.shape[a], 1)
    return reshape(x, [d for a, d in enumerate(x.type.shape) if a not in drop])


def _ones(c: Context, x: Node) -> tuple[int, ...]:
    """The axes of size 1. A size that data gives must not turn out to be 1: the result would have another rank."""
    for d in x.type.shape:
        if d != 1 and any(map(build.is_data, index.symbols([d]))):
            c.require(build.with_scalar("ne", build.dimension(d, dt.i64), 1), "an axis of more than one element")
    return tuple(a for a, d in enumerate(x.type.shape) if d == 1)


def _squeeze_late(c: Context, x: Node, axes: Node) -> Node:
    """Axes that are data, each of size 1."""
    rank, shape = x.type.rank, x.type.shape
    flags = axis_flags(c, axes, rank)
    sizes = build.dimensions(shape)
    fits = apply("or", apply("not", flags), build.with_scalar("eq", sizes, 1))
    c.require(apply("reduce", fits, monoid="and", axes=(0,)), "axes of size 1")
    return reshape(x, kept_sizes(c, shape, flags, rank - c.count(axes)))


@operator("Unsqueeze")
def unsqueeze(c: Context, x: Node, axes: Node | None = None) -> Node:
    given = c.integers("axes", None) if axes is None else c.known(axes)
    if axes is not None and given is None:
        flags = axis_flags(c, axes, x.type.rank + c.count(axes))
        return reshape(x, widened_sizes(c, x.type.shape, flags))
    if given is None:
        raise c.broken("no axes", "axes")
    rank = x.type.rank + len(given)
    new, rest = c.axes(given, rank), iter(x.type.shape)
    return reshape(x, [1 if a in new else next(rest) for a in range(rank)])


@operator("Transpose")
def transpose_of(c: Context, x: Node) -> Node:
    return transpose(x, c.integers("perm", tuple(reversed(range(x.type.rank)))))


@operator("Concat")
def concat(c: Context, *xs: Node) -> Node:
    rank = xs[0].type.rank
    axis = c.axis(c.integer("axis", 1 if c.opset < 4 else ...), rank)
    if any(x.type.rank != rank for x in xs):
        raise c.broken(f"operands of ranks {[x.type.rank for x in xs]}", "equal ranks")
    common = list(xs[0].type.shape)
    for x in xs[1:]:
        common = [a if k == axis else unify(a, b) for k, (a, b) in enumerate(zip(common, x.type.shape))]
    same = [build.relabel(x, tuple(d if k == axis else common[k] for k, d in enumerate(x.type.shape))) for x in xs]
    return build.concat(same, axis)


@operator("Shape")
def shape_of(c: Context, x: Node) -> Node:
    rank = x.type.rank
    start, end = (min(max(p + rank if p < 0 else p, 0), rank) for p in (c.integer("start", 0), c.integer("end", rank)))
    return build.dimensions(x.type.shape[start:end])


@operator("Size")
def size_of(c: Context, x: Node) -> Node:
    return build.dimension(index.product(x.type.shape), dt.i64)


@operator("Expand", since=8)
def expand(c: Context, x: Node, shape: Node) -> Node:
    wanted = c.facts.dims(shape)
    if wanted is not None:
        return spread(x, c.bounded(broadcast_shapes(x.type.shape, tuple(wanted.reshape(-1)))))
    rank = max(x.type.rank, c.count(shape))
    now = (*(1,) * (rank - x.type.rank), *x.type.shape)
    first = rank - c.count(shape)
    late = tuple(_expanded(c, d, element(shape, k)) for k, d in enumerate(now[first:]))
    return broadcast_trailing(x, c.bounded((*now[:first], *late)))


def _expanded(c: Context, now: Dim, wanted: Node) -> Dim:
    """The size of an axis that has size `now` and is broadcast together with one of size `wanted`, which may be data."""
    known = c.facts.dims(wanted)
    if known is not None:
        return broadcast_shapes((now,), (known.item(),))[0]
    if now == 1:
        return c.size(wanted, "the shape")
    raw, size = cast(wanted, dt.i64), build.dimension(now, dt.i64)
    one = build.with_scalar("eq", raw, 1)
    if isinstance(now, Node):
        return c.size(apply("where", one, size, raw), "the shape")
    c.require(apply("or", one, apply("eq", raw, size)), f"a size that broadcasts with {now}")
    return now


@operator("Tile")
def legacy_tile(c: Context, x: Node, tiles: Node, axis: Node) -> Node:
    along = c.axis(int(c.require_constant(axis, "the axis").reshape(())), x.type.rank)
    count = c.sizes(tiles, "the number of tiles")[0]
    return _tile(c, x, [count if a == along else 1 for a in range(x.type.rank)])


@operator("Tile", since=6)
def tile(c: Context, x: Node, repeats: Node) -> Node:
    return _tile(c, x, c.sizes(repeats, "the number of repeats"))


def _tile(c: Context, x: Node, repeats: Sequence[Dim]) -> Node:
    if len(repeats) != x.type.rank:
        raise c.broken(f"{len(repeats)} repeats of rank {x.type.rank}", "one for each axis")
    shape = c.bounded([index.mul(d, r) for d, r in zip(x.type.shape, repeats)])
    pairs = [(r, d) for d, r in zip(x.type.shape, repeats)]
    once = [p for r, d in pairs for p in ((d,) if r == 1 else (1, d))]
    wide = tuple(p for r, d in pairs for p in ((d,) if r == 1 else (r, d)))
    return reshape(broadcast(reshape(x, once), wide, tuple(range(len(wide)))), shape)


@operator("ConstantOfShape", since=9)
def constant_of_shape(c: Context, shape: Node) -> Node:
    value = c.tensor("value", np.zeros(1, np.float32))
    if value.size != 1:
        raise c.broken(f"a value of shape {value.shape}", "one element")
    return broadcast(constant(np.asarray(value.reshape(()))), c.bounded(c.sizes(shape, "the shape")), ())


@operator("Range", since=11)
def range_of(c: Context, start: Node, limit: Node, delta: Node) -> Node:
    t = start.type.dtype
    count = _range_count(c, start, limit, delta)
    line = position((c.bounded((count,))[0],), 0, dt.i64 if t.is_integer else dt.f64 if t == dt.f64 else dt.f32)
    line = cast(line, t) if t.is_integer else line
    wide = [broadcast(reshape(cast(x, line.type.dtype), ()), line.type.shape, ()) for x in (delta, start)]
    return cast(apply("add", apply("mul", line, wide[0]), wide[1]), t)


def _range_count(c: Context, start: Node, limit: Node, delta: Node) -> Dim:
    bounds = (start, limit, delta)
    known = [c.constant(x) if start.type.dtype.is_float else c.facts.dims(x) for x in bounds]
    if any(x is None for x in known):
        return c.size(_steps(*bounds), "the bounds")
    first, last, step = (x.item() for x in known if x is not None)
    if isinstance(step, Node):
        return c.size(_steps(*bounds), "the bounds")
    if not step or not all(math.isfinite(x) for x in (first, last, step) if isinstance(x, float)):
        raise c.broken(f"range {first} to {last} by {step}", "finite bounds and a step that is not 0")
    if isinstance(step, float):
        count: int = max(0, math.ceil((last - first) / step))
        return count
    span = index.sub(last, first) if step > 0 else index.sub(first, last)
    return index.maximum(0, index.ceildiv(span, abs(step)))


def _steps(start: Node, limit: Node, delta: Node) -> Node:
    """How many steps of `delta` lead from `start` to `limit`, this one left out: exact, or below 0 where that is no number."""
    if start.type.dtype.is_float:
        return _float_steps(*(reshape(cast(x, dt.f64), ()) for x in (start, limit, delta)))
    first, last, step = (reshape(cast(x, dt.i64), ()) for x in (start, limit, delta))
    up, down = build.with_scalar("gt", step, 0), build.with_scalar("lt", step, 0)
    wrong_way = apply("or", apply("and", up, apply("le", last, first)), apply("and", down, apply("ge", last, first)))
    # modulo 2^64 a distance of 64-bit numbers is itself, and what a count does not fit comes out below 0
    span = cast(apply("where", up, apply("sub", last, first), apply("sub", first, last)), dt.u64)
    size = cast(apply("where", up, step, apply("neg", step)), dt.u64)
    count = build.with_scalar("add", apply("floordiv", build.with_scalar("sub", span, 1), size), 1)
    count = apply("where", wrong_way, build.scalar(0, count), count)
    return apply("where", build.with_scalar("eq", step, 0), build.scalar(-1, first), cast(count, dt.i64))


def _float_steps(first: Node, last: Node, step: Node) -> Node:
    steps = apply("div", apply("sub", last, first), step)
    finite = apply("and", apply("isfinite", steps), apply("isfinite", step))
    count = build.with_scalar("min", build.with_scalar("max", apply("ceil", steps), 0), 2**62)
    count = cast(apply("where", finite, count, build.scalar(0, count)), dt.i64)
    return apply("where", finite, count, build.scalar(-1, count))


@operator("EyeLike", since=9)
def eye_like(c: Context, x: Node) -> Node:
    shape = x.type.shape
    if len(shape) != 2:
        raise c.broken(f"an operand of type {x.type}", "a matrix")
    row = build.with_scalar("add", position(shape, 0), c.integer("k", 0))
    return cast(apply("eq", row, position(shape, 1)), c.dtype("dtype", x.type.dtype))


@operator("Trilu", since=14)
def trilu(c: Context, x: Node, k: Node | None = None) -> Node:
    shape = x.type.shape
    if len(shape) < 2:
        raise c.broken(f"an operand of type {x.type}", "rank 2 or more")
    row, column = position(shape[-2:], 0), position(shape[-2:], 1)
    if k is not None:
        row = apply("add", row, broadcast(_offset(c, k), shape[-2:], ()))
    kept = apply("ge" if c.integer("upper", 1) else "le", column, row)
    return apply("where", spread(kept, shape), x, build.scalar(0, x))


def _offset(c: Context, k: Node) -> Node:
    """A diagonal's number, which no matrix has beyond 2^62, so that a row may be added to it."""
    if (known := c.constant(k)) is not None:
        return constant(np.clip(known, -(2**62), 2**62).astype(np.int64).reshape(()))
    return build.with_scalar("min", build.with_scalar("max", reshape(cast(k, dt.i64), ()), -(2**62)), 2**62)


@operator("DepthToSpace", since=1)
def depth_to_space(c: Context, x: Node) -> Node:
    b, (n, channels, *space) = c.integer("blocksize"), x.type.shape
    r = len(space)
    _check_blocks(c, x, b, (channels,), b**r)
    part = index.floordiv(channels, b**r)
    if c.string("mode", "DCR") == "DCR":
        blocks = reshape(x, (n, *(b,) * r, part, *space))
        order = [0, r + 1, *(a for k in range(r) for a in (r + 2 + k, 1 + k))]
    else:
        blocks = reshape(x, (n, part, *(b,) * r, *space))
        order = [0, 1, *(a for k in range(r) for a in (r + 2 + k, 2 + k))]
    return reshape(transpose(blocks, order), (n, part, *(index.mul(d, b) for d in space)))


@operator("SpaceToDepth", since=1)
def space_to_depth(c: Context, x: Node) -> Node:
    b, (n, channels, *space) = c.integer("blocksize"), x.type.shape
    r = len(space)
    _check_blocks(c, x, b, space, b)
    small = [index.floordiv(d, b) for d in space]
    blocks = reshape(x, (n, channels, *(v for d in small for v in (d, b))))
    inner, outer = [3 + 2 * k for k in range(r)], [2 + 2 * k for k in range(r)]
    order = [0, *inner, 1, *outer] if c.string("mode", "DCR") == "DCR" else [0, 1, *inner, *outer]
    return reshape(transpose(blocks, order), (n, index.mul(channels, b**r), *small))


def _check_blocks(c: Context, x: Node, b: int, dims: Sequence[Dim], by: int) -> None:
    if b <= 0 or x.type.rank < 3 or any(isinstance(d, int) and d % by for d in dims):
        raise c.broken(f"blocks of {b} of {x.type}", "sizes that the block divides")
