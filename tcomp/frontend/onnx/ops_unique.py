"""Unique: elements, or subtensors along an axis, that differ from all others; how many there are is data.

A stable sort brings equals together in the order of their places; the first of each run is an element of the result. Subtensors
are rows, sorted by one column after the other from the last on. As in NumPy, NaNs are equal to one another, but not in rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from tcomp.frontend.onnx import build, regions
from tcomp.frontend.onnx.build import with_scalar
from tcomp.frontend.onnx.ops_index import chosen
from tcomp.frontend.onnx.ops_math import position
from tcomp.frontend.onnx.registry import MICROSOFT, Context, operator
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.graph import cast, full, reshape, transpose
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import apply, item


@dataclass(frozen=True, slots=True)
class Runs:
    """Rows in order: the place of each, and whether it is the first of its run of equals. All vectors of one length."""

    order: Node
    first: Node

    def back(self, values: Node) -> Node:
        """Values that belong to the rows in order, at the places of the rows."""
        room = full(0, values.type.dtype, values.type.shape)
        return apply("scatter_elements", room, self.order, values, axis=0, monoid=None)


def runs_of(c: Context, rows: Node) -> Runs:
    """Equal rows of a matrix."""
    n, width = rows.type.shape
    if width == 1:
        values, order = (item(apply("sort", reshape(rows, (n,)), axis=0, descending=False), k) for k in (0, 1))
        return Runs(order, _begins(reshape(values, (n, 1)), True))
    last = index.sub(width, 1)
    (order,) = regions.loop(c, (position((n,), 0),), width, lambda k, v: [_by_column(rows, index.sub(last, k), v[0])])
    return Runs(order, _begins(apply("gather", rows, order, axis=0), False))


def _by_column(rows: Node, column: Dim, order: Node) -> Node:
    """`order` sorted once more, by a column."""
    keys = build.pick(rows, 1, column)
    again = apply("sort", apply("gather", keys, order, axis=0), axis=0, descending=False)
    return apply("gather", order, item(again, 1), axis=0)


def _begins(rows: Node, nan_equal: bool) -> Node:
    """Whether each row differs from the one before."""
    place = position(rows.type.shape[:1], 0)
    before = apply("gather", rows, with_scalar("max", with_scalar("sub", place, 1), 0), axis=0)
    differs = apply("ne", rows, before)
    if nan_equal and rows.type.dtype.is_float:
        differs = apply("and", differs, apply("not", apply("and", apply("isnan", rows), apply("isnan", before))))
    any_ = apply("reduce", cast(differs, dt.i32), monoid="max", axes=(1,))
    return apply("or", with_scalar("eq", place, 0), with_scalar("gt", any_, 0))


def _number(flags: Node) -> Node:
    """How many flags hold before and at each place, less 1."""
    return with_scalar("sub", apply("scan", cast(flags, dt.i64), monoid="add", axis=0, exclusive=False, reverse=False), 1)


def _rising(c: Context, runs: Runs) -> tuple[Node, Node]:
    """(where each run begins, which run each row is of), runs in order of their values."""
    return apply("gather", runs.order, chosen(c, runs.first), axis=0), runs.back(_number(runs.first))


def _as_met(c: Context, runs: Runs) -> tuple[Node, Node]:
    """The same, runs in order of their first rows."""
    new = runs.back(runs.first)
    start = apply("where", runs.first, position(runs.first.type.shape, 0), full(0, dt.i64, runs.first.type.shape))
    start = apply("scan", start, monoid="max", axis=0, exclusive=False, reverse=False)
    origin = apply("gather", runs.order, start, axis=0)
    return chosen(c, new), runs.back(apply("gather", _number(new), origin, axis=0))


def _results(c: Context, x: Node, axis: int, in_order: bool) -> tuple[Node, Node, Node, Node]:
    """(Y, where each is first met, the place in Y of each, counts)."""
    rows = transpose(x, (axis, *(a for a in range(x.type.rank) if a != axis)))
    runs = runs_of(c, reshape(rows, (x.type.shape[axis], index.product(rows.type.shape[1:]))))
    at, inverse = _rising(c, runs) if in_order else _as_met(c, runs)
    ones = full(1, dt.i64, inverse.type.shape)
    counts = apply("scatter_elements", full(0, dt.i64, at.type.shape), inverse, ones, axis=0, monoid="add")
    return apply("gather", x, at, axis=axis), at, inverse, counts


@operator("Unique", since=11)
def unique(c: Context, x: Node) -> tuple[Node, ...]:
    in_order = bool(c.integer("sorted", 1))
    if c.has("axis"):
        return _results(c, x, c.axis(c.integer("axis"), x.type.rank), in_order)
    return _results(c, reshape(x, (index.product(x.type.shape),)), 0, in_order)


@operator("Unique", domain=MICROSOFT)
def unique_as_met(c: Context, x: Node) -> tuple[Node, ...]:
    """(values in the order in which they are met, the place in them of each element, counts)."""
    if x.type.rank != 1:
        raise c.broken(f"an operand of type {x.type}", "rank 1")
    y, _, inverse, counts = _results(c, x, 0, False)
    return y, inverse, counts
