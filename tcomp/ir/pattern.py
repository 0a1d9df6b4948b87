"""Patterns over GRAPH nodes, as text: what the two sides of a rule are made of.

    max(x, 0.0)                     a variable binds any value; a number matches a constant of that value, broadcast or not
    transpose(transpose(x, perm = p), perm = q)      a word after `=` binds the attribute, or must equal it where it is bound
    reduce(neg(x), monoid = "add", axes = a)         a literal must equal the attribute

A commutative operation (a fact of the op table) is matched in both orders. On the right side a number is a constant of the
type of the whole, and an attribute may be computed by a function of `FUNCTIONS`: `perm = compose(p, q)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from tcomp.ir.dtype import to_numpy
from tcomp.ir.graph import uniform
from tcomp.ir.lexer import Cursor, rows
from tcomp.ir.literals import read_float
from tcomp.ir.node import Node
from tcomp.ir.ops import OPS, apply, constant
from tcomp.ir.types import TensorType


@dataclass(frozen=True, slots=True)
class Variable:
    """Any value, or on the right side the one that the left side bound."""

    name: str


@dataclass(frozen=True, slots=True)
class Number:
    """A constant of this value."""

    value: float


@dataclass(frozen=True, slots=True)
class Call:
    """An operation on patterns; its attributes as variables, literals, or (right side) calls of `FUNCTIONS` on variables."""

    op: str
    operands: tuple[Pattern, ...]
    attrs: tuple[tuple[str, Attribute], ...]


@dataclass(frozen=True, slots=True)
class Computed:
    """An attribute that a function of `FUNCTIONS` gives, of attributes that the left side bound."""

    function: str
    arguments: tuple[str, ...]


Pattern = Variable | Number | Call
Attribute = Variable | Computed | int | str | bool
Bindings = Mapping[str, Any]  # nodes by variable, and attributes
Make = Callable[..., Node]  # (operation, *operands, **attributes) -> its node: `apply`, or what normalises as well


def _compose(p: tuple[int, ...], q: tuple[int, ...]) -> tuple[int, ...]:
    """The permutation of a transpose by p, then by q."""
    return tuple(p[k] for k in q)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "compose": _compose,
    "join": lambda a, b: tuple(sorted((*a, *b))),
}


# --- reading -------------------------------------------------------------------------------------------


@cache
def pattern(text: str) -> Pattern:
    """The pattern that `text` writes. TC0301 where it does not parse."""
    c = Cursor(rows(text, "<rule>")[0])
    found = _pattern(c)
    c.end()
    return found


def _pattern(c: Cursor) -> Pattern:
    if c.is_kind("int", "float") or c.is_("-") or c.is_("inf"):
        return Number(read_float(c.number()))
    name = c.name("a variable, an operation or a number")
    if not c.is_("("):
        return Variable(name)
    if name not in OPS:
        c.at -= 1
        c.fail("an operation of the op table")
    c.expect("(")
    parts = c.listed(lambda: _part(c))
    operands = tuple(p for p in parts if not isinstance(p, tuple))
    return Call(name, operands, tuple(p for p in parts if isinstance(p, tuple)))


def _part(c: Cursor) -> Pattern | tuple[str, Attribute]:
    """An operand, or `attribute = value`."""
    following = c.row.tokens[min(c.at + 1, len(c.row.tokens) - 1)]
    if not (c.is_kind("word") and following.kind == "sign" and following.text == "="):
        return _pattern(c)
    name = c.name()
    c.expect("=")
    return name, _attribute(c)


def _attribute(c: Cursor) -> Attribute:
    if c.is_kind("string"):
        return c.name()
    if c.is_kind("int") or c.is_("-"):
        return c.integer()
    name = c.name("a variable or a literal")
    if name in ("true", "false"):
        return name == "true"
    if not c.accept("("):
        return Variable(name)
    if name not in FUNCTIONS:
        c.fail(f"one of {', '.join(FUNCTIONS)}", f"`{name}`")
    return Computed(name, c.listed(lambda: c.name("a variable")))


# --- matching ------------------------------------------------------------------------------------------


def match(p: Pattern, n: Node, found: Bindings) -> Iterator[Bindings]:
    """Every way in which `n` is of the form `p`, given what is bound already."""
    match p:
        case Variable():
            if found.get(p.name, n) is n:
                yield {**found, p.name: n}
        case Number():
            if _is_number(n, p.value):
                yield found
        case Call():
            if n.op != p.op or len(n.operands) != len(p.operands):
                return
            bound = _match_attributes(p, n, found)
            if bound is not None:
                yield from _match_operands(p, n, bound)


def _match_operands(p: Call, n: Node, found: Bindings) -> Iterator[Bindings]:
    orders = [n.operands]
    if "commutative" in OPS[n.op].facts and n.operands[0] is not n.operands[1]:
        orders.append(n.operands[::-1])
    for order in orders:
        states = [found]
        for part, operand in zip(p.operands, order):
            states = [new for state in states for new in match(part, operand, state)]
        yield from states


def _match_attributes(p: Call, n: Node, found: Bindings) -> Bindings | None:
    """The bindings with those of the attributes, or None where one is different."""
    for name, wanted in p.attrs:
        given = n.get(name)
        if isinstance(wanted, Variable):
            if found.get(wanted.name, given) != given:
                return None
            found = {**found, wanted.name: given}
        elif given != wanted or type(given) is not type(wanted):
            return None
    return found


def _is_number(n: Node, value: float) -> bool:
    """Whether every element of `n` is this value, the sign of zero included."""
    element = uniform(n)
    return element is not None and bool(element == value) and bool(np.signbit(np.float64(element)) == np.signbit(value))


# --- building ------------------------------------------------------------------------------------------


def build(p: Pattern, found: Bindings, type: TensorType, make: Make = apply) -> Node:
    """The node that a right side stands for; `type`: of the node that it replaces."""
    match p:
        case Variable():
            node = found[p.name]
            assert isinstance(node, Node), f"`{p.name}` is an attribute"
            return node
        case Number():
            scalar = constant(np.asarray(p.value).astype(to_numpy(type.dtype)))
            return make("broadcast", scalar, shape=type.shape, axes=()) if type.shape else scalar
        case Call():
            operands = [build(o, found, type, make) for o in p.operands]
            return make(p.op, *operands, **{k: _computed(v, found) for k, v in p.attrs})


def _computed(a: Attribute, found: Bindings) -> Any:
    match a:
        case Variable():
            return found[a.name]
        case Computed():
            return FUNCTIONS[a.function](*(found[name] for name in a.arguments))
    return a


def variables(p: Pattern) -> frozenset[str]:
    """The names that a pattern binds, or needs."""
    match p:
        case Variable():
            return frozenset((p.name,))
        case Number():
            return frozenset()
        case Call():
            parts = [variables(o) for o in p.operands]
            parts += [frozenset(_names_in(a)) for _, a in p.attrs]
            return frozenset().union(*parts)


def _names_in(a: Attribute) -> tuple[str, ...]:
    return (a.name,) if isinstance(a, Variable) else a.arguments if isinstance(a, Computed) else ()
