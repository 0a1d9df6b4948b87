"""Axes that are data, against NumPy: one compiled program for all of them."""

import numpy as np
import pytest
from data_support import agree, program, shapes_of
from onnx import helper as h
from onnx_support import model

import tcomp

RNG = np.random.default_rng(5)


def named(axes, rank):
    """The axes that are meant; None where they are not distinct axes."""
    found = [a % rank for a in axes if -rank <= a < rank]
    return tuple(found) if len(set(found)) == len(axes) else None


def squeezed(x, axes):
    found = named(axes, x.ndim)
    return None if found is None or any(x.shape[a] != 1 for a in found) else x.squeeze(found)


def unsqueezed(x, axes):
    found = named(axes, x.ndim + len(axes))
    return None if found is None else np.expand_dims(x, found)


@pytest.mark.parametrize("shape", [(1, 5, 1, 3), (4, 1, 1, 1), (0, 1, 3, 1)])
@pytest.mark.parametrize("static", [True, False])
def test_squeeze(shape, static):
    x = RNG.standard_normal(shape).astype(np.float32)
    exe = program("Squeeze", {"x": ("float32", shapes_of(x)[not static]), "axes": ("int64", [2])})
    agree(exe, squeezed, *({"x": x, "axes": np.array(a)} for a in
          ((0, 2), (2, 0), (3, 1), (-1, -3), (1, -1), (0, 1), (0, 0), (1, -3), (2, 4), (-5, 1))))  # fmt: skip


@pytest.mark.parametrize("shape", [(2, 3, 0), (2, 1, 5)])
@pytest.mark.parametrize("static", [True, False])
def test_unsqueeze(shape, static):
    x = RNG.standard_normal(shape).astype(np.float32)
    exe = program("Unsqueeze", {"x": ("float32", shapes_of(x)[not static]), "axes": ("int64", [2])})
    agree(exe, unsqueezed, *({"x": x, "axes": np.array(a)} for a in
          ((0, 1), (4, 0), (-1, 2), (3, -5), (1, 3), (0, 0), (0, -5), (5, 1), (-6, 2))))  # fmt: skip


def test_no_axes_and_rank_0():
    x = RNG.standard_normal((2, 3)).astype(np.float32)
    exe = program("Squeeze", {"x": ("float32", [2, 3]), "axes": ("int64", [0])})
    agree(exe, squeezed, {"x": x, "axes": np.zeros(0, np.int64)})
    exe, one = program("Unsqueeze", {"x": ("float32", []), "axes": ("int64", [1])}), np.array(3, np.float32)
    agree(exe, unsqueezed, *({"x": one, "axes": np.array([a])} for a in (0, -1, 1)))


def test_an_axis_of_one_element_that_only_the_data_knows_of():
    """Without axes the rank of the result is what the sizes say: known while importing, so another one fails."""
    nodes = [h.make_node("Reshape", ["x", "shape"], ["r"]), h.make_node("Squeeze", ["r"], ["y"], name="the node")]
    exe = tcomp.compile(model(nodes, {"x": ("float32", ["n"]), "shape": ("int64", [2])}, ["y"]))
    x = RNG.standard_normal(6).astype(np.float32)
    agree(exe, lambda x, shape: None if 1 in shape else x.reshape(shape), *({"x": x, "shape": np.array(s)} for s in
          ((2, 3), (6, 1), (1, 6))))  # fmt: skip
