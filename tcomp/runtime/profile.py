"""Where the time of a program goes: every launch timed on one thread, beside its bytes and flops."""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass

import numpy as np

from tcomp.errors import Error
from tcomp.ir.artifact import Artifact
from tcomp.ir.dtype import ALL, to_numpy
from tcomp.runtime import memory
from tcomp.runtime.callobject import CallSpec, bind, free_kept
from tcomp.runtime.guards import evaluate

_LINE = 8  # slots of a line of counters
_SECONDS, _LEAST, _MOST = 0.3, 3, 1000  # how long and how often the program is run


@dataclass(frozen=True, slots=True)
class Row:
    """A launch: the shortest time of all runs, bytes of the buffers it touches, estimated operations."""

    kernel: str
    seconds: float
    bytes: int
    flops: int


@dataclass(frozen=True, slots=True)
class Profile:
    """The launches of a program in order, and the shortest time of a whole run on one thread."""

    rows: tuple[Row, ...]
    seconds: float
    runs: int

    def __str__(self) -> str:
        width = max((len(row.kernel) for row in self.rows), default=6)
        lines = [f"{'kernel':{width}}  {'time':>10}  {'share':>6}  {'GB/s':>7}  {'GFLOP/s':>8}"]
        for row in self.rows:
            share, rate = row.seconds / self.seconds if self.seconds else 0.0, 1e-9 / max(row.seconds, 1e-9)
            speeds = f"{row.bytes * rate:7.2f}  {row.flops * rate:8.2f}"
            lines.append(f"{row.kernel:{width}}  {row.seconds * 1e6:7.1f} us  {share:6.1%}  {speeds}")
        lines.append(f"{'one run':{width}}  {self.seconds * 1e6:7.1f} us  (shortest of {self.runs}, one thread)")
        return "\n".join(lines)


def profile(artifact: Artifact, spec: CallSpec, inputs: list[np.ndarray]) -> Profile:
    """Run a program on inputs that fit it, again and again for a third of a second. Raises TC0604 to TC0606 where it fails."""
    symbols = bind(spec, [a.shape for a in inputs])
    assert symbols is not None, "the inputs were checked before"
    frame = _Frame(spec, symbols, inputs)
    phases, total, runs, begun = frame.run(), float("inf"), 0, time.perf_counter()
    while runs < _LEAST or (time.perf_counter() - begun < _SECONDS and runs < _MOST):
        start = time.perf_counter()
        times = frame.run()
        total = min(total, time.perf_counter() - start)
        phases = np.minimum(phases, times) if runs else times
        runs += 1
    return Profile(_rows(artifact, phases, dict(zip(spec.symbols, symbols))), total, runs)


def _rows(artifact: Artifact, phases: np.ndarray, symbols: dict[str, int]) -> tuple[Row, ...]:
    rows, at = [], 0
    launches = artifact.report.get("launches", [])
    assert isinstance(launches, list), "the report tells of every launch"
    for kernel, count, size, work in launches:
        seconds = float(phases[at : at + count].sum()) * 1e-9
        facts = [v if isinstance(v, int) else evaluate(v, symbols) for v in (size, work)]
        rows.append(Row(kernel, seconds, *facts))
        at += count
    return tuple(rows)


class _Frame:
    """The frame of a call on one thread that notes times (`ir/artifact.py` names its slots), used for every run."""

    def __init__(self, spec: CallSpec, symbols: list[int], inputs: list[np.ndarray]) -> None:
        self._run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(spec.entry)
        self._counters = np.zeros((spec.counters + 1, _LINE), np.int64)
        values = np.array([*symbols, 0], np.int64)
        sizes = _sizes(spec, values)
        outputs = _outputs(spec, sizes)
        arena, scratch = (_space(int(size)) for size in sizes[:2])
        tables = [np.array([*(a.ctypes.data for a in arrays), 0], np.uint64) for arrays in (inputs, outputs)]
        self._outputs = tables[1]
        self._later = [k for k, port in enumerate(spec.outputs) if "?" in port.shape]
        self._outputs[self._later] = 0
        self._keep = (spec, inputs, outputs, values, sizes, arena, scratch, tables)
        places = [a.ctypes.data for a in (self._counters, values, *tables, sizes[2:])]
        self._slots = np.array([0, 0, arena.ctypes.data, scratch.ctypes.data, spec.constants, *places, 0], np.uint64)

    def run(self) -> np.ndarray:
        """One run: the nanoseconds of each phase."""
        self._slots[0] = 0
        self._counters[:] = 0
        self._slots[-1] = 0
        self._run(self._slots.ctypes.data, 0)
        free_kept(int(self._slots[-1]))
        for k in self._later:
            memory.free(int(self._outputs[k]))
            self._outputs[k] = 0
        if self._slots[0]:
            raise Error("TC0604", "the program fails on these inputs", hint="call it on them: the error says where")
        return self._counters[:-1:2, 0].copy()


def _sizes(spec: CallSpec, values: np.ndarray) -> np.ndarray:
    """What the plan says: bytes of arena and scratch, dimensions of the outputs."""
    if spec.sizes is not None:
        return np.array(spec.sizes, np.int64)
    sizes = np.zeros(spec.plan_slots, np.int64)
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(spec.plan)
    if function(values.ctypes.data, sizes.ctypes.data):
        raise Error("TC0605", "the program does not accept these sizes", hint="call it on them: the error says why")
    return sizes


def _outputs(spec: CallSpec, sizes: np.ndarray) -> list[np.ndarray]:
    outputs, at = [], 2
    for port in spec.outputs:
        shape = tuple(np.maximum(sizes[at : at + len(port.shape)], 0))  # those that main allocates have no size yet
        outputs.append(np.empty(shape, to_numpy(ALL[port.dtype])))
        at += len(port.shape)
    return outputs


def _space(size: int) -> np.ndarray:
    """`size` bytes that begin at a page."""
    whole = np.zeros(size + 4096, np.uint8)
    return whole[-whole.ctypes.data % 4096 :]
