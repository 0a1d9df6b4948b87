"""How much arithmetic a program is: estimates that decide how it is called and stand in its report and profile.

A product counts two for each element of its sums, any other operation one for each element, whether it computes or moves it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from tcomp.ir import index, layout
from tcomp.ir.graph import Func
from tcomp.ir.index import INDEX
from tcomp.ir.node import Dim, Node, walk
from tcomp.ir.stmts import Branch, Call, For, If, Kernel, Launch, Let, MainStmt, Repeat, Stmt, Store
from tcomp.ir.types import TensorType

_FREE = frozenset({"constant", "parameter", "dimension", "item", "reshape", "iota", "broadcast"})
_FREE_TILES = frozenset({"load", "full", "ref", "position", "expand", "valid", "when"})
Values = Mapping[Node, Dim]
Count = Callable[[Let | Store | For], Dim]  # the work of a statement, but for those inside it
SAMPLES = 64  # turns of a loop that are counted one by one


def flops(func: Func) -> int:
    """Operations of one call of a GRAPH function where all sizes are static, else 0: an estimate before anything is scheduled."""
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
    """Bytes that a launch reads and writes, over main's symbols: each buffer once, its own memory in both directions."""
    total: Dim = 0
    for buffer in (*kernel.inputs, *kernel.outputs, *kernel.workspace, *kernel.workspace):
        total = index.add(total, layout.size(buffer))
    return index.substitute(total, _symbols(launch, kernel))


def launch_flops(launch: Launch, kernel: Kernel) -> Dim:
    """Operations of a launch of a kernel, over main's symbols, with what masks and loop bounds leave out."""
    return _launch_work(launch, kernel, _operations)


def launch_stores(launch: Launch, kernel: Kernel) -> Dim:
    """Elements that a launch of a kernel stores, in its own tiles too, over main's symbols."""
    return _launch_work(launch, kernel, _stored)


def _launch_work(launch: Launch, kernel: Kernel, of: Count) -> Dim:
    total: Dim = 0
    for phase in kernel.phases:
        work = _statements(phase.body, of)
        for axis in reversed(phase.axes):
            work = _repeated(work, axis.var, 0, axis.extent, axis.step)
        total = index.add(total, work)
    reads: Values = {n: 0 for n in walk([total] if isinstance(total, Node) else []) if n.op == "read"}
    return index.substitute(index.substitute(total, reads), _symbols(launch, kernel))


def call_work(body: Iterable[MainStmt], of: Callable[[Launch], Dim]) -> Dim:
    """What all launches of a call come to, `of` being known of each: a loop counts all its turns (one where it has no bound), a
    choice the dearer branch."""
    total: Dim = 0
    for s in body:
        match s:
            case Launch():
                total = index.add(total, of(s))
            case Branch():
                total = index.add(total, index.maximum(call_work(s.then, of), call_work(s.orelse, of)))
            case Repeat():
                total = index.add(total, _repeated(call_work(s.body, of), s.var, 0, 1 if s.extent is None else s.extent, 1))
    return total


def _symbols(launch: Launch, kernel: Kernel) -> Values:
    return dict(zip(kernel.symbols, launch.symbols, strict=True))


def _statements(body: Iterable[Stmt], of: Count) -> Dim:
    """Work of statements, over the variables of the loops around them."""
    total: Dim = 0
    for s in body:
        match s:
            case Let() | Store():
                total = index.add(total, of(s))
            case For():
                work = index.add(_statements(s.body, of), of(s))
                total = index.add(total, _repeated(work, s.var, s.lo, s.hi, s.step))
            case If():
                total = index.add(total, index.maximum(_statements(s.body, of), _statements(s.orelse, of)))
            case Call():
                total = index.add(total, _elements(s.outputs))
    return total


def _operations(s: Let | Store | For) -> Dim:
    return _tiles(s.yields if isinstance(s, For) else [s.value])


def _stored(s: Let | Store | For) -> Dim:
    return _elements([s.window]) if isinstance(s, Store) else 0


