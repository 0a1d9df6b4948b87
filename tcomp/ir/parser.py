"""Text to modules: the inverse of `printer.py`, by recursive descent. Nothing in the text is ever evaluated as Python.

    parse("module @f stage graph target cpu\\nfunc @f (%x : f32[3]) -> (y = %add)\\n  %add : f32[3] = add %x, %x\\n")

Faults are TC0301, with the line, a caret, and what was expected. What parses may still be illegal: that is `verify.py`'s part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tcomp.errors import Error
from tcomp.ir import dtype as dt
from tcomp.ir.artifact import Container
from tcomp.ir.graph import Func
from tcomp.ir.lexer import Cursor, Rows, fault, rows
from tcomp.ir.literals import read_array, read_float
from tcomp.ir.module import STAGES, Module
from tcomp.ir.node import Dim, Node, node
from tcomp.ir.ops import OPS, Literal, parameter
from tcomp.ir.parse_index import Scope, buffer, buffers, declared_symbol, dim, dtype, shape, symbols
from tcomp.ir.parse_tile import kernel
from tcomp.ir.region import Region
from tcomp.ir.stmts import Alias, Allocate, Assert, Bind, Branch, Kernel, Launch, Main, MainStmt, Repeat, Reserve, Swap
from tcomp.ir.types import Buffer, TensorType, TupleType


def parse(text: str, constants: Mapping[str, np.ndarray] | None = None, file: str = "<text>") -> Module:
    """The module that `text` writes. constants: the arrays that it names by their digest. Raises `Error` TC0301."""
    lines = Rows(rows(text, file))
    try:
        return _module(lines, _Reading(constants or {}))
    except RecursionError:
        row = lines.rows[min(lines.at, len(lines.rows) - 1)]
        raise fault(row, 0, "an expression that is nested too deeply", "shorthands: `%v0 = ...` on lines before it") from None


@dataclass(slots=True)
class _Reading:
    """The parts of a module as they are read."""

    given: Mapping[str, np.ndarray]
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    nodes: list[str] = field(default_factory=list)
    realised: list[tuple[str, str]] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)
    func: Func | None = None
    main: Main | None = None


def _module(lines: Rows, found: _Reading) -> Module:
    c = lines.peek(0)
    if c is None:
        raise Error("TC0301", "an empty text", "`module @name stage graph target cpu`")
    lines.next()
    c.expect("module")
    name = c.take("at", "the name of the module, `@name`")
    c.expect("stage")
    stage = c.name("a stage")
    if stage not in STAGES:
        c.at -= 1
        c.fail(f"one of {', '.join(STAGES)}")
    c.expect("target")
    target = c.name("a target")
    c.end()
    while (c := lines.peek(0)) is not None:
        lines.next()
        _part(c, lines, found)
    constants = found.constants if stage != "graph" else {}
    nodes, realised = tuple(found.nodes), tuple(found.realised)
    return Module(stage, name, found.func, tuple(found.kernels), found.main, constants, nodes, realised, target)


def _part(c: Cursor, lines: Rows, found: _Reading) -> None:
    if c.accept("const"):
        name = c.take("at", "the name of the constant, `@name`")
        c.expect(":")
        found.constants[name] = _constant(c, found)
    elif c.accept("node"):
        c.integer()
        found.nodes.append(c.take("string", "a place, in quotes"))
    elif c.accept("realised"):
        found.realised.append((c.take("string", "an operation, in quotes"), c.take("string", "how, in quotes")))
    elif c.is_("kernel"):
        found.kernels.append(kernel(c, lines))
    elif c.accept("func"):
        found.func = _func(c, lines, found)
    elif c.accept("main"):
        found.main = _main(c, lines)
    else:
        c.fail("`const`, `node`, `realised`, `func`, `kernel` or `main`")


def _constant(c: Cursor, found: _Reading) -> np.ndarray:
    """`f32[2] = [1.0, 2.0]`, `f32[512] sha256:...`"""
    element = dtype(c)
    dims = _static(c, shape(c, Scope()))
    if c.is_kind("digest"):
        return _given(c, found, element, dims)
    c.expect("=")
    return _stored(c, found, element, dims) if c.is_kind("at") else _array(c, element, dims)


def _static(c: Cursor, dims: tuple[Any, ...]) -> tuple[int, ...]:
    if not all(isinstance(d, int) for d in dims):
        c.fail("a constant of known size")
    return dims


def _given(c: Cursor, found: _Reading, element: dt.DType, dims: tuple[int, ...]) -> np.ndarray:
    digest = c.token.text.removeprefix("sha256:")
    array = found.given.get(digest)
    if array is None or array.shape != dims or dt.from_numpy(array.dtype) != element:
        expected = "a .safetensors file beside the text that holds it: TCOMP_DUMP and `tcomp opt -o` write both"
        c.fail(expected, f"no {element}{list(dims)} of this digest")
    c.at += 1
    return array


def _stored(c: Cursor, found: _Reading, element: dt.DType, dims: tuple[int, ...]) -> np.ndarray:
    """`@c0`, declared above."""
    array = found.constants.get(c.token.text)
    if array is None or array.shape != dims or dt.from_numpy(array.dtype) != element:
        c.fail(f"a constant {element}{list(dims)} that is declared above")
    c.at += 1
    return array


def _array(c: Cursor, element: dt.DType, dims: tuple[int, ...]) -> np.ndarray:
    c.expect("[")
    texts = c.listed(lambda: c.name() if c.is_("true") or c.is_("false") else c.number(), "]")
    try:
        return read_array(texts, element, dims)
    except (ValueError, KeyError, OverflowError):
        c.fail(f"{int(np.prod(dims))} elements of {element}", f"{len(texts)} that do not fit")


# --- GRAPH ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Graph:
    scope: Scope
    values: dict[str, Node]


def _func(c: Cursor, lines: Rows, found: _Reading) -> Func:
    name = c.take("at", "the name of the function, `@name`")
    graph = _Graph(Scope(), {})
    symbols(c, graph.scope)
    sizes = _sizes(c, graph.scope)
    c.expect("(")
    params = c.listed(lambda: _parameter(c, graph))
    c.expect("->")
    c.expect("(")
    results = c.listed(lambda: _result(c))
    c.end()
    defaults, containers = [], []
    while (line := lines.peek(2)) is not None:
        lines.next()
        if line.accept("default"):
            defaults.append(_default(line, found))
        elif line.accept("container"):
            containers.append(_container(line))
        else:
            _node(line, lines, graph, found)
        line.end()
    for _, at in results:
        if c.row.tokens[at].text not in graph.values:
            c.at = at
            c.fail("a value of the function")
    nodes = tuple(graph.values[c.row.tokens[at].text] for _, at in results)
    names = tuple(n for n, _ in results)
    return Func(name, params, nodes, names, defaults=tuple(defaults), sizes=sizes, containers=tuple(containers))


def _sizes(c: Cursor, scope: Scope) -> tuple[Node, ...]:
    """`sizes(k)`: the symbols that data gives, if there are any."""
    if not c.accept("sizes"):
        return ()
    c.expect("(")
    found = c.listed(lambda: dim(c, scope))
    if not all(isinstance(s, Node) and s.op == "sym" for s in found):
        c.fail("symbols")
    return tuple(s for s in found if isinstance(s, Node))


def _parameter(c: Cursor, graph: _Graph) -> Node:
    name = c.take("value", "a parameter, `%name`")
    c.expect(":")
    element = dtype(c)
    graph.values[name] = parameter(name, element, shape(c, graph.scope))
    return graph.values[name]


def _result(c: Cursor) -> tuple[str, int]:
    """The name of a result, and where its value is named (values are defined below)."""
    name = c.name("the name of a result")
    c.expect("=")
    c.take("value", "a value, `%name`")
    return name, c.at - 1


def _default(c: Cursor, found: _Reading) -> tuple[str, np.ndarray]:
    name = c.name("the name of a parameter")
    c.expect(":")
    return name, _constant(c, found)


def _container(c: Cursor) -> Container:
    """`container input s "sequence" (s#0, s#1)`: what a caller sees instead of parameters or results."""
    side, name = c.name("`input` or `output`"), c.name("the name of an input or output")
    if side not in ("input", "output"):
        c.at -= 2
        c.fail("`input` or `output`")
    kind = c.take("string", "a kind, in quotes")
    c.expect("(")
    return Container(side, name, kind, c.listed(lambda: c.name("a parameter or result")))


def _node(c: Cursor, lines: Rows, graph: _Graph, found: _Reading) -> None:
    """`%dot : f32[n, 64] = dot %x, %w {batch = ((), ()), contract = ((1,), (0,))}`, and its regions on the lines below."""
    name = c.take("value", "a value, `%name`")
    if name in graph.values:
        c.at -= 1
        c.fail("a name that is not taken yet")
    c.expect(":")
    type = _type(c, graph.scope)
    c.expect("=")
    op = c.name("an operation")
    if op not in OPS:
        c.at -= 1
        c.fail("an operation of the op table")
    operands = [_operand(c, graph)] if c.is_kind("value") else []
    while c.accept(","):
        operands.append(_operand(c, graph))
    attrs = c.listed(lambda: _attribute(c, graph, found, type), "}") if c.accept("{") else ()
    bodies = _regions(c, lines, graph, found) if any(v is Region for _, v in attrs) else {}
    for key, value in attrs:
        if value is Region and key not in bodies:
            c.fail(f"a line `region {key} (..) -> (..)` below")
    graph.values[name] = node(op, operands, tuple((k, bodies[k] if v is Region else v) for k, v in attrs), type)


def _regions(c: Cursor, lines: Rows, graph: _Graph, found: _Reading) -> dict[str, Region]:
    """The regions of the node that `c` has read, by name."""
    indent, bodies = c.row.indent + 2, {}
    while (line := lines.peek(indent)) is not None:
        lines.next()
        line.expect("region")
        name = line.name("the attribute that the region is")
        bodies[name] = _region(line, lines, graph, found)
    return bodies


def _region(c: Cursor, lines: Rows, graph: _Graph, found: _Reading) -> Region:
    """`region body sizes(k) (%p0 : f32[3]) -> (%add, %size)`, and its nodes on the lines below."""
    inner, sizes = _Graph(graph.scope, {}), _sizes(c, graph.scope)
    c.expect("(")
    params = c.listed(lambda: _parameter(c, inner))
    c.expect("->")
    c.expect("(")
    start = c.at
    c.listed(lambda: c.take("value", "a value, `%name`"))
    end = c.at
    c.end()
    while (line := lines.peek(c.row.indent + 2)) is not None:
        lines.next()
        _node(line, lines, inner, found)
        line.end()
    c.at = start
    results = []
    while c.at < end:
        results.append(_operand(c, inner))
        c.at += 1
    return Region(params, tuple(results), sizes)


def _type(c: Cursor, scope: Scope) -> TensorType | TupleType:
    if not c.accept("("):
        return _tensor(c, scope)
    return TupleType(c.listed(lambda: _tensor(c, scope)))


def _tensor(c: Cursor, scope: Scope) -> TensorType:
    element = dtype(c)
    return TensorType(element, shape(c, scope))


def _operand(c: Cursor, graph: _Graph) -> Node:
    if c.is_kind("value") and c.token.text not in graph.values:
        c.fail("a value that is defined above")
    return graph.values[c.take("value", "a value, `%name`")]


def _attribute(c: Cursor, graph: _Graph, found: _Reading, type: TensorType | TupleType) -> tuple[str, Any]:
    name = c.name("an attribute")
    c.expect("=")
    return name, _value(c, graph, found, type)


def _value(c: Cursor, graph: _Graph, found: _Reading, type: TensorType | TupleType) -> Any:
    """The value of an attribute; a constant takes its dtype and shape from the node's type."""
    if c.is_kind("string"):
        return c.name()
    if c.is_kind("at") or c.is_("["):
        return _literal(c, found, type)
    if c.is_("(") and _is_tuple(c):
        c.at += 1
        return c.listed(lambda: _value(c, graph, found, type))
    if c.token.text in _WORDS:
        return _WORDS[c.name()]
    if c.accept("float"):
        c.expect("(")
        value = read_float(c.number())
        c.expect(")")
        return value
    return dtype(c) if c.token.text in dt.ALL else dim(c, graph.scope)


