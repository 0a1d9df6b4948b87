"""Determinants and inverses of batches of matrices, of sizes that only the call knows."""

import numpy as np
import pytest
from compiled_support import one
from onnx import TensorProto as T
from onnx import helper as h
from test_control_operators import compare, model, value

import tcomp

RNG = np.random.default_rng(13)


def det(shape, kind=T.FLOAT):
    return tcomp.compile(model([h.make_node("Det", ["x"], ["y"])], [value("x", shape, kind)], [value("y", None, kind)]))


def test_determinants_of_any_size():
    exe = det(("b", "n", "n"), T.DOUBLE)
    for b, n in ((3, 4), (1, 1), (2, 17), (4, 0), (0, 3), (5, 2)):
        x = RNG.standard_normal((b, n, n))
        np.testing.assert_allclose(exe(x), np.linalg.det(x), rtol=1e-9, atol=1e-12)


def test_determinants_of_awkward_matrices():
    """Zero pivots, singular matrices, large and small elements, NaN."""
    exe = det((3, 3))
    cases = [
        [[0, 1, 0], [0, 0, 1], [1, 0, 0]],
        [[0, 1, 0], [1, 0, 0], [0, 0, 1]],
        [[1, 2, 3], [2, 4, 6], [1, 1, 1]],
        np.zeros((3, 3)),
        [[1e-20, 1, 0], [1, 1, 0], [0, 0, 1]],
        [[1, 2, 3], [0, np.nan, 1], [0, 0, 1]],
    ]
    for case in cases:
        x = np.array(case, np.float32)
        with np.errstate(invalid="ignore"):
            expected = np.linalg.det(x)
        np.testing.assert_allclose(exe(x), expected, rtol=1e-6, atol=1e-6)
        assert exe(x).shape == ()


def test_determinants_in_half_precision():
    x = RNG.standard_normal((2, 3, 3)).astype(np.float16)
    np.testing.assert_allclose(det((2, 3, 3), T.FLOAT16)(x), np.linalg.det(x.astype(np.float64)), rtol=2e-3, atol=1e-3)


def test_determinants_as_onnxruntime_has_them():
    m = model([h.make_node("Det", ["x"], ["y"])], [value("x", (2, 3, "n", "n"))], [value("y", None)])
    compare(m, *({"x": RNG.standard_normal((2, 3, n, n)).astype(np.float32)} for n in (1, 5)))


def test_what_is_not_square_is_refused():
    with pytest.raises(tcomp.Error, match="TC0203"):
        det((2, 3))
    with pytest.raises(tcomp.Error, match="TC0203"):
        det((3,))


@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (2, 3, 6, 6), (0, 2, 2)], ids=str)
def test_inverses(shape):
    x = RNG.standard_normal(shape).astype(np.float32)
    compare(one("Inverse", {"x": x}), {"x": x}, rtol=2e-3, atol=2e-4)


def test_an_inverse_with_zeros_on_the_diagonal():
    x = np.array([[0, 2, 0], [0, 0, 4], [8, 0, 0]], np.float32)
    np.testing.assert_array_equal(tcomp.compile(one("Inverse", {"x": x}))(x), np.linalg.inv(x))
