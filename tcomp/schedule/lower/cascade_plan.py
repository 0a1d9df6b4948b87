"""What a cascade's kernel computes at one point: scalar expressions over the domain's axes, and how blocks become tiles.

The domain has lead axes and the axis that streams. One lead axis may be the *row* axis: nothing that is shared by a block (the
second factors of its products) depends on it. The others are the grid's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tcomp.ir import index, layout, tile
from tcomp.ir.dtype import bool_
from tcomp.ir.index import INDEX, likely
from tcomp.ir.node import Dim, Node, walk
from tcomp.ir.types import TileType
from tcomp.passes.cascade import expression as ex
from tcomp.passes.cascade.cascade import Cascade, Stage, streamed_operand
from tcomp.passes.cascade.elements import lead_axes
from tcomp.passes.tiles import swap
from tcomp.schedule.choice import CascadeChoice
from tcomp.schedule.lower.cascade_mask import Interval, arithmetic, interval, masks
from tcomp.schedule.lower.lowered import Context
from tcomp.schedule.lower.reading import Reader, loads, reshaped
from tcomp.schedule.lower.tiling import Tiling, domain_axes, operand_axes, tiled
from tcomp.schedule.space import CascadeProblem

Extents = tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class Product:
    """A product that streams: elements of its factors over the domain's axes and `inner`, which it contracts."""

    name: str
    left: Node
    right: Node
    inner: Dim
    depth: Dim


@dataclass(frozen=True, slots=True)
class Second:
    """The second factor of a stage that is a product, over the domain's axes and `column`; `width` columns. lead: where a row of
    the domain is among the rows of the product."""

    lead: tuple[Dim, ...]
    element: Node
    column: Dim
    width: Dim


@dataclass(slots=True)
class Plan:
    """A cascade to emit. row: the number of the row axis, None where there is none. elements: of each stage's accumulators.

    inner: the products that first factors are computed from, by the `ref` that stands for one of their elements.
    visited: the columns of each row that its masks leave; masks: those whose test is not needed inside, each with a test of
    positions; unread: constants that became comparisons.
    """

    cascade: Cascade
    ctx: Context
    reader: Reader
    axes: tuple[Dim, ...]
    row: int | None
    products: list[Product]
    inner: dict[Node, Product]
    seconds: dict[int, Second]
    streamed: dict[Node, Node]
    rows: dict[Node, Node]
    elements: list[list[Node]]
    choice: CascadeChoice = field(default_factory=lambda: CascadeChoice(1, 1))
    visited: Interval | None = None
    masks: dict[Node, Node] = field(default_factory=dict)
    unread: set[Node] = field(default_factory=set)

    @property
    def length(self) -> Dim:
        """The extent that streams."""
        return self.cascade.domain[-1]

    @property
    def height(self) -> Dim:
        return 1 if self.row is None else self.cascade.domain[self.row]

    @property
    def batch(self) -> list[int]:
        """The numbers of the lead axes that are the grid's."""
        return [k for k in range(len(self.axes) - 1) if k != self.row]

    def bound(self, at: Mapping[int, Dim], row: Dim, column: Dim) -> dict[Node, Dim]:
        """What each axis of the domain is, at batch positions `at`."""
        places = {**at, len(self.axes) - 1: column}
        if self.row is not None:
            places[self.row] = row
        return {a: places[k] for k, a in enumerate(self.axes) if isinstance(a, Node)}


def plan_of(cascade: Cascade, ctx: Context) -> Plan:
    """The expressions of a cascade, read from the graph."""
    reader = Reader(lambda n: ctx.in_memory(n) and n not in cascade.members)
    axes = domain_axes(cascade.domain)
    places: dict[Node, tuple[Dim, ...]] = {}
    inner: dict[Node, Product] = {}
    for p in cascade.inner:
        reader.local[p] = _inner(reader, p, inner)
    for k, p in enumerate(cascade.products):
        reader.local[p] = _noting(p, f"score{k}", places)
    streamed = {x: reader.read(n, axes) for x, n in cascade.streamed}
    unread: set[Node] = set()
    compared = {x: _compared(reader, e, axes, unread) for x, e in streamed.items()}
    chosen = {x: e for x, e in compared.items() if e.op == "where"}
    tests = {x: ex.leaf("x", 2000 + k, bool_) for k, x in enumerate(chosen)}
    streamed = {**compared, **{tests[x]: e.operands[0] for x, e in chosen.items()}}
    known = {x: tile.pointwise("where", tests[x], *e.operands[1:]) for x, e in chosen.items()}
    elements = [[swap(b, known) for b in s.basis] for s in cascade.stages]
    read = {x: reader.read(n, row_position(n.type.shape, cascade, axes)) for x, n in cascade.rows}
    rows = {x: _compared(reader, e, axes, unread) for x, e in read.items()}
    products = [_product(reader, p, f"score{k}", k, places[p]) for k, p in enumerate(cascade.products)]
    seconds = {k: _second(reader, s, axes, k) for k, s in enumerate(cascade.stages) if s.is_product}
    shared = [p.right for p in products] + [s.element for s in seconds.values()]
    row = _row_axis(cascade, axes, shared)
    plan = Plan(cascade, ctx, reader, axes, row, products, inner, seconds, streamed, rows, elements)
    plan.unread |= unread
    _find_masks(plan)
    return plan


