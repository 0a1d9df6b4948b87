"""Transposes that sank past work without need: where the order they give exists already, the work is done in that order.

A convolution's result in the order of the model's format may be needed as it is (flattened) and, past an activation, once more:
sinking makes two transposes of one. Here the activation is computed from the transposed value that there is anyway. A product
that is needed with its two sides exchanged, and in no other order, is that of its operands exchanged.
"""

from __future__ import annotations

from tcomp.ir.module import Module
from tcomp.ir.node import Node
from tcomp.ir.ops import OPS
from tcomp.passes.normal import Normaliser
from tcomp.passes.rebuild import rebuilt
from tcomp.passes.transposing import FLEXIBLE, Perm

DEPTH = 32  # operations between a transpose and the values that exist in its order


def untransposed(module: Module, m: Normaliser) -> Module:
    """`module` with transposes of pointwise work replaced by work on transposed values that exist; `m` makes normal nodes."""
    func = module.graph("`layout`")
    nodes = func.nodes()
    readers: dict[Node, int] = dict.fromkeys(func.results, 2)  # results are needed as they are
    for n in nodes:
        for o in n.operands:
            readers[o] = readers.get(o, 0) + 1
    existing = {(n.operands[0], n["perm"]) for n in nodes if n.op == "transpose"}
    turned = {n for n in nodes if n.op == "transpose" and _is_there(n.operands[0], n["perm"], existing, readers, DEPTH)}

    def change(old: Node, operands: tuple[Node, ...]) -> Node:
        if old not in turned:
            return m.change(old, operands)
        return _work(old.operands[0], operands[0], old["perm"], existing, m)

    return rebuilt(module, change) if turned else module


def _is_there(x: Node, perm: Perm, existing: set[tuple[Node, Perm]], readers: dict[Node, int], depth: int) -> bool:
    """Whether `x`, work that nobody else reads, can be computed in the order of `perm` from values that exist."""
    if readers[x] > 1 or not depth:
        return False
    if x.op == "dot":
        return perm == _exchanged(x)
    if OPS[x.op].kind != "pointwise":
        return False
    rest = [o for o in x.operands if o.op not in FLEXIBLE and (o, perm) not in existing]
    moved = len(rest) < sum(o.op not in FLEXIBLE for o in x.operands)
    return (moved or bool(rest)) and all(_is_there(o, perm, existing, readers, depth - 1) for o in rest)


def _work(old: Node, new: Node, perm: Perm, existing: set[tuple[Node, Perm]], m: Normaliser) -> Node:
    """What stands for the pointwise `old`, namely `new`, in the order of `perm`."""
    if (old.op, len(old.operands)) != (new.op, len(new.operands)):
        return m.transpose(new, perm)
    if new.op == "dot":
        (a, b), pairs = new.operands, {what: new[what][::-1] for what in ("batch", "contract")}
        return m.make("dot", b, a, **pairs) if perm == _exchanged(new) else m.transpose(new, perm)

    def operand(o: Node, p: Node) -> Node:
        given = o.op in FLEXIBLE or (o, perm) in existing
        return m.transpose(p, perm) if given else _work(o, p, perm, existing, m)

    return m.like(new, map(operand, old.operands, new.operands))


def _exchanged(n: Node) -> Perm:
    """The order of a product's axes when its operands change places."""
    batch = len(n["batch"][0])
    left = n.operands[0].type.rank - len(n["contract"][0])
    return (*range(batch), *range(left, n.type.rank), *range(batch, left))
