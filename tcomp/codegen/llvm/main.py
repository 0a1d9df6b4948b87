"""`main` as LLVM code: the two functions of the native interface that `tcomp/ir/artifact.py` documents.

All threads of a call run the same straight line of launches. At each they wait for the launches that it needs, take blocks
until none is left, and go on; nobody waits for a launch that it does not need. Every thread waits at every launch, whether
it gets a block or not, so a wait need not be repeated at later launches. Each phase of a launch has two lines of counters,
blocks taken and blocks done; waiting for the done blocks of one phase is the barrier before the next. A thread alone
(slot 1 of the frame is 1 or 0) counts nothing. After a fault all threads leave at their next wait, or when they meet it.

The module calls nothing but the kernels and libc.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from tcomp.codegen.llvm.builder import FunctionBuilder, ModuleBuilder, literal
from tcomp.codegen.llvm.dims import Dims
from tcomp.ir import index, layout
from tcomp.ir.machine import Machine
from tcomp.ir.module import Module
from tcomp.ir.node import Dim, Node
from tcomp.ir.stmts import Alias, Assert, Grid, Kernel, Launch, Main, Reserve

_LINE = 64  # bytes of one counter, alone on its cache line
_PAGE = 4096
_REFUSED, _NO_MEMORY = 2, 3  # codes of status words: TC0605, TC0606
_MOST = float(1 << 46)  # bytes that no allocation reaches: larger sizes may not fit an i64


class KernelFunctions(Protocol):
    """What the code of a kernel is called: a function for each phase; scratch: bytes that a thread needs."""

    @property
    def phases(self) -> tuple[str, ...]: ...

    @property
    def scratch(self) -> int: ...


@dataclass(frozen=True, slots=True)
class MainCode:
    """entry: the function's name (`<entry>_plan` is the other). counters: lines. nodes: what status words number."""

    entry: str
    counters: int
    nodes: tuple[str, ...]


