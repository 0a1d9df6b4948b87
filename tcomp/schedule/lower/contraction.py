"""Products: register-blocked, packed, or read in place, with whatever is pointwise on the result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tcomp.ir import index, layout, tile
from tcomp.ir.index import likely
from tcomp.ir.machine import LANES, Intrinsic
from tcomp.ir.node import Dim, Node, walk
from tcomp.ir.ops import constant
from tcomp.ir.stmts import By, For, Grid, GridAxis, Let, Stmt, Store
from tcomp.ir.types import Buffer, TileType
from tcomp.passes.fusion import COSTLY, Group
from tcomp.schedule.analytic import choose_dot
from tcomp.schedule.choice import DotChoice
from tcomp.schedule.lower.collapse import collapse
from tcomp.schedule.lower.loops import finish, output_buffer
from tcomp.schedule.lower.lowered import Context, Lowered, with_workspace
from tcomp.schedule.lower.nest import blocks_of, counter, nest
from tcomp.schedule.lower.packing import BLOCK, Source, pack_phase, packed, part_of, per_word, words_of
from tcomp.schedule.lower.reading import Reader
from tcomp.schedule.lower.tiling import Tiling, axis_values, domain_axes, operand_axes, strides, tiled, whole
from tcomp.schedule.space import Problem, row_of

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
    left = reader.stored(a, operand_axes(anchor, 0, lead, m, k))
    packed_constant = b.op == "constant" and not batched and b["value"].array.size > 1
    right = left if packed_constant else reader.stored(b, operand_axes(anchor, 1, lead, n, k))
    finals = epilogue_of(group, reader, axes[:-1])
    c = collapse(dims, [left, right, *finals], frozenset(range(len(dims))))
    problem = _problem(group, dims, right, packed_constant)
    choice = choose_dot(problem, ctx.machine)
    outputs = tuple(output_buffer(i, x, dims[:-1]) for i, x in enumerate(group.outputs))
    row = row_of(problem.dtype, ctx.machine, choice.form)
    inputs = c.inputs(reader.inputs)
    first, before, own = _staged(c.expressions[0], dims, row)
    phases = [*before]
    plan = Plan(dims, choice, first, Epilogue(outputs, c.expressions[2:]), row)
    if packed_constant:
        weights = b["value"].array if anchor["contract"][1] == (0,) else b["value"].array.T
        panels = constant(packed(words_of(weights, row), choice.columns))
        inputs[panels] = Buffer(f"in{len(inputs)}", panels.type.dtype, panels.type.shape)
        second = panel_reader(inputs[panels], choice.columns, row)
    elif choice.form == "packed":
        buffer = _panels(plan, c.expressions[1])
        phases.append(_pack_phase(plan, c.expressions[1], buffer))
        second, own = panel_reader(buffer, choice.columns, row), (*own, buffer)
    else:
        second = _expression_reader(plan, c.expressions[1])
    lowered = finish(name, reader, inputs, outputs, group.outputs, (*phases, product_phase(plan, second)), ctx)
    return with_workspace(lowered, *own)


def _problem(group: Group, dims: tuple[Dim, ...], right: Node, is_constant: bool) -> Problem:
    *lead, m, n, k = (likely(d) for d in dims)
    out = group.outputs[0].type.dtype
    single = len(group.outputs) == 1 and out == group.anchors[0].type.dtype
    return Problem(
        lead[0] if lead else 1,
        m,
        n,
        k,
        group.anchors[0].operands[0].type.dtype,
        is_constant,
        _contiguous(right, dims),
        is_costly(group),
        single,
        not is_constant and right.op != "load",
    )


def _contiguous(right: Node, dims: tuple[Dim, ...]) -> str:
    """Along which of k and n the second operand lies contiguously, with all that it is computed from."""
    leaves = [tile.window(x) for x in walk([right]) if x.op == "load"]
    for name, axis in (("n", domain_axes(dims)[-2]), ("k", domain_axes(dims)[-1])):
        steps = [_step(w, axis) if isinstance(axis, Node) and w.other is None else -1 for w in leaves]
        if 1 in steps and set(steps) <= {0, 1}:
            return name
    return ""


def _step(w: tile.Window, axis: Node) -> Dim:
    """How far an element is from the one before along an axis."""
    offset = layout.offset(w.buffer, w.positions)
    return index.sub(index.substitute(offset, {axis: index.add(axis, 1)}), offset)


@dataclass(frozen=True, slots=True)
class Plan:
    """A product to emit: sizes ([B,] M, N, K), decisions, the first operand's element, the epilogue."""

    dims: tuple[Dim, ...]
    choice: DotChoice
    left: Node
    epilogue: Epilogue
    row: Intrinsic

    @property
    def k(self) -> Dim:
        return self.dims[-1]


