"""Kernels that are loops over a domain: pointwise maps, reductions along rows, reductions down columns."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product as every

from tcomp.ir import dtype as dt
from tcomp.ir import index, tile
from tcomp.ir.dtype import accumulator
from tcomp.ir.index import likely
from tcomp.ir.machine import LANES
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import MONOIDS, OPS
from tcomp.ir.stmts import By, Grid, GridAxis, Kernel, Let, Stmt, Store
from tcomp.ir.types import Buffer, TileType
from tcomp.passes.fusion import COSTLY, Group
from tcomp.passes.sums import TURNS, Sum, Turns, adding_loops, in_levels, rounds
from tcomp.schedule.lower.checks import check_phases
from tcomp.schedule.lower.collapse import Collapsed, collapse
from tcomp.schedule.lower.nest import Axis, blocks_of, counter, nest
from tcomp.schedule.lower.parts import Context, Lowered, kernel_symbols
from tcomp.schedule.lower.reading import Reader, loads
from tcomp.schedule.lower.tiling import Tiling, axis_values, domain_axes, strides, tiled

WIDE = 64  # lanes of the main loop over columns: four vectors hide the latency of an accumulator
BLOCK = 8192  # elements of one block: about the work that hides the cost of claiming it
ROW_ON_STACK = 64 << 10  # bytes of a row kept on the stack; longer rows live in scratch, up to ROW_KEPT
ROW_KEPT = 512 << 10
UNROLLED = 25  # elements that a reduction over other axes than the last combines without a loop


def output_buffer(k: int, n: Node, shape: tuple[Dim, ...]) -> Buffer:
    return Buffer(f"out{k}", n.type.dtype, shape)


def finish(
    name: str,
    reader: Reader,
    inputs: dict[Node, Buffer],
    outputs: Sequence[Buffer],
    nodes: Sequence[Node],
    phases: tuple[Grid, ...],
    ctx: Context,
) -> Lowered:
    """The kernel, with the phases that prove its data-dependent positions in range before the rest."""
    checks, workspace = check_phases(reader.checks, ctx)
    every = (*checks, *phases)
    buffers = (*inputs.values(), *outputs, *workspace)
    kernel = Kernel(name, tuple(inputs.values()), tuple(outputs), kernel_symbols(every, buffers), every, workspace)
    return Lowered(kernel, tuple(inputs), tuple(nodes))


# --- map -------------------------------------------------------------------------------------------


def lower_map(name: str, group: Group, ctx: Context) -> Lowered:
    """One pass over the domain; every output is a store of its expression."""
    return _mapped(name, group, ctx, Reader(lambda n: ctx.in_memory(n) and n not in group.outputs))


def _mapped(name: str, group: Group, ctx: Context, reader: Reader) -> Lowered:
    shape = group.outputs[0].type.shape
    expressions = [reader.read(n, domain_axes(shape)) for n in group.outputs]
    c = collapse(shape, expressions)
    outputs = tuple(output_buffer(k, n, c.dims) for k, n in enumerate(group.outputs))
    across = _transposed_axis(c)
    made = _Map(c.dims, c.expressions, outputs)
    grid = _map_across(made, across) if across is not None else _map_along(made)
    inputs = c.inputs(reader.inputs)
    return finish(name, reader, inputs, outputs, group.outputs, (grid,), ctx)


def _transposed_axis(c: Collapsed) -> int | None:
    """An axis along which some operand is contiguous while it is not along the last one: both are then walked in tiles."""
    rank = len(c.dims)
    axes = domain_axes(c.dims)
    for e in c.expressions:
        for n in (x for x in loads([e]) if (m := strides(x, axes)) is not None and m[0][-1:] not in ((0,), (1,), ())):
            move = strides(n, axes)
            assert move is not None
            for k in range(rank - 1):
                if move[0][k] == 1 and likely(c.dims[k]) >= LANES // 2 and likely(c.dims[-1]) >= 2:
                    return k
    return None


@dataclass(frozen=True, slots=True)
class _Map:
    """A map to emit: its domain, and the scalar expression of each output's element."""

    dims: tuple[Dim, ...]
    expressions: tuple[Node, ...]
    outputs: tuple[Buffer, ...]

    def stores(self, at: tuple[Dim, ...], extents: tuple[Dim, ...], by: By | None) -> tuple[Stmt, ...]:
        """A store of each output, of a tile of these extents at this position."""
        t = Tiling(axis_values(self.dims, at), extents, {})
        return tuple(Store(tile.load(b, at, extents), tiled(e, t), by) for b, e in zip(self.outputs, self.expressions))

    def row(self, at: tuple[Dim, ...], start: Dim, extent: Dim) -> tuple[Stmt, ...]:
        """The stores of a part of one row."""
        return self.stores((*at, index.add(start, tile.axis(0, extent))), (extent,), By((_lane_width(extent),)))


