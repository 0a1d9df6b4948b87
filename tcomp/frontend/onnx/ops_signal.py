"""Signals: DFT and STFT as products with matrices of cosines and sines, mel weights. Lengths, axes and steps may be data."""

from __future__ import annotations

from collections.abc import Sequence
from math import pi

import numpy as np

from tcomp.frontend.onnx import build
from tcomp.frontend.onnx.build import scalar, with_scalar
from tcomp.frontend.onnx.data_axes import around_axis, axis_flags
from tcomp.frontend.onnx.ops_math import position
from tcomp.frontend.onnx.registry import Context, operator
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.dtype import DType
from tcomp.ir.graph import broadcast, cast, full, reshape, transpose
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import apply, constant

LONGEST = 1 << 13  # a transform; its matrix has the square of that


@operator("DFT", since=17)
def dft_attribute(c: Context, x: Node, length: Node | None = None) -> Node:
    return _dft(c, x, length, c.axis(c.integer("axis", 1), x.type.rank))


@operator("DFT", since=20)
def dft(c: Context, x: Node, length: Node | None = None, axis: Node | None = None) -> Node:
    known = (-2,) if axis is None else c.known(axis)
    if known is not None or axis is None:
        return _dft(c, x, length, c.axis((known or (-2,))[0], x.type.rank))
    return _along_data(c, x, length, axis)


def _dft(c: Context, x: Node, length: Node | None, at: int) -> Node:
    """The transform of x[..., 1 or 2] along an axis, zero-padded or cut to `length`."""
    inverse, one_sided = bool(c.integer("inverse", 0)), bool(c.integer("onesided", 0))
    if x.type.shape[-1] not in (1, 2) or at == x.type.rank - 1:
        raise c.unsupported(f"a transform of {x.type} along axis {at}")
    size = x.type.shape[at]
    if length is not None:
        size = _length(c, length, "the length")
    elif inverse and one_sided:
        size = index.mul(index.sub(size, 1), 2)
    if isinstance(size, int) and not 0 < size <= LONGEST:
        raise c.unsupported(f"a transform of length {size} of {x.type}")
    if inverse and one_sided:
        return _real_inverse(x, at, size)
    return transform(_cut(x, at, size), at, size, inverse, one_sided)


def _length(c: Context, x: Node, what: str) -> Dim:
    known = c.known(x)
    return known[0] if known is not None else c.size(x, what, LONGEST, 1)


def _along_data(c: Context, x: Node, length: Node | None, axis: Node) -> Node:
    """The transform along an axis that is data: of what is before it, itself, and what is behind it."""
    *sizes, parts = x.type.shape
    rank = x.type.rank
    named = build.normal_positions(reshape(cast(axis, dt.i64), (1,)), rank)
    named = apply("where", with_scalar("lt", named, 0), scalar(rank, named), named)  # stays out of range
    out = _dft(c, reshape(x, (*around_axis(c, sizes, named), parts)), length, 1)
    have = build.dimensions(sizes)
    count = build.size_like(out.type.shape[1], have)
    result = c.sizes(apply("where", axis_flags(c, named, rank - 1), count, have), "the result's shape")
    return reshape(out, (*result, out.type.shape[-1]))


def _cut(x: Node, at: int, size: Dim) -> Node:
    """`x` with `size` elements along an axis: cut, or zeros appended."""
    kept = index.minimum(x.type.shape[at], size)
    if kept != x.type.shape[at]:
        x = build.take(x, at, 0, kept)
    return build.zero_pad(x, [0] * x.type.rank, [index.sub(size, kept) if a == at else 0 for a in range(x.type.rank)])


