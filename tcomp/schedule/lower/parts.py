"""What a lowering function gives back, and what it is given."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tcomp.ir import index, tile
from tcomp.ir.index import INDEX, as_dim
from tcomp.ir.machine import Machine
from tcomp.ir.node import Dim, Node, walk
from tcomp.ir.stmts import For, Grid, If, Kernel, Let, Store
from tcomp.ir.types import Buffer


@dataclass(frozen=True, slots=True)
class Lowered:
    """A kernel and the nodes whose buffers are its inputs and outputs, in order."""

    kernel: Kernel
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Context:
    """What lowering may ask: whether a node is in memory when the kernel starts, the machine, the number of a checked node."""

    in_memory: Callable[[Node], bool]
    machine: Machine
    node_number: Callable[[Node], int]


def kernel_symbols(phases: Iterable[Grid], buffers: Iterable[Buffer]) -> tuple[Node, ...]:
    """The symbols that a kernel's text uses and does not bind: dimensions of the program."""
    dims: list[Dim] = [d for b in buffers for d in b.shape]
    bound: set[str] = set()
    stack: list[object] = list(phases)
    while stack:
        s = stack.pop()
        match s:
            case Grid():
                bound |= {str(a.var["name"]) for a in s.axes}
                dims += [a.extent for a in s.axes]
                stack.extend(s.body)
            case For():
                bound.add(str(s.var["name"]))
                dims += [s.lo, s.hi, *(d for y in (*s.yields, *(c.init for c in s.carry)) for d in _dims_in(y))]
                stack.extend(s.body)
            case If():
                dims.append(s.cond)
                stack.extend((*s.body, *s.orelse))
            case Let():
                dims += _dims_in(s.value)
            case Store():
                dims += [*_dims_in(s.value), *_dims_in(s.window)]
            case _:
                dims += [d for e in getattr(s, "inputs", ()) + getattr(s, "outputs", ()) for d in _dims_in(e)]
    names = {n: n for n in index.symbols(dims) if not tile.is_axis(n) and n["name"] not in bound}
    return tuple(sorted(names, key=lambda n: str(n["name"])))


def _dims_in(e: Node) -> list[Dim]:
    return [as_dim(n) for n in walk([e]) if n.type is INDEX]
