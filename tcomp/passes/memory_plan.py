"""Where main's buffers live, and which launches must wait for which.

Takes a module with `main` and gives it back with every `Reserve.offset`, `Main.arena` and `Launch.after` set. It changes
neither the launches nor their order, and must not let two buffers share a byte unless one is dead before the other is born.

    reserve t : f32[n, 64]                      y : f32[64 * n] is the output itself
    launch @relu x, t                           alias t : f32[n, 64] of y
    alias y : f32[64 * n] of t            =>    reserve split.partial.1 : f32[4, n] at 0
    launch @split t, z                          launch @relu x, t
                                                launch @split t, z after 0

* Inputs, outputs and constants are the caller's memory. An output that is an alias of a reserved buffer takes its place.
* A kernel's workspace becomes one `Reserve` per launch, in space `ws`, named by `Launch.workspace`, alive in that launch.
* A buffer lives from the first to the last launch that touches it or an alias of it, in the order of the body.
* Sizes `k * g` with the same symbolic part g (1 where they are static) are packed like static ones in units of g bytes, best
  fit, largest first (Pisarchyk and Lee, 2020); parts that differ by a constant count as the largest of them. The arena is the
  sum over the parts. Offsets are 64-byte aligned whatever the symbols are: where k is large it is rounded up, else g is.
* `after` holds what a launch reads (or overwrites) and who used its memory before, without what follows from the rest.
"""

from __future__ import annotations

import math
from bisect import insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tcomp.errors import Error
from tcomp.ir import index, layout
from tcomp.ir.module import Module
from tcomp.ir.node import Dim, Node
from tcomp.ir.stmts import Alias, Allocate, Bind, Branch, Launch, Main, MainStmt, Repeat, Reserve, bodies, flat, with_bodies
from tcomp.ir.types import Buffer
from tcomp.passes.order import Flow, flow_of, orders

ALIGNMENT = 64
FINE = 16 * ALIGNMENT  # multiples from here on are rounded up: a sixteenth is lost at most


def memory_plan(module: Module) -> Module:
    """`module` with main's memory and its launches' order planned; planning again gives the same. TC0401 if there is no main."""
    if module.main is None:
        raise Error("TC0401", f"`memory_plan` of a module at stage {module.stage} without main", "a module that was lowered")
    main = _outputs_in_place(module.main)
    main = replace(main, body=_with_workspace(module, main, main.body, main.symbols))
    flow = flow_of(module, main)
    lives = _lives(main, flow)
    regions, arena = _place(lives)
    after = orders(flow, list(_reused(flow, lives, regions)), list(_clashes(flow, regions)))
    return replace(module, main=replace(main, body=_written(main.body, regions, after), arena=arena))


# --- outputs and workspace ------------------------------------------------------------------------


def _outputs_in_place(main: Main) -> Main:
    """Turn every alias around that makes an output a view of a reserved buffer: the output then is the memory."""
    body = main.body
    for output in main.outputs:
        aliases = {s.buffer.name: s for s in body if isinstance(s, Alias)}
        chain = [output.name]
        while chain[-1] in aliases:
            chain.append(aliases[chain[-1]].source)
        if len(chain) > 1:
            body = _turned(body, output, chain[-1])
    return replace(main, body=body)


def _turned(body: tuple[MainStmt, ...], output: Buffer, root: str) -> tuple[MainStmt, ...]:
    reserved = any(isinstance(s, Reserve) and s.buffer.name == root for s in body)
    assert reserved, f"the output {output.name} is the caller's {root}: it needs a launch that copies"
    out: list[MainStmt] = []
    for s in body:
        if isinstance(s, Reserve) and s.buffer.name == root:
            out.append(Alias(s.buffer, output.name))
        elif not (isinstance(s, Alias) and s.buffer.name == output.name):
            out.append(s)
    return tuple(out)


@dataclass(frozen=True, slots=True)
class _Level:
    """A body that is being written: its statements so far, and the symbols that are known at their end."""

    out: list[MainStmt]
    known: set[Node]


def _with_workspace(
    module: Module, main: Main, body: tuple[MainStmt, ...], known: Iterable[Node], around: tuple[_Level, ...] = ()
) -> tuple[MainStmt, ...]:
    """Room for every workspace buffer of a kernel: before each launch, or where its size is data, as far outside of the loops
    and branches `around` as the size is known. known: the symbols that are when the body begins."""
    kernels = {k.name: k for k in module.kernels}
    most = max((len(k.workspace) for k in kernels.values()), default=0)
    here = _Level([], set(known))
    levels = (*around, here)
    for s in body:
        if isinstance(s, Reserve | Allocate) and s.buffer.space == "ws":
            continue  # of an earlier plan
        if isinstance(s, Bind):
            here.known.add(s.symbol)
        if isinstance(s, Launch):
            values = dict(zip(kernels[s.kernel].symbols, s.symbols, strict=True))
            for k, buffer in enumerate(kernels[s.kernel].workspace):
                shape = tuple(index.substitute(d, values) for d in buffer.shape)
                number = -1 - s.number * most - k
                _add_room(main, replace(buffer, name=s.workspace(buffer), shape=shape), number, levels)
        more = (s.var,) if isinstance(s, Repeat) else ()
        here.out.append(with_bodies(s, [_with_workspace(module, main, inner, more, levels) for inner in bodies(s)]))
    return tuple(here.out)


