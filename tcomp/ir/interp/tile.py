"""The meaning of TILE, PLACED and REG kernels and of `main`, in NumPy.

One interpreter serves all three stages: a `Let` is a value whatever its space, `By` changes nothing but the padding of own
buffers (zero past the extent, as a store that is cut into register tiles leaves it), and the order of a buffer is invisible.
The blocks of a phase, and the launches of `main` that do not name each other in `after`, run in a shuffled order, so that a
dependence which the text denies shows. Every access is checked; see `memory.py`.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never

import numpy as np

from tcomp.errors import Error
from tcomp.ir import machine
from tcomp.ir import tile as t
from tcomp.ir.artifact import STATUS_CODES
from tcomp.ir.dtype import to_numpy
from tcomp.ir.index import INDEX, as_dim
from tcomp.ir.interp import indices, memory
from tcomp.ir.interp.memory import Storage
from tcomp.ir.interp.routines import ROUTINES
from tcomp.ir.machine import INTRINSICS
from tcomp.ir.module import Module
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import MONOIDS, OPS
from tcomp.ir.stmts import (
    Alias,
    Alloc,
    Allocate,
    Assert,
    Bind,
    Branch,
    By,
    Call,
    Check,
    For,
    Grid,
    If,
    Kernel,
    Launch,
    Let,
    Main,
    MainStmt,
    Repeat,
    Reserve,
    Stmt,
    Store,
    Swap,
    is_planned,
)
from tcomp.ir.types import Buffer, TileType


class _Failed(Error):
    """A check that does not hold. node: what it is about, by number."""

    def __init__(self, code: str, node: int) -> None:
        super().__init__(code, f"a check of node {node} failed")
        self.node = node


@dataclass(slots=True)
class _Scope:
    """What is visible: values of symbols, named tile values, memory."""

    symbols: dict[str, int]
    buffers: dict[str, Storage]
    values: dict[str, np.ndarray] = field(default_factory=dict)

    def inner(self) -> _Scope:
        """The scope of a block: what it defines stays in it."""
        return _Scope(dict(self.symbols), dict(self.buffers))

    def fetch(self, read: Node, position: list[Any]) -> Any:
        """An element of an integer buffer, within the bounds that the text claims."""
        found = memory.gather(self.buffers[_name_of(read["buffer"])], position).astype(np.int64)
        for bound, wrong in ((read["lo"], np.less), (read["hi"], np.greater)):
            assert bound is None or not wrong(found, bound).any(), f"an element of {_name_of(read['buffer'])} beyond {bound}"
        return found if found.ndim else int(found)

    def dim(self, x: Dim, axes: Mapping[str, np.ndarray] | None = None) -> Any:
        """The value of an index expression; over tile axes an array."""
        return indices.evaluate(x, {**self.symbols, **axes} if axes else self.symbols, self.fetch)

    def dims(self, xs: Sequence[Dim]) -> tuple[int, ...]:
        return tuple(self.dim(x) for x in xs)


def _name_of(buffer: Any) -> str:
    return buffer.name if isinstance(buffer, Buffer) else str(buffer)


# --- expressions ---------------------------------------------------------------------------------------


def evaluate(e: Node, scope: _Scope) -> np.ndarray:
    """The value of a tile expression. Of a `when` only the branch taken is evaluated."""
    done: dict[Node, np.ndarray] = {}
    stack = [e]
    while stack:
        n = stack[-1]
        needed = _needed(n, scope) if n not in done else ()
        missing = [o for o in needed if o not in done]
        if missing:
            stack.extend(missing)
            continue
        stack.pop()
        if n not in done:
            done[n] = np.asarray(_compute(n, [done[o] for o in needed], scope))
    return done[e]


def _needed(n: Node, scope: _Scope) -> tuple[Node, ...]:
    if n.op == "when":
        return (n.operands[1] if scope.dim(as_dim(n.operands[0])) else n.operands[2],)
    return tuple(o for o in n.operands if o.type is not INDEX)


def _compute(n: Node, operands: list[np.ndarray], scope: _Scope) -> Any:
    match n.op:
        case "load":
            return _load(t.window(n), operands[0] if operands else None, scope)
        case "full":
            return np.asarray(n["value"].value).astype(to_numpy(n["dtype"]))
        case "ref":
            return scope.values[n["name"]]
        case "position":
            return _position(n, scope)
        case "expand":
            return np.expand_dims(operands[0], n["axis"])
        case "reduce":
            return OPS["reduce"].reference(operands[0], n["monoid"], (n["axis"],))
        case "valid":
            return _valid(n, operands, scope)
        case "dot":
            return _dot(n, *operands)
        case "when":
            return np.broadcast_to(operands[0], scope.dims(n.type.shape))
        case "fold":
            x, to = operands[0], n["to"]
            return OPS["reduce"].reference(x.reshape(*x.shape[:-1], -1, to), n["monoid"], (x.ndim - 1,))
        case "scan":
            return OPS["scan"].reference(operands[0], n["monoid"], operands[0].ndim - 1, False, False)
        case "last":
            return operands[0][..., -1]
    return OPS[n.op].reference(*operands, **dict(n.attrs))


def _counts(w: t.Window, extents: tuple[int, ...], scope: _Scope) -> tuple[int, ...]:
    """How many elements of each tile axis exist."""
    return tuple(e if v is None else min(e, max(0, scope.dim(v))) for e, v in zip(extents, w.valid))


def _positions(w: t.Window, counts: tuple[int, ...], scope: _Scope) -> list[Any]:
    axes = indices.axis_positions(counts)
    return [scope.dim(p, axes) for p in w.positions]


def _load(w: t.Window, other: np.ndarray | None, scope: _Scope) -> np.ndarray:
    extents = scope.dims(w.extents)
    counts = _counts(w, extents, scope)
    storage = scope.buffers[w.buffer.name]
    if 0 in counts:
        return np.zeros(extents, storage.array.dtype)
    positions = _positions(w, counts, scope)
    if other is not None:
        found = memory.gather_or(storage, positions, counts, other)
    else:
        found = np.broadcast_to(memory.gather(storage, positions), counts)
    if counts == extents:
        return found.copy()
    return np.pad(found, [(0, e - c) for e, c in zip(extents, counts)])


def _position(n: Node, scope: _Scope) -> np.ndarray:
    extents = scope.dims(n.type.shape)
    found = scope.dim(as_dim(n.operands[0]), indices.axis_positions(extents))
    return np.broadcast_to(np.asarray(found).astype(to_numpy(n["dtype"])), extents)


def _valid(n: Node, operands: list[np.ndarray], scope: _Scope) -> np.ndarray:
    x, pad = operands
    axes = indices.axis_positions(x.shape)
    count = scope.dim(as_dim(n.operands[1]), axes)
    return np.where(axes[f"${x.ndim - 1}"] < count, x, pad.astype(x.dtype))


def _dot(n: Node, a: np.ndarray, b: np.ndarray, acc: np.ndarray) -> np.ndarray:
    """acc + a b: integers wrap at the accumulator's width; floats are summed in float64 and rounded once. Words of b count as
    the parts that they are made of, as far as a goes."""
    row = INTRINSICS.get(n["intrinsic"])
    if row is not None and row.a_from == "words":
        b = machine.parts(b, row.atom[2], n.operands[0].type.dtype)[: a.shape[1]]
    assert a.shape[1] == b.shape[0], f"dot of {a.shape} and {b.shape}"
    wide = acc.dtype if acc.dtype.kind in "iu" else np.dtype(np.float64)
    return np.asarray(acc.astype(wide) + a.astype(wide) @ b.astype(wide)).astype(acc.dtype)


# --- statements ----------------------------------------------------------------------------------------


def _run_block(body: tuple[Stmt, ...], scope: _Scope) -> None:
    for s in body:
        match s:
            case Let():
                scope.values[s.name] = _shaped(evaluate(s.value, scope), s.value.type, scope)
            case Alloc():
                scope.buffers[s.buffer.name] = memory.allocate(s.buffer, scope.dims(s.buffer.shape))
            case Store():
                _store(t.window(s.window), evaluate(s.value, scope), s.by, s.combine, scope)
            case For():
                _for(s, scope)
            case If():
                _run_block(s.body if scope.dim(s.cond) else s.orelse, scope)
            case Check():
                if not scope.dim(s.cond):
                    raise _Failed(STATUS_CODES[s.code], s.node)
            case Call():
                _call(s, scope)
            case _:
                assert_never(s)


def _shaped(value: np.ndarray, type: TileType, scope: _Scope) -> np.ndarray:
    """The value as its type says: axes of extent 1, and scalars, repeat."""
    assert value.dtype == to_numpy(type.dtype), f"a value of {value.dtype} where {type} is meant"
    return np.broadcast_to(value, scope.dims(type.shape))


def _store(w: t.Window, value: np.ndarray, by: By | None, combine: str | None, scope: _Scope) -> None:
    storage = scope.buffers[w.buffer.name]
    extents = scope.dims(w.extents)
    counts = _counts(w, extents, scope)
    assert value.dtype == storage.array.dtype, f"{value.dtype} stored into {w.buffer.name}, of {w.buffer.dtype}"
    value = np.broadcast_to(value, extents)[tuple(slice(c) for c in counts)]
    if by is not None and w.buffer.space != "global":
        _pad_own(storage, w, extents, by, scope)
    memory.scatter(storage, _positions(w, counts, scope), value, MONOIDS[combine].ufunc if combine else None)


def _pad_own(storage: Storage, w: t.Window, extents: tuple[int, ...], by: By, scope: _Scope) -> None:
    """What a store in whole register tiles leaves past the extents of an own buffer."""
    tile = (1,) * (len(extents) - len(by.tile)) + by.tile
    rounded = tuple(-(-e // c) * c for e, c in zip(extents, tile))
    positions = [np.broadcast_to(p, rounded) for p in _positions(w, rounded, scope)]
    inside = np.ones(rounded, bool)
    beyond = np.zeros(rounded, bool)
    for p, n, covered in zip(positions, storage.extents, storage.array.shape):
        inside &= (p >= 0) & (p < covered)
        beyond |= p >= n
    at = tuple(p[inside & beyond] for p in positions)
    storage.array[at] = 0 if by.pad is None else by.pad


def _for(s: For, scope: _Scope) -> None:
    carried = [_shaped(evaluate(c.init, scope), c.type, scope) for c in s.carry]
    for v in range(scope.dim(s.lo), scope.dim(s.hi), s.step):
        _bind(s.var, v, scope)
        scope.values.update((c.name, x) for c, x in zip(s.carry, carried))
        _run_block(s.body, scope)
        carried = [_shaped(evaluate(y, scope), c.type, scope) for c, y in zip(s.carry, s.yields, strict=True)]
    scope.values.update((c.result, x) for c, x in zip(s.carry, carried))


def _bind(symbol: Node, value: int, scope: _Scope) -> None:
    """Give a symbol its value, which must be one that it can have."""
    lo, hi, name = symbol["lo"], symbol["hi"], symbol["name"]
    fits = (lo is None or lo <= value) and (hi is None or value <= hi) and value % symbol["multiple"] == 0
    assert fits, f"{name} = {value}, which is declared from {lo} to {hi}, a multiple of {symbol['multiple']}"
    scope.symbols[name] = value


def _call(s: Call, scope: _Scope) -> None:
    inputs = [evaluate(w, scope) for w in s.inputs]
    windows = [t.window(w) for w in s.outputs]
    shapes = [scope.dims(w.extents) for w in windows]
    results = ROUTINES[s.routine](*inputs, shapes=shapes, **dict(s.attrs))
    for w, value in zip(windows, results):
        _store(w, value.astype(to_numpy(w.buffer.dtype)), None, None, scope)


# --- kernels and main ----------------------------------------------------------------------------------


def run_kernel(kernel: Kernel, buffers: Mapping[str, np.ndarray], symbols: Mapping[str, int], seed: int = 0) -> None:
    """Run all phases on the arrays of the kernel's inputs and outputs, by name; outputs are written in place.

    An array for a workspace buffer is where that buffer lives; without one it gets memory of its own.
    Raises `Error` where a `Check` fails, AssertionError where the kernel breaks a rule (an access outside a buffer, ...).
    """
    scope = _Scope({}, {})
    for symbol in kernel.symbols:
        _bind(symbol, symbols[symbol["name"]], scope)
    for b in (*kernel.inputs, *kernel.outputs):
        scope.buffers[b.name] = memory.adopt(b, buffers[b.name], scope.dims(b.shape), b in kernel.outputs)
    for b in kernel.workspace:
        extents = scope.dims(b.shape)
        given = buffers.get(b.name)
        scope.buffers[b.name] = memory.allocate(b, extents) if given is None else memory.adopt(b, given, extents, True)
    order = random.Random(seed)
    with np.errstate(all="ignore"):
        for phase in kernel.phases:
            _run_phase(phase, scope, order)
    for b in kernel.outputs:
        _give_back(scope.buffers[b.name], buffers[b.name])


def _give_back(storage: Storage, array: np.ndarray) -> None:
    """Copy an output to the caller's array where it lived in wider memory."""
    if storage.array is not array:
        array[...] = storage.elements


