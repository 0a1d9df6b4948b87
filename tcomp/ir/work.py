"""How much arithmetic a program is: estimates that decide how it is called and stand in its report and profile.

A product counts two for each element of its sums, any other operation one for each element, whether it computes or moves it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tcomp.ir import index, layout
from tcomp.ir.graph import Func
from tcomp.ir.index import INDEX
from tcomp.ir.node import Dim, Node, walk
from tcomp.ir.stmts import Call, For, If, Kernel, Launch, Let, Stmt, Store
from tcomp.ir.types import TensorType

_FREE = frozenset({"constant", "parameter", "dimension", "item", "reshape", "iota", "broadcast"})
_FREE_TILES = frozenset({"load", "full", "ref", "position", "expand", "valid", "when"})
Values = Mapping[Node, Dim]


def flops(func: Func) -> int:
    """Operations of one call of a GRAPH function where all sizes are static, else 0."""
    return index.constant(nodes_work(func.nodes())) or 0


def nodes_work(nodes: Iterable[Node]) -> Dim:
    """Operations of nodes: of a loop those of all its steps, of a choice those of the longer branch."""
    total: Dim = 0
    for n in nodes:
        total = index.add(total, _work(n))
    return total


def _control_work(n: Node) -> Dim:
    if n.op == "cond":
        return index.maximum(nodes_work(n["then"].nodes()), nodes_work(n["orelse"].nodes()))
    return index.mul(nodes_work(n["body"].nodes()), 1 if n["extent"] is None else n["extent"])


def _work(n: Node) -> Dim:
    if n.op in _FREE:
        return 0
    if n.op in ("cond", "loop"):
        return _control_work(n)
    if n.op == "dot":
        inner = [n.operands[0].type.shape[a] for a in n["contract"][0]]
        return index.product([2, *n.type.shape, *inner])
    if n.op == "conv":
        return index.product([2, *n.type.shape, *n.operands[1].type.shape[:-1]])
    sizes = [index.product(t.shape) for t in (n.type, *(o.type for o in n.operands)) if isinstance(t, TensorType)]
    if any(index.constant(size) is None for size in sizes):
        return next(size for size in sizes if index.constant(size) is None)
    return max(index.constant(size) or 0 for size in sizes) if sizes else 0


# --- launches of kernels -------------------------------------------------------------------------------


def launch_bytes(launch: Launch, kernel: Kernel) -> Dim:
    """Bytes of the buffers that a launch reads and writes, over main's symbols."""
    total: Dim = 0
    for buffer in (*kernel.inputs, *kernel.outputs):
        total = index.add(total, layout.size(buffer))
    return index.substitute(total, _symbols(launch, kernel))


def launch_flops(launch: Launch, kernel: Kernel) -> Dim:
    """Operations of a launch of a REG kernel, over main's symbols. Every block and every turn of a loop counts like the first;
    where the extent is static, the last one by its share."""
    total: Dim = 0
    for phase in kernel.phases:
        work = _statements(phase.body, {axis.var: 0 for axis in phase.axes})
        for axis in phase.axes:
            work = _repeated(work, axis.extent, axis.step)
        total = index.add(total, work)
    reads: Values = {n: 0 for n in walk([total] if isinstance(total, Node) else []) if n.op == "read"}
    return index.substitute(index.substitute(total, reads), _symbols(launch, kernel))


def _symbols(launch: Launch, kernel: Kernel) -> Values:
    return dict(zip(kernel.symbols, launch.symbols, strict=True))


def _statements(body: Iterable[Stmt], values: Values) -> Dim:
    """Operations of statements; `values` are the loop variables' first values."""
    total: Dim = 0
    for s in body:
        match s:
            case Let() | Store():
                total = index.add(total, _tiles([s.value], values))
            case For():
                total = index.add(total, _loop(s, values))
            case If():
                total = index.add(total, index.maximum(_statements(s.body, values), _statements(s.orelse, values)))
            case Call():
                total = index.add(total, index.substitute(_elements(s.outputs), values))
    return total


def _loop(s: For, values: Values) -> Dim:
    lo, hi = index.substitute(s.lo, values), index.substitute(s.hi, values)
    inner = {**values, s.var: lo}
    work = index.add(_statements(s.body, inner), _tiles(s.yields, inner))
    return _repeated(work, index.maximum(index.sub(hi, lo), 0), s.step)


def _repeated(work: Dim, extent: Dim, step: int) -> Dim:
    """The work of all steps over an extent, given that of the first."""
    whole, first = index.constant(extent), index.constant(work)
    if whole is None or first is None:
        return index.mul(index.ceildiv(extent, step), work)
    return first * whole // max(1, min(step, whole))


def _tiles(roots: Iterable[Node], values: Values) -> Dim:
    """Operations of tile expressions, each shared one once."""
    total: Dim = 0
    for n in walk(roots):
        if n.type is INDEX or n.op in _FREE_TILES:
            continue
        if n.op == "dot":
            total = index.add(total, index.product([2, *n.type.shape, n.operands[0].type.shape[1]]))
        else:
            total = index.add(total, _elements([n.operands[0]] if n.op == "reduce" else [n]))
    return index.substitute(total, values)


def _elements(tiles: Iterable[Node]) -> Dim:
    total: Dim = 0
    for n in tiles:
        total = index.add(total, index.product(n.type.shape))
    return total
