"""Operations that are kernels by themselves: concat, scan, sort, top_k, scatter."""

from __future__ import annotations

from tcomp.ir import index, tile
from tcomp.ir.dtype import accumulator
from tcomp.ir.index import likely
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import MONOIDS, item
from tcomp.ir.stmts import By, Call, Carry, For, Grid, GridAxis, Stmt, Store
from tcomp.ir.types import Buffer, TileType
from tcomp.passes.fusion import Group
from tcomp.schedule.lower.collapse import collapse
from tcomp.schedule.lower.loops import BLOCK, WIDE, finish, output_buffer
from tcomp.schedule.lower.lowered import Context, Lowered
from tcomp.schedule.lower.nest import Axis, blocks_of, counter, nest
from tcomp.schedule.lower.reading import Reader, linear
from tcomp.schedule.lower.tiling import Tiling, axis_values, domain_axes, tiled


def lower_concat(name: str, group: Group, ctx: Context) -> Lowered:
    """A phase for each operand, which fills its own columns of [axes before, axis and axes after]."""
    n = group.members[0]
    axis, shape = n["axis"], n.type.shape
    reader = Reader(lambda x: ctx.in_memory(x) and x is not n)
    out = Buffer("out0", n.type.dtype, (index.product(shape[:axis]), index.product(shape[axis:])))
    phases: list[Grid] = []
    inputs: dict[Node, Buffer] = {}
    start: Dim = 0
    for k, o in enumerate(n.operands):
        phases.append(_piece(k, o, axis, start, out, reader))
        start = index.add(start, index.product(o.type.shape[axis:]))
    inputs = dict(reader.inputs)
    return finish(name, reader, inputs, [out], [n], tuple(phases), ctx)


def _piece(k: int, operand: Node, axis: int, start: Dim, out: Buffer, reader: Reader) -> Grid:
    """The grid that copies one operand to columns `start` and on."""
    shape = operand.type.shape
    *outer, last = shape if shape else (1,)
    axes = domain_axes(shape)
    e = reader.read(operand, axes)

    def body(at: tuple[Dim, ...]) -> tuple[Stmt, ...]:
        place = (*at, tile.axis(0, last))
        row, column = linear(place[:axis], shape[:axis]), index.add(start, linear(place[axis:], shape[axis:]))
        values = axis_values(shape, place)
        value = tiled(e, Tiling(values, (last,), {}))
        return (Store(tile.load(out, (row, column), (last,)), value, By((WIDE,))),)

    return nest(blocks_of(outer, likely(last), BLOCK), body, f"p{k}_")


def lower_scan(name: str, group: Group, ctx: Context) -> Lowered:
    """Serial along the axis: lanes along the last axis where the scan runs down others, element by element along the last."""
    n = group.members[0]
    x = n.operands[0]
    reader = Reader(lambda v: ctx.in_memory(v) and v is not n)
    out = output_buffer(0, n, n.type.shape)
    e = reader.read(x, domain_axes(n.type.shape))
    down = n["axis"] != n.type.rank - 1
    others = [d for k, d in enumerate(n.type.shape) if k != n["axis"] and not (down and k == n.type.rank - 1)]
    last = n.type.shape[-1]
    j = counter("j", last, WIDE)

    def body(at: tuple[Dim, ...]) -> tuple[Stmt, ...]:
        place = list(at)
        if down:
            place.append(index.add(j, tile.axis(0, WIDE)))
        return (_scan_loop(n, e, out, place, down, index.minimum(WIDE, index.sub(last, j))),)

    inner = nest([Axis(d, 1) for d in others], body, "o")
    axes = (*inner.axes, GridAxis(j, last, WIDE)) if down else inner.axes
    return finish(name, reader, dict(reader.inputs), [out], [n], (Grid(axes, inner.body),), ctx)


def _scan_loop(n: Node, e: Node, out: Buffer, place: list[Dim], down: bool, count: Dim) -> For:
    """The carried loop of one line (or one vector of lines)."""
    axis, size = n["axis"], n.type.shape[n["axis"]]
    k = counter("k", size)
    along = index.sub(index.sub(size, 1), k) if n["reverse"] else k
    at = (*place[:axis], along, *place[axis:])
    t = accumulator(n.type.dtype)
    extents: tuple[Dim, ...] = (WIDE,) if down else ()
    narrow = ((0, WIDE, count),) if down else ()
    values = axis_values(n.type.shape, at)
    element = tile.cast(tile.restrict(tiled(e, Tiling(values, extents, {})), narrow), t)
    carried = tile.ref("running", TileType(t, extents))
    after = tile.pointwise(n["monoid"], carried, element)
    stored = tile.cast(carried if n["exclusive"] else after, n.type.dtype)
    start = tile.full(MONOIDS[n["monoid"]].start(t), t)
    store = Store(tile.restrict(tile.load(out, at, extents), narrow), stored)
    return For(k, 0, size, 1, (store,), (Carry("running", "total", TileType(t, extents), start),), (after,))


