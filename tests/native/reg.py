"""Hand-built REG kernels for tests: machines, running a kernel natively, and comparing with the interpreter."""

import ctypes
import zlib

import numpy as np

from tcomp.codegen.llvm.builder import ModuleBuilder
from tcomp.codegen.llvm.compile import compile_text, host, named
from tcomp.codegen.llvm.kernel import emit_kernel
from tcomp.ir import index, layout, tile
from tcomp.ir.dtype import ALL, to_numpy
from tcomp.ir.interp.tile import run_kernel
from tcomp.ir.machine import Machine, family_of
from tcomp.ir.stmts import Grid, Kernel
from tcomp.runtime import loader

NAMES = ["bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "bf16", "f32", "f64"]
COMPUTED = tuple(ALL[n] for n in NAMES)  # dtypes that code computes with
V3 = frozenset(["sse4.1", "sse4.2", "ssse3", "avx", "avx2", "fma", "f16c", "bmi", "bmi2", "popcnt", "lzcnt", "movbe"])


def machine(name: str) -> Machine:
    """A machine of one of the named targets, or this one."""
    target = named(name)
    if name == "host":
        features = frozenset(f[1:] for f in target.features.split(",") if f.startswith("+"))
        return Machine(name, target.cpu, features, family_of(features, "x86_64"), 1)
    features = {"x86-64": frozenset(), "x86-64-v3": V3, "aarch64": frozenset({"neon"})}[name]
    return Machine(name, target.cpu, features, family_of(features, name), 1)


HOST = machine("host")
MACHINES = {n: machine(n) for n in ("host", "x86-64-v3", "x86-64")}


def emit(kernel: Kernel, m: Machine = HOST) -> tuple[str, object]:
    """The module text of a kernel with an exported entry for each phase, and its code."""
    module = ModuleBuilder()
    code = emit_kernel(module, kernel, m)
    for k, phase in enumerate(code.phases):
        module.add(
            f"define i64 @phase{k}(ptr %a, i64 %b, ptr %s) {{\n  %r = call i64 @{phase}(ptr %a, i64 %b, ptr %s)\n  ret i64 %r\n}}"
        )
    return module.text(), code


class Native:
    """A compiled kernel."""

    def __init__(self, kernel: Kernel, m: Machine = HOST) -> None:
        self.kernel = kernel
        self.text, self.code = emit(kernel, m)
        names = tuple(f"phase{k}" for k in range(len(self.code.phases)))
        self.library = loader.load(compile_text(self.text, named(m.name) if m.name != "host" else host()), names)
        kind = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
        self.phases = [kind(self.library[n]) for n in names]

    def __call__(self, arrays: dict[str, np.ndarray], symbols: dict[str, int] | None = None) -> int:
        """Run all blocks of all phases in order; gives the first status word that is not 0."""
        symbols = symbols or {}
        k = self.kernel
        work = [np.full(index.evaluate(layout.size(b), symbols), 0xFF, np.uint8) for b in k.workspace]
        kept = [arrays[b.name] for b in (*k.inputs, *k.outputs)] + work
        slots = [a.ctypes.data for a in kept] + [symbols[s["name"]] for s in k.symbols]
        args = (ctypes.c_int64 * max(1, len(slots)))(*slots)
        scratch = np.full(self.code.scratch + 64, 0xFF, np.uint8)
        aligned = scratch.ctypes.data + -scratch.ctypes.data % 64
        for phase, run in zip(k.phases, self.phases):
            counts = [-(-index.evaluate(a.extent, symbols) // a.step) for a in phase.axes]
            for block in range(int(np.prod(counts, dtype=np.int64))):
                status = run(ctypes.addressof(args), block, aligned)
                if status:
                    return status
        return 0


def kernel(inputs, outputs, *body, symbols=(), axes=(), workspace=(), name="k") -> Kernel:
    """A kernel of one phase."""
    return Kernel(name, tuple(inputs), tuple(outputs), tuple(symbols), (Grid(tuple(axes), tuple(body)),), tuple(workspace))


def memory_of(b, symbols, rng, values=None):
    """Room for a buffer: random elements, or garbage."""
    shape = tuple(index.evaluate(d, symbols) for d in b.shape)
    dtype = to_numpy(b.dtype)
    if b.dtype.is_float:
        return rng.standard_normal(shape).astype(dtype)
    if b.dtype.kind == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    return rng.integers(0, 100, shape).astype(dtype)


def check(k: Kernel, m: Machine = HOST, arrays=None, symbols=None, rtol=0.0, native=None):
    """Run a kernel natively and by the interpreter, and compare the outputs; gives them."""
    symbols = symbols or {}
    rng = np.random.default_rng(zlib.crc32(k.name.encode()))
    arrays = dict(arrays or {})
    for b in (*k.inputs, *k.outputs):
        arrays.setdefault(b.name, memory_of(b, symbols, rng))
    expected = {n: a.copy() for n, a in arrays.items()}
    run_kernel(k, expected, symbols)
    run = native or Native(k, m)
    assert run(arrays, symbols) == 0
    for b in k.outputs:
        same(arrays[b.name], expected[b.name], rtol)
    for b in k.inputs:
        same(arrays[b.name], expected[b.name], 0.0)
    return arrays


def same(got, wanted, rtol=0.0):
    """Equal: NaN to NaN, zeros whatever their sign where a tolerance is given."""
    assert got.dtype == wanted.dtype and got.shape == wanted.shape
    if got.dtype.kind in "biu":
        np.testing.assert_array_equal(got, wanted)
        return
    wide = np.float64
    np.testing.assert_allclose(got.astype(wide), wanted.astype(wide), rtol=rtol, atol=rtol * 4, equal_nan=True)


def window(buffer, *starts, extents, valid=None, other=None):
    """An ordinary window: the last axes of the buffer run over the tile axes."""
    rank, tiled = buffer.rank, len(extents)
    positions = list(starts) + [0] * (rank - len(starts))
    for k, e in enumerate(extents):
        at = rank - tiled + k
        positions[at] = index.add(positions[at], tile.axis(k, e))
    counts = None if valid is None else (None,) * (tiled - 1) + (valid,)
    return tile.load(buffer, tuple(positions), tuple(extents), counts, other)
