"""What ufuncs without an operation of their own are made of. Each takes nodes of the loop's dtypes and one shape."""

from __future__ import annotations

import math
from collections.abc import Callable

from tcomp.ir import dtype as dt
from tcomp.ir.dtype import DType
from tcomp.ir.graph import cast, full
from tcomp.ir.node import Node
from tcomp.ir.ops import apply

_SAME_BITS: dict[int, DType] = {8: dt.i8, 16: dt.i16, 32: dt.i32, 64: dt.i64}


def like(x: Node, value: float) -> Node:
    """`value` in the dtype and shape of `x`."""
    return full(value, x.type.dtype, x.type.shape)


def rounding(op: str) -> Callable[[Node], Node]:
    """`op` of floats; integers are their own rounding."""
    return lambda x: apply(op, x) if x.type.dtype.is_float else x


def float_test(op: str, of_integers: bool) -> Callable[[Node], Node]:
    """`op` of floats; of integers a constant."""
    return lambda x: apply(op, x) if x.type.dtype.is_float else full(of_integers, dt.bool_, x.type.shape)


def scaled(factor: float) -> Callable[[Node], Node]:
    return lambda x: apply("mul", x, like(x, factor))


def comparison(op: str) -> Callable[[Node, Node], Node]:
    """`op` of two operands of one dtype, or of int64 and uint64, compared as integers."""

    def call(x: Node, y: Node) -> Node:
        if x.type.dtype == y.type.dtype:
            return apply(op, x, y)
        signed = x if x.type.dtype == dt.i64 else y
        below = apply("lt", signed, like(signed, 0))
        answer = _COMPARED[op](-1, 0) if signed is x else _COMPARED[op](0, -1)
        return apply("where", below, full(answer, dt.bool_, x.type.shape), apply(op, cast(x, dt.u64), cast(y, dt.u64)))

    return call


_COMPARED: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def sign(x: Node) -> Node:
    """NumPy's sign of a zero is +0: the sum with 0 drops the minus."""
    r = apply("sign", x)
    return apply("add", r, like(x, 0.0)) if x.type.dtype.is_float else r


def signbit(x: Node) -> Node:
    bits = _bits(x)
    return apply("lt", bits, like(bits, 0))


def _bits(x: Node) -> Node:
    return apply("bitcast", x, dtype=_SAME_BITS[x.type.dtype.bits])


def copysign(x: Node, y: Node) -> Node:
    a, b = _bits(x), _bits(y)
    width = x.type.dtype.bits
    magnitude = apply("and", a, like(a, 2 ** (width - 1) - 1))
    return apply("bitcast", apply("or", magnitude, apply("and", b, like(b, -(2 ** (width - 1))))), dtype=x.type.dtype)


def nextafter(x: Node, y: Node) -> Node:
    """The bits of x one step up or down: away from zero where y lies further out, towards it where not."""
    bits = _bits(x)
    outwards = apply("eq", apply("gt", y, x), apply("gt", x, like(x, 0)))
    step = apply("where", outwards, like(bits, 1), like(bits, -1))
    moved = apply("bitcast", apply("add", bits, step), dtype=x.type.dtype)
    least = copysign(apply("bitcast", like(bits, 1), dtype=x.type.dtype), y)
    moved = apply("where", apply("eq", x, like(x, 0)), least, moved)
    moved = apply("where", apply("eq", x, y), y, moved)
    either = apply("or", apply("isnan", x), apply("isnan", y))
    return apply("where", either, apply("add", x, y), moved)


def heaviside(x: Node, y: Node) -> Node:
    zero, one = like(x, 0), like(x, 1)
    step = apply("where", apply("lt", x, zero), zero, apply("where", apply("eq", x, zero), y, one))
    return apply("where", apply("isnan", x), x, step)


def reciprocal(x: Node) -> Node:
    return apply("div" if x.type.dtype.is_float else "quotient", like(x, 1), x)


def fmax(x: Node, y: Node) -> Node:
    return _ignoring_nan("max", x, y)


def fmin(x: Node, y: Node) -> Node:
    return _ignoring_nan("min", x, y)


def _ignoring_nan(op: str, x: Node, y: Node) -> Node:
    best = apply(op, x, y)
    if not x.type.dtype.is_float:
        return best
    return apply("where", apply("isnan", x), y, apply("where", apply("isnan", y), x, best))


