"""The element of a reduction as a scalar expression, in the language of tile expressions of rank 0.

Leaves are `ref`s: `x...` what streams along the reduced axis, `p...` what is the same for a whole row, `m...` results of earlier
reductions of the same row. An expression is *streamed* if it reads an x, a *state* if it reads an m and no x. Builders here
simplify what derivatives bring about: zeros, ones, double negation.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Mapping

from tcomp.ir import tile
from tcomp.ir.dtype import DType
from tcomp.ir.node import Node, walk
from tcomp.ir.ops import OPS
from tcomp.ir.types import TileType
from tcomp.passes.tiles import swap

STREAMED, RESULT, STATE = "x", "m", "u"


def leaf(kind: str, number: int, dtype: DType) -> Node:
    """A leaf of one of these kinds, or `p`; `u` names a state: a function of earlier results."""
    return tile.ref(f"{kind}{number}", TileType(dtype))


def kinds(e: Node) -> frozenset[str]:
    """The kinds of leaves that an expression reads."""
    return frozenset(n["name"][0] for n in walk([e]) if n.op == "ref")


def is_streamed(e: Node) -> bool:
    return STREAMED in kinds(e)


def is_state(e: Node) -> bool:
    found = kinds(e)
    return STREAMED not in found and bool(found & {RESULT, STATE})


def leaves(e: Node, kind: str) -> list[Node]:
    """The leaves of a kind, in order of first use."""
    return [n for n in walk([e]) if n.op == "ref" and n["name"][0] == kind]


def value_of(e: Node) -> float | None:
    """The number that an expression is, if it is one."""
    return float(e["value"].value) if e.op == "full" else None


def number(value: float, dtype: DType) -> Node:
    return tile.full(value, dtype)


def add(a: Node, b: Node) -> Node:
    if value_of(a) == 0:
        return b
    if value_of(b) == 0:
        return a
    return _folded("add", a, b)


def neg(a: Node) -> Node:
    value = value_of(a)
    if value is not None:
        return number(-value, a.type.dtype)
    return a.operands[0] if a.op == "neg" else tile.pointwise("neg", a)


def sub(a: Node, b: Node) -> Node:
    if value_of(b) == 0:
        return a
    return neg(b) if value_of(a) == 0 else _folded("sub", a, b)


def mul(a: Node, b: Node) -> Node:
    for x, y in ((a, b), (b, a)):
        value = value_of(x)
        if value is not None and value in (0, 1, -1):
            return x if value == 0 else y if value == 1 else neg(y)
        if x.op == "neg":
            return neg(mul(x.operands[0], y))
    return _folded("mul", a, b)


def div(a: Node, b: Node) -> Node:
    return a if value_of(a) == 0 or value_of(b) == 1 else _folded("div", a, b)


def _folded(op: str, a: Node, b: Node) -> Node:
    x, y = value_of(a), value_of(b)
    if x is None or y is None or (op == "div" and y == 0):
        return tile.pointwise(op, a, b)
    return number({"add": x + y, "sub": x - y, "mul": x * y}[op] if op != "div" else x / y, a.type.dtype)


def total(terms: Iterable[Node], dtype: DType) -> Node:
    """The sum of expressions."""
    out = number(0.0, dtype)
    for t in terms:
        out = add(out, t)
    return out


class NoDerivative(Exception):
    """An operation whose row has no derivative; the argument names it."""


def derivative(e: Node, by: Node) -> Node:
    """d e / d by, from the derivative rows of the op table. Raises NoDerivative."""
    done: dict[Node, Node] = {}
    for n in walk([e]):
        done[n] = _derivative(n, by, done)
    return done[e]


def _derivative(n: Node, by: Node, done: Mapping[Node, Node]) -> Node:
    zero = number(0.0, n.type.dtype)
    if n is by:
        return number(1.0, n.type.dtype)
    inner = [done[o] for o in n.operands]
    if n.op == "where":
        same = value_of(inner[1]) == 0 and value_of(inner[2]) == 0
        return zero if same else tile.pointwise("where", n.operands[0], inner[1], inner[2])
    if all(value_of(d) == 0 for d in inner):
        return zero
    if n.op == "cast":
        return tile.pointwise("cast", inner[0], dtype=n["dtype"])
    rows = OPS[n.op].derivative
    if not rows:
        raise NoDerivative(n.op)
    names = {**dict(zip("xyz", n.operands)), "r": n}
    return total((mul(_written(ast.parse(r, mode="eval").body, names), d) for r, d in zip(rows, inner)), n.type.dtype)


_BINARY = {ast.Add: add, ast.Sub: sub, ast.Mult: mul, ast.Div: div}


def _written(t: ast.expr, names: Mapping[str, Node]) -> Node:
    """The expression that a derivative row writes."""
    match t:
        case ast.Constant(value=value) if isinstance(value, int | float):
            return number(value, names["r"].type.dtype)
        case ast.Name(id=name):
            return names[name]
        case ast.UnaryOp(op=ast.USub(), operand=x):
            return neg(_written(x, names))
        case ast.BinOp(left=a, op=op, right=b):
            return _BINARY[type(op)](_written(a, names), _written(b, names))
        case ast.Call(func=ast.Name(id=name), args=args):
            return tile.pointwise(name, *(_written(a, names) for a in args))
    raise AssertionError(ast.dump(t))


Step = tuple[str, Node]  # `mul` or `div`, by what; `unless`: 0 where this is NaN or 0


def factored(e: Node) -> tuple[Node, tuple[Step, ...]]:
    """(core, steps): e is core with these steps applied, each by something that does not stream. e streams."""
    core, steps = _factored(e)
    assert core is not None
    return core, steps


def _factored(e: Node) -> tuple[Node | None, tuple[Step, ...]]:
    if not is_streamed(e):
        return None, (("mul", e),)
    if e.op == "neg":
        core, steps = _factored(e.operands[0])
        return core, (*steps, ("mul", number(-1.0, e.type.dtype)))
    if e.op not in ("mul", "div"):
        return e, ()
    (a, left), (b, right) = map(_factored, e.operands)
    if e.op == "div":
        right = tuple(("div" if op == "mul" else "mul", x) for op, x in right)
    if not left and not right:
        return e, ()
    one = number(1.0, e.type.dtype)
    core = a if b is None else (mul if e.op == "mul" else div)(one if a is None else a, b)
    return core, (*left, *right)


def states(es: Iterable[Node]) -> dict[Node, Node]:
    """A `u` leaf for each largest state inside the expressions, by the state."""
    found: dict[Node, Node] = {}
    stack = list(es)
    while stack:
        e = stack.pop()
        if is_state(e):
            found.setdefault(e, leaf(STATE, len(found), e.type.dtype))
        else:
            stack.extend(reversed(e.operands))
    return found


def with_states(e: Node, table: Mapping[Node, Node]) -> Node:
    """`e` with each state read by its leaf."""
    return swap(e, table)


def show(e: Node) -> str:
    """An expression as a reader writes it."""
    if e.op == "ref":
        return str(e["name"])
    if e.op == "full":
        value = value_of(e)
        assert value is not None
        return f"{value:g}" if math.isfinite(value) else str(value)
    marks = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
    if e.op in marks:
        return f"({show(e.operands[0])} {marks[e.op]} {show(e.operands[1])})"
    return f"{e.op}({', '.join(map(show, e.operands))})"
