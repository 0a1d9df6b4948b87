"""Sequences and optionals while importing.

A sequence whose length is known is a tuple of values; any other is a `TensorList`, two tensors. An optional that is surely there
is its value; any other is a `Maybe`. Control flow and the borders of the program see the tensors that a value is made of
(`parts`), in an order that its structure gives (`rebuilt`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias, TypeGuard

from tcomp.frontend.onnx import build
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.dtype import DType
from tcomp.ir.graph import full, reshape
from tcomp.ir.node import Dim, Node


@dataclass(frozen=True, slots=True)
class TensorList:
    """Tensors of one dtype. data: the elements of all of them, one tensor after another; shapes: i64[length, rank], those of a
    tensor of smaller rank with -1 before its sizes. A model may leave the rank open: then it is a symbol."""

    data: Node
    shapes: Node

    @property
    def dtype(self) -> DType:
        found: DType = self.data.type.dtype
        return found

    @property
    def length(self) -> Dim:
        found: Dim = self.shapes.type.shape[0]
        return found

    @property
    def rank(self) -> Dim:
        found: Dim = self.shapes.type.shape[1]
        return found

    def with_rank(self, rank: int) -> TensorList:
        """The same sequence as one of tensors up to this rank. Where its own is open, the call fails unless it is this one."""
        if not isinstance(self.rank, int):
            return TensorList(self.data, reshape(self.shapes, (self.length, rank)))
        if rank <= self.rank:
            return self
        return TensorList(self.data, build.concat([full(-1, dt.i64, (self.length, rank - self.rank)), self.shapes], 1))


@dataclass(frozen=True, slots=True)
class Maybe:
    """An optional: `value`, which counts where the boolean scalar `given` holds. value: None where it surely is not there."""

    given: Node
    value: Value


@dataclass(frozen=True, slots=True)
class Maps:
    """A sequence of maps, as ZipMap of ai.onnx.ml makes them. keys: i64[n], of all of them; values: [length, n]."""

    keys: Node
    values: Node


Value: TypeAlias = "Node | tuple[Value, ...] | TensorList | Maybe | Maps | None"


def is_container(v: Value) -> bool:
    return v is not None and not isinstance(v, Node)


def parts(v: Value) -> list[Node]:
    """The tensors that a value is made of."""
    match v:
        case Node():
            return [v]
        case TensorList():
            return [v.data, v.shapes]
        case Maybe():
            return [v.given, *parts(v.value)]
        case Maps():
            return [v.keys, v.values]
        case tuple():
            return [p for x in v for p in parts(x)]
    return []


def rebuilt(like: Value, tensors: Iterator[Node]) -> Value:
    """A value of the structure of `like` made of these tensors."""
    match like:
        case Node():
            return next(tensors)
        case TensorList():
            return TensorList(next(tensors), next(tensors))
        case Maybe():
            return Maybe(next(tensors), rebuilt(like.value, tensors))
        case Maps():
            return Maps(next(tensors), next(tensors))
        case tuple():
            return tuple(rebuilt(x, tensors) for x in like)
    return None


def empty(dtype: DType, rank: int) -> TensorList:
    """A sequence of no tensors."""
    return TensorList(full(0, dtype, (0,)), full(0, dt.i64, (0, rank)))


def as_list(v: tuple[Value, ...], dtype: DType, rank: int) -> TensorList | None:
    """A sequence of known length as a `TensorList`; None where its tensors are not of this dtype, up to this rank."""
    tensors = [x for x in v if isinstance(x, Node) and x.type.dtype == dtype and x.type.rank <= rank]
    if len(tensors) < len(v):
        return None
    if not tensors:
        return empty(dtype, rank)
    data = build.concat([flat(x) for x in tensors], 0)
    return TensorList(data, build.concat([shape_row(x, rank) for x in tensors], 0))


def flat(x: Node) -> Node:
    return reshape(x, (index.product(x.type.shape),))


def shape_row(x: Node, rank: int) -> Node:
    """The shape of a tensor as i64[1, rank]."""
    own = reshape(build.dimensions(x.type.shape), (1, x.type.rank)) if x.type.rank else full(0, dt.i64, (1, 0))
    return own if rank == x.type.rank else build.concat([full(-1, dt.i64, (1, rank - x.type.rank)), own], 1)


def kind_of(v: Value) -> tuple[DType, int] | None:
    """The dtype and largest rank of the tensors of a sequence; None where nothing tells, or the dtypes differ."""
    if isinstance(v, TensorList):
        return (v.dtype, v.rank) if isinstance(v.rank, int) else None
    tensors = [x.type for x in v if isinstance(x, Node)] if isinstance(v, tuple) else []
    if len({t.dtype for t in tensors}) != 1:
        return None
    return tensors[0].dtype, max(t.rank for t in tensors)


def of_one_structure(a: Value, b: Value) -> tuple[Value, Value] | None:
    """Two values with the same structure, where there is one: tensors of equal dtypes and ranks in the same places."""
    if isinstance(a, Maybe) or isinstance(b, Maybe) or (a is None) != (b is None):
        return _both_optional(_optional(a), _optional(b))
    if is_sequence(a) and is_sequence(b):
        return _both_sequences(a, b)
    if isinstance(a, Node) and isinstance(b, Node):
        return (a, b) if (a.type.dtype, a.type.rank) == (b.type.dtype, b.type.rank) else None
    return (a, b) if a is None and b is None else None


def is_sequence(v: Value) -> TypeGuard[tuple[Value, ...] | TensorList]:
    return isinstance(v, tuple | TensorList)


def _optional(v: Value) -> Maybe:
    return v if isinstance(v, Maybe) else Maybe(full(v is not None, dt.bool_), v)


def _both_optional(a: Maybe, b: Maybe) -> tuple[Value, Value] | None:
    one = _nothing(b.value) if a.value is None else a.value
    two = _nothing(a.value) if b.value is None else b.value
    found = of_one_structure(one, two)
    return None if found is None else (Maybe(a.given, found[0]), Maybe(b.given, found[1]))


def _nothing(like: Value) -> Value:
    """What stands in the place of an optional that is not there: as little as there can be of this structure."""
    match like:
        case Node():
            return full(0, like.type.dtype, (0,) * like.type.rank)
        case TensorList():
            return TensorList(full(0, like.dtype, (0,)), full(0, dt.i64, (0, like.rank)))
        case tuple():
            kind = kind_of(like)
            return () if kind is None else empty(*kind)
        case Maybe():
            return Maybe(full(False, dt.bool_), _nothing(like.value))
    return None


def _both_sequences(a: tuple[Value, ...] | TensorList, b: tuple[Value, ...] | TensorList) -> tuple[Value, Value] | None:
    if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        pairs = [of_one_structure(x, y) for x, y in zip(a, b)]
        if None not in pairs:
            return tuple(p[0] for p in pairs if p), tuple(p[1] for p in pairs if p)
    if isinstance(a, TensorList) and isinstance(b, TensorList) and (a.dtype, a.rank) == (b.dtype, b.rank):
        return a, b
    kinds = [kind for v in (a, b) if (kind := kind_of(v))]
    if not kinds:
        return None
    one, two = (_of_kind(v, kinds[0][0], max(rank for _, rank in kinds)) for v in (a, b))
    return (one, two) if one is not None and two is not None else None


def _of_kind(v: tuple[Value, ...] | TensorList, dtype: DType, rank: int) -> TensorList | None:
    if isinstance(v, tuple):
        return as_list(v, dtype, rank)
    return v.with_rank(rank) if v.dtype == dtype else None


def towards(start: Value, found: Value) -> Value:
    """What a loop carries at first, `start`, in the structure of what a turn makes of it; None where it has no such."""
    if isinstance(start, Maybe) or isinstance(found, Maybe) or (start is None) != (found is None):
        one, two = _optional(start), _optional(found)
        return Maybe(one.given, _nothing(two.value) if one.value is None else _inner(one.value, two.value))
    if isinstance(start, TensorList) and isinstance(found, TensorList) and isinstance(found.rank, int):
        return start.with_rank(found.rank) if start.dtype == found.dtype else None
    both = of_one_structure(start, found)
    return None if both is None else both[0]


def _inner(start: Value, found: Value) -> Value:
    return start if found is None else towards(start, found)
