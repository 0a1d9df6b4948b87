"""com.microsoft: operators on quantised tensors, and products by weights of 2, 4 or 8 bits.

Quantised arithmetic is dequantised, computed in f32 and quantised once; products are exact in integers before that.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tcomp.frontend.onnx import build
from tcomp.frontend.onnx.build import channels_first, channels_last, normal_positions, scalar, take, with_scalar
from tcomp.frontend.onnx.ops_activation import softmax_of
from tcomp.frontend.onnx.ops_linear import dot, matmul_of, shifted
from tcomp.frontend.onnx.ops_microsoft import leaky_relu_of
from tcomp.frontend.onnx.ops_pool import average_pool
from tcomp.frontend.onnx.ops_quant import dequantize_linear, qlinear_conv, quantize_linear, saturated
from tcomp.frontend.onnx.registry import MICROSOFT, Context, operator
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.dtype import DType
from tcomp.ir.graph import broadcast, cast, full, reshape, transpose
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import apply, constant

operator("QuantizeLinear", domain=MICROSOFT)(quantize_linear)
operator("DequantizeLinear", domain=MICROSOFT)(dequantize_linear)


def _one(v: Node, like: Node) -> Node:
    """A scale or zero point of one element, spread over `like`."""
    return broadcast(reshape(v, ()), like.type.shape, ())


def dequantized(x: Node, scale: Node, zero: Node | None) -> Node:
    """(x - zero) * scale in f32, both of one element."""
    whole = cast(shifted(x, zero, 0), dt.f32)
    return apply("mul", whole, _one(cast(scale, dt.f32), whole))


def quantized(x: Node, scale: Node, zero: Node | None, t: DType) -> Node:
    """x / scale rounded, shifted and saturated."""
    q = apply("round", apply("div", x, _one(cast(scale, dt.f32), x)))
    q = q if zero is None else apply("add", q, _one(cast(zero, dt.f32), x))
    return saturated(q, t)


@operator("QLinearAdd", "QLinearMul", domain=MICROSOFT)
def qlinear_binary(
    c: Context, a: Node, sa: Node, za: Node | None, b: Node, sb: Node, zb: Node | None, sy: Node, zy: Node | None = None
) -> Node:
    wide = build.pointwise(c.op[7:].lower(), dequantized(a, sa, za), dequantized(b, sb, zb))
    return quantized(wide, sy, zy, a.type.dtype)


def _unary(name: str, f: Callable[[Context, Node], Node]) -> None:
    @operator(name, domain=MICROSOFT)
    def row(c: Context, x: Node, sx: Node, zx: Node | None, sy: Node, zy: Node | None = None) -> Node:
        return quantized(f(c, dequantized(x, sx, zx)), sy, zy, x.type.dtype)


def _softmax(c: Context, x: Node) -> Node:
    """Along one axis, or before opset 13 of the operator that was quantised, along all from it on."""
    axis = c.axis(c.integer("axis", -1), x.type.rank)
    return softmax_of(x, (axis,) if c.integer("opset") >= 13 else tuple(range(axis, x.type.rank)))


def _global_average(c: Context, x: Node) -> Node:
    first = 1 if c.integer("channels_last", 0) else 2
    return build.mean(x, tuple(range(first, first + x.type.rank - 2)), True)


def _average(c: Context, x: Node) -> Node:
    return channels_last(average_pool(c, channels_first(x))) if c.integer("channels_last", 0) else average_pool(c, x)


_unary("QLinearSigmoid", lambda c, x: apply("sigmoid", x))
_unary("QLinearLeakyRelu", lambda c, x: leaky_relu_of(x, c.real("alpha", 0.01)))
_unary("QLinearSoftmax", _softmax)
_unary("QLinearGlobalAveragePool", _global_average)
_unary("QLinearAveragePool", _average)


@operator("QLinearConcat", domain=MICROSOFT)
def qlinear_concat(c: Context, sy: Node, zy: Node, *parts: Node) -> Node:
    """Operands in threes: a tensor, its scale, its zero point."""
    if not parts or len(parts) % 3:
        raise c.broken(f"{len(parts)} operands to join", "three for each tensor")
    wide = [quantized(dequantized(*three), sy, zy, zy.type.dtype) for three in zip(parts[::3], parts[1::3], parts[2::3])]
    return build.concat(wide, c.axis(c.integer("axis"), wide[0].type.rank))


@operator("QLinearWhere", domain=MICROSOFT)
def qlinear_where(
    c: Context, condition: Node, x: Node, sx: Node, zx: Node, y: Node, sy: Node, zy: Node, sz: Node, zz: Node
) -> Node:
    sides = [quantized(dequantized(*three), sz, zz, zz.type.dtype) for three in ((x, sx, zx), (y, sy, zy))]
    return apply("where", *build.aligned(condition, *sides))


@operator("QLinearConv", domain=MICROSOFT)
def qlinear_conv_last(
    c: Context, x: Node, sx: Node, zx: Node, w: Node, sw: Node, zw: Node, sy: Node, zy: Node, bias: Node | None = None
) -> Node:
    """The default domain's operator, of channels-last data if the model says so."""
    if not c.integer("channels_last", 0):
        return qlinear_conv(c, x, sx, zx, w, sw, zw, sy, zy, bias)
    return channels_last(qlinear_conv(c, channels_first(x), sx, zx, w, sw, zw, sy, zy, bias))