def transform(x: Node, at: int, size: Dim, inverse: bool, one_sided: bool) -> Node:
    """[..., frequencies, ..., 2]."""
    count = index.add(index.floordiv(size, 2), 1) if one_sided else size
    sign, parts = 1 if inverse else -1, x.type.shape[-1]
    scale = build.dimension(size, dt.f64) if inverse else full(1, dt.f64)
    if isinstance(size, int) and isinstance(count, int):
        angle = 2 * np.pi * (np.outer(np.arange(count), np.arange(size)) % size) / size * sign
        factor = 1 / size if inverse else 1.0
        real, imaginary = np.cos(angle) * factor, np.sin(angle) * factor
        rows = [np.stack([real, imaginary], -1), np.stack([-imaginary, real], -1)][:parts]
        return _product(x, at, constant(np.stack(rows, 2).astype(dt.to_numpy(x.type.dtype))))
    cosine, sine = (apply("div", t, broadcast(scale, t.type.shape, ())) for t in _turns(size, sign))
    table = _table([cosine, sine, apply("neg", sine), cosine][: 2 * parts], (size, parts, 2), x.type.dtype)
    return _product(x, at, apply("gather", table, _places(count, size, size), axis=0))


def _real_inverse(x: Node, at: int, size: Dim) -> Node:
    """A real signal from the first half of its spectrum."""
    half, parts = index.add(index.floordiv(size, 2), 1), x.type.shape[-1]
    x = _cut(x, at, half)
    if isinstance(size, int) and isinstance(half, int):
        angle = 2 * np.pi * (np.outer(np.arange(size), np.arange(half)) % size) / size
        twice = np.where((np.arange(half) == 0) | (2 * np.arange(half) == size), 1, 2) / size
        rows = np.stack([np.cos(angle) * twice, -np.sin(angle) * twice], -1)[..., :parts, None]
        return _product(x, at, constant(rows.astype(dt.to_numpy(x.type.dtype))))
    table = _table(_turns(size, -1)[:parts], (size, parts, 1), dt.f64)
    turned = apply("gather", table, _places(size, half, size), axis=0)
    k = position((half,), 0, dt.f64)
    once = apply("or", with_scalar("eq", k, 0), apply("eq", with_scalar("mul", k, 2), build.size_like(size, k)))
    factor = apply("div", apply("where", once, scalar(1, k), scalar(2, k)), build.size_like(size, k))
    return _product(x, at, cast(apply("mul", turned, broadcast(factor, turned.type.shape, (1,))), x.type.dtype))


def _turns(size: Dim, sign: int) -> tuple[Node, Node]:
    """Cosines and sines of one turn in `size` steps, in f64."""
    step = position((size,), 0, dt.f64)
    angle = with_scalar("mul", apply("div", with_scalar("mul", step, 2 * pi), build.size_like(size, step)), sign)
    return apply("cos", angle), apply("sin", angle)


def _table(columns: Sequence[Node], shape: build.Shape, dtype: DType) -> Node:
    """Vectors as the columns of a table, whose rows have the rest of `shape`."""
    wide = build.concat([reshape(v, (v.type.shape[0], 1)) for v in columns], 1)
    return reshape(cast(wide, dtype), shape)


def _places(rows: Dim, columns: Dim, size: Dim) -> Node:
    """i64[rows, columns]: the product of both positions, as one of `size` steps of a turn."""
    product = apply("mul", position((rows, columns), 0), position((rows, columns), 1))
    return apply("mod", product, build.size_like(size, product))


def _product(x: Node, at: int, weights: Node) -> Node:
    """The contraction of axis `at` and the last one of `x` with weights [frequencies, steps, parts, parts of the result]."""
    r = x.type.rank
    out = apply("dot", x, weights, batch=((), ()), contract=((at, r - 1), (1, 2)))
    return transpose(out, (*range(at), r - 2, *range(at, r - 2), r - 1))


@operator("STFT", since=17)
def stft(c: Context, x: Node, step: Node, window: Node | None = None, length: Node | None = None) -> Node:
    """Frames of [batch, signal, 1 or 2] every `step`, each times the window and transformed."""
    size = _frame_size(c, window, length)
    hop = c.size(step, "the frame step", least=1)
    frames = _frames(x, size, hop)
    if window is not None:
        frames = apply("mul", frames, build.along(window, 2, frames.type.shape))
    return transform(frames, 2, size, False, bool(c.integer("onesided", 1)))


