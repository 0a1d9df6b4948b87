"""The k best of long lines, gathered as they come and sorted now and then: of equals the first, NaN the largest."""

import numpy as np
import pytest

import tcomp
import tcomp.numpy
from tcomp.ir.ops import OPS

RNG = np.random.default_rng(43)
LINES = {
    "any": lambda n: RNG.standard_normal(n),
    "rising": lambda n: np.arange(n),
    "falling": lambda n: -np.arange(n),
    "few values": lambda n: RNG.integers(0, 3, n),
    "all equal": lambda n: np.ones(n),
    "with NaN and infinities": lambda n: RNG.choice([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5], n),
}


pytestmark = pytest.mark.usefixtures("fast_code")


def best(k, largest):
    return tcomp.jit(lambda x: tcomp.numpy.topk(x, k, largest=largest))


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [1, 5, 40])
def test_lines_longer_than_what_is_kept(k, largest):
    f = best(k, largest)
    lines = np.stack([make(1000) for make in LINES.values()]).astype(np.float32)
    for x in (lines, lines[:, :129], lines[:, ::-1], lines[:, :k]):
        values, places = f(x)
        expected = OPS["top_k"].reference(x, k=k, axis=1, largest=largest)
        np.testing.assert_array_equal(places, expected[1])
        np.testing.assert_array_equal(values, expected[0])


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint8, np.int64, np.uint64, np.float16, np.float64])
def test_every_kind_of_key(dtype):
    x = RNG.integers(0, 100, (3, 700)).astype(dtype)
    for largest in (True, False):
        values, places = best(9, largest)(x)
        expected = OPS["top_k"].reference(x, k=9, axis=1, largest=largest)
        np.testing.assert_array_equal(places, expected[1])
        np.testing.assert_array_equal(values, expected[0])


def test_nothing_is_kept():
    values, places = best(0, True)(np.ones((2, 500), np.float32))
    assert values.shape == places.shape == (2, 0)
