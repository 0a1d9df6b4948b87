"""Rows that combine elements: reductions over a monoid, scans, products, convolution."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tcomp.errors import Error
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.dtype import DType, accumulator, to_numpy
from tcomp.ir.ops.movement import _window, window_count
from tcomp.ir.ops.table import (
    CONTRACTION,
    REDUCTION,
    OpDef,
    Type,
    register,
    require_axis,
    require_computed,
    require_same_dtype,
    show_shape,
)
from tcomp.ir.types import TensorType


@dataclass(frozen=True, slots=True)
class Monoid:
    """An associative, commutative operation of the pointwise table, with its identity for each dtype."""

    name: str
    ufunc: np.ufunc
    identity: Callable[[DType], float | int]

    def start(self, dtype: DType) -> float | int:
        """What combining starts from, and gives of nothing: the identity; of a sum +0, as NumPy's."""
        return 0 if self.name == "add" else self.identity(dtype)


def _lowest(t: DType) -> float | int:
    return -np.inf if t.is_float else 0 if t.kind in ("bool", "uint") else -(2 ** (t.bits - 1))


def _highest(t: DType) -> float | int:
    return np.inf if t.is_float else 1 if t.kind == "bool" else 2 ** (t.bits - (t.kind == "int")) - 1


MONOIDS: dict[str, Monoid] = {
    m.name: m
    for m in (
        Monoid("add", np.add, lambda t: -0.0 if t.is_float else 0),
        Monoid("mul", np.multiply, lambda t: 1),
        Monoid("max", np.maximum, _lowest),
        Monoid("min", np.minimum, _highest),
        Monoid("and", np.bitwise_and, lambda t: 1 if t.kind == "bool" else -1 if t.kind == "int" else _highest(t)),
        Monoid("or", np.bitwise_or, lambda t: 0),
    )
}


def _require_axes(name: str, axes: tuple[int, ...], rank: int) -> None:
    if list(axes) != sorted(set(axes)):
        raise Error("TC0104", f"`{name}` over axes {axes}", "rising axes")
    for a in axes:
        require_axis(name, a, rank)


def _infer_reduce(x: TensorType, monoid: str, axes: tuple[int, ...]) -> Type:
    require_computed("reduce", (x,))
    _require_axes("reduce", axes, x.rank)
    return TensorType(x.dtype, tuple(d for a, d in enumerate(x.shape) if a not in axes))


def _reduce(x: np.ndarray, monoid: str, axes: tuple[int, ...]) -> np.ndarray:
    """16-bit floats accumulate in f32; the empty sum is +0."""
    m = MONOIDS[monoid]
    t = dt.from_numpy(x.dtype)
    assert t is not None
    wide = x.astype(to_numpy(accumulator(t)))
    identity = wide.dtype.type(m.identity(t))
    if monoid == "add":
        return np.asarray(wide.sum(axes, dtype=wide.dtype)).astype(x.dtype)
    return np.asarray(m.ufunc.reduce(wide, axis=axes, dtype=wide.dtype, initial=identity)).astype(x.dtype)


register(
    OpDef(
        "reduce",
        REDUCTION,
        1,
        ("monoid", "axes"),
        _infer_reduce,
        _reduce,
        "combine all elements along `axes`, which vanish; f16 and bf16 accumulate in f32; of nothing: the identity (sum: 0)",
    )
)


def _infer_argreduce(x: TensorType, monoid: str, axis: int, last: bool, dtype: DType) -> Type:
    require_computed("argreduce", (x,))
    require_axis("argreduce", axis, x.rank)
    if x.shape[axis] == 0:
        raise Error("TC0104", "`argreduce` along an axis of size 0", "at least one element")
    return TensorType(dtype, x.shape[:axis] + x.shape[axis + 1 :])


def _argreduce(x: np.ndarray, monoid: str, axis: int, last: bool, dtype: DType) -> np.ndarray:
    find = np.argmax if monoid == "max" else np.argmin
    if not last:
        return np.asarray(find(x, axis=axis)).astype(to_numpy(dtype))
    return np.asarray(x.shape[axis] - 1 - find(np.flip(x, axis), axis=axis)).astype(to_numpy(dtype))


register(
    OpDef(
        "argreduce",
        REDUCTION,
        1,
        ("monoid", "axis", "last", "dtype"),
        _infer_argreduce,
        _argreduce,
        "position of the largest (monoid max) or smallest (min) along `axis`: the first, or the last, of equals; NaN wins",
    )
)


def _infer_scan(x: TensorType, monoid: str, axis: int, reverse: bool, exclusive: bool) -> Type:
    require_computed("scan", (x,))
    require_axis("scan", axis, x.rank)
    return x


def _scan(x: np.ndarray, monoid: str, axis: int, reverse: bool, exclusive: bool) -> np.ndarray:
    t = dt.from_numpy(x.dtype)
    assert t is not None
    wide = x.astype(to_numpy(accumulator(t)))
    line = np.flip(wide, axis) if reverse else wide
    out = MONOIDS[monoid].ufunc.accumulate(line, axis=axis, dtype=wide.dtype) if line.size else line
    if exclusive and line.shape[axis]:
        first = np.full_like(np.take(out, [0], axis), MONOIDS[monoid].start(t))
        out = np.concatenate([first, np.take(out, range(line.shape[axis] - 1), axis)], axis)
    return (np.flip(out, axis) if reverse else out).astype(x.dtype)


register(
    OpDef(
        "scan",
        REDUCTION,
        1,
        ("monoid", "axis", "reverse", "exclusive"),
        _infer_scan,
        _scan,
        "running combination along `axis`, from the end if `reverse`, without the element itself if `exclusive`",
    )
)

