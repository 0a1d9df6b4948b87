"""A stand-in for the compiler: programs are evaluated by the interpreter, and counted."""

import contextlib

import numpy as np

from tcomp.errors import Error
from tcomp.frontend import jit as jit_module
from tcomp.ir.interp import graph


class Interpreted:
    """An executable that runs the GRAPH interpreter. Its fast path takes plain arrays of the exact shapes only."""

    def __init__(self, func, options):
        self.func, self.options, self.calls = func, options, 0

    def call_flat(self, *arrays):
        fits = len(arrays) == len(self.func.params) and all(type(a) is np.ndarray and a.dtype.isnative for a in arrays)
        if not fits or any(p.type.rank != a.ndim for p, a in zip(self.func.params, arrays)):
            return NotImplemented
        for p, a in zip(self.func.params, arrays):
            if any(isinstance(d, int) and d != n for d, n in zip(p.type.shape, a.shape)):
                return NotImplemented
            if graph.to_numpy(p.type.dtype) != a.dtype:
                return NotImplemented
        try:
            graph.bind_symbols(self.func, arrays)
        except Error:
            return NotImplemented
        return self(*arrays)

    def __call__(self, *arrays):
        self.calls += 1
        arrays = [np.asarray(a) for a in arrays]
        *first, last = (self.func, *self.func.others)
        results = graph.run(next((f for f in first if takes(f, arrays)), last), arrays)
        return results[0] if len(results) == 1 else tuple(results)


def takes(func, arrays):
    """Whether a variant of a program takes arrays of these sizes."""
    try:
        graph.bind_symbols(func, arrays)
    except Error:
        return False
    return True


class Lowered:
    def __init__(self, func, options):
        self.func, self.options = func, options

    def text(self, stage):
        return f"{stage} of {self.func.name}"

    def compile(self):
        return Interpreted(self.func, self.options)


class Interpreter:
    """A compiler. `made` holds what it compiled, in order."""

    def __init__(self):
        self.made = []

    def __call__(self, func, options):
        self.made.append(Interpreted(func, options))
        return self.made[-1]

    def lower_func(self, func, options):
        return Lowered(func, options)


@contextlib.contextmanager
def interpreter():
    """The interpreter as the compiler of all jitted functions."""
    before, mine = jit_module._compiler, Interpreter()
    jit_module.set_compiler(mine)
    try:
        yield mine
    finally:
        jit_module.set_compiler(before)


def run(fn, *args, **kwargs):
    """`fn` traced and interpreted."""
    with interpreter():
        return jit_module.jit(fn)(*args, **kwargs)


def same(got, want, tolerance=0.0):
    """Whether dtype, shape and values (NaN in the same places) agree."""
    got, want = np.asarray(got), np.asarray(want)
    if got.dtype != want.dtype or got.shape != want.shape:
        return False
    if want.dtype.kind not in "fV":
        return bool(np.array_equal(got, want))
    return bool(np.allclose(got.astype(np.float64), want.astype(np.float64), tolerance, tolerance, equal_nan=True))
