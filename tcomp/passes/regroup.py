"""How a `reshape` regroups axes: the shortest runs of axes with equal products, sizes of 1 left out."""

from __future__ import annotations

from tcomp.ir import index
from tcomp.ir.node import Dim, Node

Shape = tuple[Dim, ...]
Run = tuple[tuple[int, ...], tuple[int, ...]]  # axes of the operand, axes of the result


def is_exact(n: Node) -> bool:
    """Whether a reshape holds for all values of its symbols; others are assertions of the model and stay."""
    return index.product(n.operands[0].type.shape) == index.product(n.type.shape)


def source(n: Node) -> Node:
    """`n`, or the operand of an exact reshape."""
    return n.operands[0] if n.op == "reshape" and is_exact(n) else n


def real_axes(shape: Shape) -> list[int]:
    """The axes that are not known to have size 1."""
    return [a for a, d in enumerate(shape) if d != 1]


def real_dims(shape: Shape) -> Shape:
    """The sizes that are not known to be 1."""
    return tuple(d for d in shape if d != 1)


def runs(old: Shape, new: Shape) -> list[Run]:
    """The runs of a reshape from `old` to `new`, in order; a single one where a size is 0 and nothing can be told apart."""
    a, b = real_axes(old), real_axes(new)
    if any(d == 0 for d in (*old, *new)):
        return [((k,), (j,)) for k, j in zip(a, b)] if real_dims(old) == real_dims(new) else [(tuple(a), tuple(b))]
    ends = _prefixes(old, a)
    out: list[Run] = []
    i = j = 0
    for k, product in enumerate(_products(new, b), 1):
        end = ends.get(product)
        if end is not None:
            out.append((tuple(a[i:end]), tuple(b[j:k])))
            i, j = end, k
    return out


def _products(shape: Shape, axes: list[int]) -> list[Dim]:
    out: list[Dim] = []
    total: Dim = 1
    for a in axes:
        total = index.mul(total, shape[a])
        out.append(total)
    return out


def _prefixes(shape: Shape, axes: list[int]) -> dict[Dim, int]:
    """Product of the first axes -> how many they are."""
    return {p: k for k, p in enumerate(_products(shape, axes), 1)}


def regroups(n: Node) -> bool:
    """Whether a reshape does more than add or drop axes of size 1."""
    return real_dims(n.operands[0].type.shape) != real_dims(n.type.shape)
