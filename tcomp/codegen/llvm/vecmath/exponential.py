"""exp and its relatives: `e^x = 2^n e^r` with `n = round(x / ln 2)`, `r` reduced in two steps (Cody and Waite), a
minimax polynomial for `e^r`, and a scaling by `2^n` that rounds a subnormal result once."""

from __future__ import annotations

import math

from tcomp.codegen.llvm.vecmath import coefficients as c
from tcomp.codegen.llvm.vecmath.avx512 import scalef
from tcomp.codegen.llvm.vecmath.values import Math, Value

LOG2E = math.log2(math.e)
# ln 2 as a head short enough for exact products with n, and the rest (the constants of fdlibm's e_exp.c, e_expf.c).
LN2_HIGH = {"float": 0.693145751953125, "double": float.fromhex("0x1.62e42feep-1")}
LN2_LOW = {"float": 1.42860682e-06, "double": float.fromhex("0x1.a39ef35793c76p-33")}
# Below the lower bound e^x rounds to 0, above the upper one to infinity.
EXP_RANGE = {"float": (-104.5, 89.0), "double": (-746.0, 710.0)}
EXP2_RANGE = {"float": (-151.0, 129.0), "double": (-1076.0, 1025.0)}
# A bound where e^x / 2 is infinite and 2^(n-2) is not.
HALF_EXP_LIMIT = {"float": 89.5, "double": 710.6}
# Above it tanh(x) rounds to 1 (as the argument 2x of expm1).
TANH_LIMIT = {"float": 20.0, "double": 40.0}
# Below it expm1(x) rounds to -1.
EXPM1_LOWEST = {"float": -20.0, "double": -40.0}


def clamp(m: Math, x: Value, bounds: tuple[float, float]) -> Value:
    """`x` within the bounds; NaN stays."""
    return m.at_least(m.at_most(x, bounds[1]), bounds[0])


def reduce_ln2(m: Math, x: Value) -> tuple[Value, Value, Value]:
    """x = n ln2 + r: (n in the low bits of a float, n, r)."""
    shifted, n = m.round_scaled(x, LOG2E)
    r = m.mad(n, -LN2_LOW[m.element], m.mad(n, -LN2_HIGH[m.element], x))
    return shifted, n, r


def scale(m: Math, p: Value, shifted: Value, n: Value) -> Value:
    """`p * 2^n` for p near 1 and any n that `round_scaled` gave, rounded once where it is subnormal."""
    if scaled := scalef(m, p, n):
        return scaled
    if m.single:
        whole = m.bits(shifted) - m.format.magic_bits
        half = whole >> 1
        rest = whole - half
        first, second = (m.from_bits((k << 23) + (127 << 23)) for k in (half, rest))
        return (p * first) * second
    half_shifted, half_n = m.round_scaled(n, 0.5)
    rest_shifted = (n - half_n) + m.format.magic
    return (p * m.power_of_two(half_shifted)) * m.power_of_two(rest_shifted)


def exp_reduced(m: Math, r: Value) -> Value:
    """`e^r` for |r| <= ln2 / 2."""
    q = m.polynomial(r, c.EXP_SHORT_F32 if m.single else c.EXP_F64)
    return m.mad(m.mad(q, r, 1.0), r, 1.0)


def exp(m: Math, x: Value) -> Value:
    """e^x."""
    shifted, n, r = reduce_ln2(m, clamp(m, x, EXP_RANGE[m.element]))
    return scale(m, exp_reduced(m, r), shifted, n)


def exp2(m: Math, x: Value) -> Value:
    """2^x; exact for integers."""
    x = clamp(m, x, EXP2_RANGE[m.element])
    shifted, n = m.round_scaled(x, 1.0)
    r = x - n
    p = m.mad(m.polynomial(r, c.EXP2_F32 if m.single else c.EXP2_F64), r, 1.0)
    return scale(m, p, shifted, n)


def expm1_reduced(m: Math, r: Value) -> Value:
    """`e^r - 1` for |r| <= ln2 / 2."""
    return m.mad(m.polynomial(r, c.EXP_F32 if m.single else c.EXP_F64), r * r, r)


def expm1(m: Math, x: Value) -> Value:
    """e^x - 1: `2 (2^(n-1) p + (2^(n-1) - 1/2))` with `p = e^r - 1`, so that nothing overflows early."""
    clamped = clamp(m, x, (EXPM1_LOWEST[m.element], EXP_RANGE[m.element][1]))
    _, n, r = reduce_ln2(m, clamped)
    p = expm1_reduced(m, r)
    half_power = m.power_of_two((n - 1.0) + m.format.magic)
    scaled = m.mad(half_power, p, half_power - 0.5) * 2.0
    return m.copysign(m.select(n.eq(0.0), p, scaled), x)


def _expm1_magnitude(m: Math, x: Value, limit: float) -> Value:
    """e^x - 1 for x >= 0, with x cut at `limit` (where `2^n` is still finite)."""
    shifted, _, r = reduce_ln2(m, m.at_most(x, limit))
    power = m.power_of_two(shifted)
    return m.mad(power, expm1_reduced(m, r), power - 1.0)


def tanh(m: Math, x: Value) -> Value:
    """`E / (E + 2)` with `E = expm1(2 |x|)`: no cancellation anywhere. f32 has a polynomial below 0.27, where two ulp
    would not do for the quotient."""
    a = m.abs(x)
    shifted, _, r = reduce_ln2(m, m.at_most(a * 2.0, TANH_LIMIT[m.element]))
    power = m.power_of_two(shifted)
    p = m.mad(m.polynomial(r, c.EXP_SHORT_F32), r * r, r) if m.single else expm1_reduced(m, r)
    e = m.mad(power, p, power - 1.0)
    quotient = e / (e + 2.0)
    if not m.single:
        return m.copysign(quotient, x)
    square = a * a
    small = m.mad(m.polynomial(square, c.TANH_F32) * square, a, a)
    return m.copysign(m.select(a < 0.27, small, quotient), x)


def sigmoid(m: Math, x: Value) -> Value:
    """`1 / (1 + e^-|x|)`, times `e^-|x|` for negative x: right down to the subnormals."""
    e = exp(m, -m.abs(x))
    return m.select(x < 0.0, e, m.const(1.0)) / (e + 1.0)


def _half_exp(m: Math, x: Value) -> tuple[Value, Value]:
    """e^x / 2 for x >= 0 as a factor of at most 2.83 and a power of two, so that it overflows only where it must."""
    _, n, r = reduce_ln2(m, m.at_most(x, HALF_EXP_LIMIT[m.element]))
    return exp_reduced(m, r) * 2.0, m.power_of_two((n - 2.0) + m.format.magic)


def sinh(m: Math, x: Value) -> Value:
    """`(E + E / (E + 1)) / 2` with `E = expm1(|x|)`; e^|x| / 2 where that is the same."""
    a = m.abs(x)
    large = m.pick(12.0, 24.0)
    e = _expm1_magnitude(m, a, large)
    small = (e + e / (e + 1.0)) * 0.5
    factor, power = _half_exp(m, a)
    result = m.select(a > large, factor * power, small)
    return m.copysign(m.select(a < m.pick(2.0**-13, 2.0**-27), a, result), x)


def cosh(m: Math, x: Value) -> Value:
    """`(e^|x| + e^-|x|) / 2`, the second from the reciprocal of the first."""
    factor, power = _half_exp(m, m.abs(x))
    half = factor * power
    return half + 0.25 / half
