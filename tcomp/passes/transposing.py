"""Rules of `layout`: an operation of transposed operands is a transpose of the operation, its axes renamed.

The order in which a pointwise operation or a concatenation works depends on the values under the transposes only, so that the
choice is the same before and after.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tcomp.ir.node import Node
from tcomp.ir.ops.reduction import Axes, free_axes
from tcomp.passes.normal import Normaliser, RuleFunction
from tcomp.passes.regroup import Shape, is_exact, real_axes, real_dims, regroups, runs

Perm = tuple[int, ...]
FLEXIBLE = frozenset(["constant", "broadcast"])  # take any order at no cost, or at that of a smaller operand


def inverse(perm: Perm) -> Perm:
    """The order that undoes `perm`."""
    out = [0] * len(perm)
    for k, p in enumerate(perm):
        out[p] = k
    return tuple(out)


def _by(values: Sequence[object], perm: Perm) -> tuple[object, ...]:
    """Values by axis of a transposed operand as values by axis of the operand."""
    return tuple(values[k] for k in inverse(perm))


def _identity(rank: int) -> Perm:
    return tuple(range(rank))


# --- operations of several operands ----------------------------------------------------------------


def _split(x: Node) -> tuple[Node, Perm]:
    """The value under a transpose, and its order."""
    return (x.operands[0], x["perm"]) if x.op == "transpose" else (x, _identity(x.type.rank))


def _working_order(operands: Sequence[Node], m: Normaliser) -> Perm | None:
    """The order in which most bytes come; of equals that of what a convolution or product leaves, then of the first operand."""
    found = [(*_split(x), k) for k, x in enumerate(operands) if _split(x)[0].op not in FLEXIBLE]
    best: Perm | None = None
    score: tuple[int, bool] = (-1, False)
    for _, perm, _ in found:
        bases = [x for x, p, _ in found if p == perm]
        mine = (sum(x.type.dtype.bytes * _weight(x) for x in bases), any(x in m.anchored for x in bases))
        if mine > score:
            best, score = perm, mine
    return best


def _weight(x: Node) -> int:
    """Elements of an operand as far as they are known, relative to those of the others of its operation."""
    total = 1
    for d in x.type.shape:
        total *= d if isinstance(d, int) else 1
    return max(1, total)


def _in_order(operands: Iterable[Node], perm: Perm, m: Normaliser) -> list[Node]:
    """The operands such that transposing each by `perm` gives them as they were."""
    back = inverse(perm)
    return [x.operands[0] if x.op == "transpose" and x["perm"] == perm else m.transpose(x, back) for x in operands]


def _order_to_leave(n: Node, m: Normaliser) -> Perm | None:
    if not any(x.op == "transpose" for x in n.operands):
        return None
    perm = _working_order(n.operands, m)
    return None if perm is None or perm == _identity(len(perm)) else perm


def after_transpose(n: Node, m: Normaliser) -> Node | None:
    """pointwise(transpose(x), y) is the transpose of pointwise(x, transpose(y))."""
    perm = _order_to_leave(n, m)
    return None if perm is None else m.transpose(m.like(n, _in_order(n.operands, perm, m)), perm)


def _concat(n: Node, m: Normaliser) -> Node | None:
    perm = _order_to_leave(n, m)
    if perm is None:
        return None
    return m.transpose(m.make("concat", *_in_order(n.operands, perm, m), axis=perm[n["axis"]]), perm)


# --- operations of one operand ---------------------------------------------------------------------


def _under(x: Node, m: Normaliser) -> tuple[Node, Perm] | None:
    """The value under a transpose, and its order; axes of size 1 that come or go after the transpose count as its last."""
    if x.op == "transpose":
        return x.operands[0], x["perm"]
    if x.op != "reshape" or regroups(x) or x.operands[0].op != "transpose":
        return None
    small, perm = x.operands[0].operands[0], x.operands[0]["perm"]
    shape = real_dims(small.type.shape)
    places = real_axes(small.type.shape)
    real = iter(places.index(p) for p in perm if small.type.shape[p] != 1)
    units = iter(range(len(shape), x.type.rank))
    order = tuple(next(units) if d == 1 else next(real) for d in x.type.shape)
    return m.reshape(small, (*shape, *(1 for _ in range(x.type.rank - len(shape))))), order


def _reduce(n: Node, m: Normaliser) -> Node | None:
    found = _under(n.operands[0], m)
    if found is None:
        return None
    x, perm = found
    axes = tuple(sorted(perm[a] for a in n["axes"]))
    if _lowers(n["axes"], x.type.rank) and not _lowers(axes, x.type.rank):
        return None
    return m.transpose(m.make("reduce", x, monoid=n["monoid"], axes=axes), _without(perm, axes))


def _lowers(axes: Perm, rank: int) -> bool:
    """Whether `decompose` leaves a reduction over these axes as it is."""
    return axes == (rank - 1,) or rank - 1 not in axes


def _without(perm: Perm, gone: Sequence[int]) -> Perm:
    """The order of the axes that stay, renumbered."""
    kept = [p for p in perm if p not in gone]
    return tuple(sorted(kept).index(p) for p in kept)


def _argreduce(n: Node, m: Normaliser) -> Node | None:
    found = _under(n.operands[0], m)
    if found is None:
        return None
    x, perm = found
    axis = perm[n["axis"]]
    position = m.make("argreduce", x, monoid=n["monoid"], axis=axis, last=n["last"], dtype=n["dtype"])
    return m.transpose(position, _without(perm, (axis,)))


def _scan(n: Node, m: Normaliser) -> Node | None:
    found = _under(n.operands[0], m)
    last = n.type.rank - 1
    if found is None or (n["axis"] == last and found[1][last] != last):
        return None
    x, perm = found
    attrs = {"monoid": n["monoid"], "reverse": n["reverse"], "exclusive": n["exclusive"]}
    return m.transpose(m.make("scan", x, axis=perm[n["axis"]], **attrs), perm)


def _pad(n: Node, m: Normaliser) -> Node | None:
    found = _under(n.operands[0], m)
    if found is None:
        return None
    x, perm = found
    low, high = _by(n["low"], perm), _by(n["high"], perm)
    return m.transpose(m.make("pad", x, n.operands[1], low=low, high=high), perm)


def _slice(n: Node, m: Normaliser) -> Node | None:
    found = _under(n.operands[0], m)
    if found is None:
        return None
    x, perm = found
    start, shape, step = (_by(n[name], perm) for name in ("start", "shape", "step"))
    return m.transpose(m.make("slice", x, start=start, shape=shape, step=step), perm)


def _window(n: Node, m: Normaliser) -> Node | None:
    found = _under(n.operands[0], m)
    if found is None:
        return None
    x, perm = found
    rank = x.type.rank
    attrs = {"sizes": n["sizes"], "strides": n["strides"], "dilations": n["dilations"]}
    near = m.make("window", x, axes=tuple(perm[a] for a in n["axes"]), **attrs)
    return m.transpose(near, (*perm, *range(rank, n.type.rank)))


def _gather(n: Node, m: Normaliser) -> Node | None:
    found, positions = _under(n.operands[0], m), n.operands[1]
    if found is None or positions.type.rank != 1:
        return None
    x, perm = found
    return m.transpose(m.make("gather", x, positions, axis=perm[n["axis"]]), perm)


def _reshape(n: Node, m: Normaliser) -> Node | None:
    """A reshape that regroups axes which the transpose leaves side by side (splitting channels) is done before it."""
    found = _transposed(n.operands[0], m)
    if found is None:
        return None
    x, perm = found
    shape, new_shape = n.operands[0].type.shape, n.type.shape
    if not is_exact(n):
        return _relabelled(x, perm, shape, new_shape, m)
    blocks: list[tuple[Perm, tuple[int, ...]]] = []  # axes under the transpose -> axes of the result
    for old, new in runs(shape, new_shape):
        under = tuple(perm[a] for a in old)
        if not _side_by_side(under, x):
            return None
        blocks.append((under, new))
    order = sorted(range(len(blocks)), key=lambda k: blocks[k][0])
    if order == list(range(len(blocks))) or not regroups(n):
        return None
    early = [a for k in order for a in blocks[k][1]]
    place = {a: k for k, a in enumerate(early)}
    moved = m.transpose(m.reshape(x, (new_shape[a] for a in early)), (place[a] for a in sorted(early)))
    return m.reshape(moved, new_shape)


def _transposed(x: Node, m: Normaliser) -> tuple[Node, Perm] | None:
    """`x` as (value, order), where it is a transpose, or repeats one: what is repeated then follows the axis it is beside."""
    if x.op == "transpose":
        return x.operands[0], x["perm"]
    if x.op != "broadcast" or x.operands[0].op != "transpose":
        return None
    small, perm = x.operands[0].operands[0], x.operands[0]["perm"]
    beside: dict[int, list[int]] = {}  # axis of the operand (-1: none) -> axes of x from it up to the next one
    owner = -1
    for a in range(x.type.rank):
        owner = x["axes"].index(a) if a in x["axes"] else owner
        beside.setdefault(owner, []).append(a)
    order = [a for k in (-1, *inverse(perm)) for a in beside.get(k, [])]
    axes = [order.index(x["axes"][k]) for k in inverse(perm)]
    return m.broadcast(small, (x.type.shape[a] for a in order), axes), inverse(tuple(order))


def _relabelled(x: Node, perm: Perm, old: Shape, new: Shape, m: Normaliser) -> Node | None:
    """A reshape that asserts the size of one axis is done before the transpose."""
    if len(old) != len(new) or sum(d != e for d, e in zip(old, new)) != 1:
        return None
    return m.transpose(m.reshape(x, (new[k] for k in inverse(perm))), perm)


def _transpose(n: Node, m: Normaliser) -> Node | None:
    """transpose(reshape(transpose(x))) is one transpose, then the reshape, where the last one moves whole groups of axes."""
    y = n.operands[0]
    if y.op != "reshape" or not is_exact(y) or not regroups(y):
        return None
    found = _transposed(y.operands[0], m)
    if found is None:
        return None
    x, perm = found
    group = {new: [perm[a] for a in old] for old, new in runs(y.operands[0].type.shape, y.type.shape)}
    order = [a for a in n["perm"] if y.type.shape[a] != 1]
    early = [a for a in range(x.type.rank) if x.type.shape[a] == 1]
    while order:
        new = next((g for g in group if g == tuple(order[: len(g)])), ())
        if not new:
            return None
        early += group[new]
        order = order[len(new) :]
    return m.reshape(m.transpose(x, early), n.type.shape)


def _side_by_side(axes: Perm, x: Node) -> bool:
    """Whether axes follow each other in `x`, but for axes of size 1."""
    real = real_axes(x.type.shape)
    return bool(axes) and list(axes) == real[real.index(axes[0]) : real.index(axes[0]) + len(axes)]


# --- dot -------------------------------------------------------------------------------------------


def _dot(n: Node, m: Normaliser) -> Node | None:
    """Operands without their transposes, where the order of the result stays the same. A product of matrices stays one."""
    operands, batch, contract = list(n.operands), n["batch"], n["contract"]
    if (batch, contract) in _MATRICES:
        return None
    for side in (0, 1):
        x = operands[side]
        if x.op != "transpose":
            continue
        free = [x["perm"][a] for a in free_axes(x.type.rank, batch[side], contract[side])]
        if free == sorted(free):
            operands[side] = x.operands[0]
            batch, contract = (_renamed(pairs, side, x["perm"]) for pairs in (batch, contract))
    if operands == list(n.operands):
        return None
    return m.make("dot", *operands, batch=batch, contract=contract)


def _renamed(pairs: Axes, side: int, perm: Perm) -> Axes:
    axes = tuple(perm[a] for a in pairs[side])
    return (axes, pairs[1]) if side == 0 else (pairs[0], axes)


_MATRICES = ((((), ()), ((1,), (0,))), (((0,), (0,)), ((2,), (1,))))  # as `decompose` leaves them

TRANSPOSING_RULES: dict[str, tuple[RuleFunction, ...]] = {
    "transpose": (_transpose,),
    "concat": (_concat,),
    "reduce": (_reduce,),
    "argreduce": (_argreduce,),
    "scan": (_scan,),
    "pad": (_pad,),
    "slice": (_slice,),
    "window": (_window,),
    "gather": (_gather,),
    "reshape": (_reshape,),
    "dot": (_dot,),
}
