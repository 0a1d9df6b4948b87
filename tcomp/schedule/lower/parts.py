"""What a lowering function gives back, and what it is given."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from tcomp.ir import index, tile
from tcomp.ir.machine import Machine
from tcomp.ir.node import Dim, Node
from tcomp.ir.stmts import Check, For, Grid, If, Kernel, deep, expressions
from tcomp.ir.types import Buffer
from tcomp.schedule.lower.nest import counter

PARTS = 4  # of a long reduction for each core, so that all end at about the same time
LONG = 1 << 20  # elements from which a reduction is worth a second phase
UNIT = 64  # a part's elements are a multiple of this: vectors end where parts do


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


@dataclass(frozen=True, slots=True)
class Parts:
    """A long reduction in so many parts of `size` elements of an axis, each reduced by a block of its own."""

    count: int
    size: int
    extent: int
    var: Node

    @property
    def start(self) -> Dim:
        return index.mul(self.var, self.size)

    @property
    def length(self) -> Dim:
        """Elements of the part."""
        whole = self.count * self.size == self.extent
        return self.size if whole else index.minimum(self.size, index.sub(self.extent, self.start))


def parts_of(extent: Dim, blocks: int, each: int, ctx: Context) -> Parts | None:
    """The parts of a reduction that `blocks` blocks would do, each over `extent` elements of an axis with `each` elements of the
    domain; None where it is short, or there are blocks for all threads."""
    if not isinstance(extent, int) or blocks >= 2 * ctx.machine.cores or blocks * extent * each < LONG:
        return None
    size = -(-extent * blocks // (PARTS * ctx.machine.cores))
    size = -(-size // UNIT) * UNIT
    count = -(-extent // size)
    return Parts(count, size, extent, counter("part", count)) if count > 1 else None


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