def _by_column(v: Node, like: Node) -> Node:
    """A scale of one element, or one for each column of `like`."""
    v = cast(v, dt.f32)
    return _one(v, like) if index.product(v.type.shape) == 1 else build.spread(v, like.type.shape)


def integer_product(a: Node, sa: Node, za: Node | None, b: Node, sb: Node, zb: Node | None) -> Node:
    """The f32 product of quantised operands, exact before it is scaled by row (or all) of a and by column (or all) of b."""
    acc = matmul_of(shifted(a, za, max(a.type.rank - 2, 0)), shifted(b, zb, b.type.rank - 1))
    wide = cast(acc, dt.f32)
    return apply("mul", wide, apply("mul", _by_column(sa, wide), _by_column(sb, wide)))


def _plus(x: Node, bias: Node | None) -> Node:
    return x if bias is None else apply("add", x, build.spread(cast(bias, x.type.dtype), x.type.shape))


@operator("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(
    c: Context, a: Node, b: Node, sa: Node, sb: Node, za: Node | None = None, zb: Node | None = None, bias: Node | None = None
) -> Node:
    return cast(_plus(integer_product(a, sa, za, b, sb, zb), bias), sa.type.dtype)


def quantized_by_range(x: Node) -> tuple[Node, Node, Node]:
    """(x as u8, its scale, its zero point), so that the range of x and zero fills 0 to 255."""
    axes = tuple(range(x.type.rank))
    low, high = (apply("reduce", x, monoid=m, axes=axes) for m in ("min", "max"))
    low, high = with_scalar("min", low, 0), with_scalar("max", high, 0)
    span = apply("sub", high, low)
    scale = apply("where", with_scalar("eq", span, 0), scalar(1, span), with_scalar("div", span, 255))
    zero = apply("round", apply("div", apply("neg", low), scale))
    zero = saturated(zero, dt.u8)
    return quantized(x, scale, zero, dt.u8), scale, zero


