"""Shapes, repeats and counts that are data, against NumPy: one compiled program for all their values."""

import numpy as np
import pytest
from data_support import agree, program, shapes_of
from onnx import helper as h
from onnx_support import model

import tcomp

RNG = np.random.default_rng(6)


def reshaped(x, shape, zero=False):
    """What ONNX means; None where it does not allow the shape."""
    if any(d == 0 and k >= x.ndim for k, d in enumerate(shape)) and not zero:
        return None
    sizes = [x.shape[k] if d == 0 and not zero else int(d) for k, d in enumerate(shape)]
    rest = np.prod([d for d in sizes if d != -1], dtype=int)
    if min(sizes) < -1 or sizes.count(-1) > 1 or (-1 in sizes and (rest == 0 or x.size % rest)):
        return None
    sizes = [x.size // rest if d == -1 else d for d in sizes]
    return x.reshape(sizes) if np.prod(sizes) == x.size else None


RESHAPES = ((6, -1, 2), (2, 12, 1), (0, 0, -1), (0, -1, 0), (-1, 4, 6), (24, 1, 1), (5, 4, 3), (-1, -1, 24), (2, -2, -6),
            (0, 12, 0), (-1, 5, 1), (2**62, 4, 1), (2**32, 2**32, 24))  # fmt: skip


@pytest.mark.parametrize("static", [True, False])
def test_reshape(static):
    x = RNG.standard_normal((2, 3, 4)).astype(np.float32)
    exe = program("Reshape", {"x": ("float32", shapes_of(x)[not static]), "shape": ("int64", [3])})
    agree(exe, reshaped, *({"x": x, "shape": np.array(s)} for s in RESHAPES))


def test_reshape_of_sizes_0_and_1():
    exe = program("Reshape", {"x": ("float32", ["a", 3]), "shape": ("int64", [3])})
    cases = ((0, (0, 3, 1)), (0, (0, 1, 3)), (0, (-1, 3, 1)), (0, (7, 0, 3)), (0, (0, -1, 0)), (1, (1, 1, 3)), (1, (0, -1, 1)))
    agree(exe, reshaped, *({"x": np.ones((n, 3), np.float32), "shape": np.array(s)} for n, s in cases))


def test_zeros_that_are_sizes():
    exe = program("Reshape", {"x": ("float32", ["a", 3]), "shape": ("int64", [3])}, allowzero=1)
    cases = ((0, (3, 0, 5)), (0, (-1, 3, 1)), (0, (-1, 0, 3)), (0, (0, 7, 9)), (2, (3, 2, 1)), (2, (0, 3, 2)))
    agree(exe, lambda x, shape: reshaped(x, shape, True),
          *({"x": np.ones((n, 3), np.float32), "shape": np.array(s)} for n, s in cases))  # fmt: skip


def test_the_only_size_that_is_data_is_known_from_the_others():
    """It is in the type of the result: what follows is compiled for it."""
    nodes = [h.make_node("Concat", ["two", "size", "three"], ["shape"], axis=0),
             h.make_node("Reshape", ["x", "shape"], ["y"], name="the node")]  # fmt: skip
    constants = {"two": np.array([2]), "three": np.array([3])}
    exe = tcomp.compile(model(nodes, {"x": ("float32", [2, 12]), "size": ("int64", [1])}, ["y"], constants=constants))
    assert exe.outputs[0].shape == (2, 4, 3)
    x = RNG.standard_normal((2, 12)).astype(np.float32)
    agree(exe, lambda x, size: reshaped(x, (2, size[0], 3)), *({"x": x, "size": np.array([n])} for n in (4, -1, 3, 0, -2)))


@pytest.mark.parametrize("length", [1, 3, 4])
@pytest.mark.parametrize("static", [True, False])
def test_expand(static, length):
    x = RNG.standard_normal((3, 1, 4)).astype(np.float32)
    exe = program("Expand", {"x": ("float32", shapes_of(x)[not static]), "shape": ("int64", [length])})
    shapes = ((2, 1, 6, 1), (1, 3, 1, 4), (0, 1, 5, 4), (1, 3, 2, 1), (2, 2, 5, 4), (1, 1, 2, 3), (1, 1, -1, 1), (1, 3, 0, 4))
    agree(exe, expanded, *({"x": x, "shape": np.array(s[-length:])} for s in shapes))


def expanded(x, shape):
    try:
        return x * np.ones(shape, x.dtype)
    except ValueError:
        return None


def test_expand_of_sizes_that_turn_out_to_be_0_or_1():
    exe = program("Expand", {"x": ("float32", ["a", "b"]), "shape": ("int64", [2])})
    cases = (((1, 1), (2, 3)), ((0, 1), (1, 2)), ((0, 1), (0, 7)), ((1, 2), (0, 2)), ((0, 2), (3, 2)), ((1, 0), (2, 1)))
    agree(exe, expanded, *({"x": np.ones(s, np.float32), "shape": np.array(t)} for s, t in cases))


@pytest.mark.parametrize("static", [True, False])
def test_tile(static):
    x = RNG.standard_normal((3, 1, 4)).astype(np.float32)
    exe = program("Tile", {"x": ("float32", shapes_of(x)[not static]), "repeats": ("int64", [3])})
    repeats = ((2, 3, 1), (1, 0, 2), (1, 1, 1), (1, -1, 2), (2**62, 1, 1))
    agree(exe, lambda x, repeats: np.tile(x, repeats) if -1 < min(repeats) < max(repeats) + 1 < 2**40 else None,
          *({"x": x, "repeats": np.array(r)} for r in repeats))  # fmt: skip


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("static", [True, False])
def test_top_k(static, largest):
    x = RNG.integers(0, 4, (3, 7)).astype(np.float32)

    def reference(x, k):
        at = np.argsort(-x if largest else x, 1, kind="stable")
        return np.take_along_axis(x, at, 1)[:, : k[0]] if 0 <= k[0] <= 7 else None

    exe = program("TopK", {"x": ("float32", shapes_of(x)[not static]), "k": ("int64", [1])}, ["y"], largest=largest)
    agree(exe, reference, *({"x": x, "k": np.array([k])} for k in (3, 0, 7, 1, 8, -1)))


def test_one_k_for_axes_of_two_sizes():
    """The larger axis does not allow more than the smaller one does."""
    nodes = [h.make_node("TopK", [x, "k"], [f"v{x}", f"i{x}"], name="the node") for x in "ab"]
    exe = tcomp.compile(model(nodes, {"a": ("float32", [9]), "b": ("float32", [4]), "k": ("int64", [1])}, ["va", "vb"]))
    feed = {"a": np.arange(9, dtype=np.float32), "b": np.arange(4, dtype=np.float32)}
    assert [v.shape for v in exe.run(feed | {"k": np.array([4])}).values()] == [(4,), (4,)]
    with pytest.raises(tcomp.Error, match="TC0605"):
        exe.run(feed | {"k": np.array([5])})


def test_shapes_from_data_flow_on():
    """What has such a shape is added to something of a fixed shape, reduced, and asked for its shape."""
    nodes = [
        h.make_node("Reshape", ["x", "shape"], ["a"]),
        h.make_node("Add", ["a", "bias"], ["b"]),
        h.make_node("Shape", ["b"], ["s"]),
        h.make_node("ReduceSum", ["b", "axis"], ["c"], keepdims=0),
    ]
    inputs = {"x": ("float32", ["n", 6]), "shape": ("int64", [2]), "bias": ("float32", [3])}
    exe = tcomp.compile(model(nodes, inputs, {"b": "float32", "s": "int64", "c": "float32"}, constants={"axis": np.array([1])}))
    x, bias = RNG.standard_normal((4, 6)).astype(np.float32), np.arange(3, dtype=np.float32)
    for shape in ((8, 3), (-1, 3), (24, 1)):
        want = x.reshape(shape) + bias
        b, s, c = exe.run({"x": x, "shape": np.array(shape), "bias": bias}).values()
        np.testing.assert_array_equal(b, want)
        np.testing.assert_array_equal(s, want.shape)
        np.testing.assert_allclose(c, want.sum(1), rtol=1e-5)
    with pytest.raises(tcomp.Error, match="TC0605"):
        exe.run({"x": x, "shape": np.array((6, 4)), "bias": bias})
