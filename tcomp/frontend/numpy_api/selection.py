"""Functions that choose elements: by condition, by position, by order."""

from __future__ import annotations

from typing import Any

import numpy as np

from tcomp.errors import Error
from tcomp.frontend import promotion, shapes
from tcomp.frontend.indexing_syntax import positions
from tcomp.frontend.numpy_api.manipulation import common_operands, ravel, reshape
from tcomp.frontend.registry import FUNCTIONS, public
from tcomp.frontend.tracer import Traced, array, operand, strong
from tcomp.ir import dtype as dt
from tcomp.ir.graph import broadcast_trailing, cast, full
from tcomp.ir.node import Node
from tcomp.ir.ops import apply, item
from tcomp.ir.ops.table import show_shape


@public("condition", "x1", "x2")
def where(condition: Any, x1: Any = None, x2: Any = None, /) -> Traced:
    """`x1` where the condition holds, else `x2`."""
    if x1 is None or x2 is None:
        _refuse_sizes("where(condition)")
    c = operand(condition)
    operands, target = common_operands((x1, x2))
    shape = shapes.broadcast_shapes((c.shape, *(o.shape for o in operands)))
    chosen = c.value if isinstance(c.value, Node) else operand(bool(c.value)).value
    assert isinstance(chosen, Node)
    mask = broadcast_trailing(cast(chosen, dt.bool_), shape)
    return Traced(apply("where", mask, *(o.as_node(target, shape) for o in operands)))


def _refuse_sizes(name: str) -> None:
    hint = "where(mask, x, fill) keeps the shape; count_nonzero counts"
    raise Error("TC0105", f"`{name}`, whose result's size depends on values", "sizes that are known while tracing", hint=hint)


def _refused(name: str) -> None:
    """Register a function that cannot be traced, so that the message says why."""

    def call(*args: Any, **kwargs: Any) -> Any:
        _refuse_sizes(name)

    call.__name__, call.__doc__ = name, "Refused: the size of the result would depend on values."
    public()(call)


_UNIQUE = ("unique", "unique_all", "unique_counts", "unique_inverse", "unique_values")
SIZED_BY_VALUES = ("nonzero", "flatnonzero", "argwhere", *_UNIQUE)
for _name in SIZED_BY_VALUES:
    _refused(_name)


@public("x", "min", "max", "a_min", "a_max")
def clip(x: Any, /, min: Any = None, max: Any = None, *, a_min: Any = None, a_max: Any = None) -> Traced:
    """`x` raised to `min` and lowered to `max`, where they are given."""
    low, high = (a if b is None else b for a, b in ((a_min, min), (a_max, max)))
    r = strong(x)
    r = r if low is None else FUNCTIONS["maximum"](r, low)
    return r if high is None else FUNCTIONS["minimum"](r, high)


@public("conditions", "choices", "default")
def select(conditions: Any, choices: Any, default: Any = 0) -> Traced:
    """For each element the first choice whose condition holds, else `default`."""
    _, target = common_operands((*choices, default))
    r = Traced(operand(default).as_node(target))
    for c, v in reversed(list(zip(conditions, choices, strict=True))):
        r = where(c, v, r)
    return r


@public("x", "indices")
def take(x: Any, indices: Any, /, axis: Any = None, *, mode: str = "raise") -> Traced:
    """Slices at positions along `axis` (of all elements without one); negative ones count from the end."""
    x = ravel(x) if axis is None else strong(x)
    a = shapes.axis(0 if axis is None else axis, x.ndim)
    size = x.node.type.shape[a]
    if mode in ("clip", "wrap"):
        last = x.shape[a] - 1
        indices = clip(indices, 0, last) if mode == "clip" else FUNCTIONS["remainder"](indices, x.shape[a])
    return Traced(apply("gather", x.node, positions(indices, size), axis=a))


@public("x", "indices")
def take_along_axis(x: Any, indices: Any, /, axis: Any = -1) -> Traced:
    """For each line along `axis`, its elements at the positions of the same line."""
    x, i = strong(x), strong(indices)
    if axis is None:
        return take_along_axis(ravel(x), ravel(i), 0)
    if x.ndim != i.ndim:
        raise Error("TC0102", f"take_along_axis of ranks {x.ndim} and {i.ndim}", "equal ranks")
    a = shapes.axis(axis, x.ndim)
    others = [(*n.type.shape[:a], 1, *n.type.shape[a + 1 :]) for n in (x.node, i.node)]
    shape = shapes.broadcast_shapes(others)
    n, p = (broadcast_trailing(v, (*shape[:a], v.type.shape[a], *shape[a + 1 :])) for v in (x.node, i.node))
    return Traced(apply("gather_elements", n, positions(Traced(p), x.node.type.shape[a]), axis=a))