@operator("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(c: Context, a: Node, b: Node, sb: Node, zb: Node | None = None, bias: Node | None = None) -> Node:
    q, scale, zero = quantized_by_range(a)
    return _plus(integer_product(q, scale, zero, b, sb, zb), bias)


@operator("QGemm", domain=MICROSOFT)
def qgemm(
    c: Context, a: Node, sa: Node, za: Node, b: Node, sb: Node, zb: Node,
    bias: Node | None = None, sy: Node | None = None, zy: Node | None = None,
) -> Node:  # fmt: skip
    """alpha * a * b + bias (i32, in the product's own scale), quantised if an output scale is given."""
    a = transpose(a, (1, 0)) if c.integer("transA", 0) else a
    b = transpose(b, (1, 0)) if c.integer("transB", 0) else b
    acc = matmul_of(shifted(a, za, 0), shifted(b, zb, 1))
    wide = cast(_plus(acc, bias), dt.f32)
    factor = with_scalar("mul", apply("mul", _by_column(sa, wide), _by_column(sb, wide)), c.real("alpha", 1.0))
    out = apply("mul", wide, factor)
    return out if sy is None else quantized(out, sy, zy, zy.type.dtype if zy is not None else a.type.dtype)


def unpacked(packed: Node, bits: int) -> Node:
    """Bytes [..., n] as [..., n * 8 / bits] integers: the low bits come first."""
    each = 8 // bits
    shape = (*packed.type.shape, each)
    wide = broadcast(packed, shape, tuple(range(packed.type.rank)))
    shifts = build.integers([bits * k for k in range(each)], dt.u8)
    parts = apply("and", apply("shr", wide, broadcast(shifts, shape, (len(shape) - 1,))), full(2**bits - 1, dt.u8, shape))
    return reshape(parts, (*shape[:-2], index.mul(shape[-2], each)))


def _zero_points(zero: Node | None, bits: int, n: int, blocks: int) -> Node:
    """[N, blocks] of f32: packed bytes, numbers of the scales' dtype, or the middle of the range."""
    if zero is None:
        return full(2 ** (bits - 1), dt.f32, (n, blocks))
    if zero.type.dtype.is_float:
        return cast(reshape(zero, (n, blocks)), dt.f32)
    width = -(-blocks * bits // 8)
    codes = unpacked(reshape(zero, (n, width)), bits)
    return cast(build.slice_(codes, (0, 0), (n, blocks)), dt.f32)


def weights_of_blocks(c: Context, packed: Node, scales: Node, zero: Node | None, groups: Node | None) -> Node:
    """[N, K] of f32: (code - zero point) * scale, one pair for each block of K, or for the group that `groups` names."""
    n, k, size, bits = (c.integer(name, default) for name, default in (("N", ...), ("K", ...), ("block_size", ...), ("bits", 4)))
    if bits not in (2, 4, 8) or size < 1:
        raise c.unsupported(f"weights of {bits} bits in blocks of {size}")
    blocks = -(-k // size)
    codes = cast(reshape(unpacked(reshape(packed, (n, blocks, size * bits // 8)), bits), (n, blocks * size)), dt.f32)
    s, z = cast(reshape(scales, (n, blocks)), dt.f32), _zero_points(zero, bits, n, blocks)
    codes = build.slice_(codes, (0, 0), (n, k))
    s, z = (_of_places(v, groups, (n, k), size) for v in (s, z))
    return apply("mul", apply("sub", codes, z), s)


def _of_places(v: Node, groups: Node | None, shape: tuple[int, int], size: int) -> Node:
    """[N, K] from [N, blocks]."""
    if groups is not None:
        return apply("gather", v, build.relabel(groups, shape[1:]), axis=1)
    return repeated(v, 1, size, shape[1])


def repeated(v: Node, axis: int, size: int, count: Dim) -> Node:
    """Each element `size` times along `axis`, cut off after `count`."""
    shape = v.type.shape
    wide = broadcast(v, (*shape[: axis + 1], size, *shape[axis + 1 :]), tuple(a + (a > axis) for a in range(len(shape))))
    return take(reshape(wide, (*shape[:axis], index.mul(shape[axis], size), *shape[axis + 1 :])), axis, 0, count)


@operator("MatMulNBits", domain=MICROSOFT)
def matmul_nbits(
    c: Context,
    a: Node,
    packed: Node,
    scales: Node,
    zero: Node | None = None,
    groups: Node | None = None,
    bias: Node | None = None,
) -> Node:
    """a by the transposed weights, in f32 and rounded once."""
    if c.integer("weight_prepacked", 0):
        raise c.unsupported("weights packed for one library's kernels", "use a model with weight_prepacked = 0")
    if any(d == 0 for d in packed.type.shape):
        raise c.unsupported("a projection without weights")
    weights = transpose(weights_of_blocks(c, packed, scales, zero, groups), (1, 0))
    wide = cast(a, dt.f32)
    out = dot(wide, weights, ((), ()), ((a.type.rank - 1,), (0,)))
    return cast(_plus(out, bias), a.type.dtype)


_FP4 = (0.0, 1 / 192, 2 / 3, 1.0, 1 / 3, 1 / 2, 1 / 6, 1 / 4)  # of the code's low three bits; the high one is the sign
_NF4 = (-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
        -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
        0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0)  # fmt: skip


@operator("MatMulBnb4", domain=MICROSOFT)
def matmul_bnb4(c: Context, a: Node, packed: Node, largest: Node) -> Node:
    """a by weights that are entries of a table of 16 numbers times the largest of their block; the high bits come first."""
    n, k, size, kind = (c.integer(name) for name in ("N", "K", "block_size", "quant_type"))
    if kind not in (0, 1) or size < 1 or min(n, k) < 1:
        raise c.broken(f"{n} by {k} weights of type {kind} in blocks of {size}", "type 0 (FP4) or 1 (NF4)")
    table = constant(np.array(_NF4 if kind else (*_FP4, *(-v for v in _FP4)), np.float32))
    codes = build.flip(reshape(unpacked(packed, 4), (packed.type.shape[0], 2)), (1,))
    flat = take(reshape(codes, (index.mul(packed.type.shape[0], 2),)), 0, 0, n * k)
    factors = repeated(cast(reshape(largest, (-(-n * k // size),)), dt.f32), 0, size, n * k)
    weights = reshape(apply("mul", apply("gather", table, flat, axis=0), factors), (n, k))
    inner = (a.type.rank - 1,), (1 if c.integer("transB", 1) else 0,)
    return cast(dot(cast(a, dt.f32), weights, ((), ()), inner), a.type.dtype)


@operator("MatMulInteger16", domain=MICROSOFT)
def matmul_integer16(c: Context, a: Node, b: Node) -> Node:
    """In 32 bits, unsigned where both operands are."""
    whole = dt.u32 if a.type.dtype == b.type.dtype == dt.u16 else dt.i32
    return matmul_of(cast(a, whole), cast(b, whole))


@operator("GatherBlockQuantized", domain=MICROSOFT)
def gather_block_quantized(c: Context, x: Node, at: Node, scales: Node, zero: Node | None = None) -> Node:
    """Slices of quantised data, then dequantised: one scale and zero point for each block along `quantize_axis`."""
    rank, size, bits = x.type.rank, c.integer("block_size", 128), c.integer("bits", 4)
    gathered, blocked = c.axis(c.integer("gather_axis", 0), rank), c.axis(c.integer("quantize_axis", 1), rank)
    packed = x.type.dtype == dt.u8
    if not x.type.dtype.is_integer or size < 1 or gathered == blocked or (packed and bits not in (2, 4, 8)):
        raise c.unsupported(f"data of type {x.type} in blocks of {size} elements of {bits} bits")
    where = normal_positions(at, x.type.shape[gathered])
    codes, s, z = (None if v is None else apply("gather", v, where, axis=gathered) for v in (x, scales, zero))
    assert codes is not None and s is not None
    if packed and bits < 8:
        codes, z = unpacked(codes, bits), None if z is None else unpacked(z, bits)
    axis = blocked + (at.type.rank - 1 if blocked > gathered else 0)
    wide, blocks = cast(codes, dt.f32), s.type.shape[axis]
    middle = full(2 ** (bits - 1) if packed else 0, dt.f32, s.type.shape)
    z = middle if z is None else cast(take(z, axis, 0, blocks), dt.f32)
    s, z = (repeated(v, axis, size, wide.type.shape[axis]) for v in (cast(s, dt.f32), z))
    return cast(apply("mul", apply("sub", wide, z), s), scales.type.dtype)
