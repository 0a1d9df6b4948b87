"""Resize and Upsample whose scales, sizes or region are data: one program for all of them, against onnxruntime."""

import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper
from test_control_operators import compare, model, value

import tcomp
from tcomp.errors import Error

RNG = np.random.default_rng(11)
IMAGE = RNG.standard_normal((1, 2, 7, 9)).astype(np.float32)
SCALES = [(1, 1, 2, 3), (1, 1, 0.5, 0.61), (1, 1, 1, 1), (1, 1, 3.3, 0.12)]
SIZES = [(1, 2, 14, 18), (1, 2, 3, 5), (1, 2, 7, 9), (1, 2, 1, 1)]


def resize(opset=19, by="scales", shape=IMAGE.shape, kind=T.FLOAT, rank=4, extra=(), **attributes):
    operands = ["x", "roi" if "roi" in extra else "", *(["scales"] if by == "scales" else ["", "sizes"])]
    node = h.make_node("Resize", operands, ["y"], **attributes)
    given = value("scales", (rank,)) if by == "scales" else value("sizes", (rank,), T.INT64)
    m = model([node], [value("x", shape, kind), given, *(value(n, (2 * rank,)) for n in extra)], [value("y", None, kind)])
    m.opset_import[0].version = opset
    return m


def compare_with_known(m, *feeds):
    """Against programs in which the parameters are constants."""
    exe = tcomp.compile(m)
    for feed in feeds:
        known = h.make_model(m.graph, opset_imports=m.opset_import, ir_version=m.ir_version)
        kept = [i for i in known.graph.input if i.name == "x"]
        del known.graph.input[:]
        known.graph.input.extend(kept)
        known.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in feed.items() if n != "x")
        want = tcomp.compile(known).run({"x": feed["x"]})["y"]
        np.testing.assert_allclose(exe.run(feed)["y"], want, rtol=1e-6, atol=1e-6)


def by_scales(*lists):
    return [{"x": IMAGE, "scales": np.array(s, np.float32)} for s in lists]


def by_sizes(*lists):
    return [{"x": IMAGE, "sizes": np.array(s, np.int64)} for s in lists]


