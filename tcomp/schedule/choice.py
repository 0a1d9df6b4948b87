"""`Choice`: all decisions for one kernel, immutable, with a text form that can be replayed."""

from __future__ import annotations

from dataclasses import dataclass

from tcomp.errors import Error

PACKINGS = ("direct", "panels", "block", "lanes")  # of the second factor of a product that streams


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


@dataclass(frozen=True, slots=True)
class CascadeChoice:
    """How dependent reductions run: `rows` by `columns` of the domain at a time.

    score, result, inner: register tiles of the products that stream, of those that are reduced, and of those that first factors
    are computed from. depth: of the streaming product's inner axis at a time. packing of its second factor: `direct`, `panels`
    (in a phase of their own), `block` (by each block), `lanes` (none: both factors lie along the inner axis, and so do vectors).
    parts: into how many the streamed axis is split, each reduced by itself, then merged.
    """

    rows: int
    columns: int
    score: tuple[int, int] = (8, 32)
    result: tuple[int, int] = (4, 64)
    inner: tuple[int, int] = (16, 16)
    depth: int = 256
    packing: str = "direct"
    parts: int = 1

    def text(self) -> str:
        """`cascade 32x256 score 8x32 result 4x64 inner 16x16 depth 256 packing panels parts 1`."""
        named = (("score", self.score), ("result", self.result), ("inner", self.inner))
        tiles = " ".join(f"{name} {rows}x{columns}" for name, (rows, columns) in named)
        return f"cascade {self.rows}x{self.columns} {tiles} depth {self.depth} packing {self.packing} parts {self.parts}"


def parse_choice(text: str) -> DotChoice | CascadeChoice:
    """The choice that `text` of either kind wrote. TC0301 for other text."""
    words = text.split()
    try:
        return _parsed_cascade(words) if words[:1] == ["cascade"] else _parsed_dot(words)
    except (IndexError, ValueError):
        expected = (
            "dot FORM RxC block RxCxD unroll U [spill], or cascade RxC score RxC result RxC inner RxC depth D packing P parts N"
        )
        raise Error("TC0301", f"the choice `{text}`", expected) from None


def _parsed_dot(words: list[str]) -> DotChoice:
    name, form, tile, block, sizes, unroll, by, *spill = words
    if (name, block, unroll) != ("dot", "block", "unroll") or spill not in ([], ["spill"]):
        raise ValueError(name)
    (rows, columns), (tall, wide, deep) = _sizes(tile, 2), _sizes(sizes, 3)
    return DotChoice(form, rows, columns, tall, wide, deep, int(by), bool(spill))


def _parsed_cascade(words: list[str]) -> CascadeChoice:
    names, values = words[2::2], words[3::2]
    if names != ["score", "result", "inner", "depth", "packing", "parts"] or values[4] not in PACKINGS:
        raise ValueError(names)
    rows, columns = _sizes(words[1], 2)
    score, result, inner = ((r, c) for r, c in (_sizes(v, 2) for v in values[:3]))
    return CascadeChoice(rows, columns, score, result, inner, int(values[3]), values[4], int(values[5]))


def _sizes(text: str, count: int) -> list[int]:
    found = [int(n) for n in text.split("x")]
    if len(found) != count:
        raise ValueError(text)
    return found
