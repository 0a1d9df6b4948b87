"""Shapes and axes as users write them, made canonical; broadcasting by NumPy's rule over sizes that may be symbolic."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tcomp.errors import Error
from tcomp.frontend import meetings
from tcomp.frontend.dimension import is_size, raw
from tcomp.frontend.places import here
from tcomp.ir import index
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops.table import show_shape


def sizes(shape: Any) -> tuple[Dim, ...]:
    """A shape argument (a size or a sequence of sizes) as index expressions. TC0104 where it is no shape."""
    items: Sequence[Any] = (shape,) if is_size(shape) else shape
    try:
        return tuple(map(raw, items))
    except TypeError:
        raise Error("TC0104", f"{shape!r} as a shape", "an integer or a sequence of integers") from None


def broadcast_shapes(shapes: Iterable[tuple[Dim, ...]]) -> tuple[Dim, ...]:
    """NumPy's broadcast shape: aligned at the last axis, 1 gives way. Where meetings are noted, sizes that only a call knows may
    turn out equal, or one of them 1. TC0102 where sizes differ, or may differ."""
    shapes = list(shapes)
    rank = max((len(s) for s in shapes), default=0)
    result: list[Dim] = [1] * rank
    for shape in shapes:
        for k, d in enumerate(shape, rank - len(shape)):
            if result[k] == 1:
                result[k] = d
            elif d not in (1, result[k]):
                result[k] = _met(result[k], d, shapes)
    return tuple(result)


def _met(a: Dim, b: Dim, shapes: list[tuple[Dim, ...]]) -> Dim:
    """The size where two sizes meet of which neither is 1 for certain."""
    noted = meetings.noted()
    if noted is None or all(index.equal(d, 1) == 0 for d in (a, b)):
        raise _mismatch(shapes, a, b)
    noted.place = str(here() or "")
    return noted.met(a, b)


def _mismatch(shapes: list[tuple[Dim, ...]], a: Dim, b: Dim) -> Error:
    symbolic = isinstance(a, Node) or isinstance(b, Node)
    hint = "sizes that are always equal need one symbol: give them the same name in dynamic=" if symbolic else ""
    found = f"shapes {' and '.join(show_shape(s) for s in shapes)}: {index.show(a)} against {index.show(b)}"
    return Error("TC0102", found, "equal sizes, or 1", hint=hint)


def axis(value: Any, rank: int) -> int:
    """An axis from 0 to rank - 1. TC0104 where it is out of range."""
    try:
        k = operator.index(value)
    except TypeError:
        raise Error("TC0104", f"{value!r} as an axis", "an integer") from None
    if not -rank <= k < rank:
        raise Error("TC0104", f"axis {k} of an array of rank {rank}", f"{-rank} to {rank - 1}" if rank else "rank at least 1")
    return k % rank


def axes(value: Any, rank: int) -> tuple[int, ...]:
    """Axes in the order given, without repetition; None is all of them."""
    if value is None:
        return tuple(range(rank))
    listed = (value,) if isinstance(value, (int, np.integer)) else tuple(value)
    found = tuple(axis(a, rank) for a in listed)
    if len(set(found)) != len(found):
        raise Error("TC0104", f"axes {tuple(listed)}", "each axis once")
    return found


def known(shape: tuple[Dim, ...]) -> tuple[int, ...] | None:
    """The shape where all its sizes are plain integers."""
    return tuple(d for d in shape if isinstance(d, int)) if all(isinstance(d, int) for d in shape) else None


def reshaped(old: tuple[Dim, ...], new: Any) -> tuple[Dim, ...]:
    """The shape that `new`, which may hold one -1, means for an array of shape `old`."""
    wanted = sizes(new)
    unknown = [k for k, d in enumerate(wanted) if d == -1]
    if len(unknown) > 1 or any(isinstance(d, int) and d < -1 for d in wanted):
        raise Error("TC0104", f"{show_shape(wanted)} as a shape", "sizes, one of them -1 at most")
    if not unknown:
        return wanted
    total = index.product(old)
    rest = index.product(d for d in wanted if d != -1)
    if rest == 0 or (isinstance(total, int) and isinstance(rest, int) and total % rest):
        raise Error("TC0102", f"`reshape` of {show_shape(old)} to {show_shape(wanted)}", "the same number of elements")
    return tuple(index.floordiv(total, rest) if d == -1 else d for d in wanted)


def count(shape: Iterable[Dim]) -> Dim:
    """The number of elements."""
    return index.product(shape)