def _find_masks(plan: Plan) -> None:
    """What the masks leave. Sums are scaled by what was seen of all columns: where states come from sums none is left out."""
    c = plan.cascade
    column = plan.axes[-1]
    if any(
        isinstance(n["name"], str) and n["name"][0] == "m"
        for _, e in c.states
        for n in walk([e])
        if n.op == "ref" and _is_sum(c, n)
    ):
        return
    for mask in masks(c, plan.elements):
        condition = swap(mask.operands[0], {**plan.streamed, **plan.rows})
        found = interval(condition, column, plan.length)
        if found is None:
            continue
        plan.visited = found if plan.visited is None else plan.visited.meet(found)
        if found.exact:
            test = ex.leaf("x", 1000 + len(plan.masks), bool_)
            plan.streamed[test] = found.test(column, plan.length)
            plan.masks[mask] = tile.pointwise("where", test, *mask.operands[1:])


def _is_sum(c: Cascade, result: Node) -> bool:
    return any(s.result is result and s.monoid == "add" for s in c.stages)


def _compared(reader: Reader, e: Node, axes: tuple[Dim, ...], unread: set[Node]) -> Node:
    """`e` with constants that count as positions, and constants of the domain's rows by what streams as comparisons of positions,
    where they are: noted in `unread`."""
    known = {b: n for n, b in reader.inputs.items() if n.op == "constant"}
    found: dict[Node, Node] = {}
    for n in loads([e]):
        w = tile.window(n)
        constant = known.get(w.buffer)
        made = None if constant is None else arithmetic(constant["value"].array, w.positions, axes)
        if made is not None and constant is not None:
            found[n] = made
            unread.add(constant)
    return swap(e, found)


def row_position(shape: tuple[Dim, ...], cascade: Cascade, axes: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Where a value of the domain's rows is read."""
    found = lead_axes(shape, cascade.domain)
    assert found is not None
    return tuple(0 if a is None else axes[a] for a in found)


def _noting(p: Node, name: str, places: dict[Node, tuple[Dim, ...]]) -> Callable[[tuple[Dim, ...]], Node]:
    def read(at: tuple[Dim, ...]) -> Node:
        places[p] = at
        return tile.ref(name, TileType(p.type.dtype))

    return read


def _product(reader: Reader, p: Node, name: str, k: int | str, at: tuple[Dim, ...]) -> Product:
    a, b = p.operands
    depth = a.type.shape[p["contract"][0][0]]
    inner: Dim = 0 if depth == 1 else _axis(f"@k{k}", depth)
    *lead, i, j = at
    left = reader.read(a, operand_axes(p, 0, tuple(lead), i, inner))
    right = reader.read(b, operand_axes(p, 1, tuple(lead), j, inner))
    return Product(name, left, right, inner, depth)


def _inner(reader: Reader, p: Node, found: dict[Node, Product]) -> Callable[[tuple[Dim, ...]], Node]:
    """Reads a product that a first factor is computed from: a `ref` for each of its batches that is read."""
    made: dict[tuple[Dim, ...], Node] = {}

    def read(at: tuple[Dim, ...]) -> Node:
        if at not in made:
            name = f"inner{len(found)}"
            made[at] = tile.ref(name, TileType(p.type.dtype))
            found[made[at]] = _product(reader, p, name, f"i{len(found)}", at)
        return made[at]

    return read


def _second(reader: Reader, s: Stage, axes: tuple[Dim, ...], k: int) -> Second:
    n = s.node
    width = n.type.shape[-1]
    column: Dim = 0 if width == 1 else _axis(f"@e{k}", width)
    own, domain = n.operands[0].type.shape, streamed_operand(n).type.shape
    lead = axes[:-1] if own == domain else reshaped(own, domain, axes)[:-1]
    element = reader.read(n.operands[1], operand_axes(n, 1, lead[: len(n["batch"][0])], column, axes[-1]))
    return Second(lead, element, column, width)


def _axis(name: str, extent: Dim) -> Node:
    hi = index.bounds(extent)[1]
    return index.symbol(name, 0, None if hi is None else max(0, hi - 1))


def _row_axis(cascade: Cascade, axes: tuple[Dim, ...], shared: list[Node]) -> int | None:
    """The longest lead axis that nothing shared depends on, the last of equals."""
    used = {s for e in shared for s in walk([e]) if s.type is INDEX and s.op == "sym"}
    free = [k for k, a in enumerate(axes[:-1]) if isinstance(a, Node) and a not in used]
    return max(free, key=lambda k: (likely(cascade.domain[k]), k)) if free else None


def problem_of(plan: Plan) -> CascadeProblem:
    """What a choice is made by."""
    c = plan.cascade
    batch = 1
    for k in plan.batch:
        batch *= likely(c.domain[k])
    direct = all(contiguous(p.right, plan.axes[-1]) for p in plan.products)
    return CascadeProblem(
        batch,
        likely(plan.height),
        likely(plan.length),
        tuple(likely(p.depth) for p in plan.products),
        tuple(likely(s.width) for s in plan.seconds.values()),
        max((s.result.type.dtype for s in c.stages), key=lambda t: t.bytes if t.is_float else 0),
        direct,
        all(contiguous(e, p.inner) for p in plan.products for e in (p.left, p.right)),
        sum(not s.is_product for s in c.stages),
        sum(len(s.basis) for s in c.stages),
        tuple(likely(p.type.shape[-1]) for p in c.inner),
        all(b.op == "ref" for s in c.stages if s.is_product for b in s.basis),
    )


def contiguous(e: Node, along: Dim) -> bool:
    """Whether an element is a load that moves by one along an axis."""
    if e.op != "load" or not isinstance(along, Node):
        return False
    w = tile.window(e)
    at = layout.offset(w.buffer, w.positions)
    return index.sub(index.substitute(at, {along: index.add(along, 1)}), at) == 1


def as_tile(e: Node, values: Mapping[Node, Dim], extents: Extents, named: Mapping[Node, Node] | None = None) -> Node:
    """The tile of a scalar expression; `named`: the tiles that stand for its `ref`s."""
    return swap(tiled(e, Tiling(values, extents, {})), dict(named or {}))
