"""Sampling at computed places: GridSample, RoiAlign and its kin read neighbours by flat positions and weigh them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

from tcomp.frontend.onnx import build
from tcomp.frontend.onnx.build import pick, scalar, size_like, with_scalar
from tcomp.frontend.onnx.ops_resize import cubic_weights, linear_weights
from tcomp.frontend.onnx.registry import Context, operator
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.graph import broadcast, cast, full, reshape, transpose
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import apply

Taps: TypeAlias = list[tuple[Node, Node | None]]  # whole positions along one axis, and their weights (None: 1)

_MODES = {"bilinear": "linear", "bicubic": "cubic"}  # opset 16's names


@operator("GridSample", since=16)
def grid_sample(c: Context, x: Node, grid: Node) -> Node:
    """x[N, C, *space] at grid[N, *places, r], whose coordinates run from -1 to 1, the last axis of `space` first."""
    r = x.type.rank - 2
    mode, padding = c.string("mode", "linear"), c.string("padding_mode", "zeros")
    mode = _MODES.get(mode, mode)
    fits = r > 0 and grid.type.rank == x.type.rank and build.unify(grid.type.shape[-1], r) == r
    if not fits or mode not in ("linear", "nearest", "cubic"):
        raise c.broken(f"operands of types {x.type} and {grid.type}, mode {mode!r}", "a grid of as many coordinates as axes")
    corners = bool(c.integer("align_corners", 0))
    wide = cast(grid, dt.accumulator(x.type.dtype) if x.type.dtype.is_float else dt.f32)
    places = grid.type.shape[1:-1]
    batch = build.unify(x.type.shape[0], grid.type.shape[0])
    x, wide = reshape(x, (batch, *x.type.shape[1:])), reshape(wide, (*wide.type.shape[:-1], r))
    flat = reshape(reshape(wide, (batch, *places, r)), (batch, index.product(places), r))
    axes = [_pixel(pick(flat, 2, r - 1 - k), d, corners) for k, d in enumerate(x.type.shape[2:])]
    total = sampled(x, [taps_around(p, mode) for p in axes], padding, corners, wide.type.dtype)
    out = transpose(cast(total, x.type.dtype), (0, 2, 1))
    return reshape(out, (x.type.shape[0], x.type.shape[1], *places))


def _pixel(p: Node, d: Dim, corners: bool) -> Node:
    """-1..1 as a pixel's position: between the centres of the corner pixels, or between their outer edges."""
    size = size_like(d, p)
    up = with_scalar("add", p, 1)
    if corners:
        return with_scalar("div", apply("mul", up, with_scalar("sub", size, 1)), 2)
    return with_scalar("div", with_scalar("sub", apply("mul", up, size), 1), 2)


def taps_around(p: Node, mode: str) -> Taps:
    """The neighbours of positions, linear, cubic or nearest."""
    if mode == "nearest":
        return [(apply("round", p), None)]
    base = apply("floor", p)
    t = apply("sub", p, base)
    weights = linear_weights(t) if mode == "linear" else cubic_weights(t, -0.75)
    first = 0 if mode == "linear" else -1
    return [(with_scalar("add", base, first + k), w) for k, w in enumerate(weights)]


def sampled(x: Node, taps: Sequence[Taps], padding: str, corners: bool, dtype: dt.DType) -> Node:
    """[N, places, C]: the sum of the neighbours times their weights, for `taps` along each axis; what is outside by the padding's
    rule."""
    parts = []
    for choice in product(*taps):
        part = _tap(x, [p for p, _ in choice], padding, corners, dtype)
        for _, weight in choice:
            if weight is not None:
                part = apply("mul", part, broadcast(weight, part.type.shape, (0, 1)))
        parts.append(part)
    return build.total(parts)


def _tap(x: Node, position: Sequence[Node], padding: str, corners: bool, dtype: dt.DType) -> Node:
    """[N, places, C]: x at whole positions, what is outside by the padding's rule."""
    n, channels, *space = x.type.shape
    flat = full(0, dt.i64, position[0].type.shape)
    inside = full(True, dt.bool_, position[0].type.shape)
    for p, d in zip(position, space):
        if padding == "reflection":
            p = _reflected(p, d, corners)
        last = with_scalar("sub", size_like(d, p), 1)
        above = with_scalar("ge", p, 0)
        inside = apply("and", inside, apply("and", above, apply("le", p, last)))
        near = cast(apply("where", above, apply("min", p, last), scalar(0, p)), dt.i64)  # NaN is nowhere
        size = size_like(d, flat)
        flat = apply("add", apply("mul", flat, size), near)
    pixels = reshape(pixels_of(x), (n, index.product(space), channels))
    at = reshape(flat, (*flat.type.shape, 1))
    found = cast(apply("gather_nd", pixels, at, batch=1), dtype)
    if padding != "zeros":
        return found
    return apply("where", broadcast(inside, found.type.shape, (0, 1)), found, scalar(0, found))


