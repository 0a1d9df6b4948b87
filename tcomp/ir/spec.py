"""What each stage allows: one row of data for each, and small functions for what only REG demands of values.

| | TILE | PLACED | REG |
|---|---|---|---|
| `By` on stores, lets and carries | yes | yes | no |
| spaces of `Let` and `Carry` | any own space, `inline`, `in:x` | `reg` | `reg` |
| register values | any extents | any extents | static: (), (C,) or (R, C), C whole vectors, or 1 |
| masks | any axis | any axis | the last axis (lanes) |
| `dot` | anywhere | anywhere | the whole value of a `Let`, a yield or a `Store`, or a branch of a `when` there |
| `when` | anywhere | anywhere | at the root of such a value, of a stored one, or of an accumulator |
| `reduce` | any axis | any axis | the last axis of a register tile |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tcomp.ir import tile
from tcomp.ir.index import show
from tcomp.ir.machine import LANES
from tcomp.ir.node import Dim, Node

Complaints = Iterator[str]


@dataclass(frozen=True, slots=True)
class Spec:
    """What one stage allows. value(e): complaints about a value, given whether it may have a `dot` or `when` at its root."""

    let_spaces: frozenset[str]
    by: bool
    value: Callable[[Node], Complaints]

    def space_allowed(self, space: str) -> bool:
        return space.partition(":")[0] in self.let_spaces


def _anything(e: Node) -> Complaints:
    return iter(())


def register_value(e: Node) -> Complaints:
    """Complaints about the value of a `Let`, a yield or a `Store` of REG."""
    if e.op == "when":
        for branch in e.operands[1:]:
            yield from register_value(branch)
        return
    if e.op == "dot":
        yield from _register_dot(e)
        return
    yield from _register_parts(e)


def _register_dot(e: Node) -> Complaints:
    a, b, acc = e.operands
    rows, columns = a.type.shape[0], b.type.shape[1]
    if not isinstance(rows, int) or not isinstance(columns, int) or columns % LANES:
        yield f"a product of {show(rows)} x {show(columns)}; REG wants static rows and whole vectors of columns"
    for operand, name in ((a, "left"), (b, "right")):
        if any(n.op == "dot" for n in tile.nodes(operand)):
            yield f"a product inside the {name} operand of a product"
    branches = acc.operands[1:] if acc.op == "when" else (acc,)
    for branch in branches:
        yield from _register_parts(branch)


def _register_parts(e: Node) -> Complaints:
    """Complaints about everything inside a value that is neither a product nor a branch."""
    for n in tile.nodes(e):
        if n.op in ("dot", "when"):
            yield f"`{n.op}` inside a value; REG allows it at the root only"
        if n.op == "reduce" and n["axis"] != n.operands[0].type.rank - 1:
            yield f"a reduction along axis {n['axis']}; REG reduces along lanes only"
        if n.op == "load" and any(n["masked"][:-1]):
            yield "a mask on an axis that is not the last"
        if not static_tile(n.type.shape):
            yield f"a register value of type {n.type}; its extents must be static, (rows, columns), columns in whole vectors"
            return


def static_tile(shape: tuple[Dim, ...]) -> bool:
    """Whether a value of this shape lives in registers: (), (C,), (R, C) with C whole vectors or 1, or one element."""
    if not all(isinstance(d, int) for d in shape) or len(shape) > 2:
        return False
    return not shape or shape[-1] == 1 or shape[-1] % LANES == 0


TILE_SPACES = frozenset(("reg", "inline", "stack", "scratch", "in"))
SPECS: dict[str, Spec] = {
    "tile": Spec(TILE_SPACES, True, _anything),
    "placed": Spec(frozenset(("reg",)), True, _anything),
    "reg": Spec(frozenset(("reg",)), False, register_value),
}
