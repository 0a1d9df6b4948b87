"""Long reductions in parts: each is reduced by a block of its own, and a second phase combines what they found."""

from __future__ import annotations

from dataclasses import dataclass

from tcomp.ir import index
from tcomp.ir.node import Dim, Node
from tcomp.schedule.lower.lowered import Context
from tcomp.schedule.lower.nest import counter

PARTS = 4  # of a long reduction for each core, so that all end at about the same time
LONG = 1 << 20  # elements from which a reduction is worth a second phase
UNIT = 64  # a part's elements are a multiple of this: vectors end where parts do


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
