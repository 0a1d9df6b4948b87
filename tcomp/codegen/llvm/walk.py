"""`<entry>`: how every thread of a call walks main.

All threads run the same statements. At each launch they wait for the units that it needs, take blocks until none is left, and go
on; nobody waits for a unit that it does not need. A *unit* is a launch, or a control statement that one thread runs alone with
all inside. Each phase of a unit has two lines of counters, blocks taken and blocks done; waiting for the done blocks of one phase
is the barrier before the next. A thread alone (slot 1 of the frame is 1 or 0) counts nothing. After a fault all threads leave at
their next wait, or when they meet it.

Inside control statements a thread keeps for each phase how many blocks the turns so far had: what it waits for, and where the
next turn begins. It may be turns behind the others: then it finds all blocks taken, and where it reads a condition that a later
turn may have overwritten it leaves main, since those ahead finish the call.

Buffers that swap are pointers of the thread. A unit that runs alone leaves each of them where it was before: others have not
seen it swap. But what it allocates and swaps is *cells*: address and number of bytes lie in the lines of the counters, where
the others find them after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Protocol, assert_never

from tcomp.codegen.llvm.builder import FunctionBuilder, ModuleBuilder
from tcomp.codegen.llvm.dims import Dims
from tcomp.codegen.llvm.main_helpers import allocating, helpers
from tcomp.ir import index, layout
from tcomp.ir.machine import Machine
from tcomp.ir.module import Module
from tcomp.ir.node import Dim, Node
from tcomp.ir.stmts import (
    Alias,
    Allocate,
    Assert,
    Bind,
    Branch,
    Check,
    Grid,
    Kernel,
    Launch,
    Main,
    MainStmt,
    Repeat,
    Reserve,
    Swap,
    bodies,
    deep,
    flat,
    moving,
)
from tcomp.ir.types import Buffer

_LINE = 64  # bytes of one counter, alone on its cache line
NARROW = 1  # blocks of a launch up to which one thread runs it as fast as several
_TABLES = {"arena": 2, "scratch": 3, "constants": 4, "counters": 5, "symbols": 6, "inputs": 7, "outputs": 8}


class KernelFunctions(Protocol):
    """What the code of a kernel is called: a function for each phase; scratch: bytes that a thread needs."""

    @property
    def phases(self) -> tuple[str, ...]: ...

    @property
    def scratch(self) -> int: ...


@dataclass(frozen=True, slots=True)
class _Unit:
    """line: the first of its counters, two for each phase. sums: inside control statements, where a thread keeps how many blocks
    each phase had in the turns so far. looped: whether it may run again."""

    line: int
    phases: int
    sums: tuple[str, ...]
    looped: bool


@dataclass(frozen=True, slots=True)
class _Place:
    """Where statements stand: inside a control statement, inside a loop, in a unit that one thread runs alone."""

    nested: bool = False
    looped: bool = False
    alone: bool = False


class Walk:
    """Writes `<entry>`."""

    def __init__(self, module: ModuleBuilder, program: Module, main: Main, codes: Mapping[str, KernelFunctions]) -> None:
        self._main, self._codes = main, codes
        self._kernels = {k.name: k for k in program.kernels}
        self._f = FunctionBuilder(module)
        self._tables = {name: load(self._f, "ptr", "%frame", k) for name, k in _TABLES.items()}
        self._dims = Dims(self._f, load_symbols(self._f, self._tables["symbols"], main))
        self._places = _ports(main)
        self._outputs = {b.name: k for k, b in enumerate(main.outputs)}
        self._aliases: dict[str, Alias] = {}
        swaps = [s for s in flat(main.body) if isinstance(s, Swap)]
        self._cells = moving(main.body) & _swapped_alone(main.body)
        self._pointers = {name: self._f.alloca(8, 8) for s in swaps for name in (s.first, s.second) if name not in self._cells}
        self._sizes: dict[str, Dim] = {}  # bytes of the buffers that swap
        self._lines = 0
        self._units: dict[int, _Unit] = {}
        self._around = _loops_around(main.body, ())  # of every unit
        self._number_units(main.body, _Place())
        self._number_rest(main.body)
        self._blocks: dict[int, str] = {}  # of the last phase of each unit outside control statements
        self._finished: set[int] = set()  # units that this thread has waited for, whichever way it came

    def _number_units(self, body: tuple[MainStmt, ...], place: _Place) -> None:
        """Give each unit its counters."""
        for s in body:
            if isinstance(s, Launch):
                self._number(s.number, len(self._codes[s.kernel].phases), place)
            elif isinstance(s, Allocate) or (isinstance(s, Branch | Repeat) and s.alone):
                self._number(s.number, 1, place)
            elif isinstance(s, Branch | Repeat):
                if isinstance(s, Repeat):
                    self._number(s.number, 1, place)
                inside = _Place(True, place.looped or isinstance(s, Repeat))
                for inner in bodies(s):
                    self._number_units(inner, inside)

    def _number_rest(self, body: tuple[MainStmt, ...]) -> None:
        """Give each allocation that one thread makes on its way a line for the address; the profile knows of no such lines."""
        for s in flat(body):
            if isinstance(s, Allocate) and s.number not in self._units:
                self._number(s.number, 1, _Place())

    def _number(self, number: int, phases: int, place: _Place) -> None:
        sums = tuple(self._sum() for _ in range(phases)) if place.nested else ()
        self._units[number] = _Unit(self._lines, phases, sums, place.looped)
        self._lines += 2 * phases

    def _sum(self) -> str:
        """A place of the thread for a number; 0 when main begins."""
        place = self._f.alloca(8, 8)
        self._f.entry.append(f"  store i64 0, ptr {place}, align 8")
        return place

    def emit(self, entry: str, scratch: int, machine: Machine) -> int:
        """Add the function and its helpers to the module; the number of counter lines."""
        f = self._f
        helpers(f.module, machine)
        if any(isinstance(s, Allocate) for s in flat(self._main.body)):
            allocating(f.module)
        own = f.value(f"mul i64 %thread, {scratch}")
        self._scratch = f.value(f"getelementptr i8, ptr {self._tables['scratch']}, i64 {own}")
        launches = [s for s in flat(self._main.body) if isinstance(s, Launch)]
        self._slots = f.alloca(8 * max((len(self._arguments(s)) for s in launches), default=0))
        self._body(self._main.body, _Place())
        f.branch("out")
        f.start("out")
        f.effect("ret void")
        f.module.add(f"define void @{entry}(ptr %frame, i64 %thread) nounwind {{\n{f.body()}\n}}")
        return self._lines

    def _body(self, body: tuple[MainStmt, ...], place: _Place) -> None:
        for s in body:
            match s:
                case Launch():
                    self._launch(s, place)
                case Reserve():
                    self._reserve(s)
                case Alias():
                    self._aliases[s.buffer.name] = s
                case Swap():
                    self._swap(s)
                case Bind():
                    self._bind(s, place)
                case Allocate() if place.alone:
                    self._grow(s)
                case Allocate():
                    self._allocate(s)
                case Branch() | Repeat() if s.alone and not place.alone:
                    self._unit(s, place)
                case Branch():
                    self._branch(s, place)
                case Repeat() if not place.alone:
                    self._turns(s, place)
                case Repeat():
                    self._repeat(s, place)
                case Assert():
                    self._assert(s, place)
                case _:
                    assert_never(s)

    # --- buffers --------------------------------------------------------------------------------------

    def _reserve(self, s: Reserve) -> None:
        assert s.offset is not None, f"{s.buffer.name} has no place: memory_plan comes first"
        self._places[s.buffer.name] = ("arena", s.offset)
        if s.buffer.name in self._pointers:
            self._start_pointer(s.buffer)

    def _bind(self, s: Bind, place: _Place) -> None:
        """A size from memory, the same for all threads that read it: nobody writes it again, or this thread runs alone."""
        if not place.alone:
            self._wait_all(s.after)
        f, lo, hi = self._f, s.symbol["lo"], s.symbol["hi"]
        value = load(f, "i64", self._address(s.source), 0)
        self._dims = self._dims.inner({s.symbol["name"]: value})
        for bound, outside in ((lo, "slt"), (hi, "sgt")):
            if bound is not None:
                wrong = f.value(f"icmp {outside} i64 {value}, {bound}")
                self._leave_if(f"call i1 @main.refuse(i1 {wrong}, i64 {2 << 32 | s.node}, ptr %frame)")

    def _assert(self, s: Assert, place: _Place) -> None:
        """Unless the plan has checked it: that is outside of control flow, and known before the call."""
        if place.nested or not set(self._main.symbols).issuperset(index.symbols([s.cond])):
            wrong = self._f.value(f"icmp eq i64 {self._dims.value(s.cond)}, 0")
            self._leave_if(f"call i1 @main.refuse(i1 {wrong}, i64 {2 << 32 | s.node}, ptr %frame)")

    def _grow(self, s: Allocate) -> None:
        """Memory in a unit that this thread runs alone: what the turn before left is used again where it is enough."""
        line = self._line(self._units[s.number].line)
        size, rough = self._dims.value(layout.size(s.buffer)), self._dims.rough(layout.size(s.buffer))
        self._leave_if(f"call i1 @main.grow(i64 {size}, double {rough}, ptr {slot(self._f, line, 1)}, ptr %frame)")
        self._places[s.buffer.name] = ("kept", self._units[s.number].line)

    def _allocate(self, s: Allocate) -> None:
        """One thread allocates, and puts the address where others find it: in the unit's line, or in the table of outputs."""
        f, unit, output = self._f, self._units[s.number], self._outputs.get(s.buffer.name)
        if unit.sums:
            self._advance(unit.sums[0], "1")
        else:
            self._blocks[s.number] = "1"
        line = self._line(unit.line)
        run, on = f.fresh("run"), f.fresh("on")
        f.branch_if(f.value(f"call i1 @main.unit(ptr {line}, i64 0, ptr %frame)"), run, on)
        f.start(run)
        began = f.value("call i64 @main.began(ptr %frame)")
        outer = self._dims
        self._dims = outer.inner({})
        size, rough = self._dims.value(layout.size(s.buffer)), self._dims.rough(layout.size(s.buffer))
        kept = "false" if output is not None else "true"
        place = slot(f, line, 1) if output is None else slot(f, self._tables["outputs"], output)
        self._leave_if(f"call i1 @main.allocate(i64 {size}, double {rough}, ptr {place}, i1 {kept}, ptr %frame)")
        if s.buffer.name in self._cells:
            f.effect(f"store i64 {size}, ptr {slot(f, line, 2)}, align 8")
        if output is not None:
            first = sum(len(b.shape) for b in self._main.outputs[:output])
            for k, d in enumerate(s.buffer.shape, first):
                f.effect(f"store i64 {self._dims.value(d)}, ptr {slot(f, load(f, 'ptr', '%frame', 9), k)}, align 8")
        else:
            self._places[s.buffer.name] = ("kept", unit.line)
        self._dims = outer
        f.effect(f"call void @main.end(ptr {line}, i64 {began}, ptr %frame)")
        f.branch(on)
        f.start(on)
        if s.buffer.name in self._pointers:
            self._wait_all((s.number,))
            self._start_pointer(s.buffer)

    def _start_pointer(self, buffer: Buffer) -> None:
        """A buffer that swaps begins where it was reserved."""
        self._sizes[buffer.name] = layout.size(buffer)
        self._f.effect(f"store ptr {self._home(buffer.name)}, ptr {self._pointers[buffer.name]}, align 8")

    def _swap(self, s: Swap) -> None:
        if s.first in self._cells:
            self._exchange(s)
            return
        one, two = self._pointers[s.first], self._pointers[s.second]
        a, b = (self._f.value(f"load ptr, ptr {p}, align 8") for p in (one, two))
        self._f.effect(f"store ptr {b}, ptr {one}, align 8")
        self._f.effect(f"store ptr {a}, ptr {two}, align 8")

    def _exchange(self, s: Swap) -> None:
        """Two allocated buffers exchange addresses and numbers of bytes, where all threads look."""
        f, lines = self._f, [self._line(int(self._places[name][1])) for name in (s.first, s.second)]  # type: ignore[arg-type]
        for k in (1, 2):
            one, two = (slot(f, line, k) for line in lines)
            a, b = (f.value(f"load i64, ptr {place}, align 8") for place in (one, two))
            f.effect(f"store i64 {b}, ptr {one}, align 8")
            f.effect(f"store i64 {a}, ptr {two}, align 8")

    def _home(self, name: str) -> str:
        """The address of a buffer where no swap has moved it."""
        table, at = self._places[name]
        if table == "kept":
            assert isinstance(at, int)
            return load(self._f, "ptr", self._line(at), 1)
        if table == "arena":
            return self._f.value(f"getelementptr i8, ptr {self._tables['arena']}, i64 {self._dims.value(at)}")
        assert isinstance(at, int)
        return load(self._f, "ptr", self._tables[table], at)

    def _address(self, name: str) -> str:
        """The address of a buffer of main."""
        offset: Dim = 0
        while name in self._aliases:
            alias = self._aliases[name]
            if alias.offset is not None:
                offset = index.add(offset, index.mul(alias.offset, alias.buffer.dtype.bytes))
            name = alias.source
        pointer = self._pointers.get(name)
        base = self._home(name) if pointer is None else self._f.value(f"load ptr, ptr {pointer}, align 8")
        return base if offset == 0 else self._f.value(f"getelementptr i8, ptr {base}, i64 {self._dims.value(offset)}")

    # --- launches -------------------------------------------------------------------------------------

    def _launch(self, launch: Launch, place: _Place) -> None:
        if not place.alone:
            self._wait_all(launch.after)
        for k, value in enumerate(self._arguments(launch)):
            self._store_argument(k, value)
        kernel = self._kernels[launch.kernel]
        for k, (name, grid) in enumerate(zip(self._codes[launch.kernel].phases, kernel.phases, strict=True)):
            count = self._dims.value(blocks(grid, kernel, launch))
            if place.alone:
                self._leave_if(
                    f"call i1 @main.range(ptr @{name}, ptr {self._slots}, i64 0, i64 {count}, ptr %frame, ptr {self._scratch})"
                )
                continue
            if k:
                self._wait(launch.number, k - 1)
            self._phase(name, count, launch.number, k)

    def _phase(self, name: str, count: str, number: int, k: int) -> None:
        """Take and run blocks of phase `k` of a unit."""
        self._finished.discard(number)
        unit = self._units[number]
        line, arguments = self._line(unit.line + 2 * k), f"ptr @{name}, ptr {self._slots}, i64 {count}"
        if not unit.sums:
            self._blocks[number] = count
            self._leave_if(f"call i1 @main.phase({arguments}, ptr {line}, ptr %frame, ptr {self._scratch})")
            return
        base = self._advance(unit.sums[k], count)
        self._leave_if(f"call i1 @main.turn({arguments}, i64 {base}, ptr {line}, ptr %frame, ptr {self._scratch})")

    def _advance(self, place: str, count: str) -> str:
        """The number in a place of the thread, to which `count` is added there."""
        before = self._f.value(f"load i64, ptr {place}, align 8")
        after = self._f.value(f"add i64 {before}, {count}")
        self._f.effect(f"store i64 {after}, ptr {place}, align 8")
        return before

    def _arguments(self, launch: Launch) -> list[str | Dim]:
        """The slots of a launch: names of buffers, then values of symbols."""
        workspace = [launch.workspace(b) for b in self._kernels[launch.kernel].workspace]
        return [*launch.arguments, *workspace, *launch.symbols]

    def _store_argument(self, k: int, value: str | Dim) -> None:
        place = slot(self._f, self._slots, k)
        if isinstance(value, str):
            self._f.effect(f"store ptr {self._address(value)}, ptr {place}, align 8")
        else:
            self._f.effect(f"store i64 {self._dims.value(value)}, ptr {place}, align 8")

    def _line(self, line: int) -> str:
        return self._f.value(f"getelementptr i8, ptr {self._tables['counters']}, i64 {line * _LINE}")

    # --- waiting --------------------------------------------------------------------------------------

    def _wait_all(self, numbers: tuple[int, ...]) -> None:
        """Wait for units, but for those that this thread has waited for already."""
        for number in numbers:
            if number not in self._finished:
                self._wait(number, None)
                self._finished.add(number)

    def _wait(self, number: int, phase: int | None) -> None:
        """Wait for a phase of a unit, None: its last."""
        unit = self._units[number]
        k = unit.phases - 1 if phase is None else phase
        count = self._f.value(f"load i64, ptr {unit.sums[k]}, align 8") if unit.sums else self._blocks[number]
        self._leave_if(f"call i1 @main.wait(ptr {self._line(unit.line + 2 * k + 1)}, i64 {count}, ptr %frame)")

    def _leave_if(self, call: str) -> None:
        """Return from main where the call says so."""
        fault, on = self._f.value(call), self._f.fresh("on")
        self._f.branch_if(fault, "out", on)
        self._f.start(on)

    # --- control flow ---------------------------------------------------------------------------------

    def _unit(self, s: Branch | Repeat, place: _Place) -> None:
        """One thread runs it all; the others go on."""
        f, unit = self._f, self._units[s.number]
        self._wait_all(s.after)
        self._finished.discard(s.number)
        line = self._line(unit.line)
        base = self._advance(unit.sums[0], "1") if unit.sums else "0"
        if not unit.sums:
            self._blocks[s.number] = "1"
        run, on = f.fresh("run"), f.fresh("on")
        f.branch_if(f.value(f"call i1 @main.unit(ptr {line}, i64 {base}, ptr %frame)"), run, on)
        f.start(run)
        began = f.value("call i64 @main.began(ptr %frame)")
        outer, before = self._dims, self._swapped_inside(s)
        self._dims = outer.inner({})
        self._body((replace(s, alone=False),), _Place(True, place.looped, True))
        self._settle(before)
        self._dims = outer
        f.effect(f"call void @main.end(ptr {line}, i64 {began}, ptr %frame)")
        f.branch(on)
        f.start(on)

    def _turns(self, s: Repeat, place: _Place) -> None:
        """A loop that all threads walk, unless no launch inside has work for two, or there is one thread: then one runs it alone,
        and the others wait here, since the counters of what is inside say nothing."""
        counts = self._counts(s)
        if counts is None:
            self._repeat(s, place)
            return
        f, most = self._f, "1"
        for count in counts:
            most = f.call("i64", "@llvm.smax.i64", f"i64 {most}", f"i64 {count}")
        narrow = f.value(f"icmp sle i64 {most}, {NARROW}")
        lonely = f.value(f"icmp eq i64 {load(f, 'i64', '%frame', 1)}, 1")
        one, all_, end = f.fresh("one"), f.fresh("all"), f.fresh("end")
        outer, finished = self._dims, self._finished - _units_in(s)
        f.branch_if(f.value(f"or i1 {narrow}, {lonely}"), one, all_)
        f.start(one)
        self._dims, self._finished = outer.inner({}), set(finished)
        self._unit(replace(s, after=_needs_of(s)), place)
        self._wait(s.number, None)
        f.branch(end)
        f.start(all_)
        self._dims, self._finished = outer.inner({}), set(finished)
        self._repeat(s, place)
        f.branch(end)
        f.start(end)
        self._dims, self._finished = outer, finished

    def _counts(self, s: Repeat) -> list[str] | None:
        """The blocks of all phases inside a loop, or None where they change from turn to turn."""
        counters = {inner.var for inner in flat((s,)) if isinstance(inner, Repeat)}
        counters |= {inner.symbol for inner in flat((s,)) if isinstance(inner, Bind)}
        counts: dict[Dim, None] = {}
        for launch in (inner for inner in flat(s.body) if isinstance(inner, Launch)):
            kernel = self._kernels[launch.kernel]
            counts.update((blocks(grid, kernel, launch), None) for grid in kernel.phases)
        if not counters.isdisjoint(index.symbols(counts)):
            return None
        return [self._dims.value(count) for count in counts if count != 1]

    def _swapped_inside(self, s: Branch | Repeat) -> list[tuple[Swap, str, str]]:
        """The swaps inside of buffers from outside, with the addresses that these have here."""
        own = {inner.buffer.name for inner in flat((s,)) if isinstance(inner, Reserve)}
        swaps = [inner for inner in flat((s,)) if isinstance(inner, Swap) and inner.first not in own | self._cells]
        return [(swap, self._address(swap.first), self._address(swap.second)) for swap in swaps]

    def _settle(self, before: list[tuple[Swap, str, str]]) -> None:
        """Bring buffers that were swapped back to where they were."""
        f = self._f
        for swap, first, second in before:
            now, size = self._address(swap.first), self._dims.value(self._sizes[swap.first])
            f.module.declare("void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)")
            f.effect(f"call void @llvm.memmove.p0.p0.i64(ptr {first}, ptr {now}, i64 {size}, i1 false)")
            f.effect(f"store ptr {first}, ptr {self._pointers[swap.first]}, align 8")
            f.effect(f"store ptr {second}, ptr {self._pointers[swap.second]}, align 8")

    def _branch(self, s: Branch, place: _Place) -> None:
        f, holds = self._f, self._condition(s.cond, s.after, place)
        then, orelse, end = f.fresh("then"), f.fresh("else"), f.fresh("end")
        f.branch_if(holds, then, orelse)
        outer, finished = self._dims, self._finished - _units_in(s)
        for label, body in ((then, s.then), (orelse, s.orelse)):
            f.start(label)
            self._dims, self._finished = outer.inner({}), set(finished)
            self._body(body, replace(place, nested=True))
            f.branch(end)
        self._dims, self._finished = outer, finished
        f.start(end)

    def _repeat(self, s: Repeat, place: _Place) -> None:
        f, turn = self._f, self._f.alloca(8, 8)
        extent = None if s.extent is None else self._dims.value(s.extent)
        f.effect(f"store i64 0, ptr {turn}, align 8")
        head, body, end = f.fresh("turn"), f.fresh("body"), f.fresh("end")
        f.branch(head)
        f.start(head)
        step = f.value(f"load i64, ptr {turn}, align 8")
        outer, finished = self._dims, self._finished - _units_in(s)
        self._dims, self._finished = outer.inner({s.var["name"]: step}), set(finished)
        if extent is not None:
            more = f.fresh("more")
            f.branch_if(f.value(f"icmp slt i64 {step}, {extent}"), more, end)
            f.start(more)
        if s.go is not None:
            f.branch_if(self._condition(s.go, s.after, place), body, end)
            f.start(body)
        self._body(s.body, replace(place, nested=True, looped=True))
        f.effect(f"store i64 {f.value(f'add i64 {step}, 1')}, ptr {turn}, align 8")
        f.branch(head)
        self._dims, self._finished = outer, finished
        f.start(end)

    def _condition(self, name: str, after: tuple[int, ...], place: _Place) -> str:
        """Whether the element of a boolean buffer holds, the same for all threads that go on."""
        if not place.alone:
            self._wait_all(after)
        byte = self._f.value(f"load i8, ptr {self._address(name)}, align 1")
        numbers = {m: None for n in after for m in (n, *self._around[n])}
        for unit in (self._units[n] for n in numbers if not place.alone):
            if unit.looped:
                end = self._f.value(f"load i64, ptr {unit.sums[0]}, align 8")
                current = self._f.value(f"call i1 @main.current(ptr {self._line(unit.line)}, i64 {end}, ptr %frame)")
                on = self._f.fresh("on")
                self._f.branch_if(current, on, "out")
                self._f.start(on)
        return self._f.value(f"icmp ne i8 {byte}, 0")


