"""Operators of the default domain that ONNX tried out and took back; onnxruntime runs them, and old converters wrote them."""

from __future__ import annotations

import numpy as np

from tcomp.frontend.onnx import build
from tcomp.frontend.onnx.build import with_scalar
from tcomp.frontend.onnx.ops_activation import softplus_of
from tcomp.frontend.onnx.registry import Context, operator
from tcomp.ir import index
from tcomp.ir.graph import cast
from tcomp.ir.node import Node
from tcomp.ir.ops import apply, constant


@operator("Affine")
def affine(c: Context, x: Node) -> Node:
    return with_scalar("add", with_scalar("mul", x, c.real("alpha", 1.0)), c.real("beta", 0.0))


@operator("Scale")
def scale(c: Context, x: Node) -> Node:
    return with_scalar("mul", x, c.real("scale", 1.0))


@operator("ScaledTanh")
def scaled_tanh(c: Context, x: Node) -> Node:
    return with_scalar("mul", apply("tanh", with_scalar("mul", x, c.real("beta"))), c.real("alpha"))


@operator("ParametricSoftplus")
def parametric_softplus(c: Context, x: Node) -> Node:
    return with_scalar("mul", softplus_of(with_scalar("mul", x, c.real("beta"))), c.real("alpha"))


@operator("ImageScaler")
def image_scaler(c: Context, x: Node) -> Node:
    """An image scaled, and shifted by channel."""
    bias = cast(constant(np.array(c.reals("bias"), np.float32)), x.type.dtype)
    if x.type.rank != 4 or bias.type.shape != x.type.shape[1:2]:
        raise c.broken(f"an operand of type {x.type}, a bias of type {bias.type}", "an image, and a number for each channel")
    return apply("add", with_scalar("mul", x, c.real("scale", 1.0)), build.along(bias, 1, x.type.shape))


@operator("Crop")
def crop(c: Context, x: Node) -> Node:
    """Without its borders (left, top, right, bottom), or `scale` (height, width) after the first two."""
    left, top, right, bottom = c.integers("border", (0, 0, 0, 0))
    if c.has("scale"):
        high, wide = c.integers("scale")
        start, shape = (0, 0, top, left), (*x.type.shape[:2], high, wide)
    else:
        height, width = x.type.shape[2:]
        start = (0, 0, top, left)
        shape = (*x.type.shape[:2], index.sub(height, top + bottom), index.sub(width, left + right))
    return build.slice_(x, start, shape)
