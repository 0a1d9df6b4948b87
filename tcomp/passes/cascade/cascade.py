"""Finding dependent reductions in a canonical GRAPH: chains of reductions over one axis that one pass can compute.

The *domain* of a cascade is the shape of what streams; its last axis is reduced. A cascade is a set of stages (reductions
over that axis, and products that contract it), the pointwise work between them, and the products that compute what streams.
It is legal if each stage has accumulators with a correction (`correction.py`, `order.py`), nothing of the size of the domain
is needed in memory, and no path leaves it and comes back. Nothing here knows a pattern by name. Whether it pays is for the
schedule to say.

    s = dot q, k;  m = reduce max s;  p = exp(s - m);  l = reduce add p;  o = dot (p / l), v
    ->  stages m (max), l (add, T = exp(-d0)), o (dot, T = exp(-d0), then / l), product s
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tcomp.ir.dtype import bool_, f32, f64
from tcomp.ir.graph import Func, uniform
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import MONOIDS
from tcomp.ir.types import TensorType
from tcomp.passes.cascade import correction, order
from tcomp.passes.cascade.correction import Transfer
from tcomp.passes.cascade.elements import (
    Elements,
    is_pointwise,
    is_row_reshape,
    lead_axes,
    row_operand,
    streams_in_columns,
)
from tcomp.passes.cascade.expression import Step, factored, is_state, kinds, leaf, states, value_of, with_states

Shape = tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class Stage:
    """One reduction. node: the `reduce` or `dot`; result: its leaf. basis: elements of its accumulators over x, p and u leaves;
    transfer: their correction (None where no state is read); kept: the extreme's leaf that a selection follows, and what it
    starts from; steps: what the first accumulator is multiplied or divided by at the end, over m and p leaves."""

    node: Node
    result: Node
    monoid: str
    basis: tuple[Node, ...]
    transfer: Transfer | None = None
    kept: tuple[Node, Node] | None = None
    steps: tuple[Step, ...] = ()

    @property
    def is_product(self) -> bool:
        return self.node.op == "dot"


@dataclass(frozen=True, slots=True)
class Cascade:
    """members: all operations that it computes. products: those that compute what streams; inner: those that compute their first
    factors, for a block of rows. streamed, rows: the graph's value of each x and p leaf. states: what each u leaf is, over m and
    p leaves; starts: its value before any element."""

    domain: Shape
    members: frozenset[Node]
    stages: tuple[Stage, ...]
    products: tuple[Node, ...]
    streamed: tuple[tuple[Node, Node], ...]
    rows: tuple[tuple[Node, Node], ...]
    states: tuple[tuple[Node, Node], ...]
    starts: tuple[float, ...]
    outputs: tuple[Node, ...]
    inner: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """A chain that stays several passes: its last reduction, and the condition that failed, with a witness. narrow: what 16-bit
    floats go through, should they be the reason."""

    node: Node
    reason: str
    narrow: frozenset[Node] = frozenset()


def find(func: Func) -> tuple[tuple[Cascade, ...], tuple[Refusal, ...]]:
    """All cascades of a function, of which one may be a part of another or share a product with it; the chains that are none."""
    search = _Search(func)
    found: list[Cascade] = []
    refused: list[Refusal] = []
    for stages in search.chains():
        built = search.cascade(stages)
        if isinstance(built, Cascade):
            found.append(built)
        elif built:
            refused.append(Refusal(stages[-1], built, search.narrow(stages)))
    return tuple(found), tuple(refused)


@dataclass(slots=True)
class _Region:
    """What one stage reads: pointwise work that depends on results or products, movements between, leaves, products, stages."""

    work: set[Node] = field(default_factory=set)
    leaves: set[Node] = field(default_factory=set)
    moves: set[Node] = field(default_factory=set)
    products: set[Node] = field(default_factory=set)
    stages: set[Node] = field(default_factory=set)


class _Search:
    """Who reads whom in a function, and what could be a stage."""

    def __init__(self, func: Func) -> None:
        self.nodes = func.nodes()
        self.order = {n: k for k, n in enumerate(self.nodes)}
        self.readers: dict[Node, list[Node]] = {n: [] for n in self.nodes}
        for n in self.nodes:
            for o in n.operands:
                self.readers[o].append(n)
        self.results = frozenset(func.results)
        self.regions: dict[Node, _Region] = {}
        self.depends: dict[tuple[Node, Shape], bool] = {}

    # --- chains ---------------------------------------------------------------------------------------

    def chains(self) -> list[list[Node]]:
        """Sets of stages that share work or products, or what they read; each in the order of the program."""
        for n in self.nodes:
            domain = domain_of(n)
            if domain is not None:
                self.regions[n] = self._region(n, domain)
        groups: list[tuple[set[Node], set[object]]] = []
        for n, region in self.regions.items():
            shared: set[object] = {(domain_of(n), x) for x in (*region.work, *region.stages, n)}
            shared |= {("product", domain_of(n), x) for x in region.products}
            joined = [g for g in groups if g[1] & shared]
            groups = [g for g in groups if g not in joined]
            groups.append(({n}.union(*(g[0] for g in joined)), shared.union(*(g[1] for g in joined))))
        chains = [sorted(g, key=self.order.__getitem__) for g in self._reading_together([g[0] for g in groups])]
        beside = [[n for n in c if not _is_plain(n)] for c in chains if any(map(_is_plain, c))]  # should the whole not pay
        return [c for c in (*chains, *beside) if c and self._is_chain(c)]

    def _reading_together(self, groups: list[set[Node]]) -> list[set[Node]]:
        """Groups without products that stream the same values are one, where nothing else is between them."""
        done: list[set[Node]] = []
        for g in groups:
            other = next((d for d in done if self._may_join(d, g)), None)
            if other is None:
                done.append(g)
            else:
                other |= g
        return done

    def _may_join(self, a: set[Node], b: set[Node]) -> bool:
        regions = [self.regions[n] for n in (*a, *b)]
        if any(r.products for r in regions) or len({domain_of(n) for n in (*a, *b)}) > 1:
            return False
        if all(_is_plain(n) for n in (*a, *b)):
            return False
        read = [set().union(*(self.regions[n].leaves for n in g)) for g in (a, b)]
        inside = set().union(a, b, *(r.work | r.moves for r in regions))
        return bool(read[0] & read[1]) and self._convex(inside)

    def _is_chain(self, stages: list[Node]) -> bool:
        regions = [self.regions[n] for n in stages]
        return any(r.stages or r.products for r in regions) or (len(stages) > 1 and any(map(_is_plain, stages)))

    def _region(self, stage: Node, domain: Shape) -> _Region:
        region = _Region()
        first = streamed_operand(stage)
        region.moves |= set(_path(stage.operands[0], first))
        stack = [first]
        seen: set[Node] = set()
        while stack:
            n = stack.pop()
            if n not in seen:
                seen.add(n)
                stack.extend(self._visited(n, domain, region))
        return region

    def _visited(self, n: Node, domain: Shape, region: _Region) -> tuple[Node, ...]:
        """Note what one value is to a region; what to look at next."""
        if domain_of(n) == domain and n.op == "reduce":
            region.stages.add(n)
            return ()
        product = self.product_behind(n, domain)
        if product is not None:
            region.products.add(product)
            region.moves |= set(_path(n, product))
            return ()
        depends = self._depends(n, domain)
        row = row_operand(n) if n.type.shape == domain else None
        if depends and (row is not None or is_row_reshape(n, domain)):
            region.moves.add(n)
            return n.operands
        if is_pointwise(n):
            if depends:
                region.work.add(n)
            return n.operands
        if n.type.shape == domain and uniform(n) is None and n.op not in ("broadcast", "iota"):
            region.leaves.add(n)
        return ()

    def _depends(self, n: Node, domain: Shape) -> bool:
        """Whether a value reads a reduction over the domain, or a product that streams."""
        key = (n, domain)
        if key not in self.depends:
            self.depends[key] = self._reads_stage(n, domain)
        return self.depends[key]

    def _reads_stage(self, n: Node, domain: Shape) -> bool:
        if (domain_of(n) == domain and n.op == "reduce") or self.product_behind(n, domain) is not None:
            return True
        if n.type.shape == domain and row_operand(n) is not None:
            return self._depends(n.operands[0], domain)
        near = n.type.shape == domain or lead_axes(n.type.shape, domain) is not None
        if near and (is_pointwise(n) or is_row_reshape(n, domain)):
            return any(self._depends(o, domain) for o in n.operands)
        return False

    def product_behind(self, n: Node, domain: Shape) -> Node | None:
        """The product that a value of the domain is, read through reshapes and transposes and by nothing else; its columns
        stream."""
        if n.type.shape != domain:
            return None
        p = n
        while p.op in ("reshape", "transpose") and len(self.readers[p.operands[0]]) == 1:
            p = p.operands[0]
        return p if p.op == "dot" and p not in self.results and streams_in_columns(n, p) else None

    # --- one cascade ----------------------------------------------------------------------------------

    def cascade(self, stages: list[Node]) -> Cascade | str:
        """The cascade of these stages, why it is none, or '' where nothing is worth saying."""
        domain = domain_of(stages[0])
        assert domain is not None
        work = set().union(*(self.regions[n].work for n in stages))
        products = set().union(*(self.regions[n].products for n in stages))
        if any(_is_narrow(o) for n in (*stages, *work) for o in (n, *n.operands)):
            return "16-bit floats round between its reductions"
        moves = set().union(*(self.regions[n].moves for n in stages))
        members = {*stages, *work, *products}
        for n in (*work, *products):
            if lead_axes(n.type.shape, domain) is None and self._leaks(n, members | moves, moves):
                return f"`{n.op}` of {n.type} is needed in memory"
        members |= self._private(members, domain)
        for more, between in (self._lefts(members, products), self._rights(members)):
            members |= more
            moves |= between
        added = self._epilogues(members, stages)
        members |= added
        moves |= {o for n in added for o in n.operands if o not in members and row_operand(o) in members}
        members |= {n for n in moves if not self._leaks(n, members | moves, moves)}
        if not self._convex(members | moves):
            return "what it gives is read by what it needs"
        return self._built(domain, stages, frozenset(members), sorted(products, key=self.order.__getitem__))

    def narrow(self, stages: list[Node]) -> frozenset[Node]:
        """All that 16-bit floats go through between the products of a chain."""
        regions = [self.regions[n] for n in stages]
        found = {*stages, *(n for r in regions for n in (*r.work, *r.moves) if n.op != "dot")}
        return frozenset(found) if any(_is_narrow(o) for n in found for o in (n, *n.operands)) else frozenset()

    def _leaks(self, n: Node, inside: set[Node], moves: set[Node]) -> bool:
        """Whether something outside needs a value, directly or through the movements of a cascade."""
        if n in self.results:
            return True
        return any(r not in inside or (r in moves and self._leaks(r, inside, moves)) for r in self.readers[n])

    def _private(self, members: set[Node], domain: Shape) -> set[Node]:
        """Pointwise values that only members read: computed where they are read."""
        found: set[Node] = set()
        for n in reversed(self.nodes):
            inside = n not in self.results and self.readers[n] and all(r in members or r in found for r in self.readers[n])
            if n not in members and inside and is_pointwise(n) and n.type.shape == domain and not self._feeds_right(n, members):
                found.add(n)
        return found

    def _feeds_right(self, n: Node, members: set[Node]) -> bool:
        """Whether a product reads `n` as it lies: then it is in memory."""
        return any(r.op == "dot" for r in self.readers[n] if r in members)

    def _lefts(self, members: set[Node], products: set[Node]) -> tuple[set[Node], set[Node]]:
        """Work on the first factors of products that is computed for each block of rows: pointwise, and products with something
        small; the movements between."""
        found: set[Node] = set()
        moved: set[Node] = set()
        for n in reversed(self.nodes):
            readers = self.readers[n]
            inside = all(r in found or r in moved or (r in products and r.operands[1] is not n) for r in readers)
            inside &= not any(r.op == "dot" and r in found and r.operands[1] is n for r in readers)
            if not readers or not inside or n in self.results or n in members:
                continue
            if is_pointwise(n) or (_is_small_product(n) and self._rows_stay(n, products)):
                found.add(n)
            elif n.op in ("reshape", "transpose", "slice"):
                moved.add(n)
        return found, moved

    def _rights(self, members: set[Node]) -> tuple[set[Node], set[Node]]:
        """Single cheap operations on second factors, done where these are copied; the movements between."""
        found: set[Node] = set()
        moved: set[Node] = set()
        for n in reversed(self.nodes):
            readers = self.readers[n]
            inside = all(r in moved or (r.op == "dot" and r in members and r.operands[1] is n) for r in readers)
            if not readers or not inside or n in self.results or n in members:
                continue
            widens = n.op == "cast" and _is_narrow(n.operands[0])
            if widens or (n.op in _LIGHT and any(o.op == "broadcast" for o in n.operands)):
                found.add(n)
            elif n.op in ("reshape", "transpose"):
                moved.add(n)
        return found, moved

    def _rows_stay(self, n: Node, products: set[Node]) -> bool:
        """Whether a product's rows and columns are those of the first factors that it is read for."""
        stack, shape = list(self.readers[n]), n.type.shape[-2:]
        while stack:
            r = stack.pop()
            if r in products:
                if not _is_matrices(r) or r.operands[0].type.shape[-2:] != shape or len(r["batch"][0]):
                    return False
                continue
            whole = r.type.shape[-2:] == shape and (r.op == "slice" or is_pointwise(r) or _drops_ones(r))
            if not whole:
                return False
            stack.extend(self.readers[r])
        return True

    def _epilogues(self, members: set[Node], stages: list[Node]) -> set[Node]:
        """Pointwise work on results, of the shape of a stage's result, that reads nothing else that depends on them."""
        every = set(members)
        shapes = {s.type.shape for s in stages}
        for n in self.nodes:
            fits = is_pointwise(n) and n.type.shape in shapes and n not in every and n.op != "copy"
            if fits and any(self._aligned(o, every, n.type.shape) for o in n.operands):
                others = [o for o in n.operands if not self._aligned(o, every, n.type.shape)]
                if not any(self._is_after(o, every) for o in others):
                    every.add(n)
        return every - members

    def _aligned(self, o: Node, members: set[Node], shape: Shape) -> bool:
        """Whether an operand is a result at the element that is computed, or of its row."""
        row = row_operand(o)
        return (o in members and o.type.shape == shape) or (row is not None and row in members and o.type.shape == shape)

    def _is_after(self, n: Node, members: set[Node]) -> bool:
        stack, seen = [n], set()
        first = min(self.order[m] for m in members)
        while stack:
            x = stack.pop()
            if x in members:
                return True
            if x in seen or self.order[x] < first:
                continue
            seen.add(x)
            stack.extend(x.operands)
        return False

    def _convex(self, members: set[Node]) -> bool:
        """Whether no path leaves the members and comes back."""
        last = max(self.order[m] for m in members)
        stack = [r for m in members for r in self.readers[m] if r not in members]
        seen: set[Node] = set()
        while stack:
            n = stack.pop()
            if n in members:
                return False
            if n not in seen and self.order[n] <= last:
                seen.add(n)
                stack.extend(self.readers[n])
        return True

    # --- stages ---------------------------------------------------------------------------------------

    def _built(self, domain: Shape, nodes: list[Node], members: frozenset[Node], products: list[Node]) -> Cascade | str:
        elements = Elements(domain, members)
        read = {n: elements.of(streamed_operand(n)) for n in self._in_order(nodes, elements)}
        extremes = {
            elements.results[n]: (str(n["monoid"]), e) for n, e in read.items() if n.op == "reduce" and "m" not in kinds(e)
        }
        chosen = {n: order.selection(e, n["monoid"], extremes) for n, e in read.items() if n.op == "reduce"}
        cores: dict[Node, tuple[Node, tuple[Step, ...]]] = {}
        for n, e in read.items():
            known = {elements.results[s]: core for s, (core, _) in cores.items() if monoid_of(s) == "add"}
            cores[n] = _core(e, known) if monoid_of(n) == "add" and kinds(e) & {"x"} else (e, ())
        table = states(c for n, (c, _) in cores.items() if not chosen.get(n))
        starts = {u: correction.at(e, elements.identities(e)) for e, u in table.items()}
        stages: list[Stage] = []
        for n, (core, steps) in cores.items():
            kept = chosen.get(n)
            stage = self._stage(n, elements, core if kept else with_states(core, table), steps, kept, starts)
            if isinstance(stage, str):
                return stage
            stages.append(stage)
        moves = {n for s in nodes for n in self.regions[s].moves}
        outputs = tuple(n for n in self.nodes if n in members - moves and self._leaks(n, {*members, *moves}, moves))
        return Cascade(
            domain, members, tuple(stages), tuple(products), elements.leaves("x"), elements.leaves("p"),
            tuple((u, e) for e, u in table.items()), tuple(starts.values()), outputs,
            tuple(n for n in self.nodes if n in members and n.op == "dot" and n not in products and n not in nodes),
        )  # fmt: skip

    def _in_order(self, nodes: list[Node], elements: Elements) -> Iterable[Node]:
        """The stages, each known to `elements` by its leaf from then on."""
        for n in nodes:
            yield n
            elements.results[n] = leaf("m", len(elements.results), n.type.dtype)

    def _stage(
        self,
        n: Node,
        elements: Elements,
        core: Node,
        steps: tuple[Step, ...],
        kept: tuple[Node, Node] | None,
        starts: dict[Node, float],
    ) -> Stage | str:
        result, monoid = elements.results[n], monoid_of(n)
        if kept is not None:
            return Stage(n, result, monoid, (core,), None, kept)
        if "u" not in kinds(core):
            return Stage(n, result, monoid, (core,), None, None, steps)
        if monoid != "add":
            witness = order.order_free(core)
            return (
                f"`{monoid}` selects among elements whose order depends on earlier results: {witness}"
                if witness
                else (f"`{monoid}` over elements that depend on earlier results")
            )
        found = correction.transfer(core, starts)
        return found if isinstance(found, str) else Stage(n, result, monoid, found.basis, found, None, steps)


