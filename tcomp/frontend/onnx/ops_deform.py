"""Convolution at places that are data (DeformConv), and maxima of regions that are data (MaxRoiPool)."""

from __future__ import annotations

from collections.abc import Sequence

from tcomp.frontend.onnx import build
from tcomp.frontend.onnx.build import with_scalar
from tcomp.frontend.onnx.ops_conv import with_bias
from tcomp.frontend.onnx.ops_linear import dot
from tcomp.frontend.onnx.ops_math import position
from tcomp.frontend.onnx.ops_sample import sampled, taps_around
from tcomp.frontend.onnx.registry import Context, operator
from tcomp.frontend.onnx.windows import Window, window_of
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.graph import broadcast, cast, full, reshape, transpose
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import apply


@operator("DeformConv", since=19)
def deform_conv(c: Context, x: Node, w: Node, offset: Node, bias: Node | None = None, mask: Node | None = None) -> Node:
    """Linear samples at the window's places plus offsets, then a product: of every group of channels with its weights."""
    groups, shared = c.integer("group", 1), c.integer("offset_group", 1)
    n, channels, *space = x.type.shape
    if x.type.rank != w.type.rank or not space or min(groups, shared) < 1:
        raise c.broken(f"operands of types {x.type} and {w.type}, {groups} groups, {shared} of offsets", "what fits together")
    window = window_of(c, space, c.integers("kernel_shape", w.type.shape[2:]))
    counts = [
        build.unify(index.add(index.floordiv(index.sub(index.add(index.add(d, a), b), span), s), 1), e)
        for d, a, b, span, s, e in zip(space, window.low, window.high, window.spans, window.strides, offset.type.shape[2:])
    ]
    wide = cast(x, dt.accumulator(x.type.dtype))
    samples = _samples(wide, cast(offset, wide.type.dtype), window, counts, shared)
    taps, places = samples.type.shape[1:3]
    if mask is not None:
        weights = reshape(cast(mask, wide.type.dtype), samples.type.shape[:3])
        samples = apply("mul", samples, broadcast(weights, samples.type.shape, (0, 1, 2)))
    columns = reshape(samples, (n, shared, taps, places, samples.type.shape[3]))
    columns = reshape(transpose(columns, (0, 1, 4, 2, 3)), (n, groups, index.floordiv(channels, groups), taps, places))
    out = w.type.shape[0]
    kernel = reshape(cast(w, wide.type.dtype), (groups, index.floordiv(out, groups), w.type.shape[1], taps))
    found = dot(kernel, columns, ((0,), (1,)), ((2, 3), (2, 3)))
    y = reshape(transpose(found, (2, 0, 1, 3)), (n, out, *counts))
    return with_bias(cast(y, x.type.dtype), bias)


def _samples(x: Node, offset: Node, window: Window, counts: Sequence[Dim], shared: int) -> Node:
    """[batch * groups of offsets, taps, places, channels]: outside of x are zeros."""
    n, channels, *space = x.type.shape
    r, each = len(space), index.floordiv(channels, shared)
    rows, grid = index.mul(n, shared), (*window.kernel, *counts)
    flat = (index.product(window.kernel), index.product(counts))
    moved = reshape(offset, (rows, flat[0], r, flat[1]))
    taps = []
    for k in range(r):
        start = with_scalar("mul", position(grid, r + k), window.strides[k])
        at = apply("add", start, with_scalar("mul", position(grid, k), window.dilations[k]))
        at = cast(apply("sub", at, broadcast(build.dimension(window.low[k], dt.i64), grid, ())), x.type.dtype)
        more = reshape(build.take(moved, 2, k, 1), (rows, *flat))
        at = apply("add", broadcast(reshape(at, flat), more.type.shape, (1, 2)), more)
        taps.append(taps_around(reshape(at, (rows, index.product(flat))), "linear"))
    found = sampled(reshape(x, (rows, each, *space)), taps, "zeros", True, x.type.dtype)
    return reshape(found, (rows, *flat, each))


def _rounded(x: Node) -> Node:
    """Halves away from zero."""
    up, down = apply("floor", with_scalar("add", x, 0.5)), apply("ceil", with_scalar("sub", x, 0.5))
    return apply("where", with_scalar("lt", x, 0), down, up)


def _cells(first: Node, last: Node, cells: int, size: Dim) -> tuple[Node, Node]:
    """([regions, cells, size] whether a place lies in a cell, [regions, cells] whether the cell has none)."""
    shape = (first.type.shape[0], cells)
    width = with_scalar("div", with_scalar("max", with_scalar("add", apply("sub", last, first), 1), 1), cells)
    k = position(shape, 1, first.type.dtype)
    start, step = broadcast(first, shape, (0,)), broadcast(width, shape, (0,))
    low = apply("add", apply("floor", apply("mul", k, step)), start)
    high = apply("add", apply("ceil", apply("mul", with_scalar("add", k, 1), step)), start)
    most = build.size_like(size, low)
    low, high = (apply("min", with_scalar("max", v, 0), most) for v in (low, high))
    grid = (*shape, size)
    at = position(grid, 2, low.type.dtype)
    inside = apply("and", apply("ge", at, broadcast(low, grid, (0, 1))), apply("lt", at, broadcast(high, grid, (0, 1))))
    return inside, apply("le", high, low)


@operator("MaxRoiPool")
def max_roi_pool(c: Context, x: Node, rois: Node) -> Node:
    """[regions, C, *pooled_shape]: the maximum of every cell, along one axis after the other; 0 where there is nothing."""
    cells = c.integers("pooled_shape")
    if x.type.rank != 4 or rois.type.rank != 2 or len(cells) != 2 or min(cells) < 1:
        raise c.broken(f"operands of types {x.type} and {rois.type}, cells {cells}", "images, rows of five numbers, two sizes")
    batch, *edges = (build.pick(rois, 1, k) for k in range(5))
    x0, y0, x1, y1 = (_rounded(with_scalar("mul", v, c.real("spatial_scale", 1.0))) for v in edges)
    image = apply("gather", x, build.normal_positions(cast(batch, dt.i64), x.type.shape[0]), axis=0)
    down, no_rows = _cells(y0, y1, cells[0], x.type.shape[2])
    right, no_columns = _cells(x0, x1, cells[1], x.type.shape[3])
    best = _best(_best(image, down, 2), right, 3)
    shape = best.type.shape
    empty = apply("or", broadcast(no_rows, shape, (0, 2)), broadcast(no_columns, shape, (0, 3)))
    return apply("where", empty, full(0, best.type.dtype, shape), best)


def _best(x: Node, inside: Node, axis: int) -> Node:
    """The maxima of [regions, C, rows, columns] over the places of each cell of an axis."""
    cells = inside.type.shape[1]
    shape = (*x.type.shape[:axis], cells, *x.type.shape[axis:])
    spread = broadcast(x, shape, tuple(a for a in range(5) if a != axis))
    chosen = apply("where", broadcast(inside, shape, (0, axis, axis + 1)), spread, full(-float("inf"), x.type.dtype, shape))
    return apply("reduce", chosen, monoid="max", axes=(axis + 1,))
