"""Products under a cascade: what streams is their columns, whatever reshapes and transposes are between."""

import numpy as np
import pytest

import tcomp

RNG = np.random.default_rng(29)


@pytest.fixture(autouse=True)
def no_cache(monkeypatch):
    monkeypatch.setenv("TCOMP_CACHE", "0")


def same(f, *shapes):
    xs = [RNG.standard_normal(s).astype(np.float32) for s in shapes]
    np.testing.assert_allclose(tcomp.jit(f)(*xs), f(*xs), rtol=1e-4, atol=1e-4)
    return tcomp.jit(f).lower(*xs).text("tile")


def softmax(s):
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_rows_that_would_stream_are_computed_first():
    """A sum over a part of a product's rows: both factors would move with it."""

    def f(x, c, w):
        parts = np.transpose(np.tensordot(x, c, ((1,), (0,))), (0, 2, 1))
        return np.tensordot(parts, w, ((2,), (0,)))

    assert "score0" not in same(f, (3, 6, 2), (6, 12), (2, 1))
    same(lambda a, b: softmax(np.transpose((a @ b).reshape(3, 20, 12), (0, 2, 1))), (60, 16), (16, 12))


def test_columns_stream_through_reshapes_and_transposes():
    parts = same(lambda a, b, v: softmax((a @ b).reshape(10, 6, 4, 30)) @ v, (60, 64), (64, 120), (30, 32))
    turned = same(lambda a, b, v: softmax((a @ b).T) @ v, (60, 64), (64, 120), (60, 32))
    assert "score0" in parts and "score0" in turned
