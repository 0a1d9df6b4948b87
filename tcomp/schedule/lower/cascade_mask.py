"""Masks that are index arithmetic: what they leave of the streamed axis for a block of rows, so that the rest is skipped.

A `where(c, a, e)` in the elements of a cascade is a *mask* if with e in its place every stage's element is the identity of its
reduction. If c compares positions, the columns where it holds are an interval of each row: columns outside the intervals of all
rows of a block are not visited, and where an interval is exact, columns inside those of all rows need no test. A constant of two
values whose places are intervals of rows (a mask that was made beforehand) is such a comparison, too, and is not read at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tcomp.ir import dtype as dt
from tcomp.ir import index, tile
from tcomp.ir.index import as_dim
from tcomp.ir.node import Dim, Node, walk
from tcomp.ir.ops import MONOIDS
from tcomp.passes.cascade import expression as ex
from tcomp.passes.cascade.cascade import Cascade
from tcomp.passes.cascade.correction import at
from tcomp.passes.tiles import swap


@dataclass(frozen=True, slots=True)
class Interval:
    """Columns lo..hi of a row, over the symbols of the domain's lead axes. exact: the condition holds in all of them."""

    lo: Dim
    hi: Dim
    exact: bool = True

    def meet(self, other: Interval | None) -> Interval:
        if other is None:
            return Interval(self.lo, self.hi, False)
        return Interval(index.maximum(self.lo, other.lo), index.minimum(self.hi, other.hi), self.exact and other.exact)

    def test(self, column: Dim, length: Dim) -> Node:
        """Whether a column is inside."""
        hi = index.bounds(length)[1]
        t = dt.i32 if hi is not None and hi < 1 << 31 else dt.i64
        at_column, lo, hi_at = (tile.position(d, t) for d in (column, self.lo, self.hi))
        low = tile.pointwise("le", lo, at_column)
        high = tile.pointwise("lt", at_column, hi_at)
        return high if self.lo == 0 else low if self.hi == length else tile.pointwise("and", low, high)

    def join(self, other: Interval) -> Interval:
        return Interval(index.minimum(self.lo, other.lo), index.maximum(self.hi, other.hi), False)


# --- which choices are masks --------------------------------------------------------------------------


def masks(cascade: Cascade, elements: Sequence[Sequence[Node]]) -> list[Node]:
    """The `where`s over leaves whose last branch makes every element of every stage its identity."""
    every = [e for basis in elements for e in basis]
    found = dict.fromkeys(n for e in every for n in walk([e]) if n.op == "where" and ex.kinds(n.operands[0]) <= {"x", "p"})
    return [n for n in found if n.operands[2].op == "full" and _neutral(cascade, elements, n)]


def _neutral(cascade: Cascade, elements: Sequence[Sequence[Node]], mask: Node) -> bool:
    for s, basis in zip(cascade.stages, elements):
        identity = 0.0 if s.monoid == "add" else float(MONOIDS[s.monoid].identity(s.result.type.dtype))
        identity = float(s.kept[1]["value"].value) if s.kept else identity
        if any(at(swap(b, {mask: mask.operands[2]}), {}) != identity for b in basis):
            return False
    return True


# --- conditions as intervals --------------------------------------------------------------------------


def interval(c: Node, column: Dim, length: Dim) -> Interval | None:
    """The columns where a condition over positions may hold; None where nothing is known."""
    if c.op in ("and", "or"):
        a, b = (interval(o, column, length) for o in c.operands)
        if c.op == "and":
            return b.meet(a) if b is not None else a.meet(b) if a is not None else None
        return a.join(b) if a is not None and b is not None else None
    op, test = (c.op, c) if c.op != "not" else (_INVERSE.get(c.operands[0].op, ""), c.operands[0])
    if op not in _INVERSE:
        return None
    x, y = test.operands
    return _compared(op, x, y, column, length)


_INVERSE = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": ""}


def _compared(op: str, x: Node, y: Node, column: Dim, length: Dim) -> Interval | None:
    a, b = position_of(x), position_of(y)
    if a is None or b is None:
        return None
    d = index.sub(a, b)
    whole = Interval(0, length)
    match op:
        case "ge":
            found = _at_least_zero(d, column, length)
        case "gt":
            found = _at_least_zero(index.sub(d, 1), column, length)
        case "le":
            found = _at_least_zero(index.mul(d, -1), column, length)
        case "lt":
            found = _at_least_zero(index.sub(index.mul(d, -1), 1), column, length)
        case _:
            low, high = _at_least_zero(d, column, length), _at_least_zero(index.mul(d, -1), column, length)
            found = low.meet(high) if low is not None and high is not None else None
    return whole.meet(found) if found is not None else None


