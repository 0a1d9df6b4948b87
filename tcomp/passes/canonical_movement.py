"""Rules of `canonicalise` for movements: they compose, vanish where they move nothing, and repeat as late as they can.

Order of forms, outermost first: reshape, broadcast, transpose, slice. An operand of `broadcast` has no axes known to be 1.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from tcomp.ir import index
from tcomp.ir.dtype import to_numpy
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import constant
from tcomp.passes.normal import Normaliser, RuleFunction
from tcomp.passes.regroup import is_exact, real_axes, real_dims, regroups, runs

# --- transpose -------------------------------------------------------------------------------------


def _transpose(n: Node, m: Normaliser) -> Node | None:
    x, perm = n.operands[0], n["perm"]
    if perm == tuple(range(len(perm))):
        return x
    if x.op == "transpose":
        return m.transpose(x.operands[0], (x["perm"][p] for p in perm))
    real = [p for p in perm if x.type.shape[p] != 1]
    if real == sorted(real):
        return m.reshape(x, n.type.shape)
    if x.op == "broadcast":
        return _transposed_broadcast(n, m)
    if x.op == "reshape" and not regroups(x):
        return _transposed_units(n, real, m)
    return None


def _transposed_broadcast(n: Node, m: Normaliser) -> Node:
    """The operand is transposed, then repeated along the axes' new places."""
    x = n.operands[0]
    place = {p: k for k, p in enumerate(n["perm"])}
    order = sorted(range(len(x["axes"])), key=lambda k: place[x["axes"][k]])
    return m.broadcast(m.transpose(x.operands[0], order), n.type.shape, (place[x["axes"][k]] for k in order))


def _transposed_units(n: Node, real: list[int], m: Normaliser) -> Node:
    """Axes of size 1 are added or dropped after the transpose."""
    small = n.operands[0].operands[0]
    number = {a: k for k, a in enumerate(real_axes(n.operands[0].type.shape))}
    places = real_axes(small.type.shape)
    perm = list(range(small.type.rank))
    for at, axis in zip(places, real):
        perm[at] = places[number[axis]]
    return m.reshape(m.transpose(small, perm), n.type.shape)


# --- reshape ---------------------------------------------------------------------------------------


def _reshape(n: Node, m: Normaliser) -> Node | None:
    x = n.operands[0]
    if x.type.shape == n.type.shape:
        return x
    if not is_exact(n):
        return None
    if x.op == "reshape" and is_exact(x):
        return m.reshape(x.operands[0], n.type.shape)
    return _reshaped_broadcast(n, m) if x.op == "broadcast" else None


def _reshaped_broadcast(n: Node, m: Normaliser) -> Node | None:
    """Repeated axes are regrouped among themselves, as long as the operand's own stay as they are."""
    x = n.operands[0]
    axes: dict[int, int] = {}
    for old, new in runs(x.type.shape, n.type.shape):
        own = [a for a in old if a in x["axes"]]
        if own and not len(old) == len(new) == 1:
            return None
        axes.update(dict.fromkeys(own, new[0]))
    if len(axes) != len(x["axes"]):
        return None
    return m.broadcast(x.operands[0], n.type.shape, (axes[a] for a in x["axes"]))


# --- broadcast -------------------------------------------------------------------------------------


def _broadcast(n: Node, m: Normaliser) -> Node | None:
    x, axes, shape = n.operands[0], n["axes"], n.type.shape
    if axes == tuple(range(len(shape))) and x.type.shape == shape:
        return x
    if x.op == "broadcast":
        return m.broadcast(x.operands[0], shape, (axes[a] for a in x["axes"]))
    real = real_axes(x.type.shape)
    if len(real) < x.type.rank:
        return m.broadcast(m.reshape(x, (x.type.shape[a] for a in real)), shape, (axes[a] for a in real))
    if all(d == 1 for a, d in enumerate(shape) if a not in axes):
        return m.reshape(x, shape)
    if x.op == "reshape" and is_exact(x) and regroups(x):
        return _broadcast_regrouped(n, m)
    return None


def _broadcast_regrouped(n: Node, m: Normaliser) -> Node | None:
    """The operand is repeated before its axes are regrouped, if they stay side by side."""
    x, shape = n.operands[0], n.type.shape
    small = x.operands[0]
    small = m.reshape(small, real_dims(small.type.shape))
    starts: dict[int, tuple[tuple[int, ...], int]] = {}  # first result axis of a run -> (operand axes, how many result axes)
    for old, new in runs(small.type.shape, x.type.shape):
        at = [n["axes"][a] for a in new]
        if not at or any(b != a + 1 for a, b in pairwise(at)):
            return None
        starts[at[0]] = (old, len(at))
    inner: list[Dim] = []
    axes: list[int] = []
    a = 0
    while a < len(shape):
        old, count = starts.get(a, ((), 1))
        axes += range(len(inner), len(inner) + len(old))
        inner += [small.type.shape[k] for k in old] if a in starts else [shape[a]]
        a += count
    return m.reshape(m.broadcast(small, inner, axes), shape)


def _stretch(n: Node, m: Normaliser) -> Node | None:
    """A broadcast, or nothing, where the sizes are known."""
    x, shape = n.operands[0], n.type.shape
    if x.type.shape == shape:
        return x
    if all(d in (1, e) for d, e in zip(x.type.shape, shape)):
        return m.broadcast(x, shape, range(x.type.rank))
    return None


