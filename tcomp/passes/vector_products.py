"""`vector_products`: a product with one column, or with one row against columns that lie contiguously, is a reduction.

Takes and gives a canonical GRAPH; must not touch other products. Register tiles of a product need columns; with one of them the
work is reading the matrix once, which is what a reduction along its rows does.

    y = dot a[M, K], x[K, 1]   ->   y = reshape(reduce add (a * broadcast(x)) axes (1), [M, 1])
    y = dot x[1, K], transpose(w[N, K])   ->   y = reshape(reduce add (w * broadcast(x)) axes (1), [1, N])
    y = dot transpose(w[K, M]), x[K, 1]   ->   y = reshape(dot reshape(x, [1, K]), w, [M, 1])
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
        return _swapped(a, b, n) if _lies_across(a) else _reduced(a, _turned(b), n)
    if a.type.shape[-2] == 1 and _lies_along_k(b):
        return _reduced(_turned(b), a, n)
    return with_operands(n, operands)


def _turned(x: Node) -> Node:
    """The last two axes exchanged."""
    rank = x.type.rank
    return transpose(x, (*range(rank - 2), rank - 1, rank - 2))


def _lies_along_k(b: Node) -> bool:
    """Whether a second operand [.., K, N] is a transposed [.., N, K] that is not known at compile time."""
    return _lies_across(b) and b.operands[0].op != "constant"


def _lies_across(x: Node) -> bool:
    """Whether the last two axes of a value lie in memory the other way round."""
    rank = x.type.rank
    return x.op == "transpose" and bool(x["perm"] == (*range(rank - 2), rank - 1, rank - 2))


def _swapped(a: Node, b: Node, n: Node) -> Node:
    """The product of one column as one of one row, whose second operand is read as it lies."""
    return reshape(apply("dot", _turned(b), _turned(a), **dict(n.attrs)), n.type.shape)


def _reduced(rows: Node, vector: Node, n: Node) -> Node:
    """sum over k of rows[.., m, k] * vector[.., 0, k], in the shape of `n`."""
    shape = rows.type.shape
    lead = tuple(range(len(shape) - 2))
    flat = reshape(vector, (*vector.type.shape[:-2], vector.type.shape[-1]))
    terms = apply("mul", rows, broadcast(flat, shape, (*lead, len(shape) - 1)))
    return reshape(apply("reduce", terms, monoid="add", axes=(len(shape) - 1,)), n.type.shape)
