"""A REG module becomes an `Artifact`: LLVM text of its kernels and main, object code, constants, ports."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tcomp import knobs
from tcomp.codegen.llvm.builder import ModuleBuilder
from tcomp.codegen.llvm.compile import CpuTarget, compile_text
from tcomp.codegen.llvm.kernel import emit_kernel
from tcomp.codegen.llvm.main import MainCode, emit_main
from tcomp.ir import index, layout
from tcomp.ir.artifact import Artifact, CodeObject, Constant, Port
from tcomp.ir.machine import Machine
from tcomp.ir.module import Module
from tcomp.ir.node import Dim, Node
from tcomp.ir.stmts import Allocate, Assert, Branch, Kernel, Launch, Main, MainStmt, Repeat, bodies, flat
from tcomp.ir.types import Buffer
from tcomp.ir.work import call_work, launch_bytes, launch_flops


def build(
    program: Module,
    machine: Machine,
    target: CpuTarget,
    texts: dict[str, str],
    report: dict[str, object],
    plan: Module | None = None,
) -> Artifact:
    """The artifact of a planned module at `reg`. texts: of the earlier stages; `llvm` is added. report: plain JSON; bytes and
    flops are added, counted in the kernels of `plan`, the program at an earlier stage, where it is given."""
    main = _checked(program)
    text, code = emit_module(program, machine)
    symbols = tuple(s["name"] for s in main.symbols)
    defaults = program.func.defaults if program.func is not None else ()
    data = _compiled(text, target)
    work = _Work(program, plan or program, _later(main))
    constants = (*_constants(program, main), *(Constant(_default(name), np.asarray(a, order="C")) for name, a in defaults))
    operations = work.of_call(launch_flops)
    moved = {"moved": work.of_call(launch_bytes), **_bytes(main, constants, data, code.scratch)}
    return Artifact(
        name=program.name,
        entry=code.entry,
        inputs=tuple(_port(b) for b in main.inputs),
        outputs=tuple(_port(b, main.sizes) for b in main.outputs),
        symbols=symbols,
        counters=code.counters,
        objects=(CodeObject(_target_name(machine), tuple(sorted(machine.features)), data),),
        constants=constants,
        texts={**texts, "llvm": text},
        report={**report, **_account(program, main), "flops": operations, "bytes": moved, "launches": work.rows(main.body)},
        nodes=code.nodes,
        defaults=tuple((name, _default(name)) for name, _ in defaults),
        flops=operations if isinstance(operations, int) else 0,
        containers=program.func.containers if program.func is not None else (),
    )


def emit_module(program: Module, machine: Machine) -> tuple[str, MainCode]:
    """The LLVM text of a module: the kernels that main launches, and main."""
    assert program.main is not None
    builder = ModuleBuilder()
    launched = {s.kernel for s in flat(program.main.body) if isinstance(s, Launch)}
    codes = {k.name: emit_kernel(builder, k, machine) for k in program.kernels if k.name in launched}
    code = emit_main(builder, program, codes, f"tcomp_{re.sub(r'[^A-Za-z0-9_]', '_', program.name)}", machine)
    return builder.text(), code


def _checked(program: Module) -> Main:
    """main, once what the runtime relies on holds."""
    main = program.main
    assert program.stage == "reg" and main is not None, f"build takes REG with main, not {program.stage}"
    alone = {d for b in main.inputs for d in b.shape if not isinstance(d, int)}
    for symbol in main.symbols:
        assert symbol in alone, f"no input has the symbol {symbol['name']} alone as a dimension"
    return main


def _bytes(main: Main, constants: tuple[Constant, ...], data: bytes, scratch: int) -> dict[str, object]:
    """What a program takes: memory of one call (an expression where sizes are symbolic), constants, code.

    arena: of values between kernels; scratch: of each thread; call: the most that a call on one thread has at once, with its
    results, which is not there where data decides about sizes."""
    total: Dim = scratch
    for size in (main.arena, *map(layout.size, main.outputs)):
        total = index.add(total, size)
    call = {} if main.sizes else {"call": _dimension(total)}
    fixed = {"constants": sum(c.data.nbytes for c in constants), "code": len(data)}
    return {"arena": _dimension(main.arena), "scratch": scratch, **call, **fixed}


def _account(program: Module, main: Main) -> dict[str, object]:
    """requires: what the sizes of a call must satisfy, and who asks."""
    asked = [[index.show(s.cond), program.nodes[s.node]] for s in flat(main.body) if isinstance(s, Assert)]
    return {"requires": asked}


@dataclass(frozen=True, slots=True)
class _Work:
    """What launches read, write and compute. later: the symbols that are not known before a call."""

    program: Module
    plan: Module
    later: tuple[Node, ...]

    def of_call(self, count: Callable[[Launch, Kernel], Dim]) -> int | str:
        """Of all launches of a call."""
        main = self.program.main
        assert main is not None
        return self._known(call_work(main.body, lambda s: count(s, self.plan.kernel(s.kernel))))

    def rows(self, body: tuple[MainStmt, ...]) -> list[object]:
        """Of each unit in order, as the profile reads it: kernel, number of phases, bytes of its buffers, flops."""
        rows: list[object] = []
        for s in body:
            if isinstance(s, Launch):
                kernel = self.plan.kernel(s.kernel)
                facts = [self._known(count(s, kernel)) for count in (launch_bytes, launch_flops)]
                rows.append([s.kernel, len(self.program.kernel(s.kernel).phases), *facts])
            elif isinstance(s, Allocate):
                rows.append([f"allocate {s.buffer.name}", 1, 0, 0])
            elif isinstance(s, Branch | Repeat) and s.alone:
                rows.append([_control_name(s), 1, 0, 0])
            else:
                rows += [[_control_name(s), 1, 0, 0]] if isinstance(s, Repeat) else []
                rows += [row for inner in bodies(s) for row in self.rows(inner)]
        return rows

    def _known(self, work: Dim) -> int | str:
        """An estimate as the report gives it; 0 where nothing is known before the call."""
        return _dimension(work) if set(index.symbols([work])).isdisjoint(self.later) else 0


def _later(main: Main) -> tuple[Node, ...]:
    """The symbols that are not known before the call: sizes that are data, and counters of loops."""
    return (*main.sizes, *(s.var for s in flat(main.body) if isinstance(s, Repeat)))


def _control_name(s: Branch | Repeat) -> str:
    """What the report calls a control statement that one thread runs."""
    kernels = dict.fromkeys(inner.kernel for inner in flat((s,)) if isinstance(inner, Launch))
    return f"{'if' if isinstance(s, Branch) else 'repeat'} ({', '.join(kernels)})"


def _port(buffer: Buffer, late: tuple[Node, ...] = ()) -> Port:
    """late: the symbols that only data gives."""
    known = [set(index.symbols([d])).isdisjoint(late) for d in buffer.shape]
    return Port(buffer.name, buffer.dtype.name, tuple(_dimension(d) if k else "?" for d, k in zip(buffer.shape, known)))


def _dimension(d: Dim) -> int | str:
    known = index.constant(d)
    return index.show(d) if known is None else known


def _constants(program: Module, main: Main) -> list[Constant]:
    return [Constant(b.name, np.asarray(program.constants[b.name], order="C")) for b in main.constants]


def _default(name: str) -> str:
    """The name of the constant that holds the value of an input which may be left out."""
    return f"{name}.default"


def _compiled(text: str, target: CpuTarget) -> bytes:
    return compile_text(text, target, fast=bool(knobs.FAST.read()))


def _target_name(machine: Machine) -> str:
    """`cpu:<name>`; for the host with a fingerprint of what it can do."""
    if machine.name != "host":
        return f"cpu:{machine.name}"
    facts = f"{machine.cpu} {sorted(machine.features)}"
    return f"cpu:host:{hashlib.sha256(facts.encode()).hexdigest()[:12]}"
