"""Reductions, positions of extremes, running sums and products."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tcomp.frontend.onnx import build
from tcomp.frontend.onnx.build import reduce, scalar, with_scalar
from tcomp.frontend.onnx.data_axes import around_axis, axis_flags, kept_sizes, split_axes
from tcomp.frontend.onnx.ops_math import position
from tcomp.frontend.onnx.registry import Context, operator
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.graph import broadcast, cast, reshape
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import apply


def _axes(c: Context, rank: int, axes: Node | None) -> tuple[int, ...] | None:
    """The axes of a reduction: an attribute, or an operand in later opsets; none means all, or nothing if the model says so. None
    where they are data."""
    given = c.integers("axes", ()) if axes is None else () if 0 in axes.type.shape else c.known(axes)
    if given is None:
        return None
    if not given:
        return () if c.integer("noop_with_empty_axes", 0) else tuple(range(rank))
    return c.axes(given, rank)


@dataclass(frozen=True, slots=True)
class Along:
    """Some axes of an operand, known or not. fold: (x, monoid) to x reduced over them; spread: (small, x) to what was reduced,
    over all of x again; count: how many elements are reduced to one; none: whether there are no axes, and nothing is reduced."""

    fold: Callable[[Node, str], Node]
    spread: Callable[[Node, Node], Node]
    count: Dim
    none: bool = False


Body = Callable[[Node, Along], Node]


def _along(shape: build.Shape, axes: tuple[int, ...]) -> Along:
    """Axes that are known."""
    kept = tuple(a for a in range(len(shape)) if a not in axes)
    return Along(
        lambda x, monoid: reduce(x, monoid, axes, False) if axes else x,
        lambda small, x: broadcast(small, x.type.shape, kept),
        index.product(shape[a] for a in axes),
        not axes,
    )


def _along_data(outer: build.Shape, inner: build.Shape) -> Along:
    """Axes that are data, as `split_axes` gives their sizes, of an operand of shape (n_0, m_0, n_1, m_1, ..., d): its last axis
    is whole, for work on rows is fast, and is split where little is left."""
    rank = len(outer)
    odd, even = tuple(range(1, 2 * rank - 1, 2)), (*range(0, 2 * rank - 2, 2), 2 * rank - 2)

    def fold(x: Node, monoid: str) -> Node:
        rows = reduce(x, monoid, odd, False) if odd else x
        return reduce(reshape(rows, (*outer, inner[-1])), monoid, (rank,), False)

    def spread(small: Node, x: Node) -> Node:
        at = position(x.type.shape[-1:], 0)
        last = with_scalar("sub", build.dimension(outer[-1], dt.i64), 1)
        rows = apply("gather", small, apply("min", at, broadcast(last, at.type.shape, ())), axis=rank - 1)
        return broadcast(rows, x.type.shape, even)

    return Along(fold, spread, index.product(inner))


def _reduction(name: str, wide: bool = True) -> Callable[[Body], Body]:
    """Register a reduction `f(x, along)`; 16-bit floats are computed in f32 if `wide`."""

    def register(f: Body) -> Body:
        @operator(name)
        def row(c: Context, x: Node, axes: Node | None = None) -> Node:
            work = cast(x, dt.accumulator(x.type.dtype) if wide else x.type.dtype)
            return cast(_reduced(c, f, work, axes), x.type.dtype)

        return f

    return register


def _reduced(c: Context, f: Body, x: Node, axes: Node | None) -> Node:
    keep, shape = bool(c.integer("keepdims", 1)), x.type.shape
    known = _axes(c, len(shape), axes)
    if known is None and axes is not None:
        return _reduced_along_data(c, f, x, axes, keep)
    small = f(x, _along(shape, known or ()))
    return reshape(small, tuple(1 if a in (known or ()) else d for a, d in enumerate(shape))) if keep else small


def _reduced_along_data(c: Context, f: Body, x: Node, axes: Node, keep: bool) -> Node:
    shape, rank = x.type.shape, x.type.rank
    flags = axis_flags(c, axes, rank)
    number = index.product(axes.type.shape)
    if isinstance(number, Node):
        if not keep:
            raise c.unsupported("keepdims=0 along axes whose number is not known")
        none = with_scalar("eq", build.dimension(number, dt.i64), 0)
        flags = flags if c.integer("noop_with_empty_axes", 0) else apply("or", flags, broadcast(none, flags.type.shape, ()))
    _, outer, inner = split_axes(c, x, flags)
    rows = reshape(x, (*(d for pair in zip(outer[:-1], inner[:-1]) for d in pair), shape[-1]))
    small = f(rows, _along_data(outer, inner))
    return small if keep else reshape(small, kept_sizes(c, shape, flags, rank - c.count(axes)))


def _by_monoid(name: str, monoid: str) -> None:
    _reduction(name, wide=False)(lambda x, along: along.fold(x, monoid))


for _onnx, _monoid in {"ReduceSum": "add", "ReduceProd": "mul", "ReduceMax": "max", "ReduceMin": "min"}.items():
    _by_monoid(_onnx, _monoid)


@_reduction("ReduceMean")
def reduce_mean(x: Node, along: Along) -> Node:
    if along.none:
        return x
    wide = cast(x, dt.accumulator(x.type.dtype))
    return cast(build.quotient(along.fold(wide, "add"), along.count), x.type.dtype)


@_reduction("ReduceL1")
def reduce_l1(x: Node, along: Along) -> Node:
    return along.fold(apply("abs", x), "add")


@_reduction("ReduceSumSquare")
def reduce_sum_square(x: Node, along: Along) -> Node:
    return along.fold(apply("mul", x, x), "add")


def _in_float(f: Callable[[Node], Node], x: Node) -> Node:
    """`f` in floats: integers are computed in f64 and truncated."""
    return f(x) if x.type.dtype.is_float else cast(f(cast(x, dt.f64)), x.type.dtype)


@_reduction("ReduceL2")
def reduce_l2(x: Node, along: Along) -> Node:
    return _in_float(lambda v: apply("sqrt", reduce_sum_square(v, along)), x)


@_reduction("ReduceLogSum")
def reduce_log_sum(x: Node, along: Along) -> Node:
    return _in_float(lambda v: apply("log", along.fold(v, "add")), x)


@_reduction("ReduceLogSumExp")
def reduce_log_sum_exp(x: Node, along: Along) -> Node:
    return _in_float(lambda v: _log_sum_exp(v, along), x)


def _log_sum_exp(x: Node, along: Along) -> Node:
    """max + log(sum(exp(x - max))); an infinite maximum is not subtracted."""
    if along.none:
        return x
    high = along.fold(x, "max")
    high = apply("where", apply("isfinite", high), high, scalar(0, high))
    e = apply("exp", apply("sub", x, along.spread(high, x)))
    return apply("add", apply("log", along.fold(e, "add")), high)


@operator("ArgMax", "ArgMin")
def arg_extreme(c: Context, x: Node) -> Node:
    axis = c.axis(c.integer("axis", 0), x.type.rank)
    last = bool(c.integer("select_last_index", 0))
    found = apply("argreduce", x, monoid=c.op[3:].lower(), axis=axis, last=last, dtype=dt.i64)
    if not c.integer("keepdims", 1):
        return found
    return reshape(found, (*x.type.shape[:axis], 1, *x.type.shape[axis + 1 :]))


@operator("CumSum", "CumProd", since=11)
def cumulative(c: Context, x: Node, axis: Node) -> Node:
    known, shape = c.known(axis), x.type.shape
    if known is None:
        x, at = reshape(x, around_axis(c, shape, axis)), 1
    else:
        at = c.axis(known[0], x.type.rank)
    reverse, exclusive = bool(c.integer("reverse", 0)), bool(c.integer("exclusive", 0))
    monoid = "add" if c.op == "CumSum" else "mul"
    return reshape(apply("scan", x, monoid=monoid, axis=at, reverse=reverse, exclusive=exclusive), shape)
