"""Axes that are data, against NumPy: one compiled program for all of them."""

import numpy as np
import pytest
from onnx import helper as h
from onnx_support import model

import tcomp
from tcomp.errors import Error

RNG = np.random.default_rng(5)


@pytest.fixture(autouse=True)
def fast_code(monkeypatch):
    monkeypatch.setenv("TCOMP_FAST", "1")


def axes_program(op, rank_in, count, **attributes):
    node = h.make_node(op, ["x", "axes"], ["y"], name="the node", **attributes)
    shape = [f"d{k}" for k in range(rank_in)] if isinstance(rank_in, int) else rank_in
    return tcomp.compile(model([node], {"x": ("float32", shape), "axes": ("int64", [count])}, ["y"], 21))


def fails(exe, feeds, match="TC0605"):
    with pytest.raises(Error, match=match) as fault:
        exe.run(feeds)
    assert "the node" in str(fault.value)


@pytest.mark.parametrize("shape", [(1, 5, 1, 3), (4, 1, 1, 1), (0, 1, 3, 1)])
@pytest.mark.parametrize("static", [True, False])
def test_squeeze(shape, static):
    exe = axes_program("Squeeze", list(shape) if static else 4, 2)
    x = RNG.standard_normal(shape).astype(np.float32)
    ones = [k for k, d in enumerate(shape) if d == 1]
    for pair in ((ones[0], ones[-1]), (ones[-1], ones[0] - 4), (ones[1] - 4, ones[-1]) if len(ones) > 2 else (ones[0], ones[1])):
        (y,) = exe.run({"x": x, "axes": np.array(pair)}).values()
        np.testing.assert_array_equal(y, x.squeeze(tuple(p % 4 for p in pair)))
    wide = next(k for k, d in enumerate(shape) if d != 1)
    for wrong in ((ones[0], ones[0]), (ones[0], ones[0] - 4), (ones[0], 4), (-5, ones[0]), (ones[0], wide)):
        fails(exe, {"x": x, "axes": np.array(wrong)})


@pytest.mark.parametrize("static", [True, False])
def test_unsqueeze(static):
    shape = (2, 3, 0) if static else (2, 1, 5)
    exe = axes_program("Unsqueeze", list(shape) if static else 3, 2)
    x = RNG.standard_normal(shape).astype(np.float32)
    for pair in ((0, 1), (4, 0), (-1, 2), (3, -5), (1, 3)):
        (y,) = exe.run({"x": x, "axes": np.array(pair)}).values()
        np.testing.assert_array_equal(y, np.expand_dims(x, pair))
    for wrong in ((0, 0), (0, -5), (5, 1), (-6, 2)):
        fails(exe, {"x": x, "axes": np.array(wrong)})


def test_no_axes_and_rank_0():
    exe = axes_program("Squeeze", [2, 3], 0)
    x = RNG.standard_normal((2, 3)).astype(np.float32)
    np.testing.assert_array_equal(exe.run({"x": x, "axes": np.zeros(0, np.int64)})["y"], x)
    exe = axes_program("Unsqueeze", [], 1)
    for axis in (0, -1):
        assert exe.run({"x": np.array(3, np.float32), "axes": np.array([axis])})["y"].shape == (1,)
    fails(exe, {"x": np.array(3, np.float32), "axes": np.array([1])})
