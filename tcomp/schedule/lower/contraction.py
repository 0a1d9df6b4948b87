"""Products: register-blocked, packed, or read in place, with whatever is pointwise on the result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tcomp.ir import index, tile
from tcomp.ir.machine import LANES
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import constant
from tcomp.ir.stmts import By, For, Grid, GridAxis, Let, Stmt, Store
from tcomp.ir.types import Buffer, TileType
from tcomp.passes.fusion import COSTLY, MOVEMENTS, Group
from tcomp.schedule.analytic import choose_dot, round_up
from tcomp.schedule.choice import DotChoice
from tcomp.schedule.lower.collapse import collapse
from tcomp.schedule.lower.loops import finish, output_buffer
from tcomp.schedule.lower.nest import counter, likely
from tcomp.schedule.lower.parts import Context, Lowered
from tcomp.schedule.lower.reading import Reader
from tcomp.schedule.lower.tiling import Tiling, domain_axes, strides, tiled
from tcomp.schedule.space import Problem

RESULT = "product"  # the name that an epilogue knows the contraction's element by


@dataclass(frozen=True, slots=True)
class Epilogue:
    """What is stored: the outputs' buffers and their expressions over the domain, in which the product is `ref RESULT`."""

    outputs: tuple[Buffer, ...]
    expressions: tuple[Node, ...]

    def fused(self) -> bool:
        """Whether one store of one expression is all."""
        return len(self.outputs) == 1


def epilogue_of(group: Group, reader: Reader, axes: tuple[Dim, ...]) -> list[Node]:
    """The outputs' scalar expressions over the result's axes, the contraction being a leaf."""
    anchor = group.anchors[0]
    reader.local[anchor] = lambda at: tile.ref(RESULT, TileType(anchor.type.dtype))
    return [reader.read(n, axes) for n in group.outputs]


def is_costly(group: Group) -> bool:
    """Whether the epilogue is too long to run on registers."""
    return any(n.op in COSTLY for n in group.members) or len(group.members) > 7


def lower_dot(name: str, group: Group, ctx: Context) -> Lowered:
    """[M, K] x [K, N] or [B, M, K] x [B, K, N], operands' axes in any order, by the choice for its sizes."""
    anchor = group.anchors[0]
    a, b = anchor.operands
    batched = a.type.rank == 3
    dims = (*anchor.type.shape, a.type.shape[anchor["contract"][0][0]])
    axes = domain_axes(dims)
    lead, (m, n, k) = axes[: len(axes) - 3], axes[-3:]
    reader = Reader(lambda x: ctx.in_memory(x) and x not in group.members)
    left = _operand(reader, a, _operand_axes(anchor, 0, lead, m, k))
    packed_constant = b.op == "constant" and not batched and b["value"].array.size > 1
    right = left if packed_constant else _operand(reader, b, _operand_axes(anchor, 1, lead, n, k))
    finals = epilogue_of(group, reader, axes[:-1])
    c = collapse(dims, [left, right, *finals], frozenset(range(len(dims))))
    problem = _problem(group, dims, right, packed_constant)
    choice = choose_dot(problem, ctx.machine)
    outputs = tuple(output_buffer(i, x, dims[:-1]) for i, x in enumerate(group.outputs))
    plan = Plan(dims, choice, c.expressions[0], Epilogue(outputs, c.expressions[2:]), ctx)
    inputs = {x: c.buffers.get(v, v) for x, v in reader.inputs.items()}
    if packed_constant:
        weights = b["value"].array if anchor["contract"][1] == (0,) else b["value"].array.T
        panels = constant(packed(weights, choice.columns))
        buffer = Buffer(f"in{len(inputs)}", b.type.dtype, panels.type.shape)
        inputs[panels] = buffer
        phases: tuple[Grid, ...] = (product_phase(plan, panel_reader(buffer, choice.columns)),)
        return finish(name, reader, inputs, outputs, group.outputs, phases, ctx)
    if choice.form == "packed":
        return _with_packing(name, group, plan, c.expressions[1], reader, inputs)
    phases = (product_phase(plan, _expression_reader(plan, c.expressions[1])),)
    return finish(name, reader, inputs, outputs, group.outputs, phases, ctx)


def _operand(reader: Reader, n: Node, at: tuple[Dim, ...]) -> Node:
    """The element of an operand; a constant of one element is read from memory too, as products take windows."""
    base = n
    while base.op in MOVEMENTS and base.op != "pad":
        base = base.operands[0]
    if base.op == "constant" and base["value"].array.size == 1:
        return tile.load(reader.buffer(base), (0,) * base.type.rank)
    return reader.read(n, at)


