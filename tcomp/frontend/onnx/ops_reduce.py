"""Reductions, positions of extremes, running sums and products."""

from __future__ import annotations

from collections.abc import Callable

from tcomp.frontend.onnx import build
from tcomp.frontend.onnx.build import reduce, scalar
from tcomp.frontend.onnx.data_axes import around_axis, axis_flags, kept_sizes, split_axes
from tcomp.frontend.onnx.registry import Context, operator
from tcomp.ir import dtype as dt
from tcomp.ir.graph import broadcast, cast, reshape
from tcomp.ir.node import Node
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


Body = Callable[[Node, tuple[int, ...], bool], Node]


def _reduction(name: str, wide: bool = True) -> Callable[[Body], Body]:
    """Register a reduction `f(x, axes, keep)`; 16-bit floats are computed in f32 if `wide`."""

    def register(f: Body) -> Body:
        @operator(name)
        def row(c: Context, x: Node, axes: Node | None = None) -> Node:
            over, keep = _axes(c, x.type.rank, axes), bool(c.integer("keepdims", 1))
            work = cast(x, dt.accumulator(x.type.dtype) if wide else x.type.dtype)
            if over is None and axes is not None:
                return cast(_along_data(c, f, work, axes, keep), x.type.dtype)
            return cast(f(work, over or (), keep), x.type.dtype)

        return f

    return register


def _along_data(c: Context, f: Body, x: Node, axes: Node, keep: bool) -> Node:
    """`f` along axes that are data."""
    rank = x.type.rank
    flags = axis_flags(c, axes, rank)
    apart, _, _ = split_axes(c, x, flags)
    small = f(apart, tuple(range(1, 2 * rank, 2)), False)
    return small if keep else reshape(small, kept_sizes(c, x.type.shape, flags, rank - c.count(axes)))


def _over(x: Node, monoid: str, axes: tuple[int, ...], keep: bool) -> Node:
    return reduce(x, monoid, axes, keep) if axes else x


def _by_monoid(name: str, monoid: str) -> None:
    _reduction(name, wide=False)(lambda x, axes, keep: _over(x, monoid, axes, keep))


for _onnx, _monoid in {"ReduceSum": "add", "ReduceProd": "mul", "ReduceMax": "max", "ReduceMin": "min"}.items():
    _by_monoid(_onnx, _monoid)


@_reduction("ReduceMean")
def reduce_mean(x: Node, axes: tuple[int, ...], keep: bool) -> Node:
    return build.mean(x, axes, keep) if axes else x


@_reduction("ReduceL1")
def reduce_l1(x: Node, axes: tuple[int, ...], keep: bool) -> Node:
    return _over(apply("abs", x), "add", axes, keep)


@_reduction("ReduceSumSquare")
def reduce_sum_square(x: Node, axes: tuple[int, ...], keep: bool) -> Node:
    return _over(apply("mul", x, x), "add", axes, keep)


def _in_float(f: Callable[[Node], Node], x: Node) -> Node:
    """`f` in floats: integers are computed in f64 and truncated."""
    return f(x) if x.type.dtype.is_float else cast(f(cast(x, dt.f64)), x.type.dtype)


@_reduction("ReduceL2")
def reduce_l2(x: Node, axes: tuple[int, ...], keep: bool) -> Node:
    return _in_float(lambda v: apply("sqrt", reduce_sum_square(v, axes, keep)), x)


@_reduction("ReduceLogSum")
def reduce_log_sum(x: Node, axes: tuple[int, ...], keep: bool) -> Node:
    return _in_float(lambda v: apply("log", _over(v, "add", axes, keep)), x)


@_reduction("ReduceLogSumExp")
def reduce_log_sum_exp(x: Node, axes: tuple[int, ...], keep: bool) -> Node:
    return _in_float(lambda v: _log_sum_exp(v, axes, keep), x)


def _log_sum_exp(x: Node, axes: tuple[int, ...], keep: bool) -> Node:
    """max + log(sum(exp(x - max))); an infinite maximum is not subtracted."""
    if not axes:
        return x
    high = reduce(x, "max", axes, False)
    high = apply("where", apply("isfinite", high), high, scalar(0, high))
    rest = tuple(a for a in range(x.type.rank) if a not in axes)
    e = apply("exp", apply("sub", x, broadcast(high, x.type.shape, rest)))
    total = apply("add", apply("log", reduce(e, "add", axes, False)), high)
    return reshape(total, tuple(1 if a in axes else d for a, d in enumerate(x.type.shape))) if keep else total


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
