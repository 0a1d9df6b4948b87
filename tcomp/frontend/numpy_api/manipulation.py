"""Functions that rearrange elements: shapes, axes, joining, splitting, repeating, padding."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from tcomp.errors import Error
from tcomp.frontend import promotion, shapes
from tcomp.frontend.dimension import raw, shown
from tcomp.frontend.promotion import element_type
from tcomp.frontend.registry import FUNCTIONS, public
from tcomp.frontend.tracer import Operand, Traced, operand, strong
from tcomp.ir import index
from tcomp.ir.dtype import DType
from tcomp.ir.graph import broadcast_trailing, cast
from tcomp.ir.graph import reshape as reshape_node
from tcomp.ir.graph import transpose as transpose_node
from tcomp.ir.ops import apply
from tcomp.ir.ops.table import show_shape


def common_operands(arrays: Sequence[Any], dtype: Any = None) -> tuple[list[Operand], DType]:
    """Operands with the dtype they have in common."""
    if not len(arrays):
        raise Error("TC0105", "no arrays", "at least one")
    operands = [operand(a) for a in arrays]
    return operands, promotion.common(tuple(o.kind for o in operands)) if dtype is None else element_type(dtype)


@public("x")
def reshape(x: Any, /, shape: Any, order: str = "C", *, copy: bool | None = None) -> Traced:
    """The same elements in another shape; one size may be -1."""
    if order != "C":
        raise Error("TC0105", f"reshape with order={order!r}", "order 'C'", hint="transpose before and after")
    n = strong(x).node
    return Traced(reshape_node(n, shapes.reshaped(n.type.shape, shape)))


@public("x", names=("flatten",))
def ravel(x: Any, /, order: str = "C") -> Traced:
    """All elements along one axis."""
    return reshape(x, (-1,), order)


@public("x")
def permute_dims(x: Any, /, axes: Any) -> Traced:
    """The axes in another order."""
    n = strong(x).node
    perm = shapes.axes(axes, n.type.rank)
    if len(perm) != n.type.rank:
        raise Error("TC0104", f"{tuple(axes)} as the order of {n.type.rank} axes", "each axis once")
    return Traced(transpose_node(n, perm))


@public("a")
def transpose(a: Any, axes: Any = None) -> Traced:
    """The axes in another order, reversed without `axes`."""
    x = strong(a)
    return permute_dims(x, range(x.ndim - 1, -1, -1) if axes is None else axes)


@public("x")
def matrix_transpose(x: Any, /) -> Traced:
    """The last two axes swapped."""
    x = strong(x)
    if x.ndim < 2:
        raise Error("TC0102", f"matrix_transpose of rank {x.ndim}", "rank 2 or more")
    return swapaxes(x, -1, -2)


@public("x")
def swapaxes(x: Any, axis1: int, axis2: int) -> Traced:
    """Two axes swapped."""
    x = strong(x)
    perm = list(range(x.ndim))
    a, b = shapes.axis(axis1, x.ndim), shapes.axis(axis2, x.ndim)
    perm[a], perm[b] = b, a
    return permute_dims(x, perm)


@public("x")
def moveaxis(x: Any, source: Any, destination: Any, /) -> Traced:
    """Axes moved to other places, the rest in order."""
    x = strong(x)
    old, new = shapes.axes(source, x.ndim), shapes.axes(destination, x.ndim)
    if len(old) != len(new):
        raise Error("TC0104", f"{len(old)} axes to {len(new)} places", "equally many")
    perm = [a for a in range(x.ndim) if a not in old]
    for place, a in sorted(zip(new, old)):
        perm.insert(place, a)
    return permute_dims(x, perm)


@public("x")
def expand_dims(x: Any, /, axis: Any = 0) -> Traced:
    """New axes of size 1."""
    n = strong(x).node
    listed = (axis,) if isinstance(axis, (int, np.integer)) else tuple(axis)
    rank = n.type.rank + len(listed)
    new = shapes.axes(listed, rank)
    old = iter(n.type.shape)
    return Traced(reshape_node(n, tuple(1 if a in new else next(old) for a in range(rank))))


@public("x")
def squeeze(x: Any, /, axis: Any = None) -> Traced:
    """Axes of size 1 removed: those named, or all."""
    n = strong(x).node
    gone = tuple(a for a, d in enumerate(n.type.shape) if d == 1) if axis is None else shapes.axes(axis, n.type.rank)
    for a in gone:
        if n.type.shape[a] != 1:
            raise Error("TC0102", f"squeeze of axis {a} of size {index.show(n.type.shape[a])}", "size 1")
    return Traced(reshape_node(n, tuple(d for a, d in enumerate(n.type.shape) if a not in gone)))


def _at_least(rank: int) -> None:
    """Register `atleast_<rank>d`."""

    def call(*arrays: Any) -> Any:
        out = [_padded_rank(strong(a), rank) for a in arrays]
        return out[0] if len(out) == 1 else tuple(out)

    call.__name__ = f"atleast_{rank}d"
    call.__doc__ = f"Arrays of rank {rank} or more, by new axes of size 1."
    public("arrays")(call)


def _padded_rank(x: Traced, rank: int) -> Traced:
    if x.ndim >= rank:
        return x
    if rank == 3 and x.ndim:
        return expand_dims(x, axis=(0, 2)) if x.ndim == 1 else expand_dims(x, axis=2)
    return expand_dims(x, axis=tuple(range(rank - x.ndim)))


for _rank in (1, 2, 3):
    _at_least(_rank)


@public("x")
def broadcast_to(x: Any, /, shape: Any) -> Traced:
    """`x` repeated to a shape, by NumPy's broadcasting rule."""
    n, target = strong(x).node, shapes.sizes(shape)
    if n.type.rank > len(target):
        raise Error("TC0102", f"broadcast of {show_shape(n.type.shape)} to {show_shape(target)}", "rank at least as large")
    return Traced(broadcast_trailing(n, target))


