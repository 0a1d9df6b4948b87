"""Functions that make arrays from sizes and values."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from tcomp.errors import Error
from tcomp.frontend import promotion
from tcomp.frontend.dimension import Dimension, is_size, raw
from tcomp.frontend.promotion import element_type
from tcomp.frontend.registry import FUNCTIONS, public
from tcomp.frontend.shapes import sizes
from tcomp.frontend.tracer import Traced, array, operand, refuse_value, strong
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.dtype import DType, to_numpy
from tcomp.ir.graph import cast
from tcomp.ir.graph import full as full_node
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import apply


def _as_numpy(obj: Any, /, dtype: Any = None, *, copy: bool | None = None, device: Any = None) -> np.ndarray:
    return np.array(obj, dtype=dtype, copy=copy)


@public("obj", names=("array",), at_once=_as_numpy)
def asarray(obj: Any, /, dtype: Any = None, *, copy: bool | None = None, device: Any = None) -> Traced:
    """`obj` as an array: arrays, scalars and nested lists of them."""
    x = strong(obj)
    return x if dtype is None else Traced(cast(x.node, element_type(dtype)))


@public("x")
def astype(x: Any, dtype: Any, /, *, copy: bool = True, casting: str = "unsafe", device: Any = None) -> Traced:
    """`x` converted to `dtype`; TC0103 where `casting` does not allow it."""
    x, target = strong(x), element_type(dtype)
    if not np.can_cast(x.dtype, to_numpy(target), casting):  # type: ignore[arg-type]
        raise Error("TC0103", f"a cast of {x.node.type.dtype} to {target}", f"one that `{casting}` allows")
    return Traced(cast(x.node, target))


@public("x", names=("ascontiguousarray",))
def copy(x: Any, /) -> Traced:
    """`x` itself: arrays never change."""
    return strong(x)


@public("fill_value")
def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Traced:
    """An array whose elements are all `fill_value`."""
    o = operand(fill_value)
    return Traced(o.as_node(o.dtype if dtype is None else element_type(dtype), sizes(shape)))


@public("x", "fill_value")
def full_like(x: Any, /, fill_value: Any, *, dtype: Any = None, shape: Any = None, device: Any = None) -> Traced:
    """An array of the shape and dtype of `x` whose elements are all `fill_value`."""
    t = array(x).node.type
    target = t.dtype if dtype is None else element_type(dtype)
    return Traced(operand(fill_value).as_node(target, t.shape if shape is None else sizes(shape)))


def _filled(name: str, value: int) -> None:
    """Register `name` and `name_like`, which fill with `value`."""

    def create(shape: Any, dtype: Any = None, *, device: Any = None) -> Traced:
        return Traced(full_node(value, dt.f64 if dtype is None else element_type(dtype), sizes(shape)))

    def create_like(x: Any, /, dtype: Any = None, *, shape: Any = None, device: Any = None) -> Traced:
        t = array(x).node.type
        target = t.dtype if dtype is None else element_type(dtype)
        return Traced(full_node(value, target, t.shape if shape is None else sizes(shape)))

    create.__doc__ = f"An array of {value}s of this shape."
    create_like.__doc__ = f"An array of {value}s of the shape and dtype of `x`."
    create.__name__, create_like.__name__ = name, f"{name}_like"
    public()(create)
    public("x")(create_like)


for _name, _value in (("zeros", 0), ("ones", 1), ("empty", 0)):
    _filled(_name, _value)


def iota(shape: tuple[Dim, ...], axis: int, dtype: DType = dt.i64) -> Node:
    """The position along `axis` of each element."""
    return apply("iota", shape=shape, axis=axis, dtype=dtype)


@public()
def arange(start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None) -> Traced:
    """Numbers from `start` (or 0) up to `stop`, exclusive, in steps of `step`."""
    start, stop = (0, start) if stop is None else (start, stop)
    for bound in (start, stop, step):
        if isinstance(bound, Traced):
            refuse_value(bound, "`arange` asked for the value of", "its size has to be known: pass an integer or x.shape[k]")
    target = None if dtype is None else element_type(dtype)
    if any(isinstance(b, Dimension) for b in (start, stop, step)):
        return _symbolic_arange(start, stop, step, target)
    line = np.arange(start, stop, step)
    natural = element_type(line.dtype)
    if natural.is_float or (target is not None and not target.is_integer):
        values: Any = np.arange(start, stop, step, None if target is None else to_numpy(target))  # type: ignore[call-overload]
        return Traced(operand(values).as_node(element_type(values.dtype)))
    first, stride = operator.index(start), operator.index(step)
    return _progression(len(line), first, stride, target or dt.i64)


def _progression(n: Dim, first: Dim, stride: int, target: DType) -> Traced:
    line: Any = Traced(iota((n,), 0))
    line = line if stride == 1 else line * stride
    line = line if first == 0 else line + (first if isinstance(first, int) else Dimension(first))
    return Traced(cast(line.node, target))


def _symbolic_arange(start: Any, stop: Any, step: Any, target: DType | None) -> Traced:
    if not all(map(is_size, (start, stop, step))) or isinstance(step, Dimension) or step == 0:
        raise Error("TC0105", f"arange({start}, {stop}, {step}) with a symbolic bound", "integer bounds and a known integer step")
    stride = operator.index(step)
    span = index.sub(raw(stop), raw(start)) if stride > 0 else index.sub(raw(start), raw(stop))
    n = index.maximum(index.ceildiv(span, abs(stride)), 0)
    return _progression(n, raw(start), stride, target or dt.i64)


@public()
def linspace(start: Any, stop: Any, /, num: int = 50, *, dtype: Any = None, endpoint: bool = True, device: Any = None) -> Traced:
    """`num` evenly spaced numbers from `start` to `stop`."""
    if not isinstance(start, Traced) and not isinstance(stop, Traced):
        return asarray(np.linspace(start, stop, num, endpoint), dtype=dtype)
    steps = max(1, num - 1 if endpoint else num)
    ends = [operand(start), operand(stop)]
    computed = promotion.common((*(o.kind for o in ends), float))
    first, last = (FUNCTIONS["expand_dims"](Traced(o.as_node(computed)), axis=0) for o in ends)
    rank = max(first.ndim, last.ndim)
    place: Any = np.arange(num).astype(to_numpy(computed)).reshape((num,) + (1,) * (rank - 1))
    line = place * ((last - first) / float(steps)) + first
    if endpoint and num > 1:
        line = FUNCTIONS["where"](place == num - 1, last, line)
    return line if dtype is None else astype(line, dtype)


@public()
def eye(n_rows: Any, n_cols: Any = None, /, k: int = 0, *, dtype: Any = None, device: Any = None) -> Traced:
    """Ones on the diagonal `k`, zeros elsewhere."""
    shape = sizes((n_rows, n_rows if n_cols is None else n_cols))
    rows, columns = Traced(iota(shape, 0)), Traced(iota(shape, 1))
    return Traced(cast((rows + k == columns).node, dt.f64 if dtype is None else element_type(dtype)))


@public()
def identity(n: Any, dtype: Any = None) -> Traced:
    """The unit matrix."""
    return eye(n, dtype=dtype)


@public("arrays")
def meshgrid(*arrays: Any, indexing: str = "xy") -> tuple[Traced, ...]:
    """Coordinate matrices from coordinate vectors."""
    if indexing not in ("xy", "ij"):
        raise Error("TC0104", f"indexing={indexing!r}", "'xy' or 'ij'")
    lines = [FUNCTIONS["ravel"](a) for a in arrays]
    n = len(lines)
    order = [1, 0, *range(2, n)] if indexing == "xy" and n > 1 else list(range(n))
    shape = tuple(lines[k].node.type.shape[0] for k in order)
    return tuple(Traced(apply("broadcast", v.node, shape=shape, axes=(order.index(k),))) for k, v in enumerate(lines))


def _triangle(x: Any, k: int, keep: str) -> Traced:
    t = array(x).node.type
    if t.rank < 2:
        raise Error("TC0102", f"a triangle of rank {t.rank}", "rank 2 or more")
    shape = t.shape[-2:]
    below = Traced(iota(shape, 1)) - Traced(iota(shape, 0))
    inside = below <= k if keep == "lower" else below >= k
    result: Traced = FUNCTIONS["where"](inside, x, full_like(x, 0))
    return result


@public("x")
def tril(x: Any, /, k: int = 0) -> Traced:
    """The lower triangle, up to diagonal `k`; zeros above."""
    return _triangle(x, k, "lower")


@public("x")
def triu(x: Any, /, k: int = 0) -> Traced:
    """The upper triangle, from diagonal `k`; zeros below."""
    return _triangle(x, k, "upper")


@public()
def tri(n: Any, m: Any = None, k: int = 0, dtype: Any = None) -> Traced:
    """Ones at and below diagonal `k`."""
    return tril(FUNCTIONS["ones"]((n, n if m is None else m), dtype=dtype), k=k)
