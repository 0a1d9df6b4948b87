"""What operations demand of sizes that are known only at the call: index expressions that must not be 0.

Sizes are not negative; a reshape keeps the number of elements; what is stretched was 1; groups of channels are equal; what is
taken is there, an extreme too. Interpreters refuse a call where a demand does not hold, and so do compiled programs (TC0605).
"""

from __future__ import annotations

from tcomp.ir import index
from tcomp.ir.node import Dim, Node, walk
from tcomp.ir.types import TensorType


def demands(n: Node) -> list[Dim]:
    """What `n` demands and is not certain, first what the others need to have a meaning."""
    found = _not_negative(n)
    if n.operands and isinstance(n.operands[0].type, TensorType):
        found += _of_operation(n, n.operands[0].type.shape)
    return [d for d in found if d != 1]


def _not_negative(n: Node) -> list[Dim]:
    return [index.less(-1, d) for d in n.type.shape] if isinstance(n.type, TensorType) else []


def _of_operation(n: Node, shape: tuple[Dim, ...]) -> list[Dim]:
    """What an operation on a first operand of this shape demands beside."""
    match n.op:
        case "reshape":
            return [index.equal(index.product(shape), index.product(n.type.shape))]
        case "stretch":
            return [index.maximum(index.equal(d, e), index.equal(d, 1)) for d, e in zip(shape, n.type.shape)]
        case "slice":
            return [_inside(*axis) for axis in zip(n["start"], n["shape"], n["step"], shape)]
        case "conv":
            return [index.equal(index.mod(n.type.shape[-1], n["groups"]), 0)]
        case "argreduce":
            return [index.less(0, shape[n["axis"]])]
        case "top_k":
            return [index.less(index.sub(n["k"], 1), shape[n["axis"]])]
        case "gather_elements" | "scatter_elements":
            places = n.operands[1].type.shape
            fits = [index.less(index.sub(p, 1), d) for a, (p, d) in enumerate(zip(places, shape)) if a != n["axis"]]
            return [d if d == 1 else index.maximum(d, index.equal(index.product(places), 0)) for d in fits]
    return []


def _inside(start: Dim, count: Dim, step: int, size: Dim) -> Dim:
    """Whether positions are inside an axis. Those that a `min` or `max` cuts are cut to be."""
    if any(x.op in ("min", "max") for x in walk(d for d in (start, count) if isinstance(d, Node))):
        return 1
    last = index.add(start, index.mul(index.sub(count, 1), step))
    low, high = (start, last) if step > 0 else (last, start)
    inside = index.mul(index.less(-1, low), index.less(high, size))
    return inside if inside == 1 else index.maximum(inside, index.equal(count, 0))
