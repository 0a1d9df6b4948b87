"""Dependent reductions as one kernel: a grid over batches and blocks of rows, a loop over blocks of what streams.

A block computes its part of the domain (a product of its rows with some columns, or loads), takes it into the carried state
(`cascade_steps.py`), and forgets it: nothing of the size of the domain exists. Second factors that lie against the grain are
packed into panels, in a phase of their own where several blocks read them, else by the block. A long streamed axis with few
rows is split: parts leave their states in the workspace, and a second phase merges these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tcomp.ir import index, tile
from tcomp.ir.machine import LANES
from tcomp.ir.node import Dim, Node, walk
from tcomp.ir.stmts import Alloc, By, Carry, For, Grid, GridAxis, Let, Stmt, Store
from tcomp.ir.types import Buffer, TileType
from tcomp.passes.cascade import expression as ex
from tcomp.passes.cascade.elements import lead_axes
from tcomp.passes.fusion import Group
from tcomp.passes.names import loop_variable
from tcomp.passes.tiles import swap
from tcomp.schedule.analytic import choose_cascade
from tcomp.schedule.lower.cascade_mask import pieces
from tcomp.schedule.lower.cascade_plan import Plan, Product, as_tile, plan_of, problem_of, row_position
from tcomp.schedule.lower.cascade_steps import Step, Tiles, carries, combined, finals, slot_type, slots, space_of
from tcomp.schedule.lower.loops import finish
from tcomp.schedule.lower.lowered import Context, Lowered
from tcomp.schedule.lower.nest import counter
from tcomp.schedule.lower.tiling import Tiling, stretched, tiled, whole

PANEL = 2 * LANES
_OUT = index.symbol("@out", 0, None)  # a column of a result
WIDE = By((4 * LANES,))


def lower_cascade(name: str, group: Group, ctx: Context) -> Lowered:
    """The kernel of a group that is a cascade."""
    assert group.cascade is not None
    plan = plan_of(group.cascade, ctx)
    plan.choice = choose_cascade(problem_of(plan), ctx.machine)
    return Kernelled(name, plan, group.outputs).lowered()


class Kernelled:
    """One kernel in the making."""

    def __init__(self, name: str, plan: Plan, outputs: tuple[Node, ...]) -> None:
        self.name, self.plan, self.nodes = name, plan, outputs
        self.outputs = [Buffer(f"out{k}", n.type.dtype, n.type.shape) for k, n in enumerate(outputs)]
        self.workspace: list[Buffer] = []
        self.panels: dict[str, Buffer] = {}

    def lowered(self) -> Lowered:
        plan, choice = self.plan, self.plan.choice
        phases: list[Grid] = []
        if choice.packing == "panels":
            phases += [self._pack_phase(p) for p in plan.products]
        phases += self._split_phases() if choice.parts > 1 else [self._whole_phase()]
        reader = plan.reader
        inputs = {n: b for n, b in reader.inputs.items() if n not in plan.unread}
        low = finish(self.name, reader, inputs, self.outputs, self.nodes, tuple(phases), plan.ctx)
        kernel = replace(low.kernel, workspace=(*low.kernel.workspace, *self.workspace))
        return replace(low, kernel=kernel)

    # --- grids ----------------------------------------------------------------------------------------

    def _axes(self, prefix: str) -> tuple[list[GridAxis], dict[int, Dim], Dim, Dim]:
        """(axes of the grid, positions of the batch axes, first row, number of rows)."""
        plan = self.plan
        axes = [GridAxis(counter(f"{prefix}{k}", plan.cascade.domain[k]), plan.cascade.domain[k], 1) for k in plan.batch]
        at: dict[int, Dim] = {k: a.var if a.extent != 1 else 0 for k, a in zip(plan.batch, axes)}
        axes = [a for a in axes if a.extent != 1]
        height, size = plan.height, plan.choice.rows
        if isinstance(height, int) and height <= size:
            return axes, at, 0, height
        i = counter(f"{prefix}i", height, size)
        rows = size if index.divisible(height, size) else index.minimum(size, index.sub(height, i))
        return [*axes, GridAxis(i, height, size)], at, i, rows

    def _whole_phase(self) -> Grid:
        axes, at, i, rows = self._axes("b")
        body: list[Stmt] = []
        block = _Block(self, at, i, rows, body)
        block.store(block.loops(0, self.plan.length))
        return Grid(tuple(axes), tuple(body))

    def _split_phases(self) -> list[Grid]:
        """Each part of the streamed axis by itself, then all parts merged."""
        plan, parts = self.plan, self.plan.choice.parts
        step = plan.choice.columns
        size = index.mul(index.ceildiv(index.ceildiv(plan.length, step), parts), step)
        axes, at, i, rows = self._axes("b")
        body: list[Stmt] = []
        s = counter("part", parts)
        block = _Block(self, at, i, rows, body)
        lo = index.mul(s, size)
        last = block.loops(lo, index.minimum(index.add(lo, size), plan.length))
        kept = {slot: self._part_buffer(slot, parts) for slot in slots(plan)}
        for slot, buffer in kept.items():
            body.append(Store(block.part(buffer, s, rows), last[slot], WIDE if last[slot].type.rank == 2 else By((LANES,))))
        return [Grid((*axes, GridAxis(s, parts, 1)), tuple(body)), self._merge_phase(kept, size)]

    def _part_buffer(self, slot: tuple[str, int, int], parts: int) -> Buffer:
        plan = self.plan
        type = slot_type(plan, slot, plan.height)
        lead = tuple(plan.cascade.domain[k] for k in plan.batch)
        buffer = Buffer(f"part_{slot[0]}{slot[1]}_{slot[2]}", type.dtype, (*lead, parts, *type.shape), "ws")
        self.workspace.append(buffer)
        return buffer

    def _merge_phase(self, kept: dict[tuple[str, int, int], Buffer], size: Dim) -> Grid:
        plan = self.plan
        axes, at, i, rows = self._axes("c")
        body: list[Stmt] = []
        block = _Block(self, at, i, rows, body)
        s = counter("merged", plan.choice.parts)
        carry, inside, after = carries(plan, rows, "m", None)
        given = block.row_tiles()
        others = {slot: block.part(buffer, s, rows) for slot, buffer in kept.items()}
        count = index.minimum(index.mul(index.add(s, 1), size), plan.length)
        step = Step(plan, "m", rows, inside, index.maximum(count, 1), given)

        def taken_in(k: int, i: int, states: dict[Node, Node], corrected: Node) -> Node:
            return combined(plan.cascade.stages[k].monoid, corrected, step.corrected(k, others)[i])

        step.run(taken_in)
        body.append(For(s, 0, plan.choice.parts, 1, tuple(step.body), carry, step.yields()))
        block.store(after)
        return Grid(tuple(axes), tuple(body))

    def _pack_phase(self, p: Product) -> Grid:
        """Panels [.., panel, depth, column] of a second factor; each block fills one."""
        plan = self.plan
        used = [k for k in plan.batch if _uses(p.right, plan.axes[k])]
        shape = tuple(plan.cascade.domain[k] for k in used)
        buffer = Buffer(f"panels_{p.name}", p.right.type.dtype, (*shape, index.ceildiv(plan.length, PANEL), p.depth, PANEL), "ws")
        self.workspace.append(buffer)
        self.panels[p.name] = buffer
        axes = [GridAxis(counter(f"p{p.name}{k}", plan.cascade.domain[k]), plan.cascade.domain[k], 1) for k in used]
        at: dict[int, Dim] = {k: a.var if a.extent != 1 else 0 for k, a in zip(used, axes)}
        c = counter(f"q{p.name}", buffer.shape[-3])
        panel: Dim = c if buffer.shape[-3] != 1 else 0
        here = tuple(at[k] for k in used)
        body = (_panel_store(plan, p, buffer, here, at, panel, index.mul(panel, PANEL), plan.length),)
        grid = [*(a for a in axes if a.extent != 1), *([GridAxis(c, buffer.shape[-3], 1)] if panel is c else [])]
        return Grid(tuple(grid), body)


def _uses(e: Node, axis: Dim) -> bool:
    return isinstance(axis, Node) and any(n is axis for n in walk([e]))


def _panel_store(
    plan: Plan, p: Product, buffer: Buffer, here: tuple[Dim, ...], at: Mapping[int, Dim], panel: Dim, column: Dim, end: Dim
) -> Store:
    """The store of one panel: columns `column` and on of the second factor, those from `end` on zero."""
    values = plan.bound(at, 0, index.add(column, tile.axis(1, PANEL)))
    if isinstance(p.inner, Node):
        values[p.inner] = tile.axis(0, p.depth)
    source = whole(as_tile(p.right, values, (p.depth, PANEL)), (p.depth, PANEL))
    left = index.minimum(PANEL, index.sub(end, column))
    window = tile.load(buffer, (*here, panel, tile.axis(0, p.depth), tile.axis(1, PANEL)), (p.depth, PANEL))
    return Store(window, tile.restrict(source, (None, (0, PANEL, None if left == PANEL else left))), By((LANES, LANES)))


class _Block:
    """The statements of one block of rows."""

    def __init__(self, kernel: Kernelled, at: Mapping[int, Dim], i: Dim, rows: Dim, body: list[Stmt]) -> None:
        self.kernel, self.plan, self.at, self.rows, self.body = kernel, kernel.plan, at, rows, body
        self.first, self.row = i, index.add(i, tile.axis(0, rows))
        self.lefts: dict[str, Node] = {}

    def part(self, buffer: Buffer, s: Dim, rows: Dim) -> Node:
        """The window of a part's slot for this block."""
        width = buffer.shape[len(self.plan.batch) + 2 :]
        extents = (rows, *width)
        lead = tuple(self.at[k] for k in self.plan.batch)
        return tile.load(buffer, (*lead, s, self.row, *(tile.axis(1, w) for w in width)), extents)

    def row_tiles(self) -> dict[Node, Node]:
        """The tiles over rows of the p leaves."""
        values = self.plan.bound(self.at, self.row, 0)
        return {p: as_tile(e, values, (self.rows,)) for p, e in self.plan.rows.items()}

    # --- the loop over what streams -------------------------------------------------------------------

    def loops(self, lo: Dim, hi: Dim) -> Tiles:
        """The loops over those of columns lo..hi that masks leave; the slots after them."""
        plan = self.plan
        if plan.visited is None or plan.choice.parts > 1:
            return self.loop(lo, hi, "", None, True)
        values: dict[Node, tuple[Dim, Dim]] = {}
        row = None if plan.row is None else plan.axes[plan.row]
        if isinstance(row, Node):
            values[row] = (self.first, index.add(self.first, index.sub(self.rows, 1)))
        values |= {a: (self.at[k], self.at[k]) for k in plan.batch if isinstance(a := plan.axes[k], Node)}
        state: Tiles | None = None
        found = pieces(plan.visited, values, plan.length, plan.choice.columns)
        for k, piece in enumerate([p for p in found if index.less(p.lo, p.hi) != 0] or found[-1:]):
            state = self.loop(piece.lo, piece.hi, "abc"[k], state, piece.masked)
        assert state is not None
        return state

    def loop(self, lo: Dim, hi: Dim, tag: str, init: Tiles | None, masked: bool) -> Tiles:
        """The loop over columns lo..hi; the slots after it. masked: with the masks' tests."""
        plan = self.plan
        self._keep_lefts()
        step = plan.choice.columns
        carry, inside, after = carries(plan, self.rows, tag, init)
        extent = index.sub(hi, lo)
        single = isinstance(extent, int) and extent <= step
        j = loop_variable(f"j{tag}", lo, hi, step)
        columns = extent if single else step if index.divisible(extent, step) else index.minimum(step, index.sub(hi, j))
        at_j: Dim = lo if single else j
        inner = _Columns(self, tag, at_j, columns, inside, index.sub(index.minimum(index.add(at_j, step), hi), lo), masked)
        yields = inner.run()
        self.body.append(For(j, lo, hi, step, tuple(inner.body), carry, yields))
        return after

    def _keep_lefts(self) -> None:
        """First factors of which rows may be missing, or that are computed, as tiles of their own."""
        for p in self.plan.products:
            if p.name in self.lefts:
                continue
            source = self._left_of(p, self._inner_tiles(p))
            plain = source.op == "load" and isinstance(self.rows, int)
            if not plain and index.bounds(p.depth)[1] is not None:
                source = self._kept(f"left_{p.name}", source)
            self.lefts[p.name] = source

    def _left_of(self, p: Product, named: Mapping[Node, Node]) -> Node:
        values = self.plan.bound(self.at, self.row, 0)
        if isinstance(p.inner, Node):
            values[p.inner] = tile.axis(1, p.depth)
        extents = (self.rows, p.depth)
        return whole(as_tile(p.left, values, extents, named), extents)

    def _inner_tiles(self, p: Product) -> dict[Node, Node]:
        """The products that a first factor is computed from, as tiles."""
        found: dict[Node, Node] = {}
        row = self.plan.ctx.machine.intrinsic(p.left.type.dtype)
        for ref in walk([p.left]):
            inner = self.plan.inner.get(ref)
            if inner is None:
                continue
            left = self._left_of(inner, {})
            left = left if left.op == "load" and isinstance(self.rows, int) else self._kept(f"left_{inner.name}", left)
            values = self.plan.bound(self.at, 0, 0)
            values |= {
                a: tile.axis(k, d)
                for k, (a, d) in enumerate(((inner.inner, inner.depth), (p.inner, p.depth)))
                if isinstance(a, Node)
            }
            right = whole(as_tile(inner.right, values, (inner.depth, p.depth)), (inner.depth, p.depth))
            product = tile.dot(left, right, tile.full(0, left.type.dtype), row.name)
            found[ref] = self._kept(inner.name, product, By(self.plan.choice.inner))
        return found

    def _kept(self, name: str, e: Node, by: By = WIDE) -> Node:
        """A tile under a name."""
        self.body.append(Let(name, e, space_of(e.type), by))
        return tile.ref(name, e.type)

    # --- after it -------------------------------------------------------------------------------------

    def store(self, last: Tiles) -> None:
        """Results, and what is pointwise on them, into the outputs."""
        plan = self.plan
        given = self.row_tiles()
        done = finals(plan, self.rows, last, given, self.body)
        names = {s.result: tile.ref(f"result{k}", TileType(s.result.type.dtype)) for k, s in enumerate(plan.cascade.stages)}
        for s in plan.cascade.stages:
            plan.reader.local[s.node] = lambda at, e=names[s.result]: e  # type: ignore[misc]
        for n, buffer in zip(self.kernel.nodes, self.kernel.outputs):
            self._store_one(n, buffer, {names[m]: t for m, t in done.items()})

    def _place(self, n: Node) -> tuple[Dim, ...]:
        """Where a row's results are in a value of the shape of a product that is reduced."""
        plan = self.plan
        k = next(k for k, s in enumerate(plan.cascade.stages) if s.is_product and s.node.type.shape == n.type.shape)
        return (*plan.seconds[k].lead, _OUT)

    def _store_one(self, n: Node, buffer: Buffer, results: Mapping[Node, Node]) -> None:
        plan = self.plan
        values = plan.bound(self.at, self.row, 0)
        wide = lead_axes(n.type.shape, plan.cascade.domain) is None
        axes = self._place(n) if wide else row_position(n.type.shape, plan.cascade, plan.axes)
        extents: tuple[Dim, ...] = (self.rows, n.type.shape[-1]) if wide else (self.rows,)
        if wide:
            values[_OUT] = tile.axis(1, n.type.shape[-1])
        e = plan.reader.read(n, axes)
        named = {k: tile.expand(t, 1) if wide and t.type.rank == 1 else t for k, t in results.items()}
        value = swap(tiled(e, Tiling(values, extents, {})), named)
        place = tuple(index.substitute(a, values) for a in axes)
        by = WIDE if wide else By((LANES,))
        self.body.append(Store(tile.load(buffer, place, extents), stretched(value, extents), by))


