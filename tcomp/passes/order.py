"""Which launches of main must wait for which: part of `memory_plan`.

A *unit* is what threads take and wait for: a launch, or a control statement that one thread runs alone with all inside. `orders`
gives each unit, and each condition that all threads read, the units to wait for. A thread waits for all blocks that a unit has
started so far, in every turn of the loops around it; so for a unit later in the text this means its turn before, and one that a
branch or an empty loop left out keeps nobody waiting.

What follows from other waits is left out, but only by way of units that run whenever the one that waits does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tcomp.ir.module import Module
from tcomp.ir.stmts import Alias, Allocate, Bind, Branch, Launch, Main, MainStmt, Repeat, Reserve, Swap, bodies, flat

Path = tuple[tuple[int, int], ...]  # the control statements around: number and side


@dataclass(frozen=True, slots=True)
class Touched:
    """The memory a launch or unit reads, and what it writes."""

    reads: frozenset[str]
    writes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Unit:
    """number: of its statement. path: what decides whether it runs."""

    number: int
    touched: Touched
    path: Path


@dataclass(frozen=True, slots=True)
class Shared:
    """A control statement that all threads walk: its first and last unit, and how deep these are at least."""

    statement: Branch | Repeat
    first: int
    last: int
    depth: int


@dataclass(slots=True)
class Flow:
    """Main as a line of launches and units, in the order of the text."""

    touched: list[Touched] = field(default_factory=list)  # of every launch
    unit_of: list[int] = field(default_factory=list)  # of every launch
    units: list[Unit] = field(default_factory=list)
    steps: list[int | tuple[str, str]] = field(default_factory=list)  # units, and buffers that swap
    homes: dict[str, tuple[int, ...]] = field(default_factory=dict)  # the loops around each Reserve
    loops: list[tuple[int, int, int]] = field(default_factory=list)  # number, first and last launch inside
    shared: list[Shared] = field(default_factory=list)
    roots: dict[str, str] = field(default_factory=dict)
    binds: list[Bind] = field(default_factory=list)
    conditions: set[str] = field(default_factory=set)
    classes: dict[str, set[str]] = field(default_factory=dict)

    def swapped(self, name: str) -> set[str]:
        """The buffers that may hold what `name` held, itself among them."""
        return self.classes.get(name, {name})

    def is_conditional(self, launch: int) -> bool:
        """Whether a launch is inside a control statement."""
        return bool(self.units[self.unit_of[launch]].path)

    def looped(self) -> set[str]:
        """What the units in loops touch that all threads walk."""
        rows = [self.units[s.first : s.last + 1] for s in self.shared if isinstance(s.statement, Repeat)]
        return {same for row in rows for u in row for name in u.touched.reads | u.touched.writes for same in self.swapped(name)}

    def join(self, a: str, b: str) -> None:
        both = self.swapped(a) | self.swapped(b)
        self.classes.update((name, both) for name in both)

    def around(self, name: str, launch: int) -> tuple[int, int]:
        """The launches during which a buffer must live because this launch touches it: all of a loop that it is declared outside
        of."""
        first = last = launch
        for number, start, end in self.loops:
            if start <= launch <= end and number not in self.homes.get(name, ()):
                first, last = min(first, start), max(last, end)
        return first, last


def flow_of(module: Module, main: Main) -> Flow:
    """The flow of a main whose workspace is reserved."""
    flow = Flow(roots=root_names(main))
    _Walk(module, flow.roots, flow).body(main.body, (), (), None)
    return flow


def root_names(main: Main) -> dict[str, str]:
    """For every buffer of main the one whose memory it is."""
    roots = {b.name: b.name for b in (*main.inputs, *main.outputs, *main.constants)}
    sources = {s.buffer.name: s.source for s in flat(main.body) if isinstance(s, Alias)}
    roots |= {s.buffer.name: s.buffer.name for s in flat(main.body) if isinstance(s, Reserve | Allocate)}
    for name in sources:
        at = name
        while at in sources:
            at = sources[at]
        roots[name] = at
    return roots


class _Walk:
    """Fills a flow from the statements of main."""

    def __init__(self, module: Module, roots: dict[str, str], flow: Flow) -> None:
        self.module, self.roots, self.flow = module, roots, flow
        self.kernels = {k.name: k for k in module.kernels}

    def body(self, body: Iterable[MainStmt], path: Path, loops: tuple[int, ...], unit: int | None) -> None:
        for s in body:
            match s:
                case Launch():
                    self._launch(s, path, unit)
                case Reserve():
                    self.flow.homes[s.buffer.name] = loops
                case Allocate():
                    if unit is None:
                        self.flow.steps.append(len(self.flow.units))
                        self.flow.units.append(Unit(s.number, Touched(frozenset(), frozenset([s.buffer.name])), path))
                case Bind():
                    self.flow.binds += [s] if unit is None else []
                    self.flow.conditions.add(self.roots[s.source])
                case Swap():
                    a, b = self.roots[s.first], self.roots[s.second]
                    self.flow.join(a, b)
                    self.flow.steps.append((a, b))
                case Branch() | Repeat():
                    self._control(s, path, loops, unit)

    def _launch(self, s: Launch, path: Path, unit: int | None) -> None:
        t = self.touched(s)
        if unit is None:
            unit = len(self.flow.units)
            self.flow.units.append(Unit(s.number, t, path))
            self.flow.steps.append(unit)
        self.flow.touched.append(t)
        self.flow.unit_of.append(unit)

    def _control(self, s: Branch | Repeat, path: Path, loops: tuple[int, ...], unit: int | None) -> None:
        flow, first = self.flow, len(self.flow.touched)
        cond = s.cond if isinstance(s, Branch) else s.go
        if cond is not None:
            flow.conditions.add(self.roots[cond])
        if unit is None and s.alone:
            unit = len(flow.units)
            flow.units.append(Unit(s.number, self._all(s), path))
            flow.steps.append(unit)
        units = len(flow.units)
        for side, inner in enumerate(bodies(s)):
            self.body(inner, (*path, (s.number, side)), (*loops, s.number) if isinstance(s, Repeat) else loops, unit)
        if isinstance(s, Repeat):
            flow.loops.append((s.number, first, len(flow.touched) - 1))
        if unit is None:
            flow.shared.append(Shared(s, units, len(flow.units) - 1, len(path) + 1))

    def touched(self, launch: Launch) -> Touched:
        kernel = self.kernels[launch.kernel]
        assert len(launch.arguments) == len(kernel.inputs) + len(kernel.outputs), f"arguments of launch {launch.number}"
        memory = [self.roots[name] for name in launch.arguments]
        n = len(kernel.inputs)
        workspace = [launch.workspace(buffer) for buffer in kernel.workspace]
        return Touched(frozenset(memory[:n]), frozenset([*memory[n:], *workspace]))

    def _all(self, s: Branch | Repeat) -> Touched:
        """What a control statement touches, with all that is inside."""
        reads: set[str] = set()
        writes: set[str] = set()
        for inner in flat((s,)):
            match inner:
                case Launch():
                    t = self.touched(inner)
                    reads |= t.reads
                    writes |= t.writes
                case Branch():
                    reads.add(self.roots[inner.cond])
                case Repeat() if inner.go is not None:
                    reads.add(self.roots[inner.go])
                case Bind():
                    reads.add(self.roots[inner.source])
                case Allocate():
                    writes.add(inner.buffer.name)
                case Swap():
                    writes |= {self.roots[inner.first], self.roots[inner.second]}
        return Touched(frozenset(reads), frozenset(writes))


# --- orders --------------------------------------------------------------------------------------------


def orders(flow: Flow, reused: Sequence[tuple[str, str]], clashes: Sequence[tuple[str, str]]) -> dict[int, tuple[int, ...]]:
    """What each unit, and each control statement that all threads walk, waits for, by number.

    reused: pairs of a buffer and the one that has its memory next. clashes: pairs that share bytes, in loops."""
    needs = _data_needs(flow)
    _add_reuse(flow, needs, reused)
    before: list[int] = []
    after = [_reduced(flow, k, need, before) for k, need in enumerate(needs)]
    for shared in flow.shared:
        if isinstance(shared.statement, Repeat):
            _add_turns(flow, after, before, shared, clashes)
    numbers = {u.number: tuple(flow.units[k].number for k in sorted(after[j])) for j, u in enumerate(flow.units)}
    for s in (shared.statement for shared in flow.shared):
        cond = s.cond if isinstance(s, Branch) else s.go
        numbers[s.number] = tuple(u.number for u in flow.units if cond is not None and _writes(flow, u, flow.roots[cond]))
    for bind in flow.binds:
        numbers[bind.number] = tuple(u.number for u in flow.units if _writes(flow, u, flow.roots[bind.source]))
    return numbers


def _writes(flow: Flow, unit: Unit, cond: str) -> bool:
    return not unit.touched.writes.isdisjoint(flow.swapped(cond))


def _data_needs(flow: Flow) -> list[int]:
    """For every unit, as bits, the earlier writers of what it reads and all earlier users of what it writes."""
    writers: dict[str, int] = defaultdict(int)
    readers: dict[str, int] = defaultdict(int)
    needs: list[int] = []
    for step in flow.steps:
        if isinstance(step, tuple):
            for table in (writers, readers):
                table[step[0]] = table[step[1]] = table[step[0]] | table[step[1]]
            continue
        unit, bit, need = flow.units[step], 1 << step, 0
        for name in unit.touched.reads:
            need |= writers[name]
            readers[name] |= bit
        for name in unit.touched.writes:
            need |= writers[name] | readers[name]
            if unit.path:  # it may not run: what was there before stays
                writers[name] |= bit
            else:
                writers[name], readers[name] = bit, 0
        needs.append(need & ~bit)
    return needs


def _users(flow: Flow) -> dict[str, int]:
    """The units, as bits, that touch each buffer or its memory."""
    users: dict[str, int] = defaultdict(int)
    for k, unit in enumerate(flow.units):
        for name in unit.touched.reads | unit.touched.writes:
            for same in flow.swapped(name):
                users[same] |= 1 << k
    return users


def _add_reuse(flow: Flow, needs: list[int], reused: Sequence[tuple[str, str]]) -> None:
    """Who is given memory that another buffer had waits for those that used it."""
    users = _users(flow)
    for old, new in reused:
        first = next(_bits(users[new]))
        leads = not flow.units[first].path and len(flow.swapped(new)) == 1 and not users[old] >> first & 1
        if leads:
            needs[first] |= users[old]
            continue
        for k in _bits(users[new]):  # the first may not run, be of a buffer that swaps, or one unit with the last of those before
            needs[k] |= users[old] & ((1 << k) - 1)


def _reduced(flow: Flow, k: int, need: int, before: list[int]) -> set[int]:
    """The needs of unit `k` that do not follow from its other needs; `before` gets what is finished before it starts."""
    kept: set[int] = set()
    covered = 0
    path = flow.units[k].path
    while need := need & ~covered:
        latest = need.bit_length() - 1
        kept.add(latest)
        always = flow.units[latest].path == path[: len(flow.units[latest].path)]
        covered |= (before[latest] if always else 0) | 1 << latest
    before.append(covered)
    return kept


def _add_turns(
    flow: Flow, after: list[set[int]], before: list[int], loop: Shared, clashes: Sequence[tuple[str, str]]
) -> None:
    """In a loop, a unit waits for what the turn before did later in the text to the same memory."""
    same: dict[str, set[str]] = defaultdict(set)
    for a, b in clashes:
        same[a].add(b)
        same[b].add(a)
    units = range(loop.first, loop.last + 1)
    writes = {k: _spread(flow, same, flow.units[k].touched.writes) for k in units}
    reads = {k: _spread(flow, same, flow.units[k].touched.reads) for k in units}
    for k in units:
        mine = flow.units[k].touched
        covered = 0
        for j in reversed(range(k, loop.last + 1)):
            if covered >> j & 1:
                continue
            if not (writes[j].isdisjoint(mine.reads | mine.writes) and reads[j].isdisjoint(mine.writes)):
                after[k].add(j)
                covered |= before[j] if len(flow.units[j].path) == loop.depth else 0


def _spread(flow: Flow, same: dict[str, set[str]], names: Iterable[str]) -> set[str]:
    """The buffers whose memory these may be, in this turn or the next."""
    swapped = {other for name in names for other in flow.swapped(name)}
    return swapped | {other for name in swapped for other in same[name]}


def _bits(mask: int) -> Iterator[int]:
    """The places of the bits of `mask`, from the lowest."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
