"""Resize and Upsample: one axis after the other. Coordinates are operations on positions, which fold where sizes are known."""

from __future__ import annotations

import numpy as np

from tcomp.frontend.onnx import build
from tcomp.frontend.onnx.build import scalar, size_like, with_scalar
from tcomp.frontend.onnx.data_numbers import combined, spread, with_number
from tcomp.frontend.onnx.ops_math import position
from tcomp.frontend.onnx.registry import Context, operator
from tcomp.frontend.onnx.resize_axes import Axis, Options, by_scales, by_sizes, with_regions
from tcomp.frontend.onnx.resize_filter import filtered, inside, polynomial
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.graph import broadcast, cast, reshape
from tcomp.ir.node import Node
from tcomp.ir.ops import apply, constant


@operator("Upsample", since=7)
def upsample_attributes(c: Context, x: Node) -> Node:
    return _upsampled(c, x, constant(np.array(c.reals("scales"), np.float32)))


@operator("Upsample", since=9)
@operator("Resize", since=10)
def _upsampled(c: Context, x: Node, scales: Node) -> Node:
    """Before opset 11: asymmetric coordinates, rounded down."""
    options = Options(c.string("mode", "nearest"), "asymmetric", "floor", -0.75, False, False, None)
    work = by_scales(c, tuple(enumerate(x.type.shape)), scales)
    return _resized(c, x, [w for w in work if w.scale != 1], options)


@operator("Resize", since=11)
def resize(c: Context, x: Node, roi: Node | None = None, scales: Node | None = None, sizes: Node | None = None) -> Node:
    axes = tuple(range(x.type.rank))
    if c.has("axes"):
        axes = tuple(c.axis(a, x.type.rank) for a in c.integers("axes"))
    transform = c.string("coordinate_transformation_mode", "half_pixel")
    crop = transform == "tf_crop_and_resize"
    options = Options(
        c.string("mode", "nearest"),
        transform,
        c.string("nearest_mode", "round_prefer_floor"),
        c.real("cubic_coeff_a", -0.75),
        bool(c.integer("exclude_outside", 0)),
        bool(c.integer("antialias", 0)),
        c.real("extrapolation_value", 0.0) if crop else None,
    )
    have = [(a, x.type.shape[a]) for a in axes]
    if sizes is not None:
        work = by_sizes(c, have, sizes)
    elif scales is not None:
        work = by_scales(c, have, scales)
    else:
        raise c.broken("neither scales nor sizes", "one of them")
    if crop:
        work = with_regions(c, work, axes, roi)
    return _resized(c, x, [w for w in work if crop or not w.unchanged], options)


def _resized(c: Context, x: Node, work: list[Axis], options: Options) -> Node:
    c.bounded([w.result for w in work])
    out = x
    for w in work:
        if options.mode == "nearest":
            out = _nearest(c, out, w, options)
        elif options.mode in ("linear", "cubic", "bilinear", "bicubic"):
            out = _weighted(c, out, w, options)
        else:
            raise c.broken(f"mode {options.mode!r}", "nearest, linear or cubic")
    return out if options.outside is None else _outside(c, out, work, options)


def _outside(c: Context, out: Node, work: list[Axis], options: Options) -> Node:
    """The extrapolation value wherever a coordinate lies outside the data."""
    for w in work:
        p = _coordinate(c, w, options)
        high = with_scalar("sub", size_like(w.size, p), 1)
        bad = apply("or", with_scalar("lt", p, 0), apply("gt", p, high))
        wide = broadcast(bad, out.type.shape, (w.axis,))
        out = apply("where", wide, scalar(options.outside or 0, out), out)
    return out


def _coordinate(c: Context, w: Axis, options: Options) -> Node:
    """Where each result position lies in the operand: in f32, as everybody computes it (the text leaves it open)."""
    p = position((w.result,), 0, dt.f32)
    scale = spread(w.scale, p) if w.scale is not None else apply("div", size_like(w.result, p), size_like(w.size, p))
    match options.transform:
        case "asymmetric":
            return apply("div", p, scale)
        case "half_pixel" | "pytorch_half_pixel" | "tf_half_pixel_for_nn" | "half_pixel_symmetric":
            return _half_pixel(w, options.transform, p, scale)
        case "align_corners":
            return _corners(w, p, scale)
        case "tf_crop_and_resize":
            return _cropped(w, p)
    raise c.broken(f"coordinate_transformation_mode {options.transform!r}", "one that the operator has")


def _half_pixel(w: Axis, transform: str, p: Node, scale: Node) -> Node:
    middle = apply("div", with_scalar("add", p, 0.5), scale)
    if transform == "tf_half_pixel_for_nn":
        return middle
    if transform == "half_pixel_symmetric":
        exact = apply("mul", size_like(w.size, p), scale)
        adjust = apply("div", size_like(w.result, p), exact)
        centre = with_scalar("div", size_like(w.size, p), 2)
        offset = apply("mul", centre, apply("sub", scalar(1, p), adjust))
        return with_scalar("sub", apply("add", offset, middle), 0.5)
    middle = with_scalar("sub", middle, 0.5)
    if transform == "pytorch_half_pixel":
        return apply("where", with_scalar("gt", size_like(w.result, p), 1), middle, scalar(0, p))
    return middle


def _corners(w: Axis, p: Node, scale: Node) -> Node:
    """The first and last positions meet; a result of one element is the first."""
    length = apply("mul", size_like(w.size, p), scale) if w.scale is not None else size_like(w.result, p)
    steps = with_scalar("sub", length, 1)
    line = apply("div", apply("mul", p, with_scalar("sub", size_like(w.size, p), 1)), steps)
    return apply("where", with_scalar("eq", steps, 0), scalar(0, p), line)


