"""Resize and Upsample: one axis after the other. Coordinates are operations on positions, which fold where sizes are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tcomp.frontend.onnx import build
from tcomp.frontend.onnx.build import scalar, with_scalar
from tcomp.frontend.onnx.ops_math import position
from tcomp.frontend.onnx.registry import Context, operator
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.graph import broadcast, cast, reshape, transpose
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import apply, constant


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis to be resized: sizes before and after, the scale (None: the sizes' quotient), the region of interest."""

    axis: int
    size: Dim
    result: Dim
    scale: float | None
    start: float = 0.0
    end: float = 1.0


@dataclass(frozen=True, slots=True)
class Options:
    """The attributes of a Resize."""

    mode: str
    transform: str
    nearest: str
    cubic: float
    exclude: bool
    antialias: bool
    outside: float | None  # the value of what lies outside the region of interest


@operator("Upsample", since=7)
def upsample_attributes(c: Context, x: Node) -> Node:
    return _by_scales(c, x, c.reals("scales"), _old(c))


@operator("Upsample", since=9)
def upsample(c: Context, x: Node, scales: Node) -> Node:
    return _by_scales(c, x, _numbers(c, scales, "the list of scales"), _old(c))


@operator("Resize", since=10)
def resize_10(c: Context, x: Node, scales: Node) -> Node:
    return _by_scales(c, x, _numbers(c, scales, "the list of scales"), _old(c))


def _old(c: Context) -> Options:
    """Before opset 11: asymmetric coordinates, rounded down."""
    return Options(c.string("mode", "nearest"), "asymmetric", "floor", -0.75, False, False, None)


def _numbers(c: Context, x: Node, what: str) -> tuple[float, ...]:
    return tuple(float(v) for v in c.require_constant(x, what).reshape(-1))


def _by_scales(c: Context, x: Node, scales: Sequence[float], options: Options) -> Node:
    if len(scales) != x.type.rank or not all(0 < s < 2**31 for s in scales):
        raise c.broken(f"scales {list(scales)} of rank {x.type.rank}", "a positive one for each axis")
    work = [Axis(a, d, _scaled(d, s), s) for a, (d, s) in enumerate(zip(x.type.shape, scales)) if s != 1]
    return _resized(c, x, work, options)


def _scaled(d: Dim, scale: float) -> Dim:
    """floor(d * scale)."""
    if isinstance(d, int):
        return int(np.floor(np.float32(d) * np.float32(scale)))
    ratio = Fraction(scale).limit_denominator(1024)
    if np.float32(float(ratio)) != np.float32(scale):
        ratio = Fraction(scale)  # else the scale is the rounded form of a small fraction, as 1/3 is
    return index.floordiv(index.mul(d, ratio.numerator), ratio.denominator)


@operator("Resize", since=11)
def resize(c: Context, x: Node, roi: Node | None = None, scales: Node | None = None, sizes: Node | None = None) -> Node:
    axes = c.axes(c.integers("axes"), x.type.rank) if c.has("axes") else tuple(range(x.type.rank))
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
    work = _work(c, x, axes, scales, sizes)
    if crop:
        if roi is None:
            raise c.broken("no region of interest", "one for tf_crop_and_resize")
        ends = _numbers(c, roi, "the region of interest")
        at = [axes.index(w.axis) for w in work]
        work = [Axis(w.axis, w.size, w.result, w.scale, ends[k], ends[k + len(axes)]) for w, k in zip(work, at)]
    return _resized(c, x, [w for w in work if crop or w.size != w.result or w.scale not in (1, None)], options)


