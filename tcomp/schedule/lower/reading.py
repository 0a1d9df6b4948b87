"""What a kernel computes at one point of its domain: movements composed into positions, down to elements of buffers.

`Reader.read(n, at)` is the scalar expression of node `n` at positions `at` (index expressions over the domain's axes).
Whatever is already in memory or in a register is a leaf; everything else is computed in place. `checks` collects the index
buffers whose elements have to be proven in range before they are used as positions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tcomp.ir import dtype as dt
from tcomp.ir import index, tile
from tcomp.ir.dtype import to_numpy
from tcomp.ir.graph import reshape
from tcomp.ir.index import INDEX
from tcomp.ir.node import Dim, Node, walk
from tcomp.ir.ops import OPS
from tcomp.ir.types import Buffer
from tcomp.schedule.lower.ranges import known_range

At = tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class IndexCheck:
    """`count` elements of a flat `buffer`, from `first` in steps of `step`, must be in [0, size)."""

    buffer: Buffer
    size: Dim
    count: Dim
    first: Dim
    step: Dim


@dataclass(slots=True)
class Reader:
    """Reads nodes at positions. in_memory: whether a node is a buffer of the program; local: values the kernel holds."""

    in_memory: Callable[[Node], bool]
    inputs: dict[Node, Buffer] = field(default_factory=dict)
    local: dict[Node, Callable[[At], Node]] = field(default_factory=dict)
    checks: dict[IndexCheck, Node] = field(default_factory=dict)  # and the node whose positions they are
    _memo: dict[tuple[Node, At], Node] = field(default_factory=dict)

    def buffer(self, n: Node) -> Buffer:
        """The input buffer that holds `n`, named by the order of first use."""
        if n not in self.inputs:
            self.inputs[n] = Buffer(f"in{len(self.inputs)}", n.type.dtype, n.type.shape)
        return self.inputs[n]

    def _home(self, n: Node) -> Node:
        """What `n` is a reshape of: the first value of these in memory, if any is."""
        while n.op == "reshape" and n not in self.local and not self.in_memory(n):
            n = n.operands[0]
        return n

    def read(self, n: Node, at: At) -> Node:
        """The element of `n` at `at`."""
        key = (n, at)
        if key not in self._memo:
            self._memo[key] = self._read(n, at)
        return self._memo[key]

    def stored(self, n: Node, at: At) -> Node:
        """The element of `n` at `at`, for what takes windows only: a constant of one element is read from memory too."""
        base = n
        while base.op in ("broadcast", "reshape", "transpose", "slice", "window"):
            base = base.operands[0]
        if base.op == "constant" and base["value"].array.size == 1:
            return tile.load(self.buffer(base), (0,) * base.type.rank)
        return self.read(n, at)

    def _read(self, n: Node, at: At) -> Node:
        if n in self.local:
            return self.local[n](at)
        base = self._home(n)
        if base.op == "constant" and base["value"].array.size == 1:
            return _element(base["value"].array.reshape(()), n.type.dtype)
        if base not in self.local and self.in_memory(base):
            return tile.load(self.buffer(n), at)  # the same memory, whatever its shape
        match n.op:
            case "iota":
                return tile.position(at[n["axis"]], n.type.dtype)
            case "dimension":
                return tile.position(n["dim"], n.type.dtype)
            case "copy":
                return self.read(n.operands[0], at)
            case "pad":
                return self._pad(n, at)
            case "gather" | "gather_elements" | "gather_nd":
                return self._gather(n, at)
            case "broadcast" | "transpose" | "slice" | "reshape" | "window" | "stretch":
                return self.read(n.operands[0], moved(n, at))
        assert OPS[n.op].kind == "pointwise", f"{n.op} is neither in memory nor computed in place"
        return tile.pointwise(n.op, *(self.read(o, at) for o in n.operands), **dict(n.attrs))

    def _pad(self, n: Node, at: At) -> Node:
        """Padding in place: `else` where the operand is a buffer; a select where it is computed, with nothing read outside."""
        x, value = n.operands
        inner = tuple(index.sub(p, low) for p, low in zip(at, n["low"]))
        fill = self.read(value, ())
        if all(_inside(p, d) == 1 for p, d in zip(inner, x.type.shape)):
            return self.read(x, inner)
        if x not in self.local and self.in_memory(x):
            return tile.load(self.buffer(x), inner, other=fill)
        inside: Dim = 1
        for p, d in zip(inner, x.type.shape):
            inside = index.mul(inside, _inside(p, d))
        clamped = tuple(
            p if _inside(p, d) == 1 else index.maximum(index.minimum(p, index.sub(d, 1)), 0) for p, d in zip(inner, x.type.shape)
        )
        filled = all((index.bounds(d)[0] or 0) > 0 for d in x.type.shape)  # else there may be no element to clamp to
        element = self.read(x, clamped) if filled else _guarded(self.read(x, inner))
        return tile.pointwise("where", tile.position(inside, dt.bool_), element, fill)

    def _gather(self, n: Node, at: At) -> Node:
        """The element at positions that are read; of nothing, which a check refuses before: any."""
        x, found = n.operands[0], self._gathered(n, at)
        return self.read(x, found) if 0 not in x.type.shape else _element(np.zeros((), to_numpy(x.type.dtype)), x.type.dtype)

    def _gathered(self, n: Node, at: At) -> At:
        """The positions in a gather's data operand, some of them read from its index operand."""
        x, where = n.operands
        if n.op == "gather_nd":
            batch, depth = n["batch"], where.type.shape[-1]
            lead = at[: where.type.rank - 1]
            found = [self.position(n, where, (*lead, k), x.type.shape[batch + k]) for k in range(depth)]
            return (*at[:batch], *found, *at[where.type.rank - 1 :])
        axis = n["axis"]
        if n.op == "gather_elements":
            return (*at[:axis], self.position(n, where, at, x.type.shape[axis]), *at[axis + 1 :])
        rank = where.type.rank
        found_one = self.position(n, where, at[axis : axis + rank], x.type.shape[axis])
        return (*at[:axis], found_one, *at[axis + rank :])

    def position(self, user: Node, n: Node, at: At, size: Dim) -> Dim:
        """An element of the integer tensor `n` as a position along an axis of `size`."""
        used: Dim = 1
        while not self.in_memory(self._home(n)):
            assert n.op in ("broadcast", "transpose"), f"the positions of {user.op} are not in memory"
            used = index.mul(used, index.product(n.type.shape))
            n, at = n.operands[0], moved(n, at)
        found = linear(at, n.type.shape)
        lo, hi = known_range(self._home(n)) or (-1, -1)
        least, top = index.bounds(size)
        if lo < 0 or least is None or hi >= least:
            self._prove(user, n, at, size, used)
            lo, hi = 0, top - 1 if top is not None else -1
        elif lo == hi:
            return lo
        return index.read(self.buffer(_flat(n)), (found,), lo, hi if hi >= 0 else None)

    def _prove(self, user: Node, n: Node, at: At, size: Dim, used: Dim) -> None:
        """All elements of `n` have to be in range, of coordinates those of the same axis; unless no position is used."""
        first, step = (at[-1], n.type.shape[-1]) if user.op in ("gather_nd", "scatter_nd") else (0, 1)
        rows = n.type.shape[:-1] if user.op in ("gather_nd", "scatter_nd") else n.type.shape
        count = index.mul(index.product(rows), index.less(0, used))
        check = IndexCheck(self.buffer(_flat(n)), size, count, first, step)
        self.checks.setdefault(check, user)


