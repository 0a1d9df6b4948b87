"""Bounds of integer tensors that follow from how they are computed: positions that are sure to be in range need no check.

A gather(table, at) has the bounds of the table; where(c, x, y) those of x and y together; argreduce those of its axis.
"""

from __future__ import annotations

import numpy as np

from tcomp.ir.node import Dim, Node

Range = tuple[int, int]
_MAX_DEPTH = 16  # of what is looked through
_OF_FIRST = frozenset(
    ("broadcast", "reshape", "transpose", "slice", "window", "stretch", "gather", "gather_elements", "gather_nd")
)


def known_range(n: Node, depth: int = 0) -> Range | None:
    """The smallest and largest element that the integer tensor `n` can have, or None where nothing is known."""
    if depth > _MAX_DEPTH:
        return None
    match n.op:
        case "constant":
            return _of_constant(n["value"].array)
        case "iota":
            return _below(n["shape"][n["axis"]])
        case "argreduce":
            return _below(n.operands[0].type.shape[n["axis"]])
        case "where":
            return _union(*(known_range(o, depth + 1) for o in n.operands[1:]))
        case "pad":
            return _union(*(known_range(o, depth + 1) for o in n.operands))
        case "concat":
            return _union(*(known_range(o, depth + 1) for o in n.operands))
        case "cast":
            return _of_cast(n, depth)
    return known_range(n.operands[0], depth + 1) if n.op in _OF_FIRST else None


def _of_constant(array: np.ndarray) -> Range | None:
    if array.dtype.kind not in "iu":
        return None
    return (int(array.min()), int(array.max())) if array.size else (0, 0)


def _below(size: Dim) -> Range | None:
    return (0, size - 1) if isinstance(size, int) and size > 0 else None


def _union(*ranges: Range | None) -> Range | None:
    known = [r for r in ranges if r is not None]
    if not known or len(known) != len(ranges):
        return None
    return min(lo for lo, _ in known), max(hi for _, hi in known)


def _of_cast(n: Node, depth: int) -> Range | None:
    """A cast from integers keeps values that fit."""
    x, t = n.operands[0], n["dtype"]
    if not x.type.dtype.is_integer or not t.is_integer:
        return None
    found = known_range(x, depth + 1)
    low, high = (0, 2**t.bits - 1) if t.kind == "uint" else (-(2 ** (t.bits - 1)), 2 ** (t.bits - 1) - 1)
    return found if found is not None and low <= found[0] and found[1] <= high else None
