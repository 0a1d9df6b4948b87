"""Legality of kernels at TILE, PLACED and REG.

Names are unique, and what they name is in scope and the same thing everywhere; types are what their operands give; windows fit
their buffers (an access that is outside for certain is a fault, one that may be inside is not); memory is written before it is
read; a reduction along an axis that ends early has the monoid's identity there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, assert_never

from tcomp.ir import index
from tcomp.ir import tile as t
from tcomp.ir.artifact import STATUS_CODES
from tcomp.ir.index import INDEX
from tcomp.ir.interp.routines import ROUTINES
from tcomp.ir.node import Dim, Node, walk
from tcomp.ir.ops import MONOIDS
from tcomp.ir.spec import Spec
from tcomp.ir.stmts import Alloc, By, Call, Carry, Check, For, Grid, If, Kernel, Let, Stmt, Store, buffers_written
from tcomp.ir.types import Buffer, TileType
from tcomp.ir.verify_value import Padding, differ, partial_reductions, type_faults, window_faults

Fault = tuple[Any, str]


def kernel_faults(kernel: Kernel, spec: Spec, nodes: int = 0) -> Iterator[Fault]:
    """Every fault of a kernel; `nodes`: how many a status word may number (0: not known)."""
    checker = _Checker(kernel, spec, nodes)
    checker.kernel()
    yield from checker.faults


@dataclass(slots=True)
class _Scope:
    """What is in scope. written: buffers that have (or may have) been written. paddings: what lies past a value's lanes.
    runs: False in a loop without iterations, where no access can be wrong."""

    symbols: dict[str, Node] = field(default_factory=dict)
    buffers: dict[str, Buffer] = field(default_factory=dict)
    values: dict[str, TileType] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)
    paddings: dict[str, Padding] = field(default_factory=dict)
    runs: bool = True

    def inner(self, runs: bool = True) -> _Scope:
        """The scope of a body; what it writes stays written."""
        runs = runs and self.runs
        return _Scope(dict(self.symbols), dict(self.buffers), dict(self.values), self.written, self.paddings, runs)


class _Checker:
    """Walks one kernel in the order of its text and collects faults."""

    def __init__(self, kernel: Kernel, spec: Spec, nodes: int) -> None:
        self.subject, self.spec, self.nodes = kernel, spec, nodes
        self.faults: list[Fault] = []
        self.names: set[str] = set()

    def fault(self, owner: Any, why: str) -> None:
        self.faults.append((owner, why))

    def name(self, owner: Any, *names: str) -> None:
        """Names bound here, which must be new in the kernel."""
        for n in names:
            if n in self.names:
                self.fault(owner, f"the name `{n}` is bound twice")
            self.names.add(n)

    # --- the kernel, phases --------------------------------------------------------------------------

    def kernel(self) -> None:
        k, scope = self.subject, _Scope()
        for s in k.symbols:
            self.name(k, s["name"])
            scope.symbols[s["name"]] = s
        for b in (*k.inputs, *k.outputs, *k.workspace):
            self.name(k, b.name)
            self.dims(k, scope, b.shape)
            scope.buffers[b.name] = b
            wanted = "ws" if b in k.workspace else "global"
            if b.space != wanted:
                self.fault(k, f"the buffer `{b.name}` is in space {b.space}; here it must be {wanted}")
        scope.written.update(b.name for b in k.inputs)
        for g in k.phases:
            self.phase(g, scope)
        for b in k.outputs:
            if b.name not in scope.written and 0 not in b.shape:
                self.fault(k, f"the output `{b.name}` is never written")

    def phase(self, g: Grid, outer: _Scope) -> None:
        scope = outer.inner(all(index.less(0, a.extent) != 0 for a in g.axes))
        for a in g.axes:
            self.name(g, a.var["name"])
            self.dims(g, scope, (a.extent,))
            self.loop_variable(g, a.var, 0, a.extent, a.step)
        for a in g.axes:
            scope.symbols[a.var["name"]] = a.var
        self.block(g.body, scope)

    def block(self, body: tuple[Stmt, ...], scope: _Scope) -> None:
        for s in body:
            self.statement(s, scope)

    def loop_variable(self, owner: Any, var: Node, lo: Dim, hi: Dim, step: int) -> None:
        """The values of a loop lie within the bounds that its variable claims."""
        if var.op != "sym" or step <= 0:
            self.fault(owner, "a loop over something that is no symbol, or with a step that is not positive")
            return
        if isinstance(lo, int) and isinstance(hi, int):
            if hi <= lo:
                return
            last, m = lo + (hi - 1 - lo) // step * step, var["multiple"]
            below = var["lo"] is not None and lo < var["lo"]
            above = var["hi"] is not None and last > var["hi"]
            if below or above or lo % m or last % m or (last > lo and step % m):
                self.fault(owner, f"`{var['name']}` takes values from {lo} to {last} by {step}, which its bounds deny")
        elif step % var["multiple"]:
            self.fault(owner, f"`{var['name']}` goes by {step}, but is said to be a multiple of {var['multiple']}")

    # --- statements ----------------------------------------------------------------------------------

    def statement(self, s: Stmt, scope: _Scope) -> None:
        match s:
            case Let():
                self.let(s, scope)
            case Alloc():
                self.alloc(s, scope)
            case Store():
                self.store(s, scope)
            case For():
                self.loop(s, scope)
            case If():
                self.dims(s, scope, (s.cond,))
                self.block(s.body, scope.inner(s.cond != 0))
                self.block(s.orelse, scope.inner(not isinstance(s.cond, int) or s.cond == 0))
            case Check():
                self.check(s, scope)
            case Call():
                self.call(s, scope)
            case _:
                assert_never(s)

    def let(self, s: Let, scope: _Scope) -> None:
        self.value(s, s.value, scope)
        self.decision(s, s.space, s.by, scope)
        self.name(s, s.name)
        scope.values[s.name] = s.value.type
        scope.paddings[s.name] = self.padding(s, s.value, scope)

    def decision(self, owner: Any, space: str, by: By | None, scope: _Scope) -> None:
        """The space and register tile of a value are what the stage allows."""
        if not self.spec.space_allowed(space):
            self.fault(owner, f"a value in space {space}; this stage allows {', '.join(sorted(self.spec.let_spaces))}")
        kind, _, over = space.partition(":")
        if kind == "in" and over not in scope.values:
            self.fault(owner, f"a value over `{over}`, which names no value here")
        self.by(owner, by)

    def by(self, owner: Any, by: By | None) -> None:
        if by is None:
            return
        if not self.spec.by:
            self.fault(owner, "`by` at a stage where all is cut already")
        if len(by.tile) not in (1, 2) or any(x <= 0 for x in by.tile):
            self.fault(owner, f"a register tile of {by.tile}; it is (rows, columns) or (columns,)")
        if by.order not in ("ij", "ji") or by.tail not in ("binary", "balanced", "masked"):
            self.fault(owner, f"`by` of order {by.order} and tail {by.tail}")

    def alloc(self, s: Alloc, scope: _Scope) -> None:
        b = s.buffer
        self.name(s, b.name)
        self.dims(s, scope, b.shape)
        if b.space not in ("stack", "scratch"):
            self.fault(s, f"memory in space {b.space}; a block allocates on its stack or in scratch")
        if any(index.bounds(d)[1] is None for d in b.shape):
            self.fault(s, f"the extents of `{b.name}` have no upper bound, so it has no capacity")
        axes = [a for a, _ in b.order or ()]
        if b.order is not None and set(axes) != set(range(b.rank)):
            self.fault(s, f"the order of `{b.name}` does not name each of its axes")
        scope.buffers[b.name] = b

    def store(self, s: Store, scope: _Scope) -> None:
        self.target(s, s.window, scope)
        self.value(s, s.value, scope)
        self.by(s, s.by)
        if s.combine is not None and s.combine not in MONOIDS:
            self.fault(s, f"`{s.combine}` is no monoid")
        want, have = s.window.type, s.value.type
        if want.dtype != have.dtype:
            self.fault(s, f"a value of {have.dtype} stored into `{s.window['buffer'].name}`, of {want.dtype}")
        if not fits(have.shape, want.shape):
            self.fault(s, f"a value of type {have} stored into a window of {want}")

    def target(self, owner: Stmt, window: Node, scope: _Scope) -> None:
        """A window that is written."""
        if window.op != "load" or window["has_else"]:
            self.fault(owner, "a store into something that is no plain window")
            return
        self.value(owner, window, scope, written=True)
        name = window["buffer"].name
        if window["buffer"] in self.subject.inputs:
            self.fault(owner, f"`{name}` is an input, and inputs are never written")
        scope.written.add(name)

    def loop(self, s: For, scope: _Scope) -> None:
        self.dims(s, scope, (s.lo, s.hi))
        self.name(s, s.var["name"])
        self.loop_variable(s, s.var, s.lo, s.hi, s.step)
        inner = scope.inner(index.less(s.lo, s.hi) != 0)
        inner.symbols[s.var["name"]] = s.var
        scope.written |= buffers_written(s.body)  # by an earlier iteration
        for c in s.carry:
            self.carry(c, scope, inner)
        self.block(s.body, inner)
        if len(s.yields) != len(s.carry):
            self.fault(s, f"{len(s.yields)} yields for {len(s.carry)} carried values")
        for c, y in zip(s.carry, s.yields):
            self.value(s.yields, y, inner)
            if y.type.dtype != c.type.dtype or not fits(y.type.shape, c.type.shape):
                self.fault(s.yields, f"a yield of type {y.type} for `{c.name}`, of type {c.type}")
            scope.values[c.result] = c.type
            scope.paddings[c.result] = scope.paddings[c.name].join(self.padding(s, y, inner))

    def carry(self, c: Carry, outer: _Scope, inner: _Scope) -> None:
        self.value(c, c.init, outer)
        self.dims(c, outer, c.type.shape)
        self.decision(c, c.space, c.by, outer)
        self.name(c, *dict.fromkeys((c.name, c.result)))
        if c.init.type.dtype != c.type.dtype or not fits(c.init.type.shape, c.type.shape):
            self.fault(c, f"`{c.name}` of type {c.type} starts as {c.init.type}")
        inner.values[c.name] = c.type
        outer.paddings[c.name] = self.padding(c, c.init, outer)

    def check(self, s: Check, scope: _Scope) -> None:
        self.dims(s, scope, (s.cond,))
        if s.code not in STATUS_CODES:
            self.fault(s, f"the status code {s.code}, which is none of {', '.join(map(str, STATUS_CODES))}")
        if s.node < 0 or (self.nodes and s.node >= self.nodes):
            self.fault(s, f"node {s.node} of a module that numbers {self.nodes}")

    def call(self, s: Call, scope: _Scope) -> None:
        if s.routine not in ROUTINES:
            self.fault(s, f"`{s.routine}` is no runtime routine")
        for e in s.inputs:
            self.value(s, e, scope)
        for w in s.outputs:
            self.target(s, w, scope)

    # --- values and index expressions ----------------------------------------------------------------

    def value(self, owner: Any, e: Node, scope: _Scope, written: bool = False) -> None:
        """A tile expression: what it names is in scope, its types are inferred again, its windows fit."""
        before = len(self.faults)
        for n in walk([e]):
            if n.type is not INDEX:
                self.one(owner, n, scope, written and n is e)
        if len(self.faults) > before:
            return
        stage = () if isinstance(owner, Call) else self.spec.value(e)  # a routine works on memory, not on register values
        for why in (*partial_reductions(e, scope.paddings), *stage):
            self.fault(owner, why)

    def one(self, owner: Any, n: Node, scope: _Scope, written: bool) -> None:
        axes = tuple(d for k, e in enumerate(_axes_of(n)) if isinstance(d := t.axis(k, e), Node))
        self.dims(owner, scope, [index.as_dim(o) for o in n.operands if o.type is INDEX], axes)
        for why in type_faults(n):
            self.fault(owner, why)
        if n.op == "ref" and scope.values.get(n["name"]) != n.type:
            known = scope.values.get(n["name"])
            self.fault(
                owner, f"`{n['name']}` " + ("names no value here" if known is None else f"is of type {known}, not {n.type}")
            )
        if n.op == "load":
            self.window(owner, t.window(n), scope, written)

    def window(self, owner: Any, w: t.Window, scope: _Scope, written: bool) -> None:
        name = w.buffer.name
        if scope.buffers.get(name) != w.buffer:
            self.fault(owner, f"`{name}` is no buffer here" if name not in scope.buffers else f"another buffer named `{name}`")
            return
        if not written and name not in scope.written:
            self.fault(owner, f"`{name}` is read before it is written")
        if scope.runs:
            self.faults.extend((owner, why) for why in window_faults(w))

    def dims(self, owner: Any, scope: _Scope, xs: Iterable[Dim], axes: tuple[Node, ...] = ()) -> None:
        """Index expressions over symbols and buffers in scope (and the tile axes of their window)."""
        for n in walk(x for x in xs if isinstance(x, Node)):
            if n.op == "read":
                self.read(owner, n, scope)
            if n.op != "sym" or n in axes:
                continue
            name = n["name"]
            if t.is_axis(n):
                self.fault(owner, f"the tile axis {name} outside of its window, or with other bounds than its extent gives")
            elif name not in scope.symbols:
                self.fault(owner, f"the symbol `{name}` is not declared here")
            elif scope.symbols[name] is not n:
                self.fault(owner, f"the symbol `{name}` with other bounds than where it is declared")

    def read(self, owner: Any, n: Node, scope: _Scope) -> None:
        b = n["buffer"]
        if scope.buffers.get(b.name) != b:
            self.fault(owner, f"`{b.name}` is no buffer here")
        elif not b.dtype.is_integer or b.rank != len(n.operands):
            self.fault(owner, f"an index read from `{b.name}`, of {b.dtype} and rank {b.rank}, at {len(n.operands)} positions")
        elif b.name not in scope.written:
            self.fault(owner, f"`{b.name}` is read before it is written")

    def padding(self, owner: Any, e: Node, scope: _Scope) -> Padding:
        return Padding.of(e, scope.paddings)


def fits(shape: tuple[Dim, ...], into: tuple[Dim, ...]) -> bool:
    """Whether a value of this shape fills a window: a scalar, or as many axes, each of that extent or 1."""
    if not shape:
        return True
    return len(shape) == len(into) and all(a == 1 or not differ(a, b) for a, b in zip(shape, into))


def _axes_of(n: Node) -> tuple[Dim, ...]:
    """The extents of the tile that the index operands of a node may run over."""
    return n.type.shape if n.op in ("load", "position", "valid") else ()
