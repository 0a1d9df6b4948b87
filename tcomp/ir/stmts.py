"""Statements of TILE, PLACED and REG kernels and of `main`: one frozen dataclass each, plain structural equality.

Names are unique in a kernel. A loop variable is an index symbol that carries its bounds and step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from tcomp.ir.node import Dim, Node
from tcomp.ir.types import Buffer, TileType


@dataclass(frozen=True, slots=True)
class By:
    """The micro-decision of one store: how its nest is cut.

    tile: register tile, (rows, columns) or (columns,). order: `ij` rows outermost, `ji` columns outermost. tail: how a dynamic
    number of rows ends: `binary` (bodies of halving size), `balanced` (a body for every size), `masked` (one masked body).
    spill: the epilogue runs as a loop of its own over an L1 tile. pad: what own lanes past the extent get.
    """

    tile: tuple[int, ...]
    order: str = "ij"
    tail: str = "binary"
    spill: bool = False
    pad: float | None = None


@dataclass(frozen=True, slots=True)
class Let:
    """A named value. space (TILE only): `reg`, `inline`, `stack`, `scratch`, or `in:x`, over the dead tile x; `by` cuts its
    nest. In PLACED a scalar or a reduction; in REG a register tile or a scalar."""

    name: str
    value: Node
    space: str = "reg"
    by: By | None = None


@dataclass(frozen=True, slots=True)
class Alloc:
    """A buffer of our own: on the stack of the block, or in the thread's scratch. Its elements start undefined."""

    buffer: Buffer


@dataclass(frozen=True, slots=True)
class Store:
    """Write `value` to a window (a `load` node without else). `by` None: as it is (REG). combine: a monoid, atomically."""

    window: Node
    value: Node
    by: By | None = None
    combine: str | None = None


@dataclass(frozen=True, slots=True)
class Carry:
    """A value carried by a loop: `name` inside, `result` after it, `init` before; `by` cuts the nest of a block-level tile."""

    name: str
    result: str
    type: TileType
    init: Node
    space: str = "reg"
    by: By | None = None


@dataclass(frozen=True, slots=True)
class For:
    """Run `body` for var = lo, lo + step, ... below hi; each carry then takes its yield."""

    var: Node
    lo: Dim
    hi: Dim
    step: int
    body: tuple[Stmt, ...]
    carry: tuple[Carry, ...] = ()
    yields: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class If:
    """Run `body` where the index expression `cond` is not 0, else `orelse`."""

    cond: Dim
    body: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...] = ()


@dataclass(frozen=True, slots=True)
class Check:
    """A fault of the call with this status code and node number unless `cond` is not 0; the block then ends."""

    cond: Dim
    code: int
    node: int


@dataclass(frozen=True, slots=True)
class Call:
    """A runtime routine on whole windows (row-major, static or symbolic extents): its meaning is in `interp/routines.py`."""

    routine: str
    outputs: tuple[Node, ...]
    inputs: tuple[Node, ...]
    attrs: tuple[tuple[str, int | str | bool], ...] = ()


@dataclass(frozen=True, slots=True)
class GridAxis:
    """Blocks of `step` along an extent: var = 0, step, 2 step, ... below extent."""

    var: Node
    extent: Dim
    step: int


@dataclass(frozen=True, slots=True)
class Grid:
    """One phase of a kernel: independent blocks, in any order and on any thread. No axes: one block."""

    axes: tuple[GridAxis, ...]
    body: tuple[Stmt, ...]


Stmt = Let | Alloc | Store | For | If | Check | Call


def deep(body: Iterable[Stmt]) -> Iterator[Stmt]:
    """Statements of a kernel and all that is inside them, in the order of the text."""
    for s in body:
        yield s
        match s:
            case For():
                yield from deep(s.body)
            case If():
                yield from deep((*s.body, *s.orelse))


def expressions(s: Stmt) -> tuple[Node, ...]:
    """The tile expressions of a statement itself, windows that it writes among them."""
    match s:
        case Let():
            return (s.value,)
        case Store():
            return s.window, s.value
        case For():
            return (*(c.init for c in s.carry), *s.yields)
        case Call():
            return (*s.outputs, *s.inputs)
    return ()


def buffers_written(body: Iterable[Stmt]) -> set[str]:
    """The names of the buffers that statements write, here or further inside."""
    windows = (w for s in deep(body) for w in (s.outputs if isinstance(s, Call) else (s.window,) if isinstance(s, Store) else ()))
    return {w["buffer"].name for w in windows}


@dataclass(frozen=True, slots=True)
class Kernel:
    """A sequence of phases with a barrier between, over parameters and a shared workspace.

    inputs are never written; outputs are written entirely. workspace: buffers in space `ws`.
    """

    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    symbols: tuple[Node, ...]
    phases: tuple[Grid, ...]
    workspace: tuple[Buffer, ...] = ()


