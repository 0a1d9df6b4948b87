"""Activations, softmax and its kin. 16-bit floats are computed in f32 and rounded once."""

from __future__ import annotations

import math
from collections.abc import Callable

from tcomp.frontend.onnx import build
from tcomp.frontend.onnx.build import scalar, with_scalar
from tcomp.frontend.onnx.ops_math import position
from tcomp.frontend.onnx.registry import Context, operator
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.graph import broadcast, cast, reduce_keep, reshape
from tcomp.ir.node import Node
from tcomp.ir.ops import apply


def in_wide(f: Callable[[Node], Node], x: Node) -> Node:
    """`f` of x in the accumulator's precision, rounded once."""
    return cast(f(cast(x, dt.accumulator(x.type.dtype))), x.type.dtype)


def _activation(*names: str, since: int = 1) -> Callable[[Callable[[Context, Node], Node]], Callable[[Context, Node], Node]]:
    """Register a function of one operand, computed in the accumulator's precision."""

    def register(f: Callable[[Context, Node], Node]) -> Callable[[Context, Node], Node]:
        operator(*names, since=since)(lambda c, x: in_wide(lambda v: f(c, v), x))
        return f

    return register


@operator("Relu")
def relu(c: Context, x: Node) -> Node:
    return with_scalar("max", x, 0)


def _negative(x: Node, below: Node) -> Node:
    """`below` where x < 0, else x."""
    return apply("where", with_scalar("lt", x, 0), below, x)


@_activation("LeakyRelu")
def leaky_relu(c: Context, x: Node) -> Node:
    return _negative(x, with_scalar("mul", x, c.real("alpha", 0.01)))


@operator("PRelu")
def legacy_prelu(c: Context, x: Node, slope: Node) -> Node:
    """Before opset 7 the slope is one number, or one for each channel (axis 1)."""
    if slope.type.rank == 1 and slope.type.shape != (1,) and x.type.rank > 1:
        slope = build.along(slope, 1, x.type.shape)
    return prelu(c, x, slope)


@operator("PRelu", since=7)
def prelu(c: Context, x: Node, slope: Node) -> Node:
    return _negative(x, apply("mul", build.spread(slope, x.type.shape), x))


@_activation("Elu")
def elu(c: Context, x: Node) -> Node:
    return _negative(x, with_scalar("mul", apply("expm1", x), c.real("alpha", 1.0)))


@_activation("Selu")
def selu(c: Context, x: Node) -> Node:
    late = c.opset >= 6
    alpha = c.real("alpha", 1.67326319217681884765625 if late else 1.6732)
    gamma = c.real("gamma", 1.05070102214813232421875 if late else 1.0507)
    return with_scalar("mul", _negative(x, with_scalar("mul", apply("expm1", x), alpha)), gamma)


@_activation("Celu", since=12)
def celu(c: Context, x: Node) -> Node:
    alpha = c.real("alpha", 1.0)
    return _negative(x, with_scalar("mul", apply("expm1", with_scalar("div", x, alpha)), alpha))


@_activation("HardSigmoid")
def hard_sigmoid(c: Context, x: Node) -> Node:
    line = with_scalar("add", with_scalar("mul", x, c.real("alpha", 0.2)), c.real("beta", 0.5))
    return with_scalar("max", with_scalar("min", line, 1), 0)


@_activation("HardSwish", since=14)
def hard_swish(c: Context, x: Node) -> Node:
    line = with_scalar("add", with_scalar("div", x, 6), 0.5)
    return apply("mul", x, with_scalar("max", with_scalar("min", line, 1), 0))


def softplus_of(x: Node) -> Node:
    """log(1 + exp(x)) without overflow."""
    return apply("add", with_scalar("max", x, 0), apply("log1p", apply("exp", apply("neg", apply("abs", x)))))


@_activation("Softplus")
def softplus(c: Context, x: Node) -> Node:
    return softplus_of(x)


@_activation("Mish", since=18)
def mish(c: Context, x: Node) -> Node:
    return apply("mul", x, apply("tanh", softplus_of(x)))


