"""Products over axes: matmul and its relatives, each one `dot` of the op table where something is contracted."""

from __future__ import annotations

from typing import Any

import numpy as np

from tcomp.errors import Error
from tcomp.frontend import promotion, shapes
from tcomp.frontend.numpy_api.manipulation import common_operands, moveaxis, ravel, reshape
from tcomp.frontend.registry import FUNCTIONS, public
from tcomp.frontend.tracer import Traced, operand, strong
from tcomp.ir.graph import reshape as reshape_node
from tcomp.ir.graph import stretched
from tcomp.ir.graph import transpose as transpose_node
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import apply
from tcomp.ir.ops.table import show_shape


@public("x1", "x2")
def matmul(x1: Any, x2: Any, /, *, dtype: Any = None) -> Traced:
    """The matrix product over the last two axes; the others are batches, broadcast by NumPy's rule."""
    operands = [operand(x1), operand(x2)]
    target = promotion.loop(np.matmul, tuple(o.kind for o in operands))[0]
    a, b = (o.as_node(target) for o in operands)
    if a.type.rank == 0 or b.type.rank == 0:
        raise Error("TC0102", "matmul of a scalar", "rank 1 or more", hint="`*` multiplies by a scalar")
    row, column = a.type.rank == 1, b.type.rank == 1
    a = reshape_node(a, (1, *a.type.shape)) if row else a
    b = reshape_node(b, (*b.type.shape, 1)) if column else b
    if a.type.shape[-1] != b.type.shape[-2]:
        found = f"matmul of {show_shape(operands[0].shape)} and {show_shape(operands[1].shape)}"
        raise Error("TC0102", found, "an equal inner size")
    n = _batched(a, b)
    shape = n.type.shape
    shape = (*shape[:-2], *(() if row else (shape[-2],)), *(() if column else (shape[-1],)))
    return Traced(reshape_node(n, shape))


def _batched(a: Node, b: Node) -> Node:
    """The product of stacks of matrices. A batch axis that only one side has stays a free axis of that side: nothing is
    repeated; a transpose puts the axes in order."""
    rank = max(a.type.rank, b.type.rank) - 2
    full = shapes.broadcast_shapes((a.type.shape[:-2], b.type.shape[:-2]))
    a, b = (stretched(x, (*full[rank + 2 - x.type.rank :], *x.type.shape[-2:])) for x in (a, b))
    (a, in_a), (b, in_b) = _own_batches(a, rank, full), _own_batches(b, rank, full)
    both = [k for k in range(rank) if k in in_a and k in in_b]
    batch = (tuple(in_a.index(k) for k in both), tuple(in_b.index(k) for k in both))
    n = apply("dot", a, b, batch=batch, contract=((a.type.rank - 1,), (b.type.rank - 2,)))
    names: list[Any] = [*both, *(k for k in in_a if k not in both), "m", *(k for k in in_b if k not in both), "n"]
    n = transpose_node(n, tuple(names.index(k) for k in (*(k for k in range(rank) if k in names), "m", "n")))
    return reshape_node(n, (*full, *n.type.shape[-2:]))


def _own_batches(x: Node, rank: int, full: tuple[Dim, ...]) -> tuple[Node, list[int]]:
    """x without batch axes of size 1 that are repeated, and which batch axes (of the result) are left."""
    offset = rank - (x.type.rank - 2)
    own = [k for k in range(offset, rank) if x.type.shape[k - offset] == full[k]]
    return reshape_node(x, (*(x.type.shape[k - offset] for k in own), *x.type.shape[-2:])), own


def contraction(a: Any, b: Any, axes_a: tuple[int, ...], axes_b: tuple[int, ...], batch: Any = ((), ())) -> Traced:
    """The sum of products over paired axes, for each of the paired batch axes."""
    operands, target = common_operands((a, b))
    x, y = (o.as_node(target) for o in operands)
    return Traced(apply("dot", x, y, batch=batch, contract=(axes_a, axes_b)))


