"""Calls of a compiled program: `build` makes the callable behind `f(x, y)`, `call` is the same by ctypes.

The callable of `build` takes exactly the arrays that the program was compiled for (C-contiguous, aligned, of the right
dtype and shape; shapes bind symbols) and returns a new array, or a tuple of them. It may have several variants of a program,
of which it runs the first that takes the sizes. For everything else, and where the
program reports a fault, it returns `NotImplemented`: the caller then makes the inputs fit, uses `call`, and raises what
its status word says. Results live in blocks of the allocator and go back to it with the last reference.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tcomp import forks
from tcomp.ir import artifact
from tcomp.ir.artifact import FRAME_SLOTS, Port
from tcomp.ir.dtype import ALL, to_numpy
from tcomp.runtime import cpython, memory, pool

OUT_OF_MEMORY = 3 << 32  # the status word of a call that found no memory: code 3 is TC0606, of no node
_LINE = 64


@dataclass(frozen=True, eq=False, slots=True)
class CallSpec:
    """A loaded program. entry, plan (0 where sizes are static) and constants (their table) are addresses.

    counters: lines of 64 bytes. sizes: what the plan would write, where that is static. threads: how many may walk.
    release_gil: whether a call is long enough for that to pay. keep: whatever has to live as long as the callable.
    """

    entry: int
    plan: int
    constants: int
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    symbols: tuple[str, ...]
    counters: int
    sizes: tuple[int, ...] | None
    threads: int
    release_gil: bool
    keep: object

    def __post_init__(self) -> None:
        assert (self.plan != 0) == (self.sizes is None), "either a plan or static sizes"
        assert self.sizes is None or len(self.sizes) == self.plan_slots

    @property
    def bound(self) -> tuple[str, ...]:
        """What the table of symbols holds, in order."""
        return artifact.bound(self.inputs, self.symbols)

    @property
    def frame_slots(self) -> int:
        """Slots of what a call keeps on its stack: the frame, and the tables that it names."""
        return FRAME_SLOTS + len(self.bound) + self.plan_slots + len(self.inputs) + len(self.outputs)

    @property
    def plan_slots(self) -> int:
        """Slots of the plan's table: two sizes and every dimension of every output."""
        return 2 + sum(len(port.shape) for port in self.outputs)


def available() -> bool:
    """Whether `build` gives a native callable here; `cpython.refusal` says why not."""
    return cpython.available()


@forks.whole()
def build(spec: CallSpec, *others: CallSpec) -> Callable[..., Any]:
    """The callable of a program: positional arrays in; an array, a tuple of arrays or NotImplemented out. others: variants of it,
    which have the same inputs but for their sizes, in the order in which they are tried."""
    specs = (spec, *others)
    if not available() or not all(map(_binds_all, specs)):
        return _fallback(specs)
    most = max(s.frame_slots for s in specs)
    following, kept = 0, []
    for s in reversed(specs):
        descriptor, parts = _descriptor(s, most, following)
        following = descriptor.ctypes.data
        kept += [s, descriptor, parts]
    return cpython.function_over(following, tuple(kept))


def choose(specs: Sequence[CallSpec], shapes: list[tuple[int, ...]]) -> int:
    """Which of a program's variants takes inputs of these shapes: the number of the first, or of the last where none does."""
    return next((k for k, spec in enumerate(specs) if _takes(spec, shapes)), len(specs) - 1)


def _takes(spec: CallSpec, shapes: list[tuple[int, ...]]) -> bool:
    symbols = bind(spec, shapes)
    return symbols is not None and _plan(spec, *_tables(spec, symbols)) == 0


def call(spec: CallSpec, inputs: list[np.ndarray]) -> tuple[int, list[np.ndarray]]:
    """Run a program on arrays that fit it (C-contiguous, aligned, of its dtypes and shapes): status word and results.

    The results are empty where the status is not 0. Raises ValueError where a shape does not bind the symbols.
    """
    symbols = bind(spec, [array.shape for array in inputs])
    if symbols is None:
        raise ValueError("shapes that do not fit the program")
    values, sizes = _tables(spec, symbols)
    status = _plan(spec, values, sizes)
    if status:
        return status, []
    addresses = np.array([*(array.ctypes.data for array in inputs), 0], np.uint64)
    return _run(spec, values, sizes, addresses)


