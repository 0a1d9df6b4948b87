"""Reading names, index expressions, types and buffers."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.lexer import Cursor
from tcomp.ir.node import Dim, Node
from tcomp.ir.types import SPACES, Buffer, Factor, TileType


@dataclass(slots=True)
class Scope:
    """What names mean at a place of the text. axes: the tile axes of the window being read."""

    symbols: dict[str, Node] = field(default_factory=dict)
    buffers: dict[str, Buffer] = field(default_factory=dict)
    values: dict[str, TileType] = field(default_factory=dict)  # of Let and of carries
    shorthands: dict[str, Node] = field(default_factory=dict)  # `%v0 = ...`
    axes: dict[str, Dim] = field(default_factory=dict)


def dim(c: Cursor, scope: Scope) -> Dim:
    """An index expression: comparisons bind least, then sums, then products."""
    left = _sum(c, scope)
    if c.accept("<"):
        return index.less(left, _sum(c, scope))
    return index.equal(left, _sum(c, scope)) if c.accept("==") else left


def _sum(c: Cursor, scope: Scope) -> Dim:
    total = index.mul(_product(c, scope), -1) if c.accept("-") else _product(c, scope)
    while True:
        if c.accept("+"):
            total = index.add(total, _product(c, scope))
        elif c.accept("-"):
            total = index.sub(total, _product(c, scope))
        else:
            return total


def _product(c: Cursor, scope: Scope) -> Dim:
    total = _factor(c, scope)
    while True:
        if c.accept("*"):
            total = index.mul(total, _factor(c, scope))
        elif c.accept("//"):
            total = index.floordiv(total, _factor(c, scope))
        elif c.accept("%"):
            total = index.mod(total, _factor(c, scope))
        else:
            return total


def _factor(c: Cursor, scope: Scope) -> Dim:
    if c.is_kind("int"):
        return c.integer()
    if c.accept("("):
        inner = dim(c, scope)
        c.expect(")")
        return inner
    if c.is_("min") or c.is_("max"):
        return _choice(c, scope)
    start, name = c.at, c.name("an index expression")
    if c.accept("["):
        return _read(c, scope, name, start)
    found = scope.axes.get(name, scope.symbols.get(name))
    if found is None:
        c.at = start
        c.fail("a symbol or loop variable that is declared", f"`{name}`, which is not declared here")
    return found


def _choice(c: Cursor, scope: Scope) -> Dim:
    choose = {"min": index.minimum, "max": index.maximum}[c.name()]
    c.expect("(")
    options = c.listed(lambda: dim(c, scope))
    if not options:
        c.fail("an index expression")
    return functools.reduce(choose, options)


def _read(c: Cursor, scope: Scope, name: str, start: int) -> Dim:
    """`where[i]{0, 99}`: an element of an integer buffer, within these bounds."""
    buffer = buffer_named(c, scope, name, start)
    position = c.listed(lambda: dim(c, scope), "]")
    lo = hi = None
    if c.accept("{"):
        lo, hi = bounds_pair(c, "}")
    return index.read(buffer, position, lo, hi)


def buffer_named(c: Cursor, scope: Scope, name: str, start: int) -> Buffer:
    """The buffer of this name; TC0301 at token `start` where there is none."""
    if name not in scope.buffers:
        c.at = start
        c.fail("a buffer that is declared", f"`{name}`, which is no buffer here")
    return scope.buffers[name]


def bounds_pair(c: Cursor, close: str) -> tuple[int | None, int | None]:
    """`lo, hi` up to the closing sign; `none` is no bound."""
    lo = None if c.accept("none") else c.integer()
    c.expect(",")
    hi = None if c.accept("none") else c.integer()
    c.expect(close)
    return lo, hi


def declared_range(c: Cursor) -> tuple[int | None, int | None, int] | None:
    """`[lo, hi] % multiple` after a name that is being declared, if it is there."""
    if not c.accept("["):
        return None
    lo, hi = bounds_pair(c, "]")
    return lo, hi, c.integer() if c.accept("%") else 1


def symbols(c: Cursor, scope: Scope, word: str = "symbols") -> tuple[Node, ...]:
    """`symbols(n, m [1, 64] % 8)`, if it is there; they are declared in the scope."""
    if not c.accept(word):
        return ()
    c.expect("(")
    return c.listed(lambda: declared_symbol(c, scope))


def declared_symbol(c: Cursor, scope: Scope) -> Node:
    """A symbol where it is declared, which the scope then knows."""
    name = c.name("the name of a symbol")
    limits = declared_range(c)
    scope.symbols[name] = index.symbol(name) if limits is None else index.symbol(name, *limits)
    return scope.symbols[name]


def dtype(c: Cursor) -> dt.DType:
    """The name of an element type."""
    if c.token.text not in dt.ALL:
        c.fail("a dtype")
    return dt.ALL[c.name()]


def shape(c: Cursor, scope: Scope) -> tuple[Dim, ...]:
    """`[n, 64]`"""
    c.expect("[")
    return c.listed(lambda: dim(c, scope), "]")


def tile_type(c: Cursor, scope: Scope) -> TileType:
    """`f32[64]`, or `f32` for a scalar."""
    element = dtype(c)
    return TileType(element, shape(c, scope) if c.is_("[") else ())


def buffer(c: Cursor, scope: Scope) -> Buffer:
    """`bp : f32[60, 64] @scratch order(1, 0, 1%32) pad 8`; it is declared in the scope."""
    name = c.name("the name of a buffer")
    c.expect(":")
    element = dtype(c)
    extents = shape(c, scope)
    space = c.take("at", "a space") if c.is_kind("at") else "global"
    if space not in SPACES:
        c.at -= 1
        c.fail(f"one of {', '.join(SPACES)}")
    order = None
    if c.accept("order"):
        c.expect("(")
        order = c.listed(lambda: _order_factor(c))
    scope.buffers[name] = Buffer(name, element, extents, space, order, c.integer() if c.accept("pad") else 0)
    return scope.buffers[name]


def _order_factor(c: Cursor) -> Factor:
    axis = c.integer()
    return axis, c.integer() if c.accept("%") else 0


def buffers(c: Cursor, scope: Scope) -> tuple[Buffer, ...]:
    """`(x : f32[n], y : f32[m])`: buffers, which are declared in the scope."""
    c.expect("(")
    return c.listed(lambda: buffer(c, scope))
