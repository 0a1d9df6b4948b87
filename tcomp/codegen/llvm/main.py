"""`main` as LLVM code: the two functions of the native interface that `tcomp/ir/artifact.py` documents. This file writes
`<entry>_plan`, `walk.py` the other.

The module calls nothing but the kernels, libc, and the runtime's allocator where sizes are data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tcomp.codegen.llvm.builder import FunctionBuilder, ModuleBuilder, literal
from tcomp.codegen.llvm.dims import Dims
from tcomp.codegen.llvm.walk import KernelFunctions, Walk, load_symbols, slot
from tcomp.ir import index, layout
from tcomp.ir.machine import Machine
from tcomp.ir.module import Module
from tcomp.ir.node import Dim, Node
from tcomp.ir.stmts import Assert, Main

_PAGE = 4096
_REFUSED, _NO_MEMORY = 2, 3  # codes of status words: TC0605, TC0606
_MOST = float(1 << 46)  # bytes that no allocation reaches: larger sizes may not fit an i64


@dataclass(frozen=True, slots=True)
class MainCode:
    """entry: the function's name (`<entry>_plan` is the other). counters: lines. nodes: what status words number. scratch: bytes
    of each thread."""

    entry: str
    counters: int
    nodes: tuple[str, ...]
    scratch: int = 0


def emit_main(
    module: ModuleBuilder, program: Module, codes: Mapping[str, KernelFunctions], entry: str, machine: Machine
) -> MainCode:
    """Add `<entry>` and `<entry>_plan` to the module; `codes` names the functions of the kernels, which are in it."""
    main = program.main
    assert main is not None, "there is no main"
    scratch = -(-max((code.scratch for code in codes.values()), default=0) // _PAGE) * _PAGE
    nodes = _Plan(module, main, program.nodes).emit(entry, scratch)
    counters = Walk(module, program, main, codes).emit(entry, scratch, machine)
    return MainCode(entry, counters, nodes, scratch)


# --- the plan of sizes ------------------------------------------------------------------------------


class _Plan:
    """Writes `<entry>_plan`: what is known of the symbols is checked first, then the assertions, then sizes are computed."""

    def __init__(self, module: ModuleBuilder, main: Main, nodes: tuple[str, ...]) -> None:
        self._main = main
        self._nodes = list(nodes)
        self._f = FunctionBuilder(module)
        self._dims = Dims(self._f, load_symbols(self._f, "%symbols", main))

    def emit(self, entry: str, scratch: int) -> tuple[str, ...]:
        """Add the function to the module; the nodes, with those for the symbols."""
        for symbol in self._main.symbols:
            self._check_symbol(symbol)
        self._check_expressions()
        for s in self._main.body:
            if isinstance(s, Assert) and set(self._main.symbols).issuperset(index.symbols([s.cond])):
                self._check(self._dims.value(s.cond), s.node)
        self._check_sizes()
        sizes = [self._main.arena, scratch, *(d for b in self._main.outputs for d in b.shape)]
        for k, size in enumerate(sizes):
            value = self._dims.value(size) if self._is_known(size) else "-1"
            self._f.effect(f"store i64 {value}, ptr {slot(self._f, '%out', k)}, align 8")
        self._f.effect("ret i64 0")
        text = f"define i64 @{entry}_plan(ptr %symbols, ptr %out) nounwind {{\n{self._f.body()}\n}}"
        self._f.module.add(text)
        return tuple(self._nodes)

    def _is_known(self, size: Dim) -> bool:
        """Whether a size is known before the call runs."""
        return set(index.symbols([size])).isdisjoint(self._main.sizes)

    def _check_symbol(self, symbol: Node) -> None:
        """Code relies on the bounds of a symbol and on what it is a multiple of."""
        lo, hi, multiple = symbol["lo"], symbol["hi"], symbol["multiple"]
        value, conditions = self._dims.value(symbol), []
        if lo is not None and lo > 0:
            conditions.append(self._f.value(f"icmp sge i64 {value}, {lo}"))
        if hi is not None:
            conditions.append(self._f.value(f"icmp sle i64 {value}, {hi}"))
        if multiple > 1:
            rest = self._f.value(f"urem i64 {value}, {multiple}")
            conditions.append(self._f.value(f"icmp eq i64 {rest}, 0"))
        for condition in conditions:
            self._require(condition, _REFUSED, len(self._nodes))
        if conditions:
            self._nodes.append(f"the size {symbol['name']} must be {_range_text(lo, hi, multiple)}")

    def _check_expressions(self) -> None:
        """The dimensions of inputs that are expressions, whose sizes the caller puts behind the symbols."""
        known = {s["name"] for s in self._main.symbols}
        dims = [(index.show(d), d, b.name) for b in self._main.inputs for d in b.shape if not isinstance(d, int)]
        named = {text: (d, name) for text, d, name in dims if text not in known}
        for k, (text, (expected, buffer)) in enumerate(named.items(), len(known)):
            given = self._f.value(f"load i64, ptr {slot(self._f, '%symbols', k)}, align 8")
            same = self._f.value(f"icmp eq i64 {given}, {self._dims.value(expected)}")
            self._require(same, _REFUSED, len(self._nodes))
            self._nodes.append(f"a dimension of {buffer} must be {text}")

    def _check_sizes(self) -> None:
        """Sizes that do not fit an i64 must not wrap around into sizes that do."""
        for size in (self._main.arena, *map(layout.size, self._main.outputs)):
            if index.constant(size) is None and self._is_known(size):
                fits = self._f.value(f"fcmp olt double {self._dims.rough(size)}, {literal('double', _MOST)}")
                self._require(fits, _NO_MEMORY, 0)

    def _check(self, condition: str, node: int) -> None:
        self._require(self._f.value(f"icmp ne i64 {condition}, 0"), _REFUSED, node)

    def _require(self, condition: str, code: int, node: int) -> None:
        good, bad = self._f.fresh("good"), self._f.fresh("bad")
        self._f.branch_if(condition, good, bad)
        self._f.start(bad)
        self._f.effect(f"ret i64 {code << 32 | node}")
        self._f.start(good)


def _range_text(lo: int | None, hi: int | None, multiple: int) -> str:
    parts = [f"at least {lo}"] if lo else []
    parts += [f"at most {hi}"] if hi is not None else []
    parts += [f"a multiple of {multiple}"] if multiple > 1 else []
    return ", ".join(parts)
