"""What a lowering function gives back, and what it is given."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from tcomp.ir import index, tile
from tcomp.ir.machine import Machine
from tcomp.ir.node import Dim, Node
from tcomp.ir.stmts import Check, For, Grid, If, Kernel, deep, expressions
from tcomp.ir.types import Buffer


@dataclass(frozen=True, slots=True)
class Lowered:
    """A kernel and the nodes whose buffers are its inputs and outputs, in order."""

    kernel: Kernel
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Context:
    """What lowering may ask: whether a node is in memory when the kernel starts, the machine, the number of a checked node."""

    in_memory: Callable[[Node], bool]
    machine: Machine
    node_number: Callable[[Node], int]


def with_workspace(lowered: Lowered, *buffers: Buffer) -> Lowered:
    """The kernel with further buffers that its phases share."""
    kernel = replace(lowered.kernel, workspace=(*lowered.kernel.workspace, *buffers))
    return replace(lowered, kernel=kernel)


def kernel_symbols(phases: Iterable[Grid], buffers: Iterable[Buffer]) -> tuple[Node, ...]:
    """The symbols that a kernel's text uses and does not bind: dimensions of the program."""
    uses: list[Dim] = [d for b in buffers for d in b.shape]
    bound: set[str] = set()
    for phase in phases:
        bound.update(str(a.var["name"]) for a in phase.axes)
        uses += [a.extent for a in phase.axes]
        for s in deep(phase.body):
            uses += expressions(s)
            match s:
                case For():
                    bound.add(str(s.var["name"]))
                    uses += [s.lo, s.hi]
                case If() | Check():
                    uses.append(s.cond)
    free = [n for n in index.symbols(uses) if not tile.is_axis(n) and n["name"] not in bound]
    return tuple(sorted(free, key=lambda n: str(n["name"])))
