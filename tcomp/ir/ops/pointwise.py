"""Rows of the pointwise operations: one result element from the operands' elements at the same place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tcomp.ir import dtype as dt
from tcomp.ir.dtype import DType, from_numpy, to_numpy
from tcomp.ir.ops.table import (
    POINTWISE,
    OpDef,
    Type,
    register,
    require_computed,
    require_dtype,
    require_same_dtype,
    require_same_shape,
)
from tcomp.ir.types import TensorType

ANY = (lambda t: True, "any dtype")
FLOAT = (lambda t: t.is_float, "a float dtype")
NUMBER = (lambda t: t.kind != "bool", "a numeric dtype")
BITS = (lambda t: not t.is_float, "an integer dtype or bool")
INTEGER = (lambda t: t.is_integer, "an integer dtype")
Rule = tuple[Callable[[DType], bool], str]


def _in_f32(f: Callable[..., Any]) -> Callable[..., Any]:
    """16-bit floats are computed in f32 and rounded once."""

    def call(*arrays: np.ndarray) -> np.ndarray:
        narrow = arrays[-1].dtype
        if narrow not in (np.dtype(np.float16), to_numpy(dt.bf16)):
            return np.asarray(f(*arrays))
        wide = np.asarray(f(*(a.astype(np.float32) if a.dtype == narrow else a for a in arrays)))
        return wide.astype(narrow) if wide.dtype == np.float32 else wide

    return call


def _infer(name: str, rule: Rule, result: DType | None) -> Callable[..., Type]:
    def infer(*types: TensorType) -> Type:
        require_same_shape(name, types)
        require_same_dtype(name, types)
        require_computed(name, types)
        require_dtype(name, types[0], *rule)
        return TensorType(result or types[0].dtype, types[0].shape)

    return infer


def _row(
    name: str,
    arity: int,
    rule: Rule,
    reference: Callable[..., Any],
    doc: str,
    result: DType | None = None,
    facts: str = "",
    integer_facts: str = "",
    derivative: tuple[str, ...] = (),
) -> None:
    register(
        OpDef(
            name,
            POINTWISE,
            arity,
            (),
            _infer(name, rule, result),
            _in_f32(reference),
            doc,
            frozenset([*facts.split(), *(["test"] if result == dt.bool_ else [])]),
            frozenset(integer_facts.split()),
            derivative,
        )
    )


def _erf(x: np.ndarray) -> np.ndarray:
    from math import erf

    return np.vectorize(erf, otypes=[np.float64])(x).astype(x.dtype) if x.size else x.copy()


def _sigmoid(x: np.ndarray) -> np.ndarray:
    e = np.exp(-np.abs(x.astype(np.float64)))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e)).astype(x.dtype)


def _sign(x: np.ndarray) -> np.ndarray:
    return np.sign(x) if x.dtype.kind != "f" else np.where(x == 0, x, np.sign(x))


def _truncated_quotient(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Integer division towards zero; by zero it is 0, and the most negative number by -1 wraps."""
    q = np.floor_divide(x, y)
    return np.asarray(np.where((y != 0) & (np.remainder(x, y) != 0) & ((x < 0) != (y < 0)), q + x.dtype.type(1), q), x.dtype)


