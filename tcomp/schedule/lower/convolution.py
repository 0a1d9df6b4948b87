"""Convolutions: products whose left operand is read in place, one for each offset of the window's outer axes.

The input is channels-last and already padded. Along the last spatial axis the window and the channels lie contiguously (if it
is not dilated), so they are one axis of the product: for each outer offset, `[pixels, KW*C] x [KW*C, O]`, where the rows of
the left operand overlap. The products of all offsets accumulate in registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product as every

from tcomp.ir import index, tile
from tcomp.ir.index import likely
from tcomp.ir.machine import LANES, Intrinsic
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import constant
from tcomp.ir.stmts import By, For, Grid, GridAxis, Stmt, Store
from tcomp.ir.types import Buffer, TileType
from tcomp.passes.fusion import Group
from tcomp.schedule.analytic import balanced, choose_dot, round_up
from tcomp.schedule.choice import DotChoice
from tcomp.schedule.lower.collapse import collapse
from tcomp.schedule.lower.contraction import (
    RESULT,
    Epilogue,
    Plan,
    epilogue_of,
    is_costly,
    panel_reader,
    product_phase,
    stores_of,
)
from tcomp.schedule.lower.depthwise import lower_depthwise
from tcomp.schedule.lower.loops import finish, output_buffer
from tcomp.schedule.lower.lowered import Context, Lowered, with_workspace
from tcomp.schedule.lower.nest import counter, surely
from tcomp.schedule.lower.packing import packed, per_word, words_of
from tcomp.schedule.lower.reading import Reader
from tcomp.schedule.lower.tiling import Tiling, axis_values, domain_axes
from tcomp.schedule.space import Problem, row_of

BLOCKS = 16  # that a convolution is cut into at least, if it is large enough
BLOCK_WORK = 400_000  # operations of a block below which claiming it costs too much


@dataclass(frozen=True, slots=True)
class _Conv:
    """A convolution to emit. offsets: positions of the window's outer axes; depth: elements of the merged inner axis.

    x: the input, its last two axes merged where the inner window axis is part of the product; panels: the packed weights
    [offset, panel, depth, column].
    """

    node: Node
    choice: DotChoice
    x: Buffer
    panels: Buffer
    offsets: tuple[tuple[int, ...], ...]
    depth: int
    merged: bool
    epilogue: Epilogue
    row: Intrinsic


def lower_conv(name: str, group: Group, ctx: Context) -> Lowered:
    """Blocks of output rows and channels; the group's pointwise operations run on each register tile."""
    n = group.anchors[0]
    x, w = n.operands
    dims = n.type.shape
    if n["groups"] != 1:
        return lower_depthwise(name, group, ctx)
    reader = Reader(lambda v: ctx.in_memory(v) and v not in group.members)
    window = w.type.shape[:-2]
    if all(k == 1 for k in (*window, *n["strides"])) and w.op == "constant":
        flat = lower_pointwise_conv(name, group, ctx)
        if flat is not None:
            return flat
    merged = n["dilations"][-1] == 1
    offsets = tuple(every(*(range(k) for k in (window[:-1] if merged else window))))
    depth = w.type.shape[-2] * (window[-1] if merged else 1)
    choice = _choose(n, depth, len(offsets), ctx, is_costly(group))
    image = _input(reader, x, merged)
    finals = collapse(dims, epilogue_of(group, reader, domain_axes(dims)), frozenset(range(len(dims))))
    outputs = tuple(output_buffer(i, v, dims) for i, v in enumerate(group.outputs))
    inputs = finals.inputs(reader.inputs)
    inputs[_base(reader, x)] = image
    row = row_of(x.type.dtype, ctx.machine)
    shape = (len(offsets), -(-dims[-1] // choice.columns), depth, choice.columns)
    epilogue = Epilogue(outputs, finals.expressions)
    if w.op == "constant":
        panels = constant(packed(words_of(w["value"].array.reshape(len(offsets), depth, dims[-1]), row), choice.columns))
        buffer = Buffer(f"in{len(inputs)}", panels.type.dtype, panels.type.shape)
        inputs[panels] = buffer
        conv = _Conv(n, choice, image, buffer, offsets, depth, merged, epilogue, row)
        return finish(name, reader, inputs, outputs, group.outputs, (_phase(conv),), ctx)
    source = Buffer(f"in{len(inputs)}", w.type.dtype, (len(offsets), depth, dims[-1]))
    inputs[_base(reader, w)] = source
    buffer = Buffer("panels", w.type.dtype, shape, "ws")
    conv = _Conv(n, choice, image, buffer, offsets, depth, merged, epilogue, row)
    lowered = finish(name, reader, inputs, outputs, group.outputs, (_pack(conv, source), _phase(conv)), ctx)
    return with_workspace(lowered, buffer)


def lower_pointwise_conv(name: str, group: Group, ctx: Context) -> Lowered | None:
    """A convolution of single pixels is a product of all pixels; None where what reads its result needs their rows, and where it
    has one channel."""
    n = group.anchors[0]
    x, w = n.operands
    dims = n.type.shape
    reader = Reader(lambda v: ctx.in_memory(v) and v not in group.members)
    image = reader.buffer(_base(reader, x))
    c = collapse(dims, epilogue_of(group, reader, domain_axes(dims)), frozenset({len(dims) - 1}))
    if len(c.dims) != 2 or dims[-1] == 1:
        return None
    sizes = (*c.dims, x.type.shape[-1])
    rows, _, depth = domain_axes(sizes)
    image = replace(image, shape=(c.dims[0], x.type.shape[-1]))
    pixels, channels, taken = (likely(d) for d in sizes)
    problem = Problem(1, pixels, channels, taken, x.type.dtype, True, "n", is_costly(group), _single(group))
    choice, row = choose_dot(problem, ctx.machine), row_of(x.type.dtype, ctx.machine)
    outputs = tuple(output_buffer(i, v, c.dims) for i, v in enumerate(group.outputs))
    inputs = c.inputs(reader.inputs)
    inputs[_base(reader, x)] = image
    panels = constant(packed(words_of(w["value"].array.reshape(w.type.shape[-2:]), row), choice.columns))
    buffer = Buffer(f"in{len(inputs)}", panels.type.dtype, panels.type.shape)
    inputs[panels] = buffer
    plan = Plan(sizes, choice, tile.load(image, (rows, depth)), Epilogue(outputs, c.expressions), row)
    phase = product_phase(plan, panel_reader(buffer, choice.columns, row))
    return finish(name, reader, inputs, outputs, group.outputs, (phase,), ctx)


def _single(group: Group) -> bool:
    """Whether blocks of the depth can meet in the output."""
    return len(group.outputs) == 1 and group.outputs[0].type.dtype == group.anchors[0].type.dtype


def _base(reader: Reader, n: Node) -> Node:
    """What is in memory under the reshapes of `n`."""
    while n.op == "reshape" and not reader.in_memory(n):
        n = n.operands[0]
    return n


def _input(reader: Reader, x: Node, merged: bool) -> Buffer:
    """The input's buffer, its last two axes as one where window and channels are."""
    buffer = reader.buffer(_base(reader, x))
    shape = x.type.shape
    shape = (*shape[:-2], index.mul(shape[-2], shape[-1])) if merged else shape
    return Buffer(buffer.name, buffer.dtype, shape)


def _choose(n: Node, depth: int, offsets: int, ctx: Context, costly: bool) -> DotChoice:
    """The register tile of the product of one offset; blocks of channels whose weights stay in L2."""
    pixels, channels = likely(n.type.shape[-2]), int(n.type.shape[-1])
    dtype = n.operands[0].type.dtype
    problem = Problem(1, pixels, channels, depth, dtype, True, "n", costly, True)
    c = choose_dot(problem, ctx.machine)
    columns = c.columns if pixels > 4 else min(c.columns, 32)
    rows = balanced(pixels, c.rows) if isinstance(n.type.shape[-2], int) else c.rows
    wide = max(columns, (ctx.machine.l2 // 2) // max(1, depth * offsets * dtype.bytes) // columns * columns)
    parts = -(-BLOCKS // _output_rows(n))  # of the channels, so that all threads have work
    wide = min(wide, round_up(-(-channels // parts), columns))
    return DotChoice("prepacked", rows, columns, rows, min(round_up(channels, columns), wide), depth, 4, costly)


def _output_rows(n: Node) -> int:
    """Rows of output pixels; of a batch of unknown size, those of one image."""
    rows = surely(n.type.shape[0])
    for d in n.type.shape[1:-2]:
        rows *= likely(d)
    return rows


def _phase(conv: _Conv) -> Grid:
    """The grid: images, blocks of channels, blocks of the outer spatial axes, and of pixels where there are few rows of them."""
    images, *outer, pixels, channels = conv.node.type.shape
    c = conv.choice
    j, width = _channel_block(channels, c.block_columns)
    axes = [GridAxis(counter("n0", images), images, 1)] if images != 1 else []
    axes += [GridAxis(j, channels, c.block_columns)] if isinstance(j, Node) else []
    at: list[Dim] = []
    inner: list[tuple[Node, Dim, Dim]] = []
    work = max(1, 2 * conv.depth * len(conv.offsets) * likely(width))
    rows = _output_rows(conv.node) * -(-channels // c.block_columns)
    together = max(1, min(BLOCK_WORK // (work * likely(pixels)), rows // BLOCKS))
    for k, d in enumerate(outer):
        step = min(likely(d), together) if k == len(outer) - 1 else 1
        var = counter(f"y{k}", d, step)
        axes += [GridAxis(var, d, step)] if d != 1 else []
        if step == 1 or d == 1:
            at.append(var if d != 1 else 0)
            continue
        row = counter(f"r{k}", d)
        inner.append((row, var, index.minimum(d, index.add(var, step))))
        at.append(row)
    step = _pixel_step(likely(pixels), rows, work, c.rows)
    x = counter("x", pixels, step)
    part: tuple[Dim, Dim] = (0, pixels)
    unbounded = index.bounds(pixels)[1] is None and not conv.epilogue.fused()  # its result is kept in a tile
    if step < likely(pixels) or unbounded:
        axes.append(GridAxis(x, pixels, step))
        part = (x, step if isinstance(pixels, int) and pixels % step == 0 else index.minimum(step, index.sub(pixels, x)))
    image: Dim = axes[0].var if images != 1 else 0
    body = _row(conv, image, tuple(at), part, (j, width))
    for row, lo, hi in inner:
        body = (For(row, lo, hi, 1, body),)
    return Grid(tuple(axes), body)


def _channel_block(channels: int, block: int) -> tuple[Dim, Dim]:
    """First channel and channels of a block; a single channel is stored under a mask."""
    if channels <= block:
        return 0, channels if channels != 1 else LANES
    j = counter("j", channels, block)
    return j, block if channels % block == 0 else index.minimum(block, index.sub(channels, j))


def _pixel_step(pixels: int, rows: int, work: int, tile_rows: int) -> int:
    """Pixels of one block: whole rows, unless these are too few for all threads."""
    if rows >= BLOCKS:
        return pixels
    parts = min(-(-BLOCKS // rows), max(1, pixels * work // BLOCK_WORK))
    return round_up(-(-pixels // parts), tile_rows)


def _row(conv: _Conv, image: Dim, at: tuple[Dim, ...], part: tuple[Dim, Dim], channels: tuple[Dim, Dim]) -> tuple[Stmt, ...]:
    """A part of one row of output pixels, all channels of the block: a chain of products and the epilogue."""
    dims, c = conv.node.type.shape, conv.choice
    (start, pixels), (j, width) = part, channels
    t = conv.node.type.dtype
    inner = index.ceildiv(conv.depth, per_word(conv.row))
    total: Node = tile.full(0, t)
    for k, offset in enumerate(conv.offsets):
        left = _pixels(conv, image, at, offset, part)
        column = index.add(j, tile.axis(1, width))
        panel = (k, index.floordiv(column, c.columns), tile.axis(0, inner), index.mod(column, c.columns))
        total = tile.dot(left, tile.load(conv.panels, panel, (inner, width)), total, conv.row.name, c.unroll)
    place = (image, *at, index.add(start, tile.axis(0, pixels)), index.add(j, tile.axis(1, width)))
    narrow = (None, (0, width, 1)) if dims[-1] == 1 else (None, None)
    tiling = Tiling(axis_values(dims, place), (pixels, width), {RESULT: TileType(t, (pixels, width))})
    by = By((c.rows, c.columns), "ij", spill=c.spill)
    return stores_of(
        conv.epilogue, tiling, total, by, 1, lambda out: tile.restrict(tile.load(out, place, (pixels, width)), narrow)
    )


def _pixels(conv: _Conv, image: Dim, at: tuple[Dim, ...], offset: Sequence[int], part: tuple[Dim, Dim]) -> Node:
    """The left operand of one offset: a row of windows, overlapping where the stride is smaller than the window."""
    strides, dilations = conv.node["strides"], conv.node["dilations"]
    where = [index.add(index.mul(p, s), o * d) for p, s, o, d in zip(at, strides, offset, dilations)]
    channels = int(conv.node.operands[0].type.shape[-1])
    start, pixels = part
    pixel, inside = index.add(start, tile.axis(0, pixels)), tile.axis(1, conv.depth)
    if conv.merged:
        last: tuple[Dim, ...] = (index.add(index.mul(pixel, strides[-1] * channels), inside),)
    else:
        last = (index.add(index.mul(pixel, strides[-1]), offset[-1] * dilations[-1]), inside)
    return tile.load(conv.x, (image, *where, *last), (pixels, conv.depth))


def _pack(conv: _Conv, source: Buffer) -> Grid:
    """Weights into panels, a block for each offset and panel; columns past the last channel are zero."""
    c = conv.choice
    channels = source.shape[-1]
    k, p = counter("k", len(conv.offsets)), counter("p", conv.panels.shape[1])
    k_at: Dim = k if len(conv.offsets) != 1 else 0
    p_at: Dim = p if conv.panels.shape[1] != 1 else 0
    column = index.add(index.mul(p_at, c.columns), tile.axis(1, c.columns))
    rest = index.minimum(c.columns, index.sub(channels, index.mul(p_at, c.columns)))
    count = None if isinstance(channels, int) and channels % c.columns == 0 else rest
    value = tile.load(source, (k_at, tile.axis(0, conv.depth), column), (conv.depth, c.columns), (None, count))
    window = tile.load(conv.panels, (k_at, p_at, tile.axis(0, conv.depth), tile.axis(1, c.columns)), (conv.depth, c.columns))
    axes = [GridAxis(k, len(conv.offsets), 1)] if k_at != 0 else []
    axes += [GridAxis(p, conv.panels.shape[1], 1)] if p_at != 0 else []
    return Grid(tuple(axes), (Store(window, value, By((4, c.columns))),))
