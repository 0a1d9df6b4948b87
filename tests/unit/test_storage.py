"""Storage types: what they convert to and from, bit for bit as ml_dtypes has it, and what is refused."""

import numpy as np
import pytest

from tcomp.errors import Error
from tcomp.ir import dtype as dt
from tcomp.ir.dump import load_dump, save_dump
from tcomp.ir.graph import Func, cast
from tcomp.ir.interp.graph import run
from tcomp.ir.module import Module
from tcomp.ir.ops import apply, constant, parameter
from tcomp.passes.decompose import decompose

STORED = pytest.mark.parametrize("stored", dt.STORED, ids=str)
REAL = (dt.bool_, dt.i8, dt.u8, dt.i32, dt.i64, dt.f16, dt.bf16, dt.f32, dt.f64)


def through(source: dt.DType, target: dt.DType, array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`array` cast by the op table, and by what `decompose` makes of it."""
    x = parameter("x", source, array.shape)
    module = Module("graph", "f", Func("f", (x,), (cast(x, target),), ("y",)))
    return tuple(run(m.func, [array])[0] for m in (module, decompose(module)))


def bits(x: np.ndarray) -> np.ndarray:
    """The bytes, all NaNs alike."""
    raw = np.ascontiguousarray(x).reshape(-1).view(np.uint8).reshape(x.size, -1).copy()
    if dt.from_numpy(x.dtype).is_float:
        raw[np.isnan(x.astype(np.float64))] = 255
    return raw


@STORED
@pytest.mark.parametrize("target", [*REAL, dt.f8e5m2, dt.u4, dt.f4e2m1], ids=str)
def test_every_code(stored, target):
    codes = np.arange(2**stored.bits, dtype=np.uint8).view(dt.to_numpy(stored))
    if target != stored:
        want, got = through(stored, target, codes)
        assert np.array_equal(bits(want), bits(got)), stored


SPECIAL = [
    0.0,
    -0.0,
    np.inf,
    -np.inf,
    np.nan,
    1e-45,
    -1e-45,
    1e-30,
    3e38,
    -3e38,
    448,
    464,
    465,
    57344,
    61440,
    6,
    7,
    5,
    0.25,
    0.75,
]


@STORED
@pytest.mark.parametrize("source", REAL, ids=str)
def test_rounding(stored, source):
    rng = np.random.default_rng(3)
    x = rng.standard_normal(4000) * 2.0 ** rng.integers(-20, 20, 4000)
    if source.is_float:
        codes = np.arange(2**stored.bits, dtype=np.uint8).view(dt.to_numpy(stored)).astype(np.float32)
        codes = codes[np.isfinite(codes)]
        ties = np.unique(codes)
        x = np.concatenate([x, SPECIAL, codes, (ties[1:] + ties[:-1]) / 2, 2.0 ** rng.uniform(-149, 127, 500)])
    with np.errstate(all="ignore"):
        x = x.astype(dt.to_numpy(source)) if source.is_float else x.astype(np.int64).astype(dt.to_numpy(source))
        want, got = through(source, stored, x)
    assert np.array_equal(bits(want), bits(got)), np.flatnonzero(bits(want) != bits(got))[:5]


@STORED
def test_values_that_exist_come_back(stored):
    """What a code reads as is written as that code."""
    codes = np.arange(2**stored.bits, dtype=np.uint8).view(dt.to_numpy(stored))
    wide = codes.astype(np.float32)
    known = np.isfinite(wide)
    assert known.sum() >= 2**stored.bits - 8
    for got in through(dt.f32, stored, wide):
        assert np.array_equal(bits(got)[known], bits(codes)[known])


@STORED
@pytest.mark.parametrize("op", ["add", "neg", "max", "eq", "mul"])
def test_arithmetic_is_refused(stored, op):
    x = parameter("x", stored, (4,))
    with pytest.raises(Error) as fault:
        apply(op, *[x] * (1 if op == "neg" else 2))
    assert fault.value.code == "TC0103"


@STORED
def test_what_combines_is_refused(stored):
    x = parameter("x", stored, (4, 4))
    for op, operands, attrs in (
        ("reduce", (x,), {"monoid": "add", "axes": (0,)}),
        ("dot", (x, x), {"batch": ((), ()), "contract": ((1,), (0,))}),
        ("sort", (x,), {"axis": 0, "descending": False}),
        ("iota", (), {"shape": (3,), "axis": 0, "dtype": stored}),
    ):
        with pytest.raises(Error) as fault:
            apply(op, *operands, **attrs)
        assert fault.value.code == "TC0103", op


@STORED
def test_dumps_keep_large_constants(stored, tmp_path):
    """Beside the text as bytes, of the dtype that the digest was taken with."""
    array = (np.arange(99) % 2**stored.bits).astype(np.uint8).view(dt.to_numpy(stored)).reshape(9, 11)
    path = tmp_path / "m.tc"
    save_dump(Module("graph", "m", Func("m", (), (constant(array),), ("y",))), path)
    (found,) = load_dump(path).func.results
    assert found is constant(array)
