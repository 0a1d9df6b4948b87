"""Functions that combine elements along axes, with NumPy's result dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tcomp.errors import Error
from tcomp.frontend import shapes
from tcomp.frontend.dimension import shown
from tcomp.frontend.promotion import element_type
from tcomp.frontend.registry import FUNCTIONS, public
from tcomp.frontend.tracer import Traced, strong
from tcomp.ir import dtype as dt
from tcomp.ir.dtype import DType, to_numpy
from tcomp.ir.graph import cast
from tcomp.ir.graph import reshape as reshape_node
from tcomp.ir.node import Node
from tcomp.ir.ops import apply


def summed_dtype(t: DType, dtype: Any) -> DType:
    """What sums and products of `t` are in: 64 bits for integers and bool, else the dtype itself."""
    if dtype is not None:
        return element_type(dtype)
    if t.is_float or t.is_storage:  # of which the reduction refuses the latter
        return t
    return dt.u64 if t.kind == "uint" else dt.i64


def reduce_node(x: Node, monoid: str, axes: tuple[int, ...], keepdims: bool) -> Node:
    """`x` reduced over `axes`, which stay with size 1 if `keepdims`."""
    small = apply("reduce", x, monoid=monoid, axes=tuple(sorted(axes))) if axes else x
    if not keepdims:
        return small
    return reshape_node(small, tuple(1 if a in axes else d for a, d in enumerate(x.type.shape)))


def _axes(axis: Any, rank: int) -> tuple[int, ...]:
    """The axes of a reduction; as in NumPy a scalar has an axis 0 here."""
    return () if rank == 0 and axis in (0, -1) else shapes.axes(axis, rank)


def _masked(x: Node, where: Any, fill: Any) -> Node:
    """`x` with `fill` where the mask does not hold."""
    if where is None or where is True:
        return x
    chosen: Traced = FUNCTIONS["where"](where, Traced(x), FUNCTIONS["full_like"](Traced(x), fill))
    return chosen.node


@public("x", "initial", "where")
def sum_(
    x: Any, /, axis: Any = None, dtype: Any = None, *, keepdims: bool = False, initial: Any = None, where: Any = None
) -> Traced:
    """The sum along axes. Integers are summed in 64 bits; float16 accumulates in float32."""
    n = strong(x).node
    n = _masked(cast(n, summed_dtype(n.type.dtype, dtype)), where, 0)
    r = Traced(_reduced(n, "add", axis, keepdims))
    return r if initial is None else FUNCTIONS["add"](r, initial)


@public("x", "initial", "where")
def prod(
    x: Any, /, axis: Any = None, dtype: Any = None, *, keepdims: bool = False, initial: Any = None, where: Any = None
) -> Traced:
    """The product along axes. Integers are multiplied in 64 bits."""
    n = strong(x).node
    n = _masked(cast(n, summed_dtype(n.type.dtype, dtype)), where, 1)
    r = Traced(_reduced(n, "mul", axis, keepdims))
    return r if initial is None else FUNCTIONS["multiply"](r, initial)


def _reduced(n: Node, monoid: str, axis: Any, keepdims: bool) -> Node:
    if n.type.dtype.kind == "bool" and monoid in ("add", "mul"):
        monoid = {"add": "or", "mul": "and"}[monoid]
    return reduce_node(n, monoid, _axes(axis, n.type.rank), keepdims)


def _extremum(name: str, function: str, alias: str) -> None:
    """Register `max` or `min`: NaN wins; nothing has none."""

    def call(x: Any, /, axis: Any = None, *, keepdims: bool = False, initial: Any = None, where: Any = None) -> Traced:
        n = strong(x).node
        axes = _axes(axis, n.type.rank)
        if where is not None and initial is None:
            raise Error("TC0105", f"`{name}` with where= and no initial=", "initial=, the result where nothing is chosen")
        n = _masked(n, where, initial)
        if initial is None and any(n.type.shape[a] == 0 for a in axes):
            raise Error("TC0102", f"`{name}` over no elements of {n.type}", "at least one element, or initial=")
        r = Traced(reduce_node(n, name, axes, keepdims))
        return r if initial is None else FUNCTIONS[function](r, initial)

    call.__name__ = name
    call.__doc__ = f"The {'largest' if name == 'max' else 'smallest'} element along axes; NaN if there is one."
    public("x", "initial", "where", names=(alias,))(call)


_extremum("max", "maximum", "amax")
_extremum("min", "minimum", "amin")


def _test(name: str, monoid: str) -> None:
    """Register `any` or `all`."""

    def call(x: Any, /, axis: Any = None, *, keepdims: bool = False, where: Any = None) -> Traced:
        n = _masked(cast(strong(x).node, dt.bool_), where, monoid == "and")
        return Traced(reduce_node(n, monoid, _axes(axis, n.type.rank), keepdims))

    call.__name__ = name
    call.__doc__ = f"Whether {name} of the elements along axes {'is' if name == 'any' else 'are'} not zero."
    public("x", "where")(call)


_test("any", "or")
_test("all", "and")


def _count(n: Node, axes: tuple[int, ...]) -> Any:
    """The number of elements that one result combines: an integer, or a symbolic size."""
    return shown(shapes.count(n.type.shape[a] for a in axes))


def shown_shape(n: Node) -> tuple[Any, ...]:
    return tuple(map(shown, n.type.shape))


def _averaged_dtype(t: DType, dtype: Any) -> tuple[DType, DType]:
    """What means of `t` are computed in, and what they are given in."""
    result = element_type(dtype) if dtype is not None else t if t.is_float else dt.f64
    return dt.accumulator(result), result


@public("x", "where")
def mean(x: Any, /, axis: Any = None, dtype: Any = None, *, keepdims: bool = False, where: Any = None) -> Traced:
    """The mean along axes: float64 for integers; float16 is averaged in float32."""
    n = strong(x).node
    wide, result = _averaged_dtype(n.type.dtype, dtype)
    axes = _axes(axis, n.type.rank)
    total = Traced(reduce_node(_masked(cast(n, wide), where, 0), "add", axes, keepdims))
    if where is None or where is True:
        return Traced(cast((total / _count(n, axes)).node, result))
    chosen = sum_(FUNCTIONS["broadcast_to"](where, shown_shape(n)), axis, to_numpy(wide), keepdims=keepdims)
    return Traced(cast((total / chosen).node, result))


@public("x")
def var(
    x: Any,
    /,
    axis: Any = None,
    dtype: Any = None,
    *,
    ddof: float | None = None,
    correction: float | None = None,
    keepdims: bool = False,
) -> Traced:
    """The mean squared distance from the mean, over (count - correction); `ddof` is another name for `correction`."""
    n = strong(x).node
    wide, result = _averaged_dtype(n.type.dtype, dtype)
    axes = _axes(axis, n.type.rank)
    line: Any = Traced(cast(n, wide))
    distance = line - Traced(reduce_node(line.node, "add", axes, True)) / _count(n, axes)
    total = Traced(reduce_node((distance * distance).node, "add", axes, keepdims))
    return Traced(cast((total / _degrees(_count(n, axes), ddof, correction)).node, result))


def _degrees(count: Any, ddof: float | None, correction: float | None) -> Any:
    """The divisor of a variance; not below 0."""
    if ddof is not None and correction is not None:
        raise Error("TC0105", "both ddof= and correction=", "one of them")
    taken = ddof if ddof is not None else correction if correction is not None else 0
    if not taken:
        return count
    left = count - taken
    return max(left, 0) if isinstance(left, (int, float)) else FUNCTIONS["maximum"](left, 0)


@public("x")
def std(x: Any, /, axis: Any = None, dtype: Any = None, **options: Any) -> Traced:
    """The square root of the variance."""
    return FUNCTIONS["sqrt"](var(x, axis, dtype, **options))


def _argument(name: str, monoid: str) -> None:
    """Register `argmax` or `argmin`: the first of equals; the first NaN wins."""

    def call(x: Any, /, axis: Any = None, *, keepdims: bool = False) -> Traced:
        n = strong(x).node
        rank = n.type.rank
        flat = axis is None or (rank == 0 and axis in (0, -1))
        n = reshape_node(n, (shapes.count(n.type.shape),)) if flat else n
        a = 0 if flat else shapes.axis(axis, rank)
        r = Traced(apply("argreduce", n, monoid=monoid, axis=a, last=False, dtype=dt.i64))
        if not keepdims:
            return r
        return FUNCTIONS["reshape"](r, (1,) * rank) if flat else FUNCTIONS["expand_dims"](r, axis=a)

    call.__name__ = name
    call.__doc__ = f"The position of the {monoid}imum along an axis (of all elements without one): the first of equals."
    public("x")(call)


_argument("argmax", "max")
_argument("argmin", "min")


@public("x")
def count_nonzero(x: Any, /, axis: Any = None, *, keepdims: bool = False) -> Traced:
    """How many elements are not zero."""
    return sum_(cast_bool(x), axis, np.int64, keepdims=keepdims)


def cast_bool(x: Any) -> Traced:
    return Traced(cast(strong(x).node, dt.bool_))


@public("x")
def ptp(x: Any, /, axis: Any = None, *, keepdims: bool = False) -> Traced:
    """The largest minus the smallest element."""
    most, least = (FUNCTIONS[f](x, axis=axis, keepdims=keepdims) for f in ("max", "min"))
    return FUNCTIONS["subtract"](most, least)


@public("x", "weights")
def average(x: Any, /, axis: Any = None, weights: Any = None, *, keepdims: bool = False) -> Traced:
    """The mean, weighted."""
    if weights is None:
        return mean(x, axis, keepdims=keepdims)
    x, w = strong(x), strong(weights)
    if w.ndim == 1 and x.ndim > 1 and axis is not None:
        w = FUNCTIONS["reshape"](w, tuple(-1 if a == shapes.axis(axis, x.ndim) else 1 for a in range(x.ndim)))
    w = FUNCTIONS["broadcast_to"](w, x.shape)
    t = dt.promote(dt.promote(x.node.type.dtype, w.node.type.dtype), dt.f64 if not x.node.type.dtype.is_float else dt.f16)
    x, w = Traced(cast(x.node, t)), Traced(cast(w.node, t))
    return sum_(x * w, axis, keepdims=keepdims) / sum_(w, axis, keepdims=keepdims)


def _scan(name: str, monoid: str, standard: str) -> None:
    """Register the running sum or product."""

    def call(x: Any, /, axis: Any = None, dtype: Any = None) -> Traced:
        n = strong(x).node
        n = cast(n, summed_dtype(n.type.dtype, dtype))
        n = reshape_node(n, (shapes.count(n.type.shape),)) if axis is None or n.type.rank == 0 else n
        a = 0 if axis is None else shapes.axis(axis, n.type.rank)
        return Traced(apply("scan", n, monoid=monoid, axis=a, reverse=False, exclusive=False))

    def call_standard(x: Any, /, *, axis: Any = None, dtype: Any = None, include_initial: bool = False) -> Traced:
        x = strong(x)
        if axis is None and x.ndim > 1:
            raise Error("TC0104", f"`{standard}` of rank {x.ndim} without an axis", "an axis")
        a = 0 if axis is None else shapes.axis(axis, x.ndim)
        r = call(x, a, dtype)
        if not include_initial:
            return r
        first = FUNCTIONS["full_like"](r[(*(slice(None),) * a, slice(0, 1))], 0 if monoid == "add" else 1)
        return FUNCTIONS["concat"]([first, r], axis=a)

    call.__name__, call_standard.__name__ = name, standard
    call.__doc__ = call_standard.__doc__ = f"The running {'sum' if monoid == 'add' else 'product'} along an axis."
    public("x")(call)
    public("x")(call_standard)


_scan("cumsum", "add", "cumulative_sum")
_scan("cumprod", "mul", "cumulative_prod")


@public("x", "prepend", "append")
def diff(x: Any, /, n: int = 1, axis: int = -1, *, prepend: Any = None, append: Any = None) -> Traced:
    """Differences of neighbours, taken `n` times; of bools, whether they differ. Ends may be put before and after first."""
    line = strong(x)
    one = shapes.axis(axis, line.ndim)
    edge = tuple(1 if a == one else d for a, d in enumerate(line.shape))
    ends = [v if v is None or strong(v).ndim else FUNCTIONS["broadcast_to"](v, edge) for v in (prepend, append)]
    if prepend is not None or append is not None:
        line = FUNCTIONS["concat"]([v for v in (ends[0], line, ends[1]) if v is not None], axis=axis)
    before = (slice(None),) * one
    minus = FUNCTIONS["not_equal" if line.dtype.kind == "b" else "subtract"]
    for _ in range(n):
        line = minus(line[(*before, slice(1, None))], line[(*before, slice(None, -1))])
    return line


def _ignoring_nan(name: str, fill: Any) -> None:
    """Register `nan<name>`: NaN counts as `fill`."""

    def call(x: Any, /, axis: Any = None, *, keepdims: bool = False) -> Traced:
        x = strong(x)
        if x.dtype.kind != "f":
            return FUNCTIONS[name](x, axis=axis, keepdims=keepdims)
        missing = FUNCTIONS["isnan"](x)
        r = FUNCTIONS[name](FUNCTIONS["where"](missing, fill, x), axis=axis, keepdims=keepdims)
        if name not in ("max", "min"):
            return r
        return FUNCTIONS["where"](FUNCTIONS["all"](missing, axis=axis, keepdims=keepdims), np.nan, r)

    call.__name__ = f"nan{name}"
    call.__doc__ = f"The {name} of the elements that are not NaN."
    public("x")(call)


for _name, _fill in (("sum", 0), ("prod", 1), ("max", -np.inf), ("min", np.inf)):
    _ignoring_nan(_name, _fill)


@public("x")
def nanmean(x: Any, /, axis: Any = None, *, keepdims: bool = False) -> Traced:
    """The mean of the elements that are not NaN."""
    x = strong(x)
    if x.dtype.kind != "f":
        return mean(x, axis, keepdims=keepdims)
    wide = cast(x.node, dt.accumulator(x.node.type.dtype))
    there = FUNCTIONS["logical_not"](FUNCTIONS["isnan"](x))
    total = FUNCTIONS["nansum"](Traced(wide), axis=axis, keepdims=keepdims)
    counted = sum_(there, axis, wide.type.dtype, keepdims=keepdims)
    return Traced(cast((total / counted).node, x.node.type.dtype))
