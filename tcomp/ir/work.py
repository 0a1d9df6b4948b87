"""How much arithmetic a GRAPH function is: an estimate that decides how a program is called, and stands in its report."""

from __future__ import annotations

from tcomp.ir import index
from tcomp.ir.graph import Func
from tcomp.ir.node import Dim, Node
from tcomp.ir.types import TensorType

_FREE = frozenset({"constant", "parameter", "dimension", "item", "reshape", "iota", "broadcast"})


def flops(func: Func) -> int:
    """Operations of one call where all sizes are static, else 0. A product counts two for each element of its sums; any other
    operation counts one for each element of its largest operand or result, whether it computes or moves them."""
    total: Dim = 0
    for n in func.nodes():
        total = index.add(total, _work(n))
    return index.constant(total) or 0


def _work(n: Node) -> Dim:
    if n.op in _FREE:
        return 0
    if n.op == "dot":
        inner = [n.operands[0].type.shape[a] for a in n["contract"][0]]
        return index.product([2, *n.type.shape, *inner])
    if n.op == "conv":
        return index.product([2, *n.type.shape, *n.operands[1].type.shape[:-1]])
    sizes = [index.product(t.shape) for t in (n.type, *(o.type for o in n.operands)) if isinstance(t, TensorType)]
    if any(index.constant(size) is None for size in sizes):
        return next(size for size in sizes if index.constant(size) is None)
    return max(index.constant(size) or 0 for size in sizes) if sizes else 0
