"""Parts of tensors and what is put around them: slices, splits, padding. Positions, axes and sizes may be data."""

from __future__ import annotations

from collections.abc import Sequence

from tcomp.frontend.onnx import build
from tcomp.frontend.onnx.build import slice_, unify
from tcomp.frontend.onnx.data_axes import axis_hits, per_axis
from tcomp.frontend.onnx.ops_math import position
from tcomp.frontend.onnx.registry import Context, element, operator
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.graph import broadcast, cast, full, reshape
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import apply

FAR = 2**31 - 1  # slices to here or beyond mean "to the end"
MOST_PADDING = 1 << 40  # more is a mistake


@operator("Split")
def split(c: Context, x: Node, sizes: Node | None = None) -> tuple[Node, ...]:
    axis = c.axis(c.integer("axis", 0), x.type.rank)
    size = x.type.shape[axis]
    given: Sequence[Dim] | None = c.integers("split", None) if sizes is None else _split_sizes(c, sizes, size)
    parts = given if given is not None else _even(c, size)
    if len(parts) < len(c.wanted):
        raise c.broken(f"{len(parts)} parts for {len(c.wanted)} results", "one for each")
    if sizes is None or c.facts.dims(sizes) is not None:
        total: Dim = 0
        for p in parts:
            total = index.add(total, p)
        unify(total, size)
        x = reshape(x, (*x.type.shape[:axis], total, *x.type.shape[axis + 1 :]))
    out: list[Node] = []
    start: Dim = 0
    for p in parts:
        out.append(build.take(x, axis, start, p))
        start = index.add(start, p)
    return tuple(out)


def _split_sizes(c: Context, sizes: Node, size: Dim) -> tuple[Dim, ...]:
    """The sizes of the parts, which have to add up to `size` when the program runs if they are data."""
    parts = c.sizes(sizes, "the list of sizes", most_of(size))
    if c.facts.dims(sizes) is None:
        wide, whole = cast(sizes, dt.i64), build.dimension(size, dt.i64)
        fits = apply("reduce", apply("le", wide, broadcast(whole, wide.type.shape, ())), monoid="and", axes=(0,))
        total = apply("reduce", wide, monoid="add", axes=(0,))
        c.require(apply("and", fits, apply("eq", total, whole)), f"sizes that add up to {index.show(size)}")
    return parts


def _even(c: Context, d: Dim) -> list[Dim]:
    """Equal parts, the last one smaller where it does not divide."""
    n = c.integer("num_outputs", len(c.wanted))
    if n < len(c.wanted) or n > 1 << 16:
        raise c.broken(f"num_outputs {n} for {len(c.wanted)} results", "the number of results")
    size = index.ceildiv(d, n)
    last = index.sub(d, index.mul(size, n - 1))
    if isinstance(last, int) and last < 0:
        raise c.broken(f"{n} parts of a size of {index.show(d)}", "parts that are not negative")
    return [size] * (n - 1) + [last]


@operator("Slice")
def slice_attributes(c: Context, x: Node) -> Node:
    starts, ends = c.integers("starts"), c.integers("ends")
    return _slice(c, x, starts, ends, c.integers("axes", tuple(range(len(starts)))), (1,) * len(starts))


@operator("Slice", since=10)
def slice_operands(c: Context, x: Node, starts: Node, ends: Node, axes: Node | None = None, steps: Node | None = None) -> Node:
    first, last, by = (None if v is None else c.facts.dims(v) for v in (starts, ends, steps))
    along = tuple(range(c.count(starts))) if axes is None else c.known(axes)
    late = steps is not None and (by is None or not all(isinstance(s, int) for s in by))
    if first is None or last is None or along is None or late:
        return _late_slice(c, x, (starts, ends, steps), axes)
    strides = (1,) * len(along) if by is None else tuple(int(s) for s in by.reshape(-1))
    return _slice(c, x, tuple(first.reshape(-1)), tuple(last.reshape(-1)), along, strides)


def _slice(c: Context, x: Node, starts: Sequence[Dim], ends: Sequence[Dim], axes: Sequence[int], steps: Sequence[int]) -> Node:
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise c.broken(f"{len(starts)} starts, {len(ends)} ends, {len(axes)} axes, steps {list(steps)}", "one of each, no step 0")
    begin: list[Dim] = [0] * x.type.rank
    shape, step = list(x.type.shape), [1] * x.type.rank
    c.axes(axes, x.type.rank)
    for b, e, a, s in zip(starts, ends, axes, steps):
        a = c.axis(a, x.type.rank)
        begin[a], shape[a] = extent(shape[a], b, e, s)
        step[a] = s
    return slice_(x, begin, shape, [s if n != 1 else 1 for s, n in zip(step, shape)])