def _run_phase(phase: Grid, scope: _Scope, order: random.Random) -> None:
    steps = [range(0, scope.dim(a.extent), a.step) for a in phase.axes]
    blocks = list(itertools.product(*steps))
    order.shuffle(blocks)
    for block in blocks:
        inner = scope.inner()
        for a, v in zip(phase.axes, block):
            _bind(a.var, v, inner)
        _run_block(phase.body, inner)


def run_main(module: Module, inputs: Sequence[np.ndarray], seed: int = 0) -> list[np.ndarray]:
    """The outputs of `main` on arrays, one for each of its inputs.

    Raises `Error` where a size contradicts (TC0601), a `Check` fails or an assertion does not hold (TC0604, TC0605).
    """
    main = module.main
    assert main is not None, f"{module.name} is at stage {module.stage} and has no main"
    scope = _Scope(bind_sizes(main, inputs), {})
    given = {b.name: np.asarray(a) for b, a in zip(main.inputs, inputs, strict=True)}
    given.update((b.name, module.constants[b.name]) for b in main.constants)
    for b in (*main.inputs, *main.constants):
        scope.buffers[b.name] = memory.adopt(b, given[b.name], scope.dims(b.shape), False)
    later = {s.buffer.name for s in main.body if isinstance(s, Allocate)}
    try:
        for s in itertools.takewhile(lambda s: isinstance(s, Assert), main.body):  # sizes that buffers can have
            _demand(s, scope)
        for b in main.outputs:
            if b.name not in later:
                scope.buffers[b.name] = memory.allocate(b, scope.dims(b.shape))
        arena = np.full(scope.dim(main.arena), 0xFF, np.uint8)
        _MainRun(module, scope, random.Random(seed), is_planned(main), arena).run(main.body)
    except _Failed as fault:
        place = module.nodes[fault.node] if fault.node < len(module.nodes) else ""
        raise Error(fault.code, fault.found, place=place) from None
    return [scope.buffers[b.name].elements for b in main.outputs]


