"""Slices, splits and padding whose positions, axes, steps and widths are data, against NumPy: one compiled program for all."""

import itertools

import numpy as np
import pytest
from data_support import agree, fails, program, shapes_of

RNG = np.random.default_rng(8)
ENDLESS = 2**63 - 1
PAIR = ("int64", [2])


def sliced(x, starts, ends, axes=(0, 1), steps=(1, 1)):
    """What ONNX means; None for axes or steps that it does not allow."""
    if not all(-x.ndim <= a < x.ndim for a in axes) or len({a % x.ndim for a in axes}) < len(axes) or 0 in steps:
        return None
    for start, end, axis, step in zip(starts, ends, axes, steps):
        d = x.shape[axis]
        start, end = (int(v) + d * bool(v < 0) for v in (start, end))
        first, stop = (min(max(start, 0), d), min(max(end, 0), d)) if step > 0 else (min(max(start, 0), d - 1), max(end, -1))
        x = np.take(x, list(range(first, stop, int(step))), int(axis))
    return x


BOUNDS = [((0, 1), (2, 5)), ((1, -1), (ENDLESS, ENDLESS)), ((-2, -ENDLESS), (100, -1)), ((3, 2), (1, 2)), ((-100, 0), (-1, 0)),
          ((0, 0), (3, 4)), ((2, 3), (-100, -ENDLESS - 1))]  # fmt: skip


@pytest.mark.parametrize("shape", [(3, 4, 5), (1, 0, 2)])
@pytest.mark.parametrize("static", [True, False])
def test_starts_and_ends(shape, static):
    x = RNG.standard_normal(shape).astype(np.float32)
    exe = program("Slice", {"x": ("float32", shapes_of(x)[not static]), "starts": PAIR, "ends": PAIR})
    agree(exe, sliced, *({"x": x, "starts": np.array(b), "ends": np.array(e)} for b, e in BOUNDS))


@pytest.mark.parametrize("steps", [(-1, 2), (1, -3)])
@pytest.mark.parametrize("static", [True, False])
def test_known_axes_and_steps(static, steps):
    x = RNG.standard_normal((3, 4, 5)).astype(np.float32)
    known = {"axes": np.array([2, 0]), "steps": np.array(steps)}
    exe = program("Slice", {"x": ("float32", shapes_of(x)[not static]), "starts": PAIR, "ends": PAIR}, constants=known)
    agree(exe, lambda x, starts, ends: sliced(x, starts, ends, (2, 0), steps),
          *({"x": x, "starts": np.array(b), "ends": np.array(e)}
            for (b, _), (_, e) in itertools.product(BOUNDS, BOUNDS)))  # fmt: skip


@pytest.mark.parametrize("known", ["starts", "ends"])
@pytest.mark.parametrize("value", [(0, -2), (5, 3), (-100, 1)])
def test_one_side_is_data(known, value):
    x, other = RNG.standard_normal((5, 3)).astype(np.float32), "ends" if known == "starts" else "starts"
    constants = {known: np.array(value)}
    exe = program("Slice", {"x": ("float32", ["a", 3]), other: PAIR}, constants=constants, operands=["x", "starts", "ends"])
    feeds = [{"x": x, other: np.array(b)} for pair in BOUNDS for b in pair]
    agree(exe, lambda x, **given: sliced(x, **given, **constants), *feeds)


AXES = ((0, 1), (1, 2), (-1, 0), (2, -3), (0, 0), (1, -2), (3, 0))
STEPS = ((1, 1), (2, 3), (-1, 1), (-2, -1), (ENDLESS, 1), (-ENDLESS - 1, 2), (0, 1))


@pytest.mark.parametrize("static", [True, False])
def test_axes(static):
    x = RNG.standard_normal((3, 4, 5)).astype(np.float32)
    exe = program("Slice", {"x": ("float32", shapes_of(x)[not static]), "starts": PAIR, "ends": PAIR, "axes": PAIR})
    agree(exe, sliced, *({"x": x, "starts": np.array(b), "ends": np.array(e), "axes": np.array(a)}
          for (b, e), a in itertools.product(BOUNDS, AXES)))  # fmt: skip


@pytest.mark.parametrize("static", [True, False])
def test_axes_and_steps(static):
    x = RNG.standard_normal((3, 4, 5)).astype(np.float32)
    inputs = {"x": ("float32", shapes_of(x)[not static]), **dict.fromkeys(("starts", "ends", "axes", "steps"), PAIR)}
    exe = program("Slice", inputs)
    agree(exe, sliced, *({"x": x, "starts": np.array(b), "ends": np.array(e), "axes": np.array(a), "steps": np.array(s)}
          for (b, e), a, s in itertools.product(BOUNDS, AXES[:4], STEPS)))  # fmt: skip


