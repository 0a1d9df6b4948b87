"""com.microsoft: crops, samples and windows against onnxruntime."""

import numpy as np
import pytest
from compiled_support import MICROSOFT, agree, one
from onnx import TensorProto as T
from onnx import helper as h
from test_control_operators import compare, value

import tcomp

RNG = np.random.default_rng(29)


def f32(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_samples(mode, padding):
    feeds = {"x": f32(2, 3, 5, 6), "grid": (f32(2, 4, 3, 2) * 0.8).astype(np.float32)}
    agree(one("GridSample", feeds, mode=mode, padding_mode=padding, align_corners=1), feeds, 1e-3)


def test_windows():
    feeds = {"x": f32(3, 11, 2)}
    agree(one("UnfoldTensor", feeds, dim=1, size=3, step=2), feeds)
    agree(one("UnfoldTensor", feeds, size=2), feeds)


BOXES = np.array(
    [[0, 0, 1, 1], [0.1, 0.2, 0.7, 0.9], [0.8, 0.1, 0.2, 0.6], [-0.2, 0.3, 1.3, 0.5], [0.5, 0.5, 0.5, 0.5]], np.float32
)


def crops(size, **attributes):
    inputs = [value("x", ("n", 2, "h", "w")), value("boxes", ("r", 4)), value("batch", ("r",), T.INT32)]
    node = h.make_node("CropAndResize", ["x", "boxes", "batch", "size"], ["y"], domain=MICROSOFT, **attributes)
    constant = h.make_tensor("size", T.INT32, [2], size)
    graph = h.make_graph([node], "g", inputs, [value("y", None)], [constant])
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 17), h.make_opsetid(MICROSOFT, 1)], ir_version=8)


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("size", [(3, 4), (1, 5), (1, 1)])
def test_crops(mode, size):
    m = crops(size, mode=mode, extrapolation_value=-7.0)
    batch = np.array([0, 1, 1, 0, 0], np.int32)
    compare(m, *({"x": f32(2, 2, *space), "boxes": BOXES, "batch": batch} for space in ((7, 9), (4, 5))))


def test_crops_outside_of_the_batch_are_refused():
    exe = tcomp.compile(crops((2, 2)))
    with pytest.raises(tcomp.Error, match="TC06"):
        exe.run({"x": f32(2, 2, 5, 5), "boxes": BOXES[:1], "batch": np.array([2], np.int32)})