def _late_slice(c: Context, x: Node, operands: Sequence[Node | None], axes: Node | None) -> Node:
    """A slice of which something is data: positions become symbols, and where a step is data elements are gathered."""
    along, given = _by_axis(c, x.type.rank, operands, axes)
    begin: list[Dim] = [0] * x.type.rank
    shape, step = list(x.type.shape), [1] * x.type.rank
    first, counts = _extents(*given, build.dimensions([shape[a] for a in along]))
    late: list[tuple[int, int]] = []
    for k, a in enumerate(along):
        start, end, by = (_known(c, v, k) for v in given)
        if isinstance(by, int):
            begin[a], shape[a] = _late_extent(c, shape[a], start, end, by, (element(first, k), element(counts, k)))
            step[a] = by
        else:
            late.append((k, a))
    x = slice_(x, begin, shape, [s if n != 1 else 1 for s, n in zip(step, shape)])
    for k, a in late:
        count = c.size(element(counts, k), "the end", most_of(shape[a]))
        at = apply("mul", position((count,), 0), broadcast(element(given[2], k), (count,), ()))
        x = apply("gather", x, apply("add", at, broadcast(element(first, k), (count,), ())), axis=a)
    return x


def _by_axis(
    c: Context, rank: int, operands: Sequence[Node | None], axes: Node | None
) -> tuple[tuple[int, ...], tuple[Node, Node, Node]]:
    """The axes to slice, and starts, ends and steps for them: for all axes where the data says which it means."""
    starts, ends, steps = (v if v is None else cast(v, dt.i64) for v in operands)
    assert starts is not None and ends is not None
    count = c.count(starts)
    if any(v is not None and c.count(v) != count for v in (ends, steps, axes)):
        raise c.broken(f"starts, ends, axes and steps of different lengths: {count} starts", "one of each")
    along = tuple(range(count)) if axes is None else c.known(axes)
    if along is not None:
        c.axes(along, rank)
        return tuple(a % rank for a in along), (starts, ends, build.integers([1] * count) if steps is None else steps)
    assert axes is not None
    hits = axis_hits(c, axes, rank)
    whole = build.integers([1] * rank) if steps is None else per_axis(hits, steps, 1)
    return tuple(range(rank)), (per_axis(hits, starts, 0), per_axis(hits, ends, FAR), whole)


def _known(c: Context, x: Node, k: int) -> Dim | None:
    """Element k of a vector where it follows from shapes."""
    found = c.facts.dims(element(x, k))
    return None if found is None else found.item()


def _late_extent(c: Context, d: Dim, start: Dim | None, end: Dim | None, step: int, late: tuple[Node, Node]) -> tuple[Dim, Dim]:
    """(first position, count) as `extent` says. late: their values, for what is data."""
    if step == 0:
        raise c.broken("a step of 0", "another")
    if start is not None and end is not None:
        return extent(d, start, end, step)
    first = c.size(late[0], "the start", most_of(d)) if start is None else extent(d, start, 0, step)[0]
    if end is not None and step > 0:
        return first, index.maximum(0, index.ceildiv(index.sub(_clamped(end, d, 0, d), first), step))
    ahead = index.sub(d, first) if step > 0 else index.add(first, 1)
    return first, c.size(late[1], "the end", most_of(index.maximum(0, index.ceildiv(ahead, abs(step)))))


def _extents(start: Node, end: Node, step: Node, size: Node) -> tuple[Node, Node]:
    """(first position, count) as `extent` says, of slices of axes with these sizes: vectors, -1 for the count of a step of 0."""
    zero, back = build.scalar(0, step), cast(build.with_scalar("lt", step, 0), dt.i64)
    top = apply("sub", size, back)
    start, end = (apply("where", apply("lt", v, zero), apply("add", v, size), v) for v in (start, end))
    first = apply("min", apply("max", start, zero), top)
    stop = apply("min", apply("max", end, apply("neg", back)), top)
    count = apply("max", apply("neg", apply("floordiv", apply("sub", first, stop), step)), zero)
    return apply("max", first, zero), apply("where", apply("eq", step, zero), build.scalar(-1, step), count)


def most_of(d: Dim) -> int | None:
    """The largest that a size can be, where that is known."""
    return index.bounds(d)[1]


def extent(d: Dim, start: Dim, end: Dim, step: int) -> tuple[Dim, Dim]:
    """(first position, count) of the slice start:end:step of a dimension; the position is inside where the count is not 0.
    A start before the dimension is its first element, with negative steps too (there NumPy would take none)."""
    if step > 0:
        first, stop = _clamped(start, d, 0, None), _clamped(end, d, 0, d)
        if step == 1 and stop == d and isinstance(start, int) and start < 0:
            return first, index.minimum(d, -start)
        return first, index.maximum(0, index.ceildiv(index.sub(stop, first), step))
    top = index.sub(d, 1)
    first, stop = _clamped(start, d, 0, top), _clamped(end, d, -1, top)
    return first, index.maximum(0, index.ceildiv(index.sub(first, stop), -step))


def _at_most(a: Dim, b: Dim) -> bool:
    """Whether a <= b for certain."""
    most = index.bounds(index.sub(a, b))[1]
    return most is not None and most <= 0


