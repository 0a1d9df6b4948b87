"""Unique, whose results' sizes are data: against NumPy, one compiled program for all values; and against onnxruntime."""

import ml_dtypes
import numpy as np
import pytest
from compiled_support import one
from onnx import TensorProto as T
from onnx import helper as h
from test_control_operators import compare, model, value

import tcomp

RNG = np.random.default_rng(11)
NAMES = ("y", "at", "back", "counts")


def unique(shape, kind=T.FLOAT, **attributes):
    outputs = [value("y", None, kind), *(value(n, None, T.INT64) for n in NAMES[1:])]
    return model([h.make_node("Unique", ["x"], list(NAMES), **attributes)], [value("x", shape, kind)], outputs)


def expected(x, axis=None, in_order=True):
    """NumPy's answer; in the order of first occurrence if asked."""
    y, at, back, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True, axis=axis)
    back = back.reshape(-1)
    if in_order:
        return y, at, back, counts
    order = np.argsort(at)
    rank = np.argsort(order)
    return np.take(y, order, axis or 0), at[order], rank[back] if len(rank) else back, counts[order]


def check(exe, x, **how):
    for name, got, want in zip(NAMES, exe.run({"x": x}).values(), expected(x, **how)):
        assert got.shape == want.shape, name
        np.testing.assert_array_equal(got, want, err_msg=name)


@pytest.mark.parametrize("in_order", [True, False])
def test_elements(in_order):
    exe = tcomp.compile(unique(("n",), sorted=int(in_order)))
    some = RNG.integers(0, 9, 50).astype(np.float32)
    special = np.array([np.nan, 1, -np.inf, np.nan, np.inf, 1, -0.0, 0.0, np.inf], np.float32)
    for x in (some, special, np.zeros(0, np.float32), np.ones(1, np.float32), np.ones(7, np.float32), np.arange(6, 0, -1.0)):
        check(exe, x.astype(np.float32), in_order=in_order)


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_subtensors(axis, in_order):
    exe = tcomp.compile(unique(("a", "b", 2), T.INT32, axis=axis, sorted=int(in_order)))
    for shape in ((3, 4, 2), (1, 1, 2), (40, 2, 2), (0, 3, 2)):
        if shape[axis]:  # NumPy has no unique subtensors of none
            check(exe, RNG.integers(0, 2, shape).astype(np.int32), axis=axis, in_order=in_order)


def test_rows_with_nan_are_all_different():
    x = np.array([[1, np.nan], [1, np.nan], [0, 2], [0, 2]], np.float32)
    found = tcomp.compile(unique((4, 2), axis=0)).run({"x": x})
    np.testing.assert_array_equal(found["y"], [[0, 2], [1, np.nan], [1, np.nan]])
    assert found["counts"].tolist() == [2, 1, 1]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.uint64, np.float64, np.float16, np.bool_, ml_dtypes.bfloat16])
def test_every_kind_of_element(dtype):
    x = RNG.integers(0, 2 if dtype is np.bool_ else 5, (4, 6)).astype(dtype)
    kind = T.BFLOAT16 if dtype is ml_dtypes.bfloat16 else h.np_dtype_to_tensor_dtype(np.dtype(dtype))
    check(tcomp.compile(unique((4, 6), kind)), x)


@pytest.mark.parametrize("attributes", [{}, {"sorted": 0}, {"axis": 1}], ids=str)
def test_as_onnxruntime_has_it(attributes):
    compare(unique((4, 9), T.INT64, **attributes), *({"x": RNG.integers(0, k, (4, 9))} for k in (1, 2, 5)))


def test_the_one_of_onnxruntime():
    x = RNG.integers(0, 4, 12).astype(np.float32)
    compare(one("Unique", {"x": x}, {"y": "float32", "back": "int64", "counts": "int64"}), {"x": x}, {"x": x * 0})
