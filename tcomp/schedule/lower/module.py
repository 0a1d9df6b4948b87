"""`lower`: a canonical GRAPH module becomes a TILE module.

Takes stage graph; gives stage tile. Kernels that differ only in name are one kernel, launched several times. Every result is
written in its own output buffer; reshapes of what is in memory are aliases.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from tcomp.ir.graph import Func
from tcomp.ir.machine import Machine
from tcomp.ir.module import Module
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import apply
from tcomp.ir.stmts import Alias, Kernel, Launch, Main, MainStmt, Reserve
from tcomp.ir.types import Buffer
from tcomp.passes.fusion import MOVEMENTS, Group, fuse
from tcomp.schedule.lower import alone, contraction, convolution, loops
from tcomp.schedule.lower.parts import Context, Lowered

LOWERING: dict[str, Callable[[str, Group, Context], Lowered]] = {
    "map": loops.lower_map,
    "row": loops.lower_row,
    "column": loops.lower_column,
    "dot": contraction.lower_dot,
    "conv": convolution.lower_conv,
    "concat": alone.lower_concat,
    "scan": alone.lower_scan,
    "sort": alone.lower_order,
    "top_k": alone.lower_order,
    "scatter_elements": alone.lower_scatter,
    "scatter_nd": alone.lower_scatter,
}


def lower(module: Module, machine: Machine) -> Module:
    """The TILE module of a canonical GRAPH module."""
    assert module.func is not None
    func = with_own_results(module.func)
    return _Program(module, func, machine).run()


def with_own_results(func: Func) -> Func:
    """`func` with each result a value of its own: parameters, constants and repeated results become copies."""
    seen: set[Node] = set()
    results: list[Node] = []
    for r in func.results:
        base = _through_reshapes(r)
        own = base not in seen and base.op not in ("parameter", "constant", "item") and base.op not in MOVEMENTS
        seen.add(base)
        results.append(r if own or (r.op in MOVEMENTS - {"reshape"} and r not in results) else _copy(r, results))
    return replace(func, results=tuple(results))


def _copy(r: Node, taken: list[Node]) -> Node:
    """A movement that changes nothing: computed into memory, it is a copy. Nested once more for each earlier copy."""
    copy = apply("reshape", r, shape=r.type.shape)
    return _copy(copy, taken) if copy in taken else copy


def _through_reshapes(n: Node) -> Node:
    while n.op == "reshape":
        n = n.operands[0]
    return n


@dataclass(slots=True)
class _Program:
    """main in the making: the name of the buffer that holds each value, and the statements so far."""

    module: Module
    func: Func
    machine: Machine
    names: dict[Node, str] = field(default_factory=dict)
    buffers: dict[str, Buffer] = field(default_factory=dict)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    body: list[MainStmt] = field(default_factory=list)
    kernels: dict[Kernel, str] = field(default_factory=dict)
    aliases: dict[tuple[str, tuple[Dim, ...]], str] = field(default_factory=dict)
    checked: list[Node] = field(default_factory=list)
    realised: list[tuple[str, str]] = field(default_factory=list)
    launches: int = 0

    def run(self) -> Module:
        inputs = tuple(self._declare(p, str(p["name"])) for p in self.func.params)
        groups = fuse(self.func)
        self._name_results(groups)
        outputs = tuple(self.buffers[n] for n in self._result_buffers)
        memory = {*self.func.params, *self.names, *(o for g in groups for o in _outputs(g))}
        ctx = Context(lambda n: n in memory or n.op == "constant", self.machine, self._node_number)
        for k, g in enumerate(groups):
            self._launch(g, LOWERING[g.kind](f"k{k}_{_title(g)}", g, ctx))
        constants = tuple(self.buffers[n] for n in self.constants)
        main = Main(inputs, outputs, constants, tuple(self.func.symbols()), tuple(self.body))
        nodes = tuple(self._place(n) for n in self.checked)
        kernels = tuple(replace(k, name=name) for k, name in self.kernels.items())
        return replace(
            self.module, stage="tile", func=self.func, kernels=kernels, main=main, constants=self.constants,
            nodes=nodes, realised=tuple(self.realised),
        )  # fmt: skip

    def _declare(self, n: Node, name: str) -> Buffer:
        buffer = Buffer(name, n.type.dtype, n.type.shape)
        self.names[n] = name
        self.buffers[name] = buffer
        return buffer

    _result_buffers: list[str] = field(default_factory=list)

    def _name_results(self, groups: tuple[Group, ...]) -> None:
        """Each result is computed in the caller's buffer: what a group writes there is an alias of it."""
        computed = {o for g in groups for o in _outputs(g)}
        taken = {str(p["name"]) for p in self.func.params}
        for r, name in zip(self.func.results, self.func.result_names):
            name = _fresh(name, taken)
            buffer = Buffer(name, r.type.dtype, r.type.shape)
            self.buffers[name] = buffer
            self._result_buffers.append(name)
            base = r if r in computed else _through_reshapes(r)
            assert base in computed, f"the result {name} is not computed by any group"
            self.names[base] = name if base.type.shape == r.type.shape else self._alias(name, base.type.shape, base)

    def _alias(self, source: str, shape: tuple[Dim, ...], like: Node | Buffer) -> str:
        """The name under which the memory of `source` is read with `shape`."""
        if self.buffers[source].shape == shape:
            return source
        key = (source, shape)
        if key not in self.aliases:
            dtype = like.type.dtype if isinstance(like, Node) else like.dtype
            name = _fresh(f"{source}.as{len(self.aliases)}", set(self.buffers))
            self.buffers[name] = Buffer(name, dtype, shape)
            self.body.append(Alias(self.buffers[name], source))
            self.aliases[key] = name
        return self.aliases[key]

    def _launch(self, group: Group, low: Lowered) -> None:
        arguments = [self._argument(n, b) for n, b in zip(low.inputs, low.kernel.inputs)]
        for n, b in zip(low.outputs, low.kernel.outputs):
            if n not in self.names:
                buffer = self._declare(n, f"v{len(self.buffers)}")
                self.body.append(Reserve(buffer))
            arguments.append(self._alias(self.names[n], b.shape, b))
        name = self.kernels.setdefault(replace(low.kernel, name=""), low.kernel.name)
        symbols = tuple(low.kernel.symbols)
        self.body.append(Launch(name, tuple(arguments), symbols, self.launches))
        self.launches += 1
        for n in group.members:
            place = " ".join(map(str, self.func.locs.of(n)))
            self.realised.append((f"{n.op} {place}".strip(), f"kernel {name}" + (" (fused)" if len(group.members) > 1 else "")))

    def _argument(self, n: Node, b: Buffer) -> str:
        if n not in self.names:
            assert n.op == "constant", f"{n.op} is read before it is computed"
            name = f"c{len(self.constants)}"
            self._declare(n, name)
            self.constants[name] = n["value"].array
        return self._alias(self.names[n], b.shape, b)

    def _node_number(self, n: Node) -> int:
        if n not in self.checked:
            self.checked.append(n)
        return self.checked.index(n)

    def _place(self, n: Node) -> str:
        return f"{n.op} " + ", ".join(map(str, self.func.locs.of(n)))


def _outputs(g: Group) -> tuple[Node, ...]:
    """The values a group leaves in memory."""
    if g.kind in ("sort", "top_k"):
        return tuple(alone.item_of(g.members[0], k) for k in range(2))
    return g.outputs


def _title(g: Group) -> str:
    """A name a reader recognises: the operations that matter most."""
    ops = [n.op for n in g.anchors] or [n.op for n in g.outputs]
    return "_".join(dict.fromkeys(ops))[:40]


def _fresh(name: str, taken: set[str]) -> str:
    new, k = name, 0
    while new in taken:
        new, k = f"{name}.{k}", k + 1
    taken.add(new)
    return new