def position_of(e: Node) -> Dim | None:
    """The index expression that an integer expression is."""
    t = e.type.dtype
    if not t.is_integer or t.bits < 32:
        return None
    if e.op == "position":
        return as_dim(e.operands[0])
    if e.op == "full":
        return int(e["value"].value)
    parts = [position_of(o) for o in e.operands] if e.op in (*_ARITHMETIC, "cast", "neg") else [None]
    known = [p for p in parts if p is not None]
    if len(known) < len(parts):
        return None
    if e.op in ("cast", "neg"):
        return known[0] if e.op == "cast" else index.mul(known[0], -1)
    if e.op in ("floordiv", "mod") and not (isinstance(known[1], int) and known[1] > 0):
        return None
    return _ARITHMETIC[e.op](*known)


_ARITHMETIC: dict[str, Callable[[Dim, Dim], Dim]] = {
    "add": index.add,
    "sub": index.sub,
    "mul": index.mul,
    "floordiv": index.floordiv,
    "mod": index.mod,
}


def _at_least_zero(d: Dim, column: Dim, length: Dim) -> Interval | None:
    """Where d >= 0, if d has the column once, by itself or divided by a number."""
    parts, constant = index.terms(d)
    mine = {a: k for a, k in parts.items() if any(s is column for s in index.symbols([a]))}
    if len(mine) != 1:
        return None
    (atom, k), unit = next(iter(mine.items())), 1
    if atom is not column:
        by = index.constant(as_dim(atom.operands[1])) if atom.op == "floordiv" else None
        if by is None or as_dim(atom.operands[0]) is not column:
            return None
        unit = by
    rest = index.affine({a: c for a, c in parts.items() if a is not atom}, constant)
    if k == 1:
        return Interval(index.mul(index.mul(rest, -1), unit), length)
    return Interval(0, index.mul(index.add(rest, 1), unit)) if k == -1 else None


# --- rows of a block ----------------------------------------------------------------------------------


def extreme(d: Dim, values: Mapping[Node, tuple[Dim, Dim]], largest: bool) -> Dim:
    """A bound of `d` where each symbol in `values` lies between two expressions: the largest or smallest it can be."""
    if isinstance(d, int):
        return d
    if d in values:
        return values[d][largest]
    match d.op:
        case "affine":
            total: Dim = d["constant"]
            for atom, k in zip(d.operands, d["coefficients"]):
                total = index.add(total, index.mul(extreme(atom, values, largest == (k > 0)), k))
            return total
        case "min" | "max":
            a, b = (extreme(as_dim(o), values, largest) for o in d.operands)
            return index.minimum(a, b) if d.op == "min" else index.maximum(a, b)
        case "floordiv" if index.constant(as_dim(d.operands[1])):
            return index.floordiv(extreme(as_dim(d.operands[0]), values, largest), as_dim(d.operands[1]))
    if not any(s in values for s in index.symbols([d])):
        return d
    bound = index.bounds(d)[largest]
    return (1 << 40 if largest else -(1 << 40)) if bound is None else bound


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of columns: lo..hi, with the masks' tests or without."""

    lo: Dim
    hi: Dim
    masked: bool


def pieces(whole: Interval, values: Mapping[Node, tuple[Dim, Dim]], length: Dim, step: int) -> Sequence[Piece]:
    """What a block of rows visits, in order: each piece but the last ends at a multiple of `step`."""
    lo = index.maximum(extreme(whole.lo, values, False), 0)
    hi = index.minimum(index.maximum(extreme(whole.hi, values, True), 0), length)
    start = index.mul(index.floordiv(lo, step), step)
    if not whole.exact:
        return (Piece(start, hi, True),)
    first = index.minimum(index.maximum(extreme(whole.lo, values, True), 0), length)
    last = index.minimum(index.maximum(extreme(whole.hi, values, False), 0), length)
    inside = first if first == start else index.maximum(index.mul(index.ceildiv(first, step), step), start)
    outside = last if last == length else index.maximum(index.mul(index.floordiv(last, step), step), inside)
    out = [] if inside == start else [Piece(start, index.minimum(inside, hi), True)]
    out.append(Piece(inside, outside, False))
    return out if outside == length else [*out, Piece(index.maximum(outside, inside), hi, True)]


