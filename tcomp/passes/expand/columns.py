"""Runs of statements over one row: column passes.

Stores along columns, reductions of columns to a scalar, and scalar work between them. Each statement goes to the earliest pass
its inputs allow, and those of one pass share a loop: a main loop of wide tiles with wide accumulators, then a loop of one
vector under a mask, where `valid` supplies the monoid's identity; then the accumulators are reduced. Where the number of
columns is known the remainder is one tile with a constant count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tcomp.errors import Error
from tcomp.ir import index
from tcomp.ir import tile as t
from tcomp.ir.dtype import DType, accumulator
from tcomp.ir.machine import LANES
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import MONOIDS
from tcomp.ir.stmts import For, Let, Stmt, Store
from tcomp.ir.types import TileType
from tcomp.passes.expand import masks
from tcomp.passes.expand.segments import Segment, loop, whole_tiles
from tcomp.passes.names import Names, loop_variable
from tcomp.passes.sums import Sum, Turns, adding_loops, in_levels, rounds
from tcomp.passes.tiles import has, index_buffers, loads, names_read, pick

WIDTH = 4 * LANES


@dataclass(frozen=True, slots=True)
class Item:
    """A statement of a run with what it touches. columns: the extent its columns run over, None for scalar work."""

    st: Let | Store
    columns: Dim | None
    reads: tuple[Node, ...]
    names: frozenset[str]
    indexed: frozenset[str]  # buffers that its index expressions read

    @property
    def buffer(self) -> str | None:
        """The buffer it writes."""
        return self.st.window["buffer"].name if isinstance(self.st, Store) else None


def item(st: Let | Store) -> Item:
    """The statement with what it touches. Raises TC0302 for what cannot be cut into columns."""
    value = st.value
    touched = (value, st.window) if isinstance(st, Store) else (value,)
    columns: Dim | None = None
    if isinstance(st, Store) and st.window.type.rank:
        columns = st.window.type.shape[0]
        if has(value, "scan", "last", "fold", "dot"):
            raise Error("TC0302", f"a scan or product in a store of {st.window['buffer'].name} by columns", "its own loop")
    elif is_block_reduce(value):
        columns = value.operands[0].type.shape[0]
    indexed = frozenset(b.name for e in touched for b in index_buffers(e))
    return Item(st, columns, tuple(loads(value)), frozenset(names_read(value)), indexed)


def is_block_reduce(n: Node) -> bool:
    """Whether a node reduces a window to a scalar, rather than a register tile."""
    return n.op == "reduce" and n.operands[0].type.rank == 1 and not any(o.op == "ref" and o.type.rank for o in t.nodes(n))


def expand_run(items: Sequence[Item], names: Names) -> tuple[Stmt, ...]:
    """The passes for a run, in order."""
    place = levels(items)
    widths = [i.st.by.tile[0] for i in items if isinstance(i.st, Store) and i.columns is not None and i.st.by is not None]
    out: list[Stmt] = []
    for level in range(-1, max(place) + 1):
        here = [i for i, p in zip(items, place) if p == level]
        for n in dict.fromkeys(i.columns for i in here if i.columns is not None):
            out += _Pass([i.st for i in here if i.columns == n], n, max(widths, default=WIDTH), names).statements()
        out += [_plain(i.st) for i in here if i.columns is None]
    return tuple(out)


def _plain(st: Stmt) -> Stmt:
    return replace(st, by=None) if isinstance(st, Store) else st


def levels(items: Sequence[Item]) -> list[int]:
    """The pass of each statement: the earliest its inputs allow. Scalar work of level p comes after pass p (-1: before all)."""
    place: list[int] = []
    for k, it in enumerate(items):
        level = -1 if it.columns is None else 0
        for before, at in zip(items[:k], place):
            if not _related(before, it):
                continue
            shared = it.columns is None or (before.columns is not None and _same_lanes(before, it))
            level = max(level, at if shared else at + 1)
        place.append(level)
    return place


def _related(a: Item, b: Item) -> bool:
    """Whether b must not be moved before a."""
    if isinstance(a.st, Let) and a.st.name in b.names:
        return True
    return _writes_what(a, b) or _writes_what(b, a) or (a.buffer is not None and a.buffer == b.buffer)


def _writes_what(a: Item, b: Item) -> bool:
    """Whether a writes a buffer that b reads."""
    return a.buffer is not None and (a.buffer in b.indexed or any(r["buffer"].name == a.buffer for r in b.reads))


def _same_lanes(a: Item, b: Item) -> bool:
    """Whether b, after a in one loop body, sees what it would see in a loop of its own."""
    if a.columns != b.columns or not isinstance(a.st, Store):  # a reduction's operand is read at the end of the body
        return False
    at = a.st.window
    if a.buffer in b.indexed or b.buffer in a.indexed:
        return False
    if any(r["buffer"].name == a.buffer and not _same_window(r, at) for r in b.reads):
        return False
    if not isinstance(b.st, Store):
        return True
    if any(r["buffer"].name == b.buffer and not _same_window(r, b.st.window) for r in a.reads):
        return False
    return a.buffer != b.buffer or _same_window(b.st.window, at)


def _same_window(a: Node, b: Node) -> bool:
    """Whether two windows of one buffer name the same element at each lane, and different ones at different lanes."""
    v, w = t.window(a), t.window(b)
    return v.positions == w.positions and v.extents == w.extents and masks.lies_along(w, 0) is not None


@dataclass(slots=True)
class _Sum:
    """A reduction under way: its operand, what to start from (`started`: done), the accumulators so far (None: none yet)."""

    let: Let
    monoid: str
    operand: Node
    start: Node
    so_far: Node | None = None
    started: bool = False

    def combine(self, x: Node) -> Node:
        """The accumulators after one more tile, both as wide as the narrower of the two."""
        if self.so_far is None:
            return x
        a = self.so_far
        lanes = min(_lanes(a), _lanes(x)) if _lanes(a) != _lanes(x) else _lanes(a)
        lanes = lanes if _lanes(a) % lanes == _lanes(x) % lanes == 0 else LANES
        return t.pointwise(self.monoid, _folded(self.monoid, a, lanes), _folded(self.monoid, x, lanes))

    def result(self) -> Let:
        total = self.start if self.so_far is None else t.reduce(self.monoid, self.so_far)
        return self.named(total)

    def named(self, total: Node) -> Let:
        """The `Let` of a total. One that did not start from zero is added to it: NumPy's sum of negative zeros is +0.0."""
        type = self.let.value.type
        if self.monoid == "add" and total.type.dtype.is_float and not self.started and total is not self.start:
            total = t.pointwise("add", total, self.start)
        return replace(self.let, value=t.cast(total, type.dtype), by=None)


