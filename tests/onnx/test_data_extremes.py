"""Operands that are data at the ends of their types: the right result, or a refusal, never what wrapped around."""

import numpy as np
import pytest
from data_support import agree, fails, program
from onnx import TensorProto as T
from onnx import helper as h
from test_control_operators import model, value

import tcomp
from tcomp.errors import Error

LEAST, MOST = -(2**63), 2**63 - 1


def ranges(kind):
    return program("Range", {n: (kind, []) for n in "abs"}, {"y": kind})


def test_ranges_of_extreme_integers():
    exe = ranges("int64")

    def reference(a, b, s):
        count = len(range(a, b, s)) if s and abs(b - a) // max(abs(s), 1) < 1000 else 0 if s and (b > a) != (s > 0) else None
        return None if count is None else np.array([a + s * k for k in range(count)], np.int64)

    ends = (LEAST, LEAST + 1, -(2**62), -7, 0, 10, 2**62, MOST - 1, MOST)
    feeds = [{"a": a, "b": b, "s": s} for a in ends for b in ends for s in (LEAST, -(2**62), -3, 0, 3, 2**61, MOST)]
    agree(exe, reference, *feeds)


@pytest.mark.parametrize("bound", [np.nan, np.inf, -np.inf, 3e38])
def test_ranges_of_bounds_that_are_no_numbers(bound):
    exe = ranges("float32")
    for at in "abs":
        feed = {"a": np.float32(0), "b": np.float32(2), "s": np.float32(1)} | {at: np.float32(bound)}
        if np.isfinite(bound) and at != "b":
            (got,) = exe.run(feed).values()
            np.testing.assert_array_equal(got, np.float32([] if at == "a" else [0]))
        else:
            fails(exe, feed)


@pytest.mark.parametrize("upper", [0, 1])
def test_diagonals_that_no_matrix_has(upper):
    exe = program("Trilu", {"x": ("float32", ["a", "b"]), "k": ("int64", [])}, upper=upper)
    x = np.arange(1, 13, dtype=np.float32).reshape(3, 4)

    def reference(x, k):
        return (np.triu if upper else np.tril)(x, max(-9, min(9, int(k))))

    agree(exe, reference, *({"x": x, "k": np.int64(k)} for k in (LEAST, LEAST + 1, -(2**32), -1, 0, 2, 2**32, MOST - 1, MOST)))
    for k in (LEAST, MOST):
        fixed = program("Trilu", {"x": ("float32", ["a", "b"])}, constants={"k": np.int64(k)}, upper=upper)
        agree(fixed, lambda x: reference(x, k), {"x": x})  # noqa: B023


def test_lengths_that_no_sequence_has():
    exe = program("ReverseSequence", {"x": ("float32", ["time", "batch"]), "lengths": ("int64", ["batch"])})
    x = np.arange(1, 13, dtype=np.float32).reshape(4, 3)

    def reference(x, lengths):
        return np.stack([np.r_[x[:n, b][::-1], x[n:, b]] for b, n in enumerate(lengths)], axis=1)

    agree(exe, reference, {"x": x, "lengths": np.array([4, 0, 2])}, {"x": x, "lengths": np.array([1, 3, 4])})
    for wrong in (-1, 5, LEAST, MOST):
        fails(exe, {"x": x, "lengths": np.array([4, wrong, 2])})


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
def test_a_place_that_is_no_number_spoils_its_own_sample_alone(mode, padding):
    inputs = {"X": ("float32", [1, 1, 3, 3]), "g": ("float32", [1, 1, "w", 2])}
    exe = program("GridSample", inputs, mode=mode, padding_mode=padding)
    x, grid = np.ones((1, 1, 3, 3), np.float32), np.zeros((1, 1, 2, 2), np.float32)
    whole = exe(x, grid)
    grid[0, 0, 1, 1] = np.nan
    np.testing.assert_array_equal(exe(x, grid)[..., 0], whole[..., 0])


def test_regions_that_are_no_numbers():
    inputs = {"X": ("float32", [1, 1, 4, 4]), "r": ("float32", ["n", 4]), "b": ("int64", ["n"])}
    exe = program("RoiAlign", inputs, output_height=2, output_width=2, sampling_ratio=2)
    x, regions = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4), np.float32([[0, 0, 2, 2]] * 2)
    whole = exe(x, regions, np.array([0, 0]))
    regions[1, 2] = np.nan
    np.testing.assert_array_equal(exe(x, regions, np.array([0, 0]))[0], whole[0])


def test_results_of_more_axes_than_arrays_have():
    with pytest.raises(Error, match=r"TC0203.*a result of 71 axes"):
        program("Unsqueeze", {"x": ("float32", ["a"])}, constants={"axes": np.arange(70)})


@pytest.mark.parametrize("size", [0, -1])
def test_regions_of_no_cells(size):
    inputs = {"X": ("float32", [1, 1, 4, 4]), "r": ("float32", ["n", 4]), "b": ("int64", ["n"])}
    with pytest.raises(Error, match=r"TC0203.*RoiAlign"):
        program("RoiAlign", inputs, output_height=size, output_width=2)


@pytest.mark.parametrize("op, attributes", [("RandomUniform", {"shape": [2**33], "seed": 1.0}), ("Range", {})])
def test_what_is_made_of_nothing_is_made_by_the_call(op, attributes):
    bounds = dict.fromkeys("abc", np.int64(1)) | {"b": np.int64(2**33)} if op == "Range" else {}
    exe = program(op, {}, {"y": "int64" if bounds else "float32"}, constants=bounds, **attributes)
    assert exe.report()["bytes"]["constants"] < 2**16


@pytest.mark.parametrize("limit", [2**31 - 1, MOST])
def test_a_limit_that_stands_for_none(limit):
    """What the loop collects is not given memory for as many turns."""
    body = h.make_graph(
        [h.make_node("Add", ["s", "x"], ["t"]), h.make_node("Less", ["t", "top"], ["go"]), h.make_node("Neg", ["t"], ["o"])],
        "body", [value("i", (), T.INT64), value("c", (), T.BOOL), value("s", ())],
        [value("go", (), T.BOOL), value("t", ()), value("o", ())])  # fmt: skip
    m = model([h.make_node("Loop", ["limit", "", "x"], ["last", "all"], body=body)], [value("x", ()), value("top", ())],
              [value("last", ()), value("all", (None,))], {"limit": np.array(limit)})  # fmt: skip
    exe = tcomp.compile(m)
    for top, turns in ((0, 1), (3.5, 3), (10, 9)):
        last, all_ = exe(np.float32(1), np.float32(top))
        np.testing.assert_array_equal(all_, -np.arange(2, 2 + turns))
        assert last == 1 + turns
