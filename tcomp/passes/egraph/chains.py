"""Long products, written out as one sum of products, whose order of contraction is then chosen as a whole.

Rules join at most a few factors, since every subset of them becomes an e-node; a chain of ten matrices would only be improved in
pieces. So a window with a longer chain gets one more term for it, equal by associativity.
"""

from __future__ import annotations

from collections.abc import Iterator

from tcomp.passes.egraph.terms import EMPTY, Names, Terms, free_indices
from tcomp.passes.rules.linear import MOST_FACTORS

LONGEST = 40


def long_products(t: Terms) -> list[tuple[int, int]]:
    """Rows and the equal rows, added to `t`, that hold all their factors. Only the outermost of nested products."""
    free: list[Names] = []
    for op, attrs, kids in t.rows:
        free.append(free_indices(op, attrs, [free[k] for k in kids]))
    inner = {k for op, _, kids in t.rows if op == "ein" for k in kids}
    out = []
    for row, (op, attrs, _) in enumerate(list(t.rows)):
        if op != "ein" or not attrs[0] or row in inner:
            continue
        summed, factors = _flattened(t, row, free)
        if MOST_FACTORS < len(factors) <= LONGEST:
            out.append((row, t.ein(summed, *factors)))
    return out


def _flattened(t: Terms, row: int, free: list[Names]) -> tuple[Names, list[int]]:
    """The summed indices and factors of a product of products; one whose indices mean something else outside stays a factor."""
    _, attrs, kids = t.rows[row]
    summed, factors = frozenset(attrs[0]), list(kids)
    while (found := next(_openable(t, summed, factors, free), None)) is not None:
        at, names = found
        summed |= names
        factors[at : at + 1] = t.rows[factors[at]][2]
    return summed, factors


def _openable(t: Terms, summed: Names, factors: list[int], free: list[Names]) -> Iterator[tuple[int, Names]]:
    """Factors that are products and can be opened here, with the indices they sum over."""
    for at, f in enumerate(factors):
        op, attrs, _ = t.rows[f]
        if op != "ein":
            continue
        names = frozenset(attrs[0])
        others = EMPTY.union(*(free[o] for k, o in enumerate(factors) if k != at))
        if not names & (summed | others):
            yield at, names
