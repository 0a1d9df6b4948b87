"""Control flow.

A branch whose condition is known is inlined; under others both are computed where that is next to nothing, else `cond` picks one.
Loops and scans become `loop`, or are unrolled where they have few steps or carry what a `loop` cannot. Of sequences and optionals
they see the tensors that these are made of (`containers.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tcomp.errors import Error
from tcomp.frontend.onnx import build, regions
from tcomp.frontend.onnx.build import Equal, unify
from tcomp.frontend.onnx.containers import TensorList, Value, is_container, of_one_structure, parts, rebuilt, towards
from tcomp.frontend.onnx.facts import DATA, STEP
from tcomp.frontend.onnx.ops_sequence import stacked
from tcomp.frontend.onnx.registry import Context, operator
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.graph import broadcast, cast, full, reshape, transpose
from tcomp.ir.node import Dim, Node, walk
from tcomp.ir.ops import apply
from tcomp.ir.ops.control import differing
from tcomp.ir.ops.table import MOVEMENT, OPS, POINTWISE, SOURCE

MAX_STEPS = 256  # of an unrolled loop
MOST_STRUCTURES = 4  # that a carried sequence or optional goes through until it stays what it is
FEW_STEPS = 2  # are unrolled
KNOWN_STEPS = 32  # are unrolled where sequences are carried: their lengths stay known
NO_LIMIT = 2**31 - 1  # steps that no loop makes: exporters write the largest integer where only a condition ends it
CHEAP = 8  # operations of both branches of a choice that are computed in any case


@operator("If")
def if_(c: Context, condition: Node) -> tuple[Value, ...]:
    known = c.constant(condition)
    if known is not None and known.size == 1:
        return tuple(c.branch(c.graph("then_branch" if known.reshape(()) else "else_branch"), ()))
    before, count = c.facts.seen(), len(c.facts.sizes)
    try:
        imported = [(c.branch(c.graph(name), ()), c.facts.forget(count)) for name in ("then_branch", "else_branch")]
    except Equal as found:
        if isinstance(found.other, Node) and found.other.op == "sym":
            raise  # two dimensions that one branch needs to be equal are meant to be, whatever the condition
        raise c.unsupported(f"branches that only work where {found}, under a condition that depends on the inputs") from found
    sides, local = [side for side, _ in imported], [sizes for _, sizes in imported]
    if len(sides[0]) != len(sides[1]):
        raise c.broken(f"branches of {len(sides[0])} and {len(sides[1])} results", "equal numbers")
    both = [of_one_structure(a, b) for a, b in zip(*sides)]
    matched = [pair for pair in both if pair is not None]
    if len(matched) < len(both):
        return tuple(_assumed(c, condition, v) for v in _tensors(c, sides[0]))
    like = [pair[0] for pair in matched]
    then, orelse = (parts(tuple(pair[k] for pair in matched)) for k in (0, 1))
    tensors = iter(_picked(c, reshape(condition, ()), (then, orelse), before, local))
    return tuple(rebuilt(v, tensors) for v in like)


def _picked(
    c: Context, flag: Node, sides: tuple[list[Node], list[Node]], before: frozenset[Node], local: Sequence[regions.Found]
) -> tuple[Node, ...]:
    """The tensors of one side. before: what was there before the sides were imported; local: the sizes of each."""
    then, orelse = sides
    pairs = differing([x.type for x in then], [x.type for x in orelse])
    if not pairs and not any(local) and _is_cheap([*then, *orelse], before):
        return tuple(apply("where", broadcast(flag, a.type.shape, ()), a, b) for a, b in zip(then, orelse))
    return regions.cond(c, flag, then, orelse, before, local)


def _assumed(c: Context, condition: Node, x: Node) -> Node:
    """A value of the first branch, where a condition on sizes promises it: exporters squeeze an axis if it is 1, and what follows
    fits one rank. The sizes are checked when the program runs: the reshape has one element too few unless the condition holds."""
    sizes = c.facts.dims(condition)
    if sizes is None:
        raise c.unsupported("branches of different ranks or element types under a condition that depends on the inputs")
    promise = sizes.reshape(-1)[0]
    return reshape(reshape(x, (*x.type.shape, index.equal(promise, 1))), x.type.shape)


def _tensors(c: Context, values: Sequence[Value]) -> list[Node]:
    """Values that are tensors."""
    found = [v for v in values if isinstance(v, Node)]
    if len(found) < len(values):
        raise c.unsupported("sequences or optionals where a loop collects or decides")
    return found


def _is_cheap(results: Sequence[Node], before: frozenset[Node]) -> bool:
    """Whether both sides can be computed in place of a choice: little more than reading, and nothing that may fault."""
    new = [n for n in walk(results) if n not in before]
    simple = all(OPS[n.op].kind in (POINTWISE, MOVEMENT, SOURCE) for n in new)
    return simple and len(new) <= CHEAP and not regions.may_fault(results, before)


@operator("Loop")
def loop(c: Context, count: Node | None = None, condition: Node | None = None, *carried: Value) -> tuple[Value, ...]:
    """A loop of the program; unrolled where it has few steps, or where it has to be (sequences)."""
    limit = None if count is None else c.facts.dims(count)
    steps = None if limit is None else limit.reshape(-1)[0]
    if isinstance(steps, int) and steps >= NO_LIMIT:
        count = steps = None
    known = len(c.facts.sizes)
    if isinstance(steps, int) and 0 < steps <= (KNOWN_STEPS if any(map(is_container, carried)) else FEW_STEPS):
        try:
            return _unrolled(c, steps, condition, carried)
        except Error as fault:
            if fault.code != "TC0202":
                raise
            c.facts.forget(known)
    try:
        return _looped(c, count, steps, condition, carried)
    except Error as fault:
        if fault.code != "TC0202":
            raise
        c.facts.forget(known)
        try:
            return _unrolled(c, steps, condition, carried)
        except Error:
            raise fault from None


# From a counter and carried values to: whether to go on, the next ones, what is collected.
Turn = Callable[[Node, tuple[Node, ...]], list[Node]]


def _looped(
    c: Context, count: Node | None, steps: Dim | None, condition: Node | None, carried: Sequence[Value]
) -> tuple[Value, ...]:
    body = c.graph("body")

    def step(counter: Node, values: Sequence[Value]) -> list[Value]:
        return _guarded(c, body, (build.dimension(counter, dt.i64), full(True, dt.bool_), *values), counter)

    like = _carried(c, carried, lambda values: step(c.facts.counter(steps), values)[1:])

    def turn(counter: Node, values: tuple[Node, ...]) -> list[Node]:
        going, *results = step(counter, _values(like, iter(values)))
        kept = [_as(c, v, r) for v, r in zip(like, results)]
        return _tensors(c, [going, *parts(tuple(kept)), *results[len(like) :]])

    def flagged(counter: Node, values: tuple[Node, ...]) -> list[Node]:
        going, *results = turn(counter, values)
        return [reshape(going, ()), *results]

    start, lines = parts(tuple(like)), len(body.output) - 1 - len(like)
    found = iter(_collecting(c, _Ending(count, steps, condition), start, lines, flagged))
    return (*_values(like, found), *found)


def _carried(c: Context, start: Sequence[Value], trial: Callable[[Sequence[Value]], Sequence[Value]]) -> list[Value]:
    """What a loop begins with, in the structure that it has after a turn."""
    like = list(start)
    for _ in range(MOST_STRUCTURES if any(map(is_container, start)) else 0):
        new = [_towards(c, a, b) for a, b in zip(like, _tried(c, partial(trial, like)))]
        if list(map(_outline, new)) == list(map(_outline, like)):
            return new
        like = new
    return like


def _outline(v: Value) -> object:
    """The structure of a value, to compare."""
    if isinstance(v, tuple):
        return tuple(map(_outline, v))
    return (type(v), [x.type.rank for x in parts(v)], v.rank if isinstance(v, TensorList) else None)


def _towards(c: Context, start: Value, found: Value) -> Value:
    """The start of a carried value in the structure of what a turn made of it."""
    new = towards(start, found)
    if new is None:
        raise c.unsupported("a carried sequence or optional whose tensors change their rank or element type")
    return new


def _as(c: Context, like: Value, v: Value) -> Value:
    """A carried value in the structure that it has in every turn."""
    if isinstance(like, Node) and isinstance(v, Node):
        return v
    both = of_one_structure(like, v)
    if both is None or _outline(both[0]) != _outline(like):
        raise c.unsupported("a carried sequence or optional that changes its structure")
    return both[1]


def _values(like: Sequence[Value], tensors: Iterator[Node]) -> list[Value]:
    return [rebuilt(v, tensors) for v in like]


def _collecting(c: Context, ending: _Ending, start: Sequence[Node], lines: int, turn: Turn) -> tuple[Node, ...]:
    """The loop on tensors; what it collects is appended to what it carries where its size is known only in a turn."""
    known, count, steps = len(c.facts.sizes), ending.count, ending.steps
    if not lines or count is not None:
        try:
            return _ended(c, ending, start, lines, turn)
        except regions.Changing:
            c.facts.forget(known)
    _, *made = _tried(c, lambda: turn(c.facts.counter(steps), tuple(start)))
    none = [full(0, x.type.dtype, (0, *(d if _is_known(c, d) else 0 for d in x.type.shape))) for x in made[len(start) :]]
    return _ended(c, ending, [*start, *none], 0, _appending(turn, len(start)))


@dataclass(frozen=True, slots=True)
class _Ending:
    """When a loop ends: count, which is `steps` where these are known; condition: whether it begins."""

    count: Node | None
    steps: Dim | None
    condition: Node | None


def _ended(c: Context, ending: _Ending, start: Sequence[Node], lines: int, turn: Turn) -> tuple[Node, ...]:
    """The loop; lines: how many values it collects."""
    steps, condition = ending.steps, ending.condition
    limit, extent = None, None if steps is None else index.maximum(steps, 0)
    if ending.count is not None and steps is None:
        limit = cast(reshape(ending.count, ()), dt.i64)
        if lines or not c.facts.turns:
            extent = c.facts.data_size(build.with_scalar("max", limit, 0))
            limit = None
    first = full(True, dt.bool_) if condition is None else reshape(condition, ())
    known = c.constant(first)
    if known is not None and not known:
        extent, limit, first = 0, None, full(True, dt.bool_)
    if limit is None:
        on = c.constant(_tried(c, lambda: turn(c.facts.counter(extent), tuple(start)))[0])
        always = on is not None and bool(on)
        if always and extent is None:
            raise c.unsupported("a loop without end")
        if always and known is not None:
            return regions.loop(c, start, extent, lambda t, values: turn(t, values)[1:])

    def guarded(counter: Node, values: tuple[Node, ...]) -> list[Node]:
        going, *results = turn(counter, values[2:])
        return [_within(going, limit, index.add(counter, 1)), build.dimension(index.add(counter, 1), dt.i64), *results]

    before = [_within(first, limit, 0), build.dimension(0, dt.i64)]
    _, done, *results = regions.loop(c, [*before, *start], extent, guarded, True)
    collected = results[len(start) :]
    made = c.facts.data_size(done) if lines else 0  # rows of steps that were not made are cut off
    return (*results[: len(start)], *(build.take(line, 0, 0, made) for line in collected))


def _appending(turn: Turn, carried: int) -> Turn:
    """A turn that carries what it collects, and adds to that: for loops that only a condition ends, and for values whose size is
    known only in a turn. (Where nothing was collected yet, the first value says what the other sizes are.)"""

    def appended(counter: Node, values: tuple[Node, ...]) -> list[Node]:
        going, *results = turn(counter, values[:carried])
        longer = []
        for line, x in zip(values[carried:], results[carried:]):
            for axis, d in enumerate(x.type.shape, 1):
                line = reshape(line, (*line.type.shape[:axis], d, *line.type.shape[axis + 1 :]))
            longer.append(apply("concat", line, reshape(x, (1, *x.type.shape)), axis=0))
        return [going, *results[:carried], *longer]

    return appended


def _tried(c: Context, turn: Callable[[], Sequence[Any]]) -> Sequence[Any]:
    """The results of a body on what a loop begins with, to see what they are; nothing of it is kept."""
    count, required = len(c.facts.sizes), set(c.facts.required)
    try:
        return turn()
    finally:
        c.facts.forget(count)
        c.facts.required &= required


def _is_known(c: Context, d: Dim) -> bool:
    """Whether a size is known outside of the body that was tried."""
    here = {*c.facts.sizes.values(), *c.facts.turns}
    return all(s in here or not str(s["name"]).startswith((DATA, STEP)) for s in index.symbols([d]))


def _within(going: Node, limit: Node | None, step: Dim) -> Node:
    """Whether a loop goes on with this step: by its condition, and by its limit."""
    if limit is None:
        return going
    return apply("and", going, apply("lt", build.dimension(step, dt.i64), limit))


def _guarded(c: Context, body: Any, values: Sequence[Value], counter: Node) -> list[Value]:
    """The results of a body, in which no size may have to be that of one step."""
    try:
        return c.branch(body, values)
    except Equal as found:
        if counter in index.symbols([found.symbol, found.other]):
            raise c.unsupported(f"a body that only works where {found}") from found
        raise


def _unrolled(c: Context, limit: Dim | None, condition: Node | None, carried: Sequence[Value]) -> tuple[Value, ...]:
    """Step by step: the number of steps, or the conditions, have to be known."""
    body, state = c.graph("body"), list(carried)
    if limit is not None and not isinstance(limit, int):
        raise c.unsupported("a number of steps that is not known")
    scanned: list[list[Value]] = [[] for _ in range(len(body.output) - 1 - len(state))]
    going: Value = condition
    step = 0
    while (limit is None or step < limit) and _holds(c, going):
        if step == MAX_STEPS:
            raise c.unsupported(f"a loop of more than {MAX_STEPS} steps")
        c.facts.turns.append(step)
        try:
            results = c.branch(body, (build.dimension(step, dt.i64), full(True, dt.bool_) if going is None else going, *state))
        finally:
            c.facts.turns.pop()
        going = results[0]
        state = results[1 : 1 + len(carried)]
        for line, v in zip(scanned, results[1 + len(carried) :]):
            line.append(v)
        step += 1
    return (*state, *(stacked(c, line, 0) for line in scanned))


def _holds(c: Context, condition: Value) -> bool:
    if condition is None:
        return True
    assert isinstance(condition, Node)
    return bool(c.require_constant(condition, "whether the loop goes on").reshape(()))


@operator("Scan", since=9)
def scan(c: Context, *inputs: Node) -> tuple[Value, ...]:
    """A loop along the scanned axes."""
    body, m = c.graph("body"), c.integer("num_scan_inputs")
    if not 1 <= m <= len(inputs):
        raise c.broken(f"{m} scanned operands of {len(inputs)}", "at least one")
    start, scanned = inputs[: len(inputs) - m], inputs[len(inputs) - m :]
    outs = len(body.output) - len(start)
    axes = [c.axis(a, x.type.rank) for a, x in zip(c.integers("scan_input_axes", (0,) * m), scanned)]
    back = c.integers("scan_input_directions", (0,) * m)
    length = scanned[0].type.shape[axes[0]]
    for x, a in zip(scanned, axes):
        length = unify(length, x.type.shape[a])
    scanned = tuple(reshape(x, (*x.type.shape[:a], length, *x.type.shape[a + 1 :])) for x, a in zip(scanned, axes))

    results = _steps(c, body, start, scanned, axes, back, length)
    to, turned = c.integers("scan_output_axes", (0,) * outs), c.integers("scan_output_directions", (0,) * outs)
    lines = [build.flip(line, (0,)) if r else line for line, r in zip(results[len(start) :], turned)]
    return (*results[: len(start)], *(_moved(c, line, a) for line, a in zip(lines, to)))


def _steps(
    c: Context, body: Any, start: Sequence[Node], scanned: Sequence[Node], axes: Sequence[int], back: Sequence[int], length: Dim
) -> tuple[Node, ...]:
    """The last state, then what a body gives at all places along the axes of the scanned operands, from the end where `back`."""

    def turn(step: Node, values: tuple[Node, ...]) -> list[Node]:
        ends = [index.sub(index.sub(length, 1), step) if r else step for r in back]
        here = [build.pick(x, a, at) for x, a, at in zip(scanned, axes, ends)]
        return _tensors(c, _guarded(c, body, (*values, *here), step))

    return regions.loop(c, start, length, turn)


@operator("Scan", since=8)
def scan_of_batches(c: Context, lengths: Node | None = None, *inputs: Node) -> tuple[Value, ...]:
    """Opset 8: every operand has a batch first and, where it is scanned, the sequence next; each example is scanned by itself."""
    if lengths is not None:
        raise c.unsupported("sequences of different lengths")
    body, m = c.graph("body"), c.integer("num_scan_inputs")
    if not 1 <= m <= len(inputs):
        raise c.broken(f"{m} scanned operands of {len(inputs)}", "at least one")
    back, scanned = c.integers("directions", (0,) * m), inputs[len(inputs) - m :]
    batch, length = scanned[0].type.shape[:2]
    for x in scanned:
        batch, length = unify(batch, x.type.shape[0]), unify(length, x.type.shape[1])
    for x in inputs[: len(inputs) - m]:
        batch = unify(batch, x.type.shape[0])
    states = [reshape(x, (batch, *x.type.shape[1:])) for x in inputs[: len(inputs) - m]]
    scanned = tuple(reshape(x, (batch, length, *x.type.shape[2:])) for x in scanned)

    def example(k: Node, _: tuple[Node, ...]) -> tuple[Node, ...]:
        first, rows = ([build.pick(x, 0, k) for x in xs] for xs in (states, scanned))
        return _steps(c, body, first, rows, (0,) * m, back, length)

    return regions.loop(c, (), batch, example)


def _moved(c: Context, x: Node, axis: int) -> Node:
    """The first axis at another place."""
    at = c.axis(axis, x.type.rank)
    return transpose(x, (*range(1, at + 1), 0, *range(at + 1, x.type.rank)))