def _lane_width(d: Dim) -> int:
    """Lanes of the loop over an axis: up to WIDE, no wider than the axis needs."""
    return min(WIDE, -(-d // LANES) * LANES) if isinstance(d, int) and d > 0 else WIDE


def _map_along(m: _Map) -> Grid:
    """Loops over the outer axes around lanes along the last."""
    if not m.dims:
        return Grid((), m.stores((), (), None))
    *outer, last = m.dims
    if likely(last) <= 8 * BLOCK and outer:
        return nest(blocks_of(outer, likely(last), BLOCK), lambda at: m.row(at, 0, last))
    j = counter("j", last, BLOCK)
    inner = nest([Axis(d, 1) for d in outer], lambda at: m.row(at, j, index.minimum(BLOCK, index.sub(last, j))))
    return Grid((*inner.axes, GridAxis(j, last, BLOCK)), inner.body)


def _map_across(m: _Map, across: int) -> Grid:
    """Square tiles over axis `across` and the last one, so that both sides are read and written by vectors."""
    side = 64
    rest = [d for k, d in enumerate(m.dims[:-1]) if k != across]
    i, j = counter("i", m.dims[across], side), counter("j", m.dims[-1], side)
    rows, columns = index.minimum(side, index.sub(m.dims[across], i)), index.minimum(side, index.sub(m.dims[-1], j))

    def body(at: tuple[Dim, ...]) -> tuple[Stmt, ...]:
        place = list(at)
        place.insert(across, index.add(i, tile.axis(0, rows)))
        place.append(index.add(j, tile.axis(1, columns)))
        return m.stores(tuple(place), (rows, columns), By((LANES, LANES)))

    inner = nest([Axis(d, 1) for d in rest], body, "o")
    return Grid((*inner.axes, GridAxis(i, m.dims[across], side), GridAxis(j, m.dims[-1], side)), inner.body)


# --- row -------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Row:
    """A row kernel in the making: statements of one row as scalar expressions over the domain."""

    group: Group
    reader: Reader
    shape: tuple[Dim, ...]
    statements: list[tuple[str, str, Node, Node]] = field(default_factory=list)  # (what, name, node, expression)


def lower_row(name: str, group: Group, ctx: Context) -> Lowered:
    """For each row: reductions along it, values kept for later passes, and stores, in the order of the program."""
    shape = group.anchors[0].operands[0].type.shape
    reader = Reader(lambda n: ctx.in_memory(n) and n not in group.members)
    row = _Row(group, reader, shape)
    kept = _kept_rows(group, shape)
    for n in group.members:
        _row_statement(row, n, n in kept)
    last = len(shape) - 1
    c = collapse(shape, [e for _, _, _, e in row.statements], frozenset({last}))
    outer, columns = c.dims[:-1], c.dims[-1]
    shapes = {n: c.dims if n.type.shape == shape else outer for n in group.outputs}
    outputs = {n: output_buffer(k, n, shapes[n]) for k, n in enumerate(group.outputs)}
    grid = nest(blocks_of(outer, likely(columns), BLOCK), lambda at: _row_body(row, c, outputs, at))
    inputs = c.inputs(reader.inputs)
    return finish(name, reader, inputs, list(outputs.values()), group.outputs, (grid,), ctx)


def _kept_rows(group: Group, shape: tuple[Dim, ...]) -> set[Node]:
    """Full rows that several passes use and that are dear to compute: kept in a tile, if a row has a bound that allows it."""
    hi = index.bounds(shape[-1])[1]
    if hi is None:
        return set()
    users: dict[Node, set[Node]] = {}
    costly: dict[Node, bool] = {}
    for n in group.members:
        costly[n] = n.op in COSTLY or any(costly.get(o, False) for o in n.operands)
        for o in n.operands:
            if o in costly:
                users.setdefault(o, set()).add(n)
    full = [n for n in group.members if n.type.shape == shape and OPS[n.op].kind == "pointwise" and costly[n]]
    return {n for n in full if hi * n.type.dtype.bytes <= ROW_KEPT and len(users.get(n, ())) + (n in group.outputs) >= 2}


def _row_statement(row: _Row, n: Node, keep: bool) -> None:
    """Append what computes `n`, if it needs a statement of its own, and make it a leaf for the rest."""
    reader, axes = row.reader, domain_axes(row.shape)
    name = f"{n.op}{len(row.statements)}"
    if n.op == "reduce":
        x, t = n.operands[0], accumulator(n.type.dtype)
        e = reader.read(x, axes)
        row.statements.append(("reduce", name, n, e if e.type.dtype == t else tile.pointwise("cast", e, dtype=t)))
        total = tile.ref(name, TileType(t))
        value = total if t == n.type.dtype else tile.pointwise("cast", total, dtype=n.type.dtype)
        reader.local[n] = lambda at: value
    elif keep:
        row.statements.append(("keep", name, n, reader.read(n, axes)))
        kept = tile.ref(name, TileType(n.type.dtype))
        reader.local[n] = lambda at: kept
    if n in row.group.outputs:
        at = axes if n.type.shape == row.shape else axes[:-1]
        row.statements.append(("store", name, n, reader.read(n, at)))


def _row_body(row: _Row, c: Collapsed, outputs: dict[Node, Buffer], at: tuple[Dim, ...]) -> tuple[Stmt, ...]:
    columns = c.dims[-1]
    lane = tile.axis(0, columns)
    by = By((_lane_width(columns),))
    refs = {s: TileType(n.type.dtype, (columns,)) for what, s, n, _ in row.statements if what == "keep"}
    full = Tiling(axis_values(c.dims, (*at, lane)), (columns,), refs)
    single = Tiling(axis_values(c.dims, at), (), refs)
    out: list[Stmt] = []
    for (what, name, n, _), e in zip(row.statements, c.expressions):
        if what == "reduce":
            out.append(Let(name, tile.reduce(n["monoid"], _stretched(tiled(e, full), columns))))
        elif what == "keep":
            hi = index.bounds(columns)[1] or 0
            space = "stack" if hi * n.type.dtype.bytes <= ROW_ON_STACK else "scratch"
            out.append(Let(name, _stretched(tiled(e, full), columns), space, by))
        elif n.type.shape == row.shape:
            out.append(Store(tile.load(outputs[n], (*at, lane), (columns,)), tiled(e, full), by))
        else:
            out.append(Store(tile.load(outputs[n], at), tiled(e, single)))
    return tuple(out)


def _stretched(e: Node, columns: Dim) -> Node:
    """`e` as a tile along the columns, also where it does not vary along them."""
    if e.type.shape:
        return e
    zero = tile.position(tile.axis(0, columns), e.type.dtype if e.type.dtype.kind != "bool" else dt.i64, (columns,))
    always = tile.pointwise("ge", zero, zero)
    return tile.pointwise("where", always, e, e)


# --- column ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Columns:
    """A column kernel to emit. dims: the kept axes, then the reduced ones. terms: what each reduction takes; finals: what is
    stored of the results, over the kept axes."""

    anchors: tuple[Node, ...]
    kept: tuple[Dim, ...]
    reduced: tuple[Dim, ...]
    terms: tuple[Node, ...]
    finals: tuple[Node, ...]
    outputs: tuple[Buffer, ...]

    @property
    def width(self) -> int:
        """Lanes along the last kept axis."""
        return _lane_width(self.kept[-1])

    def types(self) -> dict[str, TileType]:
        return {f"sum{k}": TileType(accumulator(a.type.dtype), (self.width,)) for k, a in enumerate(self.anchors)}

    def at(self, places: tuple[Dim, ...]) -> dict[Node, Dim]:
        """What the axes of the domain are."""
        return axis_values((*self.kept, *self.reduced), places)


def lower_column(name: str, group: Group, ctx: Context) -> Lowered:
    """Lanes along the last axis that stays; loops over the reduced axes carry one vector for each reduction.

    Few elements (the window of a pooling) are combined without loops: then it is a map.
    """
    first = group.anchors[0]
    x = first.operands[0].type.shape
    if all(isinstance(x[k], int) for k in first["axes"]) and 0 < likely(index.product(x[k] for k in first["axes"])) <= UNROLLED:
        return _mapped(name, group, ctx, _unrolling_reader(group, ctx))
    kept = tuple(k for k in range(len(x)) if k not in first["axes"])
    order = (*kept, *first["axes"])
    reader = Reader(lambda n: ctx.in_memory(n) and n not in group.members)
    axes = domain_axes(tuple(x[k] for k in order))
    at_operand = tuple(axes[order.index(k)] for k in range(len(x)))
    operands = [_widened(reader.read(a.operands[0], at_operand), a) for a in group.anchors]
    _carry_results(group, reader)
    finals = [reader.read(n, axes[: len(kept)]) for n in group.outputs]
    c = collapse(tuple(x[k] for k in order), [*operands, *finals], frozenset({max(0, len(kept) - 1), len(kept)}))
    split = sum(1 for b in c.blocks if b[0] < len(kept))
    outputs = tuple(output_buffer(k, n, c.dims[:split]) for k, n in enumerate(group.outputs))
    terms, stored = c.expressions[: len(operands)], c.expressions[len(operands) :]
    columns = _Columns(group.anchors, c.dims[:split], c.dims[split:], terms, stored, outputs)
    inputs = c.inputs(reader.inputs)
    return finish(name, reader, inputs, outputs, group.outputs, (_column_grid(columns),), ctx)


def _unrolling_reader(group: Group, ctx: Context) -> Reader:
    """A reader to which each reduction is the combination of all its elements, written out."""
    reader = Reader(lambda n: ctx.in_memory(n) and n not in group.members)
    for a in group.anchors:
        reader.local[a] = lambda at, a=a: _written_out(reader, a, at)  # type: ignore[misc]
    return reader


def _written_out(reader: Reader, anchor: Node, at: tuple[Dim, ...]) -> Node:
    """The elements that one result of `anchor` combines, in order, halves first."""
    x, axes = anchor.operands[0], anchor["axes"]
    empty = any(x.type.shape[k] == 0 for k in axes)
    terms: list[Node] = [_identity(anchor)] if anchor["monoid"] == "add" or empty else []
    for offset in every(*(range(int(x.type.shape[k])) for k in axes)):
        place = list(at)
        for k, o in zip(axes, offset):
            place.insert(k, o)
        terms.append(_widened(reader.read(x, tuple(place)), anchor))
    while len(terms) > 1:
        pairs = [terms[k : k + 2] for k in range(0, len(terms), 2)]
        terms = [tile.pointwise(anchor["monoid"], *p) if len(p) == 2 else p[0] for p in pairs]
    total = terms[0]
    return total if total.type.dtype == anchor.type.dtype else tile.pointwise("cast", total, dtype=anchor.type.dtype)


def _widened(e: Node, anchor: Node) -> Node:
    """The element that a reduction adds up, in its accumulator's dtype."""
    t = accumulator(anchor.type.dtype)
    return e if e.type.dtype == t else tile.pointwise("cast", e, dtype=t)


def _carry_results(group: Group, reader: Reader) -> None:
    """Make the reductions' results, `sum0` and on, leaves of `reader`."""
    for k, a in enumerate(group.anchors):
        t = accumulator(a.type.dtype)
        total = tile.ref(f"sum{k}", TileType(t))
        value = total if t == a.type.dtype else tile.pointwise("cast", total, dtype=a.type.dtype)
        reader.local[a] = lambda at, value=value: value  # type: ignore[misc]


def _column_grid(c: _Columns) -> Grid:
    *outer, last = c.kept
    j = counter("j", last, c.width)
    work = likely(index.product(c.reduced)) * c.width
    inner = nest(blocks_of(outer, work, BLOCK), lambda at: _column_body(c, (*at, j)))
    return Grid((*inner.axes, GridAxis(j, last, c.width)), inner.body)


def _column_body(c: _Columns, at: tuple[Dim, ...]) -> tuple[Stmt, ...]:
    """The reductions of the columns from position `at` on, and what is stored of them."""
    width, types = c.width, c.types()
    count = index.minimum(width, index.sub(c.kept[-1], at[-1]))
    lanes = (*at[:-1], index.add(at[-1], tile.axis(0, width)))
    narrow = ((0, width, None if count == width else count),)
    loops = _column_turns(c)
    places = [t.var for t, after in zip(loops, [*loops[1:], None]) if after is None or after.lo == 0]
    t = Tiling(c.at((*lanes, *places)), (width,), types)
    terms = [tile.restrict(tiled(e, t), narrow) for e in c.terms]
    sums = [_column_sum(a, n, types[n], e) for a, n, e in zip(c.anchors, types, terms)]
    final = Tiling(c.at(lanes), (width,), types)
    stores = [
        Store(tile.restrict(tile.load(b, lanes, (width,)), narrow), tile.restrict(tiled(e, final), narrow))
        for b, e in zip(c.outputs, c.finals)
    ]
    return (adding_loops(loops, sums, ()), *stores)


def _column_turns(c: _Columns) -> list[Turns]:
    """Loops over the reduced axes, each in levels; those inside start anew where they come to many turns."""
    names = itertools.count()

    def variable(lo: Dim, hi: Dim, step: int) -> Node:
        return counter(f"k{next(names)}", hi, step, lo)

    if not any(rounds(a["monoid"], t) for a, t in zip(c.anchors, c.types().values())):
        return [Turns(variable(0, d, 1), 0, d, 1) for d in c.reduced]
    out: list[Turns] = []
    for k, d in enumerate(c.reduced):
        out += in_levels(variable, 0, d, 1, anew=k > 0 and likely(index.product(c.reduced[k:])) > TURNS)
    return out


def _column_sum(anchor: Node, name: str, type: TileType, term: Node) -> Sum:
    start = _identity(anchor)
    return Sum(anchor["monoid"], type, start, start, term, lambda k: f"{name}_{k}", lambda k: f"{name}_{k}r" if k else name)


def _identity(anchor: Node) -> Node:
    """What a reduction starts from; a sum starts from +0, which is also the sum of nothing."""
    t = accumulator(anchor.type.dtype)
    return tile.full(0 if anchor["monoid"] == "add" else MONOIDS[anchor["monoid"]].identity(t), t)
