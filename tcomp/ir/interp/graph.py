"""The meaning of a GRAPH function: each node's NumPy reference from the op table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tcomp.errors import Error
from tcomp.ir import index
from tcomp.ir.demands import demands
from tcomp.ir.dtype import to_numpy
from tcomp.ir.graph import Func
from tcomp.ir.index import INDEX
from tcomp.ir.node import Node, walk
from tcomp.ir.ops import OPS
from tcomp.ir.ops.table import CONTROL
from tcomp.ir.region import Region
from tcomp.ir.types import TensorType


def run(func: Func, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results of `func` on arrays, one for each parameter. Raises `Error` (TC0601) where sizes contradict each other."""
    values: dict[Node, Any] = {p: np.asarray(a) for p, a in zip(func.params, inputs, strict=True)}
    sizes = bind_symbols(func, list(values.values()))
    with np.errstate(all="ignore"):
        _evaluate_body(func, values, sizes)
    return [np.ascontiguousarray(values[r]).reshape(values[r].shape) for r in func.visible]


def _evaluate_body(body: Func | Region, values: dict[Node, Any], sizes: dict[str, int]) -> None:
    """The values of what a function or region gives; first of the sizes that are data, which `sizes` gets."""
    for symbol, size in zip(body.sizes, body.results[len(body.visible) :]):
        _evaluate_all([size], values, sizes)
        sizes[symbol["name"]] = _size(symbol, int(values[size]))
    _evaluate_all(body.visible, values, sizes)


def _evaluate_all(roots: Sequence[Node], values: dict[Node, Any], sizes: Mapping[str, int]) -> None:
    for n in walk(roots):
        if n not in values:
            values[n] = evaluate(n, [values[o] for o in n.operands], sizes)


def _size(symbol: Node, value: int) -> int:
    """The value of a symbol that data gives, which must be one that it can have. TC0605."""
    lo, hi = symbol["lo"], symbol["hi"]
    if (lo is not None and value < lo) or (hi is not None and value > hi):
        raise Error("TC0605", f"{value} for the size {symbol['name']}", f"{lo} to {hi}")
    return value


def evaluate(n: Node, operands: Sequence[Any], sizes: Mapping[str, int]) -> Any:
    """One node's value from its operands' values. Raises `Error` (TC0605) for sizes that it does not accept."""
    for demand in demands(n):
        if not index.evaluate(demand, sizes):
            raise Error("TC0605", f"`{n.op}` at {dict(sizes)}", index.show(demand))
    if OPS[n.op].kind == CONTROL:
        return _branch(n, operands, sizes) if n.op == "cond" else _repeat(n, operands, sizes)
    attrs = {k: concrete(v, sizes) for k, v in n.attrs}
    result = OPS[n.op].reference(*operands, **attrs)
    return result if isinstance(result, tuple) else np.asarray(result)


def _run_region(region: Region, operands: Sequence[Any], sizes: Mapping[str, int]) -> list[np.ndarray]:
    values: dict[Node, Any] = dict(zip(region.params, operands, strict=True))
    _evaluate_body(region, values, dict(sizes))
    return [values[r] for r in region.visible]


def _branch(n: Node, operands: Sequence[Any], sizes: Mapping[str, int]) -> tuple[np.ndarray, ...]:
    return tuple(_run_region(n["then"] if operands[0] else n["orelse"], operands[1:], sizes))


def _repeat(n: Node, operands: Sequence[Any], sizes: Mapping[str, int]) -> tuple[np.ndarray, ...]:
    carried, step = list(operands[: n["carried"]]), 0
    captures, extent = operands[n["carried"] :], n["extent"]
    end = None if extent is None else index.evaluate(extent, sizes)
    lines: list[list[np.ndarray]] = [[] for _ in n.type.elements[n["carried"] :]]
    while (end is None or step < end) and (not n["conditional"] or carried[0]):
        results = _run_region(n["body"], [*carried, *captures], {**sizes, n["counter"]["name"]: step})
        carried = results[: n["carried"]]
        for line, value in zip(lines, results[n["carried"] :]):
            line.append(value)
        step += 1
    return (*carried, *(_stacked(line, t, sizes) for line, t in zip(lines, n.type.elements[n["carried"] :])))


def _stacked(line: Sequence[np.ndarray], t: TensorType, sizes: Mapping[str, int]) -> np.ndarray:
    """The values of all steps along a new first axis."""
    out = np.zeros(tuple(index.evaluate(d, sizes) for d in t.shape), to_numpy(t.dtype))
    for k, value in enumerate(line):
        out[k] = value
    return out


def concrete(value: Any, sizes: Mapping[str, int]) -> Any:
    """An attribute with its index expressions evaluated."""
    if isinstance(value, Node) and value.type is INDEX:
        return index.evaluate(value, sizes)
    return tuple(concrete(v, sizes) for v in value) if isinstance(value, tuple) else value


def bind_symbols(func: Func, arrays: Sequence[np.ndarray]) -> dict[str, int]:
    """The value of every symbolic dimension, from the arrays' shapes."""
    sizes: dict[str, int] = {}
    for p, a in zip(func.params, arrays):
        if a.dtype != to_numpy(p.type.dtype) or a.ndim != p.type.rank:
            raise Error("TC0602", f"{p['name']}: {a.dtype} of rank {a.ndim}", str(p.type))
        for d, n in zip(p.type.shape, a.shape):
            if isinstance(d, Node) and d.op == "sym":
                sizes.setdefault(d["name"], n)
    for p, a in zip(func.params, arrays):
        want = tuple(index.evaluate(d, sizes) for d in p.type.shape)
        if want != a.shape:
            raise Error("TC0601", f"{p['name']}: shape {a.shape}", str(p.type))
    return sizes
