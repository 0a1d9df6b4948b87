"""Sizes that meet in a broadcast and are not known to be equal: NumPy's rule lets one of them be 1, and only a call knows.

While a program is traced or imported under `noting`, `met` gives the size of such an axis and notes who met whom. What is noted
becomes two programs: one in which a size that met another one *is* that one (fast, for the calls where that holds), and one that
decides by the sizes of the call (`stretch`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from tcomp.ir import index
from tcomp.ir.node import Dim, Node

Pair = tuple[Dim, Dim]


@dataclass(slots=True)
class Meetings:
    """What one attempt has met. pairs: in order, and where, as far as that is known; parts: the sizes that each size is made of,
    all of them equal to it or 1."""

    pairs: dict[Pair, str] = field(default_factory=dict)
    parts: dict[Dim, frozenset[Dim]] = field(default_factory=dict)

    def met(self, a: Dim, b: Dim) -> Dim:
        """The size of an axis where sizes `a` and `b` meet, of which neither is known to be 1."""
        if a == b or b in self.parts.get(a, ()):
            return a
        if a in self.parts.get(b, ()):
            return b
        self.pairs.setdefault((a, b), "")
        size = index.broadcast(a, b)
        mine = (frozenset([d]) | self.parts.get(d, frozenset()) for d in (a, b))
        self.parts[size] = self.parts.get(size, frozenset()).union(*mine) - {size}
        return size

    def stretches(self, d: Dim, size: Dim) -> bool:
        """Whether an axis of size `d` is repeated, or not, where one of `size` is wanted."""
        return d in self.parts.get(size, ())

    def merging(self) -> dict[Node, Dim]:
        """What symbols are where all that met is equal; nothing where that cannot be said by symbols alone."""
        fixed: dict[Node, Dim] = {}
        for pair in self.pairs:
            a, b = (index.substitute(d, fixed) for d in pair)
            if a == b:
                continue
            symbol, other = next(((x, y) for x, y in ((b, a), (a, b)) if _is_free(x, y)), (None, 0))
            if symbol is None:
                return {}
            fixed = {s: index.substitute(d, {symbol: other}) for s, d in fixed.items()} | {symbol: other}
        return fixed


def _is_free(x: Dim, other: Dim) -> bool:
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