def _add_room(main: Main, buffer: Buffer, number: int, levels: tuple[_Level, ...]) -> None:
    """Room for a workspace; of its own where its size is data. (Numbers of allocations of workspace are below 0.)"""
    symbols = set(index.symbols(buffer.shape))
    if symbols.isdisjoint(main.sizes):
        levels[-1].out.append(Reserve(buffer))
        return
    for level in levels:
        symbols -= level.known
        if not symbols:
            break
    level.out.append(Allocate(buffer, number))


# --- liveness -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Life:
    """A reserved buffer: its bytes, and the first and last launch that touches it, or its memory."""

    name: str
    size: Dim
    first: int
    last: int


def _lives(main: Main, flow: Flow) -> list[_Life]:
    """The reserved buffers that some launch touches, in the order of the text."""
    spans: dict[str, tuple[int, int]] = {}
    for k, t in enumerate(flow.touched):
        for name in t.reads | t.writes:
            first, last = flow.around(name, k)
            one, two = spans.get(name, (first, last))
            spans[name] = min(one, first), max(two, last)
    for name in flow.conditions & spans.keys():
        spans[name] = 0, len(flow.touched) - 1
    for name in list(spans):  # buffers that swap their memory live together
        same = [spans[other] for other in flow.swapped(name) if other in spans]
        spans[name] = min(first for first, _ in same), max(last for _, last in same)
    reserved = [s.buffer for s in flat(main.body) if isinstance(s, Reserve)]
    turns = {s.var: s.extent for s in flat(main.body) if isinstance(s, Repeat)}
    return [_Life(b.name, _largest(b, turns), *spans[b.name]) for b in reserved if b.name in spans]


def _largest(buffer: Buffer, turns: Mapping[Node, Dim | None]) -> Dim:
    """The bytes of a buffer in the turn that makes it largest: the first or the last."""
    size = layout.size(buffer)
    for var, extent in reversed(list(turns.items())):  # extents of inner loops may depend on outer ones
        if var not in index.symbols([size]):
            continue
        if extent is None or not _one_way(size, var):
            raise Error("TC0501", f"a value whose size in a turn of a loop is {index.show(size)} bytes",
                        "a size that grows or shrinks from turn to turn, and a number of turns that is known")  # fmt: skip
        ends = index.substitute(size, {var: 0}), index.substitute(size, {var: index.maximum(index.sub(extent, 1), 0)})
        size = index.maximum(*ends)
    return size


def _one_way(size: Dim, var: Node) -> bool:
    """Whether a size surely grows or surely shrinks with a variable: in all its terms, by factors that are not negative."""
    coefficients, _ = index.terms(size)
    moving = {atom: k > 0 for atom, k in coefficients.items() if var in index.symbols([atom])}
    plain = all(atom is var or (atom.op == "mul" and var in atom.operands and _others_fixed(atom, var)) for atom in moving)
    return plain and len(set(moving.values())) == 1


def _others_fixed(product: Node, var: Node) -> bool:
    """Whether the other factors do not depend on the variable and are not negative. (The square of the variable grows, too.)"""
    others = [o for o in product.operands if o is not var]
    return all(var not in index.symbols([o]) and (index.bounds(o)[0] or 0) >= 0 for o in others)


# --- packing --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Group:
    """Buffers whose sizes are multiples of `varying` and a constant. coarse: the unit, not its multiples, is what is aligned."""

    varying: Dim
    coarse: bool

    def unit(self, fixed: int) -> Dim:
        """Bytes of one unit where the constant is `fixed`."""
        size = index.add(self.varying, fixed)
        return index.round_up(size, ALIGNMENT) if self.coarse else size


@dataclass(frozen=True, slots=True)
class _Region:
    """Where a buffer lies: units from start to end within the part of the arena that belongs to `group`."""

    group: _Group
    start: int
    end: int
    offset: Dim