def _is_narrow(n: Node) -> bool:
    return n.type.dtype not in (f32, f64, bool_) and not n.type.dtype.is_integer


def _path(n: Node, product: Node) -> Iterator[Node]:
    """The movements from a product to the value of the domain that it is read as."""
    while n is not product:
        yield n
        n = n.operands[0]


def _core(e: Node, sums: dict[Node, Node]) -> tuple[Node, tuple[Step, ...]]:
    """The core of an element and the steps at the end. sums: the cores of the sums before, by their results.

    `where(isnan(h), 0, h)` with h a core over the sum of the same core: if one of a row's h is NaN (0/0: all is masked) then all
    are, and the sum is NaN or 0. So their products' sum is 0 then, which is a step."""
    if (
        e.op == "where"
        and e.operands[0].op == "isnan"
        and e.operands[0].operands[0] is e.operands[2]
        and value_of(e.operands[1]) == 0
    ):
        core, steps = factored(e.operands[2])
        over = [x for op, x in steps if op == "div" and sums.get(x) is core]
        if over:
            return core, (*steps, ("unless", over[0]))
    return factored(e)


_LIGHT = frozenset(["mul", "add", "sub"])
SMALL = 32 << 10  # bytes of a second factor that every block of rows reads again
NARROW = 256  # columns of a product that is computed for a block of rows