# --- masks made beforehand ----------------------------------------------------------------------------


def arithmetic(array: np.ndarray, positions: Sequence[Dim], axes: Sequence[Dim]) -> Node | None:
    """What a constant is at these positions, where it counts along an axis of the domain, or compares a row with what streams."""
    moving = [(k, p) for k, p in enumerate(positions) if p in axes]
    others = [p for p in positions if p not in axes]
    if any(p != 0 for p in others) or array.ndim != len(positions):
        return None
    if len(moving) == 1 and array.dtype.kind == "i":
        return _counted(array.reshape(-1), moving[0][1]) if array.size == array.shape[moving[0][0]] else None
    return comparison(array, *positions) if len(positions) == 2 and positions[1] is axes[-1] and len(moving) == 2 else None


def _counted(array: np.ndarray, at: Dim) -> Node | None:
    """start + step * position, where that is what a constant holds."""
    t = dt.from_numpy(array.dtype)
    if t is None or t.bits < 32 or array.size < 2:
        return None
    start, step = int(array[0]), int(array[1]) - int(array[0])
    if not np.array_equal(array, start + step * np.arange(array.size)):
        return None
    return tile.position(index.add(index.mul(at, step), start), t)


def comparison(array: np.ndarray, row: Dim, column: Dim) -> Node | None:
    """A constant [rows, columns] of two values as a choice between them by comparing positions, or None."""
    if array.ndim != 2 or array.size == 0 or array.dtype.kind not in "bf":
        return None
    t = dt.from_numpy(array.dtype)
    assert t is not None
    first = array.flat[0]
    same = (array == first) | ((array != array) & bool(first != first))
    if same.all():
        return None
    other = array[~same].flat[0]
    if not np.array_equal(np.where(same, first, other), array, equal_nan=True):
        return None
    for inside, chosen, rest in ((same, first, other), (~same, other, first)):
        found = _interval_of(inside, row)
        if found is not None:
            lo, hi = (tile.position(d, dt.i64) for d in found)
            at_column = tile.position(column, dt.i64)
            holds = tile.pointwise("and", tile.pointwise("le", lo, at_column), tile.pointwise("lt", at_column, hi))
            if t.kind == "bool":
                return holds if bool(chosen) else tile.pointwise("not", holds)
            return tile.pointwise("where", holds, tile.full(chosen.item(), t), tile.full(rest.item(), t))
    return None


def _interval_of(inside: np.ndarray, row: Dim) -> tuple[Dim, Dim] | None:
    """(lo, hi) by the row, where the true places of each row are an interval whose ends move with the row, or stand still."""
    rows, columns = inside.shape
    count = inside.sum(1)
    lo = np.where(count > 0, inside.argmax(1), 0)
    hi = lo + count
    if not all(inside[r, a:b].all() for r, a, b in zip(range(rows), lo, hi)):
        return None
    r = np.arange(rows)
    low, high = _line(lo, count > 0, r, columns, row), _line(hi, count > 0, r, columns, row)
    if low is None or high is None:
        return None
    (low_d, low_v), (high_d, high_v) = low, high
    same = np.array_equal(np.maximum(high_v - low_v, 0), count)
    return (low_d, high_d) if same else None


def _line(ends: np.ndarray, some: np.ndarray, r: np.ndarray, columns: int, row: Dim) -> tuple[Dim, np.ndarray] | None:
    """The ends as a constant, or the row plus a number, within the columns."""
    if not some.any():
        return None
    if (ends[some] == ends[some][0]).all():
        return int(ends[some][0]), np.where(some, ends[some][0], ends[some][0])
    moving = ends[some & (ends > 0) & (ends < columns)] - r[some & (ends > 0) & (ends < columns)]
    if not moving.size or not (moving == moving[0]).all():
        return None
    shift = int(moving[0])
    values = np.clip(r + shift, 0, columns)
    if not np.array_equal(values[some], ends[some]):
        return None
    return index.minimum(index.maximum(index.add(row, shift), 0), columns), values
