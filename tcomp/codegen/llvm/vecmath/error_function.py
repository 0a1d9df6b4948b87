"""erf and erfc.

f32 erf takes `x + x P(x^2)` below 0.92 and `1 - exp(-x Q(x))` above (N. Juffa's split); with AVX-512 one of 32
polynomials of erf(x)/x, whose coefficients are looked up in registers. f64 takes `x + x P(x^2)` below
1 and `exp(-x^2) erfcx(x)` above, erfcx a polynomial in `(x - 4) / (x + 4)` (M. Schonfelder, Math. Comp. 32, 1978).
"""

from __future__ import annotations

from tcomp.codegen.llvm.vecmath import coefficients as c
from tcomp.codegen.llvm.vecmath.avx512 import look_up
from tcomp.codegen.llvm.vecmath.exponential import EXP_RANGE, exp, exp_reduced, reduce_ln2, scale
from tcomp.codegen.llvm.vecmath.values import Math, Value


def erf(m: Math, x: Value) -> Value:
    """The error function."""
    return _erf_single(m, x) if m.single else _erf_double(m, x)


def _erf_single(m: Math, x: Value) -> Value:
    if looked_up := _erf_table(m, x):
        return looked_up
    a = m.abs(x)
    square = x * x
    small = m.mad(m.polynomial(square, c.ERF_SMALL_F32), x, x)
    cut = m.at_most(a, 3.95)
    shifted, _, r = reduce_ln2(m, -(cut * m.polynomial(cut, c.ERF_LARGE_F32)))
    large = 1.0 - exp_reduced(m, r) * m.power_of_two(shifted)
    return m.select(a < 0.92, small, m.copysign(large, x))


def _erf_table(m: Math, x: Value) -> Value | None:
    """x P_i(d) with i = round(8 |x|), d = |x| - i/8; None where there is no such look-up."""
    cut = m.at_most(m.abs(x), 3.925)  # up to it i <= 31; there the result is 1
    shifted, i = m.round_scaled(cut, 8.0)
    index = m.bits(shifted)  # its low five bits are i
    rows = [look_up(m, index, row) for row in c.ERF_TABLE_F32]
    d = m.mad(i, -0.125, cut)
    result = rows[-1]
    for row in reversed(rows[:-1]):
        if result is None or row is None:
            return None
        result = m.mad(result, d, row)
    return None if result is None else m.copysign(result * cut, x)


def _erf_double(m: Math, x: Value) -> Value:
    a = m.abs(x)
    small = m.mad(m.polynomial(x * x, c.ERF_F64), x, x)
    cut = m.at_most(a, 6.0)
    large = 1.0 - exp(m, -(cut * cut)) * _erfcx(m, cut)
    return m.select(a < 1.0, small, m.copysign(large, x))


def _erfcx(m: Math, a: Value) -> Value:
    """exp(a^2) erfc(a) for a in [0.75, 32]."""
    t = (a - 4.0) / (a + 4.0)
    return m.polynomial(t, c.ERFCX_F64) / m.mad(a, 2.0, 1.0)


def erfc(m: Math, x: Value) -> Value:
    """1 - erf(x) without cancellation."""
    if not m.single:
        return _erfc_double(m, x)
    wide = m.widened()
    return m.cast("fptrunc", _erfc_double(wide, m.cast("fpext", x, "double")), "float")


def _erfc_double(m: Math, x: Value) -> Value:
    a = m.abs(x)
    cut = m.at_most(a, 28.0)
    square, error = m.two_product(cut, cut)
    low, _ = EXP_RANGE[m.element]
    shifted, n, r = reduce_ln2(m, m.at_least(-square, low))
    upper = scale(m, exp_reduced(m, r - error) * _erfcx(m, m.at_least(cut, 0.75)), shifted, n)
    large = m.select(x < 0.0, 2.0 - upper, upper)
    small = 1.0 - m.mad(m.polynomial(x * x, c.ERF_F64), x, x)
    return m.select(a < 0.75, small, large)