@public("x")
def diagonal(x: Any, /, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Traced:
    """The diagonal of two axes, as a new last axis."""
    x = strong(x)
    n = FUNCTIONS["moveaxis"](x, (axis1, axis2), (-2, -1)).node
    if x.ndim < 2:
        raise Error("TC0102", f"diagonal of rank {x.ndim}", "rank 2 or more")
    return Traced(diagonal_node(n, offset))


def diagonal_node(n: Node, offset: int = 0) -> Node:
    """The diagonal of the last two axes: every (columns + 1)st element of the flat matrix."""
    rows, columns = n.type.shape[-2:]
    if isinstance(rows, int) and isinstance(columns, int):
        size: Any = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
    elif offset or rows != columns:
        raise Error("TC0105", f"diagonal {offset} of {show_shape(n.type.shape)}", "the main diagonal of a square, or known sizes")
    else:
        size = rows
    flat = reshape(Traced(n), (*Traced(n).shape[:-2], -1))
    width = Traced(n).shape[-1]
    start = offset if offset >= 0 else -offset * width
    if isinstance(size, int) and isinstance(width, int):
        return flat[(..., slice(start, start + size * (width + 1) if size else start, width + 1))].node
    line = Traced(apply("iota", shape=(size,), axis=0, dtype=dt.i64))
    return apply("gather", flat.node, (line * (width + 1)).node, axis=flat.ndim - 1)


@public("x")
def diag(x: Any, /, k: int = 0) -> Traced:
    """The diagonal of a matrix, or the matrix with a vector on its diagonal."""
    x = strong(x)
    if x.ndim not in (1, 2):
        raise Error("TC0102", f"diag of rank {x.ndim}", "a vector or a matrix", hint="`diagonal` takes arrays of any rank")
    if x.ndim == 2:
        return diagonal(x, k)
    n = x.shape[0] + abs(k)
    placed = FUNCTIONS["pad"](x, (abs(k), 0))
    on = FUNCTIONS["eye"](n, k=k, dtype=np.bool_)
    return where(on, placed[None, :] if k >= 0 else placed[:, None], _zero(x))


def _zero(x: Traced) -> Traced:
    return Traced(full(0, x.node.type.dtype))


@public("x")
def trace(x: Any, /, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Traced:
    """The sum of a diagonal."""
    return FUNCTIONS["sum"](diagonal(x, offset, axis1, axis2), axis=-1, dtype=dtype)


def _sorted(x: Any, axis: Any, descending: bool, result: int) -> Traced:
    x = strong(x)
    x = ravel(x) if axis is None or (x.ndim == 0 and result == 1) else x
    a = shapes.axis(-1 if axis is None else axis, x.ndim)
    return Traced(item(apply("sort", x.node, axis=a, descending=descending), result))


@public("x")
def sort(x: Any, /, axis: Any = -1, kind: Any = None, *, descending: bool = False, stable: bool | None = True) -> Traced:
    """Elements in order along `axis`; NaN last."""
    return _sorted(x, axis, descending, 0)


@public("x")
def argsort(x: Any, /, axis: Any = -1, kind: Any = None, *, descending: bool = False, stable: bool | None = True) -> Traced:
    """The positions that put elements in order along `axis`; equal ones keep theirs, NaN last."""
    return _sorted(x, axis, descending, 1)


@public("x")
def topk(x: Any, k: int, /, axis: int = -1, *, largest: bool = True) -> tuple[Traced, Traced]:
    """(values, positions) of the k largest or smallest elements along `axis`, in order; of equals the first."""
    x = strong(x)
    both = apply("top_k", x.node, k=k, axis=shapes.axis(axis, x.ndim), largest=largest)
    return Traced(item(both, 0)), Traced(item(both, 1))


@public("x")
def median(x: Any, /, axis: Any = None, *, keepdims: bool = False) -> Traced:
    """The middle of the sorted elements, or the mean of the middle two; NaN if there is one."""
    x = strong(x)
    n = ravel(x) if axis is None else x
    a = shapes.axis(0 if axis is None else axis, n.ndim)
    size = n.shape[a]
    if not isinstance(size, int):
        raise Error("TC0105", f"the median of {size} elements", "a known size")
    n = n if n.dtype.kind == "f" else Traced(cast(n.node, dt.f64))
    if size == 0:
        return FUNCTIONS["mean"](x if x.dtype.kind == "f" else n, axis=axis, keepdims=keepdims)
    before = (slice(None),) * a
    line = sort(n, axis=a)
    middle = FUNCTIONS["mean"](line[(*before, slice((size - 1) // 2, size // 2 + 1))], axis=a)
    r = where(FUNCTIONS["isnan"](line[(*before, -1)]), np.nan, middle)
    if not keepdims:
        return r
    return reshape(r, (1,) * x.ndim) if axis is None else FUNCTIONS["expand_dims"](r, axis=a)


@public("x", "q")
def quantile(x: Any, q: Any, /, axis: Any = None, *, method: str = "linear", keepdims: bool = False) -> Traced:
    """The elements below which a share `q` of the sorted ones lies, between two of them linearly; NaN if there is one."""
    if method != "linear":
        raise Error("TC0105", f"quantile with method={method!r}", "'linear'")
    v, share = strong(x), array(q)
    line = ravel(v) if axis is None else FUNCTIONS["moveaxis"](v, axis, -1)
    line = line if line.dtype.kind == "f" else Traced(cast(line.node, dt.f64))
    line = sort(Traced(cast(line.node, promotion.common((line.dtype, operand(share).kind)))), axis=-1)
    last: Any = line.shape[-1] - 1
    place = Traced(cast(share.node, dt.f64)) * last
    low = FUNCTIONS["floor"](place)
    ends = [take(line, Traced(cast(p.node, dt.i64)), axis=-1) for p in (low, FUNCTIONS["minimum"](low + 1, last))]
    part = Traced(cast((place - low).node, line.node.type.dtype))
    r = where(FUNCTIONS["isnan"](line[(..., -1, *(None,) * share.ndim)]), np.nan, ends[0] + (ends[1] - ends[0]) * part)
    r = FUNCTIONS["moveaxis"](r, tuple(range(r.ndim - share.ndim, r.ndim)), tuple(range(share.ndim)))
    if not keepdims:
        return r
    gone = range(v.ndim) if axis is None else (shapes.axis(axis, v.ndim),)
    return FUNCTIONS["expand_dims"](r, axis=tuple(share.ndim + a for a in gone))


@public("x", "q")
def percentile(x: Any, q: Any, /, axis: Any = None, *, method: str = "linear", keepdims: bool = False) -> Traced:
    """The quantile of `q` percent."""
    return quantile(x, array(q) / 100, axis, method=method, keepdims=keepdims)


@public("x1", "x2")
def isin(x1: Any, x2: Any, /, *, invert: bool = False, **options: Any) -> Traced:
    """For each element of `x1` whether it is one of `x2`."""
    a, b = strong(x1), ravel(x2)
    r = FUNCTIONS["any"](a[..., None] == b, axis=-1)
    return FUNCTIONS["logical_not"](r) if invert else r


@public("x", "xp", "fp")
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None) -> Traced:
    """Values at `x` on the polygon through the points (xp, fp), whose xp rise; outside, `left`, `right` or the end values."""
    points, values = (Traced(cast(strong(v).node, dt.f64)) for v in (xp, fp))
    at = Traced(cast(strong(x).node, dt.f64))
    last: Any = points.shape[0] - 1
    cell = clip(searchsorted(points, at, side="right") - 1, 0, max(last - 1, 0))
    begin, end, first, second = (take(v, k) for v in (points, values) for k in (cell, FUNCTIONS["minimum"](cell + 1, last)))
    r = where(at == end, second, first + (second - first) / (end - begin) * (at - begin))
    r = where(at < points[0], values[0] if left is None else left, r)
    return where(at > points[-1], values[-1] if right is None else right, r)


@public("x1", "x2", "sorter")
def searchsorted(x1: Any, x2: Any, /, side: str = "left", sorter: Any = None) -> Traced:
    """Where each element of `x2` would go into the sorted vector `x1`, before its equals (`left`) or after them.

    A binary search, one step for each bit of the vector's size; NaN counts as larger than all else.
    """
    if side not in ("left", "right"):
        raise Error("TC0104", f"side={side!r}", "'left' or 'right'")
    line, wanted = strong(x1), strong(x2)
    if line.ndim != 1:
        raise Error("TC0102", f"searchsorted in rank {line.ndim}", "a vector")
    line = line if sorter is None else take(line, sorter)
    size = line.shape[0]
    steps = size.bit_length() if isinstance(size, int) else 63
    low: Any = FUNCTIONS["zeros_like"](wanted, dtype=np.int64)
    high: Any = low + size
    for _ in range(steps):
        middle = (low + high) // 2
        value = Traced(apply("gather", line.node, FUNCTIONS["minimum"](middle, size - 1).node, axis=0))
        further = _before(value, wanted) if side == "left" else FUNCTIONS["logical_not"](_before(wanted, value))
        further = further & (low < high)
        low, high = where(further, middle + 1, low), where(further, high, FUNCTIONS["minimum"](middle, high))
    return strong(low)


def _before(a: Traced, b: Traced) -> Traced:
    """a < b in sorting order."""
    isnan = FUNCTIONS["isnan"]
    return (a < b) | (isnan(b) & FUNCTIONS["logical_not"](isnan(a)))


@public("x")
def digitize(x: Any, bins: Any, right: bool = False) -> Traced:
    """The number of the bin of each element, for rising edges."""
    return searchsorted(bins, x, side="left" if right else "right")