def _iota(n: Node, m: Normaliser) -> Node | None:
    """A line of positions, repeated."""
    dtype, size = n["dtype"], n.type.shape[n["axis"]]
    if size == 1:
        return m.full(constant(np.zeros((), to_numpy(dtype))), n.type.shape)
    if n.type.rank == 1:
        return None
    return m.broadcast(m.make("iota", shape=(size,), axis=0, dtype=dtype), n.type.shape, (n["axis"],))


def _constant(n: Node, m: Normaliser) -> Node | None:
    """One element is a scalar with axes of size 1."""
    array = n["value"].array
    return m.reshape(constant(array.reshape(())), n.type.shape) if array.size == 1 and array.ndim else None


# --- slice -----------------------------------------------------------------------------------------


def _slice(n: Node, m: Normaliser) -> Node | None:
    x, start, step = n.operands[0], n["start"], n["step"]
    if x.type.shape == n.type.shape and all(b == 0 for b in start) and all(s == 1 for s in step):
        return x
    match x.op:
        case "slice":
            first = tuple(index.add(b, index.mul(c, s)) for b, s, c in zip(x["start"], x["step"], start))
            steps = tuple(s * t for s, t in zip(x["step"], step))
            return m.make("slice", x.operands[0], start=first, shape=n.type.shape, step=steps)
        case "broadcast":
            return _sliced_broadcast(n, m)
        case "concat":
            return _sliced_concat(n, m)
        case "pad":
            return _sliced_pad(n, m)
    return None


def _sliced_broadcast(n: Node, m: Normaliser) -> Node:
    x = n.operands[0]
    small, axes = x.operands[0], x["axes"]
    start, shape, step = (tuple(n[name][a] for a in axes) for name in ("start", "shape", "step"))
    return m.broadcast(m.make("slice", small, start=start, shape=shape, step=step), n.type.shape, axes)


def _ends(n: Node, axis: int) -> tuple[int, int] | None:
    """The lowest and highest position that a slice takes along an axis, where they are known."""
    begin, count, step = (n[name][axis] for name in ("start", "shape", "step"))
    if not isinstance(begin, int) or not isinstance(count, int) or count == 0:
        return None
    end = begin + (count - 1) * step
    return min(begin, end), max(begin, end)


def _sliced_concat(n: Node, m: Normaliser) -> Node | None:
    """A slice of one operand."""
    x = n.operands[0]
    axis, ends, offset = x["axis"], _ends(n, x["axis"]), 0
    for part in x.operands:
        size = part.type.shape[axis]
        if ends is None or not isinstance(size, int):
            return None
        if offset <= ends[0] and ends[1] < offset + size:
            start = tuple(b - offset if a == axis else b for a, b in enumerate(n["start"]))
            return m.make("slice", part, start=start, shape=n.type.shape, step=n["step"])
        offset += size
    return None


def _sliced_pad(n: Node, m: Normaliser) -> Node | None:
    """A slice that leaves all padding out."""
    x = n.operands[0]
    for axis, (low, size) in enumerate(zip(x["low"], x.operands[0].type.shape)):
        untouched = low == 0 and x["high"][axis] == 0
        ends = _ends(n, axis)
        inside = ends is not None and isinstance(low, int) and isinstance(size, int) and low <= ends[0] and ends[1] < low + size
        if not untouched and not inside:
            return None
    start = tuple(index.sub(b, low) for b, low in zip(n["start"], x["low"]))
    return m.make("slice", x.operands[0], start=start, shape=n.type.shape, step=n["step"])


# --- pad, concat -----------------------------------------------------------------------------------


def _pad(n: Node, m: Normaliser) -> Node | None:
    x, value = n.operands
    if all(w == 0 for w in (*n["low"], *n["high"])):
        return x
    if x.op == "pad" and x.operands[1] is value:
        low, high = (tuple(index.add(a, b) for a, b in zip(n[side], x[side])) for side in ("low", "high"))
        return m.make("pad", x.operands[0], value, low=low, high=high)
    return None


def _concat(n: Node, m: Normaliser) -> Node | None:
    axis = n["axis"]
    parts = [x for x in n.operands if x.type.shape[axis] != 0] or [n.operands[0]]
    joined = [parts[0]]
    for x in parts[1:]:
        both = _rejoined(joined[-1], x, axis, m)
        joined[-1:] = [both] if both is not None else [joined[-1], x]
    if len(joined) == 1:
        return joined[0]
    return m.make("concat", *joined, axis=axis) if len(joined) < len(n.operands) else None


def _rejoined(x: Node, y: Node, axis: int, m: Normaliser) -> Node | None:
    """One slice for two that follow each other."""
    if not x.op == y.op == "slice" or x.operands != y.operands or x["step"][axis] != 1 or x["step"] != y["step"]:
        return None
    if any(p != q for a, (p, q) in enumerate(zip(x["start"], y["start"])) if a != axis):
        return None
    if index.add(x["start"][axis], x.type.shape[axis]) != y["start"][axis]:
        return None
    total = index.add(x.type.shape[axis], y.type.shape[axis])
    shape = (*x.type.shape[:axis], total, *x.type.shape[axis + 1 :])
    return m.make("slice", x.operands[0], start=x["start"], shape=shape, step=x["step"])


MOVEMENT_RULES: dict[str, tuple[RuleFunction, ...]] = {
    "transpose": (_transpose,),
    "reshape": (_reshape,),
    "broadcast": (_broadcast,),
    "stretch": (_stretch,),
    "iota": (_iota,),
    "constant": (_constant,),
    "slice": (_slice,),
    "pad": (_pad,),
    "concat": (_concat,),
}
