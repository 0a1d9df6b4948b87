"""Rows that make or move elements without computing: constants, broadcasts, reshapes, slices, padding, windows."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from tcomp.errors import Error
from tcomp.ir import index
from tcomp.ir.dtype import DType, from_numpy, to_numpy
from tcomp.ir.node import Dim, Node, node
from tcomp.ir.ops.table import (
    MOVEMENT,
    SOURCE,
    OpDef,
    Type,
    register,
    require_axis,
    require_computed,
    require_same_dtype,
    show_shape,
)
from tcomp.ir.types import TensorType


class Literal:
    """The value of a constant: an array that is never written, equal to another of the same dtype, shape and bytes."""

    __slots__ = ("array", "digest")

    def __init__(self, array: np.ndarray) -> None:
        self.array = np.ascontiguousarray(array).reshape(array.shape)
        self.array.setflags(write=False)
        state = hashlib.blake2b(f"{self.array.dtype.name}{self.array.shape}".encode())
        state.update(self.array.reshape(-1).view(np.uint8).data)
        self.digest = state.hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"{self.array.dtype.name}{self.array.shape}:{self.digest[:8]}"


def constant(array: np.ndarray | np.generic) -> Node:
    """A constant of the GRAPH. The array is copied unless it is read-only and contiguous. TC0103 for a dtype without code."""
    array = np.asarray(array)
    dtype = from_numpy(array.dtype)
    if dtype is None:
        raise Error("TC0103", f"a constant of dtype {array.dtype}", "a bool, integer or float dtype")
    kept = array if not array.flags.writeable else array.copy()
    return node("constant", (), (("value", Literal(kept)),), TensorType(dtype, array.shape))


def parameter(name: str, dtype: DType, shape: tuple[Dim, ...]) -> Node:
    """A named input of a GRAPH function."""
    return node("parameter", (), (("name", name),), TensorType(dtype, shape))


def _infer_constant(value: Literal) -> Type:
    dtype = from_numpy(value.array.dtype)
    assert dtype is not None
    return TensorType(dtype, value.array.shape)


def _no_reference(*arrays: np.ndarray, **attrs: Any) -> np.ndarray:
    raise AssertionError("a parameter has no value of its own")


register(OpDef("parameter", SOURCE, 0, ("name",), lambda name: TensorType(name, ()), _no_reference, "a named input"))
register(OpDef("constant", SOURCE, 0, ("value",), _infer_constant, lambda value: value.array, "a constant array"))


def _iota(shape: tuple[int, ...], axis: int, dtype: DType) -> np.ndarray:
    line = np.arange(shape[axis], dtype=np.int64).astype(to_numpy(dtype))
    return np.broadcast_to(line.reshape([-1 if a == axis else 1 for a in range(len(shape))]), shape)


def _infer_iota(shape: tuple[Dim, ...], axis: int, dtype: DType) -> Type:
    require_axis("iota", axis, len(shape))
    require_computed("iota", (TensorType(dtype, shape),))
    return TensorType(dtype, shape)


register(OpDef("iota", SOURCE, 0, ("shape", "axis", "dtype"), _infer_iota, _iota, "the position along `axis` of each element"))


def _infer_dimension(dim: Dim, dtype: DType) -> Type:
    require_computed("dimension", (TensorType(dtype, ()),))
    return TensorType(dtype, ())


register(
    OpDef(
        "dimension",
        SOURCE,
        0,
        ("dim", "dtype"),
        _infer_dimension,
        lambda dim, dtype: np.asarray(dim, to_numpy(dtype)),
        "the value of an index expression as a scalar",
    )
)


register(
    OpDef(
        "copy",
        MOVEMENT,
        1,
        ("number",),
        lambda x, number: x,
        lambda x, number: x,
        "x itself, in memory of its own: copies of different numbers are different values",
    )
)


def _infer_broadcast(x: TensorType, shape: tuple[Dim, ...], axes: tuple[int, ...]) -> Type:
    fits = len(axes) == x.rank and list(axes) == sorted(set(axes)) and all(0 <= a < len(shape) for a in axes)
    if not fits:
        raise Error("TC0104", f"`broadcast` of rank {x.rank} to axes {axes} of rank {len(shape)}", "one rising axis for each")
    if any(d != 1 and d != shape[a] for d, a in zip(x.shape, axes)):
        raise Error("TC0102", f"`broadcast` of {show_shape(x.shape)} to {show_shape(shape)}", "equal dimensions, or 1")
    return TensorType(x.dtype, shape)


def _broadcast(x: np.ndarray, shape: tuple[int, ...], axes: tuple[int, ...]) -> np.ndarray:
    wide = [1] * len(shape)
    for a, d in zip(axes, x.shape):
        wide[a] = d
    return np.broadcast_to(x.reshape(wide), shape)


register(
    OpDef(
        "broadcast",
        MOVEMENT,
        1,
        ("shape", "axes"),
        _infer_broadcast,
        _broadcast,
        "operand axis k becomes result axis axes[k] (equal size, or 1 repeated); other axes repeat",
    )
)


def _infer_stretch(x: TensorType, shape: tuple[Dim, ...]) -> Type:
    if len(shape) != x.rank:
        raise Error("TC0104", f"`stretch` of rank {x.rank} to {show_shape(shape)}", "a size for each axis")
    if any(index.equal(d, e) == 0 and index.equal(d, 1) == 0 for d, e in zip(x.shape, shape)):
        raise Error("TC0102", f"`stretch` of {show_shape(x.shape)} to {show_shape(shape)}", "equal dimensions, or 1")
    return TensorType(x.dtype, shape)


register(
    OpDef(
        "stretch",
        MOVEMENT,
        1,
        ("shape",),
        _infer_stretch,
        lambda x, shape: np.broadcast_to(x, shape),
        "axes of equal size, or of size 1 and repeated, where only the call knows which: a `broadcast` where it is known",
    )
)


def _infer_reshape(x: TensorType, shape: tuple[Dim, ...]) -> Type:
    before, after = index.product(x.shape), index.product(shape)
    if before != after and isinstance(before, int) and isinstance(after, int):
        raise Error("TC0102", f"`reshape` of {show_shape(x.shape)} to {show_shape(shape)}", "the same number of elements")
    return TensorType(x.dtype, shape)


register(
    OpDef(
        "reshape",
        MOVEMENT,
        1,
        ("shape",),
        _infer_reshape,
        lambda x, shape: x.reshape(shape),
        "the same elements in row-major order",
    ),
)


def _infer_transpose(x: TensorType, perm: tuple[int, ...]) -> Type:
    if sorted(perm) != list(range(x.rank)):
        raise Error("TC0104", f"`transpose` by {perm} of rank {x.rank}", "each axis once")
    return TensorType(x.dtype, tuple(x.shape[p] for p in perm))


register(
    OpDef(
        "transpose",
        MOVEMENT,
        1,
        ("perm",),
        _infer_transpose,
        lambda x, perm: x.transpose(perm),
        "result axis k is operand axis perm[k]",
    ),
)


def _infer_slice(x: TensorType, start: tuple[Dim, ...], shape: tuple[Dim, ...], step: tuple[int, ...]) -> Type:
    if not len(start) == len(shape) == len(step) == x.rank:
        raise Error("TC0104", f"`slice` with {len(start)} starts of rank {x.rank}", "one start, size and step for each axis")
    for b, n, s, d in zip(start, shape, step, x.shape):
        ends = (b, index.add(b, index.mul(index.sub(n, 1), s)))
        for end in ends if n != 0 else ():
            (low, _), (_, slack) = index.bounds(end), index.bounds(index.sub(end, d))
            if (isinstance(end, int) and low is not None and low < 0) or (
                isinstance(index.sub(end, d), int) and (slack or 0) >= 0 and slack is not None
            ):
                raise Error("TC0104", f"`slice` reaching {index.show(end)} of a dimension {index.show(d)}", "positions inside")
    return TensorType(x.dtype, shape)


def _slice(x: np.ndarray, start: tuple[int, ...], shape: tuple[int, ...], step: tuple[int, ...]) -> np.ndarray:
    for axis, (b, n, s) in enumerate(zip(start, shape, step)):
        x = np.take(x, b + s * np.arange(n), axis=axis)
    return x


register(
    OpDef(
        "slice",
        MOVEMENT,
        1,
        ("start", "shape", "step"),
        _infer_slice,
        _slice,
        "`shape` elements from `start` in steps of `step` (may be negative), on every axis",
    )
)


def _infer_pad(x: TensorType, value: TensorType, low: tuple[Dim, ...], high: tuple[Dim, ...]) -> Type:
    require_same_dtype("pad", (x, value))
    if value.shape != () or not len(low) == len(high) == x.rank:
        raise Error(
            "TC0104",
            f"`pad` of rank {x.rank} with {len(low)} and {len(high)} widths",
            "two for each axis, a scalar value",
        )
    if any(isinstance(w, int) and w < 0 for w in (*low, *high)):
        raise Error("TC0104", f"`pad` by {low} and {high}", "widths that are not negative; `slice` crops")
    return TensorType(x.dtype, tuple(index.add(index.add(d, a), b) for d, a, b in zip(x.shape, low, high)))


register(
    OpDef(
        "pad",
        MOVEMENT,
        2,
        ("low", "high"),
        _infer_pad,
        lambda x, value, low, high: np.pad(x, list(zip(low, high)), constant_values=value),
        "`low` and `high` elements of the scalar `value` before and after, on every axis",
    )
)


def _infer_concat(*types: TensorType, axis: int) -> Type:
    require_same_dtype("concat", types)
    require_axis("concat", axis, types[0].rank)
    rest = [t.shape[:axis] + t.shape[axis + 1 :] for t in types]
    if any(r != rest[0] for r in rest):
        raise Error("TC0102", f"`concat` along {axis} of {', '.join(show_shape(t.shape) for t in types)}", "equal other axes")
    total: Dim = 0
    for t in types:
        total = index.add(total, t.shape[axis])
    return TensorType(types[0].dtype, (*types[0].shape[:axis], total, *types[0].shape[axis + 1 :]))


register(
    OpDef(
        "concat",
        MOVEMENT,
        None,
        ("axis",),
        _infer_concat,
        lambda *xs, axis: np.concatenate(xs, axis),
        "operands one after the other along `axis`",
    ),
)


def window_count(size: Dim, window: Dim, stride: int, dilation: int) -> Dim:
    """How many windows fit: (size - (window - 1) * dilation - 1) // stride + 1."""
    span = index.add(index.mul(index.sub(window, 1), dilation), 1)
    return index.add(index.floordiv(index.sub(size, span), stride), 1)


