"""`decompose`: operations that lowering does not take become ones that it does.

Takes a GRAPH, gives a GRAPH in which
* `reduce` is over the last axis alone, or over axes that do not include the last one; `argreduce` is gone;
* `scan`, `sort` and `top_k` run along the last axis;
* `dot` is [M, K] x [K, N] or [B, M, K] x [B, K, N], `conv` has one group or one channel in and out of each, both of f32, f64,
  i32 or i64;
* `pow` by the constant 2 is a product; conversions to and from storage types are operations on their bits.
Meaning is kept bit for bit; sums of 16-bit floats are rounded once, where the undivided operation rounds.

    r = reduce add x axes (0, 2)            ->   s = reduce add x axes (2);  r = reduce add s axes (0)
    i = argreduce max x axis 1              ->   m = reduce max x axes (1);  i = reduce min where(x == m, iota, most) axes (1)
    y = dot a[2, 3, 4], b[5, 4] contract..  ->   y = reshape(dot(reshape(a, [6, 4]), transpose(b)), [2, 3, 5])
"""

from __future__ import annotations

from collections.abc import Callable

from tcomp.ir.graph import attributes, transpose, uniform
from tcomp.ir.module import Module
from tcomp.ir.node import Node, with_operands
from tcomp.ir.ops import apply, item
from tcomp.passes import contraction, reduction, storage
from tcomp.passes.rebuild import rebuilt

Operands = tuple[Node, ...]


def decompose(module: Module) -> Module:
    """`module` with every operation in the form that lowering takes."""
    return rebuilt(module, _decomposed)


def _decomposed(n: Node, operands: Operands) -> Node:
    change = _CHANGES.get(n.op)
    return change(n, operands) if change is not None else with_operands(n, operands)


def _reduce(n: Node, operands: Operands) -> Node:
    return reduction.reduced(operands[0], _of_bits(n), n["axes"])


def _of_bits(n: Node) -> str:
    """The monoid of a reduction or scan; of booleans a sum is `or`, a product `and`."""
    monoid = str(n["monoid"])
    return {"add": "or", "mul": "and"}.get(monoid, monoid) if n.type.dtype.kind == "bool" else monoid


def _argreduce(n: Node, operands: Operands) -> Node:
    return reduction.arg_reduced(operands[0], n["monoid"], n["axis"], n["last"], n["dtype"])


def _dot(n: Node, operands: Operands) -> Node:
    a, b = operands
    return contraction.dot(a, b, n["batch"], n["contract"])


def _conv(n: Node, operands: Operands) -> Node:
    x, w = operands
    return contraction.conv(x, w, n["strides"], n["dilations"], n["groups"])


def _axis_last(rank: int, axis: int) -> tuple[int, ...]:
    return (*(a for a in range(rank) if a != axis), axis)


def _axis_back(rank: int, axis: int) -> tuple[int, ...]:
    """The inverse of `_axis_last`."""
    return (*range(axis), rank - 1, *range(axis, rank - 1))


def _along_last(n: Node, operands: Operands) -> Node:
    """`n`, an operation along one axis, along the last."""
    x, rank = operands[0], operands[0].type.rank
    attrs = attributes(n) | {"axis": rank - 1} | ({"monoid": _of_bits(n)} if n.op == "scan" else {})
    return apply(n.op, transpose(x, _axis_last(rank, n["axis"])), **attrs)


def _scan(n: Node, operands: Operands) -> Node:
    return transpose(_along_last(n, operands), _axis_back(n.type.rank, n["axis"]))


def _item(n: Node, operands: Operands) -> Node:
    """A result of `sort` or `top_k` with its axis back in its place."""
    source = n.operands[0]
    if source.op not in ("sort", "top_k"):
        return with_operands(n, operands)
    return transpose(item(operands[0], n["index"]), _axis_back(n.type.rank, source["axis"]))


def _pow(n: Node, operands: Operands) -> Node:
    x, exponent = operands
    return apply("mul", x, x) if uniform(exponent) == 2 else with_operands(n, operands)


def _cast(n: Node, operands: Operands) -> Node:
    if n.type.dtype.is_storage or operands[0].type.dtype.is_storage:
        return storage.converted(operands[0], n.type.dtype)
    return with_operands(n, operands)


_CHANGES: dict[str, Callable[[Node, Operands], Node]] = {
    "reduce": _reduce,
    "argreduce": _argreduce,
    "dot": _dot,
    "conv": _conv,
    "scan": _scan,
    "sort": _along_last,
    "top_k": _along_last,
    "item": _item,
    "pow": _pow,
    "cast": _cast,
}