_WORDS: dict[str, Any] = {"none": None, "true": True, "false": False, "region": Region}  # a region is written below the node


def _is_tuple(c: Cursor) -> bool:
    """Whether the parenthesis at the cursor holds a tuple, not an index expression."""
    inner = Cursor(c.row, c.at + 1)
    return inner.is_(")") or inner.find(",") is not None


def _literal(c: Cursor, found: _Reading, type: TensorType | TupleType) -> Literal:
    if isinstance(type, TupleType):
        c.fail("a node of one tensor, for a constant")
    dims = _static(c, type.shape)
    array = _stored(c, found, type.dtype, dims) if c.is_kind("at") else _array(c, type.dtype, dims)
    return Literal(array)


# --- main ----------------------------------------------------------------------------------------------


def _main(c: Cursor, lines: Rows) -> Main:
    scope = Scope()
    declared = symbols(c, scope)
    sizes = symbols(c, scope, "sizes")
    inputs = buffers(c, scope)
    c.expect("->")
    outputs = buffers(c, scope)
    arena = dim(c, scope) if c.accept("arena") else 0
    c.end()
    constants: list[Buffer] = []
    body: list[MainStmt] = []
    while (line := lines.peek(2)) is not None:
        lines.next()
        if line.accept("constant"):
            constants.append(buffer(line, scope))
            line.end()
        else:
            body.append(_step(line, lines, scope))
    return Main(inputs, outputs, tuple(constants), declared, tuple(body), arena, sizes)


