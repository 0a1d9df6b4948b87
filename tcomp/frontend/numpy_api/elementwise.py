"""Elementwise functions: one row each, naming NumPy's ufunc (whose promotion it has) and what computes it in its loop's dtype."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tcomp.errors import Error
from tcomp.frontend import promotion
from tcomp.frontend.numpy_api import lowering as low
from tcomp.frontend.registry import FUNCTIONS, PUBLIC, Public, with_place
from tcomp.frontend.shapes import broadcast_shapes
from tcomp.frontend.tracer import Operand, Traced, operand
from tcomp.ir import dtype as dt
from tcomp.ir.dtype import to_numpy
from tcomp.ir.node import Node
from tcomp.ir.ops import apply

Lower = str | Callable[..., Node | tuple[Node, ...]]


@dataclass(frozen=True, slots=True)
class Row:
    """A ufunc: `lower` is an operation of the op table, or a function of nodes of the loop's dtypes and one shape."""

    ufunc: np.ufunc
    lower: Lower
    names: tuple[str, ...] = ()
    on_bool: Lower | None = None


def _rows() -> list[Row]:
    """All ufuncs, with the array API's names beside NumPy's."""
    return [
        Row(np.add, "add", on_bool="or"),
        Row(np.subtract, "sub"),
        Row(np.multiply, "mul", on_bool="and"),
        Row(np.divide, "div", ("true_divide",)),
        Row(np.floor_divide, "floordiv"),
        Row(np.remainder, "mod", ("mod",)),
        Row(np.divmod, lambda x, y: (apply("floordiv", x, y), apply("mod", x, y))),
        Row(np.fmod, "rem"),
        Row(np.power, "pow", ("pow",)),
        Row(np.float_power, "pow"),
        Row(np.negative, "neg"),
        Row(np.positive, lambda x: x),
        Row(np.absolute, "abs", ("abs",), on_bool=lambda x: x),
        Row(np.fabs, "abs"),
        Row(np.sign, low.sign),
        Row(np.signbit, low.signbit),
        Row(np.copysign, low.copysign),
        Row(np.nextafter, low.nextafter),
        Row(np.heaviside, low.heaviside),
        Row(np.ldexp, low.ldexp),
        Row(np.square, lambda x: apply("mul", x, x)),
        Row(np.reciprocal, low.reciprocal),
        Row(np.conjugate, lambda x: x, ("conj",), on_bool=lambda x: x),
        *_transcendental(),
        Row(np.maximum, "max"),
        Row(np.minimum, "min"),
        Row(np.fmax, low.fmax),
        Row(np.fmin, low.fmin),
        *_roundings(),
        *_bits(),
        *(
            Row(u, low.comparison(n))
            for u, n in (
                (np.equal, "eq"),
                (np.not_equal, "ne"),
                (np.less, "lt"),
                (np.less_equal, "le"),
                (np.greater, "gt"),
                (np.greater_equal, "ge"),
            )
        ),
        Row(np.isnan, low.float_test("isnan", False)),
        Row(np.isinf, low.float_test("isinf", False)),
        Row(np.isfinite, low.float_test("isfinite", True)),
    ]


