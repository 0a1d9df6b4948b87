"""Which cascades a function is lowered with, and what the report says of them and of those that were refused."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from tcomp.ir import index, layout
from tcomp.ir.graph import Func
from tcomp.ir.node import Dim, Node
from tcomp.ir.stmts import Kernel
from tcomp.ir.types import Buffer
from tcomp.passes.cascade.cascade import Cascade, Stage, find
from tcomp.passes.cascade.expression import show
from tcomp.passes.fusion import VIRTUAL, Group
from tcomp.schedule.analytic import choose_cascade, why_apart
from tcomp.schedule.lower.cascade_plan import Plan, plan_of, problem_of
from tcomp.schedule.lower.lowered import Context

if TYPE_CHECKING:
    from tcomp.schedule.lower.module import Program


def chosen_cascades(func: Func, program: Program) -> tuple[Cascade, ...]:
    """The cascades of a function that can be lowered, pay and share nothing; the report gets a row for each chain."""
    found, refused = find(func)
    planned = [(c, plan_of(c, Context(_would_be_in_memory, program.machine, program.node_number))) for c in found]
    reasons = {c: cannot(plan) or why_apart(problem_of(plan), program.machine) for c, plan in planned}
    relations = _relations(func, found)
    chosen: list[int] = []
    for k in sorted((k for k, c in enumerate(found) if not reasons[c]), key=lambda k: -len(found[k].members)):
        reasons[found[k]] = _meets(relations, k, chosen)
        chosen += [] if reasons[found[k]] else [k]
    program.cascades += [_row(program, c, plan, reasons[c]) for c, plan in planned]
    program.cascades += [{"at": program.place(r.node), "fused": False, "why": r.reason} for r in refused]
    return tuple(found[k] for k in chosen)


@dataclass(frozen=True, slots=True)
class _Relations:
    """For each of a function's cascades, as bits, those that it has nodes in common with, and those that it depends on."""

    shares: tuple[int, ...]
    reads: tuple[int, ...]


def _relations(func: Func, cascades: Sequence[Cascade]) -> _Relations:
    own: dict[Node, int] = {}
    for k, c in enumerate(cascades):
        for n in c.members:
            own[n] = own.get(n, 0) | 1 << k
    under: dict[Node, int] = {}
    for n in func.nodes():
        under[n] = reduce(or_, (under.get(o, 0) | own.get(o, 0) for o in n.operands), 0)
    shares, reads = (tuple(_bits(c, k, of) for k, c in enumerate(cascades)) for of in (own, under))
    return _Relations(shares, reads)


def _bits(c: Cascade, k: int, of: Mapping[Node, int]) -> int:
    """The bits of all members of cascade `k` together, without its own."""
    return reduce(or_, (of.get(n, 0) for n in c.members)) & ~(1 << k)


def _meets(relations: _Relations, k: int, chosen: Collection[int]) -> str:
    """Why cascade `k` cannot be a kernel beside those that are chosen, or ''."""
    if any(relations.shares[k] >> other & 1 for other in chosen):
        return "a larger chain computes a part of it"
    if _reads_itself(relations, k, chosen):
        return "another chain reads what it gives, and gives what it reads"
    return ""


def _reads_itself(relations: _Relations, k: int, chosen: Collection[int]) -> bool:
    """Whether kernels of the chosen cascades would have to run before and after one of cascade `k`."""
    seen: set[int] = set()
    ahead = [k]
    while ahead:
        reads = relations.reads[ahead.pop()]
        if reads >> k & 1:
            return True
        new = {other for other in chosen if reads >> other & 1} - seen
        seen |= new
        ahead += new
    return False


def _would_be_in_memory(n: Node) -> bool:
    return n.op not in VIRTUAL or n.op in ("parameter", "constant", "item")


def cannot(plan: Plan) -> str:
    """Why no kernel can hold a cascade's tiles, or ''."""
    for what, dims in (("inner axis", [p.depth for p in plan.products]), ("width", [s.width for s in plan.seconds.values()])):
        for d in dims:
            if index.bounds(d)[1] is None:
                return f"the {what} {index.show(d)} of a product has no upper bound"
    if any(s.width == 1 for s in plan.seconds.values()):
        return "a product of one column is a reduction"
    return ""


def _row(program: Program, c: Cascade, plan: Plan, why: str) -> dict[str, Any]:
    row: dict[str, Any] = {"at": program.place(c.stages[-1].node), "fused": not why}
    if why:
        row["why"] = why
    row["domain"] = [_number(d) for d in c.domain]
    row["stages"] = [_stage(s) for s in c.stages]
    if not why:
        row["choice"] = choose_cascade(problem_of(plan), program.machine).text()
        row["flops"] = _number(_flops(plan))
        row["bytes_not_moved"] = _number(_not_moved(plan))
    return row


def _stage(s: Stage) -> dict[str, Any]:
    """`{result: m1, by: add, accumulators: [..], correction: [[exp(-d0)]]}`."""
    row: dict[str, Any] = {"result": show(s.result), "by": s.node.op if s.is_product else s.monoid}
    row["accumulators"] = [show(b) for b in s.basis]
    if s.transfer is not None:
        row["correction"] = s.transfer.text()
    if s.kept is not None:
        row["correction"] = f"kept while {show(s.kept[0])} is"
    if s.steps:
        row["then"] = [f"{op} {show(e)}" for op, e in s.steps]
    return row


def _flops(plan: Plan) -> Dim:
    """Multiplications and additions of its products, and one operation for each element and accumulator."""
    size = index.product(plan.cascade.domain)
    each: Dim = sum(len(s.basis) for s in plan.cascade.stages)
    for p in plan.products:
        each = index.add(each, index.mul(2, p.depth))
    for k, s in plan.seconds.items():
        each = index.add(each, index.mul(index.mul(2, s.width), len(plan.cascade.stages[k].basis)))
    return index.mul(size, each)


def _not_moved(plan: Plan) -> Dim:
    """Bytes of values of the domain's size that are written and read where the reductions are kernels of their own."""
    edges = 2 * len(plan.products) + 2 * bool(plan.seconds)
    dtype = plan.cascade.stages[-1].node.type.dtype
    return index.mul(index.product(plan.cascade.domain), edges * dtype.bytes)


def note_kernel(program: Program, group: Group, name: str, kernel: Kernel) -> None:
    """Add to a cascade's row which kernel it became, and the memory of its own that this needs."""
    if group.cascade is None:
        return
    at = program.place(group.cascade.stages[-1].node)
    row = next(r for r in program.cascades if r["at"] == at and r["fused"] and "kernel" not in r)
    row["kernel"] = name
    row["workspace"] = _total(kernel.workspace)
    row["bytes"] = _total((*kernel.inputs, *kernel.outputs, *kernel.workspace))


def _total(buffers: Iterable[Buffer]) -> Any:
    """The bytes of all these together."""
    size: Dim = 0
    for b in buffers:
        size = index.add(size, layout.size(b))
    return _number(size)


def _number(d: Dim) -> Any:
    return d if isinstance(d, int) else index.show(d)
