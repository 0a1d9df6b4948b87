"""Storage types in arithmetic: conversions to and from small floats and integers, by their bits.

Takes values of a storage dtype (see `DType.is_storage`), gives what `cast` means in operations on u8, u32 and f32: nothing after
`decompose` computes with such a dtype, its elements are bytes that are moved. A small float is its sign, then exponent and
mantissa, which count up with its size; so reading one is placing these bits in an f32 and scaling, and making one is rounding the
bits of an f32 where its mantissa ends (subnormals: by adding a float whose unit is theirs, F. Giesen's method).
"""

from __future__ import annotations

from dataclasses import dataclass

from tcomp.ir import dtype as dt
from tcomp.ir.dtype import DType
from tcomp.ir.graph import cast, full
from tcomp.ir.node import Node
from tcomp.ir.ops import apply


@dataclass(frozen=True, slots=True)
class Format:
    """A signed small float. mantissa: bits; bias: of the exponent; top: the code of its largest finite value; beyond: the code of
    what is larger; infinity: the code of infinity, or None; nan: of NaN, which keeps its sign unless `one_zero`.

    one_zero: minus zero does not exist, its code is NaN's.
    """

    bits: int
    mantissa: int
    bias: int
    top: int
    beyond: int
    infinity: int | None
    nan: int | None
    one_zero: bool = False


FORMATS: dict[DType, Format] = {
    dt.f8e4m3fn: Format(8, 3, 7, 0x7E, 0x7F, None, 0x7F),
    dt.f8e5m2: Format(8, 2, 15, 0x7B, 0x7C, 0x7C, 0x7E),
    dt.f8e4m3fnuz: Format(8, 3, 8, 0x7F, 0x80, None, 0x80, True),
    dt.f8e5m2fnuz: Format(8, 2, 16, 0x7F, 0x80, None, 0x80, True),
    dt.f4e2m1: Format(4, 1, 1, 0x7, 0x7, None, None),
}


def converted(x: Node, target: DType) -> Node:
    """`cast` of `x` to `target`, one of which is a storage dtype."""
    if x.type.dtype == target:
        return x
    wide = _read(x) if x.type.dtype.is_storage else x
    if not target.is_storage:
        return cast(wide, target)
    if target.is_integer:
        return _small_integer(cast(wide, dt.i8), target)
    single = cast(wide, dt.f32)
    code = _power_code(single) if target == dt.f8e8m0 else _float_code(single, FORMATS[target])
    return apply("bitcast", cast(code, dt.u8), dtype=target)


def _read(x: Node) -> Node:
    """A value of a storage dtype as i8, u8 or f32."""
    t = x.type.dtype
    if t.is_integer:
        byte = apply("bitcast", x, dtype=dt.i8 if t.kind == "int" else dt.u8)
        return _with("shr", _with("shl", byte, 8 - t.bits), 8 - t.bits)
    code = cast(apply("bitcast", x, dtype=dt.u8), dt.u32)
    return _power(code) if t == dt.f8e8m0 else _float(code, FORMATS[t])


def _with(op: str, x: Node, value: float | int) -> Node:
    return apply(op, x, full(value, x.type.dtype, x.type.shape))


def _float_of(bits: Node) -> Node:
    return apply("bitcast", bits, dtype=dt.f32)


def _chosen(condition: Node, value: float | int, other: Node) -> Node:
    return apply("where", condition, full(value, other.type.dtype, other.type.shape), other)


# --- integers --------------------------------------------------------------------------------------


def _small_integer(x: Node, target: DType) -> Node:
    """The low bits of an i8."""
    return apply("bitcast", _with("and", apply("bitcast", x, dtype=dt.u8), 2**target.bits - 1), dtype=target)


# --- floats ----------------------------------------------------------------------------------------


def _float(code: Node, f: Format) -> Node:
    """The f32 of a code (u32)."""
    below = 2 ** (f.bits - 1)
    code = _with("and", code, 2 * below - 1)
    size, sign = _with("and", code, below - 1), _with("shl", _with("and", code, below), 32 - f.bits)
    scaled = _with("mul", _float_of(_with("shl", size, 23 - f.mantissa)), 2.0 ** (127 - f.bias))
    bits = apply("bitcast", scaled, dtype=dt.u32)
    if f.infinity is not None:
        bits = _chosen(_with("ge", size, f.infinity), 0x7F800000, bits)
        bits = _chosen(_with("gt", size, f.infinity), 0x7FC00000, bits)
    elif f.nan is not None and not f.one_zero:
        bits = _chosen(_with("eq", size, f.nan), 0x7FC00000, bits)
    bits = apply("or", bits, sign)
    return _float_of(_chosen(_with("eq", code, 0x80), 0x7FC00000, bits) if f.one_zero else bits)


def _float_code(x: Node, f: Format) -> Node:
    """The code (u32) of the nearest small float, halves to even; what is too large is `beyond`."""
    bits = apply("bitcast", x, dtype=dt.u32)
    size, shift = _with("and", bits, 0x7FFFFFFF), 23 - f.mantissa
    odd = _with("and", _with("shr", size, shift), 1)
    moved = _with("add", apply("add", size, odd), 2 ** (shift - 1) - 1)
    normal = _with("sub", _with("shr", moved, shift), (127 - f.bias) << f.mantissa)
    unit = 2.0 ** (1 - f.bias - f.mantissa + 23)  # adding it leaves a mantissa that counts subnormals
    counted = apply("bitcast", _with("add", _float_of(size), unit), dtype=dt.u32)
    small = _with("and", counted, 2 ** (f.mantissa + 1) - 1)
    code = apply("where", _with("lt", size, (128 - f.bias) << 23), small, normal)
    code = _chosen(_with("gt", code, f.top), f.beyond, code)
    if f.nan is not None:
        code = _chosen(apply("isnan", x), f.nan, code)
    sign = _with("shl", _with("shr", bits, 31), f.bits - 1)
    if f.one_zero:
        sign = _chosen(_with("eq", code, 0), 0, sign)
    if f.nan is None:
        return _chosen(apply("isnan", x), 0, apply("or", code, sign))
    return apply("or", code, sign)


def _power(code: Node) -> Node:
    """The f32 of an e8m0 code (u32): a power of two from 2^-127, or NaN."""
    bits = _chosen(_with("eq", code, 0), 0x400000, _with("shl", code, 23))
    return _float_of(_chosen(_with("eq", code, 255), 0x7FC00000, bits))


def _power_code(x: Node) -> Node:
    """The code of the nearest power of two, halves up; NaN for what is none, zero and negative numbers included."""
    bits = apply("bitcast", x, dtype=dt.u32)
    near = _chosen(_with("le", bits, 0x400000), 0, _with("shr", _with("add", bits, 0x400000), 23))  # as ml_dtypes: 2^-127
    return _chosen(apply("not", _with("gt", x, 0.0)), 255, _with("min", near, 255))
