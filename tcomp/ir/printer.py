"""Modules as text: one syntax for all stages. `parser.py` reads it back, and `print_module(parse(text)) == text`.

    module @f stage graph target cpu
    const @c0 : f32[64, 64] sha256:09a1...
    func @f symbols(n) (%x : f32[n, 64]) -> (y = %max)
      %constant : f32[64, 64] = constant {value = @c0}
      %dot : f32[n, 64] = dot %x, %constant {batch = ((), ()), contract = ((1,), (0,))}
      ...

A constant of more than `INLINE` elements is named by its digest; its bytes live beside the text (`dump.py`). Kernels and their
statements are written by `print_tile.py`. Where a node came from (`Locs`) is not part of the text.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, assert_never

import numpy as np

from tcomp.ir.dtype import DType, from_numpy
from tcomp.ir.graph import Func
from tcomp.ir.index import show
from tcomp.ir.literals import INLINE, digest, show_array, show_float
from tcomp.ir.module import Module
from tcomp.ir.names import show_name
from tcomp.ir.node import Node, walk
from tcomp.ir.ops import Literal
from tcomp.ir.print_tile import Line, kernel_lines, show_buffer, show_symbol
from tcomp.ir.region import Region, deep_walk, regions, used_symbols
from tcomp.ir.stmts import Alias, Allocate, Assert, Bind, Branch, Launch, Main, MainStmt, Repeat, Reserve, Swap, bodies


def print_module(module: Module) -> str:
    """The text of a module at any stage."""
    return "".join(f"{line.text}\n" for line in module_lines(module))


def module_lines(module: Module) -> list[Line]:
    """The lines of a module, each with the object that it writes."""
    pool = Pool()
    head = [Line(f"module @{show_name(module.name)} stage {module.stage} target {show_name(module.target)}", module)]
    head += [Line(f"node {k} {json.dumps(place)}") for k, place in enumerate(module.nodes)]
    head += [Line(f"realised {json.dumps(what)} {json.dumps(how)}") for what, how in module.realised]
    if module.stage == "graph":
        body = func_lines(module.func, pool) if module.func is not None else []
        return [*head, *pool.lines(), *body]
    body = [line for k in module.kernels for line in (Line(""), *kernel_lines(k))]
    if module.main is not None:
        body += [Line(""), *main_lines(module.main)]
    return [*head, *(_const_line(name, array) for name, array in module.constants.items()), *body]


def large_constants(module: Module) -> dict[str, np.ndarray]:
    """The constants that the text names by their digest, by digest."""
    if module.stage != "graph":
        found = list(module.constants.values())
    elif module.func is None:
        found = []
    else:
        found = [n["value"].array for n in deep_walk(module.func.results) if n.op == "constant"]
        found += [array for _, array in module.func.defaults]
    return {digest(a): a for a in found if a.size > INLINE}


def _const_line(name: str, array: np.ndarray) -> Line:
    dtype = dtype_of(array)
    shape = ", ".join(map(str, array.shape))
    value = f"sha256:{digest(array)}" if array.size > INLINE else f"= {show_array(array, dtype)}"
    return Line(f"const @{show_name(name)} : {dtype}[{shape}] {value}")


def dtype_of(array: np.ndarray) -> DType:
    """The element type of an array of the program."""
    dtype = from_numpy(array.dtype)
    assert dtype is not None, array.dtype
    return dtype


@dataclass(slots=True)
class Pool:
    """The large constants of a graph, named in order of their first use."""

    names: dict[str, tuple[str, np.ndarray]] = field(default_factory=dict)

    def show(self, array: np.ndarray) -> str:
        """The elements of a small array, the name of a large one."""
        if array.size <= INLINE:
            return show_array(array, dtype_of(array))
        name, _ = self.names.setdefault(digest(array), (f"c{len(self.names)}", array))
        return f"@{name}"

    def lines(self) -> list[Line]:
        return [_const_line(name, array) for name, array in self.names.values()]


# --- GRAPH ---------------------------------------------------------------------------------------------


def func_lines(func: Func, pool: Pool) -> list[Line]:
    """The lines of a GRAPH function; constants go to `pool`."""
    names = node_names(func.params, func.results)
    symbols = graph_symbols(func)
    declared = f" symbols({', '.join(map(show_symbol, symbols))})" if symbols else ""
    declared += _show_sizes(func.sizes)
    params = ", ".join(f"{names[p]} : {p.type}" for p in func.params)
    results = ", ".join(f"{show_name(name)} = {names[r]}" for name, r in zip(func.result_names, func.results))
    lines = [Line(f"func @{show_name(func.name)}{declared} ({params}) -> ({results})", func)]
    for name, array in func.defaults:
        dims = ", ".join(map(str, array.shape))
        lines.append(Line(f"  default {show_name(name)} : {dtype_of(array)}[{dims}] = {pool.show(array)}"))
    for c in func.containers:
        ports = ", ".join(map(show_name, c.ports))
        lines.append(Line(f"  container {c.side} {show_name(c.name)} {json.dumps(c.kind)} ({ports})"))
    return [*lines, *_node_lines(func.nodes(), func.params, names, pool, "  ")]


def _show_sizes(sizes: tuple[Node, ...]) -> str:
    return f" sizes({', '.join(show_name(s['name']) for s in sizes)})" if sizes else ""


def _node_lines(nodes: list[Node], params: tuple[Node, ...], names: dict[Node, str], pool: Pool, indent: str) -> list[Line]:
    """The lines of nodes in order, each with its regions below it."""
    lines: list[Line] = []
    for n in nodes:
        if n not in params:
            lines.append(Line(f"{indent}{_show_node(n, names, pool)}", n))
            lines += [line for name, r in regions(n).items() for line in _region_lines(name, r, pool, indent + "  ")]
    return lines


def _region_lines(name: str, region: Region, pool: Pool, indent: str) -> list[Line]:
    names = node_names(region.params, region.results)
    params = ", ".join(f"{names[p]} : {p.type}" for p in region.params)
    results = ", ".join(names[r] for r in region.results)
    head = Line(f"{indent}region {name}{_show_sizes(region.sizes)} ({params}) -> ({results})", region)
    return [head, *_node_lines(region.nodes(), region.params, names, pool, indent + "  ")]


def _show_node(n: Node, names: dict[Node, str], pool: Pool) -> str:
    operands = ", ".join(names[o] for o in n.operands)
    attrs = ", ".join(f"{key} = {show_value(value, pool)}" for key, value in n.attrs)
    return " ".join(part for part in (f"{names[n]} : {n.type} = {n.op}", operands, attrs and f"{{{attrs}}}") if part)


def show_value(value: Any, pool: Pool) -> str:
    """An attribute of a GRAPH node."""
    match value:
        case None | bool():
            return str(value).lower()
        case int() | Node():
            return show(value)
        case float():
            return f"float({show_float(value)})"
        case str():
            return json.dumps(value)
        case DType():
            return str(value)
        case tuple():
            return f"({', '.join(show_value(v, pool) for v in value)}{',' if len(value) == 1 else ''})"
        case Literal():
            return pool.show(value.array)
        case Region():
            return "region"
    raise AssertionError(f"an attribute of type {type(value).__name__} has no text")


def node_names(params: tuple[Node, ...], results: tuple[Node, ...]) -> dict[Node, str]:
    """A unique name for every node: a parameter's own, else its operation, numbered where there are several."""
    names = {p: f"%{show_name(p['name'])}" for p in params}
    taken = set(names.values())
    seen: Counter[str] = Counter()
    for n in walk(results):
        while n not in names:
            name = f"%{n.op}{seen[n.op] or ''}"
            seen[n.op] += 1
            if name not in taken:
                names[n] = name
                taken.add(name)
    return names


