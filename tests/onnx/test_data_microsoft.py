"""Operators of com.microsoft whose sizes are data, against onnxruntime: one compiled program for all their values."""

import numpy as np
from onnx import helper as h
from onnx_support import model, theirs

import tcomp

RNG = np.random.default_rng(4)


def f32(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def test_a_cache_whose_length_is_an_input():
    size = 16
    operands = ["q", "k", "v", "pk", "pv", "lengths", "total", "cos", "sin"]
    node = h.make_node("GroupQueryAttention", operands, ["y", "pk1", "pv1"], domain="com.microsoft",
                       num_heads=4, kv_num_heads=2, do_rotary=1)  # fmt: skip
    inputs = {"q": ("float32", [2, "n", 4 * size]), "k": ("float32", [2, "n", 2 * size]), "v": ("float32", [2, "n", 2 * size]),
              "pk": ("float32", [2, 2, "past", size]), "pv": ("float32", [2, 2, "past", size]),
              "lengths": ("int32", [2]), "total": ("int32", [])}  # fmt: skip
    tables = {"cos": f32(32, size // 2), "sin": f32(32, size // 2)}
    m = model([node], inputs, ["y", "pk1", "pv1"], constants=tables, domains=["com.microsoft"])
    exe = tcomp.compile(m)
    for length, past in ((1, 6), (1, 9), (5, 0)):
        feed = {"q": f32(2, length, 4 * size), "k": f32(2, length, 2 * size), "v": f32(2, length, 2 * size)}
        feed |= {"pk": f32(2, 2, past, size), "pv": f32(2, 2, past, size)}
        total = length + past
        feed |= {"lengths": np.full(2, total - 1, np.int32), "total": np.array(total, np.int32)}
        for got, want in zip(exe.run(feed).values(), theirs(m, feed), strict=True):
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_pads_that_are_an_input():
    node = h.make_node("Pad", ["x", "pads", "value"], ["y"], domain="com.microsoft", mode="constant")
    inputs = {"x": ("float32", ["a", 4]), "pads": ("int64", [4]), "value": ("float32", [])}
    m = model([node], inputs, ["y"], domains=["com.microsoft"])
    exe = tcomp.compile(m)
    for pads in ((1, 0, 2, 3), (0, 0, 0, 0), (0, 5, 0, 0)):
        feed = {"x": f32(3, 4), "pads": np.array(pads), "value": np.array(7, np.float32)}
        np.testing.assert_array_equal(exe.run(feed)["y"], theirs(m, feed)[0])


def test_an_axis_that_is_an_input():
    node = h.make_node("ExpandDims", ["x", "axis"], ["y"], domain="com.microsoft")
    m = model([node], {"x": ("float32", ["a", 4]), "axis": ("int32", [])}, ["y"], domains=["com.microsoft"])
    exe = tcomp.compile(m)
    for axis in (0, 1, 2, -1, -3):
        feed = {"x": f32(3, 4), "axis": np.array(axis, np.int32)}
        np.testing.assert_array_equal(exe.run(feed)["y"], np.expand_dims(feed["x"], axis))
