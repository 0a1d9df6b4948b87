"""Collapsing: axes of a domain that every operand walks through as one become one.

`[4096, 4096] + bias[4096]` keeps its two axes; `[8, 12, 64] * 2` becomes one axis of 6144. An operand read densely is declared
with the collapsed shape, one that is not (a slice of outer rows) with a flat one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tcomp.ir import index, tile
from tcomp.ir.index import INDEX, as_dim
from tcomp.ir.node import Dim, Node, walk
from tcomp.ir.types import Buffer
from tcomp.schedule.lower.tiling import domain_axes, strides


@dataclass(frozen=True, slots=True)
class Collapsed:
    """A domain with merged axes. blocks: the old axes of each new one; buffers: what each old input buffer became."""

    dims: tuple[Dim, ...]
    blocks: tuple[tuple[int, ...], ...]
    expressions: tuple[Node, ...]
    buffers: Mapping[Buffer, Buffer]

    def inputs(self, read: Mapping[Node, Buffer]) -> dict[Node, Buffer]:
        """The buffers that were read, in their new shapes."""
        return {n: self.buffers.get(b, b) for n, b in read.items()}


Move = tuple[tuple[Dim, ...], Dim]  # elements that each axis moves an address by, and the address at the origin


@dataclass(frozen=True, slots=True)
class _Merge:
    """A merge under way. moves: of each load (None: not by steps); blocks: the old axes of each new one; dims: the new sizes;
    values: what each old axis is in terms of the new ones."""

    moves: Mapping[Node, Move | None]
    blocks: tuple[tuple[int, ...], ...]
    dims: tuple[Dim, ...]
    values: Mapping[Node, Dim]

    def steps(self, move: Move) -> tuple[Dim, ...]:
        """How far an address moves along each new axis."""
        return tuple(move[0][b[-1]] for b in self.blocks)


def collapse(dims: tuple[Dim, ...], expressions: Sequence[Node], fixed: frozenset[int] = frozenset()) -> Collapsed:
    """The domain `dims` with all axes merged that can be. An axis k in `fixed` is never merged with axis k - 1."""
    axes = domain_axes(dims)
    leaves = [n for n in walk(expressions) if n.op == "load"]
    moves = {n: strides(n, axes) for n in leaves}
    blocks = _blocks(dims, fixed, _stuck_axes(expressions, moves, axes), moves)
    new_dims = tuple(index.product(dims[k] for k in b) for b in blocks)
    merge = _Merge(moves, blocks, new_dims, _old_axes(dims, blocks, domain_axes(new_dims)))
    buffers = _new_buffers(leaves, merge)
    return Collapsed(new_dims, blocks, tuple(_rewritten(e, merge, buffers) for e in expressions), buffers)


def _blocks(
    dims: tuple[Dim, ...], fixed: frozenset[int], stuck: set[int], moves: Mapping[Node, Move | None]
) -> tuple[tuple[int, ...], ...]:
    """The old axes of each new one."""
    blocks: list[list[int]] = []
    for k, d in enumerate(dims):
        if d == 1 and k not in fixed:
            continue
        if blocks and k not in fixed and not {k, *blocks[-1]} & stuck and _mergeable(blocks[-1][-1], k, d, moves):
            blocks[-1].append(k)
        else:
            blocks.append([k])
    return tuple(map(tuple, blocks))


def _stuck_axes(expressions: Sequence[Node], moves: Mapping[Node, object], axes: tuple[Dim, ...]) -> set[int]:
    """Axes that something uses other than by an affine address: they stay as they are."""
    number = {a: k for k, a in enumerate(axes) if isinstance(a, Node)}
    stuck: set[int] = set()
    for n in walk(expressions):
        if n.op == "position" or (n.op == "load" and moves[n] is None):
            stuck |= {number[s] for s in index.symbols(as_dim(o) for o in n.operands if o.type is INDEX) if s in number}
    return stuck


def _mergeable(a: int, b: int, size: Dim, moves: Mapping[Node, Move | None]) -> bool:
    """Whether all addresses move along axis a as if it continued axis b."""
    return all(m is None or m[0][a] == index.mul(m[0][b], size) for m in moves.values())


def _old_axes(dims: tuple[Dim, ...], blocks: tuple[tuple[int, ...], ...], new: tuple[Dim, ...]) -> dict[Node, Dim]:
    """Each old axis in terms of the new ones."""
    old = domain_axes(dims)
    values: dict[Node, Dim] = {}
    for block, p in zip(blocks, new):
        for k, axis in enumerate(block):
            below = index.product(dims[x] for x in block[k + 1 :])
            q = p if below == 1 else index.floordiv(p, below)
            at = old[axis]
            if isinstance(at, Node):
                values[at] = q if k == 0 else index.mod(q, dims[axis])
    return values


def _new_buffers(leaves: Sequence[Node], merge: _Merge) -> dict[Buffer, Buffer]:
    """How each buffer is declared now: dense over the new axes, flat, or as before where no merged axis moves through it."""
    out: dict[Buffer, Buffer] = {}
    for buffer in dict.fromkeys(tile.window(n).buffer for n in leaves):
        mine = [merge.moves[n] for n in leaves if tile.window(n).buffer == buffer]
        known = [m for m in mine if m is not None]
        merged = any(len(b) > 1 and m[0][b[-1]] != 0 for m in known for b in merge.blocks)
        split = any(_has_division(p) for n in leaves if tile.window(n).buffer == buffer for p in tile.window(n).positions)
        if not (merged or split) or len(known) != len(mine):
            out[buffer] = buffer
            continue
        shapes = {_dense_shape(m, merge, buffer) for m in known}
        shape = shapes.pop() if len(shapes) == 1 else None
        out[buffer] = replace(buffer, shape=shape if shape is not None else (index.product(buffer.shape),))
    return out


def _has_division(p: Dim) -> bool:
    return isinstance(p, Node) and any(n.op in ("floordiv", "mod") for n in walk([p]))


def _dense_shape(move: Move, merge: _Merge, buffer: Buffer) -> tuple[Dim, ...] | None:
    """The dims of the new axes that an operand varies along, where it is row-major over exactly these; else None."""
    expected: Dim = 1
    shape: list[Dim] = []
    for step, d in zip(reversed(merge.steps(move)), reversed(merge.dims)):
        if step == 0:
            continue
        if step != expected:
            return None
        shape.insert(0, d)
        expected = index.mul(expected, d)
    return tuple(shape) if move[1] == 0 and expected == index.product(buffer.shape) else None


def _rewritten(e: Node, merge: _Merge, buffers: Mapping[Buffer, Buffer]) -> Node:
    """`e` over the new axes and buffers."""
    done: dict[Node, Node] = {}
    for n in walk([e]):
        if n.type is INDEX:
            continue
        if n.op == "load":
            done[n] = _rewritten_load(n, merge, buffers, done)
        elif n.op == "position":
            done[n] = tile.position(index.substitute(as_dim(n.operands[0]), merge.values), n["dtype"])
        else:
            done[n] = tile.retype(n, tuple(done[o] for o in n.operands)) if n.operands else n
    return done[e]


def _rewritten_load(n: Node, merge: _Merge, buffers: Mapping[Buffer, Buffer], done: Mapping[Node, Node]) -> Node:
    w, move = tile.window(n), merge.moves[n]
    buffer = buffers[w.buffer]
    if buffer == w.buffer or move is None:
        other = None if w.other is None else done[w.other]
        return tile.load(w.buffer, tuple(index.substitute(p, merge.values) for p in w.positions), (), None, other)
    places = list(zip(domain_axes(merge.dims), merge.steps(move)))
    if _dense_shape(move, merge, w.buffer) == buffer.shape:
        return tile.load(buffer, tuple(p for p, s in places if s != 0))
    flat = move[1]
    for p, s in places:
        flat = index.add(flat, index.mul(p, s))
    return tile.load(buffer, (flat,))
