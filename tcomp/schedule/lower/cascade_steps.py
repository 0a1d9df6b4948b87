"""The state of a cascade and one step of it: what a loop carries, and how a block, or another part's state, is taken in.

Each stage has one accumulator for each element of its basis: for a `reduce` a tile over rows, for a product rows by columns.
Each state that is not itself an accumulator is carried beside them. A step goes stage by stage: new extremes, the states they
give, the corrections of what depends on these, then the block's own sums. Sums stand for what all elements would give, scaled by
how many there were: a state is then close to its final value from the first block on. Before any element a state may be
infinite: distances from there are 0, as the accumulators are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from tcomp.ir import index, tile
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import MONOIDS
from tcomp.ir.stmts import By, Carry, Let, Stmt
from tcomp.ir.types import TileType
from tcomp.passes.cascade import expression as ex
from tcomp.passes.cascade.cascade import Stage
from tcomp.passes.cascade.correction import distance
from tcomp.passes.cascade.order import kept
from tcomp.passes.tiles import swap
from tcomp.schedule.lower.cascade_plan import Plan

ON_STACK = 64 << 10  # bytes of the largest tile on the stack
Slot = tuple[str, int, int]  # ("acc", stage, element of its basis) or ("state", its number, 0)
Tiles = dict[Slot, Node]


def slots(plan: Plan) -> list[Slot]:
    """Everything that is carried."""
    c = plan.cascade
    found: list[Slot] = [("acc", k, i) for k, s in enumerate(c.stages) for i, b in enumerate(s.basis)]
    return found + [("state", n, 0) for n, (_, e) in enumerate(c.states) if not is_plain(plan, e)]


def is_plain(plan: Plan, e: Node) -> bool:
    """Whether a state is an accumulator as it is: an extreme."""
    return any(s.result is e and not s.steps and s.monoid in ("max", "min") for s in plan.cascade.stages)


def stage_of(plan: Plan, result: Node) -> int:
    return next(k for k, s in enumerate(plan.cascade.stages) if s.result is result)


def slot_type(plan: Plan, slot: Slot, rows: Dim) -> TileType:
    what, k, _ = slot
    if what == "state":
        return TileType(plan.cascade.states[k][0].type.dtype, (rows,))
    stage = plan.cascade.stages[k]
    extents = (rows, plan.seconds[k].width) if stage.is_product else (rows,)
    return TileType(stage.result.type.dtype, extents)


def start(plan: Plan, slot: Slot) -> Node:
    """What a slot is before any element."""
    what, k, _ = slot
    if what == "state":
        value = plan.cascade.starts[k]
        return tile.full(0.0 if math.isnan(value) else value, plan.cascade.states[k][0].type.dtype)
    stage = plan.cascade.stages[k]
    dtype = stage.result.type.dtype
    if stage.kept is not None:
        return stage.kept[1]
    return tile.full(0 if stage.monoid == "add" else MONOIDS[stage.monoid].identity(dtype), dtype)


def space_of(type: TileType) -> str:
    """Where a tile is kept: on the stack, or in the thread's scratch if it is large."""
    size: int | None = type.dtype.bytes
    for d in type.shape:
        hi = index.bounds(d)[1]
        size = None if size is None or hi is None else size * hi
    return "stack" if size is not None and size <= ON_STACK else "scratch"


def carries(plan: Plan, rows: Dim, tag: str, init: Tiles | None) -> tuple[tuple[Carry, ...], Tiles, Tiles]:
    """(carries, what they are in the loop, what they are after it)."""
    out: list[Carry] = []
    inside: Tiles = {}
    after: Tiles = {}
    for slot in slots(plan):
        name = f"{slot[0]}{slot[1]}_{slot[2]}{tag}"
        type = slot_type(plan, slot, rows)
        by = By(plan.choice.result) if type.rank == 2 else None
        first = start(plan, slot) if init is None else init[slot]
        out.append(Carry(name, f"{name}r", type, first, space_of(type), by))
        inside[slot], after[slot] = tile.ref(name, type), tile.ref(f"{name}r", type)
    return tuple(out), inside, after


def combined(monoid: str, corrected: Node, found: Node) -> Node:
    """A corrected accumulator with what comes in. Corrections are small: they are added to that before either meets the long sum,
    in which they would be lost one by one."""
    if monoid == "add" and corrected.op == "add":
        return combined(monoid, corrected.operands[0], tile.pointwise("add", corrected.operands[1], found))
    return tile.pointwise(monoid, corrected, found)


