"""Pooling: padding with the identity, sliding windows, a reduction over them; their inverses. Windows run channels-last."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from tcomp.frontend.onnx import build
from tcomp.frontend.onnx.build import channels_first, channels_last, scalar, with_scalar
from tcomp.frontend.onnx.ops_activation import in_wide
from tcomp.frontend.onnx.ops_math import position
from tcomp.frontend.onnx.registry import Context, operator
from tcomp.frontend.onnx.windows import Window, counts_past, window_of
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.graph import broadcast, full, reshape
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import MONOIDS, apply


def _window(c: Context, x: Node) -> Window:
    return window_of(c, x.type.shape[2:], c.integers("kernel_shape"))


def windows(c: Context, last: Node, w: Window, value: float | int) -> Node:
    """[N, *windows, C, *inside] of a channels-last tensor whose padding is `value`."""
    space, r = last.type.shape[1:-1], len(w.kernel)
    number = counts_past(w, space) if _ceils(c) else ()
    high = list(w.high)
    for k, n in enumerate(number):
        have = index.add(index.add(space[k], w.low[k]), w.high[k])
        reach = index.add(index.mul(index.sub(n, 1), w.strides[k]), w.spans[k])
        more = index.sub(reach, have)
        sure = index.constant(index.add(w.high[k], w.strides[k] - w.spans[k]))  # not above 0: no window fits beyond the last
        high[k] = index.add(w.high[k], more if sure is not None and sure <= 0 else index.maximum(0, more))
    padded = build.zero_pad(last, (0, *w.low, 0), (0, *high, 0), value)
    axes = tuple(range(1, r + 1))
    out = apply("window", padded, axes=axes, sizes=w.kernel, strides=w.strides, dilations=w.dilations)
    if any(isinstance(d, int) and d < 1 for d in out.type.shape[1 : r + 1]):
        raise c.broken(f"windows of {w.spans} over {last.type}", "ones that fit")
    if not number:
        return reshape(out, (out.type.shape[0], *(w.number or out.type.shape[1 : r + 1]), *out.type.shape[r + 1 :]))
    shape = (out.type.shape[0], *number, *out.type.shape[r + 1 :])
    return out if shape == out.type.shape else build.slice_(out, (0,) * out.type.rank, shape)


def _ceils(c: Context) -> bool:
    """Whether windows may reach past the padding; with automatic padding they fit in any case."""
    return bool(c.integer("ceil_mode", 0)) and c.string("auto_pad", "NOTSET") in ("NOTSET", "VALID")


def _pooled(wide: Node, monoid: str, r: int) -> Node:
    return apply("reduce", wide, monoid=monoid, axes=tuple(range(wide.type.rank - r, wide.type.rank)))


@operator("MaxPool")
def max_pool(c: Context, x: Node) -> Node | tuple[Node, Node]:
    w = _window(c, x)
    lowest = MONOIDS["max"].identity(x.type.dtype)
    wide = windows(c, channels_last(x), w, lowest)
    best = _pooled(wide, "max", len(w.kernel))
    if len(c.wanted) < 2 or not c.wanted[1]:
        return channels_first(best)
    return channels_first(best), channels_first(_positions(c, x, w, wide, best))


def _positions(c: Context, x: Node, w: Window, wide: Node, best: Node) -> Node:
    """The flat position in x of each window's first largest element (padding never counts)."""
    channels, *space = x.type.shape[1:]
    r = len(space)
    far = 2**62
    flat = _flat((1, *space, 1), space)
    at = broadcast(windows(c, flat, w, far), wide.type.shape, tuple(range(wide.type.rank)))
    top = broadcast(best, wide.type.shape, tuple(range(r + 2)))
    hit = apply("eq", wide, top)
    if x.type.dtype.is_float:
        hit = apply("or", hit, apply("isnan", wide))
    first = _pooled(apply("where", hit, at, scalar(far, at)), "min", r)
    if c.integer("storage_order", 0):
        first = _column_major(first, space)
    area = index.product(space)
    plane = apply("add", _times(position(first.type.shape, 0), channels), position(first.type.shape, r + 1))
    return apply("add", first, _times(plane, area))


def _times(x: Node, d: Dim) -> Node:
    return apply("mul", x, build.size_like(d, x))


def _flat(shape: build.Shape, space: list[Dim]) -> Node:
    """The row-major position of each element of [1, *space, 1]."""
    total = full(0, dt.i64, shape)
    for k, d in enumerate(space):
        total = apply("add", _times(total, d), position(shape, k + 1))
    return total


def _column_major(p: Node, space: list[Dim]) -> Node:
    """A row-major position within `space` as the column-major one."""
    total = full(0, dt.i64, p.type.shape)
    scale: Dim = index.product(space[:-1])
    for k in reversed(range(len(space))):
        size = build.size_like(space[k], p)
        total = apply("add", total, _times(apply("rem", p, size), scale))
        p = apply("quotient", p, size)
        scale = index.product(space[: k - 1]) if k > 1 else 1
    return total


