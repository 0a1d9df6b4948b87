"""pow, cbrt.

pow is `exp(y log|x|)` with the logarithm in about 66 bits: in f64 as a pair of doubles (`s = (m - 1) / (m + 1)` and the
series of 2 atanh(s), its first two terms in pairs, as in fdlibm's e_pow.c), in f32 simply in f64.
"""

from __future__ import annotations

import math

from tcomp.codegen.llvm.vecmath import coefficients as c
from tcomp.codegen.llvm.vecmath.exponential import LN2_HIGH, LN2_LOW, exp_reduced, reduce_ln2, scale
from tcomp.codegen.llvm.vecmath.logarithm import split_exponent
from tcomp.codegen.llvm.vecmath.rounding import trunc
from tcomp.codegen.llvm.vecmath.values import Math, Value

# ln 2 as 42 bits (exact times an exponent) and the rest; 2/3 as a pair.
TWO_THIRDS_LOW = float.fromhex("0x1.5555555555555p-55")
# |y log|x|| above it overflows or vanishes in both formats.
EXPONENT_LIMIT = 800.0


def pow(m: Math, x: Value, y: Value) -> Value:
    """x^y with C99's special values; exact squares and powers of 1."""
    a = m.abs(x)
    ordinary = (a > 0.0) & (a < math.inf)
    base = m.select(ordinary, a, m.const(1.0))
    size = _power_single(m, base, y) if m.single else _power_double(m, base, y)
    return _with_special_values(m, x, y, m.select(y.eq(2.0), x * x, size))


def _with_special_values(m: Math, x: Value, y: Value, size: Value) -> Value:
    """The result for all x and y from |x|^y for positive finite |x| and finite y."""
    a = m.abs(x)
    vanishes = (a < 1.0) ^ (y < 0.0)
    limit = m.select(vanishes, 0.0, m.const(math.inf))
    extreme = a.eq(0.0) | a.eq(math.inf) | m.abs(y).eq(math.inf)
    size = m.select(extreme, m.select(a.eq(1.0), 1.0, limit), size)
    whole = trunc(m, y).eq(y)
    half = y * 0.5
    odd = whole & trunc(m, half).ne(half)
    below = m.bits(x) < 0
    size = m.select(below & odd, -size, size)
    size = m.select((x < 0.0) & (x > -math.inf) & ~whole, math.nan, size)
    size = m.select(x.unordered(y), math.nan, size)
    return m.select(x.eq(1.0) | y.eq(0.0), 1.0, size)


def _power_single(m: Math, base: Value, y: Value) -> Value:
    """In double, all of it: an error of 2^-37 before the final rounding."""
    w = m.widened()
    k, mantissa = split_exponent(w, m.cast("fpext", base, "double"))
    s = (mantissa - 1.0) / (mantissa + 1.0)
    z = s * s
    log = w.mad(z * s, w.polynomial(z, c.ATANH_FOR_SINGLE_F64), s * 2.0)
    product = m.cast("fpext", y, "double") * w.mad(log, 1.0 / math.log(2.0), k)
    product = w.at_least(w.at_most(product, EXPONENT_LIMIT), -EXPONENT_LIMIT)
    shifted, n = w.round_scaled(product, 1.0)
    r = product - n
    p = w.mad(w.polynomial(r, c.EXP2_FOR_SINGLE_F64), r, 1.0)
    return m.cast("fptrunc", p * w.power_of_two(shifted), "float")


def _power_double(m: Math, base: Value, y: Value) -> Value:
    """The product with y and the exponential of a pair."""
    y = m.at_least(m.at_most(y, 2.0**80), -(2.0**80))  # keeps the pairs finite; beyond it the result is 0, 1 or infinite
    high, low = _log_pair(m, base)
    product, error = m.two_product(high, y)
    tail = m.mad(low, y, error)
    clamped = m.at_least(m.at_most(product, EXPONENT_LIMIT), -EXPONENT_LIMIT)
    tail = m.select(clamped.eq(product), tail, 0.0)
    shifted, n, r = reduce_ln2(m, clamped)
    return scale(m, exp_reduced(m, r + tail), shifted, n)


def _log_pair(m: Math, x: Value) -> tuple[Value, Value]:
    """log(x) as head and tail, to about 2^-66."""
    k, mantissa = split_exponent(m, x)
    f = mantissa - 1.0
    high, low = _log_mantissa_pair(m, f, mantissa)
    first, first_low = m.two_sum(k * LN2_HIGH["double"], high)
    return m.fast_two_sum(first, first_low + m.mad(k, LN2_LOW["double"], low))


def _log_mantissa_pair(m: Math, f: Value, mantissa: Value) -> tuple[Value, Value]:
    """log(1 + f) = 2 s + s (2/3 z + z^2 P(z)) with s = f / (2 + f) and z = s^2, s and z as pairs."""
    denominator, denominator_low = m.fast_two_sum(m.const(2.0), f)
    s = f / denominator
    back, back_low = m.two_product(s, denominator)
    s_low = (((f - back) - back_low) - s * denominator_low) / denominator
    z, z_low = m.two_product(s, s)
    z_low = m.mad(s * 2.0, s_low, z_low)
    third, third_low = m.two_product(z, 2.0 / 3.0)
    third_low = third_low + m.mad(z, TWO_THIRDS_LOW, z_low * (2.0 / 3.0))
    third, third_low = m.fast_two_sum(third, m.mad(z * z, m.polynomial(z, c.ATANH_LONG_F64), third_low))
    rest, rest_low = m.two_product(s, third)
    rest_low = rest_low + m.mad(s, third_low, s_low * third)
    head, tail = m.fast_two_sum(s * 2.0, rest)
    return head, tail + m.mad(s_low, 2.0, rest_low)


def cbrt(m: Math, x: Value) -> Value:
    """The cube root: a third of the exponent's bits, a quadratic start, then Newton's steps in f64 (f32 too)."""
    if m.single:
        wide = m.widened()
        return m.cast("fptrunc", _cbrt_double(wide, m.cast("fpext", x, "double"), steps=1), "float")
    return _cbrt_double(m, x, steps=2)


def _cbrt_double(m: Math, x: Value, steps: int) -> Value:
    """Halley's iteration triples the digits: 2^-4.7, 2^-15, 2^-46; a last step of Newton's rounds."""
    a = m.abs(x)
    ordinary = (a > 0.0) & (a < math.inf)
    k, mantissa = split_exponent(m, m.select(ordinary, a, 1.0))
    _, third = m.round_scaled(k, 1.0 / 3.0)
    shifted = third + m.format.magic
    rest = m.mad(third, -3.0, k)  # -1, 0 or 1
    power = m.select(rest > 0.5, 2.0, m.select(rest < -0.5, 0.5, m.const(1.0)))
    scaled = mantissa * power
    root = m.polynomial(scaled, CBRT_START)
    for _ in range(steps):
        cube = root * root * root
        root = root * (m.mad(scaled, 2.0, cube) / m.mad(cube, 2.0, scaled))
    root = root - (root - scaled / (root * root)) * (1.0 / 3.0)
    return m.copysign(m.select(ordinary, root * m.power_of_two(shifted), a), x)


# A least-squares quadratic of the cube root on [0.35, 2.83].
CBRT_START = (0.56599, 0.49670, -0.07229)
