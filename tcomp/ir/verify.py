"""`verify`: whether a module keeps the rules of its stage. A fault is TC0302, and its text shows the IR with the fault marked:

    TC0302: stage tile: 1 fault, the first: `t` names no value here
      ...
          store y[r, :] = t  by 64
          ^^^^^^^^^^^^^^^^^^^^^^^^ `t` names no value here

GRAPH functions are checked here, kernels in `verify_kernel.py`, main in `verify_main.py`; `spec.py` says what stages allow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tcomp.errors import Error
from tcomp.ir import dtype as dt
from tcomp.ir.graph import Func
from tcomp.ir.module import STAGES, Module
from tcomp.ir.node import Node, walk
from tcomp.ir.ops import OPS
from tcomp.ir.print_tile import Line
from tcomp.ir.printer import graph_symbols, module_lines
from tcomp.ir.region import Region, is_leaving, region_parameter, regions
from tcomp.ir.spec import SPECS
from tcomp.ir.types import TensorType
from tcomp.ir.verify_kernel import kernel_faults
from tcomp.ir.verify_main import main_faults

Fault = tuple[Any, str]  # what is at fault (a statement, node, buffer, kernel, ...), and why
SHOWN = 5  # faults that are marked
AROUND = 4  # lines of context above and below a mark


def verify(module: Module) -> None:
    """Raise `Error` TC0302 unless the module keeps the rules of its stage."""
    faults = list(module_faults(module))
    if not faults:
        return
    count = f"{len(faults)} fault" + ("s, the first" if len(faults) > 1 else "")
    excerpt = mark(module_lines(module), faults[:SHOWN])
    raise Error("TC0302", f"module {module.name}, stage {module.stage}: {count}: {faults[0][1]}", place=excerpt)


def module_faults(module: Module) -> Iterator[Fault]:
    """Every fault of a module."""
    if module.stage not in STAGES:
        yield module, f"an unknown stage `{module.stage}`"
        return
    if module.stage == "graph":
        yield from func_faults(module.func) if module.func is not None else ((module, "no function"),)
        return
    names = [k.name for k in module.kernels]
    for k in module.kernels:
        if names.count(k.name) > 1:
            yield k, f"several kernels are named `{k.name}`"
        yield from kernel_faults(k, SPECS[module.stage], len(module.nodes))
    if module.main is not None:
        yield from main_faults(module, module.main)


def mark(lines: list[Line], faults: list[Fault]) -> str:
    """The lines around each fault, with a marker under the line that writes what is at fault."""
    marks: dict[int, list[str]] = {}
    for owner, why in faults:
        marks.setdefault(_line_of(lines, owner), []).append(why)
    shown: list[str] = []
    last = -1
    for k, line in enumerate(lines):
        if all(abs(k - m) > AROUND for m in marks):
            continue
        if k != last + 1:
            shown.append("...")
        shown.append(line.text)
        indent = len(line.text) - len(line.text.lstrip())
        shown += [f"{' ' * indent}{'^' * max(1, min(40, len(line.text) - indent))} {why}" for why in marks.get(k, ())]
        last = k
    return "\n".join(shown)


def _line_of(lines: list[Line], owner: Any) -> int:
    """The last of the first lines in a row that write `owner`: shorthands come before the statement. The head if none does."""
    first = next((k for k, line in enumerate(lines) if line.owner is owner), 0)
    while first + 1 < len(lines) and lines[first + 1].owner is owner and owner is not None:
        first += 1
    return first


# --- GRAPH ---------------------------------------------------------------------------------------------


def func_faults(func: Func) -> Iterator[Fault]:
    """Types as the op table infers them, parameters unique and declared, one symbol for each name."""
    names = [p["name"] for p in func.params]
    if len(set(names)) < len(names):
        yield func, "two parameters have one name"
    if len(func.results) != len(func.result_names) or len(set(func.result_names)) < len(func.result_names):
        yield func, "every result needs one name of its own"
    symbols = [s["name"] for s in graph_symbols(func)]
    if len(set(symbols)) < len(symbols):
        twice = next(s for s in symbols if symbols.count(s) > 1)
        yield func, f"the symbol `{twice}` has different bounds in different places"
    yield from _size_faults(func)
    for name, array in func.defaults:
        fits = any(p["name"] == name and p.type.rank == array.ndim for p in func.params)
        if not fits:
            yield func, f"a default for `{name}`, which is no parameter of its rank"
    yield from _faults_of(func.nodes(), func.params)


def _size_faults(body: Func | Region) -> Iterator[Fault]:
    """Sizes that are data take one i64; those that control flow gives are sizes here, with the value it gives."""
    values = dict(zip(body.sizes, body.results[len(body.visible) :]))
    for symbol, value in values.items():
        if value.type != TensorType(dt.i64, ()):
            yield value, f"the size `{symbol['name']}` of type {value.type}; it takes one i64"
    for n in walk(body.results):
        if is_leaving(n) and any(d in dict(n.operands[0].attrs)["gives"] and d not in values for d in n.type.shape):
            yield n, f"{n.type} with a size that is none of its function or region"


def _faults_of(nodes: list[Node], params: tuple[Node, ...]) -> Iterator[Fault]:
    """Faults of nodes and of what is in their regions."""
    for n in nodes:
        yield from ((n, why) for why in _node_faults(n, params))
        for region in regions(n).values():
            if any(p.op != "parameter" or p != region_parameter(k, p.type) for k, p in enumerate(region.params)):
                yield region, "the parameters of a region are named p0, p1, ... in order"
            yield from _size_faults(region)
            yield from _faults_of(region.nodes(), region.params)


def _node_faults(n: Node, params: tuple[Node, ...]) -> Iterator[str]:
    row = OPS.get(n.op)
    if row is None:
        yield f"`{n.op}` is no operation of the op table"
        return
    if n.op == "parameter":
        if n not in params:
            yield f"the parameter `{n['name']}` is not declared"
        return
    if row.arity is not None and len(n.operands) != row.arity:
        yield f"`{n.op}` of {len(n.operands)} operands; it takes {row.arity}"
        return
    attrs = dict(n.attrs)
    if set(attrs) - set(row.attrs):
        yield f"`{n.op}` has no attribute `{min(set(attrs) - set(row.attrs))}`"
        return
    try:
        inferred = row.infer(*(o.type for o in n.operands), **attrs)
    except Error as e:
        yield f"{e.found}; expected: {e.expected}"
    except (TypeError, AttributeError, IndexError) as e:
        yield f"the operands and attributes do not fit `{n.op}`: {e}"
    else:
        if inferred != n.type:
            yield f"declared {n.type}, inferred {inferred}"
