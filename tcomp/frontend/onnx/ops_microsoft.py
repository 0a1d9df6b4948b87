"""com.microsoft: fused products and convolutions, activations, channels-last variants; onnxruntime's documents are the text."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tcomp.frontend.onnx import build
from tcomp.frontend.onnx.build import channels_first, channels_last, with_scalar
from tcomp.frontend.onnx.ops_activation import fast_gelu_of, gelu_of, in_wide, softmax_of
from tcomp.frontend.onnx.ops_conv import convolution, with_bias
from tcomp.frontend.onnx.ops_index import gather_nd
from tcomp.frontend.onnx.ops_linear import gemm, matmul_of
from tcomp.frontend.onnx.ops_pool import max_pool
from tcomp.frontend.onnx.ops_shape import range_of, trilu, unsqueeze
from tcomp.frontend.onnx.ops_slice import pad_operands
from tcomp.frontend.onnx.registry import MICROSOFT, Context, operator
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.graph import broadcast, cast, reshape, transpose
from tcomp.ir.node import Node
from tcomp.ir.ops import apply

operator("Trilu", domain=MICROSOFT)(trilu)
operator("GatherND", domain=MICROSOFT)(gather_nd)
operator("Pad", domain=MICROSOFT)(pad_operands)


def silu_of(x: Node, factor: float = 1.0) -> Node:
    return apply("mul", x, apply("sigmoid", x if factor == 1 else with_scalar("mul", x, factor)))


def leaky_relu_of(x: Node, alpha: float) -> Node:
    return apply("where", with_scalar("lt", x, 0), with_scalar("mul", x, alpha), x)


def _biased(x: Node, bias: Node | None) -> Node:
    return x if bias is None else apply("add", x, build.spread(bias, x.type.shape))


@operator("Gelu", domain=MICROSOFT)
def gelu(c: Context, x: Node) -> Node:
    return in_wide(gelu_of, x)


@operator("BiasGelu", domain=MICROSOFT)
def bias_gelu(c: Context, x: Node, bias: Node) -> Node:
    return in_wide(gelu_of, _biased(x, bias))


@operator("FastGelu", domain=MICROSOFT)
def fast_gelu(c: Context, x: Node, bias: Node | None = None) -> Node:
    return in_wide(fast_gelu_of, _biased(x, bias))


@operator("QuickGelu", domain=MICROSOFT)
def quick_gelu(c: Context, x: Node) -> Node:
    return in_wide(lambda v: silu_of(v, c.real("alpha", 1.702)), x)


@operator("ScaledSiLU", domain=MICROSOFT)
def scaled_silu(c: Context, x: Node, factor: Node | None = None) -> Node:
    """z * sigmoid(z) of z = factor * x, rounded after each step."""
    if factor is None:
        wide = with_scalar("mul", cast(x, dt.f32), c.real("alpha", 1.0))
    else:
        wide = apply("mul", cast(x, dt.f32), broadcast(cast(reshape(factor, ()), dt.f32), x.type.shape, ()))
    z = cast(wide, x.type.dtype)
    return apply("mul", z, cast(apply("sigmoid", cast(z, dt.f32)), x.type.dtype))


@operator("GatedAdd", domain=MICROSOFT)
def gated_add(c: Context, x: Node, y: Node, gate: Node, weight: Node | None = None) -> Node:
    if weight is not None:
        raise c.unsupported("a gate that is projected")
    return apply("add", x, apply("mul", y, build.spread(gate, y.type.shape)))


@operator("ExpandDims", domain=MICROSOFT)
def expand_dims(c: Context, x: Node, axis: Node) -> Node:
    return unsqueeze(c, x, reshape(axis, (1,)))


@operator("Range", domain=MICROSOFT)
def range_by_one(c: Context, start: Node, limit: Node, delta: Node | None = None) -> Node:
    one = build.scalar(1, start) if delta is None else delta
    return range_of(c, *(reshape(v, ()) for v in (start, limit, one)))


@operator("BiasSplitGelu", domain=MICROSOFT)
def bias_split_gelu(c: Context, x: Node, bias: Node) -> Node:
    """The first half of the last axis times the Gelu of the second half."""
    wide, axis = _biased(x, bias), x.type.rank - 1
    half = index.floordiv(x.type.shape[axis], 2)
    left, right = (build.take(wide, axis, start, half) for start in (0, half))
    return apply("mul", left, in_wide(gelu_of, right))


@operator("BiasAdd", domain=MICROSOFT)
def bias_add(c: Context, x: Node, bias: Node, skip: Node) -> Node:
    return apply("add", _biased(x, bias), build.spread(skip, x.type.shape))


def _clipped(x: Node, low: float, high: float) -> Node:
    return with_scalar("min", with_scalar("max", x, low), high)


_ACTIVATIONS: dict[str, tuple[tuple[float, ...], Callable[..., Node]]] = {  # defaults of parameters, and the function
    "": ((), lambda x: x),
    "Relu": ((), lambda x: with_scalar("max", x, 0)),
    "Sigmoid": ((), lambda x: apply("sigmoid", x)),
    "Tanh": ((), lambda x: apply("tanh", x)),
    "LeakyRelu": ((0.01,), leaky_relu_of),
    "Clip": ((-math.inf, math.inf), _clipped),
    "HardSigmoid": ((0.2, 0.5), lambda x, a, b: _clipped(with_scalar("add", with_scalar("mul", x, a), b), 0, 1)),
    "Gelu": ((), gelu_of),
    "QuickGelu": ((1.702,), silu_of),
}


def activated(c: Context, x: Node, parameters: tuple[float, ...]) -> Node:
    """The activation that the attribute `activation` names, in the accumulator's precision."""
    name = c.string("activation", "")
    if name not in _ACTIVATIONS:
        raise c.unsupported(f"activation {name!r}")
    defaults, f = _ACTIVATIONS[name]
    values = (*parameters, *defaults[len(parameters) :])[: len(defaults)]
    return in_wide(lambda v: f(v, *values), x)