@dataclass(frozen=True, slots=True)
class Block:
    """A part of the result: where in the batch, the first row and how many, the first column and how many."""

    batch: tuple[Dim, ...]
    i: Dim
    rows: Dim
    j: Dim
    width: Dim

    @property
    def extents(self) -> tuple[Dim, Dim]:
        return self.rows, self.width

    @property
    def row(self) -> Dim:
        return index.add(self.i, tile.axis(0, self.rows))

    @property
    def column(self) -> Dim:
        return index.add(self.j, tile.axis(1, self.width))

    def window(self, out: Buffer) -> Node:
        """The window of this part in a buffer that holds the whole result."""
        return tile.load(out, (*self.batch, self.row, self.column), self.extents)


# (block, start of k, extent of k) -> window [k, n] of the second operand
RightReader = Callable[[Block, Dim, Dim], Node]


def panel_reader(buffer: Buffer, columns: int, row: Intrinsic) -> RightReader:
    """Windows of a packed operand [..., panel, k, column], each element of it so many k as the row takes at once."""

    def read(block: Block, k: Dim, depth: Dim) -> Node:
        k, depth = index.floordiv(k, per_word(row)), index.ceildiv(depth, per_word(row))
        at = (index.floordiv(block.column, columns), index.add(k, tile.axis(0, depth)), index.mod(block.column, columns))
        batch = block.batch if buffer.rank == 3 + len(block.batch) else ()
        return tile.load(buffer, (*batch, *at), (depth, block.width))

    return read


def _expression_reader(plan: Plan, right: Node) -> RightReader:
    """Windows of the operand as it lies."""
    source = _source(plan, right)
    return lambda block, k, depth: source(block.batch, index.add(k, tile.axis(0, depth)), block.column, (depth, block.width))


def product_phase(plan: Plan, right: RightReader) -> Grid:
    """The grid over blocks of rows and columns; in each, blocks of k."""
    *lead, m, n, _ = plan.dims
    c = plan.choice
    batch = [GridAxis(counter(f"b{x}", d, _batch_step(plan)), d, _batch_step(plan)) for x, d in enumerate(lead)]
    i, j = counter("i", m, c.block_rows), counter("j", n, c.block_columns)
    rows, width = part_of(m, i, c.block_rows), part_of(n, j, c.block_columns)
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
    body = _block(plan, right, Block(tuple(at), i_at, rows, j_at, width))
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


def _block(plan: Plan, right: RightReader, block: Block) -> tuple[Stmt, ...]:
    """One block of the result: all of k at once, or in steps that meet in the output."""
    depth = plan.choice.block_depth
    if (isinstance(plan.k, int) and plan.k <= depth) or not _meets_in_output(plan):
        return _stores(plan, block, _product(plan, right, block, (0, plan.k), _zero(plan)), 1)
    top = plan.k if isinstance(plan.k, int) else index.maximum(plan.k, 1)
    k = counter("k", top, depth)
    started = tile.when(index.less(0, k), block.window(plan.epilogue.outputs[0]), _zero(plan))
    product = _product(plan, right, block, (k, part_of(plan.k, k, depth)), started)
    last = index.less(index.sub(plan.k, 1), index.add(k, depth))
    return (For(k, 0, top, depth, _stores(plan, block, product, last)),)