@operator("AveragePool")
def average_pool(c: Context, x: Node) -> Node:
    return in_wide(lambda v: _average(c, v), x)


def _average(c: Context, x: Node) -> Node:
    """The sum divided by the number of elements that count: those of the data, or those within the padding as well."""
    w = _window(c, x)
    r, include = len(w.kernel), bool(c.integer("count_include_pad", 0))
    total = _pooled(windows(c, channels_last(x), w, 0), "add", r)
    ones = full(1, x.type.dtype, (1, *x.type.shape[2:], 1))
    inner = w
    if include:
        ones = build.zero_pad(ones, (0, *w.low, 0), (0, *w.high, 0), 1)
        inner = Window(w.kernel, w.strides, w.dilations, (0,) * r, (0,) * r)
    if not _ceils(c) and all(p == 0 for p in (*inner.low, *inner.high)):
        count = 1
        for k in w.kernel:
            count *= k
        return channels_first(with_scalar("div", total, count))
    wanted = total.type.shape[1:-1]
    count_node = _pooled(_fitted(ones, inner, wanted), "add", r)
    return channels_first(apply("div", total, broadcast(count_node, total.type.shape, tuple(range(r + 2)))))


def _fitted(ones: Node, w: Window, wanted: build.Shape) -> Node:
    """Windows over `ones`, zeros beyond, in exactly the `wanted` number."""
    r, high = len(w.kernel), []
    for d, n, s, span, a in zip(ones.type.shape[1:-1], wanted, w.strides, w.spans, w.low):
        reach = index.add(index.mul(index.sub(n, 1), s), span)
        high.append(index.maximum(0, index.sub(reach, index.add(d, a))))
    padded = build.zero_pad(ones, (0, *w.low, 0), (0, *high, 0), 0)
    out = apply("window", padded, axes=tuple(range(1, r + 1)), sizes=w.kernel, strides=w.strides, dilations=w.dilations)
    return build.slice_(out, (0,) * out.type.rank, (1, *wanted, *out.type.shape[r + 1 :]))


@operator("LpPool")
def lp_pool(c: Context, x: Node) -> Node:
    w, p = _window(c, x), c.integer("p", 2) if c.opset >= 2 else int(c.real("p", 2.0))
    powered = _power(apply("abs", x), p)
    return _root(channels_first(_pooled(windows(c, channels_last(powered), w, 0), "add", len(w.kernel))), p)


def _power(x: Node, p: int) -> Node:
    return x if p == 1 else apply("mul", x, x) if p == 2 else with_scalar("pow", x, p)


def _root(x: Node, p: int) -> Node:
    return x if p == 1 else apply("sqrt", x) if p == 2 else with_scalar("pow", x, 1 / p)


def _space(x: Node) -> tuple[int, ...]:
    return tuple(range(2, x.type.rank))


@operator("GlobalAveragePool")
def global_average_pool(c: Context, x: Node) -> Node:
    return build.mean(x, _space(x), True)


@operator("GlobalMaxPool")
def global_max_pool(c: Context, x: Node) -> Node:
    return build.reduce(x, "max", _space(x), True)


@operator("GlobalLpPool")
def global_lp_pool(c: Context, x: Node) -> Node:
    p = c.integer("p", 2) if c.opset >= 2 else int(c.real("p", 2.0))
    return _root(build.reduce(_power(apply("abs", x), p), "add", _space(x), True), p)


@operator("MaxUnpool", since=9)
def max_unpool(c: Context, x: Node, positions: Node, shape: Node | None = None) -> Node:
    """Each value at its flat position of the result, zeros elsewhere."""
    n, channels, *space = x.type.shape
    r = len(space)
    if shape is not None:
        target = c.sizes(shape, "the result's shape")
        if len(target) != r + 2:
            raise c.broken(f"a result of {len(target)} axes for an operand of type {x.type}", "as many")
    else:
        pads, strides = c.integers("pads", (0,) * 2 * r), c.integers("strides", (1,) * r)
        sizes = zip(space, c.integers("kernel_shape"), strides, pads[:r], pads[r:])
        target = (n, channels, *(index.add(index.mul(index.sub(d, 1), s), k - a - b) for d, k, s, a, b in sizes))
    flat = full(0, x.type.dtype, (index.product(target),))
    count = index.product(x.type.shape)
    if shape is not None:
        positions = _moved_planes(positions, x.type.shape, target, c)
    out = apply("scatter_elements", flat, reshape(positions, (count,)), reshape(x, (count,)), axis=0, monoid=None)
    return reshape(out, target)


