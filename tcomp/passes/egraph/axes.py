"""Axes of a GRAPH as lists of atoms: pieces of dimensions that reshapes never divide, and that one index name will stand for.

Operations unify the atoms of axes that run together; a reshape divides an atom where it must. Two atoms that stand in one
value, or meet in one product, are apart: they are never unified, the operand is read under other names there instead. An axis
of size 1 has no atom. Names come last, when everything is divided as finely as any use needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tcomp.ir import index
from tcomp.ir.node import Dim


class Inexpressible(Exception):
    """An operation that index notation cannot say here: it becomes a border between windows."""


class Atom:
    """A piece of a dimension. Once unified with another or divided, it only points on."""

    __slots__ = ("name", "parts", "size", "up")

    def __init__(self, size: Dim) -> None:
        self.size = size
        self.up: Atom | None = None
        self.parts: tuple[Atom, Atom] | None = None
        self.name = ""

    def root(self) -> Atom:
        a = self
        while a.up is not None:
            a = a.up
        return a


Axis = list[Atom]


def fresh(size: Dim) -> Axis:
    """The axis of a dimension that nothing is known about."""
    return [] if size == 1 else [Atom(size)]


def flat(atoms: Iterable[Atom]) -> list[Atom]:
    """The undivided atoms that these stand for now."""
    out: list[Atom] = []
    for a in atoms:
        a = a.root()
        out += flat(a.parts) if a.parts is not None else [a]
    return out


def quotient(size: Dim, by: Dim) -> Dim | None:
    """size / by where that is exact for all values of the symbols."""
    if by == 0:
        return None
    q = index.floordiv(size, by)
    return q if index.mul(q, by) == size else None


def divide(a: Atom, lead: Dim) -> None:
    """`a` becomes an outer atom of size `lead` and an inner one. Inexpressible where that does not divide it."""
    rest = quotient(a.size, lead)
    if rest is None or rest == 1:
        raise Inexpressible(f"{index.show(a.size)} does not split by {index.show(lead)}")
    a.parts = (Atom(lead), Atom(rest))


def align(x: Sequence[Atom], y: Sequence[Atom]) -> list[tuple[Atom, Atom]]:
    """Both axes divided into atoms of equal sizes, in pairs."""
    while True:
        p, q = flat(x), flat(y)
        uneven = next(((a, b) for a, b in zip(p, q) if a.size != b.size), None)
        if uneven is None:
            if len(p) != len(q):
                raise Inexpressible("axes of different factors")
            return list(zip(p, q))
        a, b = uneven
        if quotient(a.size, b.size) is not None:
            divide(a, b.size)
        else:
            divide(b, a.size)


def regroup(axes: Sequence[Axis], shape: Sequence[Dim]) -> list[Axis]:
    """The axes of a reshape to `shape`: the same atoms in the same order."""
    left = flat(a for axis in axes for a in axis)
    out: list[Axis] = []
    for size in shape:
        got: Axis = []
        need = size
        while need != 1:
            if not left:
                raise Inexpressible("a reshape of other factors")
            a = left[0]
            rest = quotient(need, a.size)
            if rest is None:
                divide(a, need)
                left[:1] = flat([a])
                continue
            got.append(a)
            need, left = rest, left[1:]
        out.append(got)
    if left:
        raise Inexpressible("a reshape of other factors")
    return out


class Scopes:
    """Which atoms are apart."""

    def __init__(self) -> None:
        self._scopes: list[list[Atom]] = []

    def add(self, axes: Iterable[Atom]) -> None:
        self._scopes.append(list(axes))

    def apart(self, a: Atom, b: Atom) -> bool:
        return any(a in s and b in s for s in (set(flat(scope)) for scope in self._scopes))

    def unify(self, axis: Sequence[Atom], other: Sequence[Atom]) -> list[tuple[Atom, Atom]]:
        """Both axes are one; pairs (atom of `other`, atom of `axis`) that are apart, to be read under the latter's name."""
        kept = []
        for a, b in align(axis, other):
            if a is b:
                continue
            if self.apart(a, b):
                kept.append((b, a))
            else:
                b.up = a
        return kept