def _meets_in_output(plan: Plan) -> bool:
    out = plan.epilogue.outputs
    return len(out) == 1 and out[0].dtype == plan.row.c


def _zero(plan: Plan) -> Node:
    return tile.full(0, plan.row.c)


def _product(plan: Plan, right: RightReader, block: Block, part: tuple[Dim, Dim], acc: Node) -> Node:
    """The product of one block over a part of k: where it starts, and its extent."""
    k, depth = part
    values = axis_values(plan.dims, (*block.batch, block.row, 0, index.add(k, tile.axis(1, depth))))
    left = whole(tiled(plan.left, Tiling(values, (block.rows, depth), {})), (block.rows, depth))
    return tile.dot(left, right(block, k, depth), acc, plan.row.name, plan.choice.unroll)


def _stores(plan: Plan, block: Block, product: Node, last: Dim) -> tuple[Stmt, ...]:
    """The store of one output with the product inside, or the product in a tile of its own and a store for each output."""
    c = plan.choice
    values = axis_values(plan.dims, (*block.batch, block.row, block.column, 0))
    t = Tiling(values, block.extents, {RESULT: TileType(product.type.dtype, block.extents)})
    return stores_of(plan.epilogue, t, product, By((c.rows, c.columns), "ij", spill=c.spill), last, block.window)


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
    return tile.replace(e, {old: new}.get)


# --- packing ---------------------------------------------------------------------------------------


def _panels(plan: Plan, right: Node) -> Buffer:
    """The workspace for the packed second operand."""
    *lead, _, n, k = plan.dims
    dtype = right.type.dtype if per_word(plan.row) == 1 else plan.row.b
    shape = (*lead, index.ceildiv(n, plan.choice.columns), index.ceildiv(k, per_word(plan.row)), plan.choice.columns)
    return Buffer("panels", dtype, shape, "ws")


def _pack_phase(plan: Plan, right: Node, panels: Buffer) -> Grid:
    *lead, _, n, k = plan.dims
    return pack_phase(_source(plan, right), (*lead, n, k), panels, plan.row, _contiguous(right, plan.dims) == "k")


def _staged(left: Node, dims: tuple[Dim, ...], row: Intrinsic) -> tuple[Node, tuple[Grid, ...], tuple[Buffer, ...]]:
    """The first operand's element, the phases before, and their workspace: rows of bytes have to lie one after the other, and
    are copied where they do not."""
    axes = domain_axes(dims)
    moves = strides(left, axes) if left.op == "load" else None
    if row.a_from != "words" or (moves is not None and moves[0][-1] == 1):
        return left, (), ()
    *outer, _, k = dims
    rows = Buffer("rows", left.type.dtype, (*outer, k), "ws")

    def body(at: tuple[Dim, ...]) -> tuple[Stmt, ...]:
        place = (*at, tile.axis(0, k))
        value = tiled(left, Tiling(axis_values(dims, (*at, 0, tile.axis(0, k))), (k,), {}))
        return (Store(tile.load(rows, place, (k,)), value, By((4 * LANES,))),)

    return tile.load(rows, (*axes[:-2], axes[-1])), (nest(blocks_of(outer, likely(k), BLOCK), body, "s"),), (rows,)


def _source(plan: Plan, right: Node) -> Source:
    """Windows of the second operand as it lies."""

    def read(batch: tuple[Dim, ...], k: Dim, column: Dim, extents: tuple[Dim, Dim]) -> Node:
        return whole(tiled(right, Tiling(axis_values(plan.dims, (*batch, 0, column, k)), extents, {})), extents)

    return read