def _clamped(p: Dim, d: Dim, low: int, high: Dim | None) -> Dim:
    """A position of a dimension: counted from the end if negative, then brought into low..high. Without `high` it may lie beyond:
    the slice is empty then."""
    if isinstance(p, int):
        if p >= FAR:
            return d if high is None else high
        if p <= -FAR:
            return low
        p = p if p >= 0 else index.add(d, p)
    elif index.sub(p, d) != -1:  # d - 1 is below 0 only where d is 0, and then it means 0 either way
        p = index.add(p, index.mul(index.less(p, 0), d))
    if high is None or (high == d and _at_most(p, d)):
        return index.maximum(p, low)
    return index.minimum(index.maximum(p, low), high)


@operator("Pad")
def pad_attributes(c: Context, x: Node) -> Node:
    pads = c.integers("pads", None) or c.integers("paddings")
    return _pad(c, x, pads, full(c.real("value", 0.0), x.type.dtype), tuple(range(x.type.rank)))


@operator("Pad", since=11)
def pad_operands(c: Context, x: Node, pads: Node, value: Node | None = None, axes: Node | None = None) -> Node:
    scalar = full(0, x.type.dtype) if value is None else reshape(value, ())
    over = tuple(range(x.type.rank)) if axes is None else c.known(axes)
    if over is None and axes is not None:
        pads, over = _pads_by_axis(c, pads, axes, x.type.rank), tuple(range(x.type.rank))
    over = tuple(c.axis(a, x.type.rank) for a in over or ())
    if c.facts.dims(pads) is None and c.count(pads) == 2 * len(over):
        _require_rest(c, pads, [x.type.shape[a] for a in over])
    return _pad(c, x, c.sizes(pads, "the padding", MOST_PADDING, -MOST_PADDING), scalar, over)


def _require_rest(c: Context, pads: Node, sizes: Sequence[Dim]) -> None:
    """Where widths that are data are negative, they do not take more than there is."""
    n, wide = len(sizes), cast(pads, dt.i64)
    low, high = (build.with_scalar("min", build.take(wide, 0, start, n), 0) for start in (0, n))
    rest = apply("add", build.dimensions(sizes), apply("add", low, high))
    c.require(apply("reduce", build.with_scalar("ge", rest, 0), monoid="and", axes=(0,)), "padding that leaves sizes from 0")


def _pads_by_axis(c: Context, pads: Node, axes: Node, rank: int) -> Node:
    """Widths before and after every axis, of those for the axes that the data names."""
    n = c.count(axes)
    if c.count(pads) != 2 * n:
        raise c.broken(f"{c.count(pads)} widths for {n} axes", "two for each axis")
    hits, wide = axis_hits(c, axes, rank), cast(pads, dt.i64)
    return build.concat([per_axis(hits, build.take(wide, 0, start, n), 0) for start in (0, n)], 0)


def _pad(c: Context, x: Node, pads: Sequence[Dim], value: Node, axes: tuple[int, ...]) -> Node:
    n, mode = len(axes), c.string("mode", "constant")
    if len(pads) != 2 * n or mode not in ("constant", "edge", "reflect", "wrap"):
        raise c.broken(f"{len(pads)} widths for {n} axes, mode {mode!r}", "two for each axis")
    low: list[Dim] = [0] * x.type.rank
    high: list[Dim] = [0] * x.type.rank
    for k, a in enumerate(axes):
        low[a], high[a] = pads[k], pads[k + n]
    c.bounded([index.add(index.add(d, a), b) for d, a, b in zip(x.type.shape, low, high)])
    if mode != "constant":
        return _pad_by_position(x, low, high, mode)
    cut = [[index.maximum(index.mul(w, -1), 0) for w in side] for side in (low, high)]
    grow = [tuple(index.maximum(w, 0) for w in side) for side in (low, high)]
    x = build.crop(x, *cut)
    return x if all(w == 0 for side in grow for w in side) else apply("pad", x, value, low=grow[0], high=grow[1])


def _pad_by_position(x: Node, low: Sequence[Dim], high: Sequence[Dim], mode: str) -> Node:
    """Every new element is a copy of one of `x`, axis by axis."""
    for axis, (a, b) in enumerate(zip(low, high)):
        if a == 0 and b == 0:
            continue
        d = x.type.shape[axis]
        p = position((index.add(index.add(d, a), b),), 0)
        p = apply("sub", p, build.size_like(a, p))
        x = apply("gather", x, _source(p, d, mode), axis=axis)
    return x


def _source(p: Node, d: Dim, mode: str) -> Node:
    """The position inside a dimension that position `p` around it stands for."""
    if mode == "edge":
        return apply("min", build.with_scalar("max", p, 0), build.size_like(index.sub(d, 1), p))
    if mode == "wrap":
        return apply("mod", p, build.size_like(d, p))
    period = build.size_like(index.mul(2, index.sub(d, 1)), p)
    q = apply("mod", p, period)
    return apply("min", q, apply("sub", period, q))