def graph_symbols(func: Func) -> list[Node]:
    """Every symbol of a function: of its parameters, then of its nodes' types and attributes."""
    return list(dict.fromkeys((*func.symbols(), *func.sizes)) | used_symbols(func.results))


# --- main ----------------------------------------------------------------------------------------------


def main_lines(main: Main) -> list[Line]:
    """The lines of main."""
    inputs, outputs = (", ".join(map(show_buffer, bs)) for bs in (main.inputs, main.outputs))
    symbols = f" symbols({', '.join(map(show_symbol, main.symbols))})" if main.symbols else ""
    symbols += f" sizes({', '.join(map(show_symbol, main.sizes))})" if main.sizes else ""
    arena = "" if main.arena == 0 else f" arena {show(main.arena)}"
    lines = [Line(f"main{symbols} ({inputs}) -> ({outputs}){arena}", main)]
    lines += [Line(f"  constant {show_buffer(b)}", b) for b in main.constants]
    return [*lines, *_step_lines(main.body, "  ")]


def _step_lines(body: tuple[MainStmt, ...], indent: str) -> list[Line]:
    lines: list[Line] = []
    for s in body:
        lines.append(Line(f"{indent}{_show_step(s)}", s))
        for k, inner in enumerate(bodies(s)):
            lines += [Line(f"{indent}else", s)] if k else []
            lines += _step_lines(inner, indent + "  ")
    return lines


def _show_order(s: Launch | Branch | Repeat | Bind) -> str:
    return f" after {', '.join(map(str, s.after))}" if s.after else ""


def _show_step(s: MainStmt) -> str:
    match s:
        case Bind():
            return f"bind {s.number} {show_symbol(s.symbol)} = {show_name(s.source)} node {s.node}{_show_order(s)}"
        case Allocate():
            return f"allocate {s.number} {show_buffer(s.buffer)}"
        case Swap():
            return f"swap {show_name(s.first)}, {show_name(s.second)}"
        case Branch():
            return f"if {s.number} {show_name(s.cond)}{' alone' if s.alone else ''}{_show_order(s)}"
        case Repeat():
            extent = "" if s.extent is None else f" below {show(s.extent)}"
            go = "" if s.go is None else f" while {show_name(s.go)}"
            return f"repeat {s.number} {show_symbol(s.var)}{extent}{go}{' alone' if s.alone else ''}{_show_order(s)}"
        case Launch():
            symbols = f" symbols({', '.join(map(show, s.symbols))})" if s.symbols else ""
            arguments = ", ".join(map(show_name, s.arguments))
            return f"launch {s.number} @{show_name(s.kernel)}({arguments}){symbols}{_show_order(s)}"
        case Reserve():
            return f"reserve {show_buffer(s.buffer)}" + ("" if s.offset is None else f" at {show(s.offset)}")
        case Alias():
            at = "" if s.offset is None else f" at {show(s.offset)}"
            return f"alias {show_buffer(s.buffer)} of {show_name(s.source)}{at}"
        case Assert():
            return f"assert {show(s.cond)} node {s.node}"
    assert_never(s)
