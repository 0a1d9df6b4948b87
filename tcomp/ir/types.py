"""Types of values: tensors (GRAPH), tiles (TILE and below), tuples of results; and buffers, which are not values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tcomp.ir import index
from tcomp.ir.dtype import DType
from tcomp.ir.node import Dim

Size = int | tuple[int, int] | range | None  # fixed; promised to lie between two, both included, or to be one of a range; open
Sizes = Mapping[str, Size]  # of named dimensions


@dataclass(frozen=True, slots=True)
class TensorType:
    """A tensor of a GRAPH: element type and shape; a dimension is an int or an index expression."""

    dtype: DType
    shape: tuple[Dim, ...]

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(index.show, self.shape))}]"


@dataclass(frozen=True, slots=True)
class TileType:
    """A tile value or a scalar (rank 0): element type and extents."""

    dtype: DType
    shape: tuple[Dim, ...] = ()

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(index.show, self.shape))}]" if self.shape else str(self.dtype)


@dataclass(frozen=True, slots=True)
class TupleType:
    """Several results of one operation; `item` picks one."""

    elements: tuple[TensorType, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.elements))})"


Factor = tuple[int, int]  # (axis, block); block 0: what is left of the axis

SPACES = ("global", "ws", "scratch", "stack", "reg")


@dataclass(frozen=True, slots=True)
class Buffer:
    """A named region of memory.

    space: `global` (foreign: exact extents), or our own: `ws` (shared by the phases of a kernel), `scratch` (per thread),
    `stack` (per block), `reg`. order: factors from outer to inner, `(axis, block)`; None is row-major. pad: elements added
    to the second-innermost factor's stride. Own buffers take strides and size from capacity: the upper bounds of the extents,
    rounded up to the block.
    """

    name: str
    dtype: DType
    shape: tuple[Dim, ...]
    space: str = "global"
    order: tuple[Factor, ...] | None = None
    pad: int = 0

    @property
    def rank(self) -> int:
        return len(self.shape)
