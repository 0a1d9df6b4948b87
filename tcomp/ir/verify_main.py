"""Legality of `main`: launches fit their kernels, nothing is read before it is written, and `after` orders all conflicts.

A main is *planned* once a `Reserve` has its offset or a launch waits for another: until then launches run in the order of the
text. Of a planned one it is checked that any order which `after` allows gives what the order of the text gives. Whether two
buffers of the arena share bytes is asked at sample values of the symbols: a conflict that is reported has a witness.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from tcomp.ir import index, layout
from tcomp.ir.index import show
from tcomp.ir.module import Module
from tcomp.ir.node import Dim, Node
from tcomp.ir.stmts import Alias, Assert, Kernel, Launch, Main, Reserve, is_planned
from tcomp.ir.types import Buffer

Fault = tuple[Any, str]
SAMPLES = (0, 1, 2, 5, 17, 64, 129, 1000)


def main_faults(module: Module, main: Main) -> Iterator[Fault]:
    """Every fault of main."""
    memory = _Memory(main)
    yield from _constant_faults(module, main)
    yield from _declare(memory, (*main.inputs, *main.constants, *main.outputs))
    memory.written.update(b.name for b in (*main.inputs, *main.constants))
    kernels = {k.name: k for k in module.kernels}
    done: dict[int, Launch] = {}
    for s in main.body:
        match s:
            case Reserve():
                faults = [*_declare(memory, (s.buffer,), s), *((s, why) for why in _symbol_faults(main, (s.offset or 0,)))]
                yield from faults
                if not faults:
                    memory.reserve(s)
            case Alias():
                yield from _alias(memory, s)
            case Assert():
                yield from ((s, why) for why in _symbol_faults(main, (s.cond,)))
            case Launch():
                yield from ((s, why) for why in _launch_faults(module, main, memory, kernels, s, done))
                done[s.number] = s
    for b in main.outputs:
        if memory.root(b.name) not in memory.written and 0 not in b.shape:
            yield main, f"the output `{b.name}` is never written"
    if is_planned(main):
        yield from _order_faults(memory, kernels, list(done.values()))


@dataclass(slots=True)
class _Memory:
    """The buffers of main so far: whose memory each is, what has been written, where the arena holds it."""

    main: Main
    buffers: dict[str, Buffer] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)
    spans: dict[str, list[tuple[int, int]]] = field(default_factory=dict)  # bytes of the arena, at each sample of the symbols

    def root(self, name: str) -> str:
        """The buffer whose memory `name` is."""
        while name in self.sources:
            name = self.sources[name]
        return name

    def overlap(self, a: str, b: str) -> str | None:
        """A witness that two roots share memory (the values of the symbols), or None."""
        if a == b:
            return "the same buffer"
        for values, (b0, e0), (b1, e1) in zip(samples(self.main.symbols), self.spans.get(a, ()), self.spans.get(b, ())):
            if max(b0, b1) < min(e0, e1):
                where = ", ".join(f"{k} = {v}" for k, v in values.items())
                return f"bytes {max(b0, b1)} to {min(e0, e1)} of the arena" + (f" at {where}" if where else "")
        return None

    def reserve(self, s: Reserve) -> None:
        """Remember where a planned buffer lies."""
        if s.offset is not None:
            ends = s.offset, index.add(s.offset, layout.size(s.buffer))
            at = [tuple(index.evaluate(d, values) for d in ends) for values in samples(self.main.symbols)]
            self.spans[s.buffer.name] = [(b, e) for b, e in at]


@cache
def samples(symbols: tuple[Node, ...]) -> tuple[dict[str, int], ...]:
    """Values that the symbols may have together: all alike, then each large alone."""
    alike = [{s["name"]: _legal(s, v) for s in symbols} for v in SAMPLES]
    alone = [{s["name"]: _legal(s, 300 if s is one else 1) for s in symbols} for one in symbols]
    return tuple(alike + alone) if symbols else ({},)


def _legal(symbol: Node, value: int) -> int:
    """The value nearest to `value` that the symbol may have."""
    m = symbol["multiple"]
    low = -(-(symbol["lo"] if symbol["lo"] is not None else value) // m) * m
    value = max(low, value // m * m)
    return value if symbol["hi"] is None else max(low, min(value, symbol["hi"] // m * m))


def _constant_faults(module: Module, main: Main) -> Iterator[Fault]:
    for b in main.constants:
        array = module.constants.get(b.name)
        if array is None:
            yield b, f"the module has no constant `{b.name}`"
        elif array.shape != b.shape:
            yield b, f"the constant `{b.name}` is of shape {array.shape}"


def _declare(memory: _Memory, buffers: tuple[Buffer, ...], owner: Any = None) -> Iterator[Fault]:
    for b in buffers:
        if b.name in memory.buffers:
            yield owner or memory.main, f"a second buffer named `{b.name}`"
        memory.buffers[b.name] = b
        for why in _symbol_faults(memory.main, b.shape):
            yield owner or memory.main, why


def _symbol_faults(main: Main, dims: tuple[Dim, ...]) -> Iterator[str]:
    for s in index.symbols(dims):
        if s not in main.symbols:
            yield f"the symbol `{show(s)}` is not declared with these bounds"


def _alias(memory: _Memory, s: Alias) -> Iterator[Fault]:
    """An alias names known memory; an output may be one: then it is declared already."""
    if s.source not in memory.buffers:
        yield s, f"`{s.source}` is no buffer"
        return
    source = memory.buffers[s.source]
    if s.buffer.name in memory.sources or (s.buffer.name in memory.buffers and s.buffer not in memory.main.outputs):
        yield s, f"a second buffer named `{s.buffer.name}`"
    if source.dtype != s.buffer.dtype or differ(index.product(source.shape), index.product(s.buffer.shape)):
        yield s, f"`{s.buffer.name}` and `{s.source}` do not hold the same elements"
    if source.order is not None or s.buffer.order is not None or source.pad or s.buffer.pad:
        yield s, "an alias of memory that is not row-major"
    memory.buffers[s.buffer.name] = s.buffer
    memory.sources[s.buffer.name] = s.source


def differ(a: Dim, b: Dim) -> bool:
    """Whether two sizes are different for certain."""
    lo, hi = index.bounds(index.sub(a, b))
    return (lo is not None and lo > 0) or (hi is not None and hi < 0)


# --- launches ------------------------------------------------------------------------------------------


def _launch_faults(
    module: Module, main: Main, memory: _Memory, kernels: dict[str, Kernel], s: Launch, done: dict[int, Launch]
) -> Iterator[str]:
    kernel = kernels.get(s.kernel)
    if kernel is None:
        yield f"there is no kernel `{s.kernel}`"
        return
    if s.number in done:
        yield f"a second launch {s.number}"
    yield from (f"it waits for launch {k}, which does not come before it" for k in s.after if k not in done)
    yield from _symbol_faults(main, s.symbols)
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
    yield from _memory_faults(main, memory, kernel, s)


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


def touched(kernel: Kernel, s: Launch, memory: _Memory) -> tuple[list[str], list[str]]:
    """The roots that a launch reads, and those it writes (its workspace among them once memory is planned)."""
    count = len(kernel.inputs)
    scratch = [name for b in kernel.workspace if (name := s.workspace(b)) in memory.buffers]
    reads = [memory.root(a) for a in s.arguments[:count]]
    return reads, [memory.root(a) for a in (*s.arguments[count:], *scratch)]


def _memory_faults(main: Main, memory: _Memory, kernel: Kernel, s: Launch) -> Iterator[str]:
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


def _order_faults(memory: _Memory, kernels: dict[str, Kernel], launches: list[Launch]) -> Iterator[Fault]:
    """Of two launches that touch the same bytes, one writing, the later must wait for the earlier, or for one that does."""
    known = [s for s in launches if s.kernel in kernels and all(a in memory.buffers for a in s.arguments)]
    uses = {s.number: touched(kernels[s.kernel], s, memory) for s in known}
    before: dict[int, set[int]] = {}
    for k, s in enumerate(known):
        before[s.number] = set(s.after).union(*(before.get(a, set()) for a in s.after))
        for p in known[:k]:
            if p.number in before[s.number]:
                continue
            why = _conflict(memory, uses[p.number], uses[s.number])
            if why is not None:
                yield s, f"it does not wait for launch {p.number}: {why}"


def _conflict(memory: _Memory, first: tuple[list[str], list[str]], then: tuple[list[str], list[str]]) -> str | None:
    (reads, writes), (later_reads, later_writes) = first, then
    pairs = itertools.chain(
        itertools.product(writes, (*later_reads, *later_writes)),
        itertools.product(reads, later_writes),
    )
    for a, b in pairs:
        witness = memory.overlap(a, b)
        if witness is not None:
            return f"`{a}` and `{b}`: {witness}" if a != b else f"both use `{a}`"
    return None
