"""Dropout whose mode and ratio are data: one compiled program that trains and infers."""

import numpy as np
import pytest
from onnx import helper as h
from onnx_support import model

import tcomp

RNG = np.random.default_rng(9)


def program(dtype="float32", **attributes):
    node = h.make_node("Dropout", ["x", "ratio", "training"], ["y", "mask"], **attributes)
    inputs = {"x": (dtype, ["n", 8]), "ratio": ("float32", []), "training": ("bool", [])}
    return tcomp.compile(model([node], inputs, {"y": dtype, "mask": "bool"}, 13))


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_zeros_for_a_share_of_the_elements(dtype):
    exe = program(dtype, seed=5)
    x = RNG.standard_normal((4000, 8)).astype(dtype)
    for ratio in (0.1, 0.75):
        y, mask = exe.run({"x": x, "ratio": np.float32(ratio), "training": np.array(True)}).values()
        assert abs(mask.mean() - (1 - ratio)) < 0.01
        assert not y[~mask].any()
        np.testing.assert_allclose(y[mask], x[mask] / (1 - ratio), rtol=2e-3 if dtype == "float16" else 1e-6)


def test_the_identity_without_training_or_ratio():
    exe = program()
    x = RNG.standard_normal((5, 8)).astype(np.float32)
    x[0, 0] = np.nan
    for ratio, training in ((0.5, False), (0.0, True), (0.0, False), (1.0, False)):
        y, mask = exe.run({"x": x, "ratio": np.float32(ratio), "training": np.array(training)}).values()
        np.testing.assert_array_equal(y, x)
        assert mask.all() and mask.shape == x.shape


def test_the_seed_says_which():
    x, on = np.ones((50, 8), np.float32), {"ratio": np.float32(0.5), "training": np.array(True)}
    masks = [program(seed=seed).run({"x": x, **on})["mask"] for seed in (1, 1, 2)]
    assert (masks[0] == masks[1]).all() and (masks[0] != masks[2]).any()


def test_no_random_numbers_where_it_is_known_that_nothing_is_dropped():
    node = h.make_node("Dropout", ["x", "ratio"], ["y"])
    exe = tcomp.compile(model([node], {"x": ("float32", ["n"]), "ratio": ("float32", [])}, ["y"], 13))
    assert "xor" not in exe.text("tile")