def _repeated(work: Dim, var: Node, lo: Dim, hi: Dim, step: int) -> Dim:
    """The sum of `work` over var = lo, lo + step, .. below hi: exact where turns are parts of the extent, or few and known, else
    the last turn and the others like the middle one of them."""
    extent = index.maximum(_less(hi, lo), 0)
    count = index.ceildiv(extent, step)
    if not _reads(work, var):
        return index.mul(work, count)
    part = index.minimum(step, _less(hi, var))
    positive = index.maximum(part, 0)
    work = index.substitute(work, {positive: part}) if isinstance(positive, Node) else work  # a turn has some
    parts = _by_parts(work, var, part, step, extent, count)
    if parts is not None:
        return parts
    known = index.constant(count)
    if known is not None and index.constant(lo) is not None:
        return _sampled(work, var, [index.add(lo, k * step) for k in range(known)])
    last = index.maximum(index.sub(count, 1), 0)
    middle = index.maximum(index.floordiv(index.sub(count, 2), 2), 0)
    whole = index.substitute(work, {part: step}) if isinstance(part, Node) else work
    first, end = (index.substitute(w, {var: index.add(lo, index.mul(at, step))}) for w, at in ((whole, middle), (work, last)))
    return index.add(index.mul(first, last), index.mul(end, index.minimum(count, 1)))


def _less(hi: Dim, lo: Dim) -> Dim:
    """hi - lo; of a minimum the minimum of both differences."""
    if isinstance(hi, Node) and hi.op == "min":
        a, b = (_less(index.as_dim(o), lo) for o in hi.operands)
        return index.minimum(a, b)
    return index.sub(hi, lo)


def _by_parts(work: Dim, var: Node, part: Dim, step: int, extent: Dim, count: Dim) -> Dim | None:
    """The sum where `work` is linear in the part of the extent that a turn takes, and in the number of blocks of it of which a
    whole part has a whole number, and reads the variable nowhere else."""
    if not isinstance(part, Node):
        return None
    amounts: dict[Node, Dim] = {part: extent}
    for q in _divisors(work):
        blocks = index.ceildiv(part, q)
        if step % q == 0 and isinstance(blocks, Node):
            amounts[blocks] = index.ceildiv(extent, q)
    names = {n: index.symbol(f"?{k}", 0, index.bounds(n)[1]) for k, n in enumerate(amounts)}
    work = index.substitute(work, dict(names))
    fixed = index.substitute(work, dict.fromkeys(names.values(), 0))
    rebuilt, total = fixed, index.mul(fixed, count)
    for n, name in names.items():
        each = index.sub(index.substitute(work, {**dict.fromkeys(names.values(), 0), name: 1}), fixed)
        rebuilt = index.add(rebuilt, index.mul(each, name))
        total = index.add(total, index.mul(each, amounts[n]))
    return None if rebuilt != work or _reads(work, var) else total


def _divisors(work: Dim) -> set[int]:
    """What is divided by in `work`."""
    nodes = walk([work] if isinstance(work, Node) else [])
    return {q for n in nodes if n.op == "floordiv" and (q := index.constant(index.as_dim(n.operands[1]))) is not None}


def _sampled(work: Dim, var: Node, places: Sequence[Dim]) -> Dim:
    """The sum over all places, of which some stand for the others where there are many."""
    some = [places[k * len(places) // SAMPLES] for k in range(SAMPLES)] if len(places) > SAMPLES else places
    total: Dim = 0
    for place in some:
        total = index.add(total, index.substitute(work, {var: place}))
    return total if some is places else index.floordiv(index.mul(total, len(places)), len(some))


def _reads(work: Dim, var: Node) -> bool:
    return any(s is var for s in index.symbols([work]))


def _tiles(roots: Iterable[Node]) -> Dim:
    """Operations of tile expressions, each shared one once."""
    total: Dim = 0
    for n in walk(roots):
        if n.type is INDEX or n.op in _FREE_TILES:
            continue
        if n.op == "dot":
            total = index.add(total, index.product([2, *n.type.shape, n.operands[0].type.shape[1]]))
        else:
            total = index.add(total, _elements([n.operands[0]] if n.op == "reduce" else [n]))
    return total


def _elements(tiles: Iterable[Node]) -> Dim:
    total: Dim = 0
    for n in tiles:
        total = index.add(total, index.product(n.type.shape))
    return total
