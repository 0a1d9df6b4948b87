"""NumPy's own functions on traced arrays: `__array_ufunc__` (NEP 13) and `__array_function__` (NEP 18)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from tcomp.errors import Error
from tcomp.frontend.places import fault, placed
from tcomp.frontend.registry import FUNCTIONS

_REDUCTIONS = {
    "add": "sum",
    "multiply": "prod",
    "maximum": "max",
    "minimum": "min",
    "logical_and": "all",
    "logical_or": "any",
}
_ELSEWHERE = "docs/numpy.md lists them; what has no traced arrays among its arguments is left to NumPy"
_ACCUMULATIONS = {"add": "cumsum", "multiply": "cumprod"}


def call_ufunc(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """`ufunc(...)`, `ufunc.reduce`, `.accumulate` and `.outer` of operands some of which are traced."""
    if any(o is not None for o in _as_tuple(options.pop("out", None))):
        raise fault("TC0105", f"np.{ufunc.__name__} with out=", "a new array as the result")
    dtype = options.pop("dtype", None)
    where = options.pop("where", True)
    if method == "__call__" and where is not True:
        raise fault("TC0105", f"np.{ufunc.__name__} with where=", "tcomp.numpy.where around the result")
    function = _of_ufunc(ufunc, method)
    if method == "__call__":
        options = {k: v for k, v in options.items() if k not in ("casting", "order", "subok")}
        inputs = inputs if dtype is None else tuple(FUNCTIONS["astype"](x, dtype) for x in inputs)
        return function(*inputs, **options)
    if method == "outer":
        a, b = (FUNCTIONS["asarray"](x) for x in inputs)
        return function(FUNCTIONS["reshape"](a, a.shape + (1,) * b.ndim), b)
    options = {k: v for k, v in options.items() if v is not np._NoValue and v is not None}
    options |= {} if dtype is None else {"dtype": dtype}
    options |= {} if where is True else {"where": where}
    return function(inputs[0], *inputs[1:], **{"axis": 0} | options if len(inputs) == 1 else options)


def _as_tuple(x: Any) -> tuple[Any, ...]:
    return x if isinstance(x, tuple) else (x,)


def _of_ufunc(ufunc: np.ufunc, method: str) -> Callable[..., Any]:
    tables = {"reduce": _REDUCTIONS, "accumulate": _ACCUMULATIONS}
    name = tables[method].get(ufunc.__name__) if method in tables else ufunc.__name__ if method in ("__call__", "outer") else None
    if name is None or name not in FUNCTIONS or getattr(np, ufunc.__name__, None) is not ufunc:
        shown = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
        raise fault("TC0105", f"the ufunc `{shown}` on a traced array", "a function of tcomp.numpy", _ELSEWHERE)
    return FUNCTIONS[name]


def call_function(func: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """A function of NumPy's with traced arrays among its arguments: the function of tcomp.numpy with that name."""
    name = _name_of(func)
    if name is None:
        shown = f"{func.__module__}.{func.__name__}"
        raise fault("TC0105", f"`{shown}` on a traced array", "a function of tcomp.numpy", _ELSEWHERE)
    if options.get("out") is not None:
        raise fault("TC0105", f"np.{name} with out=", "a new array as the result")
    mine = FUNCTIONS[name]
    args, options = _rebound(func, mine, args, options)
    try:
        inspect.signature(mine).bind(*args, **options)
    except TypeError as e:
        raise placed(Error("TC0105", f"np.{name}: {e}", "the arguments that tcomp.numpy takes")) from None
    return mine(*args, **options)


@cache
def _name_of(func: Callable[..., Any]) -> str | None:
    """The name of the tracing function that stands for a NumPy function."""
    name = func.__name__
    if func.__module__ == "numpy.linalg":
        return f"linalg.{name}" if f"linalg.{name}" in FUNCTIONS else None
    return name if name in FUNCTIONS and getattr(np, name, None) is func else None


def _rebound(
    func: Callable[..., Any], mine: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments for `mine`, where parameters NumPy passes by keyword may be positional, and arguments that only say
    NumPy's default are dropped."""
    theirs, ours = _parameters(func), _parameters(mine)
    options = {k: v for k, v in options.items() if v is not np._NoValue and not _is_default(theirs, k, v)}
    positional = [p for p in ours.values() if p.kind is p.POSITIONAL_ONLY]
    renamed = dict(zip(list(theirs), positional))
    taken = {k: renamed[k].name for k in options if k in renamed and k not in _keywords(ours)}
    extra = [options.pop(k) for k in list(theirs) if k in taken and k in options]
    return (*args, *extra), options


def _keywords(parameters: dict[str, inspect.Parameter]) -> set[str]:
    return {n for n, p in parameters.items() if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)}


def _is_default(parameters: dict[str, inspect.Parameter], name: str, value: Any) -> bool:
    p = parameters.get(name)
    return p is not None and p.default is value


@cache
def _parameters(func: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(func).parameters)
    except (TypeError, ValueError):
        return {}