@pytest.mark.parametrize("transform", ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_scales(mode, transform):
    m = resize(mode=mode, coordinate_transformation_mode=transform)
    if transform == "align_corners":  # onnxruntime takes the whole size there, the operator's text the product
        return compare_with_known(m, *by_scales(*SCALES))
    compare(m, *by_scales(*SCALES))


@pytest.mark.parametrize("rounding", ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
def test_nearest_rounds_as_asked(rounding):
    compare(resize(mode="nearest", nearest_mode=rounding), *by_scales(*SCALES))
    compare(resize(by="sizes", mode="nearest", nearest_mode=rounding), *by_sizes(*SIZES))


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_sizes(mode):
    compare(resize(by="sizes", mode=mode), *by_sizes(*SIZES))


@pytest.mark.parametrize(("mode", "exclude"), [("linear", 0), ("cubic", 0), ("cubic", 1)])  # onnxruntime excludes in cubic only
@pytest.mark.parametrize("by", ["scales", "sizes"])
def test_the_width_of_an_antialiased_filter_is_data(by, mode, exclude):
    feeds = by_scales(*SCALES, (1, 1, 0.3, 0.2)) if by == "scales" else by_sizes(*SIZES)
    compare(resize(by=by, mode=mode, antialias=1, exclude_outside=exclude), *feeds)


def test_filters_along_three_axes():
    m = resize(shape=(2, 6, 2), rank=3, mode="linear", antialias=1)
    x = RNG.standard_normal((2, 6, 2)).astype(np.float32)
    compare_with_known(m, *({"x": x, "scales": np.array(s, np.float32)} for s in ((1.67, 2.08, 0.99), (0.5, 0.4, 3))))


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_one_scale_for_all_axes(policy):
    m = resize(by="sizes", rank=2, mode="linear", axes=[2, 3], keep_aspect_ratio_policy=policy)
    compare(m, *by_sizes((14, 14), (3, 9), (20, 4)))


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_a_region_that_is_data(mode):
    attributes = {"mode": mode, "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 10.0}
    m = resize(by="sizes", extra=("roi",), **attributes)
    regions = [(0, 0, 0.4, 0.6, 1, 1, 0.6, 0.8), (0, 0, 0, 0, 1, 1, 1, 1), (0, 0, 0.25, -0.5, 1, 1, 0.5, 1.5)]
    feeds = [f | {"roi": np.array(r, np.float32)} for r in regions for f in by_sizes((1, 2, 3, 3), (1, 2, 1, 5), (1, 2, 9, 2))]
    compare(m, *feeds)


def test_axes_in_any_order():
    compare(resize(rank=2, axes=[3, 2], mode="linear"), *by_scales((2, 0.5), (0.3, 1)))


def test_images_of_any_size():
    m = resize(shape=("n", 2, "h", "w"), mode="linear")
    images = [RNG.standard_normal((n, 2, a, b)).astype(np.float32) for n, a, b in ((1, 4, 5), (3, 1, 8), (2, 16, 1))]
    compare(m, *({"x": x, "scales": np.array((1, 1, *s), np.float32)} for x in images for s in ((2, 2), (1, 1.5))))


def test_antialias_of_images_of_any_size():
    m = resize(by="sizes", rank=2, axes=[2, 3], shape=(1, 2, "h", "w"), mode="linear", antialias=1)
    images = [RNG.standard_normal((1, 2, a, b)).astype(np.float32) for a, b in ((4, 5), (9, 30))]
    compare(m, *({"x": x, "sizes": np.array(s, np.int64)} for x in images for s in ((4, 4), (6, 7))))


@pytest.mark.parametrize("opset", [9, 10])
def test_the_old_operators(opset):
    node = h.make_node("Upsample" if opset == 9 else "Resize", ["x", "scales"], ["y"], mode="linear")
    m = model([node], [value("x", IMAGE.shape), value("scales", (4,))], [value("y", None)])
    m.opset_import[0].version = opset
    compare(m, *by_scales((1, 1, 2, 3), (1, 1, 1.5, 1)))


def test_bytes():
    m = resize(kind=T.UINT8, mode="linear")
    x = RNG.integers(0, 256, IMAGE.shape).astype(np.uint8)
    compare(m, *({"x": x, "scales": np.array(s, np.float32)} for s in SCALES), atol=1)


def test_parts_of_the_list_that_are_known_stay_known():
    nodes = [h.make_node("Concat", ["ones", "s"], ["scales"], axis=0),
             h.make_node("Resize", ["x", "", "scales"], ["y"], mode="nearest")]  # fmt: skip
    m = model(nodes, [value("x", IMAGE.shape), value("s", (2,))], [value("y", None)], {"ones": np.ones(2, np.float32)})
    exe = compare(m, *({"x": IMAGE, "s": np.array(s, np.float32)} for s in ((2, 2), (0.5, 3))))
    assert [str(d) for d in exe.outputs[0].shape[:2]] == ["1", "2"]


def test_an_infinite_neighbour_does_not_leak_along_an_axis_that_stays():
    x = IMAGE.copy()
    x[0, 1] = np.inf
    got = tcomp.compile(resize(mode="linear")).run({"x": x, "scales": np.array((1, 1, 2, 2), np.float32)})["y"]
    assert np.isfinite(got[0, 0]).all() and np.isinf(got[0, 1]).all()


@pytest.mark.parametrize("bad", [0, -1, np.nan, np.inf])
def test_a_scale_that_is_not_positive_fails_the_call(bad):
    exe = tcomp.compile(resize())
    with pytest.raises(Error, match=r"(?s)TC0605.*Resize"):
        exe.run({"x": IMAGE, "scales": np.array((1, 1, bad, 1), np.float32)})
    assert exe.run({"x": IMAGE, "scales": np.ones(4, np.float32)})["y"].shape == IMAGE.shape


@pytest.mark.parametrize("antialias", [0, 1])
def test_results_of_no_size_and_of_any(antialias):
    exe = tcomp.compile(resize(mode="linear", antialias=antialias))
    assert exe.run({"x": IMAGE, "scales": np.array((1, 1, 1e-9, 1), np.float32)})["y"].shape == (1, 2, 0, 9)
    for scales in ((1, 1, 1e9, 1e9), (1e9,) * 4, (1, 1, 2e9, 1)):
        with pytest.raises(Error, match=r"TC060[56]"):
            exe.run({"x": IMAGE, "scales": np.array(scales, np.float32)})