def _operand_axes(anchor: Node, which: int, lead: tuple[Dim, ...], free: Dim, k: Dim) -> tuple[Dim, ...]:
    """The positions of an operand: its batch axis, its contracted axis, and the one that is left, in its own order."""
    rank = anchor.operands[which].type.rank
    at: list[Dim] = [free] * rank
    for axis, p in zip(anchor["batch"][which], lead):
        at[axis] = p
    at[anchor["contract"][which][0]] = k
    return tuple(at)


def _problem(group: Group, dims: tuple[Dim, ...], right: Node, is_constant: bool) -> Problem:
    *lead, m, n, k = (likely(d) for d in dims)
    out = group.outputs[0].type.dtype
    single = len(group.outputs) == 1 and out == group.anchors[0].type.dtype
    return Problem(
        lead[0] if lead else 1,
        m,
        n,
        k,
        group.anchors[0].type.dtype,
        is_constant,
        _contiguous(right, dims),
        is_costly(group),
        single,
    )


def _contiguous(right: Node, dims: tuple[Dim, ...]) -> str:
    """Along which of k and n the second operand lies contiguously."""
    moves = strides(right, domain_axes(dims)) if right.op == "load" else None
    if moves is None:
        return ""
    n_step, k_step = moves[0][-2], moves[0][-1]
    return "n" if n_step == 1 else "k" if k_step == 1 else ""


