"""Rules of `canonicalise` that choose where work is done: what is repeated is computed before it is repeated, and reshapes move
towards the results, so that none stands between operations that could share a kernel.

Where operands of a pointwise operation are reshaped from different shapes, the work is done in the shape of a value that a
product, convolution or reduction leaves behind, else of a pointwise value, else of the lowest rank. The choice depends only on
the values under the reshapes, so that it is the same before and after.
"""

from __future__ import annotations

from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import OPS
from tcomp.ir.ops.table import show_shape
from tcomp.passes.normal import Normaliser
from tcomp.passes.regroup import is_exact, real_dims, regroups, runs, source

Shape = tuple[Dim, ...]


# --- before it is repeated -------------------------------------------------------------------------


def before_repeating(n: Node, m: Normaliser) -> Node | None:
    """pointwise(broadcast(x), broadcast(y)) is computed on the axes that x or y have, and repeated afterwards."""
    if not n.operands or any(o.op != "broadcast" for o in n.operands):
        return None
    axes = sorted({a for o in n.operands for a in o["axes"]})
    if all(d == 1 for a, d in enumerate(n.type.shape) if a not in axes):
        return None
    shape = tuple(n.type.shape[a] for a in axes)
    small = m.like(n, (m.broadcast(o.operands[0], shape, map(axes.index, o["axes"])) for o in n.operands))
    return m.broadcast(small, n.type.shape, axes)


# --- reshapes sink ---------------------------------------------------------------------------------


def after_reshape(n: Node, m: Normaliser) -> Node | None:
    """pointwise(reshape(x), y) is computed in the shape of x, where that is the shape to work in."""
    if not any(o.op == "reshape" for o in n.operands):
        return None
    shape = _working_shape(n, m)
    if shape is None or shape == n.type.shape:
        return None
    return m.reshape(m.like(n, (m.reshape(o, shape) for o in n.operands)), n.type.shape)


def _working_shape(n: Node, m: Normaliser) -> Shape | None:
    """The shape to compute in, or None where no operand decides."""
    votes: list[tuple[int, Shape]] = [(_weight(x, m), x.type.shape) for x in map(source, n.operands)]
    votes = [(w, s) for w, s in votes if w >= 0]
    if not votes:
        return None
    weight, shape = min(votes, key=lambda v: (-v[0], len(v[1]), show_shape(v[1])))
    repeated = [o for o in n.operands if o.op == "broadcast"]
    if weight < 2 and any(not _stays_broadcast(o, shape) for o in repeated):
        return None
    return shape


def _weight(x: Node, m: Normaliser) -> int:
    """How much it matters to compute in the shape of `x`."""
    if x in m.anchored:
        return 2
    if x.op in ("constant", "broadcast"):
        return -1
    return 1 if OPS[x.op].kind == "pointwise" else 0


def _stays_broadcast(x: Node, shape: Shape) -> bool:
    """Whether a broadcast reshaped to `shape` only repeats its operand along other axes."""
    return all(len(old) == len(new) == 1 or not set(old) & set(x["axes"]) for old, new in runs(x.type.shape, shape))


def reduce_after_reshape(n: Node, m: Normaliser) -> Node | None:
    """reduce(reshape(x)) where the reshape regroups only axes that stay."""
    x = n.operands[0]
    if x.op != "reshape" or not is_exact(x) or any(x.type.shape[a] == 1 for a in n["axes"]):
        return None
    small = x.operands[0]
    small = m.reshape(small, real_dims(small.type.shape))
    if small.type.shape == x.type.shape or not (regroups(x) or 1 in x.type.shape):
        return None
    axes: list[int] = []
    for old, new in runs(small.type.shape, x.type.shape):
        gone = [a for a in new if a in n["axes"]]
        if gone and not len(old) == len(new) == 1:
            return None
        axes += old if gone else ()
    if len(axes) != len(n["axes"]):
        return None
    return m.reshape(m.make("reduce", small, monoid=n["monoid"], axes=tuple(axes)), n.type.shape)


def empty_reduce(n: Node, m: Normaliser) -> Node | None:
    """A reduction over no axes changes nothing."""
    return n.operands[0] if n["axes"] == () else None