# (stage, element of its basis, states' tiles, corrected accumulator) -> the accumulator with the block's elements
Contribute = Callable[[int, int, dict[Node, Node], Node], Node]


@dataclass(slots=True)
class Step:
    """One step. old: the slots before it. count: how many elements there are after it (None: states are exact).

    given: the tiles of p leaves over rows. Statements gather in `body`; `new` are the slots after it."""

    plan: Plan
    tag: str
    rows: Dim
    old: Tiles
    count: Dim | None
    given: dict[Node, Node]
    body: list[Stmt] = field(default_factory=list)
    new: Tiles = field(default_factory=dict)
    states: dict[Node, Node] = field(default_factory=dict)
    _named: dict[Node, Node] = field(default_factory=dict)

    def run(self, contribute: Contribute) -> None:
        for k, stage in enumerate(self.plan.cascade.stages):
            self._stage(k, stage, contribute)

    def _stage(self, k: int, stage: Stage, contribute: Contribute) -> None:
        for u in stage.transfer.states if stage.transfer else ():
            self._state(u)
        corrected = self.corrected(k, self.old)
        for i in range(len(stage.basis)):
            total = contribute(k, i, self.states | self._extremes(stage), corrected[i])
            self.new[("acc", k, i)] = total if stage.is_product else self.named(f"new{k}_{i}", total)

    def _extremes(self, stage: Stage) -> dict[Node, Node]:
        return {stage.kept[0]: self.value(stage.kept[0])} if stage.kept else {}

    def named(self, name: str, e: Node) -> Node:
        """A tile over rows under a name, so that it is computed once."""
        if e not in self._named:
            tall = e if e.type.shape else _over_rows(e, self.rows)
            self.body.append(Let(f"{name}{self.tag}", tall, "stack"))
            self._named[e] = tile.ref(f"{name}{self.tag}", tall.type)
        return self._named[e]

    def corrected(self, k: int, other: Tiles) -> list[Node]:
        """The accumulators of a stage in other slots (those before the step, or another part's) at the new states."""
        stage = self.plan.cascade.stages[k]
        before = [other[("acc", k, i)] for i in range(len(stage.basis))]
        if stage.kept is not None:
            m = stage.kept[0]
            extreme = other[("acc", stage_of(self.plan, m), 0)]
            return [tile.pointwise("where", kept(extreme, self.value(m)), before[0], stage.kept[1])]
        if stage.transfer is None:
            return before
        moved = {distance(u): self._distance(u, other) for u in stage.transfer.states}
        out = []
        for row in stage.transfer.matrix:
            total = None
            for entry, a in zip(row, before):
                if ex.value_of(entry) != 0:
                    term = self._scaled(swap(entry, moved), a)
                    total = term if total is None else tile.pointwise("add", total, term)
            assert total is not None
            out.append(total)
        return out

    def _scaled(self, entry: Node, acc: Node) -> Node:
        if ex.value_of(entry) is not None:
            return acc if ex.value_of(entry) == 1 else tile.pointwise("mul", acc, entry)
        factor = self.named(f"t{len(self._named)}_", entry)
        return tile.pointwise("mul", acc, tile.expand(factor, 1) if acc.type.rank == 2 else factor)

    def _distance(self, u: Node, other: Tiles) -> Node:
        """How far the new value of a state is from that in other slots."""
        number = self._number(u)
        e, first = self.plan.cascade.states[number][1], self.plan.cascade.starts[number]
        plain = is_plain(self.plan, e)
        before = other[("acc", stage_of(self.plan, e), 0) if plain else ("state", number, 0)]
        zero = tile.full(0.0, u.type.dtype)
        moved = tile.pointwise("sub", self.states[u], before)
        return self.named(f"d{len(self._named)}_", _unless(before, first, zero, moved))

    # --- states ---------------------------------------------------------------------------------------

    def _state(self, u: Node) -> None:
        """The new value of a state, safe to compute with."""
        if u in self.states:
            return
        number = self._number(u)
        e, first = self.plan.cascade.states[number][1], self.plan.cascade.starts[number]
        raw = self.expression(e)
        if not is_plain(self.plan, e):
            raw = self.new[("state", number, 0)] = self.named(f"raw{number}", raw)
        zero = tile.full(0.0, u.type.dtype)
        self.states[u] = self.named(f"u{number}", _unless(raw, first, zero, raw))

    def _number(self, u: Node) -> int:
        return next(n for n, (leaf, _) in enumerate(self.plan.cascade.states) if leaf is u)

    def expression(self, e: Node) -> Node:
        """An expression over results and rows, at the new accumulators."""
        found = {m: self.value(m) for m in ex.leaves(e, "m")}
        return swap(e, {**found, **self.given})

    def value(self, m: Node) -> Node:
        """What a stage's result is after this step, as far as is known."""
        k = stage_of(self.plan, m)
        stage = self.plan.cascade.stages[k]
        total = self.new[("acc", k, 0)]
        if self.count is not None and stage.monoid == "add":
            total = tile.pointwise("mul", total, _ratio(self.plan.length, self.count, m))
        return applied(stage, total, self.expression)

    def yields(self) -> tuple[Node, ...]:
        return tuple(self.new[s] for s in slots(self.plan))


