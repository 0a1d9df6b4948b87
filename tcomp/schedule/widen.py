"""`widen`: between dependent reductions that become one pass, 16-bit floats are f32.

Takes and gives a canonical GRAPH. What streams through one pass is never stored, so nothing is saved by rounding it to 16 bits at
every step; and where an earlier result moves, sums of rounded elements cannot be corrected to the bit. A chain that one pass
would compute, and that pays, is computed in f32 from its operands to its results, which are rounded once: class `reassociates`.
Must leave alone what stays several passes: there 16 bits are half the bytes.

    p = exp(s[f16] - broadcast(reduce max s));  y = dot (cast(p), f32), v
    ->  t = cast(s, f32);  p = exp(t - broadcast(reduce max t));  y = dot p, v
"""

from __future__ import annotations

from tcomp.ir import dtype as dt
from tcomp.ir.graph import Func, attributes, broadcast, cast, uniform
from tcomp.ir.machine import Machine
from tcomp.ir.module import Module
from tcomp.ir.node import Node, with_operands
from tcomp.ir.ops import apply, constant
from tcomp.ir.types import TensorType
from tcomp.passes.cascade.cascade import find
from tcomp.passes.fusion import VIRTUAL
from tcomp.passes.rebuild import rebuilt
from tcomp.schedule.analytic import why_apart
from tcomp.schedule.lower.cascade_plan import plan_of, problem_of
from tcomp.schedule.lower.cascade_report import cannot
from tcomp.schedule.lower.lowered import Context

NARROW = (dt.f16, dt.bf16)


def widen(module: Module, machine: Machine, reassociates: bool = True) -> Module:
    """`module` with its chains of 16-bit floats in f32 where one pass computes them then."""
    func = module.graph("`widen`")
    if not reassociates or not any(isinstance(n.type, TensorType) and n.type.dtype in NARROW for n in func.nodes()):
        return module
    for refused in find(func)[1]:
        if refused.narrow:
            wide, stages = _widened(module, refused.narrow)
            if _pays(wide.graph("`widen`"), stages, machine):
                return widen(wide, machine)
    return module


def _pays(func: Func, stages: frozenset[Node], machine: Machine) -> bool:
    """Whether one pass computes some of these reductions and is worth it."""
    for c in find(func)[0]:
        if any(s.node in stages for s in c.stages):
            plan = plan_of(c, Context(lambda n: n.op not in VIRTUAL or n.op in ("parameter", "constant"), machine, lambda n: 0))
            if not (cannot(plan) or why_apart(problem_of(plan), machine)):
                return True
    return False


def _widened(module: Module, nodes: frozenset[Node]) -> tuple[Module, frozenset[Node]]:
    """The module with these nodes in f32, cast back for whoever else reads them; the reductions among them."""
    wide: dict[Node, Node] = {}
    stages: set[Node] = set()

    def change(old: Node, operands: tuple[Node, ...]) -> Node:
        if old not in nodes:
            return with_operands(old, operands)
        given = [wide[o] if o in wide else _in_f32(new) for o, new in zip(old.operands, operands)]
        if old.op == "cast" and old.type.dtype in (*NARROW, dt.f32) and given[0].type.dtype == dt.f32:
            wide[old] = given[0]
        else:
            wide[old] = apply(old.op, *given, **attributes(old))
        if old.op in ("reduce", "dot"):
            stages.add(wide[old])
        return cast(wide[old], old.type.dtype)

    return rebuilt(module, change), frozenset(stages)


def _in_f32(x: Node) -> Node:
    """A value in f32, if it is a 16-bit float."""
    if x.type.dtype not in NARROW:
        return x
    one = uniform(x)
    if one is None:
        return cast(x, dt.f32)
    return broadcast(constant(one.astype("float32")), x.type.shape, ())
