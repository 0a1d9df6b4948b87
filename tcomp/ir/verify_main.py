"""Legality of `main`: launches fit their kernels, nothing is read before it is written, and `after` orders all conflicts.

A main is *planned* once a `Reserve` has its offset or a launch waits for another: until then launches run in the order of the
text. Of a planned one it is checked that any order which `after` allows gives what the order of the text gives. Whether two
buffers of the arena share bytes is asked at sample values of the symbols: a conflict that is reported has a witness.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from tcomp.ir import index, layout
from tcomp.ir.index import show
from tcomp.ir.module import Module
from tcomp.ir.node import Dim, Node
from tcomp.ir.stmts import (
    Alias,
    Allocate,
    Assert,
    Bind,
    Branch,
    Kernel,
    Launch,
    Main,
    MainStmt,
    Repeat,
    Reserve,
    Swap,
    flat,
    is_planned,
    moving,
)
from tcomp.ir.types import Buffer
from tcomp.ir.verify_order import Path, Unit, order_faults
from tcomp.ir.verify_value import differ

Fault = tuple[Any, str]
SAMPLES = (0, 1, 2, 5, 17, 64, 129, 1000)


def main_faults(module: Module, main: Main) -> Iterator[Fault]:
    """Every fault of main."""
    memory = Memory(main)
    yield from _constant_faults(module, main)
    yield from _number_faults(main)
    memory.bound.update(main.sizes)
    yield from _declare(memory, (*main.inputs, *main.constants, *main.outputs))
    memory.bound.clear()
    memory.written.update(b.name for b in (*main.inputs, *main.constants))
    checker = _Checker(module, memory)
    yield from checker.body(main.body)
    for b in main.outputs:
        if memory.root(b.name) not in memory.written and 0 not in b.shape:
            yield main, f"the output `{b.name}` is never written"
    if is_planned(main):
        yield from order_faults(memory, checker.units)


def _number_faults(main: Main) -> Iterator[Fault]:
    """Numbers are unique; units wait for units of main."""
    numbered = [s for s in flat(main.body) if isinstance(s, Launch | Branch | Repeat | Bind | Allocate)]
    numbers = [s.number for s in numbered]
    for s in numbered:
        if numbers.count(s.number) > 1:
            yield s, f"a second launch {s.number}"
        after = () if isinstance(s, Allocate) else s.after
        yield from ((s, f"it waits for launch {k}, which is not there") for k in after if k not in numbers)
    names = [s.buffer.name for s in flat(main.body) if isinstance(s, Reserve)]
    yield from ((main, f"a second buffer named `{name}`") for name in dict.fromkeys(names) if names.count(name) > 1)


class _Checker:
    """Follows the statements of main; `units` are what threads take and wait for."""

    def __init__(self, module: Module, memory: Memory) -> None:
        self.memory = memory
        self.kernels = {k.name: k for k in module.kernels}
        self.units: list[Unit] = []

    def body(self, body: tuple[MainStmt, ...], path: Path = (), unit: Unit | None = None) -> Iterator[Fault]:
        for s in body:
            match s:
                case Reserve():
                    yield from self._reserve(s)
                case Alias():
                    yield from _alias(self.memory, s)
                case Assert():
                    yield from ((s, why) for why in _symbol_faults(self.memory, (s.cond,)))
                case Bind():
                    yield from self._bind(s, path, unit)
                case Allocate():
                    yield from self._allocate(s, path, unit)
                case Launch():
                    yield from ((s, why) for why in _launch_faults(self.memory, self.kernels, s))
                    self._add(s, path, unit)
                case Swap():
                    yield from ((s, why) for why in _swap_faults(self.memory, s))
                case Branch():
                    yield from self._branch(s, path, unit)
                case Repeat():
                    yield from self._repeat(s, path, unit)

    def _reserve(self, s: Reserve) -> Iterator[Fault]:
        memory = self.memory
        faults = [*_declare(memory, (s.buffer,), s), *((s, why) for why in _symbol_faults(memory, (s.offset or 0,)))]
        yield from faults
        if not faults:
            memory.written.discard(s.buffer.name)
            memory.reserve(s)

    def _bind(self, s: Bind, path: Path, unit: Unit | None) -> Iterator[Fault]:
        memory, source = self.memory, self.memory.buffers.get(s.source)
        if _is_looped(path) and unit is None:
            yield s, "a size that is bound inside a loop that several threads walk"
        if unit is not None:
            unit.reads.add(memory.root(s.source))
        if source is None or source.dtype.name != "i64" or any(d != 1 for d in source.shape):
            yield s, f"`{s.source}` is no buffer of one i64"
        elif memory.root(s.source) not in memory.written:
            yield s, f"`{s.source}` is read before it is written"
        if s.symbol not in memory.main.sizes or s.symbol in memory.bound:
            yield s, f"`{s.symbol['name']}` is no size of main that is still to be bound"
        memory.bound.add(s.symbol)

    def _allocate(self, s: Allocate, path: Path, unit: Unit | None) -> Iterator[Fault]:
        if _is_looped(path) and unit is None:
            yield s, "memory that is allocated inside a loop that several threads walk"
        self.memory.allocated.add(s.buffer.name)
        if s.buffer in self.memory.main.outputs:
            yield from ((s, why) for why in _symbol_faults(self.memory, s.buffer.shape))
        else:
            yield from _declare(self.memory, (s.buffer,), s)
        self.memory.written.discard(s.buffer.name)
        if unit is None:
            unit = Unit(s, path)
            self.units.append(unit)
        unit.writes.add(s.buffer.name)

    def _add(self, s: Launch, path: Path, unit: Unit | None) -> None:
        kernel = self.kernels.get(s.kernel)
        if kernel is None or any(a not in self.memory.buffers for a in s.arguments):
            return
        reads, writes = touched(kernel, s, self.memory)
        if unit is None:
            unit = Unit(s, path)
            self.units.append(unit)
        unit.reads.update(reads)
        unit.writes.update(writes)

    def _control(self, s: Branch | Repeat, cond: str | None, path: Path, unit: Unit | None) -> tuple[Unit | None, list[Fault]]:
        """The unit that the statements inside belong to, and faults of the condition."""
        faults: list[Fault] = []
        if unit is None and s.alone:
            unit = Unit(s, path)
            self.units.append(unit)
        if cond is not None:
            buffer = self.memory.buffers.get(cond)
            if buffer is None or buffer.dtype.kind != "bool" or any(d != 1 for d in buffer.shape):
                faults.append((s, f"`{cond}` is no buffer of one boolean"))
            elif self.memory.root(cond) not in self.memory.written:
                faults.append((s, f"`{cond}` is read before it is written"))
            if unit is not None:
                unit.reads.add(self.memory.root(cond))
        return unit, faults

    def _branch(self, s: Branch, path: Path, unit: Unit | None) -> Iterator[Fault]:
        unit, faults = self._control(s, s.cond, path, unit)
        yield from faults
        before = self.memory.state()
        yield from self.body(s.then, (*path, (s, 0)), unit)
        then = self.memory.written
        self.memory.restore(before)
        yield from self.body(s.orelse, (*path, (s, 1)), unit)
        both = then & self.memory.written
        self.memory.restore(before)
        self.memory.written = both

    def _repeat(self, s: Repeat, path: Path, unit: Unit | None) -> Iterator[Fault]:
        memory = self.memory
        unit, faults = self._control(s, s.go, path, unit)
        yield from faults
        yield from ((s, why) for why in _symbol_faults(memory, (s.extent or 0,)))
        if s.extent == 0:
            return  # nothing can be wrong in it
        before, units = memory.state(), list(self.units)
        memory.loops[s.var] = s.extent
        faults = list(self.body(s.body, (*path, (s, 0)), unit))
        after = self.units
        if not faults:  # once more, from what the turn leaves
            memory.restore(replace(before, written=self._known(before)))
            memory.loops[s.var] = s.extent
            self.units = list(units)
            faults = list(self.body(s.body, (*path, (s, 0)), unit and Unit(s, path)))
        self.units = after
        yield from faults
        whole = {memory.root(a.source) for a in s.body if isinstance(a, Alias) and a.offset is not None}
        kept = before.written & memory.written | whole & memory.written
        memory.restore(before)
        memory.written = kept

    def _known(self, before: Memory) -> set[str]:
        """What is written when the second turn begins, of what is known outside."""
        return {name for name in self.memory.written if name in before.buffers}


def _is_looped(path: Path) -> bool:
    return any(isinstance(s, Repeat) for s, _ in path)


def _swap_faults(memory: Memory, s: Swap) -> Iterator[str]:
    one, two = memory.buffers.get(s.first), memory.buffers.get(s.second)
    if one is None or two is None or {s.first, s.second} & memory.sources.keys():
        yield "a swap of what is no memory of its own"
        return
    foreign = {b.name for b in (*memory.main.inputs, *memory.main.outputs, *memory.main.constants)}
    if {s.first, s.second} & foreign:
        yield "a swap of the caller's memory"
    moved = {s.first, s.second} <= memory.moving
    if moved and not {s.first, s.second} <= memory.allocated:
        yield f"`{s.first}` and `{s.second}` are not both allocated"
    if replace(one, name="", shape=two.shape if moved and one.rank == two.rank else one.shape) != replace(two, name=""):
        yield f"`{s.first}` and `{s.second}` are of different types"
    memory.swap(s.first, s.second)


@dataclass(slots=True)
class Memory:
    """The buffers of main so far: whose memory each is, what has been written, where the arena holds it."""

    main: Main
    buffers: dict[str, Buffer] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)
    spans: dict[str, list[tuple[int, int]]] = field(default_factory=dict)  # bytes of the arena, at each sample of the symbols
    bound: set[Node] = field(default_factory=set)  # symbols that data has given
    loops: dict[Node, Dim | None] = field(default_factory=dict)  # variables of the loops around, and their ends
    swaps: dict[str, set[str]] = field(default_factory=dict)  # what each buffer that swaps may hold the memory of
    allocated: set[str] = field(default_factory=set)
    moving: set[str] = field(init=False)

    def __post_init__(self) -> None:
        self.moving = moving(self.main.body)

    def swap(self, a: str, b: str) -> None:
        """After the swap, each has been written if the other was before."""
        both = self.swaps.get(a, {a}) | self.swaps.get(b, {b})
        self.swaps.update((name, both) for name in both)
        was = a in self.written, b in self.written
        self.written -= {a, b}
        self.written |= {name for name, written in ((b, was[0]), (a, was[1])) if written}

    def state(self) -> Memory:
        """What is known here; `restore` comes back to it."""
        buffers, sources, written, loops = dict(self.buffers), dict(self.sources), set(self.written), dict(self.loops)
        return replace(self, buffers=buffers, sources=sources, written=written, loops=loops, bound=set(self.bound))

    def restore(self, before: Memory) -> None:
        self.buffers, self.sources = dict(before.buffers), dict(before.sources)
        self.written, self.loops, self.bound = set(before.written), dict(before.loops), set(before.bound)

    def root(self, name: str) -> str:
        """The buffer whose memory `name` is."""
        while name in self.sources:
            name = self.sources[name]
        return name

    def overlap(self, a: str, b: str) -> str | None:
        """A witness that two roots share memory (the values of the symbols), or None."""
        if a == b:
            return "the same buffer"
        for values, (b0, e0), (b1, e1) in zip(self._samples(), self.spans.get(a, ()), self.spans.get(b, ())):
            if max(b0, b1) < min(e0, e1):
                where = ", ".join(f"{k} = {v}" for k, v in values.items())
                return f"bytes {max(b0, b1)} to {min(e0, e1)} of the arena" + (f" at {where}" if where else "")
        return None

    def reserve(self, s: Reserve) -> None:
        """Remember where a planned buffer lies."""
        if s.offset is not None:
            ends = s.offset, index.add(s.offset, layout.size(s.buffer))
            at = [tuple(index.evaluate(d, self._with_loops(values)) for d in ends) for values in self._samples()]
            self.spans[s.buffer.name] = [(b, e) for b, e in at]

    def _samples(self) -> tuple[dict[str, int], ...]:
        """Values that the symbols may have, those that data gives too."""
        return samples((*self.main.symbols, *self.main.sizes))

    def _with_loops(self, values: dict[str, int]) -> dict[str, int]:
        """The values, and the variables of the loops around in their last turn."""
        out = dict(values)
        for var, extent in self.loops.items():
            out[var["name"]] = 0 if extent is None else max(0, index.evaluate(extent, out) - 1)
        return out


@cache
def samples(symbols: tuple[Node, ...]) -> tuple[dict[str, int], ...]:
    """Values that the symbols may have together: all alike, then each large alone."""
    alike = [{s["name"]: index.nearest(s, v) for s in symbols} for v in SAMPLES]
    alone = [{s["name"]: index.nearest(s, 300 if s is one else 1) for s in symbols} for one in symbols]
    return tuple(alike + alone) if symbols else ({},)


def _constant_faults(module: Module, main: Main) -> Iterator[Fault]:
    for b in main.constants:
        array = module.constants.get(b.name)
        if array is None:
            yield b, f"the module has no constant `{b.name}`"
        elif array.shape != b.shape:
            yield b, f"the constant `{b.name}` is of shape {array.shape}"


def _declare(memory: Memory, buffers: tuple[Buffer, ...], owner: Any = None) -> Iterator[Fault]:
    for b in buffers:
        if b.name in memory.buffers:
            yield owner or memory.main, f"a second buffer named `{b.name}`"
        memory.buffers[b.name] = b
        for why in _symbol_faults(memory, b.shape):
            yield owner or memory.main, why


def _symbol_faults(memory: Memory, dims: tuple[Dim, ...]) -> Iterator[str]:
    for s in index.symbols(dims):
        if s not in memory.main.symbols and s not in memory.loops and s not in memory.bound:
            yield f"the symbol `{show(s)}` is not declared with these bounds"


def _alias(memory: Memory, s: Alias) -> Iterator[Fault]:
    """An alias names known memory; an output may be one: then it is declared already."""
    if s.source not in memory.buffers:
        yield s, f"`{s.source}` is no buffer"
        return
    source = memory.buffers[s.source]
    if s.buffer.name in memory.sources or (s.buffer.name in memory.buffers and s.buffer not in memory.main.outputs):
        yield s, f"a second buffer named `{s.buffer.name}`"
    data = set(memory.main.sizes).intersection(index.symbols((*source.shape, *s.buffer.shape)))
    known = s.offset is None and s.source not in memory.moving and not data
    if source.dtype != s.buffer.dtype or (known and _sizes_differ(source, s.buffer)):
        yield s, f"`{s.buffer.name}` and `{s.source}` do not hold the same elements"
    yield from ((s, why) for why in _symbol_faults(memory, (*s.buffer.shape, s.offset or 0)))
    end = index.add(s.offset or 0, index.product(s.buffer.shape))
    if s.offset is not None and (index.bounds(index.sub(index.product(source.shape), end))[1] or 0) < 0:
        yield s, f"`{s.buffer.name}` ends outside of `{s.source}`"
    if source.order is not None or s.buffer.order is not None or source.pad or s.buffer.pad:
        yield s, "an alias of memory that is not row-major"
    memory.buffers[s.buffer.name] = s.buffer
    memory.sources[s.buffer.name] = s.source


def _sizes_differ(a: Buffer, b: Buffer) -> bool:
    return differ(index.product(a.shape), index.product(b.shape))


# --- launches ------------------------------------------------------------------------------------------


def _launch_faults(memory: Memory, kernels: dict[str, Kernel], s: Launch) -> Iterator[str]:
    kernel = kernels.get(s.kernel)
    if kernel is None:
        yield f"there is no kernel `{s.kernel}`"
        return
    yield from _symbol_faults(memory, s.symbols)
    if len(s.symbols) != len(kernel.symbols):
        yield f"{len(s.symbols)} values for the {len(kernel.symbols)} symbols of `{kernel.name}`"
        return
    yield from _value_faults(kernel, s)
    parameters = (*kernel.inputs, *kernel.outputs)
    if len(s.arguments) != len(parameters):
        yield f"{len(s.arguments)} arguments for the {len(parameters)} buffers of `{kernel.name}`"
        return
    missing = [a for a in s.arguments if a not in memory.buffers]
    yield from (f"`{a}` is no buffer" for a in missing)
    if missing:
        return
    for a, b in zip(s.arguments, parameters):
        yield from _argument_faults(memory.buffers[a], b, dict(zip(kernel.symbols, s.symbols)))
    yield from _memory_faults(memory.main, memory, kernel, s)


def _value_faults(kernel: Kernel, s: Launch) -> Iterator[str]:
    """The value of each symbol of the kernel lies within its bounds, unless that cannot be told."""
    for n, v in zip(kernel.symbols, s.symbols):
        lo, hi = index.bounds(v)
        below = n["lo"] is not None and hi is not None and hi < n["lo"]
        above = n["hi"] is not None and lo is not None and lo > n["hi"]
        if below or above or (isinstance(v, int) and v % n["multiple"]):
            yield f"{show(v)} for the symbol `{n['name']}`, which cannot be that"


def _argument_faults(given: Buffer, wanted: Buffer, values: dict[Node, Dim]) -> Iterator[str]:
    shape = tuple(index.substitute(d, values) for d in wanted.shape)
    text = f"`{given.name}` for `{wanted.name}`"
    if given.dtype != wanted.dtype or given.rank != wanted.rank:
        yield f"{text}: {given.dtype} of rank {given.rank} for {wanted.dtype} of rank {wanted.rank}"
        return
    if any(differ(a, b) for a, b in zip(given.shape, shape)):
        yield f"{text}: shape [{', '.join(map(show, given.shape))}] for [{', '.join(map(show, shape))}]"
    if (given.order, given.pad) != (wanted.order, wanted.pad):
        yield f"{text}: memory of another order"


def touched(kernel: Kernel, s: Launch, memory: Memory) -> tuple[list[str], list[str]]:
    """The roots that a launch reads, and those it writes (its workspace among them once memory is planned)."""
    count = len(kernel.inputs)
    scratch = [name for b in kernel.workspace if (name := s.workspace(b)) in memory.buffers]
    reads = [memory.root(a) for a in s.arguments[:count]]
    return reads, [memory.root(a) for a in (*s.arguments[count:], *scratch)]


def _memory_faults(main: Main, memory: Memory, kernel: Kernel, s: Launch) -> Iterator[str]:
    """What it reads has been written and not overwritten since; what it writes is neither foreign nor what it reads."""
    reads, writes = touched(kernel, s, memory)
    yield from (
        f"`{r}` is read before it is written, or after its memory was used again" for r in reads if r not in memory.written
    )
    fixed = {b.name for b in (*main.inputs, *main.constants)}
    yield from (f"it writes `{w}`, which is an input or a constant" for w in writes if w in fixed)
    for k, w in enumerate(writes):
        for other in (*reads, *writes[:k]):
            witness = memory.overlap(w, other)
            if witness is not None:
                yield f"it writes `{w}` and uses `{other}`: {witness}"
    for w in writes:
        memory.written -= {r for r in memory.written if r != w and memory.overlap(r, w) is not None}
    memory.written.update(writes)
