"""A compiled program that can be called: `Executable`, made of an `Artifact` by `link`.

A call first tries the native call object, which takes exactly what the program was compiled for, in the first of its variants
that the sizes fit. Where that declines, the values are taken one by one: made to fit where that loses nothing, else refused
with an error that names the input. Inputs are never written; results belong to the caller. Any number of threads may call at
once, and a call after a fault is like any other.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from tcomp import knobs
from tcomp.errors import Error
from tcomp.ir.artifact import STATUS_CODES, Artifact, CodeObject, Port
from tcomp.runtime import arrays, callobject, guards, loader
from tcomp.runtime import artifact as artifact_file
from tcomp.runtime.callobject import CallSpec
from tcomp.runtime.profile import Profile, profile

SHORT_FLOPS = 200_000  # a call of fewer takes microseconds: it keeps the GIL and runs on one thread
_ELF_MACHINES = {"x86_64": 62, "aarch64": 183}
_FOUND = {
    "TC0604": "an index is out of range",
    "TC0605": "a size or value that the program does not accept",
    "TC0606": "there is not enough memory for the call",
}


def link(artifact: Artifact, assembly: Callable[[str], str] | None = None, elsewhere: bool = False) -> Executable:
    """The program of an artifact, the code of all its variants linked into the process; `native.start` comes first.

    assembly: what `text("asm")` calls, from LLVM text. Raises TC0702 where there is no code for this machine, TC0701 where
    the code does not load. elsewhere: it may be for another machine: then a call raises TC0702.
    """
    placed: dict[int, np.ndarray] = {}
    try:
        specs: tuple[CallSpec, ...] | Error = tuple(_call_spec(variant, placed) for variant in artifact.variants)
    except Error as error:
        if not elsewhere or error.code != "TC0702":
            raise
        specs = error
    return Executable(artifact, specs, assembly)


def code_for_this_machine(artifact: Artifact) -> CodeObject:
    """The code that uses most of what this machine has. Raises TC0702."""
    have = {name for name, present in llvm.get_host_cpu_features().items() if present}
    fitting = [o for o in artifact.objects if _elf_machine(o.data) == platform.machine() and have.issuperset(o.features)]
    if fitting:
        return max(fitting, key=lambda o: len(o.features))
    missing = {o.target: sorted(set(o.features) - have) for o in artifact.objects if _elf_machine(o.data) == platform.machine()}
    lacks = "; ".join(f"{target} needs {', '.join(names)}" for target, names in missing.items() if names)
    found = f"the artifact `{artifact.name}` has code for {', '.join(o.target for o in artifact.objects) or 'no machine'}"
    expected = f"code for {platform.machine()}" + (f" without what this one lacks: {lacks}" if lacks else "")
    raise Error("TC0702", found, expected, hint="`tcomp.load(path, native=False)` compiles it again for this machine")


def _elf_machine(data: bytes) -> str:
    """The machine an object file is for, as `platform.machine` names it; '' where unknown."""
    if data[:4] != b"\x7fELF" or len(data) < 20:
        return ""
    number = struct.unpack_from("<H", data, 18)[0]
    return next((name for name, code in _ELF_MACHINES.items() if code == number), "")


def _call_spec(artifact: Artifact, placed: dict[int, np.ndarray]) -> CallSpec:
    """A variant, loaded. placed: constants at aligned addresses, by their data's identity, which variants share."""
    code = code_for_this_machine(artifact)
    library = loader.load(code.data, (artifact.entry, f"{artifact.entry}_plan"))
    constants = [placed[id(c.data)] if id(c.data) in placed else _aligned(c.data) for c in artifact.constants]
    placed |= {id(c.data): there for c, there in zip(artifact.constants, constants)}
    table = np.array([*(a.ctypes.data for a in constants), 0], np.uint64)
    plan = library[f"{artifact.entry}_plan"]
    sizes = None if artifact.symbols else _static_sizes(artifact, plan)
    long = not 0 < artifact.flops < SHORT_FLOPS
    return CallSpec(
        entry=library[artifact.entry],
        plan=plan if sizes is None else 0,
        constants=table.ctypes.data,
        inputs=artifact.inputs,
        outputs=artifact.outputs,
        symbols=artifact.symbols,
        counters=artifact.counters,
        sizes=sizes,
        threads=(knobs.NUM_THREADS.read() or len(os.sched_getaffinity(0))) if long else 1,
        release_gil=long,
        keep=(library, table, constants),
    )