@public("x1", "x2")
def tensordot(x1: Any, x2: Any, /, axes: Any = 2) -> Traced:
    """The sum of products over the last `axes` axes of x1 and the first of x2, or over the axes listed for each."""
    a, b = strong(x1), strong(x2)
    if isinstance(axes, (int, np.integer)):
        axes = (range(a.ndim - int(axes), a.ndim), range(int(axes)))
    over_a, over_b = shapes.axes(axes[0], a.ndim), shapes.axes(axes[1], b.ndim)
    if len(over_a) != len(over_b):
        raise Error("TC0104", f"tensordot over axes {over_a} and {over_b}", "equally many")
    return contraction(x1, x2, over_a, over_b)


@public("x1", "x2")
def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Traced:
    """The sum of products along one axis."""
    a, b = (moveaxis(x, axis, -1) for x in (strong(x1), strong(x2)))
    if a.node.type.shape[-1] != b.node.type.shape[-1]:
        raise Error("TC0102", f"vecdot of sizes {a.shape[-1]} and {b.shape[-1]}", "equal sizes")
    r = matmul(a[..., None, :], b[..., :, None])
    return r[..., 0, 0]


@public("a", "b")
def dot(a: Any, b: Any) -> Traced:
    """NumPy's dot: of vectors and matrices the product, of others over the last axis and the second last."""
    x, y = strong(a), strong(b)
    if x.ndim == 0 or y.ndim == 0:
        return FUNCTIONS["multiply"](a, b)
    _require_inner(x, y, max(-2, -y.ndim))
    return contraction(a, b, (x.ndim - 1,), (max(0, y.ndim - 2),))


def _require_inner(x: Traced, y: Traced, axis: int) -> None:
    if x.node.type.shape[-1] != y.node.type.shape[axis]:
        found = f"a product of {show_shape(x.node.type.shape)} and {show_shape(y.node.type.shape)}"
        raise Error("TC0102", found, "an equal inner size")


@public("a", "b")
def inner(a: Any, b: Any) -> Traced:
    """The sum of products over the last axes."""
    x, y = strong(a), strong(b)
    if x.ndim == 0 or y.ndim == 0:
        return FUNCTIONS["multiply"](a, b)
    _require_inner(x, y, -1)
    return contraction(a, b, (x.ndim - 1,), (y.ndim - 1,))


@public("a", "b")
def outer(a: Any, b: Any) -> Traced:
    """All products of the elements of two vectors."""
    return FUNCTIONS["multiply"](ravel(a)[:, None], ravel(b)[None, :])


@public("a", "b")
def vdot(a: Any, b: Any) -> Traced:
    """The sum of products of all elements."""
    return dot(ravel(a), ravel(b))


@public("a", "b")
def kron(a: Any, b: Any) -> Traced:
    """The Kronecker product."""
    x, y = strong(a), strong(b)
    rank = max(x.ndim, y.ndim)
    xs, ys = ((1,) * (rank - v.ndim) + v.shape for v in (x, y))
    wide = reshape(x, tuple(d for s in xs for d in (s, 1))) * reshape(y, tuple(d for s in ys for d in (1, s)))
    return reshape(wide, tuple(s * t for s, t in zip(xs, ys)))


@public("a", "b")
def cross(a: Any, b: Any, /, *, axis: int = -1) -> Traced:
    """The vector product of 3-vectors along an axis."""
    x, y = moveaxis(strong(a), axis, -1), moveaxis(strong(b), axis, -1)
    if x.shape[-1] != 3 or y.shape[-1] != 3:
        raise Error("TC0102", f"cross of vectors of {x.shape[-1]} and {y.shape[-1]} elements", "3 elements")
    parts = [x[..., i] * y[..., j] - x[..., j] * y[..., i] for i, j in ((1, 2), (2, 0), (0, 1))]
    return moveaxis(FUNCTIONS["stack"](parts, axis=-1), -1, axis)
