"""Long sums: their error is that of sums in levels, whatever is added up and along which axes."""

import itertools
import math

import numpy as np
import pytest

import tcomp
from tcomp.ir import index
from tcomp.passes.sums import TURNS, in_levels

LONG = 30_000_000
TWO_CORES = "cpu:x86-64-v3"  # whatever machine this is


def exact(x, axis):
    """Sums over `axis`, rounded once."""
    lines = np.moveaxis(x, axis, -1).reshape(-1, x.shape[axis])
    return np.array([math.fsum(math.fsum(part) for part in np.array_split(line.astype(np.float64), 100)) for line in lines])


@pytest.mark.parametrize("spec", [f"f32[{LONG}]", "f32[n]"])
def test_thirty_millions(spec):
    total = tcomp.compile(lambda x: np.sum(x), tcomp.spec(spec), use_cache=False)
    tenths = np.full(LONG, 0.1, np.float32)
    want = LONG * float(np.float32(0.1))
    assert abs(float(total(tenths)) - want) <= 2e-6 * want
    some = np.random.default_rng(0).random(LONG, dtype=np.float32)
    want = math.fsum(some.reshape(-1, 1000).sum(1, dtype=np.float64))
    assert abs(float(total(some)) - want) <= 5e-8 * want


SUMS = {
    "rows": (lambda x: np.sum(x, axis=1), (4, 1_000_000), 1),
    "columns": (lambda x: np.sum(x, axis=0), (1_000_000, 4), 0),
    "columns of several axes": (
        lambda x: np.sum(np.transpose(np.reshape(x, (1000, 1000, 4)), (1, 0, 2)), axis=(0, 1)),
        (1_000_000, 4),
        0,
    ),
    "means": (lambda x: np.mean(x, axis=0) * x.shape[0], (1_000_000, 4), 0),
}


@pytest.mark.parametrize(("name", "symbolic"), [(n, False) for n in SUMS] + [(n, True) for n in SUMS if "axes" not in n])
def test_rows_and_columns(name, symbolic):
    f, shape, axis = SUMS[name]
    dims = [f"n{k}" if symbolic and k == axis else d for k, d in enumerate(shape)]
    compiled = tcomp.compile(f, tcomp.spec(f"f32[{', '.join(map(str, dims))}]"), use_cache=False)
    for x in (np.full(shape, 0.1, np.float32), np.random.default_rng(1).random(shape, dtype=np.float32)):
        want = exact(x, axis)
        np.testing.assert_allclose(compiled(x), want, rtol=5e-6 if symbolic else 1e-6)


@pytest.mark.parametrize("n", [1_000_000, 10_000_000])
def test_variance_in_one_pass(n):
    """Its corrections are small beside the sum, and must not be lost in it one by one."""
    x = np.random.default_rng(3).random(n, dtype=np.float32)
    assert abs(float(tcomp.jit(lambda x: np.var(x))(x)) / x.var(dtype=np.float64) - 1) < 8e-7


def test_norms_of_long_columns():
    x = np.random.default_rng(2).random((1_000_000, 4), dtype=np.float32) + 10
    want = x.astype(np.float64).var(0)
    np.testing.assert_allclose(tcomp.jit(lambda x: np.var(x, axis=0))(x), want, rtol=1e-5)


@pytest.mark.parametrize(
    ("shape", "axis"), [((1 << 21,), 0), ((3, 700_001), 1), ((1_000_003, 3), 0), ((2, 1001, 1003, 2), (1, 2))]
)
@pytest.mark.parametrize("kind", ["sum", "max", "both"])
def test_long_reductions_are_split_for_all_threads(shape, axis, kind):
    """Whole numbers: exact in any order."""
    x = (np.arange(math.prod(shape), dtype=np.float32) % 5 - 1).reshape(shape)

    def f(x):
        total, top = np.sum(x * 2, axis=axis) + 1, np.max(x, axis=axis)
        return {"sum": total, "max": top, "both": (total, top)}[kind]

    assert "grid (part in" in tcomp.jit(f, target=TWO_CORES).lower(x).text("tile")
    got, want = tcomp.jit(f)(x), f(x.astype(np.float64))
    for a, b in zip(got if kind == "both" else (got,), want if kind == "both" else (want,)):
        assert a.tolist() == np.asarray(b).tolist()


@pytest.mark.parametrize(("shape", "axis"), [((64, 1 << 16), 1), ((1 << 14, 1024), 0), ((1 << 16,), 0)])
def test_what_has_work_for_all_threads_or_little_is_not_split(shape, axis):
    text = tcomp.jit(lambda x: np.sum(x, axis=axis), target=TWO_CORES).lower(np.zeros(shape, np.float32)).text("tile")
    assert "part" not in text


@pytest.mark.parametrize("extent", [1, 128, 129, 8192, 8193, 1 << 20, 10**9, index.symbol("n"), index.symbol("n", 0, 5000)])
def test_every_level_but_the_first_has_few_turns(extent):
    loops = in_levels(lambda lo, hi, step: index.loop_symbol(f"j{step}", lo, hi, step), 0, extent, 1)
    assert not loops[0].anew and all(t.anew for t in loops[1:])
    assert loops[-1].step == 1 and all(a.step == TURNS * b.step for a, b in itertools.pairwise(loops))
    most = index.bounds(extent)[1]
    assert len(loops) == 3 if most is None else -(-most // loops[0].step) <= 2 * TURNS


@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 4095, 4096, 4097, 8193, 70_000])
def test_every_element_is_taken_once(n):
    """Sums of whole numbers are exact in any order."""
    x = np.arange(n * 3, dtype=np.float32).reshape(n, 3) % 7
    both = tcomp.compile(
        lambda x: (np.sum(x, axis=0), np.sum(x), np.max(x + 1, initial=0)), tcomp.spec("f32[n, 3]"), use_cache=False
    )
    columns, total, top = both(x)
    assert columns.tolist() == x.sum(0, dtype=np.float64).tolist() and total == x.sum(dtype=np.float64)
    assert top == (x + 1).max(initial=0)