def _moved_planes(positions: Node, small: build.Shape, target: build.Shape, c: Context) -> Node:
    """Positions count in planes of the default size; those of a larger result are spaced further apart."""
    r = len(small) - 2
    strides = c.integers("strides", (1,) * r)
    pads, kernel = c.integers("pads", (0,) * 2 * r), c.integers("kernel_shape")
    sizes = [index.add(index.mul(index.sub(d, 1), s), k - a - b)
             for d, k, s, a, b in zip(small[2:], kernel, strides, pads[:r], pads[r:])]  # fmt: skip
    if tuple(sizes) == tuple(target[2:]):
        return positions
    rest, total = positions, full(0, dt.i64, positions.type.shape)
    scale: Dim = 1
    for d, e in zip(reversed((*small[:2], *sizes)), reversed(target)):
        size = build.size_like(d, positions)
        total = apply("add", total, _times(apply("rem", rest, size), scale))
        rest, scale = apply("quotient", rest, size), index.mul(scale, e)
    return total


@operator("Col2Im", since=18)
def col2im(c: Context, x: Node, image: Node, block: Node) -> Node:
    """Columns added up where their windows overlap: every pixel adds up what the windows around it hold for it."""
    size, block_size = c.sizes(image, "the image's shape"), c.sizes(block, "the block's shape", least=1)
    r = len(size)
    strides, dilations = c.integers("strides", (1,) * r), c.integers("dilations", (1,) * r)
    pads = c.integers("pads", (0,) * 2 * r)
    if any(len(v) != n for v, n in ((block_size, r), (strides, r), (dilations, r), (pads, 2 * r))) or min(strides, default=1) < 1:
        raise c.broken(f"blocks of {len(block_size)} axes for an image of {r}, strides {strides}", "as many, positive strides")
    counts = []
    for d, b, s, a, low, high in zip(size, block_size, strides, dilations, pads[:r], pads[r:]):
        room = index.sub(index.add(d, low + high), index.add(index.mul(index.sub(b, 1), a), 1))
        counts.append(index.add(index.floordiv(room, s), 1))
    n, area = x.type.shape[0], index.product(block_size)
    channels = index.floordiv(x.type.shape[1], area)
    columns = reshape(x, (n, channels, index.mul(area, index.product(counts))))
    taps = [_taps(*axis) for axis in zip(size, block_size, counts, strides, dilations, pads[:r])]
    place, there = _column_places(taps, block_size, counts)
    found = apply("gather", columns, place, axis=2)
    parts = apply("where", broadcast(there, found.type.shape, (2, 3)), found, scalar(0, found))
    return reshape(build.reduce(parts, "add", (3,), False), (n, channels, *size))


def _taps(size: Dim, block: Dim, count: Dim, stride: int, dilation: int, low: int) -> tuple[Node, Node, Node]:
    """For each pixel along an axis its [pixels, taps]: the place in a window, which of the windows, and whether that is one.

    A pixel p is place w of window k where p + low = k * stride + w * dilation: the w's that solve this are `period` apart.
    """
    common = gcd(stride, dilation)
    period = stride // common
    shape = (size, index.ceildiv(block, period))
    from_start = with_scalar("add", position(shape, 0), low)
    first = with_scalar("mul", with_scalar("floordiv", from_start, common), pow(dilation // common, -1, period))
    place = apply("add", with_scalar("mod", first, period), with_scalar("mul", position(shape, 1), period))
    rest = apply("sub", from_start, with_scalar("mul", place, dilation))
    which = with_scalar("floordiv", rest, stride)
    whole = with_scalar("eq", with_scalar("mod", rest, stride), 0)
    inside = apply("and", _less(place, block), apply("and", with_scalar("ge", which, 0), _less(which, count)))
    return place, which, apply("and", whole, inside)


def _less(x: Node, d: Dim) -> Node:
    return apply("lt", x, build.size_like(d, x))


def _column_places(taps: Sequence[tuple[Node, Node, Node]], block: build.Shape, counts: Sequence[Dim]) -> tuple[Node, Node]:
    """[pixels, taps] of all axes together: the place in the columns, and whether there is one (else the place is 0)."""
    r = len(taps)
    shape = (*(t[0].type.shape[0] for t in taps), *(t[0].type.shape[1] for t in taps))
    inner, outer, there = full(0, dt.i64, shape), full(0, dt.i64, shape), full(True, dt.bool_, shape)
    for k, axis in enumerate(taps):
        place, which, whether = (broadcast(v, shape, (k, r + k)) for v in axis)
        inner, outer = apply("add", _times(inner, block[k]), place), apply("add", _times(outer, counts[k]), which)
        there = apply("and", there, whether)
    flat = apply("add", _times(inner, index.product(counts)), outer)
    wide = (index.product(shape[:r]), index.product(shape[r:]))
    return reshape(apply("where", there, flat, scalar(0, flat)), wide), reshape(there, wide)
