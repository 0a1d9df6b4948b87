"""Depthwise convolutions: each channel with its own window, lanes along the channels.

A tile of pixels and channels accumulates all elements of the window in registers; inside a convolution a product and a sum may
round once, so each step is one fused multiply-add where the machine has it.
"""

from __future__ import annotations

from itertools import product as every

from tcomp.ir import index, tile
from tcomp.ir.index import likely
from tcomp.ir.machine import LANES
from tcomp.ir.node import Dim, Node
from tcomp.ir.stmts import By, Stmt, Store
from tcomp.ir.types import Buffer, TileType
from tcomp.passes.fusion import Group
from tcomp.schedule.lower.collapse import collapse
from tcomp.schedule.lower.contraction import RESULT, epilogue_of, replaced
from tcomp.schedule.lower.loops import BLOCK, finish, output_buffer
from tcomp.schedule.lower.lowered import Context, Lowered
from tcomp.schedule.lower.nest import blocks_of, nest
from tcomp.schedule.lower.reading import Reader
from tcomp.schedule.lower.tiling import Tiling, axis_values, domain_axes, tiled

PIXELS, CHANNELS = 6, 2 * LANES  # register tile: twelve accumulators hide the latency of a multiply-add


def lower_depthwise(name: str, group: Group, ctx: Context) -> Lowered:
    """Rows of output pixels, all channels; the group's pointwise operations on each register tile."""
    n = group.anchors[0]
    w = n.operands[1]
    dims = n.type.shape
    reader = Reader(lambda v: ctx.in_memory(v) and v not in group.members)
    axes = domain_axes(dims)
    taps = [_tap(reader, n, axes, offset) for offset in every(*(range(k) for k in w.type.shape[:-2]))]
    finals = epilogue_of(group, reader, axes)
    pairs = [e for tap in taps for e in tap]
    c = collapse(dims, [*pairs, *finals], frozenset(range(len(dims))))
    outputs = [output_buffer(i, v, dims) for i, v in enumerate(group.outputs)]
    chains = list(zip(c.expressions[: len(pairs) : 2], c.expressions[1 : len(pairs) : 2]))
    fused = ctx.machine.intrinsic(n.type.dtype).fused
    work = len(taps) * likely(dims[-1]) * likely(dims[-2])

    def body(at: tuple[Dim, ...]) -> tuple[Stmt, ...]:
        return _row(n, chains, c.expressions[len(pairs) :], outputs, at, fused)

    grid = nest(blocks_of(dims[:-2], work, 4 * BLOCK), body)
    inputs = c.inputs(reader.inputs)
    return finish(name, reader, inputs, outputs, group.outputs, (grid,), ctx)


def _tap(reader: Reader, n: Node, axes: tuple[Dim, ...], offset: tuple[int, ...]) -> tuple[Node, Node]:
    """The input's and the weights' element for one place in the window."""
    image, *places, channel = axes
    near = [index.add(index.mul(p, s), o * d) for p, s, o, d in zip(places, n["strides"], offset, n["dilations"])]
    x, w = n.operands
    return reader.read(x, (image, *near, channel)), reader.read(w, (*offset, 0, channel))


def _row(
    n: Node, taps: list[tuple[Node, Node]], finals: tuple[Node, ...], outputs: list[Buffer], at: tuple[Dim, ...], fused: bool
) -> tuple[Stmt, ...]:
    """The stores of one row of pixels."""
    pixels, channels = n.type.shape[-2:]
    place = (*at, tile.axis(0, pixels), tile.axis(1, channels))
    t = Tiling(axis_values(n.type.shape, place), (pixels, channels), {RESULT: TileType(n.type.dtype, (pixels, channels))})
    total = tile.full(0, n.type.dtype)
    for x, w in taps:
        a, b = tiled(x, t), tiled(w, t)
        total = tile.pointwise("fma", a, b, total) if fused else tile.pointwise("add", tile.pointwise("mul", a, b), total)
    named = tile.ref(RESULT, t.refs[RESULT])
    width = CHANNELS if not isinstance(channels, int) else min(CHANNELS, -(-channels // LANES) * LANES)
    by = By((PIXELS, width))
    return tuple(
        Store(tile.load(b, place, (pixels, channels)), replaced(tiled(e, t), named, total), by) for b, e in zip(outputs, finals)
    )
