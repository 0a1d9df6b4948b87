"""Reading tile expressions, statements and kernels: the inverse of `print_tile.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir import tile as t
from tcomp.ir.lexer import Cursor, Rows
from tcomp.ir.literals import read_float
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import MONOIDS, OPS
from tcomp.ir.ops.table import POINTWISE
from tcomp.ir.parse_index import Scope, buffer, buffer_named, buffers, declared_range, dim, dtype, symbols, tile_type
from tcomp.ir.print_tile import INFIX
from tcomp.ir.stmts import Alloc, By, Call, Carry, Check, For, Grid, GridAxis, If, Kernel, Let, Stmt, Store

# --- expressions ---------------------------------------------------------------------------------------


def expression(c: Cursor, scope: Scope) -> Node:
    """A tile expression: sums, then products, then calls, windows and names."""
    return _infix(c, scope, 1, lambda: _infix(c, scope, 2, lambda: _primary(c, scope)))


def _infix(c: Cursor, scope: Scope, level: int, inner: Callable[[], Node]) -> Node:
    signs = {sign: op for op, (sign, at) in INFIX.items() if at == level}
    left = inner()
    while c.is_kind("sign") and c.token.text in signs:
        op = signs[c.token.text]
        c.at += 1
        left = _pointwise(c, op, (left, inner()))
    return left


def _pointwise(c: Cursor, op: str, operands: tuple[Node, ...], **attrs: object) -> Node:
    ranks = {x.type.rank for x in operands if x.type.rank}
    if len(operands) != OPS[op].arity:
        c.fail(f"{OPS[op].arity} operands of `{op}`", f"{len(operands)} operands")
    if len(ranks) > 1:
        c.fail("scalars and tiles of one rank", f"`{op}` of {' and '.join(str(x.type) for x in operands)}")
    return t.pointwise(op, *operands, **attrs)


def _primary(c: Cursor, scope: Scope) -> Node:
    if c.accept("("):
        inner = expression(c, scope)
        c.expect(")")
        return inner
    if c.is_kind("value"):
        return _shorthand(c, scope)
    if c.is_kind("int", "float") or c.is_("-") or c.is_("inf") or c.is_("nan"):
        return _number(c)
    if c.is_("true") or c.is_("false"):
        return t.full(c.name() == "true", dt.bool_)
    start, quoted, name = c.at, c.is_kind("string"), c.name("an expression")
    if c.is_("["):
        return _window(c, scope, name, start)
    if not quoted and (c.is_("(") or name in ("reduce", "fold", "scan")):
        return _call(c, scope, name, start)
    if name not in scope.values:
        c.at = start
        c.fail("a value that a `=` or `carry` above names", f"`{name}`, which names no value here")
    return t.ref(name, scope.values[name])


def _shorthand(c: Cursor, scope: Scope) -> Node:
    if c.token.text not in scope.shorthands:
        c.fail("a shorthand that a line above defines", f"`%{c.token.text}`, which is not defined")
    return scope.shorthands[c.take("value", "a shorthand")]


def _number(c: Cursor) -> Node:
    """An f32 where there is a point or exponent (or `inf`, `nan`), else an i64."""
    text = c.number()
    return t.full(int(text), dt.i64) if text.lstrip("-").isdigit() else t.full(read_float(text), dt.f32)


def _call(c: Cursor, scope: Scope, name: str, start: int) -> Node:
    if name in dt.ALL:
        return _typed_number(c, dt.ALL[name])
    if name in _FORMS:
        return _FORMS[name](c, scope)
    if name not in OPS or OPS[name].kind != POINTWISE:
        c.at = start
        c.fail("a pointwise operation", f"`{name}`, which is no operation on tiles")
    c.expect("(")
    operands: list[Node] = []
    attrs: dict[str, object] = {}
    while not c.accept(")"):
        if OPS[name].attrs and c.is_("dtype"):
            c.at += 1
            c.expect("=")
            attrs["dtype"] = dtype(c)
        else:
            operands.append(expression(c, scope))
        if not c.is_(")"):
            c.expect(",")
    if len(attrs) != len(OPS[name].attrs):
        c.fail(f"`dtype = ...` among the operands of `{name}`")
    return _pointwise(c, name, tuple(operands), **attrs)


def _typed_number(c: Cursor, element: dt.DType) -> Node:
    c.expect("(")
    text = c.number()
    c.expect(")")
    return t.full(read_float(text) if element.is_float else int(text), element)


def _position(c: Cursor, scope: Scope) -> Node:
    c.expect("(")
    type = tile_type(c, scope)
    c.expect(",")
    x = _over_axes(c, scope, type.shape)
    c.expect(")")
    return t.position(x, type.dtype, type.shape)


def _over_axes(c: Cursor, scope: Scope, extents: tuple[Dim, ...]) -> Dim:
    """An index expression over the axes of a tile of these extents."""
    scope.axes = {f"${k}": t.axis(k, e) for k, e in enumerate(extents)}
    x = dim(c, scope)
    scope.axes = {}
    return x


def _expand(c: Cursor, scope: Scope) -> Node:
    c.expect("(")
    x = expression(c, scope)
    c.expect(",")
    axis = c.integer()
    if not 0 <= axis <= x.type.rank:
        c.fail(f"an axis from 0 to {x.type.rank}", f"axis {axis}")
    c.expect(")")
    return t.expand(x, axis)


def _monoid_of(c: Cursor, scope: Scope) -> tuple[str, Node]:
    """`max(x)`, a tile."""
    name = c.name("a monoid")
    if name not in MONOIDS:
        c.at -= 1
        c.fail(f"one of {', '.join(MONOIDS)}")
    c.expect("(")
    x = _tile(c, scope, 1)
    c.expect(")")
    return name, x


def _tile(c: Cursor, scope: Scope, rank: int) -> Node:
    """An expression of at least this rank."""
    x = expression(c, scope)
    if x.type.rank < rank:
        c.fail(f"a tile of rank {rank}", f"a value of type {x.type}")
    return x


def _reduce(c: Cursor, scope: Scope) -> Node:
    name, x = _monoid_of(c, scope)
    c.expect("axis")
    axis = c.integer()
    if not 0 <= axis < x.type.rank:
        c.fail(f"an axis from 0 to {x.type.rank - 1}", f"axis {axis}")
    return t.reduce(name, x, axis)


def _fold(c: Cursor, scope: Scope) -> Node:
    name, x = _monoid_of(c, scope)
    c.expect("to")
    return t.fold(name, x, c.integer())


def _valid(c: Cursor, scope: Scope) -> Node:
    c.expect("(")
    x = _tile(c, scope, 1)
    c.expect(",")
    count = _over_axes(c, scope, x.type.shape)
    c.expect(",")
    pad = expression(c, scope)
    c.expect(")")
    return t.valid(x, count, pad)


def _dot(c: Cursor, scope: Scope) -> Node:
    c.expect("(")
    a = _tile(c, scope, 2)
    c.expect(",")
    b = _tile(c, scope, 2)
    c.expect(",")
    acc = expression(c, scope)
    c.expect(")")
    intrinsic = c.take("at", "the name of an intrinsic")
    c.expect("unroll")
    return t.dot(a, b, acc, intrinsic, c.integer())


def _when(c: Cursor, scope: Scope) -> Node:
    c.expect("(")
    cond = dim(c, scope)
    c.expect(",")
    x = expression(c, scope)
    c.expect(",")
    y = expression(c, scope)
    c.expect(")")
    return t.when(cond, x, y)


def _last(c: Cursor, scope: Scope) -> Node:
    c.expect("(")
    x = _tile(c, scope, 1)
    c.expect(")")
    return t.last(x)


_FORMS: dict[str, Callable[[Cursor, Scope], Node]] = {
    "position": _position,
    "expand": _expand,
    "reduce": _reduce,
    "valid": _valid,
    "dot": _dot,
    "when": _when,
    "fold": _fold,
    "scan": lambda c, scope: t.scan(*_monoid_of(c, scope)),
    "last": _last,
}


# --- windows -------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Axes:
    """The tile axes of a window as they are read."""

    extents: list[Dim]
    valid: list[Dim | None]

    def extent(self, c: Cursor, scope: Scope) -> None:
        """`14`, `64 valid n - j`"""
        self.extents.append(dim(c, scope))
        self.valid.append(dim(c, scope) if c.accept("valid") else None)


def _window(c: Cursor, scope: Scope, name: str, start: int) -> Node:
    buffer = buffer_named(c, scope, name, start)
    c.expect("[")
    axes = _Axes([], [])
    bar = c.find("|")
    positions = _ordinary(c, scope, buffer.shape, axes) if bar is None else _general(c, scope, bar, axes)
    other = expression(c, scope) if c.accept("else") else None
    c.expect("]")
    if len(positions) != buffer.rank:
        c.fail(f"{buffer.rank} positions, as many as `{name}` has axes", f"{len(positions)} positions")
    return t.load(buffer, tuple(positions), tuple(axes.extents), tuple(axes.valid), other)


def _general(c: Cursor, scope: Scope, bar: int, axes: _Axes) -> list[Dim]:
    """`j + $1, i + $0 | 14, 32 valid n`: the extents are read first, as the axes take their bounds from them."""
    first, c.at = c.at, bar + 1
    while not (c.is_("]") or c.is_("else")):
        axes.extent(c, scope)
        c.accept(",")
    after, c.at = c.at, first
    outer, scope.axes = scope.axes, {f"${k}": t.axis(k, e) for k, e in enumerate(axes.extents)}
    positions = list(c.listed(lambda: dim(c, scope), "|"))
    scope.axes, c.at = outer, after
    return positions


def _ordinary(c: Cursor, scope: Scope, shape: tuple[Dim, ...], axes: _Axes) -> list[Dim]:
    """`i, j : 14, :`"""
    positions: list[Dim] = []
    while not (c.is_("]") or c.is_("else")):
        if len(positions) == len(shape):
            c.fail(f"no more than {len(shape)} positions")
        if c.accept(":"):
            axes.extents.append(shape[len(positions)])
            axes.valid.append(None)
            positions.append(t.axis(len(axes.extents) - 1, axes.extents[-1]))
        else:
            positions.append(_position_of(c, scope, axes))
        if not (c.is_("]") or c.is_("else")):
            c.expect(",")
    return positions


def _position_of(c: Cursor, scope: Scope, axes: _Axes) -> Dim:
    start = dim(c, scope)
    if not c.accept(":"):
        return start
    axes.extent(c, scope)
    return index.add(start, t.axis(len(axes.extents) - 1, axes.extents[-1]))


# --- statements ----------------------------------------------------------------------------------------


def _by(c: Cursor) -> By | None:
    """`by 14x32 ji tail masked spill pad 0.0`"""
    if not c.accept("by"):
        return None
    tile = [c.integer()]
    if c.is_kind("word") and c.token.text.startswith("x"):
        sizes = c.token.text[1:].split("x")
        if not all(map(str.isdecimal, sizes)):
            c.fail("sizes of a register tile, such as 14x32")
        c.name()
        tile += map(int, sizes)
    order = c.name() if c.is_("ij") or c.is_("ji") else "ij"
    tail = c.name("how the tail ends") if c.accept("tail") else "binary"
    return By(tuple(tile), order, tail, c.accept("spill"), read_float(c.number()) if c.accept("pad") else None)


def _space(c: Cursor) -> str:
    """`@stack`, `@in:x`; registers where there is none."""
    if not c.is_kind("at"):
        return "reg"
    space = c.take("at", "a space")
    return f"{space}:{c.name()}" if c.accept(":") else space


def block(rows: Rows, indent: int, scope: Scope) -> tuple[tuple[Stmt, ...], tuple[Node, ...]]:
    """The statements at this indentation, and what a `yield` at their end gives."""
    body: list[Stmt] = []
    yields: tuple[Node, ...] = ()
    while (c := rows.peek(indent)) is not None:
        if yields:
            c.fail("nothing after `yield`")
        rows.next()
        if c.is_kind("value"):
            _define(c, scope)
        elif c.accept("yield"):
            yields = _comma_separated(c, scope)
        else:
            body.append(_statement(c, rows, indent, scope))
    return tuple(body), yields


def _define(c: Cursor, scope: Scope) -> None:
    """`%v0 = expression`"""
    name = c.take("value", "a shorthand")
    c.expect("=")
    scope.shorthands[name] = expression(c, scope)
    c.end()


def _comma_separated(c: Cursor, scope: Scope) -> tuple[Node, ...]:
    found = [expression(c, scope)]
    while c.accept(","):
        found.append(expression(c, scope))
    c.end()
    return tuple(found)


def _statement(c: Cursor, rows: Rows, indent: int, scope: Scope) -> Stmt:
    if c.is_("for"):
        return _for(c, rows, indent, scope)
    if c.is_("if"):
        return _if(c, rows, indent, scope)
    simple = _SIMPLE.get(c.token.text, _let) if c.is_kind("word") else _let
    s = simple(c, scope)
    c.end()
    return s


def _let(c: Cursor, scope: Scope) -> Stmt:
    name = c.name("a statement")
    c.expect("=")
    value = expression(c, scope)
    scope.values[name] = value.type
    return Let(name, value, _space(c), _by(c))


def _alloc(c: Cursor, scope: Scope) -> Stmt:
    c.expect("alloc")
    return Alloc(buffer(c, scope))


def _store(c: Cursor, scope: Scope) -> Stmt:
    c.expect("store")
    start = c.at
    window = _window(c, scope, c.name("a buffer"), start)
    c.expect("=")
    value, by = expression(c, scope), _by(c)
    return Store(window, value, by, c.name("a monoid") if c.accept("atomic") else None)


def _check(c: Cursor, scope: Scope) -> Stmt:
    c.expect("check")
    cond = dim(c, scope)
    c.expect("code")
    code = c.integer()
    c.expect("node")
    return Check(cond, code, c.integer())


def _call_routine(c: Cursor, scope: Scope) -> Stmt:
    c.expect("call")
    routine = c.name("a routine")
    c.expect("(")
    outputs = c.listed(lambda: _window(c, scope, c.name("a buffer"), c.at - 1))
    c.expect("=")
    c.expect("(")
    inputs = c.listed(lambda: expression(c, scope))
    return Call(routine, outputs, inputs, c.listed(lambda: _attribute(c), "}") if c.accept("{") else ())


def _attribute(c: Cursor) -> tuple[str, int | str | bool]:
    name = c.name()
    c.expect("=")
    if c.is_("true") or c.is_("false"):
        return name, c.name() == "true"
    return name, c.integer() if c.is_kind("int") or c.is_("-") else c.name()


_SIMPLE: dict[str, Callable[[Cursor, Scope], Stmt]] = {
    "alloc": _alloc,
    "store": _store,
    "check": _check,
    "call": _call_routine,
}


def _for(c: Cursor, rows: Rows, indent: int, scope: Scope) -> Stmt:
    c.expect("for")
    name = c.name("a loop variable")
    limits = declared_range(c)
    c.expect("in")
    lo = dim(c, scope)
    c.expect("..")
    hi = dim(c, scope)
    step = c.integer() if c.accept("by") else 1
    c.end()
    var = index.loop_symbol(name, lo, hi, step) if limits is None else index.symbol(name, *limits)
    scope.symbols[name] = var
    carry: list[Carry] = []
    while (line := rows.peek(indent + 2)) is not None and line.accept("carry"):
        rows.next()
        carry.append(_carry(line, scope))
    body, yields = block(rows, indent + 2, scope)
    scope.values.update((k.result, k.type) for k in carry)
    return For(var, lo, hi, step, body, tuple(carry), yields)


def _carry(c: Cursor, scope: Scope) -> Carry:
    name = c.name()
    c.expect("->")
    result = c.name()
    c.expect(":")
    type = tile_type(c, scope)
    c.expect("=")
    init = expression(c, scope)
    carry = Carry(name, result, type, init, _space(c), _by(c))
    c.end()
    scope.values[name] = type
    return carry


def _if(c: Cursor, rows: Rows, indent: int, scope: Scope) -> Stmt:
    c.expect("if")
    cond = dim(c, scope)
    c.end()
    body = _inner(c, rows, indent, scope)
    line = rows.peek(indent)
    if line is None or not line.accept("else"):
        return If(cond, body)
    rows.next()
    line.end()
    return If(cond, body, _inner(line, rows, indent, scope))


def _inner(c: Cursor, rows: Rows, indent: int, scope: Scope) -> tuple[Stmt, ...]:
    body, yields = block(rows, indent + 2, scope)
    if yields:
        c.fail("`yield` at the end of a loop, not of a branch or phase", "a block that ends with `yield`")
    return body


# --- kernels -------------------------------------------------------------------------------------------


def kernel(c: Cursor, rows: Rows) -> Kernel:
    """A kernel from its header on."""
    scope = Scope()
    c.expect("kernel")
    name = c.take("at", "the name of the kernel, `@name`")
    declared = symbols(c, scope)
    inputs = buffers(c, scope)
    c.expect("->")
    outputs = buffers(c, scope)
    c.end()
    workspace = []
    while (line := rows.peek(2)) is not None and line.accept("workspace"):
        rows.next()
        workspace.append(buffer(line, scope))
        line.end()
    phases = []
    while (line := rows.peek(2)) is not None:
        rows.next()
        phases.append(_grid(line, rows, scope))
    return Kernel(name, inputs, outputs, declared, tuple(phases), tuple(workspace))


def _grid(c: Cursor, rows: Rows, scope: Scope) -> Grid:
    c.expect("grid")
    c.expect("(")
    axes = c.listed(lambda: _axis(c, scope))
    c.end()
    return Grid(axes, _inner(c, rows, 2, scope))


def _axis(c: Cursor, scope: Scope) -> GridAxis:
    name = c.name("a grid variable")
    limits = declared_range(c)
    c.expect("in")
    extent = dim(c, scope)
    step = c.integer() if c.accept("by") else 1
    var = index.loop_symbol(name, 0, extent, step) if limits is None else index.symbol(name, *limits)
    scope.symbols[name] = var
    return GridAxis(var, extent, step)
