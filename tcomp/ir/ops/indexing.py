"""Rows whose positions come from data: gather, scatter, sort, top-k. An index out of range is an error of the call (TC0604)."""

from __future__ import annotations

import numpy as np

from tcomp.errors import Error
from tcomp.ir import dtype as dt
from tcomp.ir.dtype import to_numpy
from tcomp.ir.node import Dim, Node, node
from tcomp.ir.ops.reduction import MONOIDS
from tcomp.ir.ops.table import (
    INDEXING,
    OpDef,
    Type,
    register,
    require_axis,
    require_computed,
    require_dtype,
    require_same_dtype,
    show_shape,
)
from tcomp.ir.types import TensorType, TupleType


def _require_integer(name: str, t: TensorType) -> None:
    require_dtype(name, t, lambda d: d.is_integer, "integer positions")


def check_range(positions: np.ndarray, size: int) -> None:
    """TC0604 unless every position is in [0, size)."""
    if positions.size and (positions.min() < 0 or positions.max() >= size):
        bad = positions[(positions < 0) | (positions >= size)].flat[0]
        raise Error("TC0604", f"index {bad} for an axis of size {size}", f"0 to {size - 1}")


def _infer_gather(x: TensorType, positions: TensorType, axis: int) -> Type:
    _require_integer("gather", positions)
    require_axis("gather", axis, x.rank)
    return TensorType(x.dtype, x.shape[:axis] + positions.shape + x.shape[axis + 1 :])


def _gather(x: np.ndarray, positions: np.ndarray, axis: int) -> np.ndarray:
    check_range(positions, x.shape[axis])
    return np.take(x, positions, axis=axis)


register(
    OpDef(
        "gather",
        INDEXING,
        2,
        ("axis",),
        _infer_gather,
        _gather,
        "slices of x along `axis` at `positions`, whose shape replaces that axis",
    )
)


def _infer_gather_elements(x: TensorType, positions: TensorType, axis: int) -> Type:
    _require_integer("gather_elements", positions)
    require_axis("gather_elements", axis, x.rank)
    if positions.rank != x.rank:
        raise Error("TC0102", f"`gather_elements` of {show_shape(x.shape)} by {show_shape(positions.shape)}", "equal ranks")
    return TensorType(x.dtype, positions.shape)


def _gather_elements(x: np.ndarray, positions: np.ndarray, axis: int) -> np.ndarray:
    check_range(positions, x.shape[axis])
    part = x[tuple(slice(None) if a == axis else slice(d) for a, d in enumerate(positions.shape))]
    return np.take_along_axis(part, positions.astype(np.int64), axis)


register(
    OpDef(
        "gather_elements",
        INDEXING,
        2,
        ("axis",),
        _infer_gather_elements,
        _gather_elements,
        "result[i] = x[i with the coordinate along `axis` replaced by positions[i]]",
    )
)


def _infer_gather_nd(x: TensorType, positions: TensorType, batch: int) -> Type:
    _require_integer("gather_nd", positions)
    depth = positions.shape[-1] if positions.rank else None
    if not isinstance(depth, int) or positions.shape[:batch] != x.shape[:batch] or batch + depth > x.rank:
        raise Error("TC0102", f"`gather_nd` of {show_shape(x.shape)} by {show_shape(positions.shape)}", "coordinates that fit")
    return TensorType(x.dtype, positions.shape[:-1] + x.shape[batch + depth :])


def _gather_nd(x: np.ndarray, positions: np.ndarray, batch: int) -> np.ndarray:
    coordinates = [positions[..., k] for k in range(positions.shape[-1])]
    for k, c in enumerate(coordinates):
        check_range(c, x.shape[batch + k])
    grid = np.indices(positions.shape[:-1], sparse=True)[:batch]
    return np.asarray(x[(*grid, *coordinates)])


register(
    OpDef(
        "gather_nd",
        INDEXING,
        2,
        ("batch",),
        _infer_gather_nd,
        _gather_nd,
        "slices of x at coordinates that the last axis of positions holds, after `batch` shared leading axes",
    )
)


def _infer_scatter(x: TensorType, positions: TensorType, updates: TensorType, axis: int, monoid: str | None) -> Type:
    _require_integer("scatter_elements", positions)
    require_axis("scatter_elements", axis, x.rank)
    require_same_dtype("scatter_elements", (x, updates))
    if positions.shape != updates.shape or positions.rank != x.rank:
        found = f"`scatter_elements` of {show_shape(updates.shape)} at {show_shape(positions.shape)}"
        raise Error("TC0102", found, "equal shapes, of the rank of the destination")
    return x


def _combine(out: np.ndarray, place: tuple[np.ndarray, ...], updates: np.ndarray, monoid: str | None) -> np.ndarray:
    if monoid is not None:
        MONOIDS[monoid].ufunc.at(out, place, updates)
        return out
    for k in np.ndindex(updates.shape):  # one after the other: of duplicates the last stays
        out[tuple(p[k] for p in place)] = updates[k]
    return out