Axes = tuple[tuple[int, ...], tuple[int, ...]]


def free_axes(rank: int, *taken: tuple[int, ...]) -> tuple[int, ...]:
    """The axes of an operand that are in none of `taken`."""
    return tuple(a for a in range(rank) if all(a not in t for t in taken))


def _product_dtype(name: str, a: TensorType, b: TensorType) -> DType:
    """The dtype of a contraction: the operands' own; i32 of bytes of which one side is signed and the other is not."""
    require_computed(name, (a, b))
    if {a.dtype, b.dtype} == {dt.i8, dt.u8}:
        return dt.i32
    require_same_dtype(name, (a, b))
    return a.dtype


def _summed(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.dtype]:
    """Operands in the dtype that their products are summed in, and the result's."""
    if a.dtype != b.dtype:
        return a.astype(np.int32), b.astype(np.int32), np.dtype(np.int32)
    t = dt.from_numpy(a.dtype)
    assert t is not None
    wide = to_numpy(accumulator(t))
    return a.astype(wide), b.astype(wide), a.dtype


def _infer_dot(a: TensorType, b: TensorType, batch: Axes, contract: Axes) -> Type:
    dtype = _product_dtype("dot", a, b)
    for (la, lb), what in ((batch, "batch"), (contract, "contracted")):
        if [a.shape[i] for i in la] != [b.shape[i] for i in lb]:
            raise Error(
                "TC0102",
                f"`dot` of {show_shape(a.shape)} and {show_shape(b.shape)}",
                f"equal {what} axes {la} and {lb}",
            )
    shape = [a.shape[i] for i in batch[0]]
    shape += [a.shape[i] for i in free_axes(a.rank, batch[0], contract[0])]
    shape += [b.shape[i] for i in free_axes(b.rank, batch[1], contract[1])]
    return TensorType(dtype, tuple(shape))


def _dot(a: np.ndarray, b: np.ndarray, batch: Axes, contract: Axes) -> np.ndarray:
    if a.dtype == np.bool_:
        return np.asarray(_dot(a.astype(np.int64), b.astype(np.int64), batch, contract) != 0)
    a, b, narrow = _summed(a, b)
    fa, fb = free_axes(a.ndim, batch[0], contract[0]), free_axes(b.ndim, batch[1], contract[1])
    x = a.transpose(batch[0] + fa + contract[0]).reshape([a.shape[i] for i in batch[0]] + [_count(a, fa), _count(a, contract[0])])
    y = b.transpose(batch[1] + contract[1] + fb).reshape([b.shape[i] for i in batch[1]] + [_count(b, contract[1]), _count(b, fb)])
    out = np.asarray(np.matmul(x, y))
    return out.reshape([a.shape[i] for i in batch[0] + fa] + [b.shape[i] for i in fb]).astype(narrow)


def _count(x: np.ndarray, axes: tuple[int, ...]) -> int:
    return int(np.prod([x.shape[a] for a in axes], dtype=np.int64))


register(
    OpDef(
        "dot",
        CONTRACTION,
        2,
        ("batch", "contract"),
        _infer_dot,
        _dot,
        "sum of products over the paired axes `contract`, for each of the paired axes `batch`; result axes: batch, the rest of "
        "the first operand, the rest of the second; integers wrap, f16 and bf16 accumulate in f32; u8 by i8 or i8 by u8 is i32",
    )
)


def _infer_conv(x: TensorType, w: TensorType, strides: tuple[int, ...], dilations: tuple[int, ...], groups: int) -> Type:
    n = len(strides)
    dtype = _product_dtype("conv", x, w)
    if not (x.rank == w.rank == n + 2 and len(dilations) == n):
        raise Error("TC0102", f"`conv` of ranks {x.rank} and {w.rank} with {n} strides", f"rank {n + 2}")
    if index.mul(w.shape[-2], groups) != x.shape[-1]:
        found = f"`conv` of {index.show(x.shape[-1])} channels in {groups} groups by weights for {index.show(w.shape[-2])}"
        raise Error("TC0102", found, "channels = groups * the weights' channels")
    sizes = [window_count(d, k, s, e) for d, k, s, e in zip(x.shape[1:-1], w.shape[:-2], strides, dilations)]
    if any(isinstance(d, int) and d < 0 for d in sizes):
        raise Error("TC0102", f"`conv` of {show_shape(x.shape)} by windows {show_shape(w.shape[:-2])}", "windows that fit")
    return TensorType(dtype, (x.shape[0], *sizes, w.shape[-1]))


def _conv(x: np.ndarray, w: np.ndarray, strides: tuple[int, ...], dilations: tuple[int, ...], groups: int) -> np.ndarray:
    n = len(strides)
    x, w, narrow = _summed(x, w)
    windows = _window(x, tuple(range(1, n + 1)), w.shape[:-2], strides, dilations)
    ci, co = w.shape[-2], w.shape[-1] // groups
    parts = []
    for g in range(groups):
        part = windows[(slice(None),) * (n + 1) + (slice(g * ci, (g + 1) * ci),)]
        kernel = w[..., g * co : (g + 1) * co]
        over = [*range(n + 2, 2 * n + 2), n + 1]
        parts.append(np.tensordot(part, kernel, (over, list(range(n + 1)))))
    return np.concatenate(parts, -1).astype(narrow)


register(
    OpDef(
        "conv",
        CONTRACTION,
        2,
        ("strides", "dilations", "groups"),
        _infer_conv,
        _conv,
        "windowed contraction, channels last, no padding: x[N, *space, C], w[*window, C/groups, O] -> [N, *windows, O]; "
        "group g joins channels [g*C/G, ..) with outputs [g*O/G, ..)",
    )
)