def pixels_of(x: Node) -> Node:
    """[N, C, *space] with the channels last, in memory of its own: they are read together, at places that are data."""
    return apply("copy", transpose(x, (0, *range(2, x.type.rank), 1)), number=0)


def _reflected(p: Node, d: Dim, corners: bool) -> Node:
    """A whole position mirrored at the centres of the corner pixels, or at their outer edges, as often as needed."""
    low, span = (0.0, with_scalar("sub", size_like(d, p), 1)) if corners else (-0.5, size_like(d, p))
    period = with_scalar("mul", span, 2)
    q = apply("mod", with_scalar("sub", p, low), period)
    mirrored = apply("min", q, apply("sub", period, q))
    once = apply("where", with_scalar("eq", span, 0), scalar(0, p), with_scalar("add", mirrored, low))
    return apply("where", apply("isnan", once), scalar(0, p), once)


@operator("AffineGrid", since=20)
def affine_grid(c: Context, theta: Node, size: Node) -> Node:
    """[N, *space, r]: where the r x (r + 1) matrices move the points of a grid from -1 to 1 over `space`, the last axis first."""
    axes = c.count(size) - 2
    if axes in (2, 3) and theta.type.rank == 3:
        theta = build.relabel(theta, (theta.type.shape[0], axes, axes + 1))
    n, r, columns = theta.type.shape
    if r not in (2, 3) or columns != r + 1 or c.count(size) != r + 2:
        raise c.broken(f"matrices of type {theta.type} and {size.type} sizes", "2 by 3 and 4 sizes, or 3 by 4 and 5 sizes")
    batch, _, *space = c.sizes(size, "the size")
    c.require(apply("eq", build.dimension(batch, dt.i64), build.dimension(n, dt.i64)), "a size with a matrix for each image")
    corners = bool(c.integer("align_corners", 0))
    wide = cast(theta, dt.accumulator(theta.type.dtype))
    shape = (n, *space, r)
    total = broadcast(pick(wide, 2, r), shape, (0, r + 1))
    for k, d in enumerate(reversed(space)):
        line = broadcast(_grid_line(d, corners, wide.type.dtype), shape, (r - k,))
        factor = broadcast(pick(wide, 2, k), shape, (0, r + 1))
        total = apply("add", total, apply("mul", factor, line))
    return cast(total, theta.type.dtype)


def _grid_line(d: Dim, corners: bool, dtype: dt.DType) -> Node:
    """Even points from -1 to 1: the ends are points (one point alone is -1), or half a step beyond them."""
    k = apply("iota", shape=(d,), axis=0, dtype=dtype)
    size = size_like(d, k)
    if corners:
        step = apply("div", scalar(2, k), with_scalar("max", with_scalar("sub", size, 1), 1))
        return with_scalar("add", apply("mul", k, step), -1)
    step = apply("div", scalar(2, k), size)
    return apply("add", with_scalar("add", with_scalar("div", step, 2), -1), apply("mul", k, step))


