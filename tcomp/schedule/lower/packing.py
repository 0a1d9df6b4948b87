"""Packing: the second operand of a product as panels of columns, its k in words where the instruction takes several at once.

Panels are [..., ceil(N / columns), ceil(K / per_word), columns]. What is known is packed at compile time, the rest by a phase of
its own. Columns past N, and parts of a word past K, are zero.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tcomp.ir import index, tile
from tcomp.ir.dtype import u8, u32
from tcomp.ir.index import likely
from tcomp.ir.machine import LANES, Intrinsic
from tcomp.ir.node import Dim, Node
from tcomp.ir.stmts import By, Grid, GridAxis, Store
from tcomp.ir.types import Buffer
from tcomp.schedule.lower.nest import counter

BLOCK = 8192  # elements that one block packs


def per_word(row: Intrinsic) -> int:
    """How many k an element of a packed operand holds."""
    return row.atom[2] if row.a_from == "words" else 1


def words_of(b: np.ndarray, row: Intrinsic) -> np.ndarray:
    """[..., K, N] as the row takes it: itself, or bytes in words [..., ceil(K / per_word), N], filled up with zeros."""
    each = per_word(row)
    if each == 1:
        return b
    *lead, k, n = b.shape
    width = 32 // each
    whole = np.zeros((*lead, -(-k // each) * each, n), np.int64)
    whole[..., :k, :] = b
    shifted = (whole.reshape(*lead, -1, each, n) & (2**width - 1)) << (np.arange(each) * width)[:, None]
    out: np.ndarray = shifted.sum(-2).astype(np.uint32)
    return out


def packed(b: np.ndarray, columns: int) -> np.ndarray:
    """[..., K, N] as panels [..., ceil(N / columns), K, columns], the last one filled up with zeros."""
    *lead, k, n = b.shape
    panels = -(-n // columns)
    wide = np.zeros((*lead, k, panels * columns), b.dtype)
    wide[..., :n] = b
    out = np.ascontiguousarray(np.moveaxis(wide.reshape(*lead, k, panels, columns), -2, -3))
    out.setflags(write=False)
    return out


# (batch positions, position of k, position of column, extents) -> tile [k, column] of the operand there
Source = Callable[[tuple[Dim, ...], Dim, Dim, tuple[Dim, Dim]], Node]


def pack_phase(source: Source, dims: tuple[Dim, ...], panels: Buffer, row: Intrinsic, transposes: bool) -> Grid:
    """Each block: some k of one panel. dims: ([batch,] N, K); transposes: the operand is contiguous along k."""
    *lead, n, k = dims
    columns, each = panels.shape[-1], per_word(row)
    assert isinstance(columns, int)
    depth = panels.shape[-2]
    step = max(LANES, min(-(-max(1, likely(depth)) // LANES) * LANES, BLOCK // columns))
    batch = [GridAxis(counter(f"pb{x}", d), d, 1) for x, d in enumerate(lead)]
    p, q = counter("p", panels.shape[-3]), counter("q", depth, step)
    part = part_of(depth, q, step)
    at = tuple(a.var if a.extent != 1 else 0 for a in batch)
    p_at: Dim = p if panels.shape[-3] != 1 else 0
    q_at: Dim = q if part != depth else 0
    place = (index.add(q_at, tile.axis(0, part)), index.add(index.mul(p_at, columns), tile.axis(1, columns)))
    left_over = index.minimum(columns, index.sub(n, index.mul(p_at, columns)))
    count = None if left_over == columns or (isinstance(n, int) and n % columns == 0) else left_over
    if each == 1:
        value = tile.restrict(source(at, *place, (part, columns)), (None, (0, columns, count)))
    else:
        value = _word(lambda d: source(at, d, place[1], (part, columns)), place[0], (part, columns), (k, q_at), count, each)
    window = tile.load(panels, (*at, p_at, place[0], tile.axis(1, columns)), (part, columns))
    by = By((LANES, LANES)) if transposes and each == 1 else By((4 if each == 1 else 1, columns))
    axes = [*batch, GridAxis(p, panels.shape[-3], 1), *([GridAxis(q, depth, step)] if part != depth else [])]
    return Grid(tuple(a for a in axes if a.extent != 1), (Store(window, value, by),))


def part_of(extent: Dim, start: Node, block: int) -> Dim:
    """The extent of the block that starts at `start`."""
    if isinstance(extent, int) and extent <= block:
        return extent
    return block if isinstance(extent, int) and extent % block == 0 else index.minimum(block, index.sub(extent, start))


def _word(
    source: Callable[[Dim], Node], word: Dim, extents: tuple[Dim, Dim], depth: tuple[Dim, Dim], count: Dim | None, each: int
) -> Node:
    """Words of `each` rows of bytes. depth: (K, first word of the block)."""
    width = 32 // each
    k, first = depth
    total: Node | None = None
    for j in range(each):
        part = source(index.add(index.mul(word, each), j))
        there = None if isinstance(k, int) and k % each == 0 else _rows(k, j, each, first, extents[0])
        part = tile.restrict(part, (None if there is None else (0, extents[0], there), (0, extents[1], count)))
        bits = tile.pointwise("cast", part, dtype=u32)
        if part.type.dtype != u8:
            bits = tile.pointwise("and", bits, tile.full(2**width - 1, u32))
        bits = tile.pointwise("shl", bits, tile.full(width * j, u32)) if j else bits
        total = bits if total is None else tile.pointwise("or", total, bits)
    assert total is not None
    return total


def _rows(k: Dim, j: int, each: int, first: Dim, rows: Dim) -> Dim:
    """How many words from `first` on have a part j."""
    return index.minimum(rows, index.sub(index.ceildiv(index.sub(k, j), each), first))
