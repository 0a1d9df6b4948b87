"""Rounding to integral values, comparisons and signs as NumPy defines them, and the exact remainders."""

from __future__ import annotations

import math

from tcomp.codegen.llvm.vecmath.values import ROUND_FEATURES, Math, Value


def _rounded(m: Math, intrinsic: str, x: Value) -> Value | None:
    """The target's instruction, or None where LLVM would call the C library lane by lane."""
    return m.intrinsic(intrinsic, x) if m.features & ROUND_FEATURES else None


def _nearest(m: Math, x: Value) -> Value:
    """Adding and subtracting 2^mantissa rounds to nearest even; larger values, infinities and NaN are kept."""
    a = m.abs(x)
    limit = 2.0**m.format.mantissa
    return m.copysign(m.select(a < limit, (a + limit) - limit, a), x)


def roundeven(m: Math, x: Value) -> Value:
    """To the nearest integral value, ties to even; the sign of zero is kept, as in all four."""
    return _rounded(m, "roundeven", x) or _nearest(m, x)


def floor(m: Math, x: Value) -> Value:
    """Down."""
    if native := _rounded(m, "floor", x):
        return native
    nearest = _nearest(m, x)
    return m.copysign(nearest - m.select(nearest > x, 1.0, m.const(0.0)), x)


def ceil(m: Math, x: Value) -> Value:
    """Up."""
    if native := _rounded(m, "ceil", x):
        return native
    nearest = _nearest(m, x)
    return m.copysign(nearest + m.select(nearest < x, 1.0, m.const(0.0)), x)


def trunc(m: Math, x: Value) -> Value:
    """Towards zero."""
    if native := _rounded(m, "trunc", x):
        return native
    a = m.abs(x)
    nearest = _nearest(m, a)
    return m.copysign(nearest - m.select(nearest > a, 1.0, m.const(0.0)), x)


def maximum(m: Math, x: Value, y: Value) -> Value:
    """The larger one; NaN if either is NaN. Of two zeros of different sign either may come out."""
    if "neon" in m.features:
        return m.intrinsic("maximum", x, y)
    return m.select(x.is_nan(), x, m.select(x > y, x, y))


def minimum(m: Math, x: Value, y: Value) -> Value:
    """The smaller one; NaN if either is NaN. Of two zeros of different sign either may come out."""
    if "neon" in m.features:
        return m.intrinsic("minimum", x, y)
    return m.select(x.is_nan(), x, m.select(x < y, x, y))


def sign(m: Math, x: Value) -> Value:
    """-1, 0 or 1; NaN for NaN; +0 for both zeros."""
    one = m.copysign(m.const(1.0), x)
    return m.select(x.is_nan(), x, m.select(x.eq(0.0), 0.0, one))


def copysign(m: Math, x: Value, y: Value) -> Value:
    """The magnitude of x with the sign of y."""
    return m.copysign(x, y)


def sqrt(m: Math, x: Value) -> Value:
    """The square root, correctly rounded."""
    return m.sqrt(x)


def rsqrt(m: Math, x: Value) -> Value:
    """1 / sqrt(x), two roundings."""
    return 1.0 / m.sqrt(x)


def fmod(m: Math, x: Value, y: Value) -> Value:
    """C's fmod, exact: f32 works in f64, whose products below are exact without FMA."""
    if not m.single:
        return _fmod_double(m, x, y, fused=True)
    wide = m.widened()
    result = _fmod_double(wide, m.cast("fpext", x, "double"), m.cast("fpext", y, "double"), fused=False)
    return m.cast("fptrunc", result, "float")


# One step of the long division takes off a quotient of at most one bit more than this: without FMA its product with the
# divisor is exact in f64 for f32 operands (29 + 24 bits); the difference from the dividend always is.
QUOTIENT_BITS = {False: 28, True: 51}


