"""A function of the GRAPH as statements of main: the program itself, and the regions of its control flow.

A `loop` keeps two buffers for each value it carries: one that holds it, one for what the body makes next; at the end of a turn
they swap. Values that it collects are written in place, in the turn's part of the whole. A `cond` writes its results from both
branches into the same buffers. What is small is marked `alone`: waking threads would take longer.

Results whose size is only known inside are made in memory that is allocated there, and swap with a buffer outside. A loop that
binds sizes or allocates is run by one thread, and so is a branch in a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tcomp.ir import index
from tcomp.ir.dtype import DType
from tcomp.ir.graph import Func
from tcomp.ir.index import likely
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import item
from tcomp.ir.region import Region, is_leaving
from tcomp.ir.stmts import Alias, Allocate, Assert, Bind, Branch, Launch, MainStmt, Repeat, Reserve, Swap, bodies
from tcomp.ir.types import Buffer
from tcomp.ir.work import nodes_work
from tcomp.passes.fusion import CONTROL, Group, fuse
from tcomp.schedule.lower import alone, columns, contraction, convolution, loops
from tcomp.schedule.lower.cascade import lower_cascade
from tcomp.schedule.lower.cascade_report import chosen_cascades, note_kernel
from tcomp.schedule.lower.legal import demands, require_known
from tcomp.schedule.lower.lowered import Context, Lowered
from tcomp.schedule.lower.own import with_own_memory
from tcomp.schedule.lower.segments import Segment, segments

if TYPE_CHECKING:
    from tcomp.schedule.lower.module import Program

LOWERING: dict[str, Callable[[str, Group, Context], Lowered]] = {
    "map": loops.lower_map,
    "row": loops.lower_row,
    "column": columns.lower_column,
    "dot": contraction.lower_dot,
    "cascade": lower_cascade,
    "conv": convolution.lower_conv,
    "concat": alone.lower_concat,
    "scan": alone.lower_scan,
    "sort": alone.lower_order,
    "top_k": alone.lower_order,
    "scatter_elements": alone.lower_scatter,
    "scatter_nd": alone.lower_scatter,
}
ALONE = 1 << 19  # operations of one turn, or of a branch, from which on several threads pay


class Body:
    """Statements in the making. names: the buffer that holds each value that is in memory here."""

    def __init__(
        self, program: Program, names: dict[Node, str], outermost: list[MainStmt] | None = None, looped: bool = False
    ) -> None:
        """looped: whether this is inside of a loop."""
        self.program = program
        self.names = names
        self.looped = looped
        self.statements: list[MainStmt] = []
        self.outermost = self.statements if outermost is None else outermost
        self.aliases: dict[tuple[str, tuple[Dim, ...]], str] = {}

    def compute(self, func: Func, targets: Sequence[str | None]) -> list[str]:
        """Append what computes the results of `func`, its sizes that are data first, into the buffers named by `targets` (None:
        memory allocated here). The names of the results' memory."""
        parts, rest = segments(func)
        for part in parts:
            self.bind(part)
        names = [self._allocate(r.type.dtype, r.type.shape) if t is None else t for r, t in zip(rest.results, targets)]
        self.lower(rest, names)
        return names

    def lower(self, func: Func, targets: Sequence[str | None]) -> tuple[Node, ...]:
        """Append what computes the results of `func` into the buffers named by `targets` (None: of a result whose memory is made
        where it is computed). The values that are written there."""
        require_known(func, {*LOWERING, *CONTROL, "reduce", "copy"})
        self._demand(func)
        func = with_own_memory(func, self.program.copies, self.program.late)
        groups = fuse(func, chosen_cascades(func, self.program) if self.program.reassociates else ())
        self._name_results(func, groups, targets)
        for loop in (g.members[0] for g in groups if g.kind == "loop"):
            self._allocate_states(loop)
        memory = {*self.names, *(o for g in groups for o in outputs_of(g))}
        ctx = Context(lambda n: n in memory or n.op == "constant", self.program.machine, self.program.node_number)
        for g in groups:
            if g.kind == "loop":
                self._loop(g.members[0])
            elif g.kind == "cond":
                self._branch(g.members[0])
            else:
                self._launch(g, LOWERING[g.kind](f"k{self.program.next_group()}_{_title(g)}", g, ctx))
        return func.results

    def _demand(self, func: Func) -> None:
        """What sizes must satisfy here, as far as it is not checked before the call."""
        inside, before = self.outermost is not self.statements, set(self.program.func.symbols())
        for n, d in demands(n for n in func.nodes() if n.op != "parameter"):
            if inside or not before.issuperset(index.symbols([d])):
                self.statements.append(Assert(d, self.program.node_number(n)))

    def _name_results(self, func: Func, groups: tuple[Group, ...], targets: Sequence[str | None]) -> None:
        """Each result is computed in its target: what a group writes there is an alias of it."""
        computed = {o for g in groups for o in outputs_of(g)}
        for r, name in zip(func.results, targets):
            assert r in computed, f"the result {name} is not computed by any group"
            if name is not None:
                self.names[r] = self.view(name, r.type.shape)

    def view(self, source: str, shape: tuple[Dim, ...]) -> str:
        """The name under which the memory of `source` is read with `shape`."""
        if self.program.buffers[source].shape == shape:
            return source
        key = (source, shape)
        if key not in self.aliases:
            self.aliases[key] = self._alias(source, shape, None)
        return self.aliases[key]

    def _alias(self, source: str, shape: tuple[Dim, ...], offset: Dim | None) -> str:
        buffers = self.program.buffers
        buffer = self.program.add(Buffer(f"{source}.as{len(buffers)}", buffers[source].dtype, shape))
        self.statements.append(Alias(buffer, source, offset))
        return buffer.name

    def _reserve(self, n: Node) -> str:
        """A new buffer for the value of `n`, here."""
        if self.program.is_local(n.type.shape):
            return self._allocate(n.type.dtype, n.type.shape)
        buffer = self.program.declare(f"v{len(self.program.buffers)}", n)
        late = self.program.is_late(buffer)
        if late:
            self.outermost.append(Allocate(buffer, self.program.next_number()))
        else:
            self.statements.append(Reserve(buffer))
        return buffer.name

    def _allocate(self, dtype: DType, shape: tuple[Dim, ...]) -> str:
        """A new buffer with memory of its own from here on."""
        buffer = self.program.add(Buffer(f"v{len(self.program.buffers)}", dtype, shape))
        self.statements.append(Allocate(buffer, self.program.next_number()))
        return buffer.name

    def _allocate_states(self, n: Node) -> None:
        """What a loop begins with, of the values whose size changes: memory that may swap with any other."""
        for o, p in zip(n.operands[: n["carried"]], n["body"].params):
            if o.type != p.type:
                self.names[o] = self._allocate(o.type.dtype, o.type.shape)

    def bind(self, part: Segment) -> None:
        """Append what computes a size that is data, and what of it is read later."""
        value = part.func.results[0]
        node, given = self.program.node_number(value), [self._place(value)] if value.op == "parameter" else self._made(part.func)
        self.statements.append(Bind(part.size, given[0], node, self.program.next_number()))
        self.names |= dict(zip(part.given, given[1:]))

    def _made(self, func: Func) -> list[str]:
        """The names of the results' memory, where results may have sizes that are still to be bound."""
        targets = [None if is_leaving(r) else self._reserve(r) for r in func.results]
        return [self.names[r] if t is None else t for r, t in zip(self.lower(func, targets), targets)]

    def _memory(self, n: Node) -> str:
        """The buffer that a value is to be written to."""
        if n not in self.names:
            self.names[n] = self._reserve(n)
        return self.names[n]

    def _place(self, n: Node) -> str:
        """The buffer that holds the value of `n`, with its shape."""
        base = n
        while base.op == "reshape" and base not in self.names:
            base = base.operands[0]
        if base not in self.names:
            assert base.op == "constant", f"{base.op} is read before it is computed"
            self.names[base] = self.program.constant(base)
        return self.view(self.names[base], n.type.shape)

    def _launch(self, group: Group, low: Lowered) -> None:
        arguments = [self.view(self._place(n), b.shape) for n, b in zip(low.inputs, low.kernel.inputs)]
        arguments += [self.view(self._memory(n), b.shape) for n, b in zip(low.outputs, low.kernel.outputs)]
        name = self.program.kernel(low.kernel)
        note_kernel(self.program, group, name, low.kernel)
        self.statements.append(Launch(name, tuple(arguments), tuple(low.kernel.symbols), self.program.next_number()))
        self.program.realise(group.members, f"kernel {name}" + (" (fused)" if len(group.members) > 1 else ""))

    # --- control flow ---------------------------------------------------------------------------------

    def _region(self, region: Region, arguments: list[str], looped: bool) -> tuple[Body, Func]:
        """The body of a region on buffers, still empty, and the function that it is to compute."""
        names = tuple(f"r{k}" for k in range(len(region.results)))
        func = Func("region", region.params, region.results, names, sizes=region.sizes)
        return Body(self.program, dict(zip(region.params, arguments)), self.outermost, looped), func

    def _branch(self, n: Node) -> None:
        cond, *captures = (self._place(o) for o in n.operands)
        items = items_of(n)
        self.names |= {o: self._holder(o) for o in items if is_leaving(o)}
        holders = [self.names[o] if is_leaving(o) else None for o in items]
        targets = [self._memory(o) if h is None else None for o, h in zip(items, holders)]
        sides = []
        for region in (n["then"], n["orelse"]):
            body, func = self._region(region, captures, self.looped)
            made = body.compute(func, targets)
            body.statements += [Swap(h, m) for h, m in zip(holders, made) if h is not None]
            sides.append(tuple(body.statements))
        number = self.program.next_number()
        alone = (self.looped and _decides(*sides)) or _is_small([*n["then"].nodes(), *n["orelse"].nodes()])
        self.statements.append(Branch(cond, sides[0], sides[1], number, alone=alone))
        self.program.realise([n], "a branch of main")

    def _holder(self, n: Node) -> str:
        """A buffer for a value whose size is not known yet: empty, to swap with the memory that is made for it."""
        gives = n.operands[0]["gives"]
        return self._allocate(n.type.dtype, tuple(0 if d in gives else d for d in n.type.shape))

    def _loop(self, n: Node) -> None:
        count, items = n["carried"], items_of(n)
        states = [self.names[o] for o in n.operands[:count]]
        coming = [None if is_leaving(o) else self._reserve(o) for o in items[:count]]
        wholes = [self._memory(o) for o in items[count:]]
        body, func = self._region(n["body"], [*states, *(self._place(o) for o in n.operands[count:])], True)
        parts = [body.part(w, n["counter"], r) for w, r in zip(wholes, func.visible[count:])]
        made = body.compute(func, [*coming, *parts])
        body.statements += [Swap(a, b) for a, b in zip(states, made[:count])]
        go = states[0] if n["conditional"] else None
        number = self.program.next_number()
        alone = _decides(tuple(body.statements)) or _is_small(n["body"].nodes())
        self.statements.append(Repeat(n["counter"], n["extent"], go, tuple(body.statements), number, alone=alone))
        self.aliases = {key: name for key, name in self.aliases.items() if key[0] not in states}
        self.names |= dict(zip(items, states))
        self.program.realise([n], "a loop of main")

    def part(self, whole: str, turn: Node, result: Node) -> str:
        """The part of a collected buffer that holds the value of this turn."""
        return self._alias(whole, result.type.shape, index.mul(turn, index.product(result.type.shape)))


def items_of(n: Node) -> tuple[Node, ...]:
    """The results of an operation with several."""
    return tuple(item(n, k) for k in range(len(n.type.elements)))


def outputs_of(g: Group) -> tuple[Node, ...]:
    """The values a group leaves in memory."""
    return items_of(g.members[0]) if g.kind in ("sort", "top_k") or g.kind in CONTROL else g.outputs


def _decides(*sides: tuple[MainStmt, ...]) -> bool:
    """Whether what is inside a control statement binds sizes or allocates, but for what one thread runs anyway."""
    for s in (s for side in sides for s in side):
        inner = () if isinstance(s, Branch | Repeat) and s.alone else bodies(s)
        if isinstance(s, Bind | Allocate) or _decides(*inner):
            return True
    return False


def _is_small(nodes: list[Node]) -> bool:
    work = nodes_work(nodes)
    return likely(index.substitute(work, {s: likely(s) for s in index.symbols([work])})) <= ALONE


def _title(g: Group) -> str:
    """A name a reader recognises: the operations that matter most."""
    ops = [n.op for n in g.anchors] or [n.op for n in g.outputs]
    return "_".join(dict.fromkeys(ops))[:40]