def _in_f64(f: Callable[..., Node]) -> Callable[..., Node]:
    """Computed in float64, which holds squares and sums of narrower floats exactly enough, and rounded once."""

    def call(*nodes: Node) -> Node:
        return cast(f(*(cast(n, dt.f64) for n in nodes)), nodes[0].type.dtype)

    return call


@_in_f64
def ldexp(x: Node, n: Node) -> Node:
    """x * 2**n in two halves, so that neither power overflows before the product does; zeros and infinities stay."""
    half = apply("floor", apply("mul", n, like(n, 0.5)))
    moved = x
    for part in (half, apply("sub", n, half)):
        moved = apply("mul", moved, apply("exp2", part))
    special = apply("or", apply("eq", x, like(x, 0)), apply("not", apply("isfinite", x)))
    return apply("where", special, x, moved)


@_in_f64
def cbrt(x: Node) -> Node:
    """The power, with one step of Newton's to its last bits; zeros and infinities are their own roots."""
    size = apply("abs", x)
    root = apply("pow", size, like(x, 1 / 3))
    excess = apply("sub", apply("mul", apply("mul", root, root), root), size)
    slope = apply("mul", like(x, 3), apply("mul", root, root))
    better = apply("sub", root, apply("div", excess, slope))
    special = apply("or", apply("eq", x, like(x, 0)), apply("not", apply("isfinite", x)))
    return apply("where", special, x, copysign(better, x))


@_in_f64
def hypot(x: Node, y: Node) -> Node:
    """The larger leg times sqrt(1 + ratio squared): nothing overflows before the result does. An infinite leg wins over NaN."""
    a, b = apply("abs", x), apply("abs", y)
    large, small = apply("max", a, b), apply("min", a, b)
    ratio = apply("div", small, large)
    root = apply("sqrt", apply("add", like(x, 1), apply("mul", ratio, ratio)))
    length = apply("where", apply("eq", large, like(x, 0)), large, apply("mul", large, root))
    endless = apply("or", apply("isinf", x), apply("isinf", y))
    return apply("where", endless, like(x, math.inf), length)


def logaddexp(x: Node, y: Node) -> Node:
    return _log_of_sum(x, y, "exp", lambda e: apply("log1p", e), math.log(2))


def logaddexp2(x: Node, y: Node) -> Node:
    factor = 1 / math.log(2)
    return _log_of_sum(x, y, "exp2", lambda e: apply("mul", apply("log1p", e), like(e, factor)), 1.0)


def _log_of_sum(x: Node, y: Node, power: str, log1p: Callable[[Node], Node], of_two: float) -> Node:
    """log(e**x + e**y) by the larger one; equal operands (infinite ones too) give themselves plus log 2."""
    gap = apply("neg", apply("abs", apply("sub", x, y)))
    apart = apply("add", apply("max", x, y), log1p(apply(power, gap)))
    return apply("where", apply("eq", x, y), apply("add", x, like(x, of_two)), apply_nan(apart, x, y))


def apply_nan(r: Node, x: Node, y: Node) -> Node:
    """`r`, or NaN where an operand is."""
    either = apply("or", apply("isnan", x), apply("isnan", y))
    return apply("where", either, apply("add", x, y), r)


def bitwise_count(x: Node) -> Node:
    """Ones of |x|: added up in fields of 2, 4 and 8 bits, then all bytes by one product."""
    t = x.type.dtype
    wide = cast(x if t.kind != "int" else apply("abs", x), _unsigned(t))
    wide = cast(wide, dt.u64)

    def field(v: Node, shift: int, mask: int) -> Node:
        return apply("and", apply("shr", v, like(v, shift)), like(v, mask))

    pairs = apply("sub", wide, field(wide, 1, 0x5555555555555555))
    fours = apply("add", field(pairs, 0, 0x3333333333333333), field(pairs, 2, 0x3333333333333333))
    bytes_ = field(apply("add", fours, apply("shr", fours, like(fours, 4))), 0, 0x0F0F0F0F0F0F0F0F)
    return cast(apply("shr", apply("mul", bytes_, like(bytes_, 0x0101010101010101)), like(bytes_, 56)), dt.u8)


def _unsigned(t: DType) -> DType:
    return {8: dt.u8, 16: dt.u16, 32: dt.u32, 64: dt.u64}[t.bits] if t.kind == "int" else t