def _swapped_alone(body: tuple[MainStmt, ...]) -> set[str]:
    """The buffers that swap in what one thread runs alone."""
    found: set[str] = set()
    for s in body:
        if isinstance(s, Branch | Repeat) and s.alone:
            found.update(name for inner in flat((s,)) if isinstance(inner, Swap) for name in (inner.first, inner.second))
        else:
            found.update(*map(_swapped_alone, bodies(s)))
    return found


def _units_in(s: Branch | Repeat) -> set[int]:
    """The numbers of what runs inside a control statement."""
    return {inner.number for inner in flat((s,)) if isinstance(inner, Launch | Branch | Repeat)}


def _needs_of(s: Repeat) -> tuple[int, ...]:
    """What a loop and all inside waits for outside of it."""
    inside = _units_in(s)
    waiting = [inner for inner in flat((s,)) if isinstance(inner, Launch | Branch | Repeat)]
    return tuple(dict.fromkeys(number for inner in waiting for number in inner.after if number not in inside))


def _loops_around(body: tuple[MainStmt, ...], loops: tuple[int, ...]) -> dict[int, tuple[int, ...]]:
    """The loops around every numbered statement."""
    found: dict[int, tuple[int, ...]] = {}
    for s in body:
        if isinstance(s, Launch | Branch | Repeat | Allocate):
            found[s.number] = loops
        inside = (*loops, s.number) if isinstance(s, Repeat) and not s.alone else loops
        for inner in bodies(s):
            found |= _loops_around(inner, inside)
    return found


