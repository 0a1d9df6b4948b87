"""Determinants and inverses: elimination with partial pivoting, one column in a turn of a loop, for all matrices of a batch."""

from __future__ import annotations

from collections.abc import Sequence

from tcomp.frontend.onnx import build, regions
from tcomp.frontend.onnx.ops_math import position
from tcomp.frontend.onnx.registry import MICROSOFT, Context, operator
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.graph import broadcast, cast, full, reshape
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import apply


def _matrices(c: Context, x: Node) -> Node:
    """[batch, n, n] in the accumulator's precision."""
    if x.type.rank < 2:
        raise c.broken(f"an operand of type {x.type}", "square matrices")
    *lead, rows, columns = x.type.shape
    n = build.unify(rows, columns)
    return cast(reshape(x, (index.product(lead), n, n)), dt.accumulator(x.type.dtype))


def _equal(shape: build.Shape, axis: int, at: Dim) -> Node:
    """Whether an element is at a place of an axis."""
    return apply("eq", position(shape, axis), broadcast(build.dimension(at, dt.i64), shape, ()))


def _row(a: Node, at: Node) -> Node:
    """[batch, columns]: a row of each matrix; at: [batch]."""
    batch, _, columns = a.type.shape
    places = broadcast(at, (batch, 1, columns), (0,))
    return reshape(apply("gather_elements", a, places, axis=1), (batch, columns))


def _pivoted(a: Node, k: Dim) -> tuple[Node, Node, Node, Node]:
    """(the matrices with the largest element of column k on or below the diagonal brought to row k, that row, that element,
    whether another row was there). NaN is the largest."""
    shape, rows = a.type.shape, a.type.shape[:2]
    size = apply("abs", build.pick(a, 2, k))
    above = apply("lt", position(rows, 1), broadcast(build.dimension(k, dt.i64), rows, ()))
    best = apply(
        "argreduce", apply("where", above, full(-1, size.type.dtype, rows), size), monoid="max", axis=1, last=False, dtype=dt.i64
    )
    chosen = _row(a, best)
    here = build.pick(a, 1, k)
    there = apply("eq", position(shape, 1), broadcast(best, shape, (0,)))
    swapped = apply("where", there, broadcast(here, shape, (0, 2)), a)
    swapped = apply("where", _equal(shape, 1, k), broadcast(chosen, shape, (0, 2)), swapped)
    pivot = build.pick(chosen, 1, k)
    return swapped, chosen, pivot, apply("ne", best, build.size_like(k, best))


def _less_row(a: Node, factors: Node, row: Node) -> Node:
    """Every row of a less its factor times a row."""
    return apply("sub", a, apply("mul", broadcast(factors, a.type.shape, (0, 1)), broadcast(row, a.type.shape, (0, 2))))


@operator("Det", since=11)
def det(c: Context, x: Node) -> Node:
    """The product of the pivots; of no rows: 1."""
    a = _matrices(c, x)
    batch, n, _ = a.type.shape

    def turn(k: Node, carried: Sequence[Node]) -> list[Node]:
        a, row, pivot, swapped = _pivoted(carried[0], k)
        rows = a.type.shape[:2]
        factors = apply("div", build.pick(a, 2, k), broadcast(pivot, rows, (0,)))
        below = apply("gt", position(rows, 1), broadcast(build.dimension(k, dt.i64), rows, ()))
        below = apply("and", below, apply("ne", broadcast(pivot, rows, (0,)), full(0, pivot.type.dtype, rows)))
        rest = _less_row(a, apply("where", below, factors, full(0, factors.type.dtype, rows)), row)
        return [rest, apply("mul", carried[1], apply("where", swapped, apply("neg", pivot), pivot))]

    _, product = regions.loop(c, (a, full(1, a.type.dtype, (batch,))), n, turn)
    return reshape(cast(product, x.type.dtype), x.type.shape[:-2])


@operator("Inverse", domain=MICROSOFT)
def inverse(c: Context, x: Node) -> Node:
    """By elimination in the matrix and the identity beside it; of a singular matrix not finite."""
    a = _matrices(c, x)
    n = a.type.shape[1]
    eye = apply("eq", position(a.type.shape, 1), position(a.type.shape, 2))

    def turn(k: Node, carried: Sequence[Node]) -> list[Node]:
        a, row, pivot, _ = _pivoted(carried[0], k)
        rows = a.type.shape[:2]
        row = apply("div", row, broadcast(pivot, row.type.shape, (0,)))
        at_k = _equal(rows, 1, k)
        rest = _less_row(a, apply("where", at_k, full(0, a.type.dtype, rows), build.pick(a, 2, k)), row)
        return [apply("where", broadcast(at_k, a.type.shape, (0, 1)), broadcast(row, a.type.shape, (0, 2)), rest)]

    (both,) = regions.loop(c, (build.concat([a, cast(eye, a.type.dtype)], 2),), n, turn)
    return reshape(cast(build.take(both, 2, n, n), x.type.dtype), x.type.shape)
