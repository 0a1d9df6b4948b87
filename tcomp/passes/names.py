"""Fresh names: unique within a kernel, as every stage from TILE on demands."""

from __future__ import annotations

from collections.abc import Iterator

from tcomp.ir import index
from tcomp.ir.node import Dim, Node
from tcomp.ir.stmts import Alloc, For, Kernel, Let, deep


class Names:
    """The names taken in one kernel, and new ones: the base itself while it is free, then numbered."""

    __slots__ = ("_count", "_taken")

    def __init__(self, kernel: Kernel) -> None:
        self._taken = set(names_of(kernel))
        self._count: dict[str, int] = {}

    def fresh(self, base: str) -> str:
        stem = base.rstrip("0123456789") or base
        count = self._count.get(stem, 0)
        name = stem if count == 0 else f"{stem}{count}"
        while name in self._taken:
            count += 1
            name = f"{stem}{count}"
        self._count[stem] = count + 1
        self._taken.add(name)
        return name


def names_of(kernel: Kernel) -> Iterator[str]:
    """Every name that a kernel binds: buffers, symbols, loop variables, values."""
    yield from (b.name for b in (*kernel.inputs, *kernel.outputs, *kernel.workspace))
    yield from (str(s["name"]) for s in kernel.symbols)
    for grid in kernel.phases:
        yield from (str(a.var["name"]) for a in grid.axes)
        for st in deep(grid.body):
            match st:
                case Let():
                    yield st.name
                case Alloc():
                    yield st.buffer.name
                case For():
                    yield str(st.var["name"])
                    yield from (n for c in st.carry for n in (c.name, c.result))


def loop_variable(name: str, lo: Dim, hi: Dim, step: int) -> Node:
    """The variable of a loop within a tile, from lo below hi by step: it is not negative, whatever is known of lo."""
    return index.loop_symbol(name, index.maximum(lo, 0), hi, step)
