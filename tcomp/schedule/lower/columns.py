"""Reductions down columns: lanes along the last axis that stays, loops over those that are reduced.

A long reduction of few columns is split: parts of the first reduced axis leave their results in the workspace, and a second phase
combines these.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from itertools import product as every

from tcomp.ir import index, tile
from tcomp.ir.dtype import accumulator
from tcomp.ir.index import likely
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import MONOIDS
from tcomp.ir.stmts import Grid, GridAxis, Stmt, Store
from tcomp.ir.types import Buffer, TileType
from tcomp.passes.fusion import Group
from tcomp.passes.sums import TURNS, Sum, Turns, adding_loops, in_levels, rounds
from tcomp.schedule.lower.collapse import collapse
from tcomp.schedule.lower.loops import BLOCK, finish, lane_width, mapped, output_buffer
from tcomp.schedule.lower.lowered import Context, Lowered, with_workspace
from tcomp.schedule.lower.nest import blocks_of, counter, nest
from tcomp.schedule.lower.parts import Parts, parts_of
from tcomp.schedule.lower.reading import Reader
from tcomp.schedule.lower.tiling import Tiling, axis_values, domain_axes, tiled

UNROLLED = 25  # elements that are combined without a loop


@dataclass(frozen=True, slots=True)
class _Columns:
    """A column kernel to emit, over the kept axes and the reduced ones. terms: what each reduction takes; finals: what is stored
    of the results, over the kept axes. part: of the first reduced axis, that a block takes; its results are stored at its place.
    prefix: of all names, so that phases differ."""

    anchors: tuple[Node, ...]
    kept: tuple[Dim, ...]
    reduced: tuple[Dim, ...]
    terms: tuple[Node, ...]
    finals: tuple[Node, ...]
    outputs: tuple[Buffer, ...]
    part: Parts | None = None
    prefix: str = ""

    @property
    def width(self) -> int:
        """Lanes along the last kept axis."""
        return lane_width(self.kept[-1])

    def types(self) -> dict[str, TileType]:
        """Of the reductions' results, by name."""
        return {f"{self.prefix}sum{k}": TileType(accumulator(a.type.dtype), (self.width,)) for k, a in enumerate(self.anchors)}

    def at(self, places: tuple[Dim, ...]) -> dict[Node, Dim]:
        """What the axes of the domain are."""
        return axis_values((*self.kept, *self.reduced), places)


def lower_column(name: str, group: Group, ctx: Context) -> Lowered:
    """Lanes along the last axis that stays; loops over the reduced axes carry one vector for each reduction.

    Few elements (the window of a pooling) are combined without loops: then it is a map.
    """
    first = group.anchors[0]
    x = first.operands[0].type.shape
    if all(isinstance(x[k], int) for k in first["axes"]) and 0 < likely(index.product(x[k] for k in first["axes"])) <= UNROLLED:
        return mapped(name, group, ctx, _unrolling_reader(group, ctx))
    kept = tuple(k for k in range(len(x)) if k not in first["axes"])
    order = (*kept, *first["axes"])
    reader = Reader(lambda n: ctx.in_memory(n) and n not in group.members)
    axes = domain_axes(tuple(x[k] for k in order))
    at_operand = tuple(axes[order.index(k)] for k in range(len(x)))
    operands = [_widened(reader.read(a.operands[0], at_operand), a) for a in group.anchors]
    _carry_results(group, reader)
    finals = [reader.read(n, axes[: len(kept)]) for n in group.outputs]
    c = collapse(tuple(x[k] for k in order), [*operands, *finals], frozenset({max(0, len(kept) - 1), len(kept)}))
    split = sum(1 for b in c.blocks if b[0] < len(kept))
    outputs = tuple(output_buffer(k, n, c.dims[:split]) for k, n in enumerate(group.outputs))
    terms, stored = c.expressions[: len(operands)], c.expressions[len(operands) :]
    columns = _Columns(group.anchors, c.dims[:split], c.dims[split:], terms, stored, outputs)
    phases, own = _phases(columns, ctx)
    return with_workspace(finish(name, reader, c.inputs(reader.inputs), outputs, group.outputs, phases, ctx), *own)