def _element(value: np.ndarray, dtype: dt.DType) -> Node:
    """A scalar constant; one of a storage dtype by its byte."""
    if dtype.is_storage:
        return tile.pointwise("bitcast", tile.full(int(value.view(np.uint8)), dt.u8), dtype=dtype)
    return tile.full(float(value) if dtype.is_float else value.item(), dtype)


def _flat(n: Node) -> Node:
    """The elements of `n` in a row."""
    return n if n.type.rank == 1 else reshape(n, (index.product(n.type.shape),))


def linear(at: At, shape: tuple[Dim, ...]) -> Dim:
    """The row-major number of a position."""
    total: Dim = 0
    for p, d in zip(at, shape):
        total = index.add(index.mul(total, d), p)
    return total


def _guarded(e: Node) -> Node:
    """`e` with zeros for what its loads would read outside their buffers."""
    done: dict[Node, Node] = {}
    for n in walk([e]):
        if n.op == "load" and not n["has_else"]:
            w = tile.window(n)
            done[n] = tile.load(w.buffer, w.positions, (), None, tile.full(0, w.buffer.dtype))
        elif n.type is not INDEX:
            done[n] = tile.retype(n, tuple(done.get(o, o) for o in n.operands))
    return done[e]


def _inside(p: Dim, d: Dim) -> Dim:
    """1 where 0 <= p < d."""
    return index.mul(index.less(-1, p), index.less(p, d))


