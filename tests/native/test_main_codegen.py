"""main as native code: random programs on any number of threads give what NumPy gives; sizes, assertions and faults."""

import ctypes
import random
from itertools import pairwise

import numpy as np
import pytest
from programs import CODES, KERNELS, MACHINE, MEANING, N, artifact

from tcomp.codegen.llvm.builder import ModuleBuilder
from tcomp.codegen.llvm.main_helpers import helpers
from tcomp.ir import dtype as dt
from tcomp.ir import index as ix
from tcomp.ir.artifact import Artifact
from tcomp.ir.stmts import Alias, Assert, Launch, Main, Reserve
from tcomp.ir.types import Buffer
from tcomp.runtime import loader
from tcomp.runtime.callobject import CallSpec, call


def spec(a: Artifact, threads: int = 4) -> CallSpec:
    library = loader.load(a.objects[0].data, (a.entry, f"{a.entry}_plan"))
    table = np.array([*(c.data.ctypes.data for c in a.constants), 0], np.uint64)
    plan = library[f"{a.entry}_plan"]
    return CallSpec(library[a.entry], plan, table.ctypes.data, a.inputs, a.outputs, a.symbols, a.counters, None, threads,
                    True, (library, table, a))  # fmt: skip


def plan(s: CallSpec, *symbols: int) -> tuple[int, list[int]]:
    values, out = np.array([*symbols, 0], np.int64), np.zeros(s.plan_slots, np.int64)
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(s.plan)
    return function(values.ctypes.data, out.ctypes.data), out.tolist()


def buffer(name: str, shape=(N,)) -> Buffer:
    return Buffer(name, dt.i64, shape)


class Random:
    """A random program over the hand-written kernels, and what it computes."""

    def __init__(self, seed: int, shape=(N,)):
        rng = random.Random(seed)
        self.shape = shape
        self.names, self.steps, body = ["x", "y", "w"], [], []
        numbers = rng.sample(range(100), rng.randint(1, 14))
        for number in numbers:
            kernel = rng.choice(KERNELS)
            reads = [rng.choice(self.names[-4:]) for _ in kernel.inputs]
            out = "out" if number == numbers[-1] else f"t{number}"
            if out != "out":
                body.append(Reserve(buffer(out, shape)))
            body.append(Launch(kernel.name, (*reads, out), shape, number))
            self.steps.append((kernel.name, reads, out))
            self.names.append(out)
            if rng.random() < 0.3 and out != "out":
                body.append(Alias(buffer(f"a{number}", shape), out))
                self.steps.append((None, [out], f"a{number}"))
                self.names.append(f"a{number}")
        symbols = (N,) if shape == (N,) else ()
        inputs = (buffer("x", shape), buffer("y", shape))
        self.main = Main(inputs, (buffer("out", shape),), (buffer("w", shape),), symbols, tuple(body))

    def run(self, **values: np.ndarray) -> np.ndarray:
        for kernel, reads, out in self.steps:
            arguments = [values[name] for name in reads]
            values[out] = MEANING[kernel](*arguments) if kernel else arguments[0]
        return values["out"]


@pytest.mark.parametrize("seed", range(25))
def test_random_programs(seed):
    program = Random(seed)
    rng = np.random.default_rng(seed)
    w = rng.integers(-50, -20, 300)
    s = spec(artifact(program.main, {"w": w}))
    for n in (0, 1, 2, 5, 64, 300):
        x, y = rng.integers(-90, -60, n), rng.integers(-90, -60, n)
        expected = program.run(x=x, y=y, w=w[:n])
        for threads in (1, 4, 2):
            object.__setattr__(s, "threads", threads)
            for _ in range(4):
                status, results = call(s, [x, y])
                assert status == 0
                np.testing.assert_array_equal(results[0], expected)


@pytest.mark.parametrize("seed", range(5))
def test_random_static_programs(seed):
    program = Random(seed, (100,))
    w = np.arange(100) - 200
    s = spec(artifact(program.main, {"w": w}))
    for _ in range(20):
        status, (result,) = call(s, [w * 2, w * 3])
        assert status == 0
        np.testing.assert_array_equal(result, program.run(x=w * 2, y=w * 3, w=w))


