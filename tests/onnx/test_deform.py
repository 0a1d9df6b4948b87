"""DeformConv against a sum written out, and against Conv; MaxRoiPool against onnxruntime."""

import itertools

import numpy as np
import pytest
from onnx import helper as h
from test_control_operators import compare, value

import tcomp

RNG = np.random.default_rng(17)


def model(node, inputs, outputs, opset=22):
    return h.make_model(h.make_graph([node], "g", inputs, outputs), opset_imports=[h.make_opsetid("", opset)], ir_version=10)


def linear(plane, at):
    """The linear sample of an array at a point; what is outside counts as 0."""
    base = np.floor(at).astype(int)
    total = 0.0
    for corner in itertools.product((0, 1), repeat=plane.ndim):
        place = base + corner
        if all(0 <= p < d for p, d in zip(place, plane.shape)):
            total += plane[tuple(place)] * np.prod([1 - abs(p - a) for p, a in zip(place, at)])
    return total


def deformed(x, w, offset, bias, mask, *, strides, pads, dilations, group, offset_group):
    n, channels, *_ = x.shape
    out, each, *kernel = w.shape
    counts, r = offset.shape[2:], len(kernel)
    taps = list(itertools.product(*map(range, kernel)))
    offset = offset.reshape(n, offset_group, len(taps), r, *counts)
    mask = np.ones((n, offset_group, len(taps), *counts)) if mask is None else mask.reshape(n, offset_group, len(taps), *counts)
    y = np.zeros((n, out, *counts))
    for b, o, place in itertools.product(range(n), range(out), itertools.product(*map(range, counts))):
        for i, (k, tap) in itertools.product(range(each), enumerate(taps)):
            channel = o // (out // group) * each + i
            g = channel // (channels // offset_group)
            at = [p * s - a + t * d for p, s, a, t, d in zip(place, strides, pads, tap, dilations)]
            at = np.array(at) + offset[(b, g, k, slice(None), *place)]
            y[(b, o, *place)] += w[(o, i, *tap)] * linear(x[b, channel], at) * mask[(b, g, k, *place)]
    return y if bias is None else y + bias.reshape(-1, *[1] * r)


PLAIN = {"strides": [1, 1], "pads": [0, 0, 0, 0], "dilations": [1, 1], "group": 1, "offset_group": 1}
CASES = {
    "plain": (PLAIN, (2, 2, 5, 6), (3, 2, 2, 2), False),
    "everything": (PLAIN | {"strides": [2, 1], "pads": [1, 0, 2, 1], "dilations": [1, 2], "group": 2, "offset_group": 2},
                   (1, 4, 6, 7), (4, 2, 3, 2), True),
    "one axis": ({"strides": [2], "pads": [1, 1], "dilations": [1], "group": 1, "offset_group": 2}, (2, 2, 9), (2, 2, 3), True),
}  # fmt: skip


def operands(case):
    attributes, shape, weights, with_mask = CASES[case]
    r, kernel = len(shape) - 2, weights[2:]
    pads, steps = attributes["pads"], zip(attributes["strides"], attributes["dilations"])
    counts = [
        (d + pads[k] + pads[k + r] - (kernel[k] - 1) * e - 1) // s + 1 for (k, d), (s, e) in zip(enumerate(shape[2:]), steps)
    ]
    rows = attributes["offset_group"] * int(np.prod(kernel))
    feeds = {"x": RNG.standard_normal(shape), "w": RNG.standard_normal(weights),
             "offset": RNG.standard_normal((shape[0], rows * r, *counts)) * 1.5}  # fmt: skip
    if with_mask:
        feeds |= {"bias": RNG.standard_normal(weights[0]), "mask": RNG.random((shape[0], rows, *counts))}
    return attributes, {k: v.astype(np.float32) for k, v in feeds.items()}


@pytest.mark.parametrize("case", CASES)
def test_deformed_convolution(case):
    attributes, feeds = operands(case)
    node = h.make_node("DeformConv", list(feeds), ["y"], **attributes)
    m = model(node, [value(k, v) for k, v in feeds.items()], [value("y", None)])
    expected = deformed(*(feeds.get(k) for k in ("x", "w", "offset", "bias", "mask")), **attributes)
    np.testing.assert_allclose(tcomp.compile(m).run(feeds)["y"], expected, rtol=1e-4, atol=1e-4)


def test_without_offsets_it_is_a_convolution():
    attributes, feeds = operands("plain")
    inputs = [value("x", ("n", 2, "h", "w")), value("w", feeds["w"]), value("offset", ("n", 8, "a", "b"))]
    exe = tcomp.compile(model(h.make_node("DeformConv", list(feeds), ["y"], **attributes), inputs, [value("y", None)]))
    conv = tcomp.compile(model(h.make_node("Conv", ["x", "w"], ["y"]), inputs[:2], [value("y", None)]))
    for n, height, width in ((1, 5, 6), (3, 2, 4)):
        x = RNG.standard_normal((n, 2, height, width)).astype(np.float32)
        zero = np.zeros((n, 8, height - 1, width - 1), np.float32)
        found = exe.run({"x": x, "w": feeds["w"], "offset": zero})["y"]
        np.testing.assert_allclose(found, conv.run({"x": x, "w": feeds["w"]})["y"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_maxima_of_regions(scale):
    node = h.make_node("MaxRoiPool", ["x", "rois"], ["y"], pooled_shape=[3, 2], spatial_scale=scale)
    m = model(node, [value("x", (2, 3, "h", "w")), value("rois", ("r", 5))], [value("y", None)], 18)
    rois = np.array([[0, 0, 0, 7, 7], [1, 2, 1, 6, 9], [0, 3, 3, 3, 3], [1, 20, 20, 30, 30], [0, -3, -2, 4, 4]], np.float32)
    x = RNG.standard_normal((2, 3, 8, 10)).astype(np.float32)
    compare(m, {"x": x, "rois": rois}, {"x": x[:, :, :5, :3], "rois": rois[:2]})
