"""Where a value came from: the user's line, or an ONNX node. Kept beside the program, never in a node's identity."""

from __future__ import annotations

from dataclasses import dataclass, field

from tcomp.ir.node import Node


@dataclass(frozen=True, slots=True)
class Loc:
    """A place in the user's source (file, line, column, function) or graph (`file` is then the node's path and name)."""

    file: str
    line: int = 0
    column: int = 0
    function: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(slots=True)
class Locs:
    """The side table of a function: the places of each node, united when nodes merge."""

    table: dict[Node, tuple[Loc, ...]] = field(default_factory=dict)

    def add(self, n: Node, *places: Loc) -> None:
        """Remember that `n` came (also) from `places`."""
        old = self.table.get(n, ())
        self.table[n] = old + tuple(p for p in places if p not in old)

    def of(self, n: Node) -> tuple[Loc, ...]:
        return self.table.get(n, ())
