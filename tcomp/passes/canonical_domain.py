"""Rules of `canonicalise` that choose where work is done: what is repeated is computed before it is repeated, and reshapes move
towards the results, so that none stands between operations that could share a kernel.

Where operands of a pointwise operation are reshaped from different shapes, the work is done in the shape of a value that a
product, convolution or reduction leaves behind, else of a pointwise value, else of the lowest rank. The choice depends only on
the values under the reshapes, so that it is the same before and after.
"""

from __future__ import annotations

import numpy as np

from tcomp.ir.dtype import to_numpy
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import OPS, constant
from tcomp.ir.ops.table import show_shape
from tcomp.passes.normal import Normaliser
from tcomp.passes.regroup import is_exact, real_axes, real_dims, regroups, runs, source

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
    return shape if all(_stays_readable(o, shape, weight == 2) for o in repeated) else None


def _weight(x: Node, m: Normaliser) -> int:
    """How much it matters to compute in the shape of `x`."""
    if x in m.anchored:
        return 2
    if x.op in ("constant", "broadcast"):
        return -1
    return 1 if OPS[x.op].kind == "pointwise" else 0


def _stays_readable(x: Node, shape: Shape, rows_may_divide: bool) -> bool:
    """Whether a broadcast reshaped to `shape` still only repeats its operand along some axes. Where rows may divide, the place in
    its operand may be a quotient of the outer axes: one division for each row."""
    regrouped = [old for old, new in runs(x.type.shape, shape) if not len(old) == len(new) == 1]
    if rows_may_divide:
        regrouped = [old for old in regrouped if old[-1] == real_axes(x.type.shape)[-1]]
    return not any(set(old) & set(x["axes"]) for old in regrouped)


def reduce_after_reshape(n: Node, m: Normaliser) -> Node | None:
    """reduce(reshape(x)) where the reshape regroups only axes that stay. Work keeps its shape, so that all readers see one."""
    x = n.operands[0]
    if x.op != "reshape" or not is_exact(x):
        return None
    small = x.operands[0]
    if _weight(small, m) < 1:
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


def reduce_of_units(n: Node, m: Normaliser) -> Node | None:
    """A reduction over no axes, or over axes of size 1, changes nothing but the shape; a sum also turns -0 into +0."""
    x = n.operands[0]
    units = [a for a in n["axes"] if x.type.shape[a] == 1]
    if len(units) < len(n["axes"]) and not units:
        return None
    small = m.reshape(x, (d for a, d in enumerate(x.type.shape) if a not in units))
    axes = tuple(a - sum(u < a for u in units) for a in n["axes"] if a not in units)
    if axes:
        return m.make("reduce", small, monoid=n["monoid"], axes=axes)
    if n["monoid"] != "add" or not n.type.dtype.is_float:
        return small
    return m.make("add", small, m.full(constant(np.zeros((), to_numpy(n.type.dtype))), n.type.shape))
