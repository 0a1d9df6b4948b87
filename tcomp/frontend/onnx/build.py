"""Idioms of GRAPH that operators share: NumPy broadcasting written out, scalars, means, fixed-size padding."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

import numpy as np

from tcomp.errors import Error
from tcomp.frontend import meetings
from tcomp.frontend.onnx.facts import DATA
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.dtype import DType
from tcomp.ir.graph import Fate, broadcast, broadcast_trailing, cast, full, reshape, stretched, transpose
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import apply, constant
from tcomp.ir.ops.table import show_shape

Shape = tuple[Dim, ...]


class Equal(Exception):
    """Two dimensions that the model needs to be equal; one is a symbol, which then stands for the other (or gets a bound).
    why, place: of the node that needs it."""

    def __init__(self, symbol: Node, other: Dim) -> None:
        super().__init__(f"{index.show(symbol)} = {index.show(other)}")
        self.symbol, self.other = symbol, other
        self.why, self.place = "both have to be equal", ""

    def fate(self) -> Fate:
        """What becomes of the symbol, for the account."""
        bound = isinstance(self.other, Node) and self.other.op == "sym" and self.other["name"] == self.symbol["name"]
        became = f"at most {self.other['hi']}" if bound and isinstance(self.other, Node) else index.show(self.other)
        return Fate(index.show(self.symbol), became, self.why, self.place)


def unify(a: Dim, b: Dim) -> Dim:
    """The dimension that two sizes are when they have to be equal. Raises `Equal` where a symbol has to become the other one,
    `Error` (TC0203) where both are known and differ. Of two different expressions, or where one is data, it is the shorter one:
    `relabel` asserts them at run time."""
    if a == b:
        return a
    if isinstance(a, int) and isinstance(b, int):
        raise Error("TC0203", f"sizes {a} and {b}", "equal sizes")
    for x, y in ((b, a), (a, b)) if not any(map(is_data, index.symbols([a, b]))) else ():
        if isinstance(x, Node) and x.op == "sym" and x not in index.symbols([y]):
            raise Equal(x, y)
        if isinstance(x, Node) and x.op == "sym" and (most := _cap(x, y)) is not None:
            raise Equal(x, index.symbol(x["name"], x["lo"], most, x["multiple"]))
    return min((a, b), key=lambda d: (isinstance(d, Node), len(index.show(d))))


def require_count(now: Shape, wanted: Shape) -> None:
    """Raise `Equal` where only one value of one symbol gives both shapes as many elements: the model is made for that size. Not
    in a branch, to which a call of another size may not come."""
    noted = meetings.noted()
    left, c = index.terms(index.sub(index.product(now), index.product(wanted)))
    if len(left) != 1 or is_unsure(*now, *wanted) or (noted is not None and noted.branches):
        return
    ((symbol, k),) = left.items()
    if symbol.op != "sym" or c % k or -c // k < 0 or index.nearest(symbol, -c // k) != -c // k:
        return
    found = Equal(symbol, -c // k)
    found.why = "no other size has as many elements as are asked for"
    raise found


def is_data(symbol: Node) -> bool:
    """Whether a symbol is a size that data gives (`Facts.symbol`)."""
    return str(symbol["name"]).startswith(DATA)


def is_unsure(*dims: Dim) -> bool:
    """Whether data has a say in these sizes: then they are known too late to choose a variant by them."""
    return any(map(is_data, index.symbols(dims)))


def _cap(symbol: Node, other: Dim) -> int | None:
    """c where `other` is min(c, symbol): the two are equal exactly where the symbol is at most c."""
    if not isinstance(other, Node) or other.op != "min" or symbol not in other.operands:
        return None
    return index.constant(next(index.as_dim(o) for o in other.operands if o is not symbol))


def broadcast_shapes(*shapes: Shape) -> Shape:
    """The common shape by NumPy's rule. A symbolic size that meets another one is taken to be equal to it, or, where meetings are
    noted, to be what the call says."""
    rank = max(map(len, shapes))
    result: list[Dim] = [1] * rank
    for shape in shapes:
        for k, d in enumerate(shape, rank - len(shape)):
            result[k] = _meet(result[k], d, shapes)
    return tuple(result)


def _meet(a: Dim, b: Dim, shapes: tuple[Shape, ...]) -> Dim:
    if a == 1 or b == 1:
        return b if a == 1 else a
    noted = meetings.noted()
    if noted is not None and (is_unsure(a, b) or not noted.equal) and _may_stretch(a, b):
        return noted.met(a, b, is_unsure(a, b))
    try:
        return unify(a, b)
    except Equal as found:
        found.why = meetings.MET
        raise
    except Error:
        raise Error("TC0203", f"shapes {' and '.join(map(show_shape, shapes))}", "shapes that broadcast") from None


def _may_stretch(a: Dim, b: Dim) -> bool:
    """Whether one of two sizes may be 1 where the other is not: not where it is the other one up to a limit."""
    capped = any(isinstance(x, Node) and x.op == "sym" and _cap(x, y) not in (None, 0, 1) for x, y in ((a, b), (b, a)))
    return not capped and any(index.equal(d, 1) != 0 for d in (a, b))


def relabel(x: Node, shape: Shape) -> Node:
    """`x` with its sizes (but for 1) written as those of `shape`, which they have to equal (see `unify`): where that cannot be
    known, a reshape of each such axis, which holds at run time or raises."""
    for axis, (d, e) in enumerate(zip(x.type.shape, shape)):
        if d != 1:
            unify(d, e)
            x = reshape(x, (*x.type.shape[:axis], e, *x.type.shape[axis + 1 :]))
    return x


def spread(x: Node, shape: Shape) -> Node:
    """`x` broadcast to `shape` by NumPy's rule."""
    sizes = tuple(_before(d, e) for d, e in zip(x.type.shape, shape[len(shape) - x.type.rank :]))
    try:
        return broadcast_trailing(relabel(x, sizes), shape)
    except Equal as found:
        found.why = meetings.MET
        raise