def _infer_window(
    x: TensorType, axes: tuple[int, ...], sizes: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...]
) -> Type:
    if not len(axes) == len(sizes) == len(strides) == len(dilations):
        raise Error("TC0104", f"`window` along {axes} with {len(sizes)} sizes", "a size, stride and dilation for each axis")
    shape = list(x.shape)
    for a, k, s, d in zip(axes, sizes, strides, dilations):
        require_axis("window", a, x.rank)
        shape[a] = count = window_count(x.shape[a], k, s, d)
        if isinstance(count, int) and count < 0:
            raise Error(
                "TC0102",
                f"`window` of {k} (dilation {d}) over a dimension of {index.show(x.shape[a])}",
                "one that fits",
            )
    return TensorType(x.dtype, (*shape, *sizes))


def _window(
    x: np.ndarray, axes: tuple[int, ...], sizes: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...]
) -> np.ndarray:
    shape, steps = list(x.shape), list(x.strides)
    for a, k, s, d in zip(axes, sizes, strides, dilations):
        shape[a] = max(0, (x.shape[a] - (k - 1) * d - 1) // s + 1)
        steps[a] = x.strides[a] * s
    tail = [x.strides[a] * d for a, d in zip(axes, dilations)]
    return np.lib.stride_tricks.as_strided(x, (*shape, *sizes), (*steps, *tail), writeable=False)


register(
    OpDef(
        "window",
        MOVEMENT,
        1,
        ("axes", "sizes", "strides", "dilations"),
        _infer_window,
        _window,
        "sliding windows: axis axes[k] counts windows, and a new last axis k runs inside them: "
        "result[.. i .. w] = x[.. i * stride + w * dilation ..]; nothing is copied",
    )
)
