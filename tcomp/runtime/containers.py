"""Programs with sequences and optionals among their inputs or results: lists and None in, lists and None out.

The program itself takes and gives tensors; `Container` says which of them stand for what a caller sees.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tcomp.errors import Error
from tcomp.ir.artifact import Artifact, Container, Port
from tcomp.ir.dtype import ALL, to_numpy
from tcomp.runtime import arrays, guards
from tcomp.runtime.executable import Executable, Report
from tcomp.runtime.profile import Profile

Parts = list[Any]


class ContainerExecutable(Executable):
    """An `Executable` whose calls take and give lists for sequences, None for optionals that are not there."""

    def __init__(self, flat: Executable) -> None:
        super().__init__(flat.artifact, flat._specs, flat._assembly)
        self._flat = flat
        self._takes, self._gives = _groups(flat.artifact)
        self._defaults |= {c.name: None for c, _ in self._takes if c is not None and c.kind.startswith("optional")}

    @property
    def inputs(self) -> tuple[Port, ...]:
        return tuple(map(_port, self._takes))

    @property
    def outputs(self) -> tuple[Port, ...]:
        return tuple(map(_port, self._gives))

    def __call__(self, *values: Any) -> Any:
        results = self._flat(*self._packed(values))
        found = iter(results if len(self._flat.outputs) != 1 else (results,))
        given = tuple(_unpacked(c, [next(found) for _ in ports]) for c, ports in self._gives)
        return given[0] if len(given) == 1 else given

    def report(self, sizes: Mapping[str, int] | None = None) -> Report:
        return self._flat.report(sizes)

    def profile(self, *values: Any) -> Profile:
        return self._flat.profile(*self._packed(values))

    def _packed(self, values: Sequence[Any]) -> Parts:
        given = guards.by_position(self.inputs, values, self._defaults)
        return [part for (c, ports), value in zip(self._takes, given) for part in _PACK[c.kind if c else ""](ports, value)]


def fitted(program: Executable) -> Executable:
    """The program as its callers see it."""
    return ContainerExecutable(program) if program.artifact.containers else program


Group = tuple[Container | None, tuple[Port, ...]]


def caller_ports(artifact: Artifact) -> tuple[tuple[Port, ...], tuple[Port, ...]]:
    """Inputs and outputs as callers see them."""
    takes, gives = _groups(artifact)
    return tuple(map(_port, takes)), tuple(map(_port, gives))


def _groups(artifact: Artifact) -> tuple[list[Group], list[Group]]:
    of = {side: [c for c in artifact.containers if c.side == side] for side in ("input", "output")}
    return _grouped(artifact.widest.inputs, of["input"]), _grouped(artifact.widest.outputs, of["output"])


def _grouped(ports: Sequence[Port], containers: Sequence[Container]) -> list[Group]:
    """Ports in order, those of a container together."""
    names, owners = {p.name: p for p in ports}, {name: c for c in containers for name in c.ports}
    groups: list[Group] = []
    for p in ports:
        c = owners.get(p.name)
        if c is None:
            groups.append((None, (p,)))
        elif c.ports[0] == p.name:
            groups.append((c, tuple(names[name] for name in c.ports)))
    return groups


def _port(group: Group) -> Port:
    """What a caller sees: of a sequence or optional the rank of its tensors, whose sizes are anything."""
    c, ports = group
    if c is None:
        return ports[0]
    inner = ports[1:] if c.kind.startswith("optional") else ports
    kind = c.kind.replace("tuple", "sequence")
    if not inner:
        return Port(c.name, kind, ())
    if c.kind == "maps":
        return Port(c.name, f"maps of {inner[0].dtype} to {inner[1].dtype}", inner[1].shape)
    if "tensor" in c.kind:
        return Port(c.name, f"{kind} of {inner[0].dtype}", inner[0].shape)
    rank = ports[-1].shape[-1] if c.kind.endswith("sequence") else len(inner[0].shape)
    return Port(c.name, f"{kind} of {inner[0].dtype}", ("?",) * rank if isinstance(rank, int) else ("...",))


# --- in ------------------------------------------------------------------------------------------------


def _sequence(ports: tuple[Port, ...], value: Any) -> Parts:
    """The elements of all tensors, and their shapes. Raises TC0601, TC0602."""
    data, shapes = ports
    if not isinstance(value, list | tuple):
        raise Error("TC0602", f"input `{_owner(data)}` is {type(value).__name__}", f"a list of arrays of {data.dtype}")
    found = [arrays.take(Port(f"{_owner(data)}[{k}]", data.dtype, ()), x) for k, x in enumerate(value)]
    known = shapes.shape[1]
    rank = known if isinstance(known, int) else max((x.ndim for x in found), default=0)
    wrong = next((k for k, x in enumerate(found) if x.ndim > rank), None)
    if wrong is not None:
        shape = found[wrong].shape
        raise Error("TC0601", f"`{_owner(data)}[{wrong}]` has shape {shape}", f"rank {rank}, as the model says")
    whole = np.concatenate([x.reshape(-1) for x in found]) if found else np.zeros(0, to_numpy(ALL[data.dtype]))
    return [whole, np.array([(-1,) * (rank - x.ndim) + x.shape for x in found], np.int64).reshape(len(found), rank)]


def _owner(port: Port) -> str:
    return port.name.rsplit("#", 1)[0]


def _maybe(inner: Callable[[tuple[Port, ...], Any], Parts], none: Callable[[tuple[Port, ...]], Any]) -> Any:
    def packed(ports: tuple[Port, ...], value: Any) -> Parts:
        rest = ports[1:]
        return [np.array(value is not None), *inner(rest, none(rest) if value is None else value)]

    return packed


def _no_tensor(ports: tuple[Port, ...]) -> np.ndarray:
    """What is passed for a tensor that is not there."""
    (port,) = ports
    return np.zeros([d if isinstance(d, int) else 0 for d in port.shape], to_numpy(ALL[port.dtype]))


def _one(ports: tuple[Port, ...], value: Any) -> Parts:
    return [value]


_PACK: dict[str, Callable[[tuple[Port, ...], Any], Parts]] = {
    "": _one,
    "sequence": _sequence,
    "optional tensor": _maybe(_one, _no_tensor),
    "optional sequence": _maybe(_sequence, lambda ports: []),
}


# --- out -----------------------------------------------------------------------------------------------


def _unpacked(c: Container | None, parts: Parts) -> Any:
    """What a caller gets for the results of one output."""
    if c is None:
        return parts[0]
    if c.kind.startswith("optional"):
        inner = c.kind.removeprefix("optional ")
        return _content(inner, parts[1:]) if parts[0] and inner != "nothing" else None
    return _content(c.kind, parts)


def _content(kind: str, parts: Parts) -> Any:
    if kind == "maps":
        keys, values = (part.tolist() for part in parts)
        return [dict(zip(keys, row)) for row in values]
    if kind != "sequence":
        return list(parts) if kind == "tuple" else parts[0]
    data, shapes = parts
    sizes = [tuple(int(d) for d in row if d >= 0) for row in shapes]  # of a tensor of smaller rank they begin with -1
    ends = np.cumsum([0, *(int(np.prod(s, dtype=np.int64)) for s in sizes)])
    return [data[a:b].reshape(s) for a, b, s in zip(ends, ends[1:], sizes)]
