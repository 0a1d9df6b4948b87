"""Stores of rows x columns: segments of rows x segments of columns, each a loop over one register tile.

A `dot` in the value becomes a register tile of its own, and what consumes it runs on that: an epilogue and the prologue of an
accumulator need no rule. With `spill` the accumulators go to an L1 tile, and the epilogue runs row by row from there. `when` at
the root becomes a branch. Without a `dot` the tile is stored as it is: packing, copying, transposing.
"""

from __future__ import annotations

from collections.abc import Sequence

from tcomp.errors import Error
from tcomp.ir import index
from tcomp.ir import tile as t
from tcomp.ir.index import as_dim
from tcomp.ir.machine import LANES
from tcomp.ir.node import Dim, Node
from tcomp.ir.stmts import By, If, Let, Stmt, Store
from tcomp.ir.types import Buffer
from tcomp.passes.expand import masks
from tcomp.passes.expand.segments import (
    Segment,
    column_segments,
    loop,
    loops,
    own_row_segments,
    row_segments,
    single_rows,
)
from tcomp.passes.names import Names
from tcomp.passes.tiles import has, spread, swap


def expand_nest(st: Store, by: By, names: Names, buffers: list[Buffer]) -> tuple[Stmt, ...]:
    """The loops for one store; L1 tiles that it needs are added to `buffers`."""
    nest = _Nest(st, by, names, buffers)
    rows, columns = nest.rows(), nest.columns()
    if by.order == "ji":
        return loops(names, "j", columns, lambda c, j: loops(names, "i", rows, lambda r, i: nest.tile(r, i, c, j)))
    return loops(names, "i", rows, lambda r, i: loops(names, "j", columns, lambda c, j: nest.tile(r, i, c, j)))


