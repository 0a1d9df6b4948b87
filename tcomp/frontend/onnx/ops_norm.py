"""Normalisations. 16-bit floats are computed in f32 and rounded once, where the operator's text does not ask for other stages."""

from __future__ import annotations

from tcomp.frontend.onnx import build
from tcomp.frontend.onnx.build import along, mean, with_scalar
from tcomp.frontend.onnx.ops_activation import in_wide
from tcomp.frontend.onnx.registry import Context, operator
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.graph import broadcast, cast, reduce_keep, reshape
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import apply


def _spread_back(small: Node, like: Node, axes: tuple[int, ...]) -> Node:
    """A reduced tensor broadcast over the axes that were reduced."""
    kept = tuple(a for a in range(like.type.rank) if a not in axes)
    return broadcast(small, like.type.shape, kept)


def centred(x: Node, axes: tuple[int, ...]) -> tuple[Node, Node, Node]:
    """(x less its mean, the mean, the variance); the last two without `axes`.

    What rounding left in the first mean is the mean of the differences from it: taken off again, so that long rows far from
    zero are centred well and constant rows exactly (the corrected two-pass algorithm of Chan, Golub and LeVeque).
    """
    rough = mean(x, axes, False)
    d = apply("sub", x, _spread_back(rough, x, axes))
    rest = mean(d, axes, False)
    variance = apply("sub", mean(apply("mul", d, d), axes, False), apply("mul", rest, rest))
    return (
        apply("sub", d, _spread_back(rest, x, axes)),
        apply("add", rough, rest),
        with_scalar("max", variance, 0),
    )


def _inverse_deviation(variance: Node, epsilon: float) -> Node:
    root = apply("sqrt", with_scalar("add", variance, epsilon))
    return apply("div", build.scalar(1, root), root)


@operator("BatchNormalization")
def batch_norm(c: Context, x: Node, scale: Node, bias: Node, m: Node, variance: Node) -> Node | tuple[Node, ...]:
    training = bool(c.integer("training_mode", 0)) or (c.opset < 7 and not c.integer("is_test", 0) and sum(c.wanted) > 1)
    if training and c.opset >= 14:
        return _batch_norm_training(c, x, scale, bias, m, variance)
    if training or sum(c.wanted) > 1:
        raise c.unsupported("training mode before opset 14")
    if c.opset < 9 and not c.integer("spatial", 1):
        return _per_activation(c, x, scale, bias, m, variance)
    wide = dt.accumulator(x.type.dtype)
    scale, bias, m, variance = (cast(build.relabel(v, (x.type.shape[1],)), wide) for v in (scale, bias, m, variance))
    factor = apply("div", scale, apply("sqrt", with_scalar("add", variance, c.real("epsilon", 1e-5))))
    shape = x.type.shape
    out = apply("mul", apply("sub", cast(x, wide), along(m, 1, shape)), along(factor, 1, shape))
    return cast(apply("add", out, along(bias, 1, shape)), x.type.dtype)


def _per_activation(c: Context, x: Node, scale: Node, bias: Node, m: Node, variance: Node) -> Node:
    """`spatial` = 0: statistics for every element of a sample."""
    scale, bias, m, variance = (build.spread(v, x.type.shape) for v in (scale, bias, m, variance))
    root = apply("sqrt", with_scalar("add", variance, c.real("epsilon", 1e-5)))
    return apply("add", apply("mul", apply("div", apply("sub", x, m), root), scale), bias)


def _batch_norm_training(c: Context, x: Node, scale: Node, bias: Node, m: Node, variance: Node) -> tuple[Node, ...]:
    """Normalised by the batch's own statistics; the running ones are returned beside."""
    axes = tuple(a for a in range(x.type.rank) if a != 1)
    scale, bias, m, variance = (build.relabel(v, (x.type.shape[1],)) for v in (scale, bias, m, variance))
    d, now, spread = centred(x, axes)
    factor = apply("mul", scale, _inverse_deviation(spread, c.real("epsilon", 1e-5)))
    out = apply("add", apply("mul", d, along(factor, 1, x.type.shape)), along(bias, 1, x.type.shape))
    keep = c.real("momentum", 0.9)
    running = [apply("add", with_scalar("mul", old, keep), with_scalar("mul", cast(new, old.type.dtype), 1 - keep))
               for old, new in ((m, now), (variance, spread))]  # fmt: skip
    return (out, *running)


@operator("InstanceNormalization")
def instance_norm(c: Context, x: Node, scale: Node, bias: Node) -> Node:
    def body(v: Node) -> Node:
        axes, shape = tuple(range(2, v.type.rank)), v.type.shape
        d, _, variance = centred(v, axes)
        y = apply("mul", d, _spread_back(_inverse_deviation(variance, c.real("epsilon", 1e-5)), v, axes))
        wide = [along(cast(w, v.type.dtype), 1, shape) for w in (scale, bias)]
        return apply("add", apply("mul", y, wide[0]), wide[1])

    return in_wide(body, x)


