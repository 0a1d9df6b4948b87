"""`Choice`: all decisions for one kernel, immutable, with a text form that can be replayed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tcomp.errors import Error


@dataclass(frozen=True, slots=True)
class DotChoice:
    """How a product or convolution runs.

    form: `packed` (the second operand is copied into panels of `columns` by a first phase), `prepacked` (it is a constant,
    packed at compile time), `direct` (it is read as it lies), `lanes` (both operands contiguous along k: vectors along k).
    rows, columns: register tile. block_rows, block_columns, block_depth: of a block; rows and columns of a block are one
    claim of the grid. unroll: of the k loop. spill: the epilogue runs as a loop of its own.
    """

    form: str
    rows: int
    columns: int
    block_rows: int
    block_columns: int
    block_depth: int
    unroll: int = 4
    spill: bool = False

    def text(self) -> str:
        """`dot packed 14x32 block 168x256x512 unroll 4 spill`."""
        sizes = f"{self.rows}x{self.columns} block {self.block_rows}x{self.block_columns}x{self.block_depth}"
        return f"dot {self.form} {sizes} unroll {self.unroll}" + (" spill" if self.spill else "")


def parse_choice(text: str) -> DotChoice:
    """The choice that `DotChoice.text` wrote. TC0301 for other text."""
    words = text.split()
    try:
        form, tile, block, unroll = words[1], words[2].split("x"), words[4].split("x"), int(words[6])
        choice = DotChoice(form, int(tile[0]), int(tile[1]), int(block[0]), int(block[1]), int(block[2]), unroll)
    except (IndexError, ValueError):
        raise Error("TC0301", f"the choice `{text}`", "dot FORM RxC block RxCxD unroll U [spill]") from None
    return replace(choice, spill="spill" in words[7:])