def _work(c: Context, x: Node, axes: tuple[int, ...], scales: Node | None, sizes: Node | None) -> list[Axis]:
    shape = x.type.shape
    if sizes is not None:
        wanted = c.dims(sizes, "the list of sizes")
        if len(wanted) != len(axes):
            raise c.broken(f"{len(wanted)} sizes for {len(axes)} axes", "one for each")
        policy = c.string("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            return _keeping_aspect(c, shape, axes, wanted, policy)
        return [Axis(a, shape[a], d, None) for a, d in zip(axes, wanted)]
    if scales is None:
        raise c.broken("neither scales nor sizes", "one of them")
    given = _numbers(c, scales, "the list of scales")
    if len(given) != len(axes) or not all(0 < s < 2**31 for s in given):
        raise c.broken(f"scales {list(given)} for {len(axes)} axes", "a positive one for each")
    return [Axis(a, shape[a], _scaled(shape[a], s), s) for a, s in zip(axes, given)]


def _keeping_aspect(c: Context, shape: build.Shape, axes: tuple[int, ...], wanted: Sequence[Dim], policy: str) -> list[Axis]:
    """One scale for all axes: the smallest or the largest that the sizes ask for."""
    pairs = [(shape[a], d) for a, d in zip(axes, wanted)]
    if not all(isinstance(v, int) and v > 0 for pair in pairs for v in pair):
        raise c.unsupported("keeping the aspect ratio of sizes that are not known")
    ratios = [float(d) / float(s) for s, d in pairs if isinstance(s, int) and isinstance(d, int)]
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    return [Axis(a, shape[a], int(np.floor(scale * s + 0.5)), scale) for a, (s, _) in zip(axes, pairs) if isinstance(s, int)]


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
    return out if options.outside is None else _outside(c, out, x, work, options)


def _outside(c: Context, out: Node, x: Node, work: list[Axis], options: Options) -> Node:
    """The extrapolation value wherever a coordinate lies outside the data."""
    for w in work:
        p = _coordinate(c, w, options)
        high = with_scalar("sub", _size(w.size, p), 1)
        bad = apply("or", with_scalar("lt", p, 0), apply("gt", p, high))
        wide = broadcast(bad, out.type.shape, (w.axis,))
        out = apply("where", wide, scalar(options.outside or 0, out), out)
    return out


def _size(d: Dim, like: Node) -> Node:
    return broadcast(cast(build.dimension(d, dt.i64), like.type.dtype), like.type.shape, ())


def _coordinate(c: Context, w: Axis, options: Options) -> Node:
    """Where each result position lies in the operand: in f32, as everybody computes it (the text leaves it open)."""
    p = position((w.result,), 0, dt.f32)
    scale = scalar(w.scale, p) if w.scale is not None else apply("div", _size(w.result, p), _size(w.size, p))
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
        exact = apply("mul", _size(w.size, p), scale)
        adjust = apply("div", _size(w.result, p), exact)
        centre = with_scalar("div", _size(w.size, p), 2)
        offset = apply("mul", centre, apply("sub", scalar(1, p), adjust))
        return with_scalar("sub", apply("add", offset, middle), 0.5)
    middle = with_scalar("sub", middle, 0.5)
    if transform == "pytorch_half_pixel":
        return apply("where", with_scalar("gt", _size(w.result, p), 1), middle, scalar(0, p))
    return middle


def _corners(w: Axis, p: Node, scale: Node) -> Node:
    """The first and last positions meet; a result of one element is the first."""
    length = apply("mul", _size(w.size, p), scale) if w.scale is not None else _size(w.result, p)
    steps = with_scalar("sub", length, 1)
    line = apply("div", apply("mul", p, with_scalar("sub", _size(w.size, p), 1)), steps)
    return apply("where", with_scalar("eq", steps, 0), scalar(0, p), line)


def _cropped(w: Axis, p: Node) -> Node:
    last = with_scalar("sub", _size(w.size, p), 1)
    steps = with_scalar("sub", _size(w.result, p), 1)
    line = apply("div", apply("mul", with_scalar("mul", p, w.end - w.start), last), steps)
    line = apply("add", with_scalar("mul", last, w.start), line)
    middle = with_scalar("mul", last, 0.5 * (w.start + w.end))
    return apply("where", with_scalar("gt", _size(w.result, p), 1), line, middle)


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
    return apply("gather", x, _inside(q, w.size), axis=w.axis)


def _inside(q: Node, size: Dim) -> Node:
    """Positions brought into the dimension, as integers."""
    at = cast(q, dt.i64)
    last = broadcast(build.dimension(index.sub(size, 1), dt.i64), at.type.shape, ())
    return apply("max", apply("min", at, last), scalar(0, at))


def _whole_blocks(w: Axis, options: Options) -> bool:
    """Whether every element is simply repeated: an integer scale, and coordinates that round to i // scale."""
    times = w.scale if w.scale is not None else _times(w)
    exact = times is not None and times == int(times)
    floor = options.transform == "asymmetric" and options.nearest == "floor"
    half = options.transform in ("half_pixel", "pytorch_half_pixel") and options.nearest.startswith("round")
    return exact and (floor or half) and w.result != 1


def _times(w: Axis) -> int | None:
    """How often the size goes into the result, where it surely does."""
    if w.size == 0:
        return None
    times = index.floordiv(w.result, w.size)
    return times if isinstance(times, int) and times > 0 and index.mul(times, w.size) == w.result else None


def _repeated(x: Node, w: Axis) -> Node:
    shape = x.type.shape
    times = int(w.scale) if w.scale is not None else _times(w)
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
        return _rounded(_by_matrix(c, wide, w, options, p), x)
    cubic = options.mode.endswith("cubic")
    base = apply("floor", p)
    weights = _cubic_weights(apply("sub", p, base), options.cubic) if cubic else _linear_weights(apply("sub", p, base))
    first = -1 if cubic else 0
    places = [with_scalar("add", base, first + k) for k in range(len(weights))]
    if options.exclude:
        weights = _excluding(weights, places, w)
    total = None
    for place, weight in zip(places, weights):
        near = apply("gather", wide, _inside(place, w.size), axis=w.axis)
        part = apply("mul", near, broadcast(cast(weight, wide.type.dtype), near.type.shape, (w.axis,)))
        total = part if total is None else apply("add", total, part)
    assert total is not None
    return _rounded(total, x)


def _rounded(y: Node, x: Node) -> Node:
    """Back to x's dtype; integers round to the nearest within their range."""
    t = x.type.dtype
    if not t.is_integer:
        return cast(y, t)
    low, high = (0, 2**t.bits - 1) if t.kind == "uint" else (-(2 ** (t.bits - 1)), 2 ** (t.bits - 1) - 1)
    return cast(with_scalar("min", with_scalar("max", apply("round", y), low), high), t)


def _linear_weights(t: Node) -> list[Node]:
    return [apply("sub", scalar(1, t), t), t]


def _cubic_weights(t: Node, a: float) -> list[Node]:
    """Keys' kernel at distances 1 + t, t, 1 - t, 2 - t."""

    def polynomial(v: Node, *factors: float) -> Node:
        total = scalar(factors[0], v)
        for f in factors[1:]:
            total = with_scalar("add", apply("mul", total, v), f)
        return total

    back = apply("sub", scalar(1, t), t)
    far = [with_scalar("add", v, 1) for v in (t, back)]
    near = [polynomial(v, a + 2, -(a + 3), 0, 1) for v in (t, back)]
    outer = [polynomial(v, a, -5 * a, 8 * a, -4 * a) for v in far]
    return [outer[0], near[0], near[1], outer[1]]


def _excluding(weights: list[Node], places: list[Node], w: Axis) -> list[Node]:
    """Weights of places outside the data count nothing, and the rest add up to one."""
    kept, total = [], None
    for weight, place in zip(weights, places):
        inside = apply("and", with_scalar("ge", place, 0), apply("lt", place, _size(w.size, place)))
        kept.append(apply("where", inside, weight, scalar(0, weight)))
        total = kept[-1] if total is None else apply("add", total, kept[-1])
    assert total is not None
    return [apply("div", k, total) for k in kept]


def _by_matrix(c: Context, x: Node, w: Axis, options: Options, p: Node) -> Node:
    """The antialiased filter as a matrix of weights, contracted with the axis; sizes have to be known."""
    at = c.constant(p)
    if at is None or not isinstance(w.size, int):
        raise c.unsupported("antialias of sizes that are not known")
    scale = w.scale if w.scale is not None else len(at) / w.size
    matrix = _filter(at, w.size, min(1.0, scale), options)
    order = (*range(w.axis), x.type.rank - 1, *range(w.axis, x.type.rank - 1))
    out = apply("dot", x, constant(matrix.astype(dt.to_numpy(x.type.dtype))), batch=((), ()), contract=((w.axis,), (1,)))
    return transpose(out, order)


def _filter(at: np.ndarray, size: int, scale: float, options: Options) -> np.ndarray:
    """[results, size]: a triangle or Keys' kernel stretched by 1/scale; places outside count for the nearest inside."""
    reach = (2 if options.mode.endswith("cubic") else 1) / scale
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