def _cropped(w: Axis, p: Node) -> Node:
    last = with_scalar("sub", size_like(w.size, p), 1)
    steps = with_scalar("sub", size_like(w.result, p), 1)
    line = apply("div", apply("mul", with_number("mul", p, combined("sub", w.end, w.start)), last), steps)
    line = apply("add", with_number("mul", last, w.start), line)
    middle = with_number("mul", last, combined("mul", 0.5, combined("add", w.start, w.end)))
    return apply("where", with_scalar("gt", size_like(w.result, p), 1), line, middle)


def _nearest(c: Context, x: Node, w: Axis, options: Options) -> Node:
    if _whole_blocks(w, options):
        return _repeated(x, w)
    p = _coordinate(c, w, options)
    match options.nearest:
        case "floor":
            q = apply("floor", p)
        case "ceil":
            q = apply("ceil", p)
        case "round_prefer_floor":
            q = apply("ceil", with_scalar("sub", p, 0.5))
        case "round_prefer_ceil":
            q = apply("floor", with_scalar("add", p, 0.5))
        case other:
            raise c.broken(f"nearest_mode {other!r}", "one that the operator has")
    return apply("gather", x, inside(q, w.size), axis=w.axis)


def _whole_blocks(w: Axis, options: Options) -> bool:
    """Whether every element is simply repeated: an integer scale, and coordinates that round to i // scale."""
    times = _times(w)
    floor = options.transform == "asymmetric" and options.nearest == "floor"
    half = options.transform in ("half_pixel", "pytorch_half_pixel") and options.nearest.startswith("round")
    return times is not None and (floor or half) and w.result != 1


def _times(w: Axis) -> int | None:
    """How often every element stands in the result, where that surely is a whole number."""
    if w.scale is not None:
        return int(w.scale) if not isinstance(w.scale, Node) and w.scale == int(w.scale) else None
    if w.size == 0:
        return None
    times = index.floordiv(w.result, w.size)
    return times if isinstance(times, int) and times > 0 and index.mul(times, w.size) == w.result else None


def _repeated(x: Node, w: Axis) -> Node:
    shape = x.type.shape
    times = _times(w)
    assert times is not None
    apart = reshape(x, (*shape[: w.axis + 1], 1, *shape[w.axis + 1 :]))
    wide = (*shape[: w.axis + 1], times, *shape[w.axis + 1 :])
    out = broadcast(apart, wide, tuple(range(len(wide))))
    return reshape(out, (*shape[: w.axis], w.result, *shape[w.axis + 1 :]))


def _weighted(c: Context, x: Node, w: Axis, options: Options) -> Node:
    """Linear or cubic: neighbours times weights; with antialias the support grows with the reduction."""
    wide = cast(x, dt.accumulator(x.type.dtype) if x.type.dtype.is_float else dt.f32)
    p = _coordinate(c, w, options)
    if options.antialias:
        return _rounded(filtered(c, wide, w, options, p), x)
    cubic = options.mode.endswith("cubic")
    base = apply("floor", p)
    weights = cubic_weights(apply("sub", p, base), options.cubic) if cubic else linear_weights(apply("sub", p, base))
    first = -1 if cubic else 0
    places = [with_scalar("add", base, first + k) for k in range(len(weights))]
    if options.exclude:
        weights = _excluding(weights, places, w)
    parts = []
    for place, weight in zip(places, weights):
        near = apply("gather", wide, inside(place, w.size), axis=w.axis)
        parts.append(_part(near, broadcast(cast(weight, wide.type.dtype), near.type.shape, (w.axis,)), w))
    return _rounded(build.total(parts), x)


def _part(near: Node, weight: Node, w: Axis) -> Node:
    """Elements times weights. Along an axis that may turn out unchanged nothing leaks from a neighbour: 0 * inf is not 0."""
    part = apply("mul", near, weight)
    return apply("where", with_scalar("eq", weight, 0), scalar(0, part), part) if w.open else part


def _rounded(y: Node, x: Node) -> Node:
    """Back to x's dtype; integers round to the nearest within their range."""
    t = x.type.dtype
    if not t.is_integer:
        return cast(y, t)
    low, high = (0, 2**t.bits - 1) if t.kind == "uint" else (-(2 ** (t.bits - 1)), 2 ** (t.bits - 1) - 1)
    return cast(with_scalar("min", with_scalar("max", apply("round", y), low), high), t)


def linear_weights(t: Node) -> list[Node]:
    return [apply("sub", scalar(1, t), t), t]


def cubic_weights(t: Node, a: float) -> list[Node]:
    """Keys' kernel at distances 1 + t, t, 1 - t, 2 - t."""
    back = apply("sub", scalar(1, t), t)
    far = [with_scalar("add", v, 1) for v in (t, back)]
    near = [polynomial(v, a + 2, -(a + 3), 0, 1) for v in (t, back)]
    outer = [polynomial(v, a, -5 * a, 8 * a, -4 * a) for v in far]
    return [outer[0], near[0], near[1], outer[1]]


def _excluding(weights: list[Node], places: list[Node], w: Axis) -> list[Node]:
    """Weights of places outside the data count nothing, and the rest add up to one."""
    kept = []
    for weight, place in zip(weights, places):
        inside = apply("and", with_scalar("ge", place, 0), apply("lt", place, size_like(w.size, place)))
        kept.append(apply("where", inside, weight, scalar(0, weight)))
    total = build.total(kept)
    return [apply("div", k, total) for k in kept]
