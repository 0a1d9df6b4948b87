"""Sizes that meet in a broadcast and are not known to be equal: NumPy's rule lets one of them be 1, and only a call knows.

While a program is traced or imported under `noting`, `Meetings.met` gives the size of such an axis and notes who met whom. Where
something was noted there are two programs: one in which a size that met another one *is* that one, for the calls where that
holds, and one that decides by the sizes of the call (`stretch`), for all others (docs/adr/0013-variants.md).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeGuard

from tcomp.ir import index
from tcomp.ir.graph import Fate
from tcomp.ir.node import Dim, Node

Pair = tuple[Dim, Dim]
MOST_CHOICES = 4  # pairs of which one side may be chosen
MET = "both meet in a broadcast"  # why a dimension became another one


@dataclass(slots=True)
class Meetings:
    """What one attempt has met.

    equal: whether sizes that can be said to be equal are taken to be. place: what is being traced. branches: subgraphs around,
    which a call may not come to. chosen: of pairs, the one that decides where the program only works with its size.
    pairs: who met that could be equal, and where first, in order. parts: the sizes that each size is made of, all of them equal
    to it or 1; sides: those of them that it is computed from.
    """

    equal: bool = False
    place: str = ""
    branches: int = 0
    chosen: Mapping[Pair, Dim] = field(default_factory=dict)
    pairs: dict[Pair, str] = field(default_factory=dict)
    parts: dict[Dim, frozenset[Dim]] = field(default_factory=dict)
    sides: dict[Dim, tuple[Dim, ...]] = field(default_factory=dict)

    def forget(self) -> None:
        """Start again."""
        self.branches = 0
        self.pairs.clear()
        self.parts.clear()
        self.sides.clear()

    def met(self, a: Dim, b: Dim, data: bool = False) -> Dim:
        """The size of an axis where sizes `a` and `b` meet, of which neither is known to be 1. data: one is known only in the
        middle of a call, when it is too late to choose a variant."""
        if a == b or b in self.parts.get(a, ()):
            return a
        if a in self.parts.get(b, ()):
            return b
        sides = [s for d in (a, b) for s in self.sides.get(d, (d,))]
        size = self.chosen.get((a, b)) or index.broadcast(*sides)
        self.sides[size] = tuple(dict.fromkeys(sides)) if size not in sides else (size,)
        return self._noted((a, b), size, data)

    def within(self, d: Dim, size: Dim, data: bool = False) -> None:
        """An axis of size `d`, which is not known to be 1, is wanted where one of `size` is: d is equal to it or 1."""
        self._noted((size, d), size, data)

    def _noted(self, pair: Pair, size: Dim, data: bool) -> Dim:
        if not data:
            self.pairs.setdefault(pair, self.place)
        mine = (frozenset([d]) | self.parts.get(d, frozenset()) for d in pair)
        self.parts[size] = self.parts.get(size, frozenset()).union(*mine) - {size}
        return size

    def stretches(self, d: Dim, size: Dim) -> bool:
        """Whether an axis of size `d` is repeated, or not, where one of `size` is wanted."""
        return d in self.parts.get(size, ())

    def merging(self) -> tuple[dict[Node, Dim], tuple[Fate, ...]]:
        """What symbols are where all that met is equal, and the account of it; nothing where symbols alone cannot say that."""
        fixed: dict[Node, Dim] = {}
        account: list[Fate] = []
        for pair, place in self.pairs.items():
            a, b = (index.substitute(d, fixed) for d in pair)
            if a == b:
                continue
            symbol, other = next(((x, y) for x, y in ((b, a), (a, b)) if _is_free(x, y)), (None, 0))
            if symbol is None:
                return {}, ()
            fixed = {s: index.substitute(d, {symbol: other}) for s, d in fixed.items()} | {symbol: other}
            account.append(Fate(index.show(symbol), index.show(other), MET, place))
        return fixed, tuple(account)


def choices(pairs: Iterable[Pair]) -> Iterator[dict[Pair, Dim]]:
    """Of one or two pairs one side each: what may be decided where a program does not work with the sizes of all calls."""
    sides = [(pair, d) for pair in tuple(pairs)[:MOST_CHOICES] for d in pair]
    yield from ({pair: d} for pair, d in sides)
    yield from (dict(both) for both in itertools.combinations(sides, 2) if both[0][0] != both[1][0])


def _is_free(x: Dim, other: Dim) -> TypeGuard[Node]:
    """Whether `x` is a symbol that may stand for `other`."""
    return isinstance(x, Node) and x.op == "sym" and x not in index.symbols([other])


_noted: ContextVar[Meetings | None] = ContextVar("meetings", default=None)


def noted() -> Meetings | None:
    """The meetings of the attempt under way, if it notes them."""
    return _noted.get()


@contextmanager
def noting(meetings: Meetings | None) -> Iterator[None]:
    """Note meetings there while the body runs."""
    token = _noted.set(meetings)
    try:
        yield
    finally:
        _noted.reset(token)
