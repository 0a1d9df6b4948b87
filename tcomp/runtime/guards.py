"""What a call must bring: every input, once, with a shape that fits. The messages name who disagrees with whom."""

from __future__ import annotations

import ast
import difflib
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from tcomp.errors import Error
from tcomp.ir.artifact import Port


def by_position(ports: Sequence[Port], values: Sequence[Any], defaults: Mapping[str, np.ndarray]) -> list[Any]:
    """A value for every port, in order; defaults for those left out at the end. Raises TC0603."""
    if len(values) > len(ports) or any(p.name not in defaults for p in ports[len(values) :]):
        named = ", ".join(f"`{p.name}`" for p in ports)
        raise Error("TC0603", f"{_count(len(values), 'input')}", f"{len(ports)}: {named}")
    return [*values, *(defaults[p.name] for p in ports[len(values) :])]


def by_name(ports: Sequence[Port], values: Mapping[str, Any], defaults: Mapping[str, np.ndarray]) -> list[Any]:
    """A value for every port, in order, given or a default. Raises TC0603 where a name is missing or unknown."""
    names = [p.name for p in ports]
    for name in values:
        if name not in names:
            close = difflib.get_close_matches(str(name), names, 1)
            hint = f"did you mean `{close[0]}`?" if close else ""
            raise Error("TC0603", f"there is no input `{name}`", _listed(names), hint=hint)
    missing = [name for name in names if name not in values and name not in defaults]
    if missing:
        raise Error("TC0603", f"missing {_listed(missing)}", _listed(names))
    return [values[name] if name in values else defaults[name] for name in names]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "no inputs"


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def check_shapes(ports: Sequence[Port], shapes: Sequence[tuple[int, ...]], symbols: Sequence[str]) -> dict[str, int]:
    """The value of every symbol that a port has alone as a dimension. Raises TC0601 where a shape does not fit."""
    values: dict[str, int] = {}
    origins: dict[str, str] = {}
    for port, shape in zip(ports, shapes):
        if len(port.shape) != len(shape):
            raise _shape_error(port, shape, f"rank {len(port.shape)}")
        for k, (wanted, size) in enumerate(zip(port.shape, shape)):
            if isinstance(wanted, str) and wanted in symbols and wanted not in values:
                values[wanted], origins[wanted] = size, f"axis {k} of `{port.name}`"
    for port, shape in zip(ports, shapes):
        for k, (wanted, size) in enumerate(zip(port.shape, shape)):
            expected = wanted if isinstance(wanted, int) else evaluate(wanted, values)
            if expected != size:
                raise _shape_error(port, shape, _disagreement(k, wanted, expected, values, origins))
    return values


def _shape_error(port: Port, shape: tuple[int, ...], detail: str) -> Error:
    wanted = f"({', '.join(map(str, port.shape))}{',' if len(port.shape) == 1 else ''})"
    return Error("TC0601", f"input `{port.name}` has shape {shape}", f"{wanted}: {detail}")


def _disagreement(axis: int, wanted: int | str, size: int, values: Mapping[str, int], origins: Mapping[str, str]) -> str:
    """Why an axis must have that size."""
    if isinstance(wanted, int):
        return f"axis {axis} is {size}"
    if wanted in origins:
        return f"axis {axis} is {wanted} = {size}, as {origins[wanted]} says"
    bound = ", ".join(f"{s} = {values[s]} by {origins[s]}" for s in origins if re.search(rf"(?<!\w){re.escape(s)}(?!\w)", wanted))
    return f"axis {axis} is {wanted} = {size}, where {bound}"


# --- dimensions that are expressions ---------------------------------------------------------------------

_OPERATORS: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.Eq: operator.eq, ast.Lt: operator.lt,
}  # fmt: skip


def evaluate(text: str, values: Mapping[str, int]) -> int:
    """The value of an index expression as `ir.index.show` writes it; it reads like Python, but for names of any characters."""
    if text in values:
        return values[text]
    names = sorted(values, key=len, reverse=True)
    pattern = rf"(?<!\w)({'|'.join(map(re.escape, names))})(?!\w)"
    plain = re.sub(pattern, lambda found: f"_{names.index(found[0])}_", text) if names else text
    return _value(_parsed(plain), {f"_{k}_": values[name] for k, name in enumerate(names)})


@cache
def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _value(e: ast.expr, values: Mapping[str, int]) -> int:
    match e:
        case ast.Constant(int(value)):
            return value
        case ast.Name(name):
            return values[name]
        case ast.UnaryOp(ast.USub(), x):
            return -_value(x, values)
        case ast.BinOp(a, op, b):
            return _OPERATORS[type(op)](_value(a, values), _value(b, values))
        case ast.Compare(a, [op], [b]):
            return int(_OPERATORS[type(op)](_value(a, values), _value(b, values)))
        case ast.Call(ast.Name("min" | "max" as name), arguments):
            return (min if name == "min" else max)(_value(a, values) for a in arguments)
    raise ValueError(f"not an index expression: {ast.unparse(e)}")