def blocks(grid: Grid, kernel: Kernel, launch: Launch) -> Dim:
    """The number of blocks of a phase in a launch, over main's symbols: none where nothing is written or checked."""
    values = dict(zip(kernel.symbols, launch.symbols, strict=True))
    extents = [index.substitute(axis.extent, values) for axis in grid.axes]
    count = index.product(index.ceildiv(extent, axis.step) for extent, axis in zip(extents, grid.axes))
    if any(isinstance(s, Check) for phase in kernel.phases for s in deep(phase.body)):
        return count
    present = [_present(b, values, extents) for b in kernel.outputs]
    return index.mul(count, reduce(index.maximum, present)) if present else count


def _present(buffer: Buffer, values: Mapping[Node, Dim], extents: Sequence[Dim]) -> Dim:
    """1 where a buffer has elements, else 0; the sizes `extents` are no matter, for they count blocks."""
    sizes = (index.substitute(d, values) for d in buffer.shape)
    return index.product(index.minimum(d, 1) for d in sizes if d not in extents)


def _ports(main: Main) -> dict[str, tuple[str, Dim]]:
    """For every buffer that is not main's own the table that holds its address, and its place there."""
    tables = (("inputs", main.inputs), ("outputs", main.outputs), ("constants", main.constants))
    return {b.name: (table, k) for table, buffers in tables for k, b in enumerate(buffers)}


def slot(f: FunctionBuilder, table: str, k: int) -> str:
    """The address of slot `k` of a table."""
    return f.value(f"getelementptr i64, ptr {table}, i64 {k}") if k else table


def load(f: FunctionBuilder, type: str, table: str, k: int) -> str:
    """What slot `k` of a table holds."""
    return f.value(f"load {type}, ptr {slot(f, table, k)}, align 8")


def load_symbols(f: FunctionBuilder, table: str, main: Main) -> dict[str, str]:
    """The values of main's symbols, by name."""
    return {s["name"]: load(f, "i64", table, k) for k, s in enumerate(main.symbols)}
