"""Signals whose lengths, axes and steps are data, against NumPy's transforms: one program for all of them."""

import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from test_control_operators import model, value

import tcomp
from tcomp.errors import Error

RNG = np.random.default_rng(17)
BLOCK = RNG.standard_normal((2, 6, 9, 2)).astype(np.float32)


def dft(shape, axis=True, length=True, **attributes):
    node = h.make_node("DFT", ["x", "length" if length else "", "axis" if axis else ""], ["y"], **attributes)
    given = [value(n, (), T.INT64) for n, there in (("length", length), ("axis", axis)) if there]
    m = model([node], [value("x", shape), *given], [value("y", None)])
    m.opset_import[0].version = 20
    return m


def transformed(x, n, axis, inverse=False, onesided=False):
    z = x[..., 0] + 1j * x[..., 1] if x.shape[-1] == 2 else x[..., 0]
    axis = axis % x.ndim
    if inverse and onesided:
        return np.fft.irfft(z.astype(complex), n, axis)[..., None]
    out = (np.fft.ifft if inverse else np.fft.fft)(z.astype(complex), n, axis)
    if onesided:
        out = np.take(out, range(out.shape[axis] // 2 + 1), axis)
    return np.stack([out.real, out.imag], -1)


def check(got, want):
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("inverse", "onesided"), [(0, 0), (1, 0), (1, 1)])
def test_transforms_along_any_axis(inverse, onesided):
    exe = tcomp.compile(dft(BLOCK.shape, inverse=inverse, onesided=onesided))
    for axis, n in ((0, 2), (1, 6), (2, 12), (-2, 5), (-4, 3), (2, 1)):
        got = exe.run({"x": BLOCK, "axis": np.array(axis), "length": np.array(n)})["y"]
        check(got, transformed(BLOCK, n, axis, inverse, onesided))


@pytest.mark.parametrize("onesided", [0, 1])
def test_real_signals_of_their_own_length(onesided):
    exe = tcomp.compile(dft((2, 6, 9, 1), length=False, onesided=onesided))
    for axis in (0, 1, 2, -2, -3, -4):
        check(exe.run({"x": BLOCK[..., :1], "axis": np.array(axis)})["y"], transformed(BLOCK[..., :1], None, axis, 0, onesided))


@pytest.mark.parametrize(("inverse", "onesided"), [(0, 1), (1, 1), (0, 0)])
def test_signals_of_any_size(inverse, onesided):
    exe = tcomp.compile(dft(("b", "n", 2 if inverse else 1), axis=False, length=False, inverse=inverse, onesided=onesided))
    for shape in ((1, 5), (3, 16), (2, 2)):
        x = RNG.standard_normal((*shape, 2 if inverse else 1)).astype(np.float32)
        check(exe.run({"x": x})["y"], transformed(x, None, 1, inverse, onesided))


@pytest.mark.parametrize("axis", [3, -1, 4, -5])
def test_a_transform_along_no_axis_of_the_signal_fails_the_call(axis):
    exe = tcomp.compile(dft(BLOCK.shape))
    with pytest.raises(Error, match=r"(?s)TC0605.*DFT"):
        exe.run({"x": BLOCK, "axis": np.array(axis), "length": np.array(4)})


@pytest.mark.parametrize("length", [0, -1, 1 << 14])
def test_a_transform_of_no_possible_length_fails_the_call(length):
    exe = tcomp.compile(dft(BLOCK.shape, axis=False))
    with pytest.raises(Error, match=r"(?s)TC0605.*DFT"):
        exe.run({"x": BLOCK, "length": np.array(length)})


def stft(n, names, window=0, **attributes):
    node = h.make_node("STFT", ["x", "step", "window" if "window" in names else "", "length"][: 4 if "length" in names else 3],
                       ["y"], **attributes)  # fmt: skip
    given = {n: value(n, (), T.INT64) for n in ("step", "length")} | {"window": value("window", (window or "w",))}
    return model([node], [value("x", (2, n, 1)), *(given[k] for k in ("step", *names))], [value("y", None)])


def framed(x, step, size, window=None, onesided=1):
    frames = np.stack([x[:, k : k + size, 0] for k in range(0, x.shape[1] - size + 1, step)], 1)
    out = np.fft.fft(frames if window is None else frames * window)
    out = out[..., : size // 2 + 1] if onesided else out
    return np.stack([out.real, out.imag], -1)


@pytest.mark.parametrize("n", [40, "n"])
@pytest.mark.parametrize("onesided", [0, 1])
def test_frames_of_any_length_and_step(n, onesided):
    exe = tcomp.compile(stft(n, ["length"], onesided=onesided))
    x = RNG.standard_normal((2, 40, 1)).astype(np.float32)
    for step, size in ((8, 16), (1, 5), (13, 40), (50, 7), (16, 1)):
        check(exe.run({"x": x, "step": np.array(step), "length": np.array(size)})["y"], framed(x, step, size, None, onesided))


def test_windows_of_known_and_of_any_length():
    x, w = RNG.standard_normal((2, 40, 1)).astype(np.float32), RNG.standard_normal(10).astype(np.float32)
    known, free = (tcomp.compile(stft(40, names, size)) for names, size in ((["window", "length"], 10), (["window"], 0)))
    for step in (3, 10):
        check(known.run({"x": x, "step": np.array(step), "window": w, "length": np.array(10)})["y"], framed(x, step, 10, w))
        check(free.run({"x": x, "step": np.array(step), "window": w[:7]})["y"], framed(x, step, 7, w[:7]))
    with pytest.raises(Error, match="TC0605"):
        known.run({"x": x, "step": np.array(3), "window": w, "length": np.array(9)})


@pytest.mark.parametrize(("step", "size"), [(0, 5), (-1, 5), (3, 0)])
def test_frames_that_cannot_be_fail_the_call(step, size):
    exe = tcomp.compile(stft(40, ["length"]))
    x = np.zeros((2, 40, 1), np.float32)
    with pytest.raises(Error, match=r"(?s)TC0605.*STFT"):
        exe.run({"x": x, "step": np.array(step), "length": np.array(size)})


def test_what_sizes_of_inputs_have_to_be_is_checked_by_the_call():
    exe = tcomp.compile(stft("n", ["window", "length"]))
    x, w = RNG.standard_normal((2, 40, 1)).astype(np.float32), RNG.standard_normal(10).astype(np.float32)
    check(exe.run({"x": x, "step": np.array(4), "window": w, "length": np.array(10)})["y"], framed(x, 4, 10, w))
    with pytest.raises(Error, match=r"(?s)TC0605.*STFT"):
        exe.run({"x": x, "step": np.array(4), "window": w[:9], "length": np.array(10)})


def mel(bins, length, rate, low, high):
    """The weights by the operator's text."""
    edges = 2595 * np.log10(1 + np.array([low, high]) / 700)
    points = edges[0] + np.arange(bins + 2) * ((edges[1] - edges[0]) / (bins + 2))
    at = (((length + 1) * (700 * (10 ** (points / 2595) - 1))) // rate).astype(int)
    out = np.zeros((length // 2 + 1, bins))
    for k, (a, b, e) in enumerate(zip(at, at[1:], at[2:])):
        for j in range(a, b + 1):
            out[j, k] = 1 if a == b else (j - a) / (b - a)
        for j in range(b, e):
            out[j, k] = (e - j) / (e - b)
    return out


@pytest.mark.parametrize("kind", [T.FLOAT, T.DOUBLE])
def test_mel_weights(kind):
    names = ("bins", "length", "rate", "low", "high")
    kinds = dict(zip(names, (T.INT64, T.INT64, T.INT64, T.FLOAT, T.FLOAT)))
    node = h.make_node("MelWeightMatrix", names, ["y"], output_datatype=kind)
    exe = tcomp.compile(model([node], [value(n, (), kinds[n]) for n in names], [value("y", None, kind)]))
    for case in ((8, 16, 8192, 0.0, 4096.0), (5, 64, 16000, 100.0, 7000.0), (1, 2, 100, 0.0, 50.0), (20, 32, 8000, 20.0, 3000.0)):
        got = exe.run({n: np.array(v, h.tensor_dtype_to_np_dtype(kinds[n])) for n, v in zip(names, case)})["y"]
        assert got.dtype == h.tensor_dtype_to_np_dtype(kind)
        np.testing.assert_allclose(got, mel(*case), rtol=1e-5, atol=1e-6)