def _demand(s: MainStmt, scope: _Scope) -> None:
    if isinstance(s, Assert) and not scope.dim(s.cond):
        raise _Failed("TC0605", s.node)


def bind_sizes(main: Main, inputs: Sequence[np.ndarray]) -> dict[str, int]:
    """The value of each symbol of main, from the shapes of the inputs. TC0601 where these contradict main's."""
    sizes: dict[str, int] = {}
    for b, a in zip(main.inputs, inputs, strict=True):
        for d, n in zip(b.shape, np.shape(a)):
            if isinstance(d, Node) and d.op == "sym":
                sizes.setdefault(d["name"], n)
    scope = _Scope(sizes, {})
    for b, a in zip(main.inputs, inputs):
        if np.shape(a) != scope.dims(b.shape):
            raise Error("TC0601", f"{b.name}: shape {np.shape(a)}", f"{scope.dims(b.shape)}")
    return sizes


@dataclass(slots=True)
class _MainRun:
    """A run of main. planned: launches run in any order that `after` allows, between two statements that decide something;
    else in the order of the text."""

    module: Module
    scope: _Scope
    order: random.Random
    planned: bool
    arena: np.ndarray
    waiting: list[Launch] = field(default_factory=list)

    def run(self, body: Sequence[MainStmt]) -> None:
        for s in body:
            self._statement(s)
        self._finish()

    def _statement(self, s: MainStmt) -> None:
        scope = self.scope
        if isinstance(s, Allocate | Assert | Bind | Branch | Repeat | Swap):
            self._finish()
        match s:
            case Launch():
                self.waiting.append(s)
                if not self.planned:
                    self._finish()
            case Reserve():
                scope.buffers[s.buffer.name] = _reserve(s, self.arena, scope)
            case Alias():
                scope.buffers[s.buffer.name] = _alias(s, scope)
            case Assert():
                _demand(s, scope)
            case Bind():
                self._bind(s)
            case Allocate():
                scope.buffers[s.buffer.name] = memory.allocate(s.buffer, scope.dims(s.buffer.shape))
            case Swap():
                buffers = scope.buffers
                buffers[s.first], buffers[s.second] = buffers[s.second], buffers[s.first]
            case Branch() | Repeat():
                before, self.planned = self.planned, self.planned and not s.alone  # one thread keeps to the text
                self._control(s)
                self.planned = before
            case _:
                assert_never(s)

    def _bind(self, s: Bind) -> None:
        value = int(self.scope.buffers[s.source].elements.reshape(())[()])
        lo, hi = s.symbol["lo"], s.symbol["hi"]
        if (lo is not None and value < lo) or (hi is not None and value > hi):
            raise _Failed("TC0605", s.node)
        _bind(s.symbol, value, self.scope)

    def _control(self, s: Branch | Repeat) -> None:
        if isinstance(s, Branch):
            self.run(s.then if self._holds(s.cond) else s.orelse)
            return
        extent, step = None if s.extent is None else self.scope.dim(s.extent), 0
        while (extent is None or step < extent) and (s.go is None or self._holds(s.go)):
            _bind(s.var, step, self.scope)
            self.run(s.body)
            step += 1

    def _holds(self, name: str) -> bool:
        return bool(self.scope.buffers[name].elements.reshape(())[()])

    def _finish(self) -> None:
        """Run what waits. Of the launches in `after`, those that come later in the text have run in an earlier turn."""
        while self.waiting:
            place = {s.number: k for k, s in enumerate(self.waiting)}
            ready = [s for k, s in enumerate(self.waiting) if all(place.get(number, k) >= k for number in s.after)]
            s = self.order.choice(ready)
            self.waiting.remove(s)
            _launch(self.module.kernel(s.kernel), s, self.scope, self.order.randrange(1 << 30))