def _scatter(x: np.ndarray, positions: np.ndarray, updates: np.ndarray, axis: int, monoid: str | None) -> np.ndarray:
    check_range(positions, x.shape[axis])
    grid: tuple[np.ndarray, ...] = np.indices(positions.shape, sparse=True)
    place = [np.broadcast_to(g, positions.shape) for g in grid]
    place[axis] = positions.astype(np.int64)
    return _combine(x.copy(), tuple(place), updates, monoid)


register(
    OpDef(
        "scatter_elements",
        INDEXING,
        3,
        ("axis", "monoid"),
        _infer_scatter,
        _scatter,
        "x with updates[i] written (monoid None: the last of duplicates stays) or combined at i, its coordinate along `axis` "
        "replaced by positions[i]",
    )
)


def _infer_scatter_nd(x: TensorType, positions: TensorType, updates: TensorType, monoid: str | None) -> Type:
    _require_integer("scatter_nd", positions)
    require_same_dtype("scatter_nd", (x, updates))
    depth = positions.shape[-1] if positions.rank else None
    if not isinstance(depth, int) or depth > x.rank or updates.shape != positions.shape[:-1] + x.shape[depth:]:
        found = f"`scatter_nd` of {show_shape(updates.shape)} at {show_shape(positions.shape)} into {show_shape(x.shape)}"
        raise Error("TC0102", found, "coordinates in the last axis, one slice for each")
    return x


def _scatter_nd(x: np.ndarray, positions: np.ndarray, updates: np.ndarray, monoid: str | None) -> np.ndarray:
    out, depth = x.copy(), positions.shape[-1]
    for axis in range(depth):
        check_range(positions[..., axis], x.shape[axis])
    for k in np.ndindex(positions.shape[:-1]):
        at = tuple(int(c) for c in positions[k])
        out[at] = updates[k] if monoid is None else MONOIDS[monoid].ufunc(out[at], updates[k])
    return out


register(
    OpDef(
        "scatter_nd",
        INDEXING,
        3,
        ("monoid",),
        _infer_scatter_nd,
        _scatter_nd,
        "x with slices written or combined at the coordinates that the last axis of positions holds, in order",
    )
)


def item(values: Node, k: int) -> Node:
    """Result `k` of an operation with several."""
    return node("item", (values,), (("index", k),), values.type.elements[k])


def _infer_item(values: TupleType, index: int) -> Type:
    return values.elements[index]


register(OpDef("item", INDEXING, 1, ("index",), _infer_item, lambda values, index: values[index], "one of several results"))


def _sort_order(x: np.ndarray, axis: int, descending: bool) -> np.ndarray:
    """The stable order; NaN counts as larger than all else (NumPy knows that of its own floats only)."""
    x = x.astype(np.float32) if x.dtype == to_numpy(dt.bf16) else x
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    flipped = np.flip(np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)
    return np.asarray(x.shape[axis] - 1 - flipped)


def _infer_sort(x: TensorType, axis: int, descending: bool) -> Type:
    require_computed("sort", (x,))
    require_axis("sort", axis, x.rank)
    return TupleType((x, TensorType(dt.i64, x.shape)))


def _sort(x: np.ndarray, axis: int, descending: bool) -> tuple[np.ndarray, np.ndarray]:
    order = _sort_order(x, axis, descending)
    return np.take_along_axis(x, order, axis), order.astype(np.int64)


register(
    OpDef(
        "sort",
        INDEXING,
        1,
        ("axis", "descending"),
        _infer_sort,
        _sort,
        "(values, positions) in order along `axis`; stable; NaN counts as larger than all else",
    )
)


def _infer_top_k(x: TensorType, k: Dim, axis: int, largest: bool) -> Type:
    require_computed("top_k", (x,))
    require_axis("top_k", axis, x.rank)
    size = x.shape[axis]
    if isinstance(k, int) and isinstance(size, int) and not 0 <= k <= size:
        raise Error("TC0104", f"`top_k` of {k} from an axis of size {size}", "at most its size")
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    return TupleType((TensorType(x.dtype, shape), TensorType(dt.i64, shape)))


def _top_k(x: np.ndarray, k: int, axis: int, largest: bool) -> tuple[np.ndarray, np.ndarray]:
    order = np.take(_sort_order(x, axis, largest), np.arange(k), axis=axis)
    return np.take_along_axis(x, order, axis), order.astype(np.int64)


register(
    OpDef(
        "top_k",
        INDEXING,
        1,
        ("k", "axis", "largest"),
        _infer_top_k,
        _top_k,
        "(values, positions) of the k largest or smallest along `axis`, in order; of equals the first",
    )
)