def emit_main(
    module: ModuleBuilder, program: Module, codes: Mapping[str, KernelFunctions], entry: str, machine: Machine
) -> MainCode:
    """Add `<entry>` and `<entry>_plan` to the module; `codes` names the functions of the kernels, which are in it."""
    main = program.main
    assert main is not None, "there is no main"
    scratch = -(-max((code.scratch for code in codes.values()), default=0) // _PAGE) * _PAGE
    nodes = _Plan(module, main, program.nodes).emit(entry, scratch)
    counters = _Walk(module, program, main, codes).emit(entry, scratch, machine)
    return MainCode(entry, counters, nodes)


# --- the plan of sizes ------------------------------------------------------------------------------


class _Plan:
    """Writes `<entry>_plan`: what is known of the symbols is checked first, then the assertions, then sizes are computed."""

    def __init__(self, module: ModuleBuilder, main: Main, nodes: tuple[str, ...]) -> None:
        self._main = main
        self._nodes = list(nodes)
        self._f = FunctionBuilder(module)
        self._dims = Dims(self._f, _load_symbols(self._f, "%symbols", main))

    def emit(self, entry: str, scratch: int) -> tuple[str, ...]:
        """Add the function to the module; the nodes, with those for the symbols."""
        for symbol in self._main.symbols:
            self._check_symbol(symbol)
        for s in self._main.body:
            if isinstance(s, Assert):
                self._check(self._dims.value(s.cond), s.node)
        self._check_sizes()
        sizes = [self._main.arena, scratch, *(d for b in self._main.outputs for d in b.shape)]
        for k, size in enumerate(sizes):
            self._f.effect(f"store i64 {self._dims.value(size)}, ptr {_slot(self._f, '%out', k)}, align 8")
        self._f.effect("ret i64 0")
        text = f"define i64 @{entry}_plan(ptr %symbols, ptr %out) nounwind {{\n{self._f.body()}\n}}"
        self._f.module.add(text)
        return tuple(self._nodes)

    def _check_symbol(self, symbol: Node) -> None:
        """Code relies on the bounds of a symbol and on what it is a multiple of."""
        lo, hi, multiple = symbol["lo"], symbol["hi"], symbol["multiple"]
        value, conditions = self._dims.value(symbol), []
        if lo is not None and lo > 0:
            conditions.append(self._f.value(f"icmp sge i64 {value}, {lo}"))
        if hi is not None:
            conditions.append(self._f.value(f"icmp sle i64 {value}, {hi}"))
        if multiple > 1:
            rest = self._f.value(f"urem i64 {value}, {multiple}")
            conditions.append(self._f.value(f"icmp eq i64 {rest}, 0"))
        for condition in conditions:
            self._require(condition, _REFUSED, len(self._nodes))
        if conditions:
            self._nodes.append(f"the size {symbol['name']} must be {_range_text(lo, hi, multiple)}")

    def _check_sizes(self) -> None:
        """Sizes that do not fit an i64 must not wrap around into sizes that do."""
        for size in (self._main.arena, *map(layout.size, self._main.outputs)):
            if index.constant(size) is None:
                fits = self._f.value(f"fcmp olt double {self._dims.rough(size)}, {literal('double', _MOST)}")
                self._require(fits, _NO_MEMORY, 0)

    def _check(self, condition: str, node: int) -> None:
        self._require(self._f.value(f"icmp ne i64 {condition}, 0"), _REFUSED, node)

    def _require(self, condition: str, code: int, node: int) -> None:
        good, bad = self._f.fresh("good"), self._f.fresh("bad")
        self._f.branch_if(condition, good, bad)
        self._f.start(bad)
        self._f.effect(f"ret i64 {code << 32 | node}")
        self._f.start(good)


def _range_text(lo: int | None, hi: int | None, multiple: int) -> str:
    parts = [f"at least {lo}"] if lo else []
    parts += [f"at most {hi}"] if hi is not None else []
    parts += [f"a multiple of {multiple}"] if multiple > 1 else []
    return ", ".join(parts)


# --- the walk over the launches -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Finish:
    """How to wait for a phase: the line of its done blocks, and how many there are."""

    line: int
    blocks: str


class _Walk:
    """Writes `<entry>`."""

    def __init__(self, module: ModuleBuilder, program: Module, main: Main, codes: Mapping[str, KernelFunctions]) -> None:
        self._main, self._codes = main, codes
        self._kernels = {k.name: k for k in program.kernels}
        self._f = FunctionBuilder(module)
        self._tables = {name: _load(self._f, "ptr", "%frame", k) for name, k in _TABLES.items()}
        self._dims = Dims(self._f, _load_symbols(self._f, self._tables["symbols"], main))
        self._places = _places(main)
        self._finishes: dict[int, _Finish] = {}  # of launches that nobody has waited for yet
        self._lines = 0

    def emit(self, entry: str, scratch: int, machine: Machine) -> int:
        """Add the function and its helpers to the module; the number of counter lines."""
        f = self._f
        helpers(f.module, machine)
        own = f.value(f"mul i64 %thread, {scratch}")
        mine = f.value(f"getelementptr i8, ptr {self._tables['scratch']}, i64 {own}")
        launches = [s for s in self._main.body if isinstance(s, Launch)]
        arguments = f.alloca(8 * max((len(self._arguments(s)) for s in launches), default=0))
        for launch in launches:
            self._launch(launch, arguments, mine)
        f.branch("out")
        f.start("out")
        f.effect("ret void")
        f.module.add(f"define void @{entry}(ptr %frame, i64 %thread) nounwind {{\n{f.body()}\n}}")
        return self._lines

    def _launch(self, launch: Launch, arguments: str, scratch: str) -> None:
        for number in launch.after:
            finish = self._finishes.pop(number, None)
            if finish is not None:
                self._wait(finish)
        for k, value in enumerate(self._arguments(launch)):
            self._store_argument(arguments, k, value)
        kernel = self._kernels[launch.kernel]
        finish = None
        for name, grid in zip(self._codes[launch.kernel].phases, kernel.phases, strict=True):
            if finish is not None:
                self._wait(finish)
            finish = _Finish(self._lines + 1, self._dims.value(blocks(grid, kernel, launch)))
            line = self._line(self._lines)
            self._leave_if(
                f"call i1 @main.phase(ptr @{name}, ptr {arguments}, i64 {finish.blocks}, ptr {line}, ptr %frame, ptr {scratch})"
            )
            self._lines += 2
        assert finish is not None, f"the kernel {kernel.name} has no phase"
        self._finishes[launch.number] = finish

    def _arguments(self, launch: Launch) -> list[str | Dim]:
        """The slots of a launch: names of buffers, then values of symbols."""
        workspace = [launch.workspace(b) for b in self._kernels[launch.kernel].workspace]
        return [*launch.arguments, *workspace, *launch.symbols]

    def _store_argument(self, arguments: str, k: int, value: str | Dim) -> None:
        place = _slot(self._f, arguments, k)
        if isinstance(value, str):
            self._f.effect(f"store ptr {self._address(value)}, ptr {place}, align 8")
        else:
            self._f.effect(f"store i64 {self._dims.value(value)}, ptr {place}, align 8")

    def _address(self, name: str) -> str:
        """The address of a buffer of main."""
        table, at = self._places[name]
        if table == "arena":
            return self._f.value(f"getelementptr i8, ptr {self._tables['arena']}, i64 {self._dims.value(at)}")
        assert isinstance(at, int)
        return _load(self._f, "ptr", self._tables[table], at)

    def _line(self, line: int) -> str:
        return self._f.value(f"getelementptr i8, ptr {self._tables['counters']}, i64 {line * _LINE}")

    def _wait(self, finish: _Finish) -> None:
        self._leave_if(f"call i1 @main.wait(ptr {self._line(finish.line)}, i64 {finish.blocks}, ptr %frame)")

    def _leave_if(self, call: str) -> None:
        """Return from main where the call says that there is a fault."""
        fault, on = self._f.value(call), self._f.fresh("on")
        self._f.branch_if(fault, "out", on)
        self._f.start(on)


_TABLES = {"arena": 2, "scratch": 3, "constants": 4, "counters": 5, "symbols": 6, "inputs": 7, "outputs": 8}


def blocks(grid: Grid, kernel: Kernel, launch: Launch) -> Dim:
    """The number of blocks of a phase in a launch, over main's symbols."""
    values = dict(zip(kernel.symbols, launch.symbols, strict=True))
    extents = [index.substitute(axis.extent, values) for axis in grid.axes]
    return index.product(index.ceildiv(extent, axis.step) for extent, axis in zip(extents, grid.axes))


def _places(main: Main) -> dict[str, tuple[str, Dim]]:
    """For every buffer the table that holds its address and its place there, or its offset in the arena."""
    places: dict[str, tuple[str, Dim]] = {}
    for table, buffers in (("inputs", main.inputs), ("outputs", main.outputs), ("constants", main.constants)):
        places |= {b.name: (table, k) for k, b in enumerate(buffers)}
    for s in main.body:
        if isinstance(s, Reserve):
            assert s.offset is not None, f"{s.buffer.name} has no place: memory_plan comes first"
            places[s.buffer.name] = ("arena", s.offset)
    sources = {s.buffer.name: s.source for s in main.body if isinstance(s, Alias)}
    for name, source in sources.items():
        while source in sources:
            source = sources[source]
        places[name] = places[source]
    return places


def _slot(f: FunctionBuilder, table: str, k: int) -> str:
    return f.value(f"getelementptr i64, ptr {table}, i64 {k}") if k else table


def _load(f: FunctionBuilder, type: str, table: str, k: int) -> str:
    return f.value(f"load {type}, ptr {_slot(f, table, k)}, align 8")


def _load_symbols(f: FunctionBuilder, table: str, main: Main) -> dict[str, str]:
    return {s["name"]: _load(f, "i64", table, k) for k, s in enumerate(main.symbols)}


# --- helpers in every module ----------------------------------------------------------------------------


def helpers(module: ModuleBuilder, machine: Machine) -> None:
    """Add `main.phase`, which takes and runs blocks, and `main.wait`; both give true where the call is to end."""
    rest = "llvm.aarch64.hint(i32 1)" if machine.family == "neon" else "llvm.x86.sse2.pause()"
    module.declare(f"void @{rest.replace('i32 1', 'i32')}")
    module.declare("i32 @sched_yield()")
    module.declare("i32 @clock_gettime(i32, ptr)")
    module.helper("main.now", lambda: _NOW)
    module.helper("main.phase", lambda: _PHASE)
    module.helper("main.wait", lambda: _WAIT.replace("REST", f"call void @{rest}"))


_PHASE = """
; Run the blocks of a phase: all of them where this thread is alone, else those that it gets, several at a time. line: the
; counter of blocks taken; the next line counts blocks done. Where the frame says 0 threads, the one that walks puts the
; nanoseconds that the phase took into the counter, which it does not need.
define internal i1 @main.phase(ptr %run, ptr %arguments, i64 %blocks, ptr %line, ptr %frame, ptr %scratch) nounwind {
entry:
  %slot = getelementptr i64, ptr %frame, i64 1
  %threads = load i64, ptr %slot, align 8
  %alone = icmp slt i64 %threads, 2
  br i1 %alone, label %solo, label %look

solo:
  %timed = icmp eq i64 %threads, 0
  br i1 %timed, label %start, label %range

start:
  %began = call i64 @main.now()
  br label %range

look:
  %taken = load atomic i64, ptr %line monotonic, align 8
  %left = icmp slt i64 %taken, %blocks
  br i1 %left, label %share, label %good

share:
  %parts = shl i64 %threads, 3
  %part = udiv i64 %blocks, %parts
  %some = icmp ne i64 %part, 0
  %size = select i1 %some, i64 %part, i64 1
  br label %take

take:
  %ran = phi i64 [ 0, %share ], [ %ran1, %finished ]
  %step = phi i64 [ %size, %share ], [ %same, %finished ]
  %mine = atomicrmw add ptr %line, i64 %step monotonic, align 8
  %got = icmp slt i64 %mine, %blocks
  br i1 %got, label %clip, label %publish

clip:
  %upto = add i64 %mine, %step
  %over = icmp sgt i64 %upto, %blocks
  %last = select i1 %over, i64 %blocks, i64 %upto
  br label %range

range:
  %first = phi i64 [ 0, %solo ], [ 0, %start ], [ %mine, %clip ]
  %end = phi i64 [ %blocks, %solo ], [ %blocks, %start ], [ %last, %clip ]
  %before = phi i64 [ 0, %solo ], [ 0, %start ], [ %ran, %clip ]
  %same = phi i64 [ 0, %solo ], [ 0, %start ], [ %step, %clip ]
  %since = phi i64 [ -1, %solo ], [ %began, %start ], [ -1, %clip ]
  br label %more

more:
  %block = phi i64 [ %first, %range ], [ %next, %one ]
  %on = icmp slt i64 %block, %end
  br i1 %on, label %go, label %finished

go:
  %status = call i64 %run(ptr %arguments, i64 %block, ptr %scratch)
  %fault = icmp ne i64 %status, 0
  br i1 %fault, label %fail, label %one

one:
  %next = add i64 %block, 1
  br label %more

finished:
  %count = sub i64 %end, %first
  %ran1 = add i64 %before, %count
  br i1 %alone, label %note, label %take

note:
  %noted = icmp sge i64 %since, 0
  br i1 %noted, label %stop, label %good

stop:
  %now = call i64 @main.now()
  %spent = sub i64 %now, %since
  store i64 %spent, ptr %line, align 8
  br label %good

publish:
  %any = icmp ne i64 %ran, 0
  br i1 %any, label %tell, label %good

tell:
  %done = getelementptr i8, ptr %line, i64 64
  %was = atomicrmw add ptr %done, i64 %ran release, align 8
  br label %good

good:
  ret i1 false

fail:
  %swap = cmpxchg ptr %frame, i64 0, i64 %status monotonic monotonic, align 8
  ret i1 true
}"""

_NOW = """
; The monotonic clock in nanoseconds.
define internal i64 @main.now() nounwind {
  %time = alloca { i64, i64 }, align 8
  %r = call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time, align 8
  %second = getelementptr i64, ptr %time, i64 1
  %fraction = load i64, ptr %second, align 8
  %whole = mul i64 %seconds, 1000000000
  %sum = add i64 %whole, %fraction
  ret i64 %sum
}"""

_WAIT = """
; Wait until `blocks` blocks are done, or the status word reports a fault. A thread alone has done them itself.
define internal i1 @main.wait(ptr %done, i64 %blocks, ptr %frame) nounwind {
entry:
  %slot = getelementptr i64, ptr %frame, i64 1
  %threads = load i64, ptr %slot, align 8
  %alone = icmp slt i64 %threads, 2
  br i1 %alone, label %good, label %look

look:
  %turns = phi i64 [ 0, %entry ], [ %turns1, %again ]
  %count = load atomic i64, ptr %done acquire, align 8
  %enough = icmp sge i64 %count, %blocks
  br i1 %enough, label %good, label %check

check:
  %status = load atomic i64, ptr %frame monotonic, align 8
  %fault = icmp ne i64 %status, 0
  br i1 %fault, label %fail, label %idle

idle:
  %turns1 = add i64 %turns, 1
  %short = icmp ult i64 %turns, 2000
  br i1 %short, label %spin, label %yield

spin:
  REST
  br label %again

yield:
  %r = call i32 @sched_yield()
  br label %again

again:
  br label %look

good:
  ret i1 false

fail:
  ret i1 true
}"""
