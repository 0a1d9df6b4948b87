"""Boxes: NonMaxSuppression, whose number of results is data.

The boxes of each class are taken in the order of their scores, of equals the first. A loop takes the best box that is left and
strikes out what overlaps it, for all classes of all batches at once: as many turns as boxes are chosen, over as many candidates
as any class has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tcomp.frontend.onnx import build, regions
from tcomp.frontend.onnx.build import with_scalar
from tcomp.frontend.onnx.ops_index import chosen
from tcomp.frontend.onnx.ops_math import position
from tcomp.frontend.onnx.registry import Context, operator
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.graph import broadcast, cast, full, reshape, transpose
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import apply, item


@dataclass(frozen=True, slots=True)
class Spans:
    """Boxes [rows, boxes]: where each begins and ends along both axes, and its area."""

    low: tuple[Node, Node]
    high: tuple[Node, Node]
    area: Node

    def pick(self, at: Node) -> Spans:
        """The boxes at places [rows, n] along the second axis."""
        low, high = (tuple(_pick(v, at) for v in side) for side in (self.low, self.high))
        return Spans((low[0], low[1]), (high[0], high[1]), _pick(self.area, at))


def _pick(v: Node, at: Node) -> Node:
    return apply("gather_elements", v, at, axis=1)


def spans_of(boxes: Node, centred: bool) -> Spans:
    """Boxes [..., 4], given by two opposite corners, or by centre and size (x, y, width, height)."""
    a, b, e, f = (build.pick(boxes, boxes.type.rank - 1, k) for k in range(4))
    if centred:
        halves = [with_scalar("div", size, 2) for size in (e, f)]
        low = tuple(apply("sub", middle, half) for middle, half in zip((a, b), halves))
        high = tuple(apply("add", middle, half) for middle, half in zip((a, b), halves))
    else:
        low = tuple(apply("min", *pair) for pair in ((a, e), (b, f)))
        high = tuple(apply("max", *pair) for pair in ((a, e), (b, f)))
    sides = [apply("sub", h, w) for h, w in zip(high, low)]
    return Spans((low[0], low[1]), (high[0], high[1]), apply("mul", *sides))


def _overlap(one: Spans, all_: Spans, threshold: Node) -> Node:
    """Whether the intersection of each box with one [rows, 1] is more than a share of their union."""
    shape = all_.area.type.shape
    sides = []
    for a, b, low, high in zip(one.low, one.high, all_.low, all_.high):
        start = apply("max", broadcast(a, shape, (0, 1)), low)
        sides.append(apply("sub", apply("min", broadcast(b, shape, (0, 1)), high), start))
    common = apply("mul", *sides)
    mine = broadcast(one.area, shape, (0, 1))
    union = apply("sub", apply("add", mine, all_.area), common)
    over = apply("gt", apply("div", common, union), broadcast(threshold, shape, ()))
    for size in (*sides, common, union, mine, all_.area):
        over = apply("and", over, with_scalar("gt", size, 0))
    return over


def _scalar(x: Node | None) -> Node:
    """A threshold; 0 where it is left out."""
    return full(0, dt.f32) if x is None else reshape(cast(x, dt.f32), ())


def _limit(c: Context, most: Node | None) -> Dim:
    """How many boxes of a class may be chosen."""
    known = c.constant(most) if most is not None else None
    if most is None or known is not None:
        return 0 if known is None else max(0, int(known.reshape(-1)[0]))
    return c.sizes(with_scalar("max", reshape(cast(most, dt.i64), (1,)), 0), "the number of boxes")[0]


def _candidates(c: Context, scores: Node, least: Node | None) -> tuple[Node, Node, Dim]:
    """([rows, m] places in the order of their scores, whether each scores enough, m: the most that any row has)."""
    n = scores.type.shape[1]
    if least is None:
        return item(apply("sort", scores, axis=1, descending=True), 1), full(True, dt.bool_, scores.type.shape), n
    enough = apply("gt", scores, broadcast(_scalar(least), scores.type.shape, ()))
    counts = apply("reduce", cast(enough, dt.i64), monoid="add", axes=(1,))
    most = with_scalar("max", apply("reduce", counts, monoid="max", axes=(0,)), 0)
    m = c.sizes(reshape(most, (1,)), "the number of candidates", n if isinstance(n, int) else None)[0]
    best, order = (item(apply("top_k", scores, k=m, axis=1, largest=True), k) for k in (0, 1))
    return order, apply("gt", best, broadcast(_scalar(least), best.type.shape, ())), m


def _suppressed(c: Context, order: Node, alive: Node, spans: Spans, threshold: Node, turns: Dim) -> tuple[Node, Node]:
    """([turns, rows] the box that each turn chose, whether it chose one)."""
    rows, shape = alive.type.shape[0], alive.type.shape

    def turn(_: Node, carried: Sequence[Node]) -> list[Node]:
        _, done, left = carried
        first = apply("argreduce", cast(left, dt.i32), monoid="max", axis=1, last=False, dtype=dt.i64)
        at = reshape(first, (rows, 1))
        own = apply("eq", position(shape, 1), broadcast(at, shape, (0, 1)))
        struck = apply("or", own, _overlap(spans.pick(at), spans, threshold))
        rest = apply("and", left, apply("not", struck))
        found = reshape(_pick(left, at), (rows,))
        return [_any(rest, (0, 1)), with_scalar("add", done, 1), rest, reshape(_pick(order, at), (rows,)), found]

    start = (_any(alive, (0, 1)), full(0, dt.i64), alive)
    _, done, _, boxes, found = regions.loop(c, start, turns, turn, True)
    made = apply("lt", position(found.type.shape, 0), broadcast(done, found.type.shape, ()))
    return boxes, apply("and", found, made)  # nothing is known of turns that were not made


def _any(flags: Node, axes: tuple[int, ...]) -> Node:
    return apply("reduce", flags, monoid="or", axes=axes)


@operator("NonMaxSuppression", since=10)
def non_max_suppression(
    c: Context, boxes: Node, scores: Node, most: Node | None = None, overlap: Node | None = None, least: Node | None = None
) -> Node:
    """[n, 3]: batch, class and box, in order of batches, classes and scores."""
    batches, classes, n = scores.type.shape
    limit, rows = _limit(c, most), index.mul(batches, classes)
    if limit == 0 or n == 0 or rows == 0:
        return full(0, dt.i64, (0, 3))
    order, alive, m = _candidates(c, reshape(scores, (rows, n)), least)
    boxes = build.relabel(boxes, (batches, n, 4))
    wide = reshape(broadcast(boxes, (batches, classes, n, 4), (0, 2, 3)), (rows, n, 4))
    spans = spans_of(wide, bool(c.integer("center_point_box", 0))).pick(order)
    turns = index.minimum(limit, m)
    found, valid = _suppressed(c, order, alive, spans, _scalar(overlap), turns)
    flat = index.mul(rows, turns)
    places = chosen(c, reshape(transpose(valid, (1, 0)), (flat,)))
    picked = apply("gather", reshape(transpose(found, (1, 0)), (flat,)), places, axis=0)
    row = build.pointwise("floordiv", places, build.dimension(turns, dt.i64))
    split = [build.pointwise(op, row, build.dimension(classes, dt.i64)) for op in ("floordiv", "mod")]
    return build.concat([reshape(v, (*v.type.shape, 1)) for v in (*split, picked)], 1)
