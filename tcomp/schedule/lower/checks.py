"""Proof that data-dependent positions are in range, before anything is read or written at them.

For each index buffer: a phase that marks blocks holding an element out of range, then a phase that fails the call if one is
marked. The phases after it never run then, so they need no tests of their own.
"""

from __future__ import annotations

from collections.abc import Mapping

from tcomp.ir import dtype as dt
from tcomp.ir import index, tile
from tcomp.ir.node import Node
from tcomp.ir.stmts import Check, For, Grid, GridAxis, Let, Store
from tcomp.ir.types import Buffer, TileType
from tcomp.schedule.lower.lowered import Context
from tcomp.schedule.lower.nest import counter
from tcomp.schedule.lower.reading import IndexCheck

CHUNK = 4096
OUT_OF_RANGE = 1  # the status code: a row of ir/artifact.py STATUS_CODES


def check_phases(checks: Mapping[IndexCheck, Node], ctx: Context) -> tuple[tuple[Grid, ...], tuple[Buffer, ...]]:
    """The phases for these checks, and the workspace they need."""
    phases: list[Grid] = []
    workspace: list[Buffer] = []
    for k, (c, user) in enumerate(checks.items()):
        marks = Buffer(f"marks{k}", dt.i64, (index.ceildiv(c.count, CHUNK),), "ws")
        phases += [_mark(k, c, marks), _fail(k, marks, ctx.node_number(user))]
        workspace.append(marks)
    return tuple(phases), tuple(workspace)


def _mark(k: int, c: IndexCheck, marks: Buffer) -> Grid:
    """marks[block] = 1 where an element of the block is out of range, else 0."""
    b = counter(f"chunk{k}", c.count, CHUNK)
    extent = index.minimum(CHUNK, index.sub(c.count, b))
    place = index.add(c.first, index.mul(index.add(b, tile.axis(0, extent)), c.step))
    element = tile.load(c.buffer, (place,), (extent,))
    wide = tile.pointwise("cast", element, dtype=dt.i64)
    low = tile.pointwise("lt", wide, tile.full(0, dt.i64))
    high = tile.pointwise("ge", wide, tile.position(c.size, dt.i64))
    bad = tile.pointwise("cast", tile.pointwise("or", low, high), dtype=dt.i64)
    total = Let(f"bad{k}", tile.reduce("max", bad))
    mark = Store(
        tile.load(marks, (index.floordiv(b, CHUNK),)), tile.pointwise("max", tile.ref(f"bad{k}", _scalar()), tile.full(0, dt.i64))
    )
    return Grid((GridAxis(b, c.count, CHUNK),), (total, mark))


def _scalar() -> TileType:
    return TileType(dt.i64)


def _fail(k: int, marks: Buffer, node: int) -> Grid:
    f = counter(f"mark{k}", marks.shape[0])
    test = Check(index.equal(index.read(marks, (f,), 0, 1), 0), OUT_OF_RANGE, node)
    return Grid((), (For(f, 0, marks.shape[0], 1, (test,)),))