@public("arrays")
def broadcast_arrays(*arrays: Any) -> tuple[Traced, ...]:
    """Arrays broadcast to their common shape."""
    nodes = [strong(a).node for a in arrays]
    shape = shapes.broadcast_shapes(n.type.shape for n in nodes)
    return tuple(Traced(broadcast_trailing(n, shape)) for n in nodes)


@public()
def broadcast_shapes(*args: Any) -> tuple[Any, ...]:
    """The shape that arrays of these shapes broadcast to."""
    return tuple(map(shown, shapes.broadcast_shapes(shapes.sizes(a) for a in args)))


@public("arrays", names=("concatenate",))
def concat(arrays: Sequence[Any], /, axis: Any = 0, *, dtype: Any = None) -> Traced:
    """Arrays one after the other along `axis`; without an axis, all their elements."""
    operands, target = common_operands(arrays, dtype)
    nodes = [o.as_node(target) for o in operands]
    if axis is None:
        nodes, axis = [reshape_node(n, (shapes.count(n.type.shape),)) for n in nodes], 0
    if any(n.type.rank != nodes[0].type.rank for n in nodes):
        raise Error("TC0102", f"concat of {', '.join(show_shape(n.type.shape) for n in nodes)}", "equal ranks")
    return Traced(apply("concat", *nodes, axis=shapes.axis(axis, nodes[0].type.rank)))


@public("arrays")
def stack(arrays: Sequence[Any], /, axis: int = 0, *, dtype: Any = None) -> Traced:
    """Arrays of one shape along a new axis."""
    operands, target = common_operands(arrays, dtype)
    nodes = [o.as_node(target) for o in operands]
    rank = nodes[0].type.rank + 1
    a = shapes.axis(axis, rank)
    if any(n.type.shape != nodes[0].type.shape for n in nodes):
        raise Error("TC0102", f"stack of {', '.join(show_shape(n.type.shape) for n in nodes)}", "equal shapes")
    shape = nodes[0].type.shape
    return Traced(apply("concat", *(reshape_node(n, (*shape[:a], 1, *shape[a:])) for n in nodes), axis=a))


@public("arrays")
def vstack(arrays: Sequence[Any], /) -> Traced:
    """Arrays one below the other."""
    return concat([FUNCTIONS["atleast_2d"](a) for a in arrays], axis=0)


