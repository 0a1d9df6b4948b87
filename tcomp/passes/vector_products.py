"""`vector_products`: a product with one column, or with one row against columns that lie contiguously, is a reduction.

Takes and gives a canonical GRAPH; must not touch other products. Register tiles of a product need columns; with one of them the
work is reading the matrix once, which is what a reduction along its rows does.

    y = dot a[M, K], x[K, 1]   ->   y = reshape(reduce add (a * broadcast(x)) axes (1), [M, 1])
    y = dot x[1, K], transpose(w[N, K])   ->   y = reshape(reduce add (w * broadcast(x)) axes (1), [1, N])
"""

from __future__ import annotations

from tcomp.ir.graph import broadcast, reshape, transpose
from tcomp.ir.module import Module
from tcomp.ir.node import Node, with_operands
from tcomp.ir.ops import apply
from tcomp.passes.rebuild import rebuilt


def vector_products(module: Module) -> Module:
    """`module` with its matrix-vector products as reductions."""
    return rebuilt(module, _changed)


def _changed(n: Node, operands: tuple[Node, ...]) -> Node:
    if n.op != "dot":
        return with_operands(n, operands)
    a, b = operands
    if b.type.shape[-1] == 1:
        return _reduced(a, _turned(b), n)
    if a.type.shape[-2] == 1 and _lies_along_k(b):
        return _reduced(_turned(b), a, n)
    return with_operands(n, operands)


def _turned(x: Node) -> Node:
    """The last two axes exchanged."""
    rank = x.type.rank
    return transpose(x, (*range(rank - 2), rank - 1, rank - 2))


def _lies_along_k(b: Node) -> bool:
    """Whether a second operand [.., K, N] is a transposed [.., N, K] that is not known at compile time."""
    rank = b.type.rank
    swapped = (*range(rank - 2), rank - 1, rank - 2)
    return b.op == "transpose" and b["perm"] == swapped and b.operands[0].op != "constant"


def _reduced(rows: Node, vector: Node, n: Node) -> Node:
    """sum over k of rows[.., m, k] * vector[.., 0, k], in the shape of `n`."""
    shape = rows.type.shape
    lead = tuple(range(len(shape) - 2))
    flat = reshape(vector, (*vector.type.shape[:-2], vector.type.shape[-1]))
    terms = apply("mul", rows, broadcast(flat, shape, (*lead, len(shape) - 1)))
    return reshape(apply("reduce", terms, monoid="add", axes=(len(shape) - 1,)), n.type.shape)