def _frame_size(c: Context, window: Node | None, length: Node | None) -> Dim:
    """The window's size where there is one, which the length has to be."""
    if window is None and length is None:
        raise c.broken("neither a window nor a frame length", "one of them")
    size = window.type.shape[0] if window is not None else 0
    if length is not None:
        given = _length(c, length, "the frame length")
        if window is None:
            size = given
        elif given != size:
            c.require(apply("eq", *(build.dimension(d, dt.i64) for d in (given, size))), "a frame length that is the window's")
    if isinstance(size, int) and not 0 < size <= LONGEST:
        raise c.unsupported(f"frames of {size}")
    return size


def _frames(x: Node, size: Dim, hop: Dim) -> Node:
    """[batch, frames, size, parts]: only frames that lie within the signal."""
    if isinstance(size, int) and isinstance(hop, int):
        return transpose(apply("window", x, axes=(1,), sizes=(size,), strides=(hop,), dilations=(1,)), (0, 1, 3, 2))
    room = index.sub(x.type.shape[1], size)
    count = index.maximum(0, index.add(index.floordiv(room, hop), 1))
    first = position((count, size), 0)
    places = apply("add", apply("mul", first, build.size_like(hop, first)), position((count, size), 1))
    return apply("gather", x, places, axis=1)


@operator("MelWeightMatrix", since=17)
def mel_weight_matrix(c: Context, bins: Node, length: Node, rate: Node, low: Node, high: Node) -> Node:
    """[spectrum, bins]: each bin is a triangle over the spectrum, from its left neighbour's place to its right one's."""
    count = c.size(bins, "the number of bins", 1 << 20)
    spectrum = index.add(index.floordiv(c.size(length, "the length", 1 << 30), 2), 1)
    places = _mel_places(count, *(reshape(cast(v, dt.f64), ()) for v in (length, rate, low, high)))
    shape = (spectrum, count)
    left, middle, right = (broadcast(build.take(places, 0, k, count), shape, (1,)) for k in range(3))
    row = position(shape, 0)
    rise, width, fall = (cast(apply("sub", *pair), dt.f64) for pair in ((row, left), (middle, left), (right, row)))
    up = apply("where", apply("eq", left, middle), scalar(1, rise), apply("div", rise, width))
    up = apply("where", apply("and", apply("ge", row, left), apply("le", row, middle)), up, scalar(0, up))
    down = apply("div", fall, with_scalar("max", cast(apply("sub", right, middle), dt.f64), 1))
    falls = apply("and", apply("ge", row, middle), apply("lt", row, right))
    return cast(cast(apply("where", falls, down, up), dt.f32), c.dtype("output_datatype", dt.f32))


def _mel_places(count: Dim, length: Node, rate: Node, *edges: Node) -> Node:
    """Where in the spectrum the bins' corners are: evenly spaced in mels between the edges."""
    first, last = (with_scalar("mul", apply("log10", with_scalar("add", with_scalar("div", v, 700), 1)), 2595) for v in edges)
    number = index.add(count, 2)
    k = position((number,), 0, dt.f64)
    span = broadcast(apply("sub", last, first), k.type.shape, ())
    points = apply("add", broadcast(first, k.type.shape, ()), apply("div", apply("mul", k, span), build.size_like(number, k)))
    power = apply("pow", scalar(10, points), with_scalar("div", points, 2595))
    hertz = with_scalar("mul", with_scalar("sub", power, 1), 700)
    scaled = apply("mul", broadcast(with_scalar("add", length, 1), k.type.shape, ()), hertz)
    return cast(apply("floordiv", scaled, broadcast(rate, k.type.shape, ())), dt.i64)