def moved(n: Node, at: At) -> At:
    """Where a movement (not a pad) reads its operand."""
    x = n.operands[0].type
    match n.op:
        case "broadcast":
            return tuple(0 if d == 1 else at[a] for d, a in zip(x.shape, n["axes"]))
        case "transpose":
            out: list[Dim] = [0] * len(at)
            for k, p in enumerate(n["perm"]):
                out[p] = at[k]
            return tuple(out)
        case "slice":
            return tuple(index.add(b, index.mul(p, s)) for b, p, s in zip(n["start"], at, n["step"]))
        case "reshape":
            return reshaped(x.shape, n.type.shape, at)
        case "window":
            return _windowed(n, at)
        case "stretch":
            return tuple(p if d == e else index.mul(p, index.less(1, d)) for d, e, p in zip(x.shape, n.type.shape, at))
    raise AssertionError(n.op)


def _windowed(n: Node, at: At) -> At:
    rank = n.operands[0].type.rank
    out = list(at[:rank])
    for k, (axis, stride, dilation) in enumerate(zip(n["axes"], n["strides"], n["dilations"])):
        out[axis] = index.add(index.mul(at[axis], stride), index.mul(at[rank + k], dilation))
    return tuple(out)


def reshaped(old: tuple[Dim, ...], new: tuple[Dim, ...], at: At) -> At:
    """The positions in shape `old` of the element at `at` in shape `new`: groups of axes with equal products map alone."""
    out: list[Dim] = []
    for (o, n), places in _matched(old, new, at):
        out.extend(_delinearised(linear(places, n), o))
    return tuple(out)


def _matched(old: At, new: At, at: At) -> list[tuple[tuple[At, At], At]]:
    """The shapes cut into the shortest runs of axes with equal products: equal axes from the end, the rest from the front."""
    tail = 0
    while tail < min(len(old), len(new)) and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    i = j = 0
    groups: list[tuple[tuple[At, At], At]] = []
    while i < len(old) - tail or j < len(new) - tail:
        a, b = i, j
        left: Dim = 1
        right: Dim = 1
        while not (left == right and (i > a or j > b)):
            behind = _behind(left, right, i < len(old) - tail, j < len(new) - tail)
            if behind == "old":
                left, i = index.mul(left, old[i]), i + 1
            elif behind == "new":
                right, j = index.mul(right, new[j]), j + 1
            else:
                break
        groups.append(((old[a:i], new[b:j]), at[b:j]))
    return groups + [((old[k : k + 1 or None], new[k : k + 1 or None]), at[k : k + 1 or None]) for k in range(-tail, 0)]


def _behind(left: Dim, right: Dim, more_old: bool, more_new: bool) -> str:
    """Which side takes its next axis: the one whose product divides the other's."""
    if not more_old or not more_new:
        return "old" if more_old else "new" if more_new else ""
    if isinstance(left, int) and isinstance(right, int):
        return "old" if left <= right else "new"
    return "new" if _divides(right, left) and not _divides(left, right) else "old"


def _divides(a: Dim, b: Dim) -> bool:
    """Whether a is a factor of b for certain."""
    return a != 0 and index.mul(index.floordiv(b, a), a) == b


def _delinearised(place: Dim, dims: At) -> list[Dim]:
    """The positions along `dims` of a row-major element number."""
    out: list[Dim] = []
    for k, d in enumerate(dims):
        below = index.product(dims[k + 1 :])
        q = place if below == 1 else index.floordiv(place, below)
        out.append(0 if d == 1 else q if all(x == 1 for x in dims[:k]) else index.mod(q, d))
    return out


def loads(expressions: list[Node]) -> list[Node]:
    """All loads in these expressions, each once."""
    return [n for n in walk(expressions) if n.op == "load"]