def _fmod_double(m: Math, x: Value, y: Value, fused: bool) -> Value:
    """A loop that takes `trunc(r / d) * d` off r, d the divisor times a power of two that keeps the quotient short."""
    divisor = m.abs(y)
    magnitude = m.abs(x)
    valid = (magnitude < math.inf) & (divisor > 0.0)  # a NaN divisor is not > 0
    start = m.select(valid, magnitude, 0.0)
    divisor_safe = m.select(valid, divisor, 1.0)
    rest = _long_division(m, start, divisor_safe, fused)
    result = m.copysign(rest, x)
    return m.select(valid, result, math.nan)


def _long_division(m: Math, start: Value, divisor: Value, fused: bool) -> Value:
    """`start mod divisor` of finite non-negative values, divisor positive (infinite: start itself)."""
    b = m.b
    before, loop, done = b.block, b.fresh("divide"), b.fresh("divided")
    b.branch(loop)
    b.start(loop)
    following = f"%{b.fresh('rest')}"
    kind = m.type_of(m.element)
    rest = m.value(m.element, f"phi {kind} [ {start.name}, %{before} ], [ {following}, %{loop} ]")
    reduced = _division_step(m, rest, divisor, fused)
    b.effect(f"{following} = select {m.type_of('i1')} {(rest >= divisor).name}, {kind} {reduced.name}, {kind} {rest.name}")
    b.branch_if(any_lane(m, m.wrap(following) >= divisor), loop, done)
    b.start(done)
    return m.wrap(following)


def _division_step(m: Math, rest: Value, divisor: Value, fused: bool) -> Value:
    """One step for rest >= divisor: the divisor is raised by what the exponents differ in beyond a quotient's bits."""
    excess = _exponent(m, rest) - _exponent(m, divisor) - (QUOTIENT_BITS[fused] << 52)
    grow = m.select(excess > 0, excess, 0)
    half = m.select(grow > (1023 << 52), m.int_const(1023 << 52), grow)
    first, second = (m.from_bits(e + (1023 << 52)) for e in (half, grow - half))
    scaled = (divisor * first) * second
    quotient = trunc(m, rest / scaled)
    left = m.fma(-quotient, scaled, rest) if fused else rest - quotient * scaled
    return m.select(left < 0.0, left + scaled, left)


def _exponent(m: Math, x: Value) -> Value:
    """The biased exponent of positive x in place (shifted up by 52), negative for subnormals."""
    tiny = x < m.format.smallest_normal
    bits = m.bits(m.select(tiny, x * 2.0**54, x))
    return (bits & (0x7FF << 52)) - m.select(tiny, m.int_const(54 << 52), 0)


def any_lane(m: Math, mask: Value) -> str:
    """An i1: whether a lane of the mask is set."""
    if m.lanes == 1:
        return mask.name
    return m.b.value(f"call i1 {_reduce_or(m)}({m.type_of('i1')} {mask.name})")


def _reduce_or(m: Math) -> str:
    name = f"@llvm.vector.reduce.or.v{m.lanes}i1"
    m.b.module.declare(f"i1 {name}({m.type_of('i1')})")
    return name


def remainder(m: Math, x: Value, y: Value) -> Value:
    """`np.remainder`: the sign of the divisor, fmod otherwise; NaN for a zero divisor."""
    return _numpy_remainder(m, fmod(m, x, y), y)


def _numpy_remainder(m: Math, rest: Value, y: Value) -> Value:
    wrong_side = (rest < 0.0) ^ (y < 0.0)
    moved = m.select(wrong_side, rest + y, rest)
    return m.select(rest.eq(0.0), m.copysign(m.const(0.0), y), moved)


def floor_divide(m: Math, x: Value, y: Value) -> Value:
    """`np.floor_divide`: (x - remainder) / y rounded to the integral value it stands for; x / y for a zero divisor."""
    rest = fmod(m, x, y)
    wrong_side = ((rest < 0.0) ^ (y < 0.0)) & rest.ne(0.0)
    quotient = (x - rest) / y
    quotient = m.select(wrong_side, quotient - 1.0, quotient)
    whole = floor(m, quotient)
    whole = m.select((quotient - whole) > 0.5, whole + 1.0, whole)
    plain = x / y
    result = m.select(quotient.eq(0.0), m.copysign(m.const(0.0), plain), whole)
    return m.select(y.eq(0.0), plain, result)
