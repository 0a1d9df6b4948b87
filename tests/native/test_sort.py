"""Sorting lines of all lengths and kinds of keys: stable, NaN last (first where descending), both zeros equal."""

import ml_dtypes
import numpy as np
import pytest

import tcomp
import tcomp.numpy
from tcomp.ir.ops import OPS

RNG = np.random.default_rng(47)
SPECIAL = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-40, 3.5, -3.5]
KEYS = {
    "f32": lambda n: RNG.choice(np.array(SPECIAL, np.float32), n),
    "f64": lambda n: RNG.standard_normal(n) * 10.0 ** RNG.integers(-300, 300, n),
    "f16": lambda n: RNG.choice(np.array(SPECIAL[:6] + SPECIAL[8:], np.float16), n),
    "bf16": lambda n: RNG.standard_normal(n).astype(ml_dtypes.bfloat16),
    "i64": lambda n: RNG.integers(-(2**62), 2**62, n),
    "small i64": lambda n: RNG.integers(-3, 4, n),
    "u64": lambda n: RNG.integers(0, 2**64 - 1, n, dtype=np.uint64),
    "i32": lambda n: RNG.integers(-(2**31), 2**31 - 1, n).astype(np.int32),
    "i16": lambda n: RNG.integers(-99, 99, n).astype(np.int16),
    "u8": lambda n: RNG.integers(0, 256, n).astype(np.uint8),
    "i8": lambda n: RNG.integers(-128, 128, n).astype(np.int8),
    "bool": lambda n: RNG.integers(0, 2, n).astype(bool),
}


pytestmark = pytest.mark.usefixtures("fast_code")


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("kind", KEYS)
def test_lines_of_all_lengths(kind, descending):
    def both(x):
        return tcomp.numpy.sort(x, descending=descending), tcomp.numpy.argsort(x, descending=descending)

    f = tcomp.jit(both, dynamic={"x": {0: "n"}})
    for n in (0, 1, 2, 15, 16, 23, 24, 65, 79, 80, 3000):
        x = KEYS[kind](n)
        values, places = f(x)
        expected = OPS["sort"].reference(x, axis=0, descending=descending)
        np.testing.assert_array_equal(places, expected[1])
        np.testing.assert_array_equal(values, expected[0])


def test_lines_that_lie_apart():
    x = RNG.standard_normal((1000, 3)).astype(np.float32)
    f = tcomp.jit(lambda x: (tcomp.numpy.sort(x, axis=0), tcomp.numpy.argsort(x, axis=0)))
    values, places = f(x)
    np.testing.assert_array_equal(values, np.sort(x, 0))
    np.testing.assert_array_equal(places, np.argsort(x, 0, kind="stable"))