def _alias(s: Alias, scope: _Scope) -> Storage:
    source = scope.buffers[s.source]
    extents = scope.dims(s.buffer.shape)
    if s.offset is None:
        return Storage(s.buffer, source.array.reshape(extents), extents, source.writable)
    start, count = scope.dim(s.offset), int(np.prod(extents, dtype=np.int64))
    inside = start >= 0 and start + count <= source.array.size
    assert inside, f"{s.buffer.name}: elements {start} to {start + count} of {s.source}"
    part = source.array.reshape(-1)[start : start + count].reshape(extents)
    return Storage(s.buffer, part, extents, source.writable)


def _reserve(s: Reserve, arena: np.ndarray, scope: _Scope) -> Storage:
    """A buffer of main: garbage of its own, or its bytes of the arena (which reads as NaN at first)."""
    extents = scope.dims(s.buffer.shape)
    if s.offset is None:
        return memory.allocate(s.buffer, extents)
    covered = memory.room(s.buffer, extents)
    dtype = to_numpy(s.buffer.dtype)
    start, count = scope.dim(s.offset), int(np.prod(covered, dtype=np.int64)) * dtype.itemsize
    assert start >= 0 and start + count <= arena.size, f"{s.buffer.name}: bytes {start} to {start + count} of {arena.size}"
    return Storage(s.buffer, arena[start : start + count].view(dtype).reshape(covered), extents)


def _launch(kernel: Kernel, s: Launch, scope: _Scope, seed: int) -> None:
    symbols = {n["name"]: v for n, v in zip(kernel.symbols, scope.dims(s.symbols), strict=True)}
    parameters = (*kernel.inputs, *kernel.outputs)
    arrays = {b.name: scope.buffers[a].array for b, a in zip(parameters, s.arguments, strict=True)}
    planned = [(b.name, scope.buffers.get(s.workspace(b))) for b in kernel.workspace]
    arrays.update((name, storage.array) for name, storage in planned if storage is not None)
    run_kernel(kernel, arrays, symbols, seed)
