"""Control flow and containers, as far as they can be decided while importing.

A branch whose condition is known is inlined; otherwise both are computed and `where` picks, if neither can fault. Loops with a
known number of steps are unrolled. Sequences and optionals are tuples and None of the importer, never values of the GRAPH.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tcomp.frontend.onnx import build
from tcomp.frontend.onnx.build import Equal, unify
from tcomp.frontend.onnx.registry import Context, Value, operator
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.graph import broadcast, full, reshape
from tcomp.ir.node import Node, walk
from tcomp.ir.ops import apply
from tcomp.ir.ops.table import INDEXING, OPS

MAX_STEPS = 256  # of an unrolled loop


@operator("If")
def if_(c: Context, condition: Node) -> tuple[Value, ...]:
    known = c.constant(condition)
    if known is not None and known.size == 1:
        return tuple(c.branch(c.graph("then_branch" if known.reshape(()) else "else_branch"), ()))
    before = c.facts.seen()
    try:
        sides = [c.branch(c.graph(name), ()) for name in ("then_branch", "else_branch")]
    except Equal as found:
        raise c.unsupported(f"branches that only work where {found}, under a condition that depends on the inputs") from found
    if len(sides[0]) != len(sides[1]):
        raise c.broken(f"branches of {len(sides[0])} and {len(sides[1])} results", "equal numbers")
    return tuple(_picked(c, condition, a, b, before) for a, b in zip(*sides))


def _picked(c: Context, condition: Node, a: Value, b: Value, before: frozenset[Node]) -> Node:
    if not (isinstance(a, Node) and isinstance(b, Node) and a.type == b.type):
        raise c.unsupported("branches of different types under a condition that depends on the inputs")
    if any(_may_fault(n) for n in walk([a, b]) if n not in before):
        raise c.unsupported("branches that may fault under a condition that depends on the inputs")
    return apply("where", broadcast(reshape(condition, ()), a.type.shape, ()), a, b)


def _may_fault(n: Node) -> bool:
    """Whether computing `n` where the program would not have could raise: positions from data, sizes that may contradict."""
    if n.op == "reshape":
        return index.product(n.type.shape) != index.product(n.operands[0].type.shape)
    return OPS[n.op].kind == INDEXING and n.op not in ("item", "sort", "top_k") and n.operands[1].op != "constant"


@operator("Loop")
def loop(c: Context, count: Node | None = None, condition: Node | None = None, *carried: Value) -> tuple[Value, ...]:
    """Unrolled: the number of steps, or the conditions, have to be known."""
    body, state = c.graph("body"), list(carried)
    limit = None if count is None else c.dims(count, "the number of steps")[0]
    if limit is not None and not isinstance(limit, int):
        raise c.unsupported("a number of steps that is not known")
    scanned: list[list[Value]] = [[] for _ in range(len(body.output) - 1 - len(state))]
    going: Value = condition
    step = 0
    while (limit is None or step < limit) and _holds(c, going):
        if step == MAX_STEPS:
            raise c.unsupported(f"a loop of more than {MAX_STEPS} steps")
        results = c.branch(body, (build.dimension(step, dt.i64), full(True, dt.bool_) if going is None else going, *state))
        going = results[0]
        state = results[1 : 1 + len(carried)]
        for line, v in zip(scanned, results[1 + len(carried) :]):
            line.append(v)
        step += 1
    return (*state, *(_stacked(c, line, 0) for line in scanned))


def _holds(c: Context, condition: Value) -> bool:
    if condition is None:
        return True
    assert isinstance(condition, Node)
    return bool(c.require_constant(condition, "whether the loop goes on").reshape(()))


def _stacked(c: Context, parts: Sequence[Value], axis: int) -> Node:
    """Tensors of one type side by side along a new axis."""
    if not parts:
        raise c.unsupported("results collected by a loop of no steps")
    lines = []
    for p in parts:
        if not isinstance(p, Node):
            raise c.unsupported("sequences collected by a loop")
        at = c.axis(axis, p.type.rank + 1)
        lines.append(reshape(p, (*p.type.shape[:at], 1, *p.type.shape[at:])))
    return build.concat(lines, c.axis(axis, lines[0].type.rank))


@operator("Scan", since=9)
def scan(c: Context, *inputs: Node) -> tuple[Value, ...]:
    """Unrolled along the scanned axes."""
    body, m = c.graph("body"), c.integer("num_scan_inputs")
    if not 1 <= m <= len(inputs):
        raise c.broken(f"{m} scanned operands of {len(inputs)}", "at least one")
    state: list[Value] = list(inputs[: len(inputs) - m])
    scanned, outs = inputs[len(inputs) - m :], len(body.output) - len(state)
    axes = [c.axis(a, x.type.rank) for a, x in zip(c.integers("scan_input_axes", (0,) * m), scanned)]
    back = c.integers("scan_input_directions", (0,) * m)
    length = scanned[0].type.shape[axes[0]]
    for x, a in zip(scanned, axes):
        length = unify(length, x.type.shape[a])
    if not isinstance(length, int) or length > MAX_STEPS:
        raise c.unsupported(f"a scan of {index.show(length)} steps")
    lines: list[list[Value]] = [[] for _ in range(outs)]
    for step in range(length):
        parts = [_place(x, a, length - 1 - step if r else step) for x, a, r in zip(scanned, axes, back)]
        results = c.branch(body, (*state, *parts))
        state = results[: len(state)]
        for line, v in zip(lines, results[len(state) :]):
            line.append(v)
    to, turned = c.integers("scan_output_axes", (0,) * outs), c.integers("scan_output_directions", (0,) * outs)
    return (*state, *(_stacked(c, line[::-1] if r else line, a) for line, a, r in zip(lines, to, turned)))


def _place(x: Node, axis: int, at: int) -> Node:
    part = build.take(x, axis, at, 1)
    return reshape(part, (*x.type.shape[:axis], *x.type.shape[axis + 1 :]))


def _index(c: Context, position: Node | None, size: int, default: int) -> int:
    if position is None:
        return default
    at = int(c.require_constant(position, "the position in a sequence").reshape(()))
    if not -size <= at <= size:
        raise c.broken(f"position {at} of a sequence of {size}", "one inside")
    return at + size if at < 0 else at


@operator("SequenceEmpty", since=11)
def sequence_empty(c: Context) -> tuple[Value, ...]:
    return ((),)


@operator("SequenceConstruct", since=11)
def sequence_construct(c: Context, *xs: Node) -> tuple[Value, ...]:
    return (xs,)


@operator("SequenceAt", since=11)
def sequence_at(c: Context, s: tuple[Any, ...], position: Node) -> tuple[Value, ...]:
    return (s[_index(c, position, len(s), 0)],)


@operator("SequenceInsert", since=11)
def sequence_insert(c: Context, s: tuple[Any, ...], x: Node, position: Node | None = None) -> tuple[Value, ...]:
    at = _index(c, position, len(s), len(s))
    return ((*s[:at], x, *s[at:]),)


@operator("SequenceErase", since=11)
def sequence_erase(c: Context, s: tuple[Any, ...], position: Node | None = None) -> tuple[Value, ...]:
    at = _index(c, position, len(s), len(s) - 1)
    return ((*s[:at], *s[at + 1 :]),)


@operator("SequenceLength", since=11)
def sequence_length(c: Context, s: tuple[Any, ...]) -> Node:
    return build.dimension(len(s), dt.i64)


@operator("ConcatFromSequence", since=11)
def concat_from_sequence(c: Context, s: tuple[Any, ...]) -> Node:
    if c.integer("new_axis", 0):
        return _stacked(c, s, c.integer("axis"))
    return build.concat(s, c.axis(c.integer("axis"), s[0].type.rank))


@operator("SplitToSequence", since=11)
def split_to_sequence(c: Context, x: Node, split: Node | None = None) -> tuple[Value, ...]:
    axis = c.axis(c.integer("axis", 0), x.type.rank)
    size = x.type.shape[axis]
    if not isinstance(size, int):
        raise c.unsupported("a sequence of a length that is not known")
    known = np.ones(size, int) if split is None else c.require_constant(split, "the list of sizes")
    if known.ndim == 0:
        step = max(1, int(known))
        known = np.array([min(step, size - b) for b in range(0, size, step)], int)
    if int(known.sum()) != size or (known < 0).any():
        raise c.broken(f"parts {known.tolist()} of {size}", "parts that add up")
    ends = known.cumsum()
    parts = tuple(build.take(x, axis, int(e - n), int(n)) for e, n in zip(ends, known))
    if split is None and not c.integer("keepdims", 1):
        parts = tuple(reshape(p, (*x.type.shape[:axis], *x.type.shape[axis + 1 :])) for p in parts)
    return (parts,)


@operator("Optional", "OptionalGetElement", since=15)
def optional(c: Context, x: Value = None) -> tuple[Value, ...]:
    if x is None:
        raise c.unsupported("an empty optional")
    return (x,)


@operator("OptionalHasElement", since=15)
def optional_has_element(c: Context, x: Value = None) -> Node:
    return full(x is not None, dt.bool_)
