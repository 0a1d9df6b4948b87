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


@dataclass(frozen=True, slots=True)
class CascadeChoice:
    """How dependent reductions run: `rows` by `columns` of the domain at a time.

    score, result: register tiles of the products that stream and of those that are reduced. depth: of the streaming product's
    inner axis at a time. packing of its second factor: `direct`, `panels` (in a phase of their own), `block` (by each block),
    `lanes` (none: both factors lie along the inner axis, and so do vectors).
    parts: into how many the streamed axis is split, each reduced by itself, then merged.
    """

    rows: int
    columns: int
    score: tuple[int, int] = (8, 32)
    result: tuple[int, int] = (4, 64)
    depth: int = 256
    packing: str = "direct"
    parts: int = 1

    def text(self) -> str:
        """`cascade 32x256 score 8x32 result 4x64 depth 256 packing panels parts 1`."""
        tiles = f"score {self.score[0]}x{self.score[1]} result {self.result[0]}x{self.result[1]}"
        return f"cascade {self.rows}x{self.columns} {tiles} depth {self.depth} packing {self.packing} parts {self.parts}"