@_activation("Softsign")
def softsign(c: Context, x: Node) -> Node:
    return apply("div", x, with_scalar("add", apply("abs", x), 1))


@_activation("Swish", since=24)
def swish(c: Context, x: Node) -> Node:
    return apply("mul", x, apply("sigmoid", with_scalar("mul", x, c.real("alpha", 1.0))))


@_activation("ThresholdedRelu")
def thresholded_relu(c: Context, x: Node) -> Node:
    return apply("where", with_scalar("gt", x, c.real("alpha", 1.0)), x, scalar(0, x))


@_activation("Gelu", since=20)
def gelu(c: Context, x: Node) -> Node:
    return fast_gelu_of(x) if c.string("approximate", "none") == "tanh" else gelu_of(x)


def gelu_of(x: Node) -> Node:
    """x times the normal distribution function of x."""
    gate = apply("erf", with_scalar("mul", x, math.sqrt(0.5)))
    return apply("mul", with_scalar("mul", x, 0.5), with_scalar("add", gate, 1))


def fast_gelu_of(x: Node) -> Node:
    """The approximation of `gelu_of` by a tangent."""
    cube = with_scalar("mul", apply("mul", x, apply("mul", x, x)), 0.044715)
    gate = apply("tanh", with_scalar("mul", apply("add", x, cube), math.sqrt(2 / math.pi)))
    return apply("mul", with_scalar("mul", x, 0.5), with_scalar("add", gate, 1))


@operator("Shrink", since=9)
def shrink(c: Context, x: Node) -> Node:
    bias, limit = c.real("bias", 0.0), c.real("lambd", 0.5)
    wide = cast(x, dt.f32) if not x.type.dtype.is_float else x
    above = apply("where", with_scalar("gt", wide, limit), with_scalar("sub", wide, bias), scalar(0, wide))
    return cast(apply("where", with_scalar("lt", wide, -limit), with_scalar("add", wide, bias), above), x.type.dtype)


def softmax_axes(c: Context, rank: int) -> tuple[int, ...]:
    """The axes that are normalised together: before opset 13 all from `axis` on, since then one."""
    if c.opset >= 13:
        return (c.axis(c.integer("axis", -1), rank),)
    axis = c.integer("axis", 1)
    return tuple(range(axis if axis == rank else c.axis(axis, rank), rank))


def softmax_of(x: Node, axes: tuple[int, ...]) -> Node:
    e = apply("exp", apply("sub", x, reduce_keep(x, "max", axes)))
    return apply("div", e, reduce_keep(e, "add", axes))


@operator("Softmax")
def softmax(c: Context, x: Node) -> Node:
    return in_wide(lambda v: softmax_of(v, softmax_axes(c, v.type.rank)), x)


def log_softmax_of(x: Node, axes: tuple[int, ...]) -> Node:
    shifted = apply("sub", x, reduce_keep(x, "max", axes))
    return apply("sub", shifted, apply("log", reduce_keep(apply("exp", shifted), "add", axes)))


@operator("LogSoftmax")
def log_softmax(c: Context, x: Node) -> Node:
    return in_wide(lambda v: log_softmax_of(v, softmax_axes(c, v.type.rank)), x)


@operator("Hardmax")
def hardmax(c: Context, x: Node) -> Node:
    """1 at the first of the largest, 0 elsewhere."""
    axes = softmax_axes(c, x.type.rank)
    if len(axes) == 1:
        return _first_largest(x, axes[0])
    lead = x.type.shape[: x.type.rank - len(axes)]
    flat = reshape(x, (*lead, index.product(x.type.shape[a] for a in axes)))
    return reshape(_first_largest(flat, len(lead)), x.type.shape)


def _first_largest(x: Node, axis: int) -> Node:
    best = apply("argreduce", x, monoid="max", axis=axis, last=False, dtype=dt.i64)
    rest = tuple(a for a in range(x.type.rank) if a != axis)
    hit = apply("eq", position(x.type.shape, axis), broadcast(best, x.type.shape, rest))
    return cast(hit, x.type.dtype)
