"""Whether what `after` allows gives what the order of the text gives: of two units that touch the same bytes, one writing, the
later must wait for the earlier, or for one that does. In a loop, that holds for every unit and those of the turn before, too.

Within a turn buffers that swap are different memory; from one turn to the next each may be any of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from tcomp.ir.stmts import Allocate, Branch, Launch, Repeat

Path = tuple[tuple[Branch | Repeat, int], ...]  # the control statements around, and the side of each
Fault = tuple[Any, str]


class Overlaps(Protocol):
    """What is known of main's memory."""

    swaps: dict[str, set[str]]

    def overlap(self, a: str, b: str) -> str | None: ...


@dataclass(slots=True, eq=False)
class Unit:
    """A launch, an allocation, or a control statement that one thread runs; the memory that it touches."""

    statement: Launch | Branch | Repeat | Allocate
    path: Path
    reads: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)

    @property
    def number(self) -> int:
        return self.statement.number

    @property
    def after(self) -> tuple[int, ...]:
        return () if isinstance(self.statement, Allocate) else self.statement.after

    def always_before(self, other: Unit) -> bool:
        """Whether this runs whenever `other` does."""
        return self.path == other.path[: len(self.path)]


def order_faults(memory: Overlaps, units: list[Unit]) -> Iterator[Fault]:
    """Every pair of units that may run in the wrong order."""
    place = {u.number: k for k, u in enumerate(units)}
    before: dict[int, set[int]] = {}
    for k, u in enumerate(units):
        direct = [units[place[n]] for n in u.after if n in place]
        earlier = [p for p in direct if place[p.number] < k]
        before[u.number] = {p.number for p in earlier}.union(*(before[p.number] for p in earlier if p.always_before(u)))
        for p in units[:k]:
            why = None if p.number in before[u.number] or _apart(p, u) else _conflict(memory, p, u)
            if why is not None:
                yield u.statement, f"it does not wait for launch {p.number}: {why}"
    for k, u in enumerate(units):
        loops = [c for c, _ in u.path if isinstance(c, Repeat)]
        for p in units[k:] if loops else ():
            common = [c for c, _ in p.path if c in loops]
            if common and not _waits(units, place, before, u, p, len(u.path)):
                why = _conflict(memory, p, u, memory.swaps)
                if why is not None:
                    yield u.statement, f"it does not wait for launch {p.number} of the turn before: {why}"


def _apart(a: Unit, b: Unit) -> bool:
    """Whether the two are on different sides of a branch that is in no loop."""
    for (c, one), (d, two) in zip(a.path, b.path):
        if isinstance(c, Repeat) or c is not d:
            return False
        if one != two:
            return True
    return False


def _waits(units: list[Unit], place: dict[int, int], before: dict[int, set[int]], u: Unit, p: Unit, depth: int) -> bool:
    """Whether `u` waits for `p` of the turn before: itself, or through a unit that always runs in a turn."""
    if p.number in u.after:
        return True
    others = [units[place[n]] for n in u.after if n in place]
    return any(p.number in before[o.number] and o.always_before(p) and place[o.number] >= place[u.number] for o in others)


def _conflict(memory: Overlaps, first: Unit, then: Unit, swaps: dict[str, set[str]] | None = None) -> str | None:
    """Why the order of two units matters. swaps: of one turn and the next, what buffers may stand for each other."""
    pairs: Iterable[tuple[str, str]] = itertools.chain(
        itertools.product(sorted(first.writes), sorted({*then.reads, *then.writes})),
        itertools.product(sorted(first.reads), sorted(then.writes)),
    )
    for a, b in pairs:
        for held in sorted((swaps or {}).get(a, {a})):
            witness = memory.overlap(held, b)
            if witness is not None:
                return f"`{a}` and `{b}`: {witness}" if a != b else f"both use `{a}`"
    return None
