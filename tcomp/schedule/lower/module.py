"""`lower`: a canonical GRAPH module becomes a TILE module.

Takes stage graph; gives stage tile. Kernels that differ only in name are one kernel, launched several times. Every result is
written in its own output buffer; reshapes of what is in memory are aliases. Control flow becomes statements of main.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tcomp.ir import index
from tcomp.ir.graph import Func
from tcomp.ir.machine import Machine
from tcomp.ir.module import Module
from tcomp.ir.node import Dim, Node
from tcomp.ir.region import local_sizes, used_symbols
from tcomp.ir.stmts import Allocate, Assert, Kernel, Main
from tcomp.ir.types import Buffer
from tcomp.schedule.lower.body import Body
from tcomp.schedule.lower.legal import demands
from tcomp.schedule.lower.nest import avoiding
from tcomp.schedule.lower.segments import segments


def lower(module: Module, machine: Machine, reassociates: bool = True) -> Module:
    """The TILE module of a canonical GRAPH module. reassociates: whether dependent reductions may become one pass."""
    func = module.graph("`lower`")
    with avoiding({str(s["name"]) for s in used_symbols(func.results)}):  # dimensions, sizes that are data, turns of loops
        return _lowered(module, func, machine, reassociates)


def _lowered(module: Module, func: Func, machine: Machine, reassociates: bool) -> Module:
    program = Program(func, machine, reassociates, tuple(local_sizes(func.results)))
    inputs = tuple(program.declare(str(p["name"]), p) for p in func.params)
    outputs = tuple(program.declare(name, r) for name, r in zip(func.result_names, func.visible))
    body = Body(program, {p: b.name for p, b in zip(func.params, inputs)})
    parts, rest = segments(func)
    for part in parts:
        body.bind(part)
    body.statements += [Allocate(b, program.next_number()) for b in outputs if program.is_late(b)]
    body.lower(rest, [b.name for b in outputs])
    constants = tuple(program.buffers[n] for n in program.constants)
    statements = (*_demanded(program), *body.statements)
    main = Main(inputs, outputs, constants, tuple(func.symbols()), statements, sizes=tuple(program.late))
    return replace(
        module, stage="tile", func=func, kernels=program.named_kernels(), main=main, constants=program.constants,
        nodes=tuple(program.place(n) for n in program.checked), realised=tuple(program.realised),
        cascades=tuple(program.cascades),
    )  # fmt: skip


def _demanded(program: Program) -> list[Assert]:
    """What the program's sizes must satisfy, checked before anything runs."""
    known = set(program.func.symbols())
    asked = [(n, d) for n, d in demands(program.func.nodes()) if known.issuperset(index.symbols([d]))]
    return [Assert(d, program.node_number(n)) for n, d in asked]


@dataclass(slots=True)
class Program:
    """What all bodies of a program share: its buffers, constants and kernels, and the numbers it has given."""

    func: Func
    machine: Machine
    reassociates: bool = True
    local: tuple[Node, ...] = ()  # sizes that are data inside of control flow
    buffers: dict[str, Buffer] = field(default_factory=dict)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    constant_names: dict[Node, str] = field(default_factory=dict)
    kernels: dict[Kernel, str] = field(default_factory=dict)
    checked: list[Node] = field(default_factory=list)
    realised: list[tuple[str, str]] = field(default_factory=list)
    cascades: list[dict[str, Any]] = field(default_factory=list)
    copies: Iterator[int] = field(default_factory=itertools.count)
    numbers: int = 0
    groups: int = 0

    def declare(self, name: str, n: Node) -> Buffer:
        """A new buffer for the value of `n`, named like this, or numbered where the name is taken."""
        return self.add(Buffer(name, n.type.dtype, n.type.shape))

    @property
    def late(self) -> dict[Node, None]:
        """The sizes that are data, inside of control flow too, in order."""
        return dict.fromkeys((*self.func.sizes, *self.local))

    def is_late(self, buffer: Buffer) -> bool:
        """Whether the size of a buffer is data."""
        return not set(index.symbols(buffer.shape)).isdisjoint(self.func.sizes)

    def is_local(self, shape: tuple[Dim, ...]) -> bool:
        """Whether a size is known only inside of a control statement."""
        return not set(index.symbols(shape)).isdisjoint(self.local)

    def add(self, buffer: Buffer) -> Buffer:
        """The buffer, under a name that is not taken."""
        name, k = buffer.name, 0
        while name in self.buffers:
            name, k = f"{buffer.name}.{k}", k + 1
        self.buffers[name] = replace(buffer, name=name)
        return self.buffers[name]

    def constant(self, n: Node) -> str:
        """The name of the buffer that holds a constant."""
        if n not in self.constant_names:
            name = self.constant_names[n] = self.declare(f"c{len(self.constants)}", n).name
            self.constants[name] = n["value"].array
        return self.constant_names[n]

    def kernel(self, kernel: Kernel) -> str:
        """The name of this kernel, or of one that differs only in its name."""
        return self.kernels.setdefault(replace(kernel, name=""), kernel.name)

    def named_kernels(self) -> tuple[Kernel, ...]:
        return tuple(replace(k, name=name) for k, name in self.kernels.items())

    def next_number(self) -> int:
        """The number of the next launch or control statement."""
        self.numbers += 1
        return self.numbers - 1

    def next_group(self) -> int:
        self.groups += 1
        return self.groups - 1

    def node_number(self, n: Node) -> int:
        """What status words call a node."""
        if n not in self.checked:
            self.checked.append(n)
        return self.checked.index(n)

    def place(self, n: Node) -> str:
        what = "a broadcast, in which sizes must be equal or 1:" if n.op == "stretch" else n.op
        return f"{what} " + ", ".join(map(str, self.func.locs.of(n)))

    def realise(self, nodes: Iterable[Node], how: str) -> None:
        """Note for the report how nodes of the graph were realised."""
        for n in nodes:
            self.realised.append((f"{n.op} {' '.join(map(str, self.func.locs.of(n)))}".strip(), how))
