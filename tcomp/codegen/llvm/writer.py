"""`Writer`: the state of one function being written from REG - scopes, symbols, named register tiles, memory versions.

A *level* is the depth of a scope (0: the function itself; each loop body or branch is one deeper). What is computed at a level
is remembered there and seen from all deeper ones. Code for an outer level is added at the *landing* before the region that was
entered from it, so index arithmetic runs as far out as its symbols allow.

Loads are remembered under the *version* of each buffer they touch; a store makes a new version, as does entering a loop that
stores. So nothing stale is ever found, and values just stored are found under the newest version.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tcomp.codegen.llvm.builder import FunctionBuilder
from tcomp.ir.dtype import STORED, DType
from tcomp.ir.machine import LANES, Machine
from tcomp.ir.node import Node, walk
from tcomp.ir.tile import Window, window
from tcomp.ir.types import TileType

Key = tuple[int, ...]  # rows, then the number of the vector (form `lanes`) or the position (form `scalars`)
Index = int | str  # an index value: a known integer, or the SSA name of an i64

# The LLVM type that an element has in registers: 16-bit floats are held as floats whose value they can represent.
REGISTER = {
    "bool": "i1", "i8": "i8", "i16": "i16", "i32": "i32", "i64": "i64",
    "u8": "i8", "u16": "i16", "u32": "i32", "u64": "i64",
    "f16": "float", "bf16": "float", "f32": "float", "f64": "double",
    **{t.name: "i8" for t in STORED},  # only moved
}  # fmt: skip


def register_type(dtype: DType, lanes: int = LANES) -> str:
    """The LLVM type of a register value of `lanes` elements."""
    element = REGISTER[dtype.name]
    return element if lanes == 1 else f"<{lanes} x {element}>"


@dataclass(frozen=True, slots=True)
class Tile:
    """A register tile: SSA names by key. form `lanes`: vectors of LANES elements along the last axis; `scalars`: elements."""

    type: TileType
    form: str
    parts: dict[Key, str]


@dataclass(slots=True)
class Scope:
    """landing: where code of the enclosing level is added (unused at level 0). memo: what this level has computed."""

    landing: list[str]
    memo: dict[Hashable, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Writer:
    """One function being written. symbols: index symbols with the level they are known from; registers: tiles by name."""

    b: FunctionBuilder
    machine: Machine
    scopes: list[Scope] = field(default_factory=list)
    symbols: dict[Node, tuple[Index, int]] = field(default_factory=dict)
    registers: dict[str, Tile] = field(default_factory=dict)
    register_levels: dict[str, int] = field(default_factory=dict)
    pointers: dict[str, Callable[[], str]] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    scratch: int = 0  # bytes of the thread's scratch that are given away
    _touched: dict[Node, tuple[str, ...]] = field(default_factory=dict)
    _facts: dict[Hashable, Any] = field(default_factory=dict)

    @property
    def level(self) -> int:
        return len(self.scopes) - 1

    @property
    def features(self) -> frozenset[str]:
        return self.machine.features

    # --- scopes -----------------------------------------------------------------------------------------

    @contextmanager
    def scope(self, landing: list[str] | None = None) -> Iterator[None]:
        """A deeper level, entered before the branch into the region; or after it, where the landing before it is given (the
        branches of a condition share one)."""
        self.scopes.append(Scope(self.b.landing() if landing is None else landing))
        yield
        self.scopes.pop()

    def find(self, key: Hashable) -> Any:
        """What is remembered under `key` at any level, or None."""
        for s in reversed(self.scopes):
            if key in s.memo:
                return s.memo[key]
        return None

    def remember(self, key: Hashable, value: Any, level: int | None = None) -> None:
        self.scopes[self.level if level is None else level].memo[key] = value

    def memo(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What is remembered under `key`, or `make()`, remembered from now on at this level."""
        found = self.find(key)
        if found is None:
            found = make()
            self.remember(key, found)
        return found

    def fact(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """`make()`, once: what holds of a node wherever it is used."""
        found = self._facts.get(key)
        if found is None:
            found = self._facts[key] = make()
        return found

    def window(self, load: Node) -> Window:
        """The parts of a `load` node."""
        found: Window = self.fact(("window", load), lambda: window(load))
        return found

    def pure(self, level: int, instruction: str) -> str:
        """The value of an instruction without effects, whose operands are known at `level`: computed there, once."""
        for s in reversed(self.scopes[: level + 1]):
            if instruction in s.memo:
                return str(s.memo[instruction])
        name = self.b.value(instruction) if level == self.level else self.b.value_at(self.scopes[level + 1].landing, instruction)
        self.scopes[level].memo[instruction] = name
        return name

    def name(self, name: str, tile: Tile) -> None:
        """Bind the name of a register value, known from this level on."""
        self.registers[name] = tile
        self.register_levels[name] = self.level

    # --- memory versions -----------------------------------------------------------------------------------

    def stamp(self, n: Node) -> tuple[int, ...]:
        """The versions of the buffers that `n` reads: part of the key it is remembered under."""
        touched = self._touched.get(n)
        if touched is None:
            touched = self._find_touched(n)
        return tuple(self.versions.get(name, 0) for name in touched)

    def _find_touched(self, n: Node) -> tuple[str, ...]:
        for x in walk([n]):
            if x in self._touched:
                continue
            names = {name for o in x.operands for name in self._touched[o]}
            if x.op in ("load", "read"):
                names.add(x["buffer"].name)
            self._touched[x] = tuple(sorted(names))
        return self._touched[n]

    def written(self, buffer: str) -> None:
        """Memory of `buffer` has changed, or may change before the code that follows."""
        self.versions[buffer] = self.versions.get(buffer, 0) + 1

    def pointer(self, buffer: str) -> str:
        """The SSA name of a buffer's address."""
        return self.pointers[buffer]()

    # --- small code --------------------------------------------------------------------------------------

    def call(self, result: str, function: str, *arguments: str) -> str:
        return self.b.call(result, function, *arguments)

    def splat(self, element: str, scalar: str, lanes: int = LANES, level: int | None = None) -> str:
        """A vector with `scalar` in every lane; a literal becomes a constant."""
        if not scalar.startswith("%"):
            return f"splat ({element} {scalar})"
        at = self.level if level is None else level
        kind = f"<{lanes} x {element}>"
        first = self.pure(at, f"insertelement {kind} poison, {element} {scalar}, i64 0")
        return self.pure(at, f"shufflevector {kind} {first}, {kind} poison, <{lanes} x i32> zeroinitializer")