def _place(lives: Sequence[_Life]) -> tuple[dict[str, _Region], Dim]:
    """A region for every buffer, and the bytes of the arena."""
    groups: dict[_Group, list[tuple[_Life, int]]] = defaultdict(list)
    constants: dict[_Group, int] = defaultdict(int)
    for life in lives:
        k, group, fixed = _factored(life.size)
        groups[group].append((life, k))
        constants[group] = max(constants[group], fixed)
    regions: dict[str, _Region] = {}
    base: Dim = 0
    for group in sorted(groups, key=lambda g: (g.varying != 0, g.coarse, index.show(g.varying))):
        unit = group.unit(constants[group])
        starts, height = best_fit([(life.first, life.last, k) for life, k in groups[group]])
        for (life, k), start in zip(groups[group], starts):
            offset = index.add(base, index.mul(start, unit))
            regions[life.name] = _Region(group, start, start + k, offset)
        base = index.add(base, index.mul(height, unit))
    return regions, base


def _factored(size: Dim) -> tuple[int, _Group, int]:
    """(k, group, fixed) with size <= k * group.unit(fixed), exactly but for alignment. A static size is so many single bytes."""
    coefficients, c = index.terms(size)
    if not coefficients:
        return _rounded(c), _Group(0, False), 1
    k = math.gcd(c, *coefficients.values())
    varying = index.affine({atom: f // k for atom, f in coefficients.items()}, 0)
    coarse = k % ALIGNMENT != 0 and k < FINE
    return (k if coarse else _rounded(k)), _Group(varying, coarse), c // k


def _rounded(n: int) -> int:
    return -(-n // ALIGNMENT) * ALIGNMENT


def best_fit(items: Sequence[tuple[int, int, int]]) -> tuple[list[int], int]:
    """Starts for items (first, last, size) such that those alive together do not overlap, and the height of the whole.

    Largest first; each goes into the smallest gap that takes it between those that are alive with it, else on top of them.
    """
    order = sorted(range(len(items)), key=lambda i: (-items[i][2], items[i][0], i))
    starts = [0] * len(items)
    placed: list[tuple[int, int, int, int]] = []  # start, end, first, last; kept sorted
    for i in order:
        first, last, size = items[i]
        busy = [(start, end) for start, end, f, z in placed if f <= last and first <= z]
        starts[i] = _smallest_gap(busy, size)
        insort(placed, (starts[i], starts[i] + size, first, last))
    return starts, max((end for _, end, _, _ in placed), default=0)


def _smallest_gap(busy: Iterable[tuple[int, int]], size: int) -> int:
    """The start of the smallest gap of at least `size` between sorted intervals, or the end of the last."""
    best, best_gap, top = None, math.inf, 0
    for start, end in busy:
        gap = start - top
        if size <= gap < best_gap:
            best, best_gap = top, gap
        top = max(top, end)
    return top if best is None else best


def _reused(flow: Flow, lives: Sequence[_Life], regions: dict[str, _Region]) -> Iterator[tuple[str, str]]:
    """Pairs of a buffer and one that is given some of its memory next."""
    holders: dict[_Group, list[tuple[int, int, str]]] = defaultdict(list)  # units from start to end, and whose they were last
    for life in sorted(lives, key=lambda life: life.first):
        region = regions[life.name]
        before = holders[region.group]
        yield from ((name, life.name) for start, end, name in before if start < region.end and region.start < end)
        kept = before if flow.is_conditional(life.first) else _outside(before, region)
        holders[region.group] = [*kept, (region.start, region.end, life.name)]


def _outside(holders: Iterable[tuple[int, int, str]], region: _Region) -> Iterator[tuple[int, int, str]]:
    """What of the holders' units is not in the region."""
    for start, end, name in holders:
        if start < min(end, region.start):
            yield start, min(end, region.start), name
        if max(start, region.end) < end:
            yield max(start, region.end), end, name


def _clashes(flow: Flow, regions: dict[str, _Region]) -> Iterator[tuple[str, str]]:
    """Pairs of buffers that share bytes of the arena, of those that loops touch."""
    by_group: dict[_Group, list[tuple[int, int, str]]] = defaultdict(list)
    for name in flow.looped() & regions.keys():
        r = regions[name]
        by_group[r.group].append((r.start, r.end, name))
    for rows in by_group.values():
        open_: list[tuple[int, str]] = []
        for start, end, name in sorted(rows):
            open_ = [(e, other) for e, other in open_ if e > start]
            yield from ((other, name) for _, other in open_)
            open_.append((end, name))


def _written(body: tuple[MainStmt, ...], regions: dict[str, _Region], after: dict[int, tuple[int, ...]]) -> tuple[MainStmt, ...]:
    """The body with offsets (0 for what no launch touches) and orders filled in."""
    out: list[MainStmt] = []
    for s in body:
        if isinstance(s, Reserve):
            out.append(replace(s, offset=regions[s.buffer.name].offset if s.buffer.name in regions else 0))
        elif isinstance(s, Launch | Branch | Repeat | Bind):
            ordered = replace(s, after=after.get(s.number, ()))
            out.append(with_bodies(ordered, [_written(inner, regions, after) for inner in bodies(s)]))
        else:
            out.append(s)
    return tuple(out)