def _phases(c: _Columns, ctx: Context) -> tuple[tuple[Grid, ...], tuple[Buffer, ...]]:
    """The grid, or that of all parts and that which combines them, and what these leave in the workspace."""
    first, *rest = c.reduced
    each = likely(index.product(rest)) * c.width
    blocks = likely(index.product(c.kept[:-1])) * -(-likely(c.kept[-1]) // c.width)
    part = parts_of(first, blocks, each, ctx)
    if part is None:
        return (_column_grid(c),), ()
    partial = replace(c, part=part, prefix="p")
    results = {n: tile.ref(n, TileType(t.dtype)) for n, t in partial.types().items()}
    own = tuple(Buffer(f"part_{n}", r.type.dtype, (part.count, *c.kept), "ws") for n, r in results.items())
    partial = replace(partial, finals=tuple(results.values()), outputs=own)
    axes = domain_axes((*c.kept, part.count))
    found = tuple(tile.load(b, (axes[-1], *axes[:-1])) for b in own)
    return (_column_grid(partial), _column_grid(replace(c, reduced=(part.count,), terms=found))), own


def _unrolling_reader(group: Group, ctx: Context) -> Reader:
    """A reader to which each reduction is the combination of all its elements, written out."""
    reader = Reader(lambda n: ctx.in_memory(n) and n not in group.members)
    for a in group.anchors:
        reader.local[a] = lambda at, a=a: _written_out(reader, a, at)  # type: ignore[misc]
    return reader


def _written_out(reader: Reader, anchor: Node, at: tuple[Dim, ...]) -> Node:
    """The elements that one result of `anchor` combines, in order, halves first."""
    x, axes = anchor.operands[0], anchor["axes"]
    empty = any(x.type.shape[k] == 0 for k in axes)
    terms: list[Node] = [_identity(anchor)] if anchor["monoid"] == "add" or empty else []
    for offset in every(*(range(int(x.type.shape[k])) for k in axes)):
        place = list(at)
        for k, o in zip(axes, offset):
            place.insert(k, o)
        terms.append(_widened(reader.read(x, tuple(place)), anchor))
    while len(terms) > 1:
        pairs = [terms[k : k + 2] for k in range(0, len(terms), 2)]
        terms = [tile.pointwise(anchor["monoid"], *p) if len(p) == 2 else p[0] for p in pairs]
    total = terms[0]
    return total if total.type.dtype == anchor.type.dtype else tile.pointwise("cast", total, dtype=anchor.type.dtype)


def _widened(e: Node, anchor: Node) -> Node:
    """The element that a reduction adds up, in its accumulator's dtype."""
    t = accumulator(anchor.type.dtype)
    return e if e.type.dtype == t else tile.pointwise("cast", e, dtype=t)


def _carry_results(group: Group, reader: Reader) -> None:
    """Make the reductions' results, `sum0` and on, leaves of `reader`."""
    for k, a in enumerate(group.anchors):
        t = accumulator(a.type.dtype)
        total = tile.ref(f"sum{k}", TileType(t))
        value = total if t == a.type.dtype else tile.pointwise("cast", total, dtype=a.type.dtype)
        reader.local[a] = lambda at, value=value: value  # type: ignore[misc]


def _column_grid(c: _Columns) -> Grid:
    """The grid over blocks of columns, and over parts."""
    *outer, last = c.kept
    j = counter(f"{c.prefix}j", last, c.width)
    work = likely(index.product(c.reduced)) * c.width
    inner = nest(blocks_of(outer, work, BLOCK), lambda at: _column_body(c, (*at, j)), c.prefix or "i")
    parts = (GridAxis(c.part.var, c.part.count, 1),) if c.part is not None else ()
    return Grid((*parts, *inner.axes, GridAxis(j, last, c.width)), inner.body)


def _column_body(c: _Columns, at: tuple[Dim, ...]) -> tuple[Stmt, ...]:
    """The reductions of the columns from position `at` on, and what is stored of them."""
    width, types = c.width, c.types()
    count = index.minimum(width, index.sub(c.kept[-1], at[-1]))
    lanes = (*at[:-1], index.add(at[-1], tile.axis(0, width)))
    narrow = ((0, width, None if count == width else count),)
    loops = _column_turns(c)
    t = Tiling(c.at((*lanes, *(axis[-1].var for axis in loops))), (width,), types)
    terms = [tile.restrict(tiled(e, t), narrow) for e in c.terms]
    sums = [_column_sum(a, n, types[n], e) for a, n, e in zip(c.anchors, types, terms)]
    final = Tiling(c.at(lanes), (width,), types)
    place = lanes if c.part is None else (c.part.var, *lanes)
    stores = [
        Store(tile.restrict(tile.load(b, place, (width,)), narrow), tile.restrict(tiled(e, final), narrow))
        for b, e in zip(c.outputs, c.finals)
    ]
    return (adding_loops([turn for axis in loops for turn in axis], sums, ()), *stores)


def _column_turns(c: _Columns) -> list[list[Turns]]:
    """Loops over each reduced axis, in levels; those inside start anew where they come to many turns."""
    names = itertools.count()

    def variable(lo: Dim, hi: Dim, step: int) -> Node:
        return counter(f"{c.prefix}k{next(names)}", hi, step, lo)

    ranges: list[tuple[Dim, Dim]] = [(0, d) for d in c.reduced]
    if c.part is not None:
        ranges[0] = (c.part.start, index.add(c.part.start, c.part.length))
    if not any(rounds(a["monoid"], t) for a, t in zip(c.anchors, c.types().values())):
        return [[Turns(variable(lo, hi, 1), lo, hi, 1)] for lo, hi in ranges]
    anew = [k > 0 and likely(index.product(c.reduced[k:])) > TURNS for k in range(len(ranges))]
    return [in_levels(variable, lo, hi, 1, a) for (lo, hi), a in zip(ranges, anew)]


def _column_sum(anchor: Node, name: str, type: TileType, term: Node) -> Sum:
    start = _identity(anchor)
    return Sum(anchor["monoid"], type, start, start, term, lambda k: f"{name}_{k}", lambda k: f"{name}_{k}r" if k else name)


def _identity(anchor: Node) -> Node:
    """What a reduction starts from; a sum starts from +0, which is also the sum of nothing."""
    t = accumulator(anchor.type.dtype)
    return tile.full(0 if anchor["monoid"] == "add" else MONOIDS[anchor["monoid"]].identity(t), t)