def _parameters(c: Context) -> tuple[float, ...]:
    """activation_alpha, _beta: those that are given, in order."""
    names = [n for n in ("activation_alpha", "activation_beta") if c.has(n)]
    return tuple(c.real(n) for n in names)


@operator("FusedMatMul", "TransposeMatMul", "FusedMatMulActivation", domain=MICROSOFT)
def fused_matmul(c: Context, a: Node, b: Node) -> Node:
    """alpha times a product of operands with their last two axes swapped, or their first axis moved to the last but one."""
    a, b = (_turned(c, x, side) for x, side in ((a, "A"), (b, "B")))
    out, alpha = matmul_of(a, b), c.real("alpha", 1.0)
    out = out if alpha == 1 else with_scalar("mul", out, alpha)
    return activated(c, out, _parameters(c))


def _turned(c: Context, x: Node, side: str) -> Node:
    r = x.type.rank
    if r > 2 and c.integer(f"transBatch{side}", 0):
        x = transpose(x, (*range(1, r - 1), 0, r - 1))
    if r > 1 and c.integer(f"trans{side}", 0):
        x = transpose(x, (*range(r - 2), r - 1, r - 2))
    return x


@operator("GemmFastGelu", domain=MICROSOFT)
def gemm_fast_gelu(c: Context, x: Node, w: Node, bias: Node | None = None) -> Node:
    return fast_gelu(c, matmul_of(x, w), bias)


@operator("FusedGemm", domain=MICROSOFT)
def fused_gemm(c: Context, a: Node, b: Node, bias: Node | None = None) -> Node:
    return activated(c, gemm(c, a, b, bias), _parameters(c))


@operator("FusedConv", domain=MICROSOFT)
def fused_conv(c: Context, x: Node, w: Node, bias: Node | None = None, more: Node | None = None) -> Node:
    """Convolution, bias, a sum, then the activation."""
    out = with_bias(convolution(c, x, w), bias)
    if more is not None:
        out = apply("add", out, build.spread(more, out.type.shape))
    return activated(c, out, c.reals("activation_params", ()))


@operator("NhwcConv", "NhwcFusedConv", domain=MICROSOFT)
def nhwc_conv(c: Context, x: Node, w: Node, bias: Node | None = None, more: Node | None = None) -> Node:
    """`FusedConv` of channels-last operands: w is [O, *window, C/groups]."""
    rest = None if more is None else channels_first(more)
    return channels_last(fused_conv(c, channels_first(x), channels_first(w), bias, rest))


@operator("NhwcMaxPool", domain=MICROSOFT)
def nhwc_max_pool(c: Context, x: Node) -> Node:
    found: Any = max_pool(c, channels_first(x))
    return channels_last(found)


@operator("BiasSoftmax", domain=MICROSOFT)
def bias_softmax(c: Context, x: Node, bias: Node) -> Node:
    """Over all axes from `axis` on together."""
    axis = c.axis(c.integer("axis", 1), x.type.rank)
    return in_wide(lambda v: softmax_of(v, tuple(range(axis, v.type.rank))), _biased(x, bias))


@operator("CDist", domain=MICROSOFT)
def cdist(c: Context, a: Node, b: Node) -> Node:
    """[M, K]: the distance of each row of a from each row of b, from their differences."""
    metric = c.string("metric", "sqeuclidean")
    if metric not in ("euclidean", "sqeuclidean"):
        raise c.unsupported(f"the metric {metric!r}", "euclidean and sqeuclidean are")
    shape = (a.type.shape[0], b.type.shape[0], build.unify(a.type.shape[1], b.type.shape[1]))
    left = broadcast(build.relabel(a, (shape[0], shape[2])), shape, (0, 2))
    d = apply("sub", left, broadcast(build.relabel(b, shape[1:]), shape, (1, 2)))
    squares = apply("reduce", apply("mul", d, d), monoid="add", axes=(2,))
    return squares if metric == "sqeuclidean" else apply("sqrt", squares)
