"""Kernels that are loops over a domain: pointwise maps and reductions along rows. (Reductions down columns: `columns.py`.)"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tcomp.ir import index, tile
from tcomp.ir.dtype import accumulator
from tcomp.ir.index import likely
from tcomp.ir.machine import LANES
from tcomp.ir.node import Dim, Node, walk
from tcomp.ir.ops import OPS
from tcomp.ir.stmts import By, Grid, GridAxis, Kernel, Let, Stmt, Store
from tcomp.ir.types import Buffer, TileType
from tcomp.passes.fusion import COSTLY, Group
from tcomp.schedule.lower.checks import check_phases
from tcomp.schedule.lower.collapse import Collapsed, collapse
from tcomp.schedule.lower.lowered import Context, Lowered, kernel_symbols, with_workspace
from tcomp.schedule.lower.nest import Axis, blocks_of, counter, nest
from tcomp.schedule.lower.parts import Parts, parts_of
from tcomp.schedule.lower.reading import Reader, loads
from tcomp.schedule.lower.tiling import Tiling, axis_values, domain_axes, stretched, strides, tiled

WIDE = 64  # lanes of the main loop over columns: four vectors hide the latency of an accumulator
BLOCK = 8192  # elements of one block: about the work that hides the cost of claiming it
ROW_ON_STACK = 64 << 10  # bytes of a row kept on the stack; longer rows live in scratch, up to ROW_KEPT
ROW_KEPT = 512 << 10


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
    return mapped(name, group, ctx, Reader(lambda n: ctx.in_memory(n) and n not in group.outputs))


def mapped(name: str, group: Group, ctx: Context, reader: Reader) -> Lowered:
    """The map of what `reader` reads at each element of the outputs."""
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
        return self.stores((*at, index.add(start, tile.axis(0, extent))), (extent,), By((lane_width(extent),)))


def lane_width(d: Dim) -> int:
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
    part = None if kept or c.dims in shapes.values() else parts_of(columns, likely(index.product(outer)), 1, ctx)
    if part is not None and _are_independent(row, c):
        phases, own = _in_parts(row, c, outputs, part)
    else:
        phases, own = (nest(blocks_of(outer, likely(columns), BLOCK), lambda at: _row_body(row, c, outputs, at)),), ()
    lowered = finish(name, reader, c.inputs(reader.inputs), list(outputs.values()), group.outputs, phases, ctx)
    return with_workspace(lowered, *own)


def _are_independent(row: _Row, c: Collapsed) -> bool:
    """Whether no reduction of a row waits for another."""
    taken = [e for (what, *_), e in zip(row.statements, c.expressions) if what == "reduce"]
    return not any(n.op == "ref" for n in walk(taken))


def _in_parts(row: _Row, c: Collapsed, outputs: dict[Node, Buffer], part: Parts) -> tuple[tuple[Grid, ...], tuple[Buffer, ...]]:
    """A grid over parts of rows, which leave their results in the workspace, and one that combines these, row by row."""
    outer = c.dims[:-1]
    own: dict[str, Buffer] = {}
    for what, name, n, _ in row.statements:
        if what == "reduce":
            own[name] = Buffer(f"part_{name}", accumulator(n.type.dtype), (*outer, part.count), "ws")

    def body(at: tuple[Dim, ...]) -> tuple[Stmt, ...]:
        place = (*at, index.add(part.start, tile.axis(0, part.length)))
        t = Tiling(axis_values(c.dims, place), (part.length,), {})
        out: list[Stmt] = []
        for (what, name, n, _), e in zip(row.statements, c.expressions):
            if what == "reduce":
                total = tile.reduce(n["monoid"], stretched(tiled(e, t), (part.length,)))
                out.append(Let(own[name].name + "s", total))
                out.append(Store(tile.load(own[name], (*at, part.var)), tile.ref(own[name].name + "s", total.type)))
        return tuple(out)

    first = nest([Axis(d, 1) for d in outer], body, "p")
    axes = domain_axes((*outer, part.count))
    pairs = zip(row.statements, c.expressions)
    found = tuple(tile.load(own[name], axes) if what == "reduce" else e for (what, name, *_), e in pairs)
    merged = replace(c, dims=(*outer, part.count), expressions=found)
    second = nest(blocks_of(outer, part.count, BLOCK), lambda at: _row_body(row, merged, outputs, at))
    return (Grid((GridAxis(part.var, part.count, 1), *first.axes), first.body), second), tuple(own.values())


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
    by = By((lane_width(columns),))
    refs = {s: TileType(n.type.dtype, (columns,)) for what, s, n, _ in row.statements if what == "keep"}
    full = Tiling(axis_values(c.dims, (*at, lane)), (columns,), refs)
    single = Tiling(axis_values(c.dims, at), (), refs)
    out: list[Stmt] = []
    for (what, name, n, _), e in zip(row.statements, c.expressions):
        if what == "reduce":
            out.append(Let(name, tile.reduce(n["monoid"], stretched(tiled(e, full), (columns,)))))
        elif what == "keep":
            hi = index.bounds(columns)[1] or 0
            space = "stack" if hi * n.type.dtype.bytes <= ROW_ON_STACK else "scratch"
            out.append(Let(name, stretched(tiled(e, full), (columns,)), space, by))
        elif n.type.shape == row.shape:
            out.append(Store(tile.load(outputs[n], (*at, lane), (columns,)), tiled(e, full), by))
        else:
            out.append(Store(tile.load(outputs[n], at), tiled(e, single)))
    return tuple(out)
