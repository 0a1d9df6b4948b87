"""Quantisation: to and from integers with a scale and a zero point, and products of quantised operands."""

from __future__ import annotations

from tcomp.frontend.onnx import build, narrow
from tcomp.frontend.onnx.build import along, with_scalar
from tcomp.frontend.onnx.ops_conv import convolution
from tcomp.frontend.onnx.ops_linear import matmul_of, shifted
from tcomp.frontend.onnx.registry import Context, operator
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.dtype import DType
from tcomp.ir.graph import broadcast, cast, reshape
from tcomp.ir.node import Node
from tcomp.ir.ops import apply


def _fitted(c: Context, v: Node, shape: build.Shape, axis: int) -> Node:
    """A scale or zero point spread over `shape`: one for the tensor, for each place along `axis`, or for each block there."""
    if index.product(v.type.shape) == 1 and v.type.rank <= 1:
        return broadcast(reshape(v, ()), shape, ())
    if v.type.rank == 1:
        return along(v, axis, shape)
    block = c.integer("block_size", 0)
    if block < 1 or v.type.rank != len(shape):
        raise c.broken(f"a scale of type {v.type}, block_size {block}", "one, or one for each place of an axis, or blocks")
    small = v.type.shape
    wide = broadcast(reshape(v, (*small[: axis + 1], 1, *small[axis + 1 :])), (*small[: axis + 1], block, *small[axis + 1 :]),
                     tuple(range(len(small) + 1)))  # fmt: skip
    flat = reshape(wide, (*small[:axis], index.mul(small[axis], block), *small[axis + 1 :]))
    return build.slice_(flat, (0,) * len(shape), shape)


def _axis(c: Context, rank: int) -> int:
    axis = c.integer("axis", 1)
    return c.axis(axis, rank) if -rank <= axis < rank else 0


def saturated(x: Node, t: DType) -> Node:
    """Whole floats as integers of type `t`, its bounds where they are beyond."""
    low, high = (0, 2**t.bits - 1) if t.kind == "uint" else (-(2 ** (t.bits - 1)), 2 ** (t.bits - 1) - 1)
    return cast(with_scalar("min", with_scalar("max", x, low), high), t)


@operator("QuantizeLinear", since=10)
def quantize_linear(c: Context, x: Node, scale: Node, zero: Node | None = None) -> Node:
    """The division is in the precision of the scale, or as `precision` says."""
    named = c.dtype("output_dtype") if c.integer("output_dtype", 0) else None
    target = zero.type.dtype if zero is not None else named or dt.u8
    if target.bits > 16 or target in (dt.bool_, dt.f16, dt.bf16, dt.f8e8m0):
        raise c.unsupported(f"quantisation to {target}")
    shape, axis = x.type.shape, _axis(c, x.type.rank)
    work = c.dtype("precision") if c.integer("precision", 0) else scale.type.dtype
    work = work if work.is_float and not work.is_storage else dt.f32
    q = apply("div", cast(x, work), _fitted(c, cast(scale, work), shape, axis))
    q = cast(apply("round", q) if target.is_integer else q, dt.f32)
    if zero is not None:
        q = apply("add", q, _fitted(c, cast(zero, dt.f32), shape, axis))
    if target.is_integer:
        return saturated(q, target)
    return narrow.converted(c, q, target)


@operator("DequantizeLinear", since=10)
def dequantize_linear(c: Context, x: Node, scale: Node, zero: Node | None = None) -> Node:
    shape, axis, t = x.type.shape, _axis(c, x.type.rank), x.type.dtype
    wide = cast(x, dt.i32 if t.is_integer else dt.f32)
    if zero is not None:
        wide = apply("sub", wide, _fitted(c, cast(zero, wide.type.dtype), shape, axis))
    target = c.dtype("output_dtype") if c.integer("output_dtype", 0) else scale.type.dtype
    if not target.is_float or target.is_storage:
        raise c.unsupported(f"dequantisation to {target}")
    work = target if target == dt.f64 else dt.f32
    return cast(apply("mul", cast(wide, work), _fitted(c, cast(scale, work), shape, axis)), target)


def _requantised(acc: Node, factor: Node, zero: Node | None, t: DType) -> Node:
    """i32 sums times a factor, rounded, shifted by the zero point, saturated."""
    q = apply("round", apply("mul", cast(acc, dt.f32), factor))
    if zero is not None:
        q = apply("add", q, build.spread(cast(zero, dt.f32), q.type.shape))
    return saturated(q, t)


@operator("QLinearMatMul", since=10)
def qlinear_matmul(c: Context, a: Node, sa: Node, za: Node, b: Node, sb: Node, zb: Node, sy: Node, zy: Node) -> Node:
    acc = matmul_of(shifted(a, za, max(a.type.rank - 2, 0)), shifted(b, zb, b.type.rank - 1))
    shape = acc.type.shape
    rows = _column(cast(sa, dt.f32), a.type.rank)
    wide = [build.spread(v, shape) for v in (rows, cast(sb, dt.f32), cast(sy, dt.f32))]
    return _requantised(acc, apply("div", apply("mul", wide[0], wide[1]), wide[2]), zy, zy.type.dtype)


def _column(v: Node, rank: int) -> Node:
    """Scales of the rows of a matrix as a column."""
    return reshape(v, (*v.type.shape, 1)) if v.type.rank == 1 and v.type.shape != (1,) and rank > 1 else v


@operator("QLinearConv", since=10)
def qlinear_conv(
    c: Context, x: Node, sx: Node, zx: Node, w: Node, sw: Node, zw: Node, sy: Node, zy: Node, bias: Node | None = None
) -> Node:
    acc = convolution(c, shifted(x, zx, 0), shifted(w, zw, 0))
    shape = acc.type.shape
    if bias is not None:
        acc = apply("add", acc, along(cast(bias, dt.i32), 1, shape))
    wide = [_fitted(c, cast(s, dt.f32), shape, 1) for s in (sx, sw, sy)]
    return _requantised(acc, apply("div", apply("mul", wide[0], wide[1]), wide[2]), zy, zy.type.dtype)