def widened(x: Node, shape: Shape) -> Node:
    """`x` with axes repeated where only the call knows whether they are 1, and `shape` is what they meet; others as they are."""
    noted = meetings.noted()
    if noted is None:
        return x
    return stretched(x, tuple(e if noted.stretches(d, e) else d for d, e in zip(x.type.shape, shape)))


def _before(d: Dim, size: Dim) -> Dim:
    """What an axis of size `d` is before it is broadcast to `size`: d itself where only the call knows whether it is 1."""
    noted = meetings.noted()
    if d in (1, size) or noted is None or noted.stretches(d, size):
        return d
    if (is_unsure(d, size) or not noted.equal) and index.equal(d, 1) != 0 and _may_stretch(d, size):
        noted.within(d, size, is_unsure(d, size))
        return d
    return size


def aligned(*xs: Node) -> list[Node]:
    """Operands broadcast to their common shape."""
    shape = broadcast_shapes(*(x.type.shape for x in xs))
    return [spread(x, shape) for x in xs]


def pointwise(op: str, *xs: Node) -> Node:
    """A pointwise operation on operands that NumPy broadcasting brings to one shape."""
    return apply(op, *aligned(*xs))


def scalar(value: float | int | bool, like: Node) -> Node:
    """A constant of the dtype and shape of `like`."""
    return full(value, like.type.dtype, like.type.shape)


def size_like(d: Dim, like: Node) -> Node:
    """The value of `d` in the dtype and shape of `like`."""
    return broadcast(dimension(d, like.type.dtype), like.type.shape, ())


def with_scalar(op: str, x: Node, value: float | int) -> Node:
    return apply(op, x, scalar(value, x))


def integers(values: Iterable[int], dtype: DType = dt.i64) -> Node:
    return constant(np.array(list(values), dt.to_numpy(dtype)))


def dimensions(shape: Sequence[Dim], dtype: DType = dt.i64) -> Node:
    """A vector that holds the sizes of `shape`."""
    if all(isinstance(d, int) for d in shape):
        return integers([int(d) for d in shape if isinstance(d, int)], dtype)
    parts = [reshape(dimension(d, dtype), (1,)) for d in shape]
    return parts[0] if len(parts) == 1 else apply("concat", *parts, axis=0)


def dimension(d: Dim, dtype: DType) -> Node:
    """The value of `d` as a scalar."""
    return constant(np.asarray(d, dt.to_numpy(dtype))) if isinstance(d, int) else apply("dimension", dim=d, dtype=dtype)


def reduce(x: Node, monoid: str, axes: tuple[int, ...], keep: bool) -> Node:
    """`x` reduced over `axes`, which stay as 1 if `keep`."""
    small = apply("reduce", x, monoid=monoid, axes=axes)
    return reshape(small, tuple(1 if a in axes else d for a, d in enumerate(x.type.shape))) if keep else small