# --- main: the native host program -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Launch:
    """Run a kernel on buffers by name: `arguments` are its inputs, then its outputs; `symbols` the values of its symbols.

    number: unique in main. after: numbers of the launches whose effects it needs (reads from, or reuses memory of).
    """

    kernel: str
    arguments: tuple[str, ...]
    symbols: tuple[Dim, ...]
    number: int
    after: tuple[int, ...] = ()

    def workspace(self, buffer: Buffer) -> str:
        """The name of main's buffer that holds a workspace buffer of the kernel for this launch, once memory is planned."""
        return f"{self.kernel}.{buffer.name}.{self.number}"


@dataclass(frozen=True, slots=True)
class Reserve:
    """A buffer of main: `offset` bytes into the arena (an index expression) once planned, None before."""

    buffer: Buffer
    offset: Dim | None = None


@dataclass(frozen=True, slots=True)
class Alias:
    """`buffer` is the memory that `source` has here, read as another row-major shape; nothing is copied. offset: `buffer` is a
    part of it that begins at this element, instead of the whole."""

    buffer: Buffer
    source: str
    offset: Dim | None = None


@dataclass(frozen=True, slots=True)
class Swap:
    """Two buffers of main exchange their memory: how a loop gives its next turn what this one made. They are of one type, unless
    one is allocated inside a control statement (see `moving`): then of one dtype and rank. Aliases made before are not to be used
    after."""

    first: str
    second: str


@dataclass(frozen=True, slots=True)
class Branch:
    """Run `then` where the one element of the boolean buffer `cond` holds, else `orelse`.

    number, after: like a launch's. alone: one thread runs it all, like one block of a launch that does everything inside.
    """

    cond: str
    then: tuple[MainStmt, ...]
    orelse: tuple[MainStmt, ...]
    number: int
    after: tuple[int, ...] = ()
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Repeat:
    """Run `body` for var = 0, 1, ... below `extent` (None: without bound) while the element of the boolean buffer `go` (None:
    always) holds. What is reserved in the body is new in every turn. number, after, alone: as in `Branch`."""

    var: Node
    extent: Dim | None
    go: str | None
    body: tuple[MainStmt, ...]
    number: int
    after: tuple[int, ...] = ()
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Assert:
    """The call fails with TC0605 (node number `node`) unless the index expression is not 0."""

    cond: Dim
    node: int


@dataclass(frozen=True, slots=True)
class Bind:
    """`symbol` is from here on the element of the i64 buffer `source`. The call fails with TC0605 (node number `node`) where the
    symbol's bounds do not allow that. after: who writes it."""

    symbol: Node
    source: str
    node: int
    number: int
    after: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Allocate:
    """Memory of its own for a buffer whose size is known only here: main's own until the call ends, or an output. number: others
    wait for it like for a launch. Inside a loop (one thread runs that) a buffer that has enough already keeps it."""

    buffer: Buffer
    number: int


MainStmt = Launch | Reserve | Alias | Assert | Swap | Branch | Repeat | Bind | Allocate


def bodies(s: MainStmt) -> tuple[tuple[MainStmt, ...], ...]:
    """The statements inside a statement of main."""
    match s:
        case Branch():
            return s.then, s.orelse
        case Repeat():
            return (s.body,)
    return ()


def with_bodies(s: MainStmt, new: Sequence[tuple[MainStmt, ...]]) -> MainStmt:
    """`s` with other statements inside."""
    match s:
        case Branch():
            return replace(s, then=new[0], orelse=new[1])
        case Repeat():
            return replace(s, body=new[0])
    return s


def flat(body: Iterable[MainStmt]) -> Iterator[MainStmt]:
    """Statements and all that is inside them, in the order of the text."""
    for s in body:
        yield s
        for inner in bodies(s):
            yield from flat(inner)


def moving(body: Iterable[MainStmt]) -> set[str]:
    """The buffers that swap with one that is allocated inside a control statement: their memory is as large as it is."""
    body = list(body)
    inside = {s.buffer.name for outer in body for b in bodies(outer) for s in flat(b) if isinstance(s, Allocate)}
    swaps = [{s.first, s.second} for s in flat(body) if isinstance(s, Swap)]
    return {name for pair in swaps if pair & inside for name in pair}


@dataclass(frozen=True, slots=True)
class Main:
    """inputs and outputs: the caller's buffers; constants: in `Module.constants`, by name; body: in order. sizes: the symbols
    that the body binds."""

    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    constants: tuple[Buffer, ...]
    symbols: tuple[Node, ...]
    body: tuple[MainStmt, ...]
    arena: Dim = 0
    sizes: tuple[Node, ...] = ()


def is_planned(main: Main) -> bool:
    """Whether memory and waiting are planned; until then launches run in the order of the body."""
    return any(
        (isinstance(s, Reserve) and s.offset is not None) or (isinstance(s, Launch | Branch | Repeat) and bool(s.after))
        for s in flat(main.body)
    )