def _is_small_product(n: Node) -> bool:
    """Whether a product [.., M, K] x [.., K, N] has a second factor that lies in memory row by row and stays in the cache."""
    if n.op != "dot" or len(n["contract"][1]) != 1 or n.operands[1].op not in ("parameter", "constant"):
        return False
    b = n.operands[1].type
    small = all(isinstance(d, int) for d in b.shape) and b.shape[-1] <= NARROW
    return small and math.prod(b.shape) * b.dtype.bytes <= SMALL and _is_matrices(n) and n.type.dtype in (f32, f64)


def _is_matrices(n: Node) -> bool:
    """Whether a product's second factor is [batch.., K, N] and the first one's last axis is K."""
    a, b = n.operands
    lead = tuple(range(len(n["batch"][1])))
    return bool(n["contract"] == ((a.type.rank - 1,), (len(lead),)) and n["batch"][1] == lead and b.type.rank == len(lead) + 2)


def _drops_ones(n: Node) -> bool:
    """Whether a reshape leaves out axes of size 1."""
    return n.op == "reshape" and [d for d in n.operands[0].type.shape if d != 1] == [d for d in n.type.shape if d != 1]


def monoid_of(n: Node) -> str:
    return "add" if n.op == "dot" else str(n["monoid"])


def domain_of(n: Node) -> Shape | None:
    """The shape that a reduction over the last axis, or a product with computed rows, streams over."""
    if not isinstance(n.type, TensorType) or n.type.dtype.kind == "bool" or not n.operands:
        return None
    x = n.operands[0]
    if n.op == "reduce" and n["axes"] == (x.type.rank - 1,) and n["monoid"] in MONOIDS:
        return tuple(x.type.shape)
    base = streamed_operand(n)
    if n.op == "dot" and n["contract"][0] == (x.type.rank - 1,) and base.op not in _NOT_STREAMED:
        lead = n["batch"][0] == tuple(range(len(n["batch"][0])))
        return tuple(base.type.shape) if lead else None
    return None


_NOT_STREAMED = frozenset(["dot", "conv", "transpose", "broadcast", "constant", "iota"])  # as the first factor of a stage


def _is_plain(n: Node) -> bool:
    """Whether a product reads its first factor as it lies in memory: what is reduced beside it is not computed twice."""
    return n.op == "dot" and not is_pointwise(streamed_operand(n))


def streamed_operand(n: Node) -> Node:
    """What a stage reads along its last axis, before its other axes are regrouped (heads that share a second factor)."""
    x = n.operands[0]
    while n.op == "dot" and x.op == "reshape" and x.type.shape and x.operands[0].type.shape[-1:] == x.type.shape[-1:]:
        x = x.operands[0]
    return x


__all__ = ["Cascade", "Refusal", "Stage", "domain_of", "find", "is_state"]
