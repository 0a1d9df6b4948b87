"""Every ufunc on every pair of dtypes and on Python scalars gives NumPy's dtype and values, or refuses where NumPy does."""

import numpy as np
import pytest
from frontend_support import interpreter, run, same

from tcomp.errors import Error
from tcomp.frontend import promotion
from tcomp.frontend.jit import jit
from tcomp.frontend.numpy_api.elementwise import ROWS
from tcomp.ir import dtype as dt
from tcomp.ir.dtype import to_numpy

DTYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"]
SCALARS = (2, -3, 2.5, 300, -200, True)
TOLERANCE = {2: 2e-3, 4: 1e-5, 8: 1e-10}


def values(name, turn):
    dtype = np.dtype(name)
    rows = {
        "b": [[1, 0, 1], [0, 1, 1]],
        "u": [[0, 1, 5], [200, 7, 3]],
        "i": [[0, -1, 5], [-128, 7, 3]],
        "f": [[0.0, -1.5, np.nan], [np.inf, 0.25, 3]],
    }
    return np.roll(np.array(rows[dtype.kind]).astype(dtype), turn)


def operand_sets(ufunc):
    if ufunc.nin == 1:
        return [(values(a, 0),) for a in DTYPES if not (ufunc is np.reciprocal and a.startswith(("int", "uint")))]
    pairs = [(values(a, 0), values(b, 1)) for a in DTYPES for b in DTYPES]
    return pairs + [p for a in DTYPES for s in SCALARS for p in ((values(a, 0), s), (s, values(a, 0)))]


def expected(ufunc, operands):
    try:
        with np.errstate(all="ignore"):
            return ufunc(*operands)
    except (TypeError, OverflowError, ValueError) as e:
        return e


def traced(ufunc, operands):
    def fn(*arrays):
        rest = iter(arrays)
        return ufunc(*(next(rest) if isinstance(x, np.ndarray) else x for x in operands))

    try:
        return jit(fn)(*(x for x in operands if isinstance(x, np.ndarray)))
    except (Error, ValueError) as e:
        return e


def agrees(got, want):
    if isinstance(want, Exception):
        return isinstance(got, Error) or "negative integer powers" in str(want)
    got, want = (r if isinstance(r, tuple) else (r,) for r in (got, want))
    return all(same(g, w, TOLERANCE.get(w.dtype.itemsize, 0)) for g, w in zip(got, want, strict=True))


@pytest.mark.parametrize("name", ROWS)
def test_ufunc_is_numpys(name):
    ufunc = ROWS[name].ufunc
    with interpreter():
        for operands in operand_sets(ufunc):
            want, got = expected(ufunc, operands), traced(ufunc, operands)
            assert agrees(got, want), f"{name} of {operands}: {got!r}, not {want!r}"


@pytest.mark.parametrize(
    ("kinds", "result"),
    [
        ((to_numpy(dt.bf16), float), dt.bf16),
        ((to_numpy(dt.bf16), int), dt.bf16),
        ((to_numpy(dt.bf16), np.dtype(np.float16)), dt.f32),
        ((to_numpy(dt.bf16), np.dtype(np.int8)), dt.bf16),
        ((to_numpy(dt.bf16), np.dtype(np.int32)), dt.f64),
        ((to_numpy(dt.bf16), np.dtype(np.float32)), dt.f32),
    ],
)
def test_bfloat16_stands_beside_float16(kinds, result):
    assert promotion.loop(np.add, kinds)[-1] == result
    assert promotion.common(kinds) == result


def test_a_dtype_without_code_is_refused():
    with pytest.raises(Error, match="TC0103"):
        run(lambda x: x + 1, np.zeros(2, np.complex64))


def test_python_integers_out_of_range_are_refused_as_numpy_does():
    with pytest.raises(Error, match=r"(?s)TC0103.*300.*0 to 255"):
        run(lambda x: x + 300, np.zeros(2, np.uint8))


def test_scalar_arguments_are_weak():
    x = np.ones(3, np.float32)
    got = run(lambda x, a, k: (x * a, x + k, a * k, a / 2, k // 2, np.sin(a)), x, 0.5, 3)
    assert [r.dtype.name for r in got] == ["float32", "float32", "float64", "float64", "int64", "float64"]
    assert run(lambda x, a: x * a, x, np.float64(2)).dtype == np.float64
    assert run(lambda x, k: x + k, np.ones(2, np.uint8), 3).dtype == np.uint8


@pytest.mark.parametrize("name", DTYPES)
def test_operators_keep_numpys_rules(name):
    x = values(name, 0)
    for fn in (lambda x: x**2, lambda x: x**2.0, lambda x: x**0.5, lambda x: 2**x, lambda x: x / 3, lambda x: x // 2):
        with np.errstate(all="ignore"):
            try:
                want = fn(x)
            except (TypeError, ValueError):
                continue
        assert same(run(fn, x), want, 2e-3 if want.dtype.itemsize == 2 else 1e-6), name


def test_in_place_operators_keep_the_dtype():
    def fn(x, y):
        x += y
        return x

    x, y = np.ones(2, np.float32), np.ones(2, np.float64)
    assert run(fn, x, y).dtype == np.float32
    with pytest.raises(Error, match="TC0103"):
        run(fn, np.ones(2, np.int32), y)
