"""asin, acos, atan and atan2, after the argument reductions of fdlibm with one minimax polynomial each."""

from __future__ import annotations

import math

from tcomp.codegen.llvm.vecmath import coefficients as c
from tcomp.codegen.llvm.vecmath.values import Math, Value

# What the element type's nearest value of pi/2 lacks.
HALF_PI_LOW = {"float": -4.371139000186241e-08, "double": float.fromhex("0x1.1a62633145c07p-54")}


def _odd_series(m: Math, x: Value, tail: tuple[float, ...], add: Value | float | None = None) -> Value:
    """`x + (x z P(z) + add)` with z = x^2."""
    z = x * x
    product = m.polynomial(z, tail) * z
    return m.mad(product, x, x) if add is None else x + m.mad(product, x, add)


def atan(m: Math, x: Value) -> Value:
    """The arc tangent."""
    return m.copysign(_atan_ratio(m, m.abs(x), m.const(1.0)), x)


def _atan_ratio(m: Math, y: Value, x: Value) -> Value:
    """atan(y / x) for y >= 0, x > 0, without forming the quotient: tan(t - pi/4) and tan(t - pi/2) are ratios too."""
    above = y > x * math.tan(3 * math.pi / 8)
    middle = y > x * math.tan(math.pi / 8)
    numerator = m.select(above, -x, m.select(middle, y - x, y))
    denominator = m.select(above, y, m.select(middle, y + x, x))
    low = HALF_PI_LOW[m.element]
    high_part = m.select(above, math.pi / 2, m.select(middle, math.pi / 4, m.const(0.0)))
    low_part = m.select(above, low, m.select(middle, low / 2, m.const(0.0)))
    series = _odd_series(m, numerator / denominator, c.ATAN_F32 if m.single else c.ATAN_F64, low_part)
    return high_part + series


def asin(m: Math, x: Value) -> Value:
    """x + x^3 P(x^2) up to 1/2, above pi/2 - 2 asin(sqrt((1 - |x|) / 2))."""
    a = m.abs(x)
    small, t = _half_angle(m, a)
    series = _odd_series(m, t, _asin_tail(m))
    large = m.mad(series, -2.0, HALF_PI_LOW[m.element]) + math.pi / 2
    return m.copysign(m.select(small, series, large), x)


def acos(m: Math, x: Value) -> Value:
    """pi/2 - asin(x) up to 1/2 in magnitude, 2 asin(sqrt((1 - |x|) / 2)) or its complement to pi above."""
    small, t = _half_angle(m, m.abs(x))
    series = _odd_series(m, t, _asin_tail(m))
    low = HALF_PI_LOW[m.element]
    middle = (low - m.copysign(series, x)) + math.pi / 2
    double = series * 2.0
    outer = m.select(x < 0.0, ((2 * low) - double) + math.pi, double)
    return m.select(small, middle, outer)


def _asin_tail(m: Math) -> tuple[float, ...]:
    return c.ASIN_F32 if m.single else c.ASIN_F64


def _half_angle(m: Math, a: Value) -> tuple[Value, Value]:
    """The mask of a <= 1/2 and the argument of the series; NaN beyond 1."""
    small = a <= 0.5
    return small, m.select(small, a, m.sqrt((1.0 - a) * 0.5))


def atan2(m: Math, y: Value, x: Value) -> Value:
    """The angle of (x, y), C99's values for zeros and infinities."""
    a, b = m.abs(y), m.abs(x)
    same = a.eq(b)  # 0 by 0 and infinity by infinity count as 0 / 1 and 1 / 1
    a_safe = m.select(same, m.select(a.eq(0.0), 0.0, m.const(1.0)), a)
    b_safe = m.select(same, 1.0, b)
    swap = a_safe > b_safe
    ratio = m.select(swap, b_safe, a_safe) / m.select(swap, a_safe, b_safe)
    angle = _atan_ratio(m, ratio, m.const(1.0))
    low = HALF_PI_LOW[m.element]
    angle = m.select(swap, (low - angle) + math.pi / 2, angle)
    negative = m.bits(x) < 0
    angle = m.select(negative, (2 * low - angle) + math.pi, angle)
    result = m.copysign(angle, y)
    return m.select(y.unordered(x), math.nan, result)