def packed(b: np.ndarray, columns: int) -> np.ndarray:
    """[..., K, N] as panels [..., ceil(N / columns), K, columns], the last one filled up with zeros."""
    *lead, k, n = b.shape
    panels = -(-n // columns)
    wide = np.zeros((*lead, k, panels * columns), b.dtype)
    wide[..., :n] = b
    out = np.ascontiguousarray(np.moveaxis(wide.reshape(*lead, k, panels, columns), -2, -3))
    out.setflags(write=False)
    return out


@dataclass(frozen=True, slots=True)
class Plan:
    """A product to emit: sizes ([B,] M, N, K), decisions, the first operand's element, the epilogue."""

    dims: tuple[Dim, ...]
    choice: DotChoice
    left: Node
    epilogue: Epilogue
    ctx: Context

    @property
    def k(self) -> Dim:
        return self.dims[-1]


# (batch positions, start of k, extent of k, start of n, extent of n) -> window [k, n] of the second operand
RightReader = Callable[[tuple[Dim, ...], Dim, Dim, Dim, Dim], Node]


def panel_reader(buffer: Buffer, columns: int) -> RightReader:
    """Windows of a packed operand [..., panel, k, column]."""

    def read(batch: tuple[Dim, ...], k: Dim, depth: Dim, n: Dim, width: Dim) -> Node:
        column = index.add(n, tile.axis(1, width))
        at = (index.floordiv(column, columns), index.add(k, tile.axis(0, depth)), index.mod(column, columns))
        return tile.load(buffer, (*(batch if buffer.rank == 3 + len(batch) else ()), *at), (depth, width))

    return read


def _expression_reader(plan: Plan, right: Node) -> RightReader:
    """Windows of the operand as it lies."""

    def read(batch: tuple[Dim, ...], k: Dim, depth: Dim, n: Dim, width: Dim) -> Node:
        values = _bind(plan.dims, (*batch, 0, index.add(n, tile.axis(1, width)), index.add(k, tile.axis(0, depth))))
        return _as_tile(tiled(right, Tiling(values, (depth, width), {})), (depth, width))

    return read


def _bind(dims: tuple[Dim, ...], at: tuple[Dim, ...]) -> dict[Node, Dim]:
    return {a: p for a, p in zip(domain_axes(dims), at) if isinstance(a, Node)}


def _as_tile(e: Node, extents: tuple[Dim, ...]) -> Node:
    """`e` with the full extents, where it varies along fewer axes: a product needs its operands whole."""
    if e.type.shape == extents or e.op != "load":
        return e
    w = tile.window(e)
    return tile.load(w.buffer, w.positions, extents, None, w.other)


def product_phase(plan: Plan, right: RightReader) -> Grid:
    """The grid over blocks of rows and columns; in each, blocks of k."""
    *lead, m, n, _ = plan.dims
    c = plan.choice
    batch = [GridAxis(counter(f"b{x}", d, _batch_step(plan)), d, _batch_step(plan)) for x, d in enumerate(lead)]
    i, j = counter("i", m, c.block_rows), counter("j", n, c.block_columns)
    rows, width = _part(m, i, c.block_rows), _part(n, j, c.block_columns)
    i_at: Dim = 0 if rows == m else i
    j_at: Dim = 0 if width == n else j
    inner: list[tuple[Node, Dim, Dim]] = []
    at: list[Dim] = []
    for axis in batch:
        if axis.step == 1:
            at.append(axis.var if axis.extent != 1 else 0)
            continue
        loop = counter(f"l{axis.var['name']}", axis.extent)
        inner.append((loop, axis.var, index.minimum(index.add(axis.var, axis.step), axis.extent)))
        at.append(loop)
    body = _block(plan, right, tuple(at), i_at, rows, j_at, width)
    for loop, lo, hi in inner:
        body = (For(loop, lo, hi, 1, body),)
    axes = [*batch]
    axes += [GridAxis(j, n, c.block_columns)] if width != n else []
    axes += [GridAxis(i, m, c.block_rows)] if rows != m else []
    return Grid(tuple(a for a in axes if a.extent != 1), body)


def _batch_step(plan: Plan) -> int:
    """Products of a batch that one block takes: about a hundred thousand operations."""
    work = 1
    for d in plan.dims[-3:]:
        work *= max(1, likely(d))
    return max(1, min(likely(plan.dims[0]), 200_000 // max(1, 2 * work)))


def _part(extent: Dim, start: Node, block: int) -> Dim:
    """The extent of the block that starts at `start`."""
    if isinstance(extent, int) and extent <= block:
        return extent
    return block if isinstance(extent, int) and extent % block == 0 else index.minimum(block, index.sub(extent, start))


def _block(plan: Plan, right: RightReader, batch: tuple[Dim, ...], i: Dim, rows: Dim, j: Dim, width: Dim) -> tuple[Stmt, ...]:
    """One block of the result: all of k at once, or in steps that meet in the output."""
    depth = plan.choice.block_depth
    if (isinstance(plan.k, int) and plan.k <= depth) or not _meets_in_output(plan):
        return _stores(plan, _product(plan, right, batch, i, rows, j, width, 0, plan.k, _zero(plan)), batch, i, rows, j, width, 1)
    top = plan.k if isinstance(plan.k, int) else index.maximum(plan.k, 1)
    k = counter("k", top, depth)
    part = _part(plan.k, k, depth)
    out = plan.epilogue.outputs[0]
    before = _output_window(out, batch, i, rows, j, width)
    started = tile.when(index.less(0, k), before, _zero(plan))
    product = _product(plan, right, batch, i, rows, j, width, k, part, started)
    last = index.less(index.sub(plan.k, 1), index.add(k, depth))
    return (For(k, 0, top, depth, _stores(plan, product, batch, i, rows, j, width, last)),)


def _meets_in_output(plan: Plan) -> bool:
    out = plan.epilogue.outputs
    return len(out) == 1 and out[0].dtype == plan.left.type.dtype


def _zero(plan: Plan) -> Node:
    return tile.full(0, plan.left.type.dtype)


def _product(
    plan: Plan, right: RightReader, batch: tuple[Dim, ...], i: Dim, rows: Dim, j: Dim, width: Dim, k: Dim, depth: Dim, acc: Node
) -> Node:
    values = _bind(plan.dims, (*batch, index.add(i, tile.axis(0, rows)), 0, index.add(k, tile.axis(1, depth))))
    left = _as_tile(tiled(plan.left, Tiling(values, (rows, depth), {})), (rows, depth))
    form = "lanes" if plan.choice.form == "lanes" else "splat"
    row = plan.ctx.machine.intrinsic(plan.left.type.dtype, form)
    return tile.dot(left, right(batch, k, depth, j, width), acc, row.name, plan.choice.unroll)


def _output_window(out: Buffer, batch: tuple[Dim, ...], i: Dim, rows: Dim, j: Dim, width: Dim) -> Node:
    return tile.load(out, (*batch, index.add(i, tile.axis(0, rows)), index.add(j, tile.axis(1, width))), (rows, width))


def _stores(
    plan: Plan, product: Node, batch: tuple[Dim, ...], i: Dim, rows: Dim, j: Dim, width: Dim, last: Dim
) -> tuple[Stmt, ...]:
    """The store of one output with the product inside, or the product in a tile of its own and a store for each output."""
    c, ep = plan.choice, plan.epilogue
    values = _bind(plan.dims, (*batch, index.add(i, tile.axis(0, rows)), index.add(j, tile.axis(1, width)), 0))
    t = Tiling(values, (rows, width), {RESULT: TileType(product.type.dtype, (rows, width))})
    return stores_of(
        ep,
        t,
        product,
        By((c.rows, c.columns), "ij", spill=c.spill),
        last,
        lambda out: _output_window(out, batch, i, rows, j, width),
    )


def stores_of(ep: Epilogue, t: Tiling, product: Node, by: By, last: Dim, place: Callable[[Buffer], Node]) -> tuple[Stmt, ...]:
    """The stores of an epilogue around a product (a tile expression with the product's extents)."""
    named = tile.ref(RESULT, product.type)
    finals = [tiled(e, t) for e in ep.expressions]
    if ep.fused():
        done = replaced(finals[0], named, product)
        value = done if done.type.shape else product
        return (Store(place(ep.outputs[0]), tile.when(last, value, product) if value is not product else product, by),)
    plain = By(by.tile, by.order, by.tail)
    kept = Let(RESULT, product, "scratch", plain)
    row_by_row = By((1, 4 * LANES), "ij")
    return (kept, *(Store(place(b), e, plain if e is named else row_by_row) for b, e in zip(ep.outputs, finals)))


def replaced(e: Node, old: Node, new: Node) -> Node:
    """`e` with `old` replaced, shapes inferred again."""
    done: dict[Node, Node] = {old: new}

    def go(x: Node) -> Node:
        if x not in done:
            done[x] = tile.map_children(x, go)
        return done[x]

    return go(e)


# --- packing ---------------------------------------------------------------------------------------


def _with_packing(name: str, group: Group, plan: Plan, right: Node, reader: Reader, inputs: dict[Node, Buffer]) -> Lowered:
    """Two phases that share a workspace: the second operand into panels, then the blocks of the product."""
    *lead, _, n, k = plan.dims
    columns = plan.choice.columns
    panels = Buffer("panels", right.type.dtype, (*lead, index.ceildiv(n, columns), k, columns), "ws")
    phases = (_pack_phase(plan, right, panels), product_phase(plan, panel_reader(panels, columns)))
    lowered = finish(name, reader, inputs, plan.epilogue.outputs, group.outputs, phases, plan.ctx)
    return with_workspace(lowered, panels)


def with_workspace(lowered: Lowered, *buffers: Buffer) -> Lowered:
    """The kernel with these buffers shared by its phases."""
    kernel = replace(lowered.kernel, workspace=(*lowered.kernel.workspace, *buffers))
    return replace(lowered, kernel=kernel)


def _pack_phase(plan: Plan, right: Node, panels: Buffer) -> Grid:
    """Each block: some k of one panel. Columns past N are zero."""
    *lead, _, n, k = plan.dims
    columns = plan.choice.columns
    step = max(LANES, min(round_up(likely(k), LANES), 8192 // columns))
    batch = [GridAxis(counter(f"pb{x}", d), d, 1) for x, d in enumerate(lead)]
    p, q = counter("p", panels.shape[-3]), counter("q", k, step)
    depth = _part(k, q, step)
    at = tuple(a.var if a.extent != 1 else 0 for a in batch)
    p_at: Dim = p if panels.shape[-3] != 1 else 0
    q_at: Dim = q if depth != k else 0
    column = index.add(index.mul(p_at, columns), tile.axis(1, columns))
    values = _bind(plan.dims, (*at, 0, column, index.add(q_at, tile.axis(0, depth))))
    source = _as_tile(tiled(right, Tiling(values, (depth, columns), {})), (depth, columns))
    left_over = index.minimum(columns, index.sub(n, index.mul(p_at, columns)))
    count = None if left_over == columns or (isinstance(n, int) and n % columns == 0) else left_over
    window = tile.load(panels, (*at, p_at, index.add(q_at, tile.axis(0, depth)), tile.axis(1, columns)), (depth, columns))
    by = By((LANES, LANES)) if _contiguous(right, plan.dims) == "k" else By((4, columns))
    axes = [*batch, *([GridAxis(p, panels.shape[-3], 1)] if p_at != 0 else []), *([GridAxis(q, k, step)] if depth != k else [])]
    return Grid(tuple(a for a in axes if a.extent != 1), (Store(window, tile.restrict(source, (None, (0, columns, count))), by),))
