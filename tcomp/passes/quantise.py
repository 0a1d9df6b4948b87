"""`quantise`: products of dequantised operands are computed in integers.

Takes a GRAPH as imported, before constants are folded; gives one in which every `dot` and `conv` of f32 whose operands are bytes
less a zero point, times a scale, is the same of the integers, times the product of the scales. The sum of integers is exact, so
the result differs from the text's by the rounding of its sums alone: class `reassociates`. Must leave alone what `byte_products`
would not take, and sums that i32 does not hold.

    y = dot (cast(x - 3) * s), (cast(w) * t)   ->   y = cast(dot (x - 3), w) * (s * t)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.graph import broadcast, cast, full
from tcomp.ir.machine import Machine
from tcomp.ir.module import Module
from tcomp.ir.node import Dim, Node, with_operands
from tcomp.ir.ops import apply
from tcomp.ir.ops.reduction import free_axes
from tcomp.passes.byte_products import LEAST_COLUMNS, LEAST_DEPTH, Bytes, bytes_of
from tcomp.passes.rebuild import rebuilt

_MOST_DEPTH = 2**31 // 255**2  # products of bytes less a byte that i32 holds the sum of


@dataclass(frozen=True, slots=True)
class Scaled:
    """The f32 value `cast(node) * scale`: node of i32; scale a scalar, or a vector along `axis`."""

    node: Node
    scale: Node
    axis: int | None = None


def quantise(module: Module, machine: Machine, reassociates: bool = True) -> Module:
    """`module` with its products of dequantised operands in integers, where the machine multiplies bytes."""
    if machine.words() is None or not reassociates:
        return rebuilt(module, with_operands_of)
    pass_ = _Quantising()
    return rebuilt(module, pass_.changed)


def with_operands_of(n: Node, operands: tuple[Node, ...]) -> Node:
    return with_operands(n, operands)


class _Quantising:
    """One run: what is known of values so far."""

    def __init__(self) -> None:
        self.scaled_values: dict[Node, Scaled | None] = {}
        self.byte_values: dict[Node, Bytes | None] = {}

    def changed(self, n: Node, operands: tuple[Node, ...]) -> Node:
        new = with_operands(n, operands)
        if n.op not in ("dot", "conv") or n.type.dtype != dt.f32 or not _is_worth_it(new):
            return new
        a, b = (self.scaled(o) for o in operands)
        if a is None or b is None or a.axis is not None or not self._are_bytes(new, a.node, b.node):
            return new
        at = None if b.axis is None else _result_axis(new, b.axis)
        if b.axis is not None and at is None:
            return new
        total = cast(apply(n.op, a.node, b.node, **dict(n.attrs)), dt.f32)
        if at is None:
            scale = broadcast(apply("mul", a.scale, b.scale), n.type.shape, ())
        else:
            scale = broadcast(apply("mul", broadcast(a.scale, b.scale.type.shape, ()), b.scale), n.type.shape, (at,))
        return apply("mul", total, scale)

    def _are_bytes(self, n: Node, a: Node, b: Node) -> bool:
        """Whether `byte_products` will multiply bytes."""
        first, second = (bytes_of(x, self.byte_values) for x in (a, b))
        if first is None or second is None or second.zero is not None:
            return False
        return n.op == "dot" or (second.offset == 0 and _is_known(b))

    def scaled(self, n: Node) -> Scaled | None:
        """`n` as integers times a scale; None where it is not."""
        if n not in self.scaled_values:
            self.scaled_values[n] = self._found(n)
        return self.scaled_values[n]

    def _found(self, n: Node) -> Scaled | None:
        if n.type.dtype != dt.f32:
            return None
        if n.op == "mul":
            return _dequantised(*n.operands) or _dequantised(*reversed(n.operands))
        if n.op not in ("pad", "transpose", "reshape", "broadcast", "slice", "window"):
            return None
        x = self.scaled(n.operands[0])
        axis = None if x is None or x.axis is None else _moved_axis(n, x.axis)
        if x is None or (x.axis is not None and axis is None):
            return None
        if n.op == "pad":
            fill = n.operands[1]
            zero = fill.op == "constant" and float(fill["value"].array) == 0
            return replace(x, node=apply("pad", x.node, full(0, dt.i32), **dict(n.attrs))) if zero else None
        return Scaled(apply(n.op, x.node, **dict(n.attrs)), x.scale, axis)


def _dequantised(x: Node, scale: Node) -> Scaled | None:
    """x * scale, where x is a cast of integers."""
    if x.op != "cast" or x.operands[0].type.dtype not in (dt.i32, dt.i8, dt.u8):
        return None
    value, axes = cast(x.operands[0], dt.i32), tuple(range(scale.type.rank))
    while scale.op in ("broadcast", "reshape") and scale.type.rank > 1:
        if scale.op == "reshape":
            return None
        axes = tuple(axes[a] for a in scale["axes"])
        scale = scale.operands[0]
    if scale.type.rank == 1 and scale.op == "broadcast" and scale.operands[0].type.rank == 0:
        axes, scale = (), scale.operands[0]
    if scale.type.rank == 0:
        return Scaled(value, scale)
    whole = scale.type.rank == 1 and scale.type.shape[0] == value.type.shape[axes[0]]
    return Scaled(value, scale, axes[0]) if whole else None


def _moved_axis(n: Node, axis: int) -> int | None:
    """Where an axis goes in a movement that leaves it whole."""
    match n.op:
        case "pad":
            return axis if n["low"][axis] == 0 and n["high"][axis] == 0 else None
        case "transpose":
            return int(n["perm"].index(axis))
        case "reshape":
            old, new = n.operands[0].type.shape, n.type.shape
            before = index.product(old[:axis])
            return next((k for k, d in enumerate(new) if d == old[axis] and index.product(new[:k]) == before), None)
    return None


def _is_known(n: Node) -> bool:
    """Whether no parameter takes part."""
    stack, seen = [n], {n}
    while stack:
        x = stack.pop()
        if x.op in ("parameter", "item") or not (x.operands or x.op == "constant"):
            return False
        new = [o for o in x.operands if o not in seen]
        seen.update(new)
        stack.extend(new)
    return True


def _is_worth_it(n: Node) -> bool:
    """Whether words are mostly full, and i32 holds the sums: a depth that is known."""
    b = n.operands[1].type.shape
    depth: Dim
    if n.op == "conv":
        depth, columns = index.product(b[:-1]), b[-1]
        if n["groups"] != 1:
            return False
    else:
        depth = index.product(b[a] for a in n["contract"][1])
        columns = index.product(b[a] for a in free_axes(len(b), n["batch"][1], n["contract"][1]))
    enough = not isinstance(columns, int) or columns >= LEAST_COLUMNS
    return enough and isinstance(depth, int) and LEAST_DEPTH <= depth <= _MOST_DEPTH


def _result_axis(n: Node, axis: int) -> int | None:
    """Where a free axis of the second operand is in the result."""
    if n.op == "conv":
        return n.type.rank - 1 if axis == n.operands[1].type.rank - 1 else None
    free = free_axes(n.operands[1].type.rank, n["batch"][1], n["contract"][1])
    return n.type.rank - len(free) + free.index(axis) if axis in free else None
