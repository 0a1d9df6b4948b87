"""sin, cos and tan: reduction to |r| <= pi/4, two polynomials (the forms of fdlibm's k_sin.c and k_cos.c), quadrant."""

from __future__ import annotations

from tcomp.codegen.llvm.vecmath import coefficients as c
from tcomp.codegen.llvm.vecmath.reduction import Reduced, reduce_half_pi
from tcomp.codegen.llvm.vecmath.values import Math, Value


def _sin_kernel(m: Math, r: Reduced) -> Value:
    """sin(head + tail)."""
    x = r.head
    z = x * x
    p = m.polynomial(z, c.SIN_F32 if m.single else c.SIN_F64) * z
    if r.tail is None:
        return m.mad(p, x, x)
    return x + m.mad(p, x, r.tail * m.mad(z, -0.5, 1.0))


def _cos_kernel(m: Math, r: Reduced) -> Value:
    """cos(head + tail)."""
    x = r.head
    z = x * x
    p = m.polynomial(z, c.COS_F32 if m.single else c.COS_F64)
    half = z * 0.5
    rough = 1.0 - half
    lost = (1.0 - rough) - half
    if r.tail is None:
        return rough + m.mad(z * z, p, lost)
    return rough + (lost + m.mad(z * z, p, -(x * r.tail)))


def _by_quadrant(m: Math, r: Reduced, quadrant: Value) -> Value:
    """The sine or cosine of r, negative in the second half of the turn."""
    odd = (quadrant & 1).ne(0)
    result = m.select(odd, _cos_kernel(m, r), _sin_kernel(m, r))
    sign = (quadrant & 2) << (m.format.bits - 2)
    return m.from_bits(m.bits(result) ^ sign)


def sin(m: Math, x: Value) -> Value:
    """The sine; -0 is kept."""
    r = reduce_half_pi(m, x)
    return m.select(x.eq(0.0), x, _by_quadrant(m, r, r.quadrant))


def cos(m: Math, x: Value) -> Value:
    """The cosine."""
    r = reduce_half_pi(m, x)
    return _by_quadrant(m, r, r.quadrant + 1)


def tan(m: Math, x: Value) -> Value:
    """The quotient of the two kernels, upside down and negative in odd quadrants."""
    r = reduce_half_pi(m, x)
    sine, cosine = _sin_kernel(m, r), _cos_kernel(m, r)
    odd = (r.quadrant & 1).ne(0)
    quotient = m.select(odd, cosine, sine) / m.select(odd, -sine, cosine)
    return m.select(x.eq(0.0), x, quotient)
