"""The antialiased filters of Resize: a triangle or Keys' kernel, as wide as the reduction asks for.

Where sizes are known the weights are a constant matrix; else each result has a row of taps, so many as the widest kernel reaches,
and that number is a size of the program.
"""

from __future__ import annotations

import math

import numpy as np

from tcomp.frontend.onnx import build
from tcomp.frontend.onnx.build import scalar, with_scalar
from tcomp.frontend.onnx.data_numbers import Number, spread, with_number
from tcomp.frontend.onnx.ops_math import position
from tcomp.frontend.onnx.registry import Context
from tcomp.frontend.onnx.resize_axes import Axis, Options
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.graph import broadcast, cast, full, transpose
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import apply, constant


def inside(q: Node, size: Dim) -> Node:
    """Positions brought into the dimension, as integers."""
    at = cast(q, dt.i64)
    last = build.size_like(index.sub(size, 1), at)
    return apply("max", apply("min", at, last), scalar(0, at))


def _reach(options: Options) -> int:
    """How far the kernel reaches to each side where nothing is reduced."""
    return 2 if options.mode.endswith("cubic") else 1


def filtered(c: Context, x: Node, w: Axis, options: Options, p: Node) -> Node:
    """`x` with its axis filtered around the coordinates `p`."""
    at = c.constant(p)
    if at is None or not isinstance(w.size, int) or isinstance(w.scale, Node):
        return _by_taps(c, x, w, options, p)
    scale = w.scale if w.scale is not None else len(at) / w.size
    return _by_matrix(x, w, _filter(at, w.size, min(1.0, scale), options))


def _by_matrix(x: Node, w: Axis, matrix: np.ndarray) -> Node:
    """A known matrix of weights contracted with the axis."""
    order = (*range(w.axis), x.type.rank - 1, *range(w.axis, x.type.rank - 1))
    out = apply("dot", x, constant(matrix.astype(dt.to_numpy(x.type.dtype))), batch=((), ()), contract=((w.axis,), (1,)))
    return transpose(out, order)


def _filter(at: np.ndarray, size: int, scale: float, options: Options) -> np.ndarray:
    """[results, size]: a triangle or Keys' kernel stretched by 1/scale; places outside count for the nearest inside."""
    reach = _reach(options) / scale
    matrix = np.zeros((len(at), size))
    for row, centre in zip(matrix, at):
        places = np.arange(int(np.floor(centre - reach)) + 1, int(np.ceil(centre + reach)))
        weights = _kernel(np.abs(places - centre) * scale, options)
        inside = (places >= 0) & (places < size)
        if options.exclude:
            weights = np.where(inside, weights, 0)
        np.add.at(row, np.clip(places, 0, size - 1), weights / weights.sum())
    return matrix


def _kernel(d: np.ndarray, options: Options) -> np.ndarray:
    if not options.mode.endswith("cubic"):
        return np.asarray(np.maximum(0, 1 - d))
    a = options.cubic
    near, far = ((a + 2) * d - (a + 3)) * d * d + 1, ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.asarray(np.where(d <= 1, near, np.where(d < 2, far, 0)))


def _by_taps(c: Context, x: Node, w: Axis, options: Options, p: Node) -> Node:
    """The same with weights that the program computes, in f64 as those of a matrix."""
    scale = _reduction(w)
    taps = _tap_count(c, scale, options)
    shape = (w.result, taps)
    centre = broadcast(cast(p, dt.f64), shape, (0,))
    reach = apply("div", full(_reach(options), dt.f64, shape), spread(scale, centre))
    first = with_scalar("add", apply("floor", apply("sub", centre, reach)), 1)
    places = apply("add", first, position(shape, 1, dt.f64))
    counts = apply("lt", places, apply("ceil", apply("add", centre, reach)))
    if options.exclude:
        size = build.size_like(w.size, places)
        counts = apply("and", counts, apply("and", with_scalar("ge", places, 0), apply("lt", places, size)))
    distance = with_number("mul", apply("abs", apply("sub", places, centre)), scale)
    weights = apply("where", counts, _kernel_of(distance, options), scalar(0, distance))
    total = broadcast(build.reduce(weights, "add", (1,), False), shape, (0,))
    return _tapped(x, w, places, cast(apply("div", weights, total), x.type.dtype))


def _reduction(w: Axis) -> Number:
    """The scale in f64, at most 1."""
    if w.scale is not None and not isinstance(w.scale, Node):
        return min(1.0, w.scale)
    quotient = apply("div", *(build.dimension(d, dt.f64) for d in (w.result, w.size)))
    return with_scalar("min", cast(w.scale, dt.f64) if w.scale is not None else quotient, 1)


def _tap_count(c: Context, scale: Number, options: Options) -> Dim:
    """One more than the places that are nearer than the reach to both sides."""
    if not isinstance(scale, Node):
        return math.ceil(2 * _reach(options) / scale) + 1
    widest = apply("ceil", apply("div", full(2 * _reach(options), dt.f64), scale))
    count = with_scalar("add", cast(widest, dt.i64), 1)
    return c.size(apply("where", with_scalar("gt", scale, 0), count, scalar(0, count)), "the width of the filter")


def _tapped(x: Node, w: Axis, places: Node, weights: Node) -> Node:
    """Elements at `places` times `weights`, both [results, taps], added up along the axis; none leaks where its weight is 0."""
    near = apply("gather", x, inside(places, w.size), axis=w.axis)
    wide = broadcast(weights, near.type.shape, (w.axis, w.axis + 1))
    parts = apply("where", with_scalar("eq", wide, 0), scalar(0, near), apply("mul", near, wide))
    return build.reduce(parts, "add", (w.axis + 1,), False)


def _kernel_of(d: Node, options: Options) -> Node:
    """`_kernel` of distances that are data."""
    if not options.mode.endswith("cubic"):
        return with_scalar("max", apply("sub", scalar(1, d), d), 0)
    a = options.cubic
    near, far = polynomial(d, a + 2, -(a + 3), 0, 1), polynomial(d, a, -5 * a, 8 * a, -4 * a)
    outer = apply("where", with_scalar("lt", d, 2), far, scalar(0, d))
    return apply("where", with_scalar("le", d, 1), near, outer)


def polynomial(v: Node, *factors: float) -> Node:
    """The polynomial of `v` with these coefficients, the highest power first."""
    total = scalar(factors[0], v)
    for f in factors[1:]:
        total = with_scalar("add", apply("mul", total, v), f)
    return total
