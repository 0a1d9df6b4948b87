"""The interpreter of kernels agrees with NumPy, and refuses what breaks memory."""

import numpy as np
import pytest
import sample_kernels as k
from sample_kernels import Buffer, By, For, Grid, GridAxis, Kernel, Launch, N, Store, f32, ix, t

from tcomp.errors import Error
from tcomp.ir.interp.tile import run_kernel, run_main
from tcomp.ir.module import Module
from tcomp.ir.stmts import Alloc, Let, Main, Reserve

RNG = np.random.default_rng(0)


def run(kernel, symbols, *arrays, seed=0):
    """The outputs of a kernel, from its inputs in order."""
    buffers = dict(zip((b.name for b in kernel.inputs), arrays))
    for b in kernel.outputs:
        shape = tuple(ix.evaluate(d, symbols) for d in b.shape)
        buffers[b.name] = np.full(shape, 7, np.int64 if b.dtype == k.i64 else np.float32)
    run_kernel(kernel, buffers, symbols, seed)
    return [buffers[b.name] for b in kernel.outputs]


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("n", [0, 1, 8, 19])
def test_map(n):
    x = normal(n, 100)
    assert np.array_equal(run(k.map_kernel(), {"n": n}, x)[0], np.maximum(x, 0) * 2)


@pytest.mark.parametrize("m", [1, 16, 70])
def test_softmax(m):
    x = normal(5, m)
    e = np.exp(x - x.max(1, keepdims=True))
    assert np.allclose(run(k.softmax_kernel(), {"n": 5, "m": m}, x)[0], e / e.sum(1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("n", [0, 1, 33])
def test_gemm_through_packed_panels(n):
    a, b = normal(n, 100), normal(100, 70)
    assert np.allclose(run(k.gemm_kernel(), {"n": n}, a, b)[0], np.maximum(a @ b, 0), atol=1e-4)


@pytest.mark.parametrize("n", [1, 64, 100])
def test_carried_register_tile_with_masked_columns(n):
    x = normal(9, n)
    assert np.allclose(run(k.column_sum_kernel(), {"m": 9, "n": n}, x)[0], x.sum(0), atol=1e-5)


def test_valid_gives_the_identity():
    x = normal(4, 13)
    assert np.allclose(run(k.row_sum_kernel(), {"n": 4}, x)[0], x.sum(1), atol=1e-5)


def test_gather_and_its_check():
    x, where = normal(6, 8), np.array([5, 0, 3])
    assert np.array_equal(run(k.gather_kernel(), {"m": 6, "n": 3}, x, where)[0], x[where])
    with pytest.raises(Error, match="TC0604"):
        run(k.gather_kernel(), {"m": 6, "n": 3}, x, np.array([0, 6, 1]))


def test_else_outside_the_buffer():
    x, w = normal(20, 32), normal(3)
    wide = np.pad(x, [(0, 0), (1, 1)])
    want = sum(wide[:, j : j + 32] * w[j] for j in range(3)) * np.where(np.arange(20) % 2, -1, 1)[:, None]
    assert np.allclose(run(k.convolution_kernel(), {}, x, w)[0], want, atol=1e-5)


def test_phases_share_the_workspace():
    x = normal(7, 10)
    assert np.allclose(run(k.two_phase_kernel(), {"n": 7}, x)[0], x - x.sum(), atol=1e-4)


def test_routine():
    x = np.array([3, np.nan, 1, 9, 9, 2, 0, -1, 5], np.float32)
    values, places = run(k.top_kernel(), {}, x)
    assert np.array_equal(values, [np.nan, 9, 9], equal_nan=True) and places.tolist() == [1, 3, 4]


@pytest.mark.parametrize("seed", range(3))
def test_main(seed):
    x = normal(6, 100)
    e = np.exp(np.maximum(x, 0) * 2)
    (y,) = run_main(k.two_step_module(), [x], seed)
    assert np.allclose(y, e / e.sum(1, keepdims=True), rtol=1e-4)


def test_main_refuses_sizes():
    with pytest.raises(Error, match="TC0601"):
        run_main(k.two_step_module(), [normal(6, 99)])


def simple(value, extents=(10,), by=None, out_shape=(10,), allocate=()):
    """A kernel of one block that stores `value`."""
    x, y = Buffer("x", f32, (10,)), Buffer("y", f32, out_shape)
    window = t.load(y, tuple(t.axis(i, e) for i, e in enumerate(extents)), extents)
    return Kernel("simple", (x,), (y,), (), (Grid((), (*allocate, Store(window, value, by))),))


def test_read_outside_names_the_buffer():
    x = Buffer("x", f32, (10,))
    bad = simple(t.load(x, (t.axis(0, 10) + 1,), (10,)))
    with pytest.raises(AssertionError, match="read outside x: positions 1 to 10"):
        run(bad, {}, normal(10))


def test_write_outside_names_the_buffer():
    with pytest.raises(AssertionError, match="write outside y"):
        run(simple(t.full(0.0, f32), (11,)), {}, normal(10))


def test_input_is_never_written():
    x = Buffer("x", f32, (10,))
    bad = Kernel("bad", (x,), (), (), (Grid((), (Store(t.whole(x), t.full(0.0, f32)),)),))
    with pytest.raises(AssertionError, match="x is an input"):
        run(bad, {}, normal(10))


def own(shape, order=None):
    return Buffer("own", f32, shape, "stack", order)


def test_unwritten_memory_shows():
    (y,) = run(simple(t.whole(own((10,))), allocate=(Alloc(own((10,))),)), {}, normal(10))
    assert np.isnan(y).all()


@pytest.mark.parametrize("by", [None, By((16,))])
def test_padding_of_own_memory(by):
    """A store cut into register tiles leaves zero past the extent; one written as it is leaves what was there."""
    b = own((10,), ((0, 0), (0, 16)))
    fill = Store(t.load(b, (t.axis(0, 10),), (10,)), t.full(1.0, f32), by)
    sixteen = t.load(b, (t.axis(0, 16),), (16,))
    (y,) = run(simple(sixteen, (16,), None, (16,), (Alloc(b), fill)), {}, normal(10))
    assert (y[:10] == 1).all()
    assert (y[10:] == 0).all() if by else np.isnan(y[10:]).all()


def test_only_the_branch_taken_is_read():
    x = Buffer("x", f32, (10,))
    bad = t.load(x, (t.axis(0, 10) + 1,), (10,))
    i = ix.symbol("i", 0, 0)
    y = Buffer("y", f32, (10,))
    value = t.when(ix.symbol("flag", 0, 1), bad, t.whole(x))
    loop = For(i, 0, 1, 1, (Store(t.whole(y), value),))
    kernel = Kernel("pick", (x,), (y,), (ix.symbol("flag", 0, 1),), (Grid((), (loop,)),))
    given = normal(10)
    assert np.array_equal(run(kernel, {"flag": 0}, given)[0], given)
    with pytest.raises(AssertionError, match="read outside x"):
        run(kernel, {"flag": 1}, given)


def test_blocks_that_depend_on_each_other_show():
    """y[i] = y[i - 1] + 1 over blocks of a phase is wrong in some order."""
    y = Buffer("y", f32, (N,))
    i = ix.symbol("i", 0, None)
    before = t.when(ix.less(0, i), t.load(y, (i - 1,)), t.full(0.0, f32))
    body = (Store(t.load(y, (i,)), t.pointwise("add", before, t.full(1.0, f32))),)
    kernel = Kernel("chain", (), (y,), (N,), (Grid((GridAxis(i, N, 1),), body),))
    results = [run(kernel, {"n": 9}, seed=s)[0] for s in range(3)]
    assert not all(np.array_equal(r, np.arange(1, 10)) for r in results)


def test_launches_without_after_run_in_any_order():
    module = k.two_step_module()
    wrong = tuple(Launch(s.kernel, s.arguments, s.symbols, s.number) if isinstance(s, Launch) else s for s in module.main.body)
    main = module.main
    broken = Module("tile", "broken", None, module.kernels, Main(main.inputs, main.outputs, (), main.symbols, wrong, main.arena))
    x = normal(3, 100)
    right = run_main(module, [x])[0]
    assert not all(np.array_equal(run_main(broken, [x], s)[0], right) for s in range(6))


def test_reuse_of_the_arena_shows():
    """Two buffers at the same bytes: the second write changes the first."""
    x, y = Buffer("x", f32, (N, 100)), Buffer("y", f32, (N, 100))
    a, b = Buffer("a", f32, (N, 100)), Buffer("b", f32, (N, 100))

    def module(second):
        body = (
            Reserve(a, 0),
            Reserve(b, second),
            Launch("double", ("x", "a"), (N,), 0),
            Launch("double", ("a", "b"), (N,), 1, (0,)),
            Launch("double", ("a", "y"), (N,), 2, (0, 1)),
        )
        return Module("tile", "reuse", None, (k.map_kernel(),), Main((x,), (y,), (), (N,), body, N * 800))

    given = normal(2, 100)
    assert np.array_equal(run_main(module(N * 400), [given])[0], np.maximum(given, 0) * 4)
    assert not np.array_equal(run_main(module(0), [given])[0], np.maximum(given, 0) * 4)


def test_a_carried_pair_takes_its_yields_together():
    """Fibonacci numbers: each yield reads both old values."""
    y = Buffer("y", f32, ())
    s = k.TileType(f32)
    i = ix.symbol("i", 0, 9)
    a, b = t.ref("a", s), t.ref("b", s)
    carry = (k.Carry("a", "fa", s, t.full(0.0, f32)), k.Carry("b", "fb", s, t.full(1.0, f32)))
    loop = For(i, 0, 10, 1, (Let("c", t.pointwise("add", a, b)),), carry, (b, t.ref("c", s)))
    kernel = Kernel("fibonacci", (), (y,), (), (Grid((), (loop, Store(t.load(y, ()), t.ref("fa", s)))),))
    assert run(kernel, {})[0] == 55