def _tables(spec: CallSpec, symbols: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """The tables of symbols and of sizes, as the plan takes them."""
    return np.array([*symbols, 0], np.int64), np.array(spec.sizes or [0] * spec.plan_slots, np.int64)


def bind(spec: CallSpec, shapes: list[tuple[int, ...]]) -> list[int] | None:
    """What these shapes of the inputs put into the table of symbols, or None where one does not fit.

    Whether dimensions that are expressions are right is for the plan to say; a symbol that no input has alone is 0.
    """
    if len(shapes) != len(spec.inputs):
        return None
    values: dict[str, int] = {}
    for port, shape in zip(spec.inputs, shapes):
        if len(port.shape) != len(shape):
            return None
        for wanted, size in zip(port.shape, shape):
            if (values.setdefault(wanted, size) if isinstance(wanted, str) else wanted) != size:
                return None
    return [values.get(name, 0) for name in spec.bound]


def sizes(spec: CallSpec, inputs: list[np.ndarray]) -> dict[str, int]:
    """The symbols' values, and those of expressions among the inputs' sizes, by their text."""
    return dict(zip(spec.bound, bind(spec, [array.shape for array in inputs]) or ()))


def _binds_all(spec: CallSpec) -> bool:
    """Whether the inputs bind every symbol."""
    return {d for port in spec.inputs for d in port.shape}.issuperset(spec.symbols)


def _fallback(specs: tuple[CallSpec, ...]) -> Callable[..., Any]:
    dtypes = [_numpy_dtype(port) for port in specs[0].inputs]
    checked = all(map(_binds_all, specs))

    def program(*arrays: Any) -> Any:
        if not checked or len(arrays) != len(dtypes) or not all(map(_fits, arrays, dtypes)):
            return NotImplemented
        shapes = [array.shape for array in arrays]
        spec = specs[choose(specs, shapes)]
        if bind(spec, shapes) is None:
            return NotImplemented
        status, results = call(spec, list(arrays))
        if status:
            return NotImplemented
        return results[0] if len(results) == 1 else tuple(results)

    return program


def _fits(array: object, dtype: np.dtype) -> bool:
    if type(array) is not np.ndarray or array.dtype != dtype:
        return False
    return array.flags.c_contiguous and array.flags.aligned


def _numpy_dtype(port: Port) -> np.dtype:
    return to_numpy(ALL[port.dtype])


def _descriptor(spec: CallSpec, frame_slots: int, following: int) -> tuple[np.ndarray, list[object]]:
    """The slots that runtime/native/call.ll reads, and what they point to. frame_slots: enough for all variants; following: the
    address of the next variant's descriptor, or 0."""
    seen: set[str] = set()
    parts: list[object] = []
    inputs, outputs = [], []
    for port in spec.inputs:
        rules = np.array([*(_rule(spec, d, seen) for d in port.shape), 0], np.int64)
        dtype = _numpy_dtype(port)
        parts += [rules, dtype]
        inputs += [id(dtype), len(port.shape), rules.ctypes.data]
    for port in spec.outputs:
        dtype = _numpy_dtype(port)
        parts.append(dtype)
        outputs += [id(dtype), len(port.shape), dtype.itemsize, int("?" in port.shape)]
    tables = [np.array([*table, 0], np.int64) for table in (spec.sizes or (), inputs, outputs)]
    static, records_in, records_out = (table.ctypes.data for table in tables)
    slots = [
        spec.entry, spec.plan, spec.constants, len(spec.inputs), len(spec.outputs), len(spec.bound),
        spec.counters * _LINE, spec.threads, int(spec.release_gil), static, records_in, records_out, spec.plan_slots,
        frame_slots, following,
    ]  # fmt: skip
    return np.array(slots, np.int64), [*parts, *tables]


def _rule(spec: CallSpec, dimension: int | str, seen: set[str]) -> int:
    """A dimension as call.ll checks it: a size, or the complement of 2 * its place among the symbols + (1 if it is bound)."""
    if isinstance(dimension, int):
        return dimension
    again = dimension in seen
    seen.add(dimension)
    return ~(2 * spec.bound.index(dimension) + again)


def _plan(spec: CallSpec, values: np.ndarray, sizes: np.ndarray) -> int:
    """Fill in `sizes`; the plan's status word."""
    if not spec.plan:
        return 0
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(spec.plan)
    return int(function(values.ctypes.data, sizes.ctypes.data))


def _run(spec: CallSpec, values: np.ndarray, sizes: np.ndarray, inputs: np.ndarray) -> tuple[int, list[np.ndarray]]:
    """Arena, counters, outputs, the call, and arrays around its results."""
    arena, scratch = (int(size) for size in sizes[:2])
    scratch_at = _aligned(arena)
    counters_at = _aligned(scratch_at + scratch * spec.threads)
    outputs = np.zeros(len(spec.outputs) + 1, np.uint64)
    space = memory.alloc(counters_at + spec.counters * _LINE)
    try:
        if not space or not _allocate_outputs(spec, sizes, outputs):
            _free_outputs(outputs)
            return OUT_OF_MEMORY, []
        ctypes.memset(space + counters_at, 0, spec.counters * _LINE)
        tables = [table.ctypes.data for table in (values, inputs, outputs, sizes[2:])]
        frame = np.array([0, 0, space, space + scratch_at, spec.constants, space + counters_at, *tables, 0], np.int64)
        pool.run(spec.entry, frame.ctypes.data, spec.threads)
        free_kept(int(frame[-1]))
    finally:
        memory.free(space)
    status = int(frame[0])
    if status:
        _free_outputs(outputs)
        return status, []
    return 0, _wrap_outputs(spec, sizes, outputs)


def free_kept(block: int) -> None:
    """Free what main allocated for itself: a list from slot 10 of the frame on."""
    while block:
        following = ctypes.c_int64.from_address(block).value
        memory.free(block)
        block = following


def _aligned(offset: int) -> int:
    return -(-offset // _LINE) * _LINE


def _allocate_outputs(spec: CallSpec, sizes: np.ndarray, outputs: np.ndarray) -> bool:
    """Buffers of the outputs whose size is known; False where there is no memory."""
    for k, (port, shape) in enumerate(_shapes(spec, sizes)):
        if "?" in port.shape:
            continue
        size = _numpy_dtype(port).itemsize
        for extent in shape:
            size *= extent
        outputs[k] = memory.alloc(size) if size < 1 << 46 else 0
        if not outputs[k]:
            return False
    return True


def _free_outputs(outputs: np.ndarray) -> None:
    for address in outputs:
        memory.free(int(address))


def _shapes(spec: CallSpec, sizes: np.ndarray) -> list[tuple[Port, tuple[int, ...]]]:
    """Every output with the dimensions that the table holds for it."""
    at, shapes = 2, []
    for port in spec.outputs:
        end = at + len(port.shape)
        shapes.append((port, tuple(int(size) for size in sizes[at:end])))
        at = end
    return shapes


def _wrap_outputs(spec: CallSpec, sizes: np.ndarray, outputs: np.ndarray) -> list[np.ndarray]:
    arrays = []
    for (port, shape), address in zip(_shapes(spec, sizes), outputs):
        dtype = _numpy_dtype(port)
        count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        block = np.asarray(_Block(int(address), count))
        arrays.append(block.view(dtype).reshape(shape))
    return arrays


class _Block:
    """A block of the allocator as bytes that NumPy can view; it goes back with the last view."""

    def __init__(self, address: int, size: int) -> None:
        self._address = address
        self.__array_interface__ = {"version": 3, "data": (address, False), "shape": (size,), "typestr": "|u1"}

    def __del__(self, free: Callable[[int], None] = memory.free) -> None:
        free(self._address)