@pytest.mark.parametrize("static", [True, False])
def test_split(static):
    x = RNG.standard_normal((3, 4)).astype(np.float32)
    exe = program("Split", {"x": ("float32", shapes_of(x)[not static]), "sizes": ("int64", [3])}, ["a", "b", "c"], axis=1)
    for sizes in ((1, 2, 1), (0, 4, 0), (0, 0, 4), (4, 0, 0)):
        for got, want in zip(exe.run({"x": x, "sizes": np.array(sizes)}).values(), np.split(x, np.cumsum(sizes)[:-1], 1)):
            np.testing.assert_array_equal(got, want)
    for sizes in ((2, 2, 2), (5, -1, 0), (1, 1, 1), (2**62, 2**62, -(2**63) + 4)):
        fails(exe, {"x": x, "sizes": np.array(sizes)})


def test_split_of_nothing():
    exe = program("Split", {"x": ("float32", [0]), "sizes": ("int64", [2])}, ["a", "b"])
    assert [v.shape for v in exe.run({"x": np.zeros(0, np.float32), "sizes": np.array([0, 0])}).values()] == [(0,), (0,)]
    fails(exe, {"x": np.zeros(0, np.float32), "sizes": np.array([1, -1])})


def padded(mode):
    """NumPy's padding; negative widths crop. None where they crop more than there is, or for axes that are not distinct."""

    def reference(x, pads, value=0, axes=(0, 1)):
        n = len(axes)
        if not all(-x.ndim <= a < x.ndim for a in axes) or len({a % x.ndim for a in axes}) < n:
            return None
        widths = {a % x.ndim: (int(pads[k]), int(pads[k + n])) for k, a in enumerate(axes)}
        pairs = [widths.get(a, (0, 0)) for a in range(x.ndim)]
        cut = [[max(-w, 0) for w in pair] for pair in pairs]
        if any(d < a + b for d, (a, b) in zip(x.shape, cut)) or max(map(max, pairs)) > 1000:
            return None
        x = x[tuple(slice(a, d - b) for d, (a, b) in zip(x.shape, cut))]
        grow = [[max(w, 0) for w in pair] for pair in pairs]
        return np.pad(x, grow, mode, **({"constant_values": value} if mode == "constant" else {}))

    return reference


PADS = ((1, 2, 0, 3), (0, 0, 0, 0), (-1, 2, 1, -3), (2, 0, 2, 0), (-2, -2, -1, -2), (-2, 0, -2, 0), (0, -5, 0, 9), (2, 3, 2, 3))


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
@pytest.mark.parametrize("static", [True, False])
def test_pads(static, mode):
    x = RNG.standard_normal((3, 4)).astype(np.float32)
    exe = program("Pad", {"x": ("float32", shapes_of(x)[not static]), "pads": ("int64", [4])}, mode=mode)
    pads = PADS if mode == "constant" else [p for p in PADS if min(p) >= 0]
    agree(exe, padded(mode), *({"x": x, "pads": np.array(p)} for p in pads))


def test_pads_around_nothing():
    x = np.zeros((0, 1), np.float32)
    exe = program("Pad", {"x": ("float32", ["a", "b"]), "pads": ("int64", [4])})
    agree(exe, padded("constant"), *({"x": x, "pads": np.array(p)} for p in PADS))
    exe = program("Pad", {"x": ("float32", ["a", "b"]), "pads": ("int64", [4])}, mode="edge")
    agree(exe, padded("edge"), {"x": x, "pads": np.array((0, 3, 0, 1))})
    fails(exe, {"x": x, "pads": np.array((1, 0, 0, 0))}, "TC0604")


@pytest.mark.parametrize("static", [True, False])
def test_pads_values_and_axes(static):
    x = RNG.standard_normal((3, 4)).astype(np.float32)
    inputs = {"x": ("float32", shapes_of(x)[not static]), "pads": ("int64", [4]), "value": ("float32", []), "axes": PAIR}
    agree(program("Pad", inputs), padded("constant"), *({"x": x, "pads": np.array(p), "value": np.float32(k), "axes": np.array(a)}
          for a in ((0, 1), (1, 0), (-1, -2), (0, 0), (0, 2)) for k, p in enumerate(PADS)))  # fmt: skip
    inputs |= {"pads": PAIR, "axes": ("int64", [1])}
    agree(program("Pad", inputs), padded("constant"), *({"x": x, "pads": np.array(p), "value": np.float32(7), "axes": np.array(a)}
          for a in ((0,), (1,), (-1,), (-3,)) for p in ((0, 1), (2, 0), (2**62, 2**62))))  # fmt: skip


def test_center_crop_pad():
    """A function of ONNX that asks for shapes, pads and slices; also on axes of its own."""
    x = RNG.standard_normal((4, 3)).astype(np.float32)

    def reference(x, shape):
        for a, n in enumerate(shape):
            d = x.shape[a]
            x = np.take(x, range((d - n) // 2, (d - n) // 2 + n), a) if n < d else x
            x = np.pad(x, [((n - d) // 2, n - d - (n - d) // 2) if k == a and n > d else (0, 0) for k in range(2)])
        return x

    exe = program("CenterCropPad", {"x": ("float32", ["a", "b"]), "shape": PAIR})
    agree(exe, reference, *({"x": x, "shape": np.array(s)} for s in ((4, 3), (2, 1), (6, 7), (3, 6), (9, 2), (0, 3))))
