"""Control flow as native code: random programs on any number of threads give what the interpreter gives; faults, timing."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tcomp.api import Compiler
from tcomp.codegen.llvm import walk
from tcomp.errors import Error
from tcomp.frontend.jit import Options
from tcomp.ir import dtype as dt
from tcomp.ir import index as ix
from tcomp.ir.graph import Func, full, reshape
from tcomp.ir.interp import graph
from tcomp.ir.ops import apply, item, parameter
from tcomp.ir.region import Region, region_parameter
from tcomp.runtime.executable import Executable
from tcomp.schedule.lower import body
from tcomp.testing.control import control_flow, inputs_of

pytestmark = pytest.mark.usefixtures("fast_code")


def compiled(func: Func, threads: int = 4) -> Executable:
    exe = Compiler(use_cache=False)(func, Options())
    object.__setattr__(exe.specs[0], "threads", threads)
    object.__setattr__(exe.specs[0], "release_gil", True)
    return exe


@pytest.fixture(params=["shared", "narrow", "alone"])
def way(request, monkeypatch):
    """How control flow is run: by all threads, by one where the program finds that enough, or by one as the text says."""
    monkeypatch.setattr(body, "ALONE", 1 << 60 if request.param == "alone" else -1)
    monkeypatch.setattr(walk, "NARROW", 0 if request.param == "shared" else 1)
    return request.param


@pytest.mark.parametrize("seed", range(10))
def test_random_programs(way, seed):
    func = control_flow(seed)
    exe = compiled(func)
    for rows in (0, 1, 7, 40):
        inputs = inputs_of(seed + rows, rows)
        expected = graph.run(func, inputs)
        for _ in range(10):
            for got, want in zip(exe(*inputs), expected):
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_calls_at_the_same_time(way):
    func = control_flow(2)
    exe = compiled(func)
    sets = [inputs_of(k, 5 + k) for k in range(4)]
    expected = [graph.run(func, inputs) for inputs in sets]

    def call(k: int) -> None:
        for _ in range(50):
            for got, want in zip(exe(*sets[k]), expected[k]):
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(call, range(4)))


def recurrence(rows: int, width: int) -> Func:
    """h = tanh(x[t] + h w), wide enough for several blocks."""
    n, t = ix.symbol("n"), ix.symbol("step")
    shapes = {"x": (n, rows, width), "h": (rows, width), "w": (width, width)}
    x, h, w = (parameter(name, dt.f32, shape) for name, shape in shapes.items())
    p, q, r = (region_parameter(k, v.type) for k, v in enumerate((h, x, w)))
    row = reshape(apply("slice", q, start=(t, 0, 0), shape=(1, rows, width), step=(1, 1, 1)), (rows, width))
    new = apply("tanh", apply("add", row, apply("dot", p, r, batch=((), ()), contract=((1,), (0,)))))
    loop = apply("loop", h, x, w, body=Region((p, q, r), (new, new)), carried=1, extent=n, counter=t, conditional=False)
    return Func("recurrence", (x, h, w), (item(loop, 1), item(loop, 0)), ("y", "last"))


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_many_turns_of_several_blocks(monkeypatch, threads):
    monkeypatch.setattr(body, "ALONE", -1)
    func = recurrence(200, 64)
    exe = compiled(func, threads)
    rng = np.random.default_rng(0)
    for n in (0, 1, 60):
        x, h, w = (rng.standard_normal(s).astype(np.float32) * 0.1 for s in ((n, 200, 64), (200, 64), (64, 64)))
        expected = graph.run(func, [x, h, w])
        for _ in range(10):
            for got, want in zip(exe(x, h, w), expected):
                np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)


def test_an_index_out_of_range_in_a_turn_ends_the_call(way):
    n, t = ix.symbol("n"), ix.symbol("step")
    table, at = parameter("table", dt.f32, (5,)), parameter("at", dt.i64, (n,))
    total, q, r = region_parameter(0, full(0.0, dt.f32).type), region_parameter(1, table.type), region_parameter(2, at.type)
    place = reshape(apply("slice", r, start=(t,), shape=(1,), step=(1,)), ())
    region = Region((total, q, r), (apply("add", total, apply("gather", q, place, axis=0)),))
    start = full(0.0, dt.f32)
    loop = apply("loop", start, table, at, body=region, carried=1, extent=n, counter=t, conditional=False)
    exe = compiled(Func("f", (table, at), (item(loop, 0),), ("y",)))
    table_ = np.arange(5, dtype=np.float32)
    assert exe(table_, np.array([1, 2, 4])) == 7
    for _ in range(10):
        with pytest.raises(Error, match="TC0604"):
            exe(table_, np.array([1, 2, 5, 1, 1, 1, 1]))
        assert exe(table_, np.array([4, 4])) == 8


def test_a_size_that_does_not_fit_in_a_turn_ends_the_call(way):
    """In turn t, m elements are read as a matrix of t + 1 rows of 4."""
    m, n, t = ix.symbol("m"), ix.symbol("n"), ix.symbol("step")
    x, turns = parameter("x", dt.f32, (m,)), parameter("turns", dt.f32, (n,))
    total, q = region_parameter(0, full(0.0, dt.f32).type), region_parameter(1, x.type)
    rows = apply("reduce", reshape(q, (t + 1, 4)), monoid="max", axes=(0,))
    region = Region((total, q), (apply("add", total, apply("reduce", rows, monoid="add", axes=(0,))),))
    loop = apply("loop", full(0.0, dt.f32), x, body=region, carried=1, extent=n, counter=t, conditional=False)
    exe = compiled(Func("f", (x, turns), (item(loop, 0),), ("y",)))
    assert exe(np.arange(4, dtype=np.float32), np.zeros(1, np.float32)) == 6
    assert exe(np.arange(5, dtype=np.float32), np.zeros(0, np.float32)) == 0
    for m_, n_ in ((4, 2), (8, 1), (5, 1)):
        with pytest.raises(Error, match="TC0605"):
            exe(np.zeros(m_, np.float32), np.zeros(n_, np.float32))


def test_the_profile_counts_all_turns(way):
    exe = compiled(recurrence(1, 64))
    x, h, w = (np.ones(s, np.float32) for s in ((50, 1, 64), (1, 64), (64, 64)))
    found = exe.profile(x, h, w)
    shared = [row for row in found.rows if row.kernel.startswith("k") and "dot" in row.kernel]
    rows = shared if way == "shared" else [row for row in found.rows if row.kernel.startswith("repeat (")]
    assert len(rows) == 1 and rows[0].seconds > 0.3 * found.seconds