@public("arrays")
def hstack(arrays: Sequence[Any], /) -> Traced:
    """Arrays side by side."""
    wide = [FUNCTIONS["atleast_1d"](a) for a in arrays]
    return concat(wide, axis=0 if wide[0].ndim == 1 else 1)


@public("x")
def split(x: Any, sections: Any, axis: int = 0) -> list[Traced]:
    """Equal parts, or the parts between positions, along `axis`. TC0102 where the size does not divide."""
    x = strong(x)
    a = shapes.axis(axis, x.ndim)
    if not isinstance(sections, (int, np.integer)):
        return _cut(x, [0, *sections, None], a)
    size = x.node.type.shape[a]
    if isinstance(size, int) and size % sections:
        raise Error("TC0102", f"split of {size} into {sections}", "equal parts", hint="array_split takes unequal ones")
    part = index.floordiv(size, int(sections))
    return _cut(x, [shown(index.mul(part, k)) for k in range(int(sections) + 1)], a)


@public("x")
def array_split(x: Any, sections: Any, axis: int = 0) -> list[Traced]:
    """Parts along `axis`, the first ones longer by one where the size does not divide."""
    x = strong(x)
    a = shapes.axis(axis, x.ndim)
    if not isinstance(sections, (int, np.integer)):
        return _cut(x, [0, *sections, None], a)
    size, k = operator.index(x.shape[a]), int(sections)
    ends = np.cumsum([size // k + (i < size % k) for i in range(k)])
    return _cut(x, [0, *map(int, ends)], a)


def _cut(x: Traced, ends: Sequence[Any], axis: int) -> list[Traced]:
    before = (slice(None),) * axis
    return [x[(*before, slice(b, e))] for b, e in itertools.pairwise(ends)]


@public("x")
def unstack(x: Any, /, *, axis: int = 0) -> tuple[Traced, ...]:
    """The slices along `axis`, without it."""
    x = strong(x)
    a = shapes.axis(axis, x.ndim)
    return tuple(x[(*(slice(None),) * a, k)] for k in range(operator.index(x.shape[a])))


@public("x")
def flip(x: Any, /, axis: Any = None) -> Traced:
    """Elements in reverse order along axes, by default all."""
    a = strong(x)
    turned = shapes.axes(axis, a.ndim)
    return a[tuple(slice(None, None, -1) if k in turned else slice(None) for k in range(a.ndim))]


@public("x")
def fliplr(x: Any, /) -> Traced:
    """Reversed along axis 1."""
    return flip(x, axis=1)


@public("x")
def flipud(x: Any, /) -> Traced:
    """Reversed along axis 0."""
    return flip(x, axis=0)


@public("x")
def rot90(x: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Traced:
    """Quarter turns in the plane of two axes."""
    a, b = axes
    match k % 4:
        case 0:
            return strong(x)
        case 1:
            return swapaxes(flip(x, axis=b), a, b)
        case 2:
            return flip(x, axis=axes)
    return flip(swapaxes(x, a, b), axis=b)


@public("x")
def roll(x: Any, /, shift: Any, axis: Any = None) -> Traced:
    """Elements moved along axes; what leaves at one end enters at the other."""
    line = strong(x)
    if axis is None:
        return reshape(roll(ravel(line), shift, 0), line.shape)
    axes = (axis,) if isinstance(axis, (int, np.integer)) else tuple(axis)
    shifts = (shift,) * len(axes) if isinstance(shift, (int, np.integer)) else tuple(shift)
    for a, s in zip(axes * (len(shifts) if len(axes) == 1 else 1), shifts, strict=True):
        line = _rolled(line, operator.index(s), shapes.axis(a, line.ndim))
    return line


def _rolled(x: Traced, shift: int, axis: int) -> Traced:
    size = x.node.type.shape[axis]
    if size in (0, 1) or shift == 0:
        return x
    if isinstance(size, int):
        cut: Any = -shift % size
        parts = _cut(x, [0, cut, None], axis)
        return concat(parts[::-1], axis=axis) if cut else x
    place = FUNCTIONS["arange"](x.shape[axis]) - shift
    return FUNCTIONS["take"](x, place % x.shape[axis], axis=axis)


@public("x")
def tile(x: Any, repetitions: Any, /) -> Traced:
    """`x` repeated as a whole along each axis."""
    x = strong(x)
    times = shapes.sizes(repetitions)
    rank = max(len(times), x.ndim)
    times = (1,) * (rank - len(times)) + times
    n = x.node
    shape = (1,) * (rank - x.ndim) + n.type.shape
    doubled = tuple(d for pair in zip(times, shape) for d in pair)
    kept = tuple(2 * a + 1 for a in range(rank))
    wide = apply("broadcast", reshape_node(n, shape), shape=doubled, axes=kept)
    return Traced(reshape_node(wide, tuple(index.mul(t, d) for t, d in zip(times, shape))))


@public("x")
def repeat(x: Any, repeats: Any, /, axis: int | None = None) -> Traced:
    """Each element repeated, along `axis` or of all."""
    x = ravel(x) if axis is None else strong(x)
    a = shapes.axis(0 if axis is None else axis, x.ndim)
    counts = np.asarray(repeats) if not isinstance(repeats, Traced) else _refuse_counts()
    if counts.size == 1 and not counts.dtype.hasobject:
        return _repeated(x, int(counts.reshape(())), a)
    size = operator.index(x.shape[a])
    if counts.shape != (size,):
        raise Error("TC0102", f"{counts.shape} repeats for an axis of size {size}", "one for each, or one for all")
    return FUNCTIONS["take"](x, np.repeat(np.arange(size), counts), axis=a)


def _refuse_counts() -> Any:
    raise Error("TC0105", "repeat by traced counts", "counts that are known while tracing")


def _repeated(x: Traced, times: int, axis: int) -> Traced:
    s = x.node.type.shape
    wide = apply(
        "broadcast",
        x.node,
        shape=(*s[: axis + 1], times, *s[axis + 1 :]),
        axes=tuple(k if k <= axis else k + 1 for k in range(len(s))),
    )
    return Traced(reshape_node(wide, (*s[:axis], index.mul(s[axis], times), *s[axis + 1 :])))


@public("x", "constant_values")
def pad(x: Any, pad_width: Any, mode: str = "constant", *, constant_values: Any = 0) -> Traced:
    """Elements added before and after along each axis: a constant, or copies (edge, reflect, symmetric, wrap)."""
    wide = strong(x)
    widths = _widths(pad_width, wide.ndim)
    if not widths:
        return wide
    if mode == "constant":
        n = wide.node
        value = cast(strong(constant_values).node, n.type.dtype)
        if value.type.shape:
            raise Error("TC0105", f"pad with constant_values of shape {show_shape(value.type.shape)}", "one value for all sides")
        low, high = zip(*widths)
        return Traced(apply("pad", n, value, low=tuple(map(raw, low)), high=tuple(map(raw, high))))
    for a, (low, high) in enumerate(widths):
        if low or high:
            size = operator.index(wide.shape[a])
            wide = FUNCTIONS["take"](wide, np.pad(np.arange(size), (low, high), mode=mode), axis=a)  # type: ignore[call-overload]
    return wide


def _widths(pad_width: Any, rank: int) -> list[tuple[Any, Any]]:
    if rank == 0:
        return []
    if isinstance(pad_width, dict):
        given = {shapes.axis(a, rank): w for a, w in pad_width.items()}
        return [_pair(given.get(a, 0)) for a in range(rank)]
    if isinstance(pad_width, (int, np.integer)):
        return [_pair(pad_width)] * rank
    listed = [w if isinstance(w, (int, np.integer)) else tuple(w) for w in pad_width]
    if len(listed) == 2 and all(isinstance(w, (int, np.integer)) for w in listed):
        return [(listed[0], listed[1])] * rank
    return [_pair(w) for w in (listed * rank if len(listed) == 1 else listed)]


def _pair(width: Any) -> tuple[Any, Any]:
    if isinstance(width, (int, np.integer)):
        return width, width
    return (width[0], width[0]) if len(width) == 1 else (width[0], width[1])