def mean(x: Node, axes: tuple[int, ...], keep: bool) -> Node:
    """The mean over `axes`, in the accumulator's precision (integers: truncated)."""
    wide = cast(x, dt.accumulator(x.type.dtype))
    total = reduce(wide, "add", axes, keep)
    return cast(quotient(total, index.product(x.type.shape[a] for a in axes)), x.type.dtype)


def quotient(x: Node, count: Dim) -> Node:
    """`x` divided by `count` (integers: truncated)."""
    divide = "div" if x.type.dtype.is_float else "quotient"
    return apply(divide, x, size_like(count, x))


def zero_pad(x: Node, low: Sequence[Dim], high: Sequence[Dim], value: float | int = 0) -> Node:
    """`x` with `value` before and after, on every axis; negative widths (known ones) crop."""
    if all(w == 0 for w in (*low, *high)):
        return x
    x = crop(x, [max(-w, 0) if isinstance(w, int) else 0 for w in low], [max(-w, 0) if isinstance(w, int) else 0 for w in high])
    low = tuple(max(w, 0) if isinstance(w, int) else w for w in low)
    high = tuple(max(w, 0) if isinstance(w, int) else w for w in high)
    if all(w == 0 for w in (*low, *high)):
        return x
    return apply("pad", x, full(value, x.type.dtype), low=low, high=high)


def crop(x: Node, low: Sequence[Dim], high: Sequence[Dim]) -> Node:
    """`x` without `low` and `high` elements at the ends of every axis."""
    if all(w == 0 for w in (*low, *high)):
        return x
    shape = tuple(index.sub(index.sub(d, a), b) for d, a, b in zip(x.type.shape, low, high))
    return slice_(x, tuple(low), shape)


def slice_(x: Node, start: Sequence[Dim], shape: Sequence[Dim], step: Sequence[int] | None = None) -> Node:
    steps = tuple(step) if step is not None else (1,) * len(start)
    if tuple(shape) == x.type.shape and all(b == 0 for b in start) and all(s == 1 for s in steps):
        return x
    return apply("slice", x, start=tuple(start), shape=tuple(shape), step=steps)


def take(x: Node, axis: int, start: Dim, count: Dim) -> Node:
    """`count` elements from `start` along one axis."""
    starts: list[Dim] = [0] * x.type.rank
    shape = list(x.type.shape)
    starts[axis], shape[axis] = start, count
    return slice_(x, starts, shape)


def pick(x: Node, axis: int, at: Dim) -> Node:
    """What is at one place along an axis, which is gone."""
    return reshape(take(x, axis, at, 1), (*x.type.shape[:axis], *x.type.shape[axis + 1 :]))


def flip(x: Node, axes: Sequence[int]) -> Node:
    """`x` reversed along `axes`."""
    shape = x.type.shape
    if not all(isinstance(shape[a], Node) or shape[a] > 0 for a in axes):
        return x
    start = [index.sub(d, 1) if a in axes else 0 for a, d in enumerate(shape)]
    return slice_(x, start, shape, [-1 if a in axes else 1 for a in range(len(shape))])


def channels_last(x: Node) -> Node:
    """[N, C, *space] as [N, *space, C]."""
    return transpose(x, (0, *range(2, x.type.rank), 1))


def channels_first(x: Node) -> Node:
    return transpose(x, (0, x.type.rank - 1, *range(1, x.type.rank - 1)))


def along(v: Node, axis: int, shape: Shape) -> Node:
    """A vector (or scalar) broadcast to `shape`, running along `axis`."""
    if v.type.rank == 0:
        return broadcast(v, shape, ())
    return broadcast(relabel(v, (shape[axis],)), shape, (axis,))


def total(xs: Iterable[Node]) -> Node:
    """The sum of at least one value, in order."""
    return functools.reduce(lambda x, y: apply("add", x, y), xs)


def concat(xs: Sequence[Node], axis: int) -> Node:
    return xs[0] if len(xs) == 1 else apply("concat", *xs, axis=axis)


def normal_positions(positions: Node, size: Dim) -> Node:
    """Positions with negative ones counted from the end of an axis of `size`."""
    if positions.type.dtype.kind == "uint":
        return positions
    return apply("where", with_scalar("lt", positions, 0), apply("add", positions, size_like(size, positions)), positions)
