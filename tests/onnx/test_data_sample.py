"""Grids, unpooled images and images of columns whose sizes are data."""

import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from onnx.reference import ReferenceEvaluator
from test_control_operators import compare, model, value

import tcomp
from tcomp.errors import Error

RNG = np.random.default_rng(19)


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


def columns(r, known=(), **attributes):
    node = h.make_node("Col2Im", ["x", "image", "block"], ["y"], **attributes)
    inputs = [value("x", ("n", "rows", "windows")), *(value(n, (r,), T.INT64) for n in ("image", "block") if n not in known)]
    m = model([node], inputs, [value("y", None)], known)
    m.opset_import[0].version = 18
    return m


def summed(x, image, block, strides, dilations, pads):
    """The operator by its text, window by window."""
    r = len(image)
    out = np.zeros((x.shape[0], x.shape[1] // int(np.prod(block)), *(d + a + b for d, a, b in zip(image, pads, pads[r:]))))
    last = [d + pads[k] + pads[k + r] - (block[k] - 1) * dilations[k] for k, d in enumerate(image)]
    counts = [len(range(0, n, s)) for n, s in zip(last, strides)]
    apart = x.reshape(x.shape[0], out.shape[1], *block, *counts)
    for at in np.ndindex(*block, *counts):
        pixel = tuple(w * a + k * s for w, k, a, s in zip(at, at[r:], dilations, strides))
        out[(..., *pixel)] += apart[(..., *at)]
    return out[(..., *(slice(a, a + d) for d, a in zip(image, pads)))]


WINDOWS = [
    ((1, 1), (1, 1), (0, 0, 0, 0)),
    ((2, 3), (1, 1), (1, 0, 1, 2)),
    ((2, 4), (3, 2), (2, 1, 0, 1)),
    ((3, 2), (3, 2), (0, 0, 0, 0)),
]


@pytest.mark.parametrize(("strides", "dilations", "pads"), WINDOWS)
def test_columns_of_any_block(strides, dilations, pads):
    attributes = {"strides": strides, "dilations": dilations, "pads": pads}
    exe = tcomp.compile(columns(2, **attributes))
    for n, channels, image, block in ((2, 3, (9, 8), (2, 3)), (1, 1, (10, 12), (1, 1)), (1, 2, (11, 9), (3, 2))):
        last = [d + pads[k] + pads[k + 2] - (block[k] - 1) * dilations[k] for k, d in enumerate(image)]
        windows = int(np.prod([len(range(0, v, s)) for v, s in zip(last, strides)]))
        x = RNG.standard_normal((n, channels * int(np.prod(block)), windows)).astype(np.float32)
        want = summed(x, image, block, strides, dilations, pads)
        got = exe.run({"x": x, "image": np.array(image), "block": np.array(block)})["y"]
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
        sizes = {"image": np.array(image), "block": np.array(block)}
        np.testing.assert_array_equal(tcomp.compile(columns(2, sizes, **attributes)).run({"x": x})["y"], got)


def test_columns_that_do_not_fit_fail_the_call():
    exe = tcomp.compile(columns(1))
    x = np.zeros((1, 3, 4), np.float32)
    assert exe.run({"x": x, "image": np.array([6]), "block": np.array([3])})["y"].shape == (1, 1, 6)
    for image, block in ((7, 3), (6, 2), (6, 0), (-1, 3)):
        with pytest.raises(Error, match=r"(?s)TC0605.*Col2Im"):
            exe.run({"x": x, "image": np.array([image]), "block": np.array([block])})