def _steps(lines: Rows, indent: int, scope: Scope) -> tuple[MainStmt, ...]:
    """The statements at an indentation, up to an `else` there."""
    body: list[MainStmt] = []
    while (line := lines.peek(indent)) is not None and not line.is_("else"):
        lines.next()
        body.append(_step(line, lines, scope))
    return tuple(body)


def _step(c: Cursor, lines: Rows, scope: Scope) -> MainStmt:
    if c.accept("if"):
        return _branch(c, lines, scope)
    if c.accept("repeat"):
        return _repeat(c, lines, scope)
    found = _plain_step(c, scope)
    c.end()
    return found


def _branch(c: Cursor, lines: Rows, scope: Scope) -> Branch:
    """`if 3 flag after 1`, its statements, `else`, its statements."""
    number, cond, alone, after = c.integer(), c.name("a buffer"), c.accept("alone"), _after(c)
    c.end()
    indent = c.row.indent
    then = _steps(lines, indent + 2, scope)
    line = lines.peek(indent)
    if line is None or not line.accept("else"):
        c.fail("a line `else` after the statements of the `if`")
    line.end()
    lines.next()
    return Branch(cond, then, _steps(lines, indent + 2, scope), number, after, alone)


def _repeat(c: Cursor, lines: Rows, scope: Scope) -> Repeat:
    """`repeat 3 t [0, 9] below n while go alone after 1` and its statements."""
    number = c.integer()
    inner = replace(scope, symbols=dict(scope.symbols))
    var = declared_symbol(c, inner)
    extent = dim(c, scope) if c.accept("below") else None
    go = c.name("a buffer") if c.accept("while") else None
    alone, after = c.accept("alone"), _after(c)
    c.end()
    return Repeat(var, extent, go, _steps(lines, c.row.indent + 2, inner), number, after, alone)