@operator("RoiAlign", since=10)
def roi_align(c: Context, x: Node, rois: Node, batch: Node) -> Node:
    """The mean or the maximum of linear samples in each cell of a region: as many as `sampling_ratio` says, or one for each pixel
    that the cell covers."""
    ratio, mode = c.integer("sampling_ratio", 0), c.string("mode", "avg")
    high, wide = c.integer("output_height", 1), c.integer("output_width", 1)
    if min(high, wide) < 1:
        raise c.broken(f"{high} rows of {wide} cells", "at least one of each")
    half = c.opset >= 16 and c.string("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    scale, offset = c.real("spatial_scale", 1.0), 0.5 if half else 0.0
    _, channels, height, width = x.type.shape
    edges = with_scalar("sub", with_scalar("mul", rois, scale), offset)
    x0, y0, x1, y1 = (pick(edges, 1, k) for k in range(4))
    sides = [_Side.of(c, low, last, cells, ratio, half) for low, last, cells in ((y0, y1, high), (x0, x1, wide))]
    n, a, b = rois.type.shape[0], index.mul(high, sides[0].most), index.mul(wide, sides[1].most)
    grid_shape = (n, a, b)
    py, px = broadcast(sides[0].places, grid_shape, (0, 1)), broadcast(sides[1].places, grid_shape, (0, 2))
    which = broadcast(cast(build.relabel(batch, (n,)), dt.i64), grid_shape, (0,))
    found = _bilinear(x, which, py, px, height, width, mode == "max")
    cells = reshape(found, (n, high, sides[0].most, wide, sides[1].most, channels, *found.type.shape[4:]))
    cells = _only_counted(cells, sides, -math.inf if mode == "max" else 0.0)
    if mode == "max":
        best = build.reduce(cells, "max", (2, 4, 6), False)
        best = best if ratio > 0 else apply("where", with_scalar("eq", best, -math.inf), scalar(0, best), best)
    elif ratio > 0:
        best = with_scalar("div", build.reduce(cells, "add", (2, 4), False), ratio * ratio)
    else:
        total = build.reduce(cells, "add", (2, 4), False)
        count = with_scalar("max", apply("mul", *(s.count for s in sides if s.count is not None)), 1)
        best = apply("div", total, broadcast(count, total.type.shape, (0,)))
    return transpose(best, (0, 3, 1, 2))


@dataclass(frozen=True, slots=True)
class _Side:
    """The samples along one axis of every region. places: [regions, cells * most]; count: how many of the `most` in a cell of a
    region count, where they differ (None: all do)."""

    places: Node
    most: Dim
    count: Node | None

    @staticmethod
    def of(c: Context, low: Node, high: Node, cells: int, ratio: int, half: bool) -> _Side:
        length = apply("sub", high, low)
        length = length if half else with_scalar("max", length, 1)
        if ratio > 0:
            return _Side(_samples(low, length, cells, ratio), ratio, None)
        count = with_scalar("max", apply("ceil", with_scalar("div", length, cells)), 0)
        most = c.size(with_scalar("max", apply("reduce", count, monoid="max", axes=(0,)), 0), "the number of samples")
        shape = (low.type.shape[0], cells, most)
        size = with_scalar("div", length, cells)
        step = apply("div", size, with_scalar("max", count, 1))
        start = apply("mul", _places(shape, 1, low, 0.0), broadcast(size, shape, (0,)))
        inner = apply("mul", _places(shape, 2, low, 0.5), broadcast(step, shape, (0,)))
        at = apply("add", apply("add", broadcast(low, shape, (0,)), start), inner)
        return _Side(reshape(at, (shape[0], index.mul(cells, most))), most, count)


def _places(shape: build.Shape, axis: int, like: Node, offset: float) -> Node:
    return with_scalar("add", apply("iota", shape=shape, axis=axis, dtype=like.type.dtype), offset)


def _only_counted(cells: Node, sides: Sequence[_Side], otherwise: float) -> Node:
    """[regions, rows, samples, columns, samples, ...] with a number for the samples that do not count."""
    shape = cells.type.shape
    for axis, side in zip((2, 4), sides):
        if side.count is not None:
            counts = apply("lt", _places(shape, axis, side.count, 0.0), broadcast(side.count, shape, (0,)))
            cells = apply("where", counts, cells, scalar(otherwise, cells))
    return cells


def _samples(low: Node, length: Node, cells: int, ratio: int) -> Node:
    """[regions, cells * ratio]: the middle of each sample along one axis."""
    step = with_scalar("div", length, cells * ratio)
    shape = (low.type.shape[0], cells * ratio)
    return apply("add", broadcast(low, shape, (0,)), apply("mul", broadcast(step, shape, (0,)), _places(shape, 1, low, 0.5)))


def _bilinear(x: Node, which: Node, y: Node, x_: Node, height: Dim, width: Dim, apart: bool) -> Node:
    """[regions, rows, columns, C] (and 4 weighted neighbours if `apart`): nothing is read outside -1..size."""
    valid = full(True, dt.bool_, y.type.shape)
    taps = []
    for p, d in ((y, height), (x_, width)):
        size = size_like(d, p)
        valid = apply("and", valid, apply("and", with_scalar("ge", p, -1), apply("le", p, size)))
        p = apply("where", with_scalar("ge", p, 0), apply("min", p, with_scalar("sub", size, 1)), scalar(0, p))
        base = apply("floor", p)
        t = apply("sub", p, base)
        above = apply("min", with_scalar("add", base, 1), with_scalar("sub", size, 1))
        taps.append([(base, apply("sub", scalar(1, t), t)), (above, t)])
    pixels = pixels_of(x)
    parts = []
    for (a, wa), (b, wb) in product(*taps):
        at = [reshape(cast(v, dt.i64), (*v.type.shape, 1)) for v in (which, a, b)]
        near = apply("gather_nd", pixels, build.concat(at, 3), batch=0)
        weight = apply("where", valid, apply("mul", wa, wb), scalar(0, wa))
        parts.append(apply("mul", near, broadcast(weight, near.type.shape, (0, 1, 2))))
    if apart:
        return build.concat([reshape(p, (*p.type.shape, 1)) for p in parts], 4)
    return build.total(parts)
