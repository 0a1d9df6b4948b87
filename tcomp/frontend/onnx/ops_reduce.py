"""Reductions, positions of extremes, running sums and products."""

from __future__ import annotations

from collections.abc import Callable

from tcomp.frontend.onnx import build
from tcomp.frontend.onnx.build import reduce, scalar
from tcomp.frontend.onnx.registry import Context, operator
from tcomp.ir import dtype as dt
from tcomp.ir.graph import broadcast, cast, reshape
from tcomp.ir.node import Node
from tcomp.ir.ops import apply


def axes_of(c: Context, rank: int, axes: Node | None) -> tuple[int, ...]:
    """The axes of a reduction: an attribute, or an operand in later opsets; none means all, or nothing if the model says so."""
    given = c.integers("axes", ()) if axes is None else tuple(map(int, c.require_constant(axes, "`axes`").reshape(-1)))
    if not given:
        return () if c.integer("noop_with_empty_axes", 0) else tuple(range(rank))
    return c.axes(given, rank)


Body = Callable[[Node, tuple[int, ...], bool], Node]


def _reduction(name: str, wide: bool = True) -> Callable[[Body], Body]:
    """Register a reduction `f(x, axes, keep)`; 16-bit floats are computed in f32 if `wide`."""

    def register(f: Body) -> Body:
        @operator(name)
        def row(c: Context, x: Node, axes: Node | None = None) -> Node:
            over, keep = axes_of(c, x.type.rank, axes), bool(c.integer("keepdims", 1))
            work = dt.accumulator(x.type.dtype) if wide else x.type.dtype
            return cast(f(cast(x, work), over, keep), x.type.dtype)

        return f

    return register


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
    where = c.axis(int(c.require_constant(axis, "`axis`").reshape(())), x.type.rank)
    reverse, exclusive = bool(c.integer("reverse", 0)), bool(c.integer("exclusive", 0))
    return apply("scan", x, monoid="add" if c.op == "CumSum" else "mul", axis=where, reverse=reverse, exclusive=exclusive)