def _tail_axes(c: Context, rank: int) -> tuple[int, ...]:
    return tuple(range(c.axis(c.integer("axis", -1), rank), rank))


@operator("LayerNormalization", since=17)
def layer_norm(c: Context, x: Node, scale: Node, bias: Node | None = None) -> tuple[Node, ...]:
    """(y, mean, 1 / deviation); the first stage in f32 for narrower floats, the second in x's dtype."""
    axes = _tail_axes(c, x.type.rank)
    wide = cast(x, dt.accumulator(x.type.dtype))
    d, m, variance = centred(wide, axes)
    inverse = _inverse_deviation(variance, c.real("epsilon", 1e-5))
    y = cast(apply("mul", d, _spread_back(inverse, wide, axes)), x.type.dtype)
    y = apply("mul", y, build.spread(scale, x.type.shape))
    if bias is not None:
        y = apply("add", y, build.spread(bias, x.type.shape))
    small = tuple(1 if a in axes else s for a, s in enumerate(x.type.shape))
    return y, reshape(m, small), reshape(inverse, small)


@operator("RMSNormalization", since=23)
def rms_norm(c: Context, x: Node, scale: Node) -> Node:
    axes = _tail_axes(c, x.type.rank)
    wide = cast(x, dt.accumulator(x.type.dtype))
    power = mean(apply("mul", wide, wide), axes, False)
    y = apply("mul", wide, _spread_back(_inverse_deviation(power, c.real("epsilon", 1e-5)), wide, axes))
    return apply("mul", cast(y, scale.type.dtype), build.spread(scale, x.type.shape))


@operator("GroupNormalization", since=18)
def group_norm(c: Context, x: Node, scale: Node, bias: Node) -> Node:
    """Scale and bias: one for each group (opset 18), or for each channel (21)."""
    groups, shape = c.integer("num_groups"), x.type.shape
    channels = shape[1]
    if groups < 1 or (isinstance(channels, int) and channels % groups):
        raise c.broken(f"{groups} groups of {index.show(channels)} channels", "a divisor")
    size = index.floordiv(channels, groups)
    apart = (shape[0], groups, size, *shape[2:])

    def body(v: Node) -> Node:
        parts = reshape(v, apart)
        axes = tuple(range(2, len(apart)))
        d, _, variance = centred(parts, axes)
        y = apply("mul", d, _spread_back(_inverse_deviation(variance, c.real("epsilon", 1e-5)), parts, axes))
        wide = [_by_group(cast(w, v.type.dtype), groups, size, apart) for w in (scale, bias)]
        return reshape(apply("add", apply("mul", y, wide[0]), wide[1]), shape)

    return in_wide(body, x)


def _by_group(w: Node, groups: int, size: Dim, apart: build.Shape) -> Node:
    if w.type.shape == (groups,):
        return broadcast(w, apart, (1,))
    return broadcast(reshape(w, (groups, size)), apart, (1, 2))


@operator("LRN")
def lrn(c: Context, x: Node) -> Node:
    """x / (bias + alpha/size * sum of squares over `size` neighbouring channels) ** beta."""
    size, alpha, beta = c.integer("size"), c.real("alpha", 1e-4), c.real("beta", 0.75)
    if size < 1 or x.type.rank < 2:
        raise c.broken(f"size {size} of {x.type}", "a positive size, rank 2 or more")
    r = x.type.rank
    low, high = (size - 1) // 2, size - 1 - (size - 1) // 2
    square = apply("mul", x, x)
    padded = build.zero_pad(square, [low if a == 1 else 0 for a in range(r)], [high if a == 1 else 0 for a in range(r)])
    near = apply("window", padded, axes=(1,), sizes=(size,), strides=(1,), dilations=(1,))
    total = apply("reduce", near, monoid="add", axes=(r,))
    base = with_scalar("add", with_scalar("mul", total, alpha / size), c.real("bias", 1.0))
    return apply("div", x, with_scalar("pow", base, beta))


@operator("MeanVarianceNormalization", since=9)
def mean_variance_norm(c: Context, x: Node) -> Node:
    def body(v: Node) -> Node:
        axes = c.axes(c.integers("axes", (0, 2, 3)), v.type.rank)
        d, _, variance = centred(v, axes)
        return apply("div", d, _spread_back(with_scalar("add", apply("sqrt", variance), 1e-9), v, axes))

    return in_wide(body, x)


@operator("LpNormalization")
def lp_norm(c: Context, x: Node) -> Node:
    """x by its norm along an axis; zero where the norm is."""
    axis, p = c.axis(c.integer("axis", -1), x.type.rank), c.integer("p", 2)
    if p not in (1, 2):
        raise c.broken(f"p = {p}", "1 or 2")
    size = apply("abs", x) if p == 1 else apply("mul", x, x)
    norm = reduce_keep(size, "add", (axis,))
    norm = norm if p == 1 else apply("sqrt", norm)
    return apply("where", with_scalar("eq", norm, 0), build.scalar(0, x), apply("div", x, norm))
