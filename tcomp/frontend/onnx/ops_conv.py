"""Convolutions: GRAPH's `conv` is channels-last and without padding, so padding and transposes are written out around it."""

from __future__ import annotations

from collections.abc import Sequence

from tcomp.frontend.onnx import build
from tcomp.frontend.onnx.build import channels_first, channels_last
from tcomp.frontend.onnx.ops_linear import shifted
from tcomp.frontend.onnx.registry import Context, operator
from tcomp.frontend.onnx.windows import Window, window_of
from tcomp.ir import index
from tcomp.ir.graph import reshape, transpose
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import apply


def _checked(c: Context, x: Node, w: Node) -> int:
    """The number of groups, after the ranks are seen to fit."""
    groups: int = c.integer("group", 1)
    if x.type.rank != w.type.rank or x.type.rank < 3 or groups < 1:
        raise c.broken(f"operands of types {x.type} and {w.type}, {groups} groups", "equal ranks of 3 or more")
    return groups


def convolution(c: Context, x: Node, w: Node) -> Node:
    """The convolution of [N, C, *space] by [O, C/groups, *window], without bias."""
    groups, r = _checked(c, x, w), x.type.rank - 2
    w = _of_known_window(c, w)
    kernel = c.integers("kernel_shape", w.type.shape[2:])
    if tuple(kernel) != w.type.shape[2:]:
        raise c.broken(f"kernel_shape {kernel} for weights {w.type}", "the weights' own")
    window = window_of(c, x.type.shape[2:], kernel)
    x, w = _of_one_depth(x, w, groups)
    last = _padded(channels_last(x), window)
    weights = transpose(w, (*range(2, r + 2), 1, 0))
    out = apply("conv", last, weights, strides=window.strides, dilations=window.dilations, groups=groups)
    if any(isinstance(d, int) and d < 0 for d in out.type.shape):
        raise c.broken(f"a window of {window.spans} over {x.type}", "one that fits")
    number = window.number or out.type.shape[1:-1]
    return channels_first(reshape(out, (out.type.shape[0], *number, out.type.shape[-1])))


def _of_known_window(c: Context, w: Node) -> Node:
    """Weights whose window the call knows, as those of the window that the node names."""
    kernel = c.integers("kernel_shape", ())
    unknown = len(kernel) == w.type.rank - 2 and any(isinstance(d, Node) for d in w.type.shape[2:])
    return build.relabel(w, (*w.type.shape[:2], *kernel)) if unknown else w


def _of_one_depth(x: Node, w: Node, groups: int) -> tuple[Node, Node]:
    """Both with as many channels as one of them is known to have."""
    channels, each = x.type.shape[1], w.type.shape[1]
    build.unify(channels, index.mul(each, groups))
    if isinstance(channels, int) and isinstance(each, Node):
        return x, build.relabel(w, (w.type.shape[0], channels // groups, *w.type.shape[2:]))
    return build.relabel(x, (x.type.shape[0], index.mul(each, groups), *x.type.shape[2:])), w


def _padded(last: Node, w: Window) -> Node:
    return build.zero_pad(last, (0, *w.low, 0), (0, *w.high, 0))


def with_bias(out: Node, bias: Node | None) -> Node:
    return out if bias is None else apply("add", out, build.along(bias, 1, out.type.shape))


@operator("Conv")
def conv(c: Context, x: Node, w: Node, bias: Node | None = None) -> Node:
    return with_bias(convolution(c, x, w), bias)


@operator("ConvInteger", since=10)
def conv_integer(c: Context, x: Node, w: Node, zx: Node | None = None, zw: Node | None = None) -> Node:
    return convolution(c, shifted(x, zx, 0), shifted(w, zw, 0))


@operator("ConvTranspose")
def conv_transpose(c: Context, x: Node, w: Node, bias: Node | None = None) -> Node:
    """Zeros between the elements, then a convolution of stride 1 by the flipped kernel."""
    groups, r = _checked(c, x, w), x.type.rank - 2
    w = _of_known_window(c, w)
    same = c.string("auto_pad", "NOTSET") not in ("NOTSET", "VALID")  # then `_cuts` pads by the wanted size
    window = window_of(c, x.type.shape[2:], w.type.shape[2:], "VALID" if same else "")
    extra = c.integers("output_padding", (0,) * r)
    x = build.relabel(x, (x.type.shape[0], w.type.shape[0], *x.type.shape[2:]))
    low, high = _cuts(c, window, x.type.shape[2:], extra)
    last = _spaced(channels_last(x), window.strides)
    sides = [[index.sub(span - 1, cut) for span, cut in zip(window.spans, cuts)] for cuts in (low, high)]
    last = build.zero_pad(last, (0, *sides[0], 0), (0, *sides[1], 0))
    out = apply("conv", last, _flipped(w, groups), strides=(1,) * r, dilations=window.dilations, groups=groups)
    return with_bias(channels_first(out), bias)


def _cuts(c: Context, w: Window, space: Sequence[Dim], extra: Sequence[int]) -> tuple[list[Dim], list[Dim]]:
    """How much of the full result is cut off at both ends (negative: zeros are added)."""
    r, auto = len(space), c.string("auto_pad", "NOTSET")
    wanted = c.integers("output_shape", None)
    if wanted is None and auto in ("NOTSET", "VALID"):
        return list(w.low), [index.sub(b, e) for b, e in zip(w.high, extra)]
    low: list[Dim] = []
    high: list[Dim] = []
    for k, (d, s, span) in enumerate(zip(space, w.strides, w.spans)):
        full = index.add(index.mul(index.sub(d, 1), s), span + extra[k])
        size = index.mul(d, s) if wanted is None else wanted[len(wanted) - r + k]
        total = index.sub(full, size)
        if wanted is not None and not isinstance(total, int):
            raise c.unsupported("output_shape for a size that is not known")
        if isinstance(total, int) and total < 0:
            low.append(0)  # a larger result than there is: the rest is zeros at the end
            high.append((0 if wanted is None else total) - extra[k])
            continue
        half = index.floordiv(total, 2)
        small, large = half, index.sub(total, half)
        a, b = (small, large) if auto == "SAME_UPPER" else (large, small)
        low.append(a)
        high.append(index.sub(b, extra[k]))
    return low, high


def _spaced(last: Node, strides: tuple[int, ...]) -> Node:
    """stride - 1 zeros between neighbours along the spatial axes of [N, *space, C]."""
    n, *space, channels = last.type.shape
    if all(s == 1 for s in strides):
        return last
    pairs = reshape(last, (n, *(v for d in space for v in (d, 1)), channels))
    zero = [0] * pairs.type.rank
    more = list(zero)
    for k, s in enumerate(strides):
        more[2 + 2 * k] = s - 1
    wide = reshape(build.zero_pad(pairs, zero, more), (n, *(index.mul(d, s) for d, s in zip(space, strides)), channels))
    return build.crop(wide, [0] * wide.type.rank, (0, *(s - 1 for s in strides), 0))


def _flipped(w: Node, groups: int) -> Node:
    """Weights [C, O/groups, *window] as [*window reversed, C/groups, O]."""
    channels, each, *window = w.type.shape
    r = len(window)
    parts = reshape(w, (groups, index.floordiv(channels, groups), each, *window))
    turned = transpose(parts, (*range(3, r + 3), 1, 0, 2))
    kernel = reshape(turned, (*window, index.floordiv(channels, groups), index.mul(each, groups)))
    return build.flip(kernel, range(r))
