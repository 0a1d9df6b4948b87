"""A result of no elements takes no time, however long its other axes are; indices are checked all the same."""

import numpy as np
import pytest
from onnx import helper as h
from onnx_support import model

import tcomp
from tcomp.errors import Error

LONG = 2**39  # of these a loop would never be done


@pytest.mark.parametrize(("x", "shape"), [((1, 0), (LONG, 1)), ((0, 1), (1, LONG)), ((1, 1), (LONG, 0)), ((1, 1), (0, LONG))])
@pytest.mark.parametrize("movement", ["", "Neg", "Transpose", "Softmax", "CumSum"])
def test_long_results_without_elements(x, shape, movement):
    inputs = ["e", "axis"] if movement == "CumSum" else ["e"]
    after = h.make_node(movement or "Identity", inputs, ["y"])
    m = model([h.make_node("Expand", ["x", "s"], ["e"]), after], {"x": ("float32", ["a", "b"]), "s": ("int64", [2])}, ["y"],
              constants={"axis": np.array(1)})  # fmt: skip
    (y,) = tcomp.compile(m).run({"x": np.ones(x, np.float32), "s": np.array(shape)}).values()
    wanted = tuple(max(a, b) * min(a, b) for a, b in zip(x, shape))
    assert y.shape == (wanted[::-1] if movement == "Transpose" else wanted)


def test_sums_of_nothing():
    m = model([h.make_node("Expand", ["x", "s"], ["e"]), h.make_node("ReduceSum", ["e", "axes"], ["y"], keepdims=0)],
              {"x": ("float32", [1, "b"]), "s": ("int64", [2])}, ["y"], constants={"axes": np.array([0])})  # fmt: skip
    (y,) = tcomp.compile(m).run({"x": np.ones((1, 0), np.float32), "s": np.array((LONG, 1))}).values()
    assert y.shape == (0,)


def test_indices_are_checked_where_rows_are_empty():
    m = model([h.make_node("Gather", ["x", "i"], ["y"])], {"x": ("float32", ["a", "b"]), "i": ("int64", ["n"])}, ["y"])
    exe = tcomp.compile(m)
    assert exe(np.ones((3, 0), np.float32), np.array([2, -1])).shape == (2, 0)
    with pytest.raises(Error, match="TC0604"):
        exe(np.ones((3, 0), np.float32), np.array([3]))
