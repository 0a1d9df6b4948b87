"""RoiAlign against onnxruntime, with as many samples as the regions ask for: one compiled program for all regions."""

import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from test_control_operators import compare, model, value

RNG = np.random.default_rng(41)


def align(**attributes):
    node = h.make_node("RoiAlign", ["x", "rois", "batch"], ["y"], **{"output_height": 3, "output_width": 2} | attributes)
    inputs = [value("x", (2, 3, "h", "w")), value("rois", ("r", 4)), value("batch", ("r",), T.INT64)]
    return model([node], inputs, [value("y", None)])


ROIS = np.array([[0, 0, 7, 7], [2, 1, 6, 9], [3, 3, 3, 3], [1, 2, 30, 4], [-3, -2, 4, 4]], np.float32)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("where", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("ratio", [0, 2])
def test_samples_of_regions(mode, where, ratio):
    m = align(mode=mode, coordinate_transformation_mode=where, sampling_ratio=ratio, spatial_scale=0.75)
    x = RNG.standard_normal((2, 3, 8, 10)).astype(np.float32)
    feeds = [{"x": x, "rois": ROIS[rows], "batch": np.array(batch)} for rows, batch in
             ((slice(0, 5), [0, 1, 1, 0, 1]), (slice(2, 3), [1]), (slice(0, 2), [0, 0]))]  # fmt: skip
    compare(m, *feeds)


def test_regions_without_a_pixel():
    m = align(coordinate_transformation_mode="half_pixel")
    x = RNG.standard_normal((2, 3, 4, 4)).astype(np.float32)
    compare(m, {"x": x, "rois": np.array([[3, 3, 3, 3], [2, 2, 1, 1]], np.float32), "batch": np.array([0, 1])})
