"""Grids and unpooled images whose sizes are data."""

import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from onnx.reference import ReferenceEvaluator
from test_control_operators import compare, model, value

import tcomp
from tcomp.errors import Error

RNG = np.random.default_rng(19)


@pytest.fixture(autouse=True)
def fast_code(monkeypatch):
    monkeypatch.setenv("TCOMP_FAST", "1")
    monkeypatch.setenv("TCOMP_CACHE", "0")


def grid(r, corners, n="n", kind=T.FLOAT):
    node = h.make_node("AffineGrid", ["theta", "size"], ["y"], align_corners=corners)
    inputs = [value("theta", (n, r, r + 1), kind), value("size", (r + 2,), T.INT64)]
    m = model([node], inputs, [value("y", None, kind)])
    m.opset_import[0].version = 20
    return m


@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("r", [2, 3])
def test_affine_grids(r, corners):
    m = grid(r, corners)
    exe, reference = tcomp.compile(m), ReferenceEvaluator(m)
    for n, *space in ((2, 5, 6, 3), (1, 2, 2, 9), (3, 4, 7, 2)):
        theta = RNG.standard_normal((n, r, r + 1)).astype(np.float32)
        feed = {"theta": theta, "size": np.array([n, 3, *space[:r]])}
        got = exe.run(feed)["y"]
        np.testing.assert_allclose(got, reference.run(None, feed)[0], rtol=1e-5, atol=1e-6)


def test_a_grid_of_one_point():
    got = tcomp.compile(grid(2, 1)).run({"theta": np.eye(2, 3, dtype=np.float32)[None], "size": np.array([1, 1, 1, 3])})["y"]
    np.testing.assert_array_equal(got, [[[[-1, -1], [0, -1], [1, -1]]]])


def test_a_grid_for_another_number_of_matrices_fails_the_call():
    exe = tcomp.compile(grid(2, 0, n=2))
    with pytest.raises(Error, match=r"(?s)TC0605.*AffineGrid"):
        exe.run({"theta": np.zeros((2, 2, 3), np.float32), "size": np.array([3, 1, 4, 4])})


def test_unpooled_into_any_shape():
    node = h.make_node("MaxUnpool", ["x", "at", "shape"], ["y"], kernel_shape=[2, 2], strides=[2, 2])
    inputs = [value("x", (1, 2, 2, 3)), value("at", (1, 2, 2, 3), T.INT64), value("shape", (4,), T.INT64)]
    m = model([node], inputs, [value("y", None)])
    x = RNG.standard_normal((1, 2, 2, 3)).astype(np.float32)
    at = np.array([[0, 3, 4, 12, 15, 17], [24, 33, 28, 37, 45, 46]]).reshape(x.shape)
    exe = tcomp.compile(m)
    for shape in ((1, 2, 4, 6), (1, 2, 5, 6), (1, 2, 7, 9)):
        want = np.zeros(shape, np.float32)
        for place, v in zip(at.reshape(-1), x.reshape(-1)):
            want[np.unravel_index(place, (1, 2, 4, 6))] = v
        np.testing.assert_array_equal(exe.run({"x": x, "at": at, "shape": np.array(shape)})["y"], want)
    compare(m, {"x": x, "at": at, "shape": np.array((1, 2, 4, 6))})
