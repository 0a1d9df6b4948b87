"""Sequences and optionals (`containers.py`). A sequence of known length is handled while importing; of any other, operations cut
and join the elements and the shapes of its tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from tcomp.frontend.onnx import build, containers
from tcomp.frontend.onnx.build import with_scalar
from tcomp.frontend.onnx.containers import Maybe, TensorList, Value
from tcomp.frontend.onnx.ops_math import position
from tcomp.frontend.onnx.registry import Context, operator
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.graph import broadcast, cast, full, reshape, transpose
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import apply

Sequence = tuple[Any, ...] | TensorList


# --- one tensor of a sequence --------------------------------------------------------------------------


@operator("SequenceEmpty", since=11)
def sequence_empty(c: Context) -> tuple[Value, ...]:
    return ((),)


@operator("SequenceConstruct", since=11)
def sequence_construct(c: Context, *xs: Node) -> tuple[Value, ...]:
    return (xs,)


@operator("SequenceLength", since=11)
def sequence_length(c: Context, s: Sequence) -> Node:
    return build.dimension(len(s) if isinstance(s, tuple) else s.length, dt.i64)


@operator("SequenceAt", since=11)
def sequence_at(c: Context, s: Sequence, place: Node) -> tuple[Value, ...]:
    k = _known_place(c, s, place)
    if isinstance(s, tuple) and k is not None:
        return (s[k],)
    if isinstance(s, tuple) and len({x.type.rank for x in s}) > 1:
        raise c.unsupported("a place that is not known in a sequence of tensors of different ranks")
    found = _as_list(c, s)
    at = _place(c, found, place, 0)
    start, shape = c.size(_found_at(_starts(found), at), "where a tensor begins"), _shape_at(c, found, at)
    return (reshape(build.take(found.data, 0, start, index.product(shape)), shape),)


@operator("SequenceInsert", since=11)
def sequence_insert(c: Context, s: Sequence, x: Node, place: Node | None = None) -> tuple[Value, ...]:
    k = None if not isinstance(s, tuple) else len(s) if place is None else _known_place(c, s, place, 1)
    if isinstance(s, tuple) and k is not None:
        return ((*s[:k], x, *s[k:]),)
    found = _as_list(c, s, x)
    if found.dtype != x.type.dtype:
        raise c.broken(f"a tensor of {x.type.dtype} for a sequence of {found.dtype}", "the same")
    rank = max(found.rank, x.type.rank) if isinstance(found.rank, int) else x.type.rank
    found, new = found.with_rank(rank), [containers.flat(x), containers.shape_row(x, rank)]
    if place is None:
        return (TensorList(*(build.concat([a, b], 0) for a, b in zip((found.data, found.shapes), new))),)
    before, after = _cut(c, found, _place(c, found, place, 1), 0)
    return (TensorList(*(build.concat(list(three), 0) for three in zip(before, new, after))),)


@operator("SequenceErase", since=11)
def sequence_erase(c: Context, s: Sequence, place: Node | None = None) -> tuple[Value, ...]:
    k = None if not isinstance(s, tuple) else len(s) - 1 if place is None else _known_place(c, s, place)
    if isinstance(s, tuple) and k is not None and s:
        return ((*s[:k], *s[k + 1 :]),)
    found = _as_list(c, s)
    at = _place(c, found, full(-1, dt.i64) if place is None else place, 0)
    before, after = _cut(c, found, at, 1)
    return (TensorList(*(build.concat(list(two), 0) for two in zip(before, after))),)


def _known_place(c: Context, s: Sequence, place: Node, more: int = 0) -> int | None:
    """A known place in a sequence of known length, counted from its front; `more` places are behind its end."""
    known = c.known(place)
    if known is None or not isinstance(s, tuple):
        return None
    if not -len(s) <= known[0] < len(s) + more:
        raise c.broken(f"position {known[0]} of a sequence of {len(s)}", "one inside")
    return known[0] + len(s) if known[0] < 0 else known[0]


def _as_list(c: Context, s: Sequence, like: Node | None = None) -> TensorList:
    """A sequence at run time. like: a tensor that tells its dtype where it is empty."""
    if isinstance(s, TensorList):
        return s
    kind = containers.kind_of(s) or (None if like is None or s else (like.type.dtype, like.type.rank))
    found = None if kind is None else containers.as_list(s, *kind)
    if found is None:
        raise c.unsupported("a place that is not known in a sequence of tensors of different element types, or of none")
    return found


def _rank(c: Context, s: TensorList) -> int:
    if not isinstance(s.rank, int):
        raise c.unsupported("a tensor of a sequence whose tensors may have any rank", "the model can say the rank")
    return s.rank


def _place(c: Context, s: TensorList, place: Node, more: int) -> Node:
    """A place in a sequence as a scalar from 0 to its length (that one too where `more` is 1). TC0605 where there is no such."""
    length = build.dimension(s.length, dt.i64)
    given = reshape(cast(place, dt.i64), ())
    at = apply("where", with_scalar("lt", given, 0), apply("add", given, length), given)
    most = length if more else with_scalar("sub", length, 1)
    c.require(apply("and", with_scalar("ge", at, 0), apply("le", at, most)), "a place in the sequence")
    return at


def _counts(s: TensorList) -> Node:
    """How many elements each tensor has."""
    return apply("reduce", apply("abs", s.shapes), monoid="mul", axes=(1,))


def _starts(s: TensorList) -> Node:
    """i64[length + 1]: where each tensor begins in the data, and where the last ends."""
    return _sums(_counts(s))


def _sums(lengths: Node) -> Node:
    """The sums of the first 0, 1, ... numbers of a vector."""
    up_to = apply("scan", lengths, monoid="add", axis=0, exclusive=False, reverse=False)
    return build.concat([full(0, dt.i64, (1,)), up_to], 0)


def _found_at(x: Node, places: Node) -> Node:
    """The elements of a vector, or the rows of a table, at i64 places that are in range."""
    return apply("gather", x, places, axis=0)


def _shape_at(c: Context, s: TensorList, at: Node) -> tuple[Dim, ...]:
    return c.sizes(_found_at(s.shapes, at), "the shape of a tensor") if _rank(c, s) else ()


def _cut(c: Context, s: TensorList, at: Node, left_out: int) -> tuple[tuple[Node, Node], tuple[Node, Node]]:
    """The data and shapes of the tensors before a place, and of those behind it, from `left_out` tensors on."""
    k, starts = c.size(at, "a place in a sequence"), _starts(s)
    first, last = (c.size(_found_at(starts, with_scalar("add", at, n)), "where a tensor begins") for n in (0, left_out))
    before, after = [], []
    for x, end, on in ((s.data, first, last), (s.shapes, k, index.add(k, left_out))):
        before.append(build.take(x, 0, 0, end))
        after.append(build.take(x, 0, on, index.sub(x.type.shape[0], on)))
    return (before[0], before[1]), (after[0], after[1])


# --- all of them ---------------------------------------------------------------------------------------


@operator("ConcatFromSequence", since=11)
def concat_from_sequence(c: Context, s: Sequence) -> Node:
    axis, new = c.integer("axis"), bool(c.integer("new_axis", 0))
    if isinstance(s, TensorList):
        return _stacked_list(c, s, axis) if new else _joined_list(c, s, axis)
    if not s:
        raise c.unsupported("a sequence of no tensors")
    return stacked(c, s, axis) if new else build.concat(s, c.axis(axis, s[0].type.rank))


def stacked(c: Context, values: tuple[Value, ...] | list[Value], axis: int) -> Node:
    """Tensors of one type side by side along a new axis."""
    if not values:
        raise c.unsupported("results collected by a loop of no steps")
    lines = []
    for x in values:
        if not isinstance(x, Node):
            raise c.unsupported("sequences collected by a loop")
        at = c.axis(axis, x.type.rank + 1)
        lines.append(reshape(x, (*x.type.shape[:at], 1, *x.type.shape[at:])))
    return build.concat(lines, c.axis(axis, lines[0].type.rank))


def _stacked_list(c: Context, s: TensorList, axis: int) -> Node:
    shape, rank = _common_shape(c, s, None), _rank(c, s)
    whole, at = reshape(s.data, (s.length, *shape)), c.axis(axis, rank + 1)
    return transpose(whole, (*range(1, at + 1), 0, *range(at + 1, rank + 1)))


def _common_shape(c: Context, s: TensorList, but: int | None) -> tuple[Dim, ...]:
    """The shape of the first tensor, which all must have, but along one axis."""
    c.require(with_scalar("gt", build.dimension(s.length, dt.i64), 0), "a sequence that is not empty")
    rank = _rank(c, s)
    first = build.pick(s.shapes, 0, 0)
    same = apply("eq", s.shapes, broadcast(first, s.shapes.type.shape, (1,)))
    if but is not None:
        same = apply("or", same, apply("eq", position(same.type.shape, 1), full(but, dt.i64, same.type.shape)))
    c.require(apply("reduce", same, monoid="and", axes=(0, 1)), "tensors of one shape")
    return c.sizes(first, "the shape of a tensor") if rank else ()


def _joined_list(c: Context, s: TensorList, axis: int) -> Node:
    at = c.axis(axis, _rank(c, s))
    shape = _common_shape(c, s, at)
    lengths = build.pick(s.shapes, 1, at)
    size = c.size(apply("reduce", lengths, monoid="add", axes=(0,)), "the size of the result")
    outer, inner = index.product(shape[:at]), index.product(shape[at + 1 :])
    whole = (*shape[:at], size, *shape[at + 1 :])
    if at == 0:
        return reshape(s.data, whole)
    box = (outer, size, inner)
    piece, starts = _piece_of(lengths, size), _sums(lengths)
    begin, length = (_found_at(v, piece) for v in (starts, lengths))
    row, o, k = position((size,), 0), position(box, 0), position(box, 2)
    per = build.dimension(inner, dt.i64)
    base = _times(begin, index.mul(outer, inner))
    inside = build.pointwise("mul", apply("sub", row, begin), per)
    step = build.pointwise("mul", length, per)
    places = apply("add", broadcast(apply("add", base, inside), box, (1,)), apply("mul", o, broadcast(step, box, (1,))))
    return reshape(_found_at(s.data, apply("add", places, k)), whole)


def _times(x: Node, d: Dim) -> Node:
    return build.pointwise("mul", x, build.dimension(d, dt.i64))


def _piece_of(lengths: Node, size: Dim) -> Node:
    """i64[size]: to which of the pieces of these lengths, which follow one another, each place belongs."""
    ends = apply("scan", lengths, monoid="add", axis=0, exclusive=False, reverse=False)
    ones = full(1, dt.i64, lengths.type.shape)
    marks = apply("scatter_elements", full(0, dt.i64, (index.add(size, 1),)), ends, ones, axis=0, monoid="add")
    return apply("scan", build.take(marks, 0, 0, size), monoid="add", axis=0, exclusive=False, reverse=False)


@operator("SplitToSequence", since=11)
def split_to_sequence(c: Context, x: Node, split: Node | None = None) -> tuple[Value, ...]:
    axis = c.axis(c.integer("axis", 0), x.type.rank)
    size, keep = x.type.shape[axis], split is not None or bool(c.integer("keepdims", 1))
    known = None if split is None else c.constant(split)
    if isinstance(size, int) and (split is None or known is not None):
        return (_known_pieces(c, x, axis, size, known, keep),)
    lengths = _lengths(c, size, split)
    shape, n = x.type.shape, lengths.type.shape[0]
    columns = [reshape(lengths, (n, 1)) if a == axis else _column(d, n) for a, d in enumerate(shape) if keep or a != axis]
    shapes = build.concat(columns, 1) if columns else full(0, dt.i64, (n, 0))
    return (TensorList(_pieces_data(x, axis, lengths), shapes),)


def _column(d: Dim, n: Dim) -> Node:
    return broadcast(build.dimension(d, dt.i64), (n, 1), ())


def _known_pieces(c: Context, x: Node, axis: int, size: int, known: np.ndarray | None, keep: bool) -> tuple[Node, ...]:
    """Pieces of known sizes."""
    known = np.ones(size, int) if known is None else known
    if known.ndim == 0:
        step = max(1, int(known))
        known = np.array([min(step, size - b) for b in range(0, size, step)], int)
    if int(known.sum()) != size or (known < 0).any():
        raise c.broken(f"parts {known.tolist()} of {size}", "parts that add up")
    parts = tuple(build.take(x, axis, int(e - n), int(n)) for e, n in zip(known.cumsum(), known))
    shape = x.type.shape
    return parts if keep else tuple(reshape(p, (*shape[:axis], *shape[axis + 1 :])) for p in parts)


def _lengths(c: Context, size: Dim, split: Node | None) -> Node:
    """The lengths of pieces of an axis."""
    if split is None:
        return full(1, dt.i64, (size,))
    if split.type.rank == 0:
        step = c.size(split, "the size of a piece", least=1)
        count = index.ceildiv(size, step)
        left = apply("sub", broadcast(build.dimension(size, dt.i64), (count,), ()), _times(position((count,), 0), step))
        return build.pointwise("min", left, build.dimension(step, dt.i64))
    lengths = cast(split, dt.i64)
    total = apply("reduce", lengths, monoid="add", axes=(0,))
    c.require(apply("eq", total, build.dimension(size, dt.i64)), "sizes that add up to the size of the axis")
    c.require(apply("reduce", with_scalar("ge", lengths, 0), monoid="and", axes=(0,)), "sizes that are not negative")
    return lengths


def _pieces_data(x: Node, axis: int, lengths: Node) -> Node:
    """The elements of pieces along an axis, one piece after another."""
    if axis == 0:
        return containers.flat(x)
    shape = x.type.shape
    outer, size, inner = index.product(shape[:axis]), shape[axis], index.product(shape[axis + 1 :])
    block, total = index.mul(outer, inner), index.product(shape)
    q = position((total,), 0)
    piece = _piece_of(_times(lengths, block), total)
    begin, length = (_found_at(v, piece) for v in (_sums(lengths), lengths))
    local = apply("sub", q, _times(begin, block))
    row = _times(length, inner)
    o, rest = (apply(op, local, row) for op in ("quotient", "rem"))
    places = apply("add", apply("add", _times(o, index.mul(size, inner)), _times(begin, inner)), rest)
    return _found_at(containers.flat(x), places)


# --- optionals -----------------------------------------------------------------------------------------


@operator("Optional", since=15)
def optional(c: Context, x: Value = None) -> tuple[Value, ...]:
    return (Maybe(full(False, dt.bool_), None) if x is None else x,)


@operator("OptionalGetElement", since=15)
def optional_get_element(c: Context, x: Value) -> tuple[Value, ...]:
    if not isinstance(x, Maybe):
        return (x,)
    c.require(x.given, "an optional that is there")
    if x.value is None:
        raise c.broken("an empty optional", "a value")
    return (x.value,)


@operator("OptionalHasElement", since=15)
def optional_has_element(c: Context, x: Value = None) -> Node:
    return x.given if isinstance(x, Maybe) else full(x is not None, dt.bool_)