def _plain_step(c: Cursor, scope: Scope) -> MainStmt:
    if c.accept("launch"):
        return _launch(c, scope)
    if c.accept("reserve"):
        reserved = buffer(c, scope)
        return Reserve(reserved, dim(c, scope) if c.accept("at") else None)
    if c.accept("alias"):
        alias = buffer(c, scope)
        c.expect("of")
        source = c.name("a buffer")
        return Alias(alias, source, dim(c, scope) if c.accept("at") else None)
    if c.accept("assert"):
        cond = dim(c, scope)
        c.expect("node")
        return Assert(cond, c.integer())
    if c.accept("bind"):
        return _bind(c, scope)
    if c.accept("allocate"):
        number = c.integer()
        return Allocate(buffer(c, scope), number)
    if c.accept("swap"):
        first = c.name("a buffer")
        c.expect(",")
        return Swap(first, c.name("a buffer"))
    c.fail("`launch`, `reserve`, `allocate`, `alias`, `assert`, `bind`, `swap`, `if`, `repeat` or `constant`")


def _bind(c: Cursor, scope: Scope) -> Bind:
    """`bind 4 k [0, 99] = count node 0 after 3`; the symbol is known from here on."""
    number = c.integer()
    symbol = declared_symbol(c, scope)
    c.expect("=")
    source = c.name("a buffer")
    c.expect("node")
    return Bind(symbol, source, c.integer(), number, _after(c))


def _launch(c: Cursor, scope: Scope) -> Launch:
    number = c.integer()
    name = c.take("at", "the name of a kernel, `@name`")
    c.expect("(")
    arguments = c.listed(lambda: c.name("a buffer"))
    values: tuple[Dim, ...] = ()
    if c.accept("symbols"):
        c.expect("(")
        values = c.listed(lambda: dim(c, scope))
    return Launch(name, arguments, values, number, _after(c))


def _after(c: Cursor) -> tuple[int, ...]:
    """` after 1, 2`, where it is."""
    after = [c.integer()] if c.accept("after") else []
    while after and c.accept(","):
        after.append(c.integer())
    return tuple(after)