def _aligned(data: np.ndarray) -> np.ndarray:
    """The constant at an address that is a multiple of 64: itself, or a copy."""
    if data.ctypes.data % 64 == 0 and data.flags.c_contiguous:
        return data
    space = np.empty(data.nbytes + 64, np.uint8)
    start = -space.ctypes.data % 64
    copy = space[start : start + data.nbytes].view(data.dtype).reshape(data.shape)
    copy[...] = data
    return copy


def _static_sizes(artifact: Artifact, plan: int) -> tuple[int, ...] | None:
    """What the plan writes where there are no symbols; None where it fails: then every call does."""
    out = np.zeros(2 + sum(len(p.shape) for p in artifact.outputs), np.int64)
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(plan)
    return None if function(None, out.ctypes.data) else tuple(out.tolist())


def _fault(artifact: Artifact, status: int, sizes: Mapping[str, int]) -> Error:
    """The error that a status word stands for, in a call of these sizes."""
    code, node = STATUS_CODES[status >> 32], status & 0xFFFFFFFF
    place = artifact.nodes[node] if code != "TC0606" and node < len(artifact.nodes) else ""
    told = ", ".join(f"{name} = {size}" for name, size in sizes.items())
    return Error(code, _FOUND[code], place=place, hint=f"the call has {told}" if told and code == "TC0605" else "")


class Report(dict[str, Any]):
    """Plain JSON data about a compiled program, printed readably: a text that is empty is left out."""

    def __str__(self) -> str:
        return "\n".join(_report_lines(self, ""))


def _require(sizes: Mapping[str, int], symbols: tuple[str, ...]) -> None:
    """TC0105 where a symbol has no size."""
    missing = [s for s in symbols if s not in sizes]
    if missing:
        raise Error("TC0105", f"no size for {', '.join(missing)}", f"a number for each of {', '.join(symbols)}")


def _evaluated(report: dict[str, Any], sizes: Mapping[str, int]) -> dict[str, Any]:
    """A report with numbers in the place of its expressions."""

    def number(v: Any) -> Any:
        return guards.evaluate(v, sizes) if isinstance(v, str) else v

    launches = [[name, phases, *map(number, work)] for name, phases, *work in report["launches"]]
    numbers = {what: number(v) for what, v in report["bytes"].items()}
    return {**report, "flops": number(report["flops"]), "bytes": numbers, "launches": launches}


def _report_lines(data: Any, indent: str) -> list[str]:
    if not isinstance(data, dict):
        rows = data if isinstance(data, list | tuple) else [data]
        return [f"{indent}{'  '.join(map(str, row)) if isinstance(row, list | tuple) else row}" for row in rows]
    lines: list[str] = []
    for key, value in data.items():
        if isinstance(value, dict | list | tuple) and value:
            lines += [f"{indent}{key}:", *_report_lines(value, indent + "  ")]
        elif value != "":
            lines.append(f"{indent}{key}: {value}")
    return lines


