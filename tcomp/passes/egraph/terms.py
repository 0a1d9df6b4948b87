"""`Terms`: a window in index notation, as a table of rows; and its text, which is what goes to the worker and comes back.

A row `(op, attrs, kids)` denotes a tensor over its free index names; kids are numbers of earlier rows.

    leaf (name, indices, weight)       an operand; weight: known at compile time       const (value,)     a scalar
    ein (summed,) f1 .. fn             sum over `summed` of the product; a summed index that no factor has multiplies by its size
    add () t1 .. tn                    sum of terms; indices that a term lacks repeat it
    un (op,) x, bin (op,) x y, tri (op,) x y z      pointwise operations; `inv` is 1/x
    max (i,) x                         largest along i
    ren (i, j) x                       x with j in the place of i: a diagonal where x has j
    win (h, p, r, stride, dilation) x  x at h = stride * p + dilation * r
    cat (n, ga, gb) a b                index n runs through the indices ga of a, flattened, then through gb of b
    part (n, k, g) x                   the k-th of the two parts of index n, as the indices g

Factors and summands are unordered and kept sorted, so that equal rows are one row. Sizes are a table beside: no rule reads one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Row = tuple[str, tuple[Any, ...], tuple[int, ...]]
Names = frozenset[str]
EMPTY: Names = frozenset()
UNORDERED = ("ein", "add")


@dataclass(slots=True)
class Terms:
    """Rows, each once; `sizes`: extents of index names (a primed name has the size of the plain one)."""

    sizes: dict[str, int] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    _known: dict[Row, int] = field(default_factory=dict)

    def row(self, op: str, attrs: tuple[Any, ...], kids: Iterable[int] = ()) -> int:
        """The number of this row, which is added where it is new."""
        kids = tuple(sorted(kids)) if op in UNORDERED else tuple(kids)
        key = (op, attrs, kids)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = len(self.rows)
            self.rows.append(key)
        return found

    def leaf(self, name: str, indices: Iterable[str], weight: bool = False) -> int:
        return self.row("leaf", (name, tuple(indices), weight))

    def const(self, value: float) -> int:
        return self.row("const", (float(value),))

    def ein(self, summed: Iterable[str], *factors: int) -> int:
        return self.row("ein", (tuple(sorted(summed)),), factors)

    def add(self, *terms: int) -> int:
        return self.row("add", (), terms)

    def un(self, op: str, x: int) -> int:
        return self.row("un", (op,), (x,))

    def neg(self, x: int) -> int:
        return self.ein((), self.const(-1.0), x)


def size_of(sizes: Mapping[str, int], name: str) -> int:
    """The extent of an index; a primed one's is that of the name it was made from."""
    return sizes[name] if name in sizes else sizes[name.rstrip("'")]


def elements(sizes: Mapping[str, int], names: Iterable[str]) -> int:
    return math.prod(size_of(sizes, n) for n in names)


def free_indices(op: str, attrs: tuple[Any, ...], kids: list[Names]) -> Names:
    """The indices that a row depends on, from those of its kids."""
    all_of = EMPTY.union(*kids) if kids else EMPTY
    match op:
        case "leaf":
            return frozenset(attrs[1])
        case "ein":
            return all_of - frozenset(attrs[0])
        case "max":
            return all_of - {attrs[0]}
        case "ren":
            return (all_of - {attrs[0]}) | {attrs[1]} if attrs[0] in all_of else all_of
        case "win":
            return (all_of - {attrs[0]}) | {attrs[1], attrs[2]} if attrs[0] in all_of else all_of
        case "cat":
            return (all_of - set(attrs[1]) - set(attrs[2])) | {attrs[0]}
        case "part":
            return (all_of - {attrs[0]}) | set(attrs[2])
    return all_of


def to_json(rows: Iterable[Row]) -> list[Any]:
    return [[op, list(attrs), list(kids)] for op, attrs, kids in rows]


def from_json(data: Iterable[Any]) -> list[Row]:
    return [(op, tuple(_frozen(a) for a in attrs), tuple(kids)) for op, attrs, kids in data]


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def dump(data: Mapping[str, Any]) -> str:
    """One line of JSON, equal for equal data."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"))