def _ratio(length: Dim, count: Dim, m: Node) -> Node:
    whole, seen = (tile.position(d, m.type.dtype) for d in (length, count))
    return tile.pointwise("div", whole, seen)


def applied(stage: Stage, total: Node, expression: Callable[[Node], Node]) -> Node:
    """The first accumulator with the stage's steps."""
    for op, by in stage.steps:
        value = expression(by)
        value = tile.expand(value, 1) if total.type.rank == 2 and value.type.rank else value
        total = _zero_unless(value, total) if op == "unless" else tile.pointwise(op, total, value)
    return total


def _zero_unless(value: Node, total: Node) -> Node:
    """0 where a value is NaN or 0."""
    zero = tile.full(0.0, total.type.dtype)
    none = tile.pointwise("or", tile.pointwise("isnan", value), tile.pointwise("eq", value, zero))
    return tile.pointwise("where", none, zero, total)


def _unless(x: Node, first: float, special: Node, other: Node) -> Node:
    """`special` where x is still what it was before any element, if that is infinite, else `other`."""
    if not math.isinf(first):
        return other
    return tile.pointwise("where", tile.pointwise("eq", x, tile.full(first, x.type.dtype)), special, other)


def _over_rows(e: Node, rows: Dim) -> Node:
    """A value that is the same for all rows, as a tile over them."""
    at = tile.position(tile.axis(0, rows), e.type.dtype, (rows,))
    return tile.pointwise("where", tile.pointwise("ge", at, at), e, e)


def finals(plan: Plan, rows: Dim, last: Tiles, given: dict[Node, Node], body: list[Stmt]) -> dict[Node, Node]:
    """The stages' results after all elements, by their leaves; those over rows are named in `body`.

    Where a state never left infinity (all elements masked) the text computes inf - inf: NaN. A product of nothing is 0."""
    done: dict[Node, Node] = {}

    def expression(e: Node) -> Node:
        return swap(e, {**done, **given})

    for k, stage in enumerate(plan.cascade.stages):
        total = last[("acc", k, 0)]
        for u in stage.transfer.states if stage.transfer else ():
            number = next(n for n, (leaf, _) in enumerate(plan.cascade.states) if leaf is u)
            total = _poisoned(plan, number, total, expression(plan.cascade.states[number][1]))
        total = applied(stage, total, expression)
        if stage.is_product and (index.bounds(plan.length)[0] or 0) < 1:
            some = tile.position(index.less(0, plan.length), total.type.dtype)
            zero = tile.full(0.0, total.type.dtype)
            total = tile.pointwise("where", tile.pointwise("gt", some, zero), total, zero)
        if not stage.is_product:
            total = total if total.type.shape else _over_rows(total, rows)
            body.append(Let(f"final{k}", total, "stack"))
            total = tile.ref(f"final{k}", total.type)
        done[stage.result] = total
    return done


def _poisoned(plan: Plan, number: int, total: Node, state: Node) -> Node:
    first = plan.cascade.starts[number]
    if not math.isinf(first):
        return total
    nan = tile.full(float("nan"), total.type.dtype)
    x = tile.expand(state, 1) if total.type.rank == 2 else state
    return _unless(x, first, nan, total)
