"""Long sums in levels: the error of a sum of n elements one after the other grows like n, that of a sum in levels like log n.

A loop that adds up goes `TURNS` times, from zero; the loop around it adds up these sums, and so on, until the outermost has few
turns. Each is the sum of at most `TURNS` elements, or sums, but for the outermost of an extent that is not known.

    for j in 0..n                    ->      for j0 in 0..n by 4096
      carry s -> r = 0                         carry s0 -> r = 0
      yield s + x[j]                           for j1 in j0..min(n, j0 + 4096) by 64
                                                 carry s1 -> r1 = 0
                                                 for j in j1..min(n, j1 + 64)
                                                   carry s2 -> r2 = 0
                                                   yield s2 + x[j]
                                                 yield s1 + r2
                                               yield s0 + r1
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tcomp.ir import index
from tcomp.ir import tile as t
from tcomp.ir.node import Dim, Node
from tcomp.ir.stmts import Carry, For, Stmt
from tcomp.ir.types import TileType

TURNS = 64  # of a loop that adds up, where it stands in others
UNKNOWN = 3  # levels of a loop whose turns have no bound


@dataclass(frozen=True, slots=True)
class Turns:
    """A loop: its variable from lo below hi by step. anew: what it adds up starts from nothing, and is added up by the loop
    around it; else it goes on with what that carries."""

    var: Node
    lo: Dim
    hi: Dim
    step: int
    anew: bool = False


@dataclass(frozen=True, slots=True)
class Sum:
    """A value carried through nested loops. init: of the outermost; start: of those that start anew; term: what a turn adds.

    name(level), result(level): of the carried value and what comes out, level 0 being the outermost."""

    monoid: str
    type: TileType
    init: Node
    start: Node
    term: Node
    name: Callable[[int], str]
    result: Callable[[int], str]


def rounds(monoid: str, type: TileType) -> bool:
    """Whether the order of combining matters for the error. (A product has that of all its roundings in any order.)"""
    return monoid == "add" and type.dtype.is_float


def in_levels(variable: Callable[[Dim, Dim, int], Node], lo: Dim, hi: Dim, step: int, anew: bool = False) -> list[Turns]:
    """The loops, outermost first, that go from lo to hi by step in levels. anew: of the outermost."""
    out: list[Turns] = []
    extent = index.sub(hi, lo)
    for k in reversed(range(_levels(extent, step))):
        size = step * TURNS**k
        var = variable(lo, hi, size)
        out.append(Turns(var, lo, hi, size, anew or bool(out)))
        after = index.add(var, size)
        lo, hi = var, after if index.divisible(extent, size) else index.minimum(hi, after)
    return out


def _levels(extent: Dim, step: int) -> int:
    most = index.bounds(extent)[1]
    if most is None:
        return UNKNOWN
    turns, levels = -(-most // step), 1
    while turns > 2 * TURNS:
        turns, levels = -(-turns // TURNS), levels + 1
    return levels


def adding_loops(loops: Sequence[Turns], sums: Sequence[Sum], body: Iterable[Stmt]) -> For:
    """The nest of these loops around `body`, in which every sum takes its term once a turn."""

    def level(k: int, inits: Sequence[Node]) -> For:
        loop = loops[k]
        carry = tuple(Carry(s.name(k), s.result(k), s.type, i) for s, i in zip(sums, inits))
        mine = [t.ref(s.name(k), s.type) for s in sums]
        if k == len(loops) - 1:
            yields = tuple(t.pointwise(s.monoid, m, s.term) for s, m in zip(sums, mine))
            return For(loop.var, loop.lo, loop.hi, loop.step, tuple(body), carry, yields)
        anew = loops[k + 1].anew
        inner = level(k + 1, [s.start for s in sums] if anew else mine)
        found = [t.ref(s.result(k + 1), s.type) for s in sums]
        totals = tuple(t.pointwise(s.monoid, m, f) if anew else f for s, m, f in zip(sums, mine, found))
        return For(loop.var, loop.lo, loop.hi, loop.step, (inner,), carry, totals)

    return level(0, [s.init for s in sums])