def _shift(f: Callable[..., Any], fill: Callable[[np.ndarray], Any]) -> Callable[..., Any]:
    """Shifts by the width or more give what shifting one by one would; negative counts likewise (as too large)."""

    def call(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        bits = x.dtype.itemsize * 8
        inside = (y >= 0) & (y < bits)
        return np.asarray(np.where(inside, f(x, np.where(inside, y, 0).astype(x.dtype)), fill(x)), x.dtype)

    return call


_name: str
_f: Callable[..., Any]
_doc: str
_derivative: str
_row("neg", 1, NUMBER, np.negative, "-x", derivative=("-1",))
_row("abs", 1, NUMBER, np.abs, "|x|; the most negative integer wraps to itself", facts="idempotent")
_row("sign", 1, NUMBER, _sign, "-1, 0 or 1; a float zero keeps its sign, NaN stays", facts="idempotent monotone")
_row("not", 1, BITS, np.invert, "bitwise complement; logical not of bool")
for _name, _f, _doc in (
    ("floor", np.floor, "the largest integer not above x"),
    ("ceil", np.ceil, "the smallest integer not below x"),
    ("trunc", np.trunc, "x without its fraction"),
    ("round", np.rint, "the nearest integer, halves to even"),
):
    _row(_name, 1, FLOAT, _f, _doc, facts="idempotent monotone")
for _name, _f, _doc, _derivative in (
    ("sqrt", np.sqrt, "square root, correctly rounded", "0.5/r"),
    ("rsqrt", lambda x: x.dtype.type(1) / np.sqrt(x), "1/sqrt(x)", "-0.5*r/x"),
    ("exp", np.exp, "e to the x", "r"),
    ("exp2", np.exp2, "2 to the x", "r*0.6931471805599453"),
    ("expm1", np.expm1, "exp(x) - 1, exact near 0", "r+1"),
    ("log", np.log, "natural logarithm", "1/x"),
    ("log2", np.log2, "logarithm to base 2", "1.4426950408889634/x"),
    ("log10", np.log10, "logarithm to base 10", "0.4342944819032518/x"),
    ("log1p", np.log1p, "log(1 + x), exact near 0", "1/(1+x)"),
    ("sin", np.sin, "sine, radians, exact reduction at any size", "cos(x)"),
    ("cos", np.cos, "cosine, radians, exact reduction at any size", "-sin(x)"),
    ("tan", np.tan, "tangent", "1+r*r"),
    ("asin", np.arcsin, "arc sine", "rsqrt(1-x*x)"),
    ("acos", np.arccos, "arc cosine", "-rsqrt(1-x*x)"),
    ("atan", np.arctan, "arc tangent", "1/(1+x*x)"),
    ("sinh", np.sinh, "hyperbolic sine", "cosh(x)"),
    ("cosh", np.cosh, "hyperbolic cosine", "sinh(x)"),
    ("tanh", np.tanh, "hyperbolic tangent", "1-r*r"),
    ("asinh", np.arcsinh, "inverse hyperbolic sine", "rsqrt(x*x+1)"),
    ("acosh", np.arccosh, "inverse hyperbolic cosine", "rsqrt(x*x-1)"),
    ("atanh", np.arctanh, "inverse hyperbolic tangent", "1/(1-x*x)"),
    ("erf", _erf, "error function", "1.1283791670955126*exp(-x*x)"),
    ("sigmoid", _sigmoid, "1/(1 + exp(-x))", "r*(1-r)"),
):
    _row(_name, 1, FLOAT, _f, _doc, facts="costly", derivative=(_derivative,))
_row("isnan", 1, FLOAT, np.isnan, "whether x is NaN", dt.bool_)
_row("isinf", 1, FLOAT, np.isinf, "whether x is infinite", dt.bool_)
_row("isfinite", 1, FLOAT, np.isfinite, "whether x is neither infinite nor NaN", dt.bool_)

_row("add", 2, NUMBER, np.add, "x + y", None, "commutative", "associative", ("1", "1"))
_row("sub", 2, NUMBER, np.subtract, "x - y", derivative=("1", "-1"))
_row("mul", 2, NUMBER, np.multiply, "x * y", None, "commutative", "associative distributive", ("y", "x"))
_row("div", 2, FLOAT, np.divide, "x / y", None, "costly", derivative=("1/y", "-r/y"))
_row("floordiv", 2, NUMBER, np.floor_divide, "x // y rounded down; an integer by zero is 0", None, "costly")
_row("mod", 2, NUMBER, np.remainder, "x - x // y * y: the sign of y; an integer by zero is 0", None, "costly")
_row("quotient", 2, INTEGER, _truncated_quotient, "integer division towards zero; by zero it is 0", None, "costly")
_row("rem", 2, NUMBER, np.fmod, "remainder with the sign of x, exact; an integer by zero is 0", None, "costly")
_row("pow", 2, NUMBER, np.power, "x to the y; integers wrap, and to a negative power truncate", None, "costly")
_row("atan2", 2, FLOAT, np.arctan2, "the angle of the point (y, x), by quadrant: atan(x/y) where y is positive", None, "costly")
_row("max", 2, ANY, np.maximum, "the larger; NaN if either is", None, "commutative associative idempotent")
_row("min", 2, ANY, np.minimum, "the smaller; NaN if either is", None, "commutative associative idempotent")
_row("and", 2, BITS, np.bitwise_and, "bitwise and", None, "commutative associative idempotent")
_row("or", 2, BITS, np.bitwise_or, "bitwise or", None, "commutative associative idempotent")
_row("xor", 2, BITS, np.bitwise_xor, "bitwise exclusive or", None, "commutative associative")
_row(
    "shl",
    2,
    INTEGER,
    _shift(np.left_shift, lambda x: x.dtype.type(0)),
    "x shifted left by y bits; by the width or more: 0",
)
_row(
    "shr",
    2,
    INTEGER,
    _shift(np.right_shift, lambda x: np.where(x < 0, x.dtype.type(0) - x.dtype.type(1), x.dtype.type(0))),
    "x shifted right by y bits, copies of the sign (zeros where unsigned) coming in",
)
for _name, _f, _doc in (
    ("eq", np.equal, "x == y"),
    ("ne", np.not_equal, "x != y"),
    ("lt", np.less, "x < y"),
    ("le", np.less_equal, "x <= y"),
    ("gt", np.greater, "x > y"),
    ("ge", np.greater_equal, "x >= y"),
):
    _row(_name, 2, ANY, _f, _doc, dt.bool_, "commutative" if _name in ("eq", "ne") else "")


def _fma(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    wide = np.longdouble if x.dtype == np.float64 else np.float64
    return np.asarray((x.astype(wide) * y.astype(wide) + z.astype(wide)).astype(x.dtype))


_row(
    "fma",
    3,
    FLOAT,
    _fma,
    "x * y + z rounded once; only rules of class `reassociates` make it",
    derivative=("y", "x", "1"),
)


def _infer_where(c: TensorType, x: TensorType, y: TensorType) -> Type:
    require_same_shape("where", (c, x, y))
    require_same_dtype("where", (x, y))
    require_dtype("where", c, lambda t: t.kind == "bool", "a bool condition")
    return x


register(OpDef("where", POINTWISE, 3, (), _infer_where, np.where, "x where c holds, else y; the other branch never leaks"))


def _infer_to(x: TensorType, dtype: DType) -> Type:
    return TensorType(dtype, x.shape)


def cast_array(x: np.ndarray, dtype: DType) -> np.ndarray:
    """`x` converted: floats to integers truncate (out of range and NaN as the conversion instructions of 64-bit integers
    give, then wrapped to the width), floats to narrower floats round once, anything to bool is `x != 0`. To an 8-bit or smaller
    float it goes by f32; what is too large becomes infinity or NaN (f4e2m1: the largest number; of NaN: 0)."""
    target, source = to_numpy(dtype), from_numpy(x.dtype)
    assert source is not None
    if dtype.kind == "bool":
        return np.asarray(x != 0)
    if source.is_float and dtype.is_integer:
        with np.errstate(invalid="ignore"):
            return np.asarray(_float_to_integer(x, target))
    if dtype.is_float and dtype.is_storage and source != dtype:
        single = np.asarray(x).astype(np.float32)
        return (np.where(np.isnan(single), np.float32(0), single) if dtype == dt.f4e2m1 else single).astype(target)
    small = source.is_integer and source.is_storage and dtype.is_storage  # ml_dtypes has no direct way
    return np.asarray(x.astype(np.int8) if small else x).astype(target)


def _float_to_integer(x: np.ndarray, target: np.dtype) -> np.ndarray:
    wide = x.astype(np.float64)
    if target == np.uint64:
        high = wide >= 2.0**63
        low = np.where(high, wide - 2.0**63, wide).astype(np.int64).astype(np.uint64)
        return np.where(high, low + np.uint64(2**63), low)
    return wide.astype(np.int64).astype(target)


register(
    OpDef("cast", POINTWISE, 1, ("dtype",), _infer_to, cast_array, "x converted to another dtype, rounded once"),
)


def _infer_bitcast(x: TensorType, dtype: DType) -> Type:
    require_dtype("bitcast", x, lambda t: t.bytes == dtype.bytes, f"a dtype of {dtype.bytes * 8} bits")
    return TensorType(dtype, x.shape)


register(
    OpDef(
        "bitcast",
        POINTWISE,
        1,
        ("dtype",),
        _infer_bitcast,
        lambda x, dtype: x.view(to_numpy(dtype)),
        "the same bits read as another dtype of the same width; elements of less than a byte are the low bits of one",
    )
)