def _lanes(x: Node) -> int:
    lanes = index.constant(x.type.shape[0])
    assert lanes is not None
    return lanes


def _folded(monoid: str, x: Node, lanes: int) -> Node:
    return x if _lanes(x) == lanes else t.fold(monoid, x, lanes)


def identity(monoid: str, dtype: DType) -> Node:
    """What a reduction starts from, and its padding."""
    return t.full(MONOIDS[monoid].start(dtype), dtype)


class _Pass:
    """The statements of one pass over n columns."""

    def __init__(self, statements: Sequence[Let | Store], n: Dim, width: int, names: Names) -> None:
        self.n, self.width, self.names = n, width, names
        self.stores = [st for st in statements if isinstance(st, Store)]
        self.sums = [self._sum(st) for st in statements if isinstance(st, Let)]

    def _sum(self, st: Let) -> _Sum:
        x, monoid = st.value.operands[0], st.value["monoid"]
        wide = accumulator(x.type.dtype)
        return _Sum(st, monoid, t.cast(x, wide), identity(monoid, wide))

    def statements(self) -> list[Stmt]:
        out: list[Stmt] = []
        if self.n == 1:
            return self._single()
        for s in self._segments():
            out += self._segment(s)
        return [*out, *(s.result() for s in self.sums)]

    def _single(self) -> list[Stmt]:
        """One column: scalars."""
        out: list[Stmt] = [replace(st, window=pick(st.window, 0), value=pick(st.value, 0), by=None) for st in self.stores]
        return [*out, *(s.named(pick(s.operand, 0)) for s in self.sums)]

    def _segments(self) -> tuple[Segment, ...]:
        n, width = self.n, self.width
        if self._unmasked():
            return (Segment(0, n, width),)
        full, left = whole_tiles(n, width)
        if left is None:
            return (Segment(0, full, width), Segment(full, n, LANES, not index.divisible(n, LANES)))
        size = -(-left // LANES) * LANES
        return (Segment(0, full, width), Segment(full, n, size or width, left != size))

    def _unmasked(self) -> bool:
        """Whether whole tiles may pass the end everywhere: own memory with room, and nothing to reduce."""
        if self.sums or any(st.combine or (st.by is not None and st.by.pad is not None) for st in self.stores):
            return False
        return all(
            masks.may_round_up(t.window(st.window), 0, self.width)
            and not (st.value.type.rank and masks.needs_mask(st.value, 0, self.width))
            for st in self.stores
        )

    def _segment(self, s: Segment) -> tuple[Stmt, ...]:
        length = index.constant(index.sub(s.hi, s.lo))
        if length is not None and length <= s.size:
            return self._straight(s) if length > 0 else ()
        if not self.sums:
            return loop(self.names, "j", s, lambda j: self._stores(s, j))
        return (self._loop(s),)

    def _straight(self, s: Segment) -> tuple[Stmt, ...]:
        """One tile without a loop."""
        out = self._stores(s, s.lo)
        for sum in self.sums:
            sum.so_far = sum.combine(self._operand(sum, s, s.lo))
        return out

    def _loop(self, s: Segment) -> For:
        """A loop that carries the accumulators, in levels where sums are long."""
        loops = self._turns(s)
        j = loops[-1].var
        carried = [self._carried(sum, s, j, len(loops)) for sum in self.sums]
        return adding_loops(loops, carried, self._stores(s, j))

    def _turns(self, s: Segment) -> list[Turns]:
        def variable(lo: Dim, hi: Dim, step: int) -> Node:
            return loop_variable(self.names.fresh("j"), lo, hi, step)

        if s.lo == 0 and any(rounds(sum.monoid, sum.operand.type) for sum in self.sums):
            return in_levels(variable, s.lo, s.hi, s.size)
        return [Turns(variable(s.lo, s.hi, s.size), s.lo, s.hi, s.size)]

    def _carried(self, sum: _Sum, s: Segment, j: Dim, levels: int) -> Sum:
        """What loops carry of a reduction, which goes on from their result."""
        type = TileType(sum.operand.type.dtype, (s.size,))
        names = [(self.names.fresh("part"), self.names.fresh("part")) for _ in range(levels)]
        goes_on = sum.so_far is not None and _lanes(sum.so_far) % s.size == 0
        init = _folded(sum.monoid, sum.so_far, s.size) if sum.so_far is not None and goes_on else sum.start
        total = t.ref(names[0][1], type)
        sum.so_far, sum.started = total if goes_on else sum.combine(total), True
        term = self._operand(sum, s, j)
        return Sum(sum.monoid, type, init, sum.start, term, lambda k: names[k][0], lambda k: names[k][1])

    def _count(self, s: Segment, j: Dim) -> Dim | None:
        return index.sub(self.n, j) if s.masked else None

    def _narrow(self, e: Node, s: Segment, j: Dim) -> Node:
        count = self._count(s, j)
        return masks.unmask(t.restrict(e, ((j, s.size, count),)), count, LANES)

    def _operand(self, sum: _Sum, s: Segment, j: Dim) -> Node:
        """A tile of a reduction's operand, the identity past the end."""
        x, count = self._narrow(sum.operand, s, j), self._count(s, j)
        if count is None:
            return x
        return t.valid(x, count, sum.start)

    def _stores(self, s: Segment, j: Dim) -> tuple[Stmt, ...]:
        return tuple(self._store(st, s, j) for st in self.stores)

    def _store(self, st: Store, s: Segment, j: Dim) -> Store:
        count = self._count(s, j)
        value = self._narrow(st.value, s, j)
        if count is not None and st.by is not None and st.by.pad is not None and value.type.rank:
            value = t.valid(value, count, t.full(st.by.pad, value.type.dtype))
        if st.combine is None and masks.may_round_up(t.window(st.window), 0, LANES):
            count = None
        window = t.restrict(st.window, ((j, s.size, count),))
        return replace(st, window=window, value=value, by=None)