def _transcendental() -> list[Row]:
    plain = ["sqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "sinh", "cosh", "tanh"]
    arcs = ["asin", "acos", "atan", "asinh", "acosh", "atanh"]
    return [
        *(Row(getattr(np, n), n) for n in plain),
        *(Row(getattr(np, f"arc{n[1:]}"), n, (n,)) for n in arcs),
        Row(np.arctan2, "atan2", ("atan2",)),
        Row(np.cbrt, low.cbrt),
        Row(np.hypot, low.hypot),
        Row(np.logaddexp, low.logaddexp),
        Row(np.logaddexp2, low.logaddexp2),
        Row(np.deg2rad, low.scaled(np.pi / 180), ("radians",)),
        Row(np.rad2deg, low.scaled(180 / np.pi), ("degrees",)),
    ]


def _roundings() -> list[Row]:
    return [
        Row(np.floor, low.rounding("floor"), on_bool=lambda x: x),
        Row(np.ceil, low.rounding("ceil"), on_bool=lambda x: x),
        Row(np.trunc, low.rounding("trunc"), ("fix",), on_bool=lambda x: x),
        Row(np.rint, low.rounding("round")),
    ]


def _bits() -> list[Row]:
    logic = ((np.logical_and, "and"), (np.logical_or, "or"), (np.logical_xor, "xor"), (np.logical_not, "not"))
    return [
        Row(np.bitwise_and, "and"),
        Row(np.bitwise_or, "or"),
        Row(np.bitwise_xor, "xor"),
        Row(np.invert, "not", ("bitwise_not", "bitwise_invert")),
        Row(np.left_shift, "shl", ("bitwise_left_shift",)),
        Row(np.right_shift, "shr", ("bitwise_right_shift",)),
        Row(np.bitwise_count, low.bitwise_count),
        *(Row(u, n) for u, n in logic),
    ]


ROWS: dict[str, Row] = {r.ufunc.__name__: r for r in _rows()}
_LOGICAL = ("logical_and", "logical_or", "logical_xor", "logical_not")
_ON_INTEGERS = {
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
}


def elementwise(name: str, *args: Any) -> Any:
    """The ufunc `name` of array-likes: operands promoted, broadcast, and combined."""
    row = ROWS[name]
    operands = [operand(a) for a in args]
    dtypes = promotion.loop(row.ufunc, tuple(o.kind for o in operands))
    shape = broadcast_shapes(o.shape for o in operands)
    if name in _ON_INTEGERS and (decided := _out_of_range(name, operands, dtypes)) is not None:
        return Traced(operand(decided).as_node(dtypes[-1], shape))
    _refuse_negative_power(name, operands, dtypes[0])
    nodes = [_prepared(o, t, shape, name) for o, t in zip(operands, dtypes)]
    lower = row.on_bool if row.on_bool is not None and dtypes[0].kind == "bool" else row.lower
    result = apply(lower, *nodes) if isinstance(lower, str) else lower(*nodes)
    return tuple(map(Traced, result)) if isinstance(result, tuple) else Traced(result)


def _prepared(o: Operand, dtype: Any, shape: Any, name: str) -> Node:
    """The operand in the loop's dtype; a logical function asks first whether it is zero."""
    if name not in _LOGICAL:
        return o.as_node(dtype, shape)
    return (o if isinstance(o.value, Node) else operand(bool(o.value))).as_node(dt.bool_, shape)


def _out_of_range(name: str, operands: list[Operand], dtypes: tuple[Any, ...]) -> bool | None:
    """A comparison with a Python integer that the other operand's dtype cannot hold has one answer for all elements."""
    scalars = [not isinstance(o.value, Node) and t.is_integer for o, t in zip(operands, dtypes)]
    values: list[Any] = [o.value if s else 0 for o, s in zip(operands, scalars)]
    limits = [np.iinfo(to_numpy(t)) if s else None for s, t in zip(scalars, dtypes)]
    inside = all(i is None or i.min <= v <= i.max for v, i in zip(values, limits))
    return None if inside else bool(_ON_INTEGERS[name](*values))


def _refuse_negative_power(name: str, operands: list[Operand], dtype: Any) -> None:
    """NumPy refuses integers to negative integer powers; here where the exponent is known."""
    exponent = operands[-1].value
    if name == "power" and dtype.is_integer and isinstance(exponent, int) and exponent < 0:
        raise Error("TC0103", f"integers to the power {exponent}", "an exponent that is not negative", hint="cast to float first")


def operator_power(x: Any, y: Any) -> Any:
    """`x ** y`: as NumPy's operator, squares and square roots by themselves."""
    if isinstance(y, (int, float)) and not isinstance(y, (bool, np.generic)):
        floats = operand(x).dtype.is_float
        if y == 2 and (floats or isinstance(y, int)):
            return FUNCTIONS["square"](x)
        if y == 0.5 and floats:
            return FUNCTIONS["sqrt"](x)
    return FUNCTIONS["power"](x, y)


def _public(row: Row) -> None:
    """Register a row under all its names, with NumPy's parameter names."""
    name, arity = row.ufunc.__name__, row.ufunc.nin
    if arity == 1:

        def call(x: Any, /) -> Any:
            return elementwise(name, x)
    else:

        def call(x1: Any, x2: Any, /) -> Any:  # type: ignore[misc]
            return elementwise(name, x1, x2)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = (row.ufunc.__doc__ or "").split("\n\n")[1].strip() if "\n\n" in (row.ufunc.__doc__ or "") else name
    placed = with_place(call)
    for n in dict.fromkeys((name, *row.names, *_SPELLINGS[row.ufunc])):
        PUBLIC[n] = Public(n, placed, ("x",) if arity == 1 else ("x1", "x2"))
        FUNCTIONS[n] = placed


_SPELLINGS: dict[np.ufunc, list[str]] = {}  # all names that NumPy itself has for a ufunc
for _name, _value in vars(np).items():
    if isinstance(_value, np.ufunc):
        _SPELLINGS.setdefault(_value, []).append(_name)
for _row in ROWS.values():
    _public(_row)
FUNCTIONS["operator_power"] = with_place(operator_power)
