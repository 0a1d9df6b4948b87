"""REG kernels to LLVM IR text: one internal function for each phase.

`i64 @kernel.phase(ptr %args, i64 %block, ptr %scratch)`: %args points to 8-byte slots, the addresses of inputs, outputs and
workspace and then the values of the kernel's symbols; %block numbers the blocks of the grid, its last axis fastest; %scratch is
this thread's memory, KernelCode.scratch bytes. The result is the status word: 0, or code << 32 | node of a failed `Check`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tcomp.codegen.llvm import statements
from tcomp.codegen.llvm.address import text
from tcomp.codegen.llvm.builder import FunctionBuilder, ModuleBuilder
from tcomp.codegen.llvm.writer import Scope, Writer
from tcomp.ir import index
from tcomp.ir.machine import Machine
from tcomp.ir.stmts import Grid, Kernel


@dataclass(frozen=True, slots=True)
class KernelCode:
    """An emitted kernel: the function of each phase (without its `@`), and the bytes of scratch that a thread needs."""

    name: str
    phases: tuple[str, ...]
    scratch: int


def emit_kernel(module: ModuleBuilder, kernel: Kernel, machine: Machine) -> KernelCode:
    """Add the phases of a REG kernel to `module`."""
    names, scratch = [], 0
    for number, phase in enumerate(kernel.phases):
        name = f"{kernel.name}.{number}"
        w = _writer(module, kernel, machine)
        _grid_position(w, phase)
        statements.block(w, phase.body)
        w.b.effect("ret i64 0")
        head = f"define internal i64 @{name}(ptr %args, i64 %block, ptr %scratch) {_attributes(machine)}"
        module.add(f"{head} {{\n{w.b.body()}\n}}")
        names.append(name)
        scratch = max(scratch, w.scratch)
    return KernelCode(kernel.name, tuple(names), -(-scratch // statements.PAGE) * statements.PAGE)


def _attributes(machine: Machine) -> str:
    if "avx512f" not in machine.features:
        return "nounwind"
    return 'nounwind "prefer-vector-width"="512" "min-legal-vector-width"="512"'


def _writer(module: ModuleBuilder, kernel: Kernel, machine: Machine) -> Writer:
    """A writer that knows the kernel's parameters; their slots are read on first use."""
    w = Writer(FunctionBuilder(module), machine, [Scope([])])
    buffers = (*kernel.inputs, *kernel.outputs, *kernel.workspace)
    for k, buffer in enumerate(buffers):
        w.pointers[buffer.name] = lambda k=k: _slot(w, k, "ptr")  # type: ignore[misc]
    for k, symbol in enumerate(kernel.symbols, len(buffers)):
        w.symbols[symbol] = (_slot(w, k, "i64"), 0)
    return w


def _slot(w: Writer, k: int, kind: str) -> str:
    address = w.pure(0, f"getelementptr i8, ptr %args, i64 {8 * k}") if k else "%args"
    return w.pure(0, f"load {kind}, ptr {address}, align 8")


def _grid_position(w: Writer, phase: Grid) -> None:
    """The grid's variables from the number of the block."""
    rest = "%block"
    for k, axis in reversed(list(enumerate(phase.axes))):
        count = index.ceildiv(axis.extent, axis.step)
        if count == 1:
            w.symbols[axis.var] = (0, 0)
            continue
        here = rest
        if k:
            blocks = text(w, count)
            here = w.b.value(f"urem i64 {rest}, {blocks}")
            rest = w.b.value(f"udiv i64 {rest}, {blocks}")
        w.symbols[axis.var] = (here if axis.step == 1 else w.b.value(f"mul i64 {here}, {axis.step}"), 0)