def lower_order(name: str, group: Group, ctx: Context) -> Lowered:
    """sort and top_k along the last axis: a runtime routine for each row."""
    n = group.members[0]
    x = n.operands[0]
    values_type, where_type = n.type.elements
    reader = Reader(lambda v: ctx.in_memory(v))
    source = reader.stored(x, domain_axes(x.type.shape))
    outs = [Buffer(f"out{k}", e.dtype, e.shape) for k, e in enumerate((values_type, where_type))]
    *outer, size = x.type.shape
    kept = values_type.shape[-1]
    attrs = tuple((k, v) for k, v in n.attrs if k in ("descending", "largest"))

    def body(at: tuple[Dim, ...]) -> tuple[Stmt, ...]:
        values = axis_values(x.type.shape, (*at, tile.axis(0, size)))
        row = tiled(source, Tiling(values, (size,), {}))
        results = tuple(tile.load(b, (*at, tile.axis(0, kept)), (kept,)) for b in outs)
        return (Call(n.op, results, (_whole_row(row, size),), attrs),)

    grid = nest([Axis(d, 1) for d in outer], body)
    nodes = [item(n, k) for k in range(2)]
    return finish(name, reader, dict(reader.inputs), outs, nodes, (grid,), ctx)


def _whole_row(row: Node, size: Dim) -> Node:
    w = tile.window(row)
    return row if row.type.shape else tile.load(w.buffer, w.positions, (size,))


def lower_scatter(name: str, group: Group, ctx: Context) -> Lowered:
    """A copy of the destination, then the updates in order: of equal positions the last stays, or all combine."""
    n = group.members[0]
    x, where, updates = n.operands
    reader = Reader(lambda v: ctx.in_memory(v) and v is not n)
    out = output_buffer(0, n, n.type.shape)
    copy = _copy(reader, x, out)
    axes = domain_axes(updates.type.shape)
    at = _destination(n, reader, where, axes)
    value = reader.read(updates, axes)
    loops = [counter(f"u{k}", d) for k, d in enumerate(updates.type.shape)]
    values = axis_values(updates.type.shape, loops)
    place = tile.load(out, tuple(index.substitute(p, values) for p in at))
    new = tiled(value, Tiling(values, (), {}))
    if n["monoid"] is not None:
        new = tile.pointwise(n["monoid"], place, new)
    body: tuple[Stmt, ...] = (Store(place, new),) if 0 not in n.type.shape else ()
    for k, loop in reversed(list(enumerate(loops))):
        body = (For(loop, 0, updates.type.shape[k], 1, body),)
    return finish(name, reader, dict(reader.inputs), [out], [n], (copy, Grid((), body)), ctx)


def _copy(reader: Reader, x: Node, out: Buffer) -> Grid:
    shape = out.shape
    c = collapse(shape, [reader.read(x, domain_axes(shape))], frozenset(range(len(shape))))
    *outer, last = shape if shape else (1,)

    def body(at: tuple[Dim, ...]) -> tuple[Stmt, ...]:
        if not shape:
            return (Store(tile.load(out, ()), c.expressions[0]),)
        place = (*at, tile.axis(0, last))
        values = axis_values(shape, place)
        return (Store(tile.load(out, place, (last,)), tiled(c.expressions[0], Tiling(values, (last,), {})), By((WIDE,))),)

    return nest(blocks_of(outer, likely(last), BLOCK), body, "d")


def _destination(n: Node, reader: Reader, where: Node, axes: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Where in the result the update at `axes` goes."""
    shape = n.type.shape
    if n.op == "scatter_elements":
        axis = n["axis"]
        return (*axes[:axis], reader.position(n, where, axes, shape[axis]), *axes[axis + 1 :])
    lead, depth = where.type.rank - 1, where.type.shape[-1]
    found = [reader.position(n, where, (*axes[:lead], k), shape[k]) for k in range(depth)]
    return (*found, *axes[lead:])