class _Nest:
    """One store and how it is cut."""

    def __init__(self, st: Store, by: By, names: Names, buffers: list[Buffer]) -> None:
        self.store, self.by, self.names, self.buffers = st, by, names, buffers
        self.window, self.value = st.window, spread(st.value)
        self.product = has(self.value, "dot")
        self.rounds_up = st.combine is None and masks.may_round_up(t.window(st.window), 1, by.tile[1])
        self.spilled: list[Buffer] = []
        self.row_masked = any(t.window(n).valid[0] is not None for n in (self.window, *self._by_rows()))
        if self.row_masked and self.product:
            raise Error("TC0302", "a product with rows of which only some exist", "an extent instead of a valid count")
        if has(self.value, "scan", "last", "fold") or any(n.op == "reduce" for n in t.nodes(self.value)):
            raise Error("TC0302", "a reduction or scan among tiles of rows x columns", "statements over rows")

    def _by_rows(self) -> list[Node]:
        """The windows of the value that run along rows (not those of a second factor)."""
        seconds = {n.operands[1] for n in t.nodes(self.value) if n.op == "dot"}
        return [n for n in t.nodes(self.value) if n.op == "load" and n.type.rank == 2 and n not in seconds]

    def rows(self) -> tuple[Segment, ...]:
        m, size = self.window.type.shape[0], self.by.tile[0]
        if self.row_masked or size == 1:
            return single_rows(m, 1)
        if isinstance(m, Node):
            capacity = masks.own_rows(self.window, self.value)
            if capacity is not None:
                return own_row_segments(m, capacity, size)
        return row_segments(m, size, self.by.tail) if self.product else single_rows(m, size)

    def columns(self) -> tuple[Segment, ...]:
        n, size = self.window.type.shape[1], self.by.tile[1]
        if n == 1 and self.product:
            raise Error("TC0302", "a product of one column", "a reduction")
        whole = self.rounds_up and self.by.pad is None and not masks.needs_mask(self.value, 1, size)
        return column_segments(n, size, self.rounds_up, whole)

    def tile(self, r: Segment, i: Dim, c: Segment, j: Dim) -> tuple[Stmt, ...]:
        """The statements for one register tile, at row i and column j."""
        if r.masked:
            return self._clamped(r, i, c, j)
        window, value = self._narrow((i, r.size, None), c, j)
        return self._micro(window, value)

    def _narrow(self, rows: t.WindowOf, c: Segment, j: Dim) -> tuple[Node, Node]:
        """The window and the value for the tile of these rows at column j."""
        count = index.sub(self.window.type.shape[1], j) if c.masked else None
        narrow = (rows, (j, c.size, count))
        done: dict[tuple[Node, t.Narrowing], Node] = {}
        value = t.restrict(self.value, narrow, done)
        if count is not None and self.by.pad is not None and value.type.rank:
            value = t.valid(value, count, t.full(self.by.pad, value.type.dtype))
        value = masks.unmask(value, count, c.size if c.size == self.by.tile[1] else LANES)
        window = t.restrict(self.window, narrow if not self.rounds_up else (rows, (j, c.size, None)), done)
        return (window, value) if not self.row_masked else (_lane_counts(window), _lane_counts(value))

    def _micro(self, window: Node, value: Node) -> tuple[Stmt, ...]:
        """The products of a tile, then what consumes them; under a `when` at the root, those of either branch in it."""
        if value.op == "when":
            cond, x, y = as_dim(value.operands[0]), value.operands[1], value.operands[2]
            others = set(_dots(y))
            shared = [d for d in _dots(x) if d in others]
            lets, values = self._products(shared)
            body, orelse = (self._micro(window, swap(v, values)) for v in (x, y))
            return (*lets, If(cond, body, orelse))
        lets, values = self._products(_dots(value))
        return (*lets, *self._consume(window, swap(value, values)))

    def _products(self, dots: Sequence[Node]) -> tuple[list[Stmt], dict[Node, Node]]:
        """A register tile for each product, and what stands for it."""
        lets: list[Stmt] = []
        values: dict[Node, Node] = {}
        for d in dots:
            name = self.names.fresh("acc")
            lets.append(Let(name, t.map_children(d, lambda o: swap(o, values))))
            values[d] = t.ref(name, d.type)
        return lets, values

    def _consume(self, window: Node, value: Node) -> tuple[Stmt, ...]:
        """The epilogue: in registers, or row by row from L1 tiles."""
        accumulators = [n for n in t.nodes(value) if n.op == "ref" and n.type.rank == 2]
        if not self.by.spill or value.op == "ref" or not accumulators:
            return (Store(window, value, None, self.store.combine),)
        return self._spill(window, value, accumulators, window.type.shape[0])

    def _spill(self, window: Node, value: Node, accumulators: list[Node], rows: Dim) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        values: dict[Node, Node] = {}
        for number, acc in enumerate(accumulators):
            shape = acc.type.shape
            values[acc] = t.load(self._tile_buffer(number, acc), tuple(t.axis(k, d) for k, d in enumerate(shape)), shape)
            out.append(Store(values[acc], acc))
        value = swap(value, values)

        def row(r: Dim) -> tuple[Stmt, ...]:
            narrow = ((r, 1, None), None)
            return (Store(t.restrict(window, narrow), t.restrict(value, narrow), None, self.store.combine),)

        return (*out, *loop(self.names, "r", Segment(0, rows, 1), row))

    def _tile_buffer(self, number: int, acc: Node) -> Buffer:
        """The L1 tile of the number-th accumulator, shared by all bodies of the nest."""
        if number == len(self.spilled):
            buffer = Buffer(self.names.fresh("spilled"), acc.type.dtype, self.by.tile, "stack")
            self.spilled.append(buffer)
            self.buffers.append(buffer)
        return self.spilled[number]

    def _clamped(self, r: Segment, i: Dim, c: Segment, j: Dim) -> tuple[Stmt, ...]:
        """The last rows in a full register tile: rows past the end read the last one instead, and are not stored."""
        left = index.sub(self.window.type.shape[0], i)
        window, value = self._narrow((i, r.size, None), c, j)
        dots = _dots(value)
        lets, clamped = self._products([_clamp_rows(d, left) for d in dots])
        accumulators = list(clamped.values())
        return (*lets, *self._spill(window, swap(value, dict(zip(dots, accumulators))), accumulators, left))


def _dots(e: Node) -> list[Node]:
    return [n for n in t.nodes(e) if n.op == "dot"]


def _clamp_rows(e: Node, left: Dim) -> Node:
    """`e` with its rows from `left` on reading row `left - 1`."""

    def clamped(n: Node) -> Node | None:
        if n.op == "dot":
            a, b, acc = n.operands
            return t.retype(n, (_clamp_rows(a, left), b, _clamp_rows(acc, left)))
        return _clamp_load(n, left) if n.op == "load" else None

    return t.replace(e, clamped)


def _clamp_load(e: Node, left: Dim) -> Node:
    w = t.window(e)
    row = t.axis(0, w.extents[0]) if w.rank == 2 else 0
    moved = {row: index.minimum(row, index.sub(left, 1))} if isinstance(row, Node) else {}
    return t.load(w.buffer, tuple(index.substitute(p, moved) for p in w.positions), w.extents, w.valid, w.other)


def _lane_counts(e: Node) -> Node:
    """A tile of one row whose windows say by lanes what they said by rows: all of them or none."""
    return t.replace(e, lambda n: _lane_counts_of_load(n) if n.op == "load" else None)


def _lane_counts_of_load(e: Node) -> Node:
    w = t.window(e)
    if w.rank != 2 or w.valid[0] is None:
        return e
    lanes = w.extents[1] if w.valid[1] is None else w.valid[1]
    count = None if w.valid[0] == 1 and w.valid[1] is None else index.mul(w.valid[0], lanes)
    return t.load(w.buffer, w.positions, w.extents, (None, count), w.other)