class _Columns:
    """One step of the loop: a block of rows by columns of the domain."""

    def __init__(self, block: _Block, tag: str, j: Dim, columns: Dim, inside: Tiles, seen: Dim, masked: bool) -> None:
        self.seen, self.masked = seen, masked
        self.block, self.plan, self.tag, self.j, self.columns, self.inside = block, block.plan, tag, j, columns, inside
        self.body: list[Stmt] = []
        self.extents = (block.rows, columns)
        self.kept: dict[Node, Node] = {}
        self.scores: dict[Node, Node] = {}
        self.over: Node | None = None

    def run(self) -> tuple[Node, ...]:
        plan = self.plan
        for p in plan.products:
            self._score(p)
        values = plan.bound(self.block.at, self.block.row, index.add(self.j, tile.axis(1, self.columns)))
        self.streamed = {x: as_tile(e, values, self.extents, self.scores) for x, e in plan.streamed.items()}
        self.given = self.block.row_tiles()
        step = Step(plan, self.tag, self.block.rows, self.inside, self.seen, self.given)
        self.step = step
        step.run(self._contribution)
        self.body += step.body
        return step.yields()

    def _score(self, p: Product) -> None:
        """A block of a product that streams, on the stack."""
        plan, name = self.plan, f"{p.name}{self.tag}"
        type = TileType(p.left.type.dtype, self.extents)
        by = By(plan.choice.score, "ji")
        left, depth = self.block.lefts[p.name], plan.choice.depth
        row = plan.ctx.machine.intrinsic(p.left.type.dtype, "lanes" if plan.choice.packing == "lanes" else "splat")
        zero = tile.full(0, p.left.type.dtype)
        packed = self._packed(p)
        if plan.choice.packing != "direct" or (isinstance(p.depth, int) and p.depth <= depth):
            self.body.append(Let(name, tile.dot(left, self._right(p, packed, 0, p.depth), zero, row.name), space_of(type), by))
        else:
            k = counter(f"k{name}", p.depth, depth)
            part = depth if index.divisible(p.depth, depth) else index.minimum(depth, index.sub(p.depth, k))
            some = tile.restrict(left, (None, (k, part, None))) if left.op != "ref" else self._left_part(p, k, part)
            product = tile.dot(some, self._right(p, packed, k, part), tile.ref(f"{name}c", type), row.name)
            carry = Carry(f"{name}c", name, type, zero, space_of(type), by)
            self.body.append(For(k, 0, p.depth, depth, (), (carry,), (product,)))
        self.scores[tile.ref(p.name, TileType(p.left.type.dtype))] = tile.ref(name, type)

    def _left_part(self, p: Product, k: Dim, part: Dim) -> Node:
        """Some columns of a first factor as they lie in memory (a named tile cannot be narrowed)."""
        values = self.plan.bound(self.block.at, self.block.row, 0)
        if isinstance(p.inner, Node):
            values[p.inner] = index.add(k, tile.axis(1, part))
        return whole(as_tile(p.left, values, (self.block.rows, part)), (self.block.rows, part))

    def _packed(self, p: Product) -> Buffer | None:
        """The panels of the second factor for this block: those of the first phase, or made here."""
        plan = self.plan
        if plan.choice.packing != "block":
            return self.block.kernel.panels.get(p.name)
        count = index.ceildiv(self.columns, PANEL)
        buffer = Buffer(
            f"near_{p.name}{self.tag}", p.right.type.dtype, (-(-plan.choice.columns // PANEL), p.depth, PANEL), "scratch"
        )
        self.body.append(Alloc(buffer))
        c = counter(f"q{p.name}{self.tag}", count)
        end = index.add(self.j, self.columns)
        store = _panel_store(plan, p, buffer, (), self.block.at, c, index.add(self.j, index.mul(c, PANEL)), end)
        self.body.append(For(c, 0, count, 1, (store,)))
        return buffer

    def _right(self, p: Product, panels: Buffer | None, k: Dim, part: Dim) -> Node:
        """The window [inner, columns] of the second factor."""
        plan, extents = self.plan, (part, self.columns)
        if panels is None:
            values = plan.bound(self.block.at, 0, index.add(self.j, tile.axis(1, self.columns)))
            if isinstance(p.inner, Node):
                values[p.inner] = index.add(k, tile.axis(0, part))
            return whole(as_tile(p.right, values, extents), extents)
        column = tile.axis(1, self.columns)
        used = [a for a in plan.batch if _uses(p.right, plan.axes[a])] if plan.choice.packing == "panels" else []
        if plan.choice.packing == "panels":
            column = index.add(self.j, column)
        lead = tuple(self.block.at[a] for a in used)
        at = (*lead, index.floordiv(column, PANEL), index.add(k, tile.axis(0, part)), index.mod(column, PANEL))
        return tile.load(panels, at, extents)

    # --- what a block adds ----------------------------------------------------------------------------

    def _contribution(self, k: int, i: int, states: dict[Node, Node], corrected: Node) -> Node:
        stage = self.plan.cascade.stages[k]
        raw = self._unmasked(self.plan.elements[k][i])
        self.over = self._spent(k, i, raw)
        found = self._swapped(raw, states)
        alike = stage.monoid == "add" and (not found.type.shape or found.type.shape[0] == 1 != self.extents[0])
        if not stage.is_product and raw.op == "full" and alike:
            count = tile.position(self.columns, raw.type.dtype)
            return tile.pointwise("add", corrected, tile.pointwise("mul", count, raw))
        element = found if alike and stage.is_product else self._element(raw, found)
        if not stage.is_product:
            return combined(stage.monoid, corrected, tile.reduce(stage.monoid, stretched(element, self.extents), 1))
        second = self.plan.seconds[k]
        values = self.plan.bound(self.block.at, 0, index.add(self.j, tile.axis(0, self.columns)))
        if isinstance(second.column, Node):
            values[second.column] = tile.axis(1, second.width)
        extents = (self.columns, second.width)
        right = self._copied(f"second{k}{self.tag}", whole(as_tile(second.element, values, extents), extents))
        row = self.plan.ctx.machine.intrinsic(stage.result.type.dtype)
        if alike:
            return tile.pointwise("add", corrected, self._column_sums(f"sums{k}_{i}", element, right, row.name))
        return tile.dot(self._tile(element), right, corrected, row.name)

    def _copied(self, name: str, right: Node) -> Node:
        """A second factor that lies in memory, or is computed into memory of this thread."""
        if right.op == "load":
            return right
        if right not in self.kept:
            self.step.body.append(Let(name, right, "scratch", WIDE))
            self.kept[right] = tile.ref(name, right.type)
        return self.kept[right]

    def _column_sums(self, name: str, element: Node, right: Node, intrinsic: str) -> Node:
        """What every row adds where an element is the same for all of them: one row's product."""
        one = Let(f"row_{name}{self.tag}", stretched(element, (1, self.columns)), "stack", WIDE)
        row = tile.ref(one.name, one.value.type)
        product = tile.dot(row, right, tile.full(0, right.type.dtype), intrinsic)
        sums = Let(f"{name}{self.tag}", product, space_of(product.type), By((1, self.plan.choice.result[1])))
        self.step.body += [one, sums]
        return tile.ref(sums.name, product.type)

    def _unmasked(self, e: Node) -> Node:
        """An element without the tests that hold in this loop, or with plain ones."""
        return swap(e, {m: tested if self.masked else m.operands[1] for m, tested in self.plan.masks.items()})

    def _swapped(self, e: Node, states: Mapping[Node, Node]) -> Node:
        """The tile of an element at these states."""
        near = {u: tile.expand(t, 1) if t.type.rank == 1 else t for u, t in (*states.items(), *self.given.items())}
        return swap(e, {**self.streamed, **near})

    def _element(self, e: Node, found: Node) -> Node:
        """The tile `found` of an element: a name where a product needs it too."""
        if found in self.kept:
            return self.kept[found]
        products = (k for k, s in enumerate(self.plan.cascade.stages) if s.is_product)
        if any(e in map(self._unmasked, self.plan.elements[k]) for k in products):
            return self._tile(found)
        return found

    def _spent(self, k: int, i: int, element: Node) -> Node | None:
        """The product that streams over which the tile of an element may lie: no element after it reads one."""
        taken = any(t.type.shape == self.extents for t in self.kept.values())
        after = [b for n, basis in enumerate(self.plan.elements) for m, b in enumerate(basis) if (n, m) > (k, i)]
        others = [b for b in map(self._unmasked, after) if b is not element]
        read = {x for b in others for x in ex.leaves(b, "x")}
        if taken or any(s in walk([self.plan.streamed[x]]) for x in read for s in self.scores):
            return None
        return next(iter(self.scores.values()), None)

    def _tile(self, e: Node) -> Node:
        """A named tile of rows by columns."""
        if e.op == "ref" and e.type.shape == self.extents:
            return e
        if e not in self.kept:
            name = f"p{len(self.kept)}{self.tag}"
            over = self.over
            space = space_of(e.type) if over is None or over.type.dtype != e.type.dtype else f"in:{over['name']}"
            value = stretched(e, self.extents)
            self.step.body.append(Let(name, value, space, WIDE))
            self.kept[e] = tile.ref(name, value.type)
        return self.kept[e]
