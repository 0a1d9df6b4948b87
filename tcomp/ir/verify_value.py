"""Legality of single tile values: their types, their windows, and what lies past the end of an axis that ends early."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from tcomp.ir import index, layout
from tcomp.ir import tile as t
from tcomp.ir.dtype import DType, i8, i32, to_numpy, u8, u32
from tcomp.ir.index import INDEX, show
from tcomp.ir.machine import INTRINSICS
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import MONOIDS, OPS
from tcomp.ir.ops.table import POINTWISE

TILE_OPS = frozenset(["load", "full", "ref", "position", "expand", "reduce", "valid", "dot", "when", "fold", "scan", "last"])


def differ(a: Dim, b: Dim) -> bool:
    """Whether two sizes are different for certain."""
    lo, hi = index.bounds(index.sub(a, b))
    return (lo is not None and lo > 0) or (hi is not None and hi < 0)


# --- types ---------------------------------------------------------------------------------------------


def type_faults(n: Node) -> Iterator[str]:
    """The type of a node is what its operands give, and they fit it."""
    tiles = [o for o in n.operands if o.type is not INDEX]
    if n.op not in TILE_OPS and (n.op not in OPS or OPS[n.op].kind != POINTWISE):
        yield f"`{n.op}` is no operation on tiles"
        return
    why = _operand_fault(n, tiles)
    if why is not None:
        yield why
        return
    inferred = t.retype(n, n.operands).type
    if inferred != n.type:
        yield f"`{n.op}` is of type {n.type}; its operands give {inferred}"


def _operand_fault(n: Node, tiles: list[Node]) -> str | None:
    """Why the operands do not fit, or None."""
    match n.op:
        case "load":
            return _else_fault(n, tiles)
        case "dot":
            return _dot_fault(n, tiles)
        case "reduce" | "fold" | "scan" | "last" | "valid":
            return f"`{n.op}` of a scalar" if tiles[0].type.rank == 0 else _monoid_fault(n)
        case "when":
            return None if _alike(tiles) else f"branches of types {tiles[0].type} and {tiles[1].type}"
        case "full" | "ref" | "position" | "expand":
            return None
    return _pointwise_fault(n, tiles)


def _else_fault(n: Node, tiles: list[Node]) -> str | None:
    if tiles and (tiles[0].type.dtype != n.type.dtype or tiles[0].type.rank not in (0, n.type.rank)):
        return f"`else` of type {tiles[0].type} for a window of {n.type}"
    return None


def _dot_fault(n: Node, tiles: list[Node]) -> str | None:
    a, b, acc = tiles
    row = INTRINSICS.get(n["intrinsic"])
    words = row is not None and row.a_from == "words"
    if a.type.rank != 2 or b.type.rank != 2 or acc.type.rank not in (0, 2):
        return f"a product of ranks {a.type.rank} and {b.type.rank} onto rank {acc.type.rank}"
    if words and (a.type.dtype not in (i8, u8) or b.type.dtype != u32 or acc.type.dtype != i32):
        return f"a product of {a.type.dtype} and {b.type.dtype} onto {acc.type.dtype}, where bytes meet words"
    if not words and a.type.dtype != b.type.dtype:
        return f"a product of {a.type.dtype} and {b.type.dtype}"
    depth = index.ceildiv(a.type.shape[1], row.atom[2]) if row is not None and words else a.type.shape[1]
    if differ(depth, b.type.shape[0]):
        return f"a product over {show(a.type.shape[1])} and {show(b.type.shape[0])} elements"
    given = zip(acc.type.shape, (a.type.shape[0], b.type.shape[1]))
    return f"an accumulator of type {acc.type}" if any(d != 1 and differ(d, e) for d, e in given) else None


def _monoid_fault(n: Node) -> str | None:
    if n.op in ("reduce", "fold", "scan") and n["monoid"] not in MONOIDS:
        return f"`{n['monoid']}` is no monoid"
    if n.op == "fold":
        width = n.operands[0].type.shape[-1]
        return None if isinstance(width, int) and width % n["to"] == 0 else f"{show(width)} lanes folded to {n['to']}"
    if n.op == "valid" and n.operands[2].type.rank:
        return f"a padding of type {n.operands[2].type}, which is no scalar"
    return None


def _alike(tiles: list[Node]) -> bool:
    """Equal dtypes; scalars, or equal ranks with axes that are equal or 1."""
    shapes = [x.type.shape for x in tiles if x.type.rank]
    same_rank = len({len(s) for s in shapes}) <= 1
    columns = zip(*shapes) if same_rank else ()
    return same_rank and len({x.type.dtype for x in tiles}) == 1 and not any(_clash(c) for c in columns)


def _clash(dims: tuple[Dim, ...]) -> bool:
    wide = [d for d in dims if d != 1]
    return any(differ(wide[0], d) for d in wide[1:])


def _pointwise_fault(n: Node, tiles: list[Node]) -> str | None:
    if len(tiles) != OPS[n.op].arity:
        return f"`{n.op}` of {len(tiles)} operands"
    if not _alike(tiles[1:] if n.op == "where" else tiles) or not _alike_shapes(tiles):
        return f"`{n.op}` of {' and '.join(str(x.type) for x in tiles)}"
    return None


def _alike_shapes(tiles: list[Node]) -> bool:
    shapes = [x.type.shape for x in tiles if x.type.rank]
    return len({len(s) for s in shapes}) <= 1 and not any(_clash(c) for c in zip(*shapes))


# --- windows -------------------------------------------------------------------------------------------


def window_faults(w: t.Window) -> Iterator[str]:
    """Positions that are outside of the buffer for certain."""
    if len(w.positions) != w.buffer.rank:
        yield f"{len(w.positions)} positions in `{w.buffer.name}`, of rank {w.buffer.rank}"
        return
    if w.other is not None or any(index.bounds(e)[0] in (0, None) for e in w.extents):
        return  # `else` covers what is outside, and an extent of 0 has no positions
    for axis, (p, room) in enumerate(zip(w.positions, memory_extents(w))):
        low, high = (_extreme(p, w, sign) for sign in (-1, 1))
        beyond, below = index.bounds(index.sub(high, room))[0], index.bounds(low)[1]
        if (beyond is not None and beyond >= 0) or (below is not None and below < 0):
            found = f"positions {show(low)} to {show(high)}" if low != high else f"position {show(low)}"
            yield f"`{w.buffer.name}` has {show(room)} elements along axis {axis}; {found} is outside"


def memory_extents(w: t.Window) -> tuple[Dim, ...]:
    """How far the memory of the buffer reaches along each axis: own memory to its capacity, in whole blocks."""
    b = w.buffer
    if b.space not in ("global", "ws") and any(index.bounds(d)[1] is None for d in b.shape):
        return b.shape
    return layout.room(b)


def _extreme(position: Dim, w: t.Window, sign: int) -> Dim:
    """The position at the end of the tile axes where it is largest (sign 1) or smallest (-1); masked axes count as short."""
    ends: dict[Node, Dim] = {}
    for atom, k in index.terms(position)[0].items():
        if t.is_axis(atom):
            n = t.axis_number(atom)
            far = k * sign > 0 and w.valid[n] is None
            ends[atom] = index.sub(w.extents[n], 1) if far else 0
    return index.substitute(position, ends)


# --- what lies past the end of an axis -----------------------------------------------------------------

Beyond = tuple[bool, np.ndarray | None]  # (the axis ends early, what every element past the end is; None: anything)
WHOLE: Beyond = (False, None)


@dataclass(frozen=True, slots=True)
class Padding:
    """What lies past the end of each axis of a value."""

    axes: tuple[Beyond, ...]

    @staticmethod
    def of(e: Node, named: Mapping[str, Padding]) -> Padding:
        done: dict[Node, Padding] = {}
        for n in t.nodes(e):
            done[n] = Padding(tuple(_beyond(n, axis, done, named) for axis in range(n.type.rank)))
        return done[e]

    def join(self, other: Padding) -> Padding:
        """Of a carried value: what it may be, started as self, yielded as other."""
        if len(self.axes) != len(other.axes):
            return other if len(other.axes) > len(self.axes) else self
        return Padding(tuple(_either(a, b) for a, b in zip(self.axes, other.axes)))


def _either(a: Beyond, b: Beyond) -> Beyond:
    if not a[0] and not b[0]:
        return WHOLE
    known = a[1] if b[1] is None or a[1] is None or np.array_equal(a[1], b[1], equal_nan=True) else None
    return True, b[1] if known is None and not a[0] else known


def _beyond(n: Node, axis: int, done: Mapping[Node, Padding], named: Mapping[str, Padding]) -> Beyond:
    """What lies past the end of one axis of a value."""
    match n.op:
        case "load":
            return (True, _scalar(0, n.type.dtype)) if n["masked"][axis] else WHOLE
        case "ref":
            axes = named[n["name"]].axes if n["name"] in named else ()
            return axes[axis] if axis < len(axes) else WHOLE
        case "full" | "position":
            return WHOLE
        case "expand":
            k = n["axis"]
            return WHOLE if axis == k else done[n.operands[0]].axes[axis - (axis > k)]
        case "reduce":
            return done[n.operands[0]].axes[axis + (axis >= n["axis"])]
        case "valid" if axis == n.type.rank - 1:
            pad = n.operands[2]
            return True, _scalar(pad["value"].value, pad["dtype"]) if pad.op == "full" else None
        case "dot":
            a, b, _ = (done[o].axes for o in n.operands)
            return (True, None) if (a[0][0] if axis == 0 else b[1][0]) else WHOLE
        case "valid" | "scan" | "last" | "fold":
            return done[n.operands[0]].axes[axis] if axis < len(done[n.operands[0]].axes) else WHOLE
    return _of_elements(n, axis, done)


def _of_elements(n: Node, axis: int, done: Mapping[Node, Padding]) -> Beyond:
    """Of a pointwise operation: early if an operand that runs along the axis is; known if all operands are there."""
    tiles = [o for o in n.operands if o.type is not INDEX]
    found = [done[o].axes[axis] for o in tiles if o.type.rank and o.type.shape[axis] != 1]
    if not any(early for early, _ in found):
        return WHOLE
    if n.op == "when":
        return _either(*found) if len(found) == 2 else (True, None)
    known = [_known(o, axis, done) for o in tiles]
    if n.op in MONOIDS and any(not early for early, _ in found) and _is_identity(n.op, n.type.dtype, known):
        return WHOLE  # lanes that hold something, combined with lanes that end early and change nothing from there on
    if n.op == "mul" and any(v is not None and v == 0 for v in known):
        return True, _scalar(0, n.type.dtype)
    if any(v is None for v in known):
        return True, None
    with np.errstate(all="ignore"):
        return True, np.asarray(OPS[n.op].reference(*known, **dict(n.attrs)))


def _is_identity(monoid: str, dtype: DType, values: list[np.ndarray | None]) -> bool:
    """Whether each value that is known is the identity, and one is."""
    known = [v for v in values if v is not None]
    return bool(known) and all(v == MONOIDS[monoid].identity(dtype) for v in known)


def _known(o: Node, axis: int, done: Mapping[Node, Padding]) -> np.ndarray | None:
    """The value of an operand past the end of an axis, where it is known."""
    if o.op == "full":
        return _scalar(o["value"].value, o["dtype"])
    return done[o].axes[axis][1] if o.type.rank and o.type.shape[axis] != 1 else None


def _scalar(value: float | int | bool, dtype: DType) -> np.ndarray:
    return np.asarray(value).astype(to_numpy(dtype))


def partial_reductions(e: Node, named: Mapping[str, Padding]) -> Iterator[str]:
    """Reductions along an axis that ends early, where what lies past its end is not the monoid's identity."""
    nodes = list(t.nodes(e))
    if not any(n.op in ("reduce", "fold") for n in nodes):
        return
    done: dict[Node, Padding] = {}
    for n in nodes:
        done[n] = Padding(tuple(_beyond(n, axis, done, named) for axis in range(n.type.rank)))
        if n.op not in ("reduce", "fold"):
            continue
        x = n.operands[0]
        axis = n["axis"] if n.op == "reduce" else x.type.rank - 1
        early, value = done[x].axes[axis]
        identity = _scalar(MONOIDS[n["monoid"]].identity(x.type.dtype), x.type.dtype)
        if early and (value is None or value != identity):
            found = "what is not known" if value is None else str(value)
            yield f"`{n.op} {n['monoid']}` along an axis that ends early, with {found} past its end; `valid` must give {identity}"
