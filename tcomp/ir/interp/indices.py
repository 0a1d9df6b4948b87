"""Index expressions over NumPy integers: a symbol's value is an int, or for a tile axis an array of all its positions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tcomp.ir.index import as_dim
from tcomp.ir.node import Dim, Node

Value = Any  # an int, or an array of int64 where a tile axis occurs
Fetch = Callable[[Node, list[Value]], Value]  # the value of a `read` atom at a position

_BINARY: dict[str, Callable[[Value, Value], Value]] = {
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "mul": lambda a, b: a * b,
    "min": lambda a, b: np.minimum(a, b) if isinstance(a, np.ndarray) or isinstance(b, np.ndarray) else min(a, b),
    "max": lambda a, b: np.maximum(a, b) if isinstance(a, np.ndarray) or isinstance(b, np.ndarray) else max(a, b),
    "eq": lambda a, b: 1 * (a == b),
    "lt": lambda a, b: 1 * (a < b),
}


def evaluate(x: Dim, symbols: Mapping[str, Value], fetch: Fetch) -> Value:
    """The value of `x`; `fetch` reads elements of integer buffers."""
    if isinstance(x, int):
        return x
    if x.op == "sym":
        return symbols[x["name"]]
    operands = [evaluate(as_dim(o), symbols, fetch) for o in x.operands]
    if x.op == "affine":
        total = x["constant"]
        for k, v in zip(x["coefficients"], operands):
            total = total + k * v
        return total
    if x.op == "read":
        return fetch(x, operands)
    return functools.reduce(_BINARY[x.op], operands)


def axis_positions(extents: tuple[int, ...]) -> dict[str, np.ndarray]:
    """The tile axes of a window: axis k as 0 .. extents[k]-1 along dimension k of an open grid."""
    rank = len(extents)
    return {
        f"${k}": np.arange(n, dtype=np.int64).reshape([-1 if a == k else 1 for a in range(rank)]) for k, n in enumerate(extents)
    }
