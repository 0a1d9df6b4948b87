"""From one point to tiles: a scalar expression over the domain's axes becomes a tile expression over loops and tile axes.

The domain's axes are symbols; `Axes` says what each stands for in the kernel's loops (an index expression over loop variables
and tile axes). Loads take the smallest tile their positions need: what does not vary along a tile axis has extent 1 there,
what varies along none is a scalar.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tcomp.ir import index, layout, tile
from tcomp.ir.dtype import i64
from tcomp.ir.index import INDEX, as_dim
from tcomp.ir.node import Dim, Node, walk
from tcomp.ir.types import TileType


def domain_axes(shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """A symbol for each axis of a domain; an axis of size 1 is always at 0."""
    return tuple(0 if d == 1 else domain_axis(k, d) for k, d in enumerate(shape))


def domain_axis(k: int, d: Dim) -> Node:
    """The symbol for axis k, of size d."""
    hi = index.bounds(d)[1]
    return index.symbol(f"@{k}", 0, None if hi is None else max(0, hi - 1))


def axis_values(shape: tuple[Dim, ...], at: Iterable[Dim]) -> dict[Node, Dim]:
    """What each axis of a domain is at `at`; axes of size 1 are no symbols."""
    return {a: p for a, p in zip(domain_axes(shape), at) if isinstance(a, Node)}


def operand_axes(product: Node, which: int, lead: tuple[Dim, ...], free: Dim, inner: Dim) -> tuple[Dim, ...]:
    """Positions in an operand of a product: of batch axes, the contracted axis, and the one that is left, in its own order."""
    at: list[Dim] = [free] * product.operands[which].type.rank
    for axis, p in zip(product["batch"][which], lead):
        at[axis] = p
    at[product["contract"][which][0]] = inner
    return tuple(at)


def whole(e: Node, extents: tuple[Dim, ...]) -> Node:
    """`e` with the full extents, where it varies along fewer axes: a product needs its operands whole."""
    if e.type.shape == extents:
        return e
    if e.op == "load":
        w = tile.window(e)
        return tile.load(w.buffer, w.positions, extents, None, w.other)
    return stretched(e, extents)


def stretched(e: Node, extents: tuple[Dim, ...]) -> Node:
    """`e` with all extents, also where it does not vary."""
    if e.type.shape == extents:
        return e
    zero: Dim = 0
    for k, d in enumerate(extents):
        zero = index.add(zero, tile.axis(k, d))
    at = tile.position(zero, e.type.dtype if e.type.dtype.kind != "bool" else i64, extents)
    return tile.pointwise("where", tile.pointwise("ge", at, at), e, e)


@dataclass(frozen=True, slots=True)
class Tiling:
    """values: what each domain axis is in loops and tile axes; extents: of the tile; refs: the tile type of each named value
    that varies along the tile (others are scalars)."""

    values: Mapping[Node, Dim]
    extents: tuple[Dim, ...]
    refs: Mapping[str, TileType]


def tiled(e: Node, t: Tiling) -> Node:
    """The tile expression of a scalar expression."""
    done: dict[Node, Node] = {}
    for n in walk([e]):
        if n.type is not INDEX:
            done[n] = _tiled_node(n, t, done)
    return done[e]


def _tiled_node(n: Node, t: Tiling, done: Mapping[Node, Node]) -> Node:
    match n.op:
        case "load":
            w = tile.window(n)
            at = tuple(index.substitute(p, t.values) for p in w.positions)
            extents, at = fitted(at, t.extents)
            other = None if w.other is None else done[w.other]
            return tile.load(w.buffer, at, extents, None, other)
        case "position":
            at = (index.substitute(as_dim(n.operands[0]), t.values),)
            extents, at = fitted(at, t.extents)
            return tile.position(at[0], n["dtype"], extents)
        case "ref":
            return tile.ref(n["name"], t.refs.get(n["name"], n.type))
        case "full":
            return n
    return tile.pointwise(n.op, *(done[o] for o in n.operands), **dict(n.attrs))


def fitted(at: tuple[Dim, ...], extents: tuple[Dim, ...]) -> tuple[tuple[Dim, ...], tuple[Dim, ...]]:
    """The extents of the smallest tile for these positions (() where no tile axis is used), and the positions over it."""
    used = {tile.axis_number(s) for s in index.symbols(at) if tile.is_axis(s)}
    if not used:
        return (), at
    kept = tuple(d if k in used else 1 for k, d in enumerate(extents))
    return kept, at


def strides(n: Node, axes: tuple[Dim, ...]) -> tuple[tuple[Dim, ...], Dim] | None:
    """Elements that each domain axis moves a load's address by, and the address at the origin; None where it is not affine."""
    w = tile.window(n)
    if w.other is not None:
        return None
    offset = layout.offset(w.buffer, w.positions)
    zero = {a: 0 for a in axes if isinstance(a, Node)}
    base = index.substitute(offset, zero)
    steps: list[Dim] = []
    total = base
    for a in axes:
        if not isinstance(a, Node):
            steps.append(0)
            continue
        step = index.sub(index.substitute(offset, {**zero, a: 1}), base)
        steps.append(step)
        total = index.add(total, index.mul(step, a))
    return (tuple(steps), base) if total == offset else None
