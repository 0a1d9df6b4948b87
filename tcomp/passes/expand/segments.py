"""How a nest is cut: segments of rows and columns, each with one size of register tile, and the loops over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from tcomp.errors import Error
from tcomp.ir import index
from tcomp.ir.machine import LANES
from tcomp.ir.node import Dim, Node
from tcomp.ir.stmts import For, Stmt
from tcomp.passes.names import Names, loop_variable


@dataclass(frozen=True, slots=True)
class Segment:
    """Tiles of `size` from lo below hi. masked: of the last tile only what lies below `end` exists."""

    lo: Dim
    hi: Dim
    size: int
    masked: bool = False


def whole_tiles(n: Dim, size: int) -> tuple[Dim, int | None]:
    """How much of n tiles of `size` cover, and what is left of it where that is known."""
    left = index.constant(index.mod(n, size))
    return (n if left == 0 else index.mul(index.floordiv(n, size), size)), left


def single_rows(m: Dim, rows: int) -> tuple[Segment, ...]:
    """Rows of a copy: full tiles, then what is left, one tile where its size is known, else row by row."""
    full, left = whole_tiles(m, rows)
    return _kept(Segment(0, full, rows), Segment(full, m, left or 1))


def row_segments(m: Dim, rows: int, tail: str) -> tuple[Segment, ...]:
    """Rows of a product, in register tiles of at most `rows`.

    Known: panels of q and q - 1 rows, as many as tiles of `rows` would be. Else by `tail`: `binary`: full tiles, then halving
    sizes; `balanced`: panels of q and q + 1 rows whatever these turn out to be, a body for every size.
    """
    size = index.constant(m)
    if size is not None:
        return _panels(size, rows)
    if rows == 1:
        return (Segment(0, m, 1),)
    if tail == "balanced":
        return _balanced(m, rows)
    full, left = whole_tiles(m, rows)
    if tail == "masked":
        return _kept(Segment(0, full, rows), Segment(full, m, rows, left != 0))
    out = [Segment(0, full, rows)]
    rest = index.mod(m, rows)
    size = 1 << ((rows - 1).bit_length() - 1)
    while size:
        lo = out[-1].hi
        hi = index.add(lo, index.mul(index.floordiv(rest, size), size)) if size > 1 else m
        out.append(Segment(lo, hi, size))
        rest, size = index.mod(rest, size), size // 2
    return _kept(*out)


def _panels(m: int, rows: int) -> tuple[Segment, ...]:
    if m == 0:
        return ()
    panels = -(-m // rows)
    q = -(-m // panels)
    big = m - (q - 1) * panels
    return _kept(Segment(0, big * q, q), Segment(big * q, m, q - 1))


def _balanced(m: Dim, rows: int) -> tuple[Segment, ...]:
    panels = index.maximum(index.ceildiv(m, rows), 1)
    q = index.floordiv(m, panels)
    larger = index.sub(m, index.mul(panels, q))  # this many panels have q + 1 rows, and come first
    out = []
    for size in range(rows, 0, -1):
        is_large, is_small = index.equal(index.add(q, 1), size), index.equal(q, size)
        lo = index.mul(is_small, index.mul(larger, size + 1))
        count = index.add(index.mul(is_large, larger), index.mul(is_small, index.sub(panels, larger)))
        out.append(Segment(lo, index.add(lo, index.mul(count, size)), size))
    return tuple(out)


def own_row_segments(m: Dim, capacity: int, rows: int) -> tuple[Segment, ...]:
    """Rows of own memory: panels over its capacity, entered only as far as there are rows; the last one may pass the end."""
    limits = m.operands if isinstance(m, Node) and m.op == "min" else (index.as_node(m),)

    def limited(hi: Dim) -> Dim:
        for limit in limits:
            hi = index.minimum(hi, index.as_dim(limit))
        return hi

    return tuple(Segment(s.lo, limited(s.hi), s.size) for s in _panels(capacity, rows))


def column_segments(n: Dim, columns: int, round_up: bool, whole: bool) -> tuple[Segment, ...]:
    """Columns in tiles of `columns` lanes, then one masked tile.

    round_up: what is written is our own and has room for whole tiles. whole: nothing needs a mask, so whole tiles it is.
    """
    if n == 1:
        return (Segment(0, 1, 1),)
    if columns % LANES:
        raise Error("TC0302", f"register tiles of {columns} columns", f"a multiple of {LANES}")
    if whole:
        return (Segment(0, n, columns),)
    full, left = whole_tiles(n, columns)
    size = columns if left is None or round_up else -(-left // LANES) * LANES
    return _kept(Segment(0, full, columns), Segment(full, n, size, left is None or left != size))


def _kept(*segments: Segment) -> tuple[Segment, ...]:
    """The segments that are not empty for certain."""
    return tuple(s for s in segments if index.less(s.lo, s.hi) != 0)


def loop(names: Names, base: str, s: Segment, body: Callable[[Dim], tuple[Stmt, ...]]) -> tuple[Stmt, ...]:
    """`body` at each tile of a segment: nothing, the body itself, or a loop."""
    length = index.constant(index.sub(s.hi, s.lo))
    if length is not None and length <= s.size:
        return body(s.lo) if length > 0 else ()
    var = loop_variable(names.fresh(base), s.lo, s.hi, s.size)
    return (For(var, s.lo, s.hi, s.size, body(var)),)


Body = Callable[[Segment, Dim], tuple[Stmt, ...]]


def loops(names: Names, base: str, segments: Sequence[Segment], body: Body) -> tuple[Stmt, ...]:
    """`body` at each tile of each segment."""
    return tuple(st for s in segments for st in loop(names, base, s, partial(body, s)))
