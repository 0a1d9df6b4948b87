"""Logarithms: `x = 2^k (1 + f)` with 1 + f in [sqrt(1/2), sqrt(2)), and log(1 + f) as a head and a tail.

f64 follows fdlibm's e_log.c (`s = f / (2 + f)`, a polynomial in s^2), f32 a polynomial in f without a division (the
form of Cephes' logf). The tail keeps what rounding would lose, for the bases 2 and 10 and for log1p.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

from tcomp.codegen.llvm.vecmath import coefficients as c
from tcomp.codegen.llvm.vecmath.exponential import LN2_HIGH, LN2_LOW
from tcomp.codegen.llvm.vecmath.values import Math, Value

# The bits of sqrt(1/2).
SQRT_HALF = {"float": 0x3F3504F3, "double": 0x3FE6A09E667F3BCD}
LOG2_10 = math.log2(10.0)


@dataclass(frozen=True, slots=True)
class Parts:
    """log(x) = k ln 2 + (f - half_square) + tail."""

    k: Value
    f: Value
    half_square: Value
    tail: Value


def split_exponent(m: Math, x: Value) -> tuple[Value, Value]:
    """x = 2^k y for positive finite x, y in [sqrt(1/2), sqrt(2)), k as a float; subnormals are scaled up first."""
    fmt = m.format
    tiny = x < fmt.smallest_normal
    bits = m.bits(m.select(tiny, x * 2.0 ** (fmt.mantissa + 2), x))
    bias = m.select(tiny, float(-fmt.mantissa - 2), m.const(0.0))
    from_root = bits - SQRT_HALF[m.element]
    y = m.from_bits((from_root & ((1 << fmt.mantissa) - 1)) + SQRT_HALF[m.element])
    return _small_int_to_float(m, from_root) + bias, y


def _small_int_to_float(m: Math, from_root: Value) -> Value:
    """The exponent field of `from_root`, as a float. Doubles avoid 64-bit shifts and conversions, slow before AVX-512:
    the biased field is dropped into the low bits of 2^52."""
    fmt = m.format
    if m.single:
        return m.cast("sitofp", from_root >> fmt.mantissa, m.element)
    biased = (from_root + (1024 << fmt.mantissa)).logical_shift(fmt.mantissa)
    return m.from_bits(biased | 0x4330000000000000) - (2.0**52 + 1024.0)


def log_parts(m: Math, x: Value) -> Parts:
    """The pieces of log(x) for positive finite x."""
    k, y = split_exponent(m, x)
    f = y - 1.0
    half_square = f * f * 0.5
    if m.single:
        return Parts(k, f, half_square, (f * f) * f * m.polynomial(f, c.LOG_F32))
    s = f / (f + 2.0)
    z = s * s
    return Parts(k, f, half_square, s * (half_square + z * m.polynomial(z, c.ATANH_F64)))


def _special(m: Math, x: Value, result: Value) -> Value:
    """The values of every logarithm at 0, below 0, at infinity and NaN."""
    result = m.select(x.eq(math.inf), x, result)
    result = m.select(x.eq(0.0), -math.inf, result)
    return m.select(x.not_at_least(0.0), math.nan, result)


def log(m: Math, x: Value) -> Value:
    """The natural logarithm."""
    p = log_parts(m, x)
    tail = p.half_square - m.mad(p.k, LN2_LOW[m.element], p.tail)
    return _special(m, x, m.mad(p.k, LN2_HIGH[m.element], p.f - tail))


def _in_base(m: Math, x: Value, factor: float, k_factor: float) -> Value:
    """`k * k_factor + log(1 + f) * factor`, the product from a head of half the bits and the rest."""
    p = log_parts(m, x)
    head = truncated(m, p.f - p.half_square)
    tail = ((p.f - head) - p.half_square) + p.tail
    factor_head = short(m, factor)
    low = m.mad(tail + head, m.const(factor - factor_head), tail * factor_head)
    if k_factor == 1.0:
        total, error = m.fast_two_sum(p.k, head * factor_head)
        return _special(m, x, total + (error + low))
    k_head = short(m, k_factor)
    low = m.mad(p.k, k_factor - k_head, low)
    total, error = m.fast_two_sum(p.k * k_head, head * factor_head)
    return _special(m, x, total + (error + low))


def truncated(m: Math, x: Value) -> Value:
    """x cut to half of its mantissa."""
    keep = m.pick(12, 27)
    return m.from_bits(m.bits(x) & -(1 << int(keep)))


def short(m: Math, value: float) -> float:
    """A constant cut to half of the element's mantissa: its products with `truncated` values are exact."""
    bits = struct.unpack("<Q", struct.pack("<d", value))[0] & -(1 << (42 if m.single else 27))
    return float(struct.unpack("<d", struct.pack("<Q", bits & (2**64 - 1)))[0])


def log2(m: Math, x: Value) -> Value:
    """The logarithm to base 2; exact for powers of two."""
    return _in_base(m, x, 1.0 / math.log(2.0), 1.0)


def log10(m: Math, x: Value) -> Value:
    """The logarithm to base 10."""
    return _in_base(m, x, 1.0 / math.log(10.0), 1.0 / LOG2_10)


def log1p(m: Math, x: Value) -> Value:
    """log(1 + x): the logarithm of the rounded sum u, plus error / u."""
    u, error = m.two_sum(1.0, x)
    p = log_parts(m, u)
    tail = p.half_square - (m.mad(p.k, LN2_LOW[m.element], p.tail) + error / u)
    result = m.mad(p.k, LN2_HIGH[m.element], p.f - tail)
    return m.copysign(_special(m, u, result), x)


def asinh(m: Math, x: Value) -> Value:
    """`log1p(a + a^2 / (1 + sqrt(1 + a^2)))` of the magnitude; log(2a) where a^2 would overflow."""
    a = m.abs(x)
    large = a > m.pick(2.0**14, 2.0**30)
    near = m.select(large, 1.0, a)
    square = near * near
    argument = near + square / (m.sqrt(square + 1.0) + 1.0)
    return m.copysign(_log1p_or_log_double(m, large, argument, a), x)


def acosh(m: Math, x: Value) -> Value:
    """`log1p(t + sqrt(2t + t^2))` with t = x - 1; log(2x) where t^2 would overflow."""
    large = x > m.pick(2.0**14, 2.0**30)
    t = m.select(large, 1.0, x) - 1.0
    argument = t + m.sqrt(m.mad(t, t, t * 2.0))
    return m.select(x.not_at_least(1.0), math.nan, _log1p_or_log_double(m, large, argument, x))


def _log1p_or_log_double(m: Math, large: Value, argument: Value, x: Value) -> Value:
    """log1p(argument), or log(2x) in the lanes of `large`: one logarithm serves both."""
    u, error = m.two_sum(1.0, argument)
    u, error = m.select(large, x, u), m.select(large, 0.0, error)
    p = log_parts(m, u)
    k = m.select(large, p.k + 1.0, p.k)
    tail = p.half_square - (m.mad(k, LN2_LOW[m.element], p.tail) + error / u)
    return _special(m, u, m.mad(k, LN2_HIGH[m.element], p.f - tail))


def atanh(m: Math, x: Value) -> Value:
    """`log1p(2a / (1 - a)) / 2` of the magnitude."""
    a = m.abs(x)
    return m.copysign(log1p(m, (a * 2.0) / (1.0 - a)) * 0.5, x)
