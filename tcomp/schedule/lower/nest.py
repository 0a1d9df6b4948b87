"""Loops around a kernel's body: a grid over blocks of the outer axes, loops inside a block, and the names of both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from tcomp.ir import index
from tcomp.ir.index import likely
from tcomp.ir.node import Dim, Node
from tcomp.ir.stmts import For, Grid, GridAxis, Stmt


def surely(d: Dim) -> int:
    """The least a dimension can be, and at least 1: what parallelism may count on."""
    return max(1, index.bounds(d)[0] or 1)


_dimensions: ContextVar[frozenset[str]] = ContextVar("names of the dimensions of the program being lowered", default=frozenset())


@contextmanager
def avoiding(names: Iterable[str]) -> Iterator[None]:
    """Within the block no loop variable takes one of these names, which are those of the user's dimensions."""
    token = _dimensions.set(frozenset(names))
    try:
        yield
    finally:
        _dimensions.reset(token)


def counter(name: str, extent: Dim, step: int = 1, start: Dim = 0) -> Node:
    """A loop variable over start, start + step, ... below extent."""
    while name in _dimensions.get():
        name += "_"
    return index.loop_symbol(name, start, extent, step)


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a nest: its extent, and how much of it one block takes."""

    extent: Dim
    block: int


def blocks_of(extents: Sequence[Dim], inner: int, wanted: int) -> list[Axis]:
    """Blocks of the outer axes, so that one holds about `wanted` elements where an innermost point holds `inner`."""
    out: list[Axis] = []
    room = max(1, wanted // max(1, inner))
    for d in reversed(extents):
        block = max(1, min(room, likely(d)))
        out.insert(0, Axis(d, block))
        room = room // likely(d) if block >= likely(d) else 1
    return out


def nest(axes: Sequence[Axis], body: Callable[[tuple[Dim, ...]], tuple[Stmt, ...]], prefix: str = "i") -> Grid:
    """A grid over blocks and loops inside them; `body(positions)` gives the statements of one point."""
    grid: list[GridAxis] = []
    loops: list[tuple[Node, Dim, Dim]] = []
    at: list[Dim] = []
    for k, a in enumerate(axes):
        if a.extent == 1:
            at.append(0)
            continue
        var = counter(f"{prefix}{k}", a.extent, a.block)
        grid.append(GridAxis(var, a.extent, a.block))
        if a.block == 1:
            at.append(var)
            continue
        inner = counter(f"r{k}" if prefix == "i" else f"{prefix}r{k}", a.extent)  # unique across the phases of a kernel
        loops.append((inner, var, index.minimum(a.extent, index.add(var, a.block))))
        at.append(inner)
    stmts = body(tuple(at))
    for inner, lo, hi in reversed(loops):
        stmts = (For(inner, lo, hi, 1, stmts),)
    return Grid(tuple(grid), stmts)