def chain(length: int = 5) -> Main:
    names = ["x", *(f"t{k}" for k in range(length)), "out"]
    body = [Reserve(buffer(name)) for name in names[1:-1]]
    body += [Launch("inc", (a, b), (N,), k) for k, (a, b) in enumerate(pairwise(names))]
    return Main((buffer("x"),), (buffer("out"),), (), (N,), tuple(body))


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("n", [1, 50, 1000])
def test_a_fault_ends_the_call_on_all_threads(threads, n):
    s = spec(artifact(chain()), threads)
    x = np.zeros(n, np.int64)
    x[n // 2] = 11  # 13 in the third launch
    for _ in range(20):
        assert call(s, [x]) == (1 << 32, [])
        status, (result,) = call(s, [x * 0])
        assert status == 0 and (result == 6).all()


def test_the_plan_gives_sizes():
    main = chain()
    s = spec(artifact(main))
    assert plan(s, 100) == (0, [2 * 800 + 2 * 8 * 28, 8192, 100])  # two buffers of 8 bytes times n rounded up to 64
    assert plan(s, 0) == (0, [0, 8192, 0])


def test_assertions_and_bounds_of_symbols():
    n = ix.symbol("n", 2, 64, 2)
    inputs = (Buffer("x", dt.i64, (n,)), Buffer("y", dt.i64, (ix.symbol("m"),)))
    m = inputs[1].shape[0]
    body = (Assert(ix.equal(m, n), 0), Launch("inc", ("x", "out"), (n,), 0))
    a = artifact(Main(inputs, (Buffer("out", dt.i64, (n,)),), (), (n, m), body))
    s = spec(a)
    assert a.nodes == ("node zero", "the size n must be at least 2, at most 64, a multiple of 2")
    assert plan(s, 4, 4) == (0, [0, 8192, 4])
    for bad in ((0, 0), (66, 66), (3, 3)):
        assert plan(s, *bad)[0] == 2 << 32 | 1
    assert plan(s, 4, 6)[0] == 2 << 32


SIZES = [ix.symbol(name) for name in "abc"]


@pytest.mark.parametrize("sizes", [(1 << 22, 1 << 22, 1 << 22), (1 << 40, 1 << 20, 4), (1 << 62, 8, 2)])
def test_sizes_beyond_64_bits_are_no_memory(sizes):
    a, b, c = SIZES
    inputs = tuple(Buffer(f"x{k}", dt.i64, (d,)) for k, d in enumerate(SIZES))
    t = Buffer("t", dt.i64, (a, b, c))
    body = (Reserve(t), Launch("inc", ("x0", "t"), (a,), 0), Launch("inc", ("t", "out"), (a,), 1))
    s = spec(artifact(Main(inputs, (Buffer("out", dt.i64, (a,)),), (), tuple(SIZES), body)))
    assert plan(s, *sizes)[0] == 3 << 32
    assert plan(s, 2, 3, 4)[0] == 0


def test_index_expressions():
    a, b, c = SIZES
    x = [
        a + 2 * b - 3, ix.floordiv(a - 7, 4), ix.mod(a - 7, 4), ix.floordiv(a * b + 1, c), ix.mod(a * b + 1, c), ix.minimum(a, b),
        ix.maximum(a - 5, b), ix.equal(a, b), ix.less(a, c), ix.ceildiv(a, 16), ix.floordiv(a + b, 3), a * b * c,
    ]  # fmt: skip
    inputs = tuple(Buffer(f"x{k}", dt.i64, (d,)) for k, d in enumerate(SIZES))
    outputs = tuple(Buffer(f"out{k}", dt.i64, (d,)) for k, d in enumerate(x))
    body = (Launch("inc", ("x0", "out0"), (0,), 0),)
    s = spec(artifact(Main(inputs, outputs, (), tuple(SIZES), body)))
    rng = np.random.default_rng(1)
    for _ in range(50):
        values = [int(v) for v in rng.integers(1, 30, 3)]
        sizes = dict(zip("abc", values))
        assert plan(s, *values)[1][2:] == [ix.evaluate(d, sizes) for d in x]


def test_scratch_is_the_largest_kernels():
    assert {name: code.scratch for name, code in CODES.items() if code.scratch} == {"one": 8000}
    assert plan(spec(artifact(chain())), 1)[1][1] == 8192


COUNTING = """
define internal i64 @t.run(ptr %frame, i64 %block, ptr %count) {
  %n = load i64, ptr %count
  %n1 = add i64 %n, 1
  store i64 %n1, ptr %count
  %third = icmp eq i64 %n1, 3
  %status = select i1 %third, i64 4294967296, i64 0
  store i64 %status, ptr %frame
  ret i64 0
}
define i64 @t.range(ptr %frame, ptr %count) {
  %left = call i1 @main.range(ptr @t.run, ptr %frame, i64 0, i64 1000, ptr %frame, ptr %count)
  %found = zext i1 %left to i64
  ret i64 %found
}
"""


def test_a_fault_of_another_thread_ends_a_range_at_the_next_block(load):
    """The blocks of a large launch may be many, and their memory more than there is."""
    module = ModuleBuilder()
    helpers(module, MACHINE)
    module.add(COUNTING)
    library = load(module.text(), ["t.range"])
    frame, count = np.zeros(2, np.int64), np.zeros(1, np.int64)
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(library["t.range"])
    assert function(frame.ctypes.data, count.ctypes.data) == 1
    assert count[0] == 3