class Executable:
    """A program to call, show and save. `inputs` and `outputs` are its ports, in the order of a call's arguments and results."""

    def __init__(
        self, artifact: Artifact, specs: tuple[CallSpec, ...] | Error, assembly: Callable[[str], str] | None = None
    ) -> None:
        """specs: of the artifact's variants, in their order, or why none can be called here."""
        self.artifact = artifact
        self._specs = specs
        self._assembly = assembly
        constants = {c.name: c.data for c in artifact.constants}
        self._defaults: dict[str, Any] = {name: constants[constant] for name, constant in artifact.defaults}
        self._program: Callable[..., Any] = self._first_call

    @property
    def specs(self) -> tuple[CallSpec, ...]:
        """How the variants are called. Raises TC0702 where the program is for another machine."""
        if isinstance(self._specs, Error):
            raise self._specs.with_traceback(None)
        return self._specs

    @property
    def inputs(self) -> tuple[Port, ...]:
        return self.artifact.widest.inputs

    @property
    def outputs(self) -> tuple[Port, ...]:
        return self.artifact.widest.outputs

    def __repr__(self) -> str:
        takes, gives = (", ".join(f"{p.name}: {p.dtype}{list(p.shape)}" for p in ports) for ports in (self.inputs, self.outputs))
        return f"<tcomp.Executable {self.artifact.name}({takes}) -> ({gives})>"

    @property
    def call_flat(self) -> Callable[..., Any]:
        """The native call object, the shortest way: results as `__call__` gives them, or NotImplemented where the values do
        not fit at once or the call had a fault."""
        if self._program == self._first_call:
            self._program = callobject.build(*self.specs)
        return self._program

    def __call__(self, *values: Any) -> Any:
        """The program on values for all inputs, in order: one result, or a tuple of them.

        Raises TC0601 (shape), TC0602 (dtype), TC0603 (number of inputs), TC0604 to TC0606 (faults of the call).
        """
        result = self._program(*values)
        return self._slow(values) if result is NotImplemented else result

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The program on inputs by name; results by name. Inputs that have a default may be left out."""
        results = self(*guards.by_name(self.inputs, inputs, self._defaults))
        return dict(zip((p.name for p in self.outputs), (results,) if len(self.outputs) == 1 else results))

    def _first_call(self, *values: Any) -> Any:
        """Stands for the native call object until it is needed."""
        self._program = callobject.build(*self.specs)
        return self._program(*values)

    def _slow(self, values: tuple[Any, ...]) -> Any:
        """The call on values that did not fit at once, or whose fault is to be told."""
        taken = self._taken(values)
        changed = len(taken) > len(values) or any(a is not v for a, v in zip(taken, values))
        results = self._program(*taken) if changed else NotImplemented
        if results is NotImplemented:
            results = self._checked_call(taken)
        return arrays.give(results, any(map(arrays.is_torch, values)))

    def _checked_call(self, taken: list[np.ndarray]) -> Any:
        """The call whose errors are told: of shapes, and of the program itself."""
        guards.check_shapes(self.inputs, [a.shape for a in taken], self.artifact.widest.symbols)
        number = callobject.choose(self.specs, [a.shape for a in taken])
        status, results = callobject.call(self.specs[number], taken)
        if status:
            raise _fault(self.artifact.variants[number], status, callobject.sizes(self.specs[number], taken))
        return results[0] if len(results) == 1 else tuple(results)

    def _taken(self, values: tuple[Any, ...]) -> list[np.ndarray]:
        """The inputs as arrays of the right dtype and layout, or the error that says why one cannot be."""
        given = guards.by_position(self.inputs, values, self._defaults)
        return [arrays.take(port, value) for port, value in zip(self.inputs, given)]

    def text(self, stage: str, variant: int | None = None) -> str:
        """The program's text at a stage: graph, tile, placed, reg, llvm, asm. variant: its number in the report, where there are
        several; else that of the usual call. Raises TC0105 for any other stage or number."""
        variants = self.artifact.variants
        if variant is not None and not 0 <= variant < len(variants):
            raise Error("TC0105", f"there is no variant {variant}", f"a number from 0 to {len(variants) - 1}")
        texts = (self.artifact if variant is None else variants[variant]).texts
        if stage == "asm" and self._assembly is not None and "llvm" in texts:
            return self._assembly(texts["llvm"])
        if stage not in texts:
            known = [*texts, "asm"] if self._assembly is not None else [*texts]
            raise Error("TC0105", f"there is no text of the stage `{stage}`", f"one of {', '.join(known)}")
        return texts[stage]

    def report(self, sizes: Mapping[str, int] | None = None) -> Report:
        """How each operation was realised, bytes, flops, compile times: JSON data that prints readably.

        dimensions: what became of each. variants: where there are several, of which the rest is told of the first. bytes: `call`
        is the most that a call on one thread takes, its results included; further threads take `scratch` each.

        sizes: of the program's dimensions by name; flops and bytes, which are expressions where sizes are symbolic, are then
        numbers, of the variant that takes these sizes. Raises TC0105 where one is missing."""
        if sizes is None:
            return Report(json.loads(json.dumps(self.artifact.report)))
        _require(sizes, self.artifact.widest.symbols)
        shapes = [tuple(d if isinstance(d, int) else guards.evaluate(d, sizes) for d in p.shape) for p in self.inputs]
        found = self.artifact.report | self.artifact.variants[callobject.choose(self.specs, shapes)].report
        return Report(_evaluated(json.loads(json.dumps(found)), sizes))

    def profile(self, *values: Any) -> Profile:
        """Time, bytes and flops of every launch on these inputs, on one thread; prints as a table."""
        self(*values)
        taken = self._taken(values)
        number = callobject.choose(self.specs, [a.shape for a in taken])
        return profile(self.artifact.variants[number], self.specs[number], taken)

    def save(self, path: str | Path) -> None:
        """Write the program as a `.tcomp` file; `tcomp.load` reads it."""
        artifact_file.write(self.artifact, path)
