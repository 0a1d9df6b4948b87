"""Elementwise functions and tests that are several ufuncs together, and the op table's functions that NumPy has no name for."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tcomp.frontend import promotion
from tcomp.frontend.registry import FUNCTIONS, public
from tcomp.frontend.tracer import Traced, operand, strong
from tcomp.ir.ops import OPS, apply


def _special(op: str) -> None:
    """Register an operation of the op table under its own name, with the promotion of `exp`."""

    def call(x: Any, /) -> Traced:
        o = operand(x)
        return Traced(apply(op, o.as_node(promotion.loop(np.exp, (o.kind,))[0])))

    call.__name__, call.__doc__ = op, f"{OPS[op].doc}."
    public("x")(call)


for _op in ("erf", "sigmoid", "rsqrt"):
    _special(_op)


@public("x", names=("around",))
def round_(x: Any, /, decimals: int = 0) -> Traced:
    """Rounded to a number of decimals, halves to even; integers as they are unless `decimals` is negative."""
    x = strong(x)
    if x.dtype.kind != "f" and decimals >= 0:
        return x if x.dtype.kind != "b" else FUNCTIONS["astype"](x, np.float16)
    if decimals == 0:
        return FUNCTIONS["rint"](x)
    power = 10 ** abs(decimals)
    if x.dtype.kind != "f":
        wide = FUNCTIONS["rint"](x / power) * power
        return FUNCTIONS["astype"](wide, x.dtype)
    r = FUNCTIONS["rint"](x * float(power) if decimals > 0 else x / float(power))
    return r / float(power) if decimals > 0 else r * float(power)


@public("x")
def real(x: Any, /) -> Traced:
    """The real part: all of it."""
    return strong(x)


@public("x")
def imag(x: Any, /) -> Traced:
    """The imaginary part: zeros."""
    return FUNCTIONS["zeros_like"](x)


@public("a", "b")
def isclose(a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Traced:
    """|a - b| <= atol + rtol * |b|; infinities where they are equal, NaN if `equal_nan`."""
    x, y = strong(a), strong(b)
    y = y if y.dtype.kind == "f" else FUNCTIONS["astype"](y, np.float64)
    finite = FUNCTIONS["isfinite"]
    near = FUNCTIONS["abs"](x - y) <= atol + rtol * FUNCTIONS["abs"](y)
    r = (near & finite(y)) | (x == y)
    return r | (FUNCTIONS["isnan"](x) & FUNCTIONS["isnan"](y)) if equal_nan else r


@public("a", "b")
def allclose(a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Traced:
    """Whether all elements are close."""
    return FUNCTIONS["all"](isclose(a, b, rtol, atol, equal_nan))


@public("a", "b")
def array_equal(a: Any, b: Any, equal_nan: bool = False) -> Traced:
    """Whether shapes and all elements are equal."""
    x, y = strong(a), strong(b)
    if x.node.type.shape != y.node.type.shape:
        return FUNCTIONS["asarray"](False)
    same = x == y
    same = same | (FUNCTIONS["isnan"](x) & FUNCTIONS["isnan"](y)) if equal_nan else same
    return FUNCTIONS["all"](same)


@public("x")
def nan_to_num(x: Any, /, *, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Traced:
    """NaN and infinities replaced, infinities by the largest finite numbers unless told."""
    a = strong(x)
    if a.dtype.kind != "f":
        return a
    info = np.finfo(a.dtype)
    high, low = (float(info.max) if posinf is None else posinf), (float(info.min) if neginf is None else neginf)
    where = FUNCTIONS["where"]
    finite = where(FUNCTIONS["isnan"](a), nan, where(a == math.inf, high, where(a == -math.inf, low, a)))
    return FUNCTIONS["astype"](finite, a.dtype)


@public("x")
def isposinf(x: Any, /) -> Traced:
    """Whether x is +inf."""
    return strong(x) == math.inf


@public("x")
def isneginf(x: Any, /) -> Traced:
    """Whether x is -inf."""
    return strong(x) == -math.inf


@public("x")
def sinc(x: Any, /) -> Traced:
    """sin(pi x) / (pi x); 1 at 0."""
    x = strong(x)
    y = math.pi * x
    return FUNCTIONS["where"](y == 0, 1.0, FUNCTIONS["sin"](y) / FUNCTIONS["where"](y == 0, 1.0, y))
