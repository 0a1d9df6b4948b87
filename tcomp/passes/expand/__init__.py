"""expand: PLACED -> REG. Every `By` disappears; loops over register tiles appear, with masks where foreign memory ends.

A store of rows x columns becomes a nest (`nest.py`), runs of stores along columns, reductions and scalar work become column
passes (`columns.py`). What is in register form already stays as it is.
"""

from __future__ import annotations

from dataclasses import replace

from tcomp.errors import Error
from tcomp.ir import index
from tcomp.ir import tile as t
from tcomp.ir.machine import LANES
from tcomp.ir.module import Module
from tcomp.ir.node import Node
from tcomp.ir.ops import OPS
from tcomp.ir.stmts import Alloc, By, For, Grid, If, Kernel, Let, Stmt, Store
from tcomp.ir.types import Buffer
from tcomp.passes.expand.columns import expand_run, is_block_reduce, item
from tcomp.passes.expand.nest import expand_nest
from tcomp.passes.names import Names
from tcomp.passes.tiles import loads, swap


def expand(module: Module) -> Module:
    """The module in register form. Raises TC0401 unless it is at stage PLACED, TC0302 for what cannot be cut."""
    module.require("placed", "`expand`")
    return replace(module, stage="reg", kernels=tuple(map(expand_kernel, module.kernels)))


def expand_kernel(kernel: Kernel) -> Kernel:
    """The kernel in register form."""
    names = Names(kernel)
    return replace(kernel, phases=tuple(_phase(g, names) for g in kernel.phases))


def _phase(grid: Grid, names: Names) -> Grid:
    expander = _Expander(names)
    body = expander.block(grid.body)
    return replace(grid, body=(*map(Alloc, expander.buffers), *body))


class _Expander:
    """Expands one phase; `buffers` are the L1 tiles that it needs."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.buffers: list[Buffer] = []

    def block(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        run: list[Let | Store] = []
        for st in body:
            for part in self._split(st):
                if isinstance(part, Alloc):
                    out.append(part)
                elif isinstance(part, Let | Store) and _in_run(part):
                    run.append(part)
                else:
                    out += self._flush(run)
                    out += self._statement(part)
        return (*out, *self._flush(run))

    def _flush(self, run: list[Let | Store]) -> tuple[Stmt, ...]:
        """The statements for a run that ends here."""
        items = [item(st) for st in run]
        run.clear()
        if all(i.columns is None for i in items):
            return tuple(replace(i.st, by=None) for i in items)
        return expand_run(items, self.names)

    def _statement(self, st: Stmt) -> tuple[Stmt, ...]:
        match st:
            case Store(by=By(tile=(_, _))) if st.by is not None:
                if st.window.type.rank != 2:
                    raise Error("TC0302", f"`by` of rows x columns on a store of type {st.window.type}", "rank 2")
                return expand_nest(st, st.by, self.names, self.buffers)
            case Store(by=By()):
                raise Error("TC0302", f"`by {st.by}` on a store of type {st.window.type}", "as many sizes as axes")
            case For():
                return (self._for(st),)
            case If():
                return (replace(st, body=self.block(st.body), orelse=self.block(st.orelse)),)
        return (st,)

    def _for(self, st: For) -> For:
        lets: list[Stmt] = []
        yields = tuple(self._name_reductions(y, lets) for y in st.yields)
        return replace(st, body=self.block((*st.body, *lets)), yields=yields)

    def _split(self, st: Stmt) -> list[Stmt]:
        """A statement, after the reductions in it and the scalar work in its columns as statements of their own."""
        out: list[Stmt] = []
        match st:
            case Let() if is_block_reduce(st.value):
                operand = self._name_reductions(st.value.operands[0], out)
                value = t.retype(st.value, (self._name_scalars(operand, out),))
                return [*out, replace(st, value=value)]
            case Let():
                value = self._name_reductions(st.value, out)
                return [*out, replace(st, value=value)]
            case Store():
                value = self._name_reductions(st.value, out)
                if st.window.type.rank == 1 and st.by is not None:
                    value = self._name_scalars(value, out)
                return [*out, replace(st, value=value)]
            case For():
                carry = tuple(replace(c, init=self._name_reductions(c.init, out)) for c in st.carry)
                return [*out, replace(st, carry=carry)]
        return [st]

    def _name_reductions(self, e: Node, out: list[Stmt]) -> Node:
        """`e` with each reduction of a window named before it, those inside others first."""
        if not any(n.op == "reduce" for n in t.nodes(e)):
            return e
        values: dict[Node, Node] = {}
        for n in t.nodes(e):
            if n.op == "reduce" and _is_block_level(n):
                operand = self._name_scalars(swap(n.operands[0], values), out)
                name = self.names.fresh("red")
                out.append(Let(name, t.retype(n, (operand,))))
                values[n] = t.ref(name, n.type)
        return swap(e, values)

    def _name_scalars(self, e: Node, out: list[Stmt]) -> Node:
        """`e` with the largest scalar computations in it named before it."""

        def named(n: Node) -> Node | None:
            if not _is_scalar_work(n):
                return None
            name = self.names.fresh("x")
            out.append(Let(name, n))
            return t.ref(name, n.type)

        return t.replace(e, named)


def _in_run(st: Let | Store) -> bool:
    """Whether a statement is scalar work, or a store along columns."""
    if isinstance(st, Let):
        return not st.value.type.shape
    return not st.window.type.shape or (st.window.type.rank == 1 and st.by is not None and len(st.by.tile) == 1)


def _is_block_level(n: Node) -> bool:
    """Whether a reduction takes windows, rather than a register tile. Raises TC0302 for one that cannot be expanded."""
    if is_block_reduce(n):
        return True
    x = n.operands[0]
    if n["axis"] != x.type.rank - 1:
        raise Error("TC0302", f"a reduction of {x.type} along axis {n['axis']}", "the last axis; others are loops that carry")
    if any(isinstance(d, Node) or (d % LANES and d != 1) for d in x.type.shape[-1:]) or isinstance(x.type.shape[0], Node):
        raise Error("TC0302", f"a reduction of {x.type}", "one row, or a register tile")
    return False


def _is_scalar_work(n: Node) -> bool:
    """Whether a node computes a scalar that a loop over columns need not repeat, and that exists if there are none."""
    if n.type.shape or not (n.op in OPS or n.op in ("load", "position")):
        return False
    return all(_always_exists(o) for o in loads(n))


def _always_exists(load: Node) -> bool:
    """Whether an element is in its buffer for certain: not at a fixed position of an axis that may be empty."""
    w = t.window(load)
    return all(isinstance(p, Node) or index.less(p, d) == 1 for p, d in zip(w.positions, w.buffer.shape))
