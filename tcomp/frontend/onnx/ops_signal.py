"""Signals: DFT and STFT as products with matrices of cosines and sines (lengths have to be known), mel weights."""

from __future__ import annotations

import numpy as np

from tcomp.frontend.onnx import build
from tcomp.frontend.onnx.registry import Context, operator
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.graph import reshape, transpose
from tcomp.ir.node import Node
from tcomp.ir.ops import apply, constant


@operator("DFT", since=17)
def dft_attribute(c: Context, x: Node, length: Node | None = None) -> Node:
    return _dft(c, x, length, c.integer("axis", 1))


@operator("DFT", since=20)
def dft(c: Context, x: Node, length: Node | None = None, axis: Node | None = None) -> Node:
    return _dft(c, x, length, -2 if axis is None else int(c.require_constant(axis, "the axis").reshape(())))


def _dft(c: Context, x: Node, length: Node | None, axis: int) -> Node:
    """The transform of x[..., 1 or 2] along an axis, zero-padded or cut to `length`."""
    at, parts = c.axis(axis, x.type.rank), x.type.shape[-1]
    inverse, one_sided = bool(c.integer("inverse", 0)), bool(c.integer("onesided", 0))
    size = x.type.shape[at] if length is None else c.dims(length, "the length")[0]
    if length is None and inverse and one_sided:
        size = index.mul(index.sub(size, 1), 2)
    if not isinstance(size, int) or parts not in (1, 2) or at == x.type.rank - 1 or not 0 < size <= 1 << 13:
        raise c.unsupported(f"a transform of length {index.show(size)} of {x.type}")
    if inverse and one_sided:
        return _real_inverse(x, at, size)
    return transform(_cut(x, at, size), at, size, inverse, one_sided)


def _cut(x: Node, at: int, size: int) -> Node:
    """`x` with `size` elements along an axis: cut, or zeros appended."""
    missing = index.sub(size, x.type.shape[at])
    if isinstance(missing, int) and missing < 0:
        return build.take(x, at, 0, size)
    return build.zero_pad(x, [0] * x.type.rank, [missing if a == at else 0 for a in range(x.type.rank)])


def transform(x: Node, at: int, size: int, inverse: bool, one_sided: bool) -> Node:
    """[..., frequencies, ..., 2]."""
    count = size // 2 + 1 if one_sided else size
    angle = 2 * np.pi * (np.outer(np.arange(count), np.arange(size)) % size) / size * (1 if inverse else -1)
    scale = 1 / size if inverse else 1.0
    real, imaginary = np.cos(angle) * scale, np.sin(angle) * scale
    rows = [np.stack([real, imaginary], -1), np.stack([-imaginary, real], -1)][: x.type.shape[-1]]
    weights = constant(np.stack(rows, 2).transpose(0, 1, 2, 3).astype(dt.to_numpy(x.type.dtype)))
    out = apply("dot", x, weights, batch=((), ()), contract=((at, x.type.rank - 1), (1, 2)))
    r = x.type.rank
    return transpose(out, (*range(at), r - 2, *range(at, r - 2), r - 1))


def _real_inverse(x: Node, at: int, size: int) -> Node:
    """A real signal from the first half of its spectrum."""
    half = size // 2 + 1
    x = _cut(x, at, half)
    angle = 2 * np.pi * (np.outer(np.arange(size), np.arange(half)) % size) / size
    twice = np.where((np.arange(half) == 0) | (2 * np.arange(half) == size), 1, 2) / size
    rows = np.stack([np.cos(angle) * twice, -np.sin(angle) * twice], -1)[..., : x.type.shape[-1], None]
    weights = constant(rows.astype(dt.to_numpy(x.type.dtype)))
    out = apply("dot", x, weights, batch=((), ()), contract=((at, x.type.rank - 1), (1, 2)))
    r = x.type.rank
    return transpose(out, (*range(at), r - 2, *range(at, r - 2), r - 1))


@operator("STFT", since=17)
def stft(c: Context, x: Node, step: Node, window: Node | None = None, length: Node | None = None) -> Node:
    """Frames of [batch, signal, 1 or 2] every `step`, each times the window and transformed."""
    hop = int(c.require_constant(step, "the frame step").reshape(()))
    size = c.dims(length, "the frame length")[0] if length is not None else window.type.shape[0] if window is not None else None
    if not isinstance(size, int) or not 0 < size <= 1 << 13 or hop < 1:
        raise c.unsupported("frames whose length is not known")
    frames = apply("window", x, axes=(1,), sizes=(size,), strides=(hop,), dilations=(1,))
    frames = transpose(frames, (0, 1, 3, 2))
    if window is not None:
        frames = apply("mul", frames, build.along(window, 2, frames.type.shape))
    return transform(frames, 2, size, False, bool(c.integer("onesided", 1)))


@operator("MelWeightMatrix", since=17)
def mel_weight_matrix(c: Context, bins: Node, length: Node, rate: Node, low: Node, high: Node) -> Node:
    names = ("number of bins", "length", "rate", "lower edge", "upper edge")
    values = [float(c.require_constant(x, f"the {n}").reshape(())) for x, n in zip((bins, length, rate, low, high), names)]
    count, spectrum, edges = int(values[0]), int(values[1]) // 2 + 1, values[3:]
    mel = 2595 * np.log10(1 + np.array(edges) / 700)
    points = mel[0] + np.arange(count + 2) * (mel[1] - mel[0]) / (count + 2)
    places = ((int(values[1]) + 1) * (700 * (10 ** (points / 2595) - 1)) // values[2]).astype(np.int64)
    out = np.zeros((spectrum, count), np.float32)
    for k in range(count):
        a, b, e = places[k : k + 3]
        out[b if a == b else slice(0), k] = 1
        out[a : b + 1, k] = 1 if a == b else np.arange(b + 1 - a) / (b - a)
        out[b:e, k] = (e - np.arange(b, e)) / max(e - b, 1)
    return reshape(constant(out.astype(dt.to_numpy(c.dtype("output_datatype", dt.f32)))), (spectrum, count))
