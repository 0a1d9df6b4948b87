"""Sizes that a model computes from shapes become index expressions; ranks have to be known."""

from itertools import pairwise

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx_support import compare, model, normal, ours

from tcomp.errors import Error
from tcomp.frontend.onnx import load
from tcomp.ir import index


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs, outputs, **attributes)


def shapes(m, dims=None):
    """The results' shapes as text."""
    f = load(m.SerializeToString(), dims)
    return [[index.show(d) for d in r.type.shape] for r in f.results]


def test_named_dimensions_are_symbols_and_can_be_fixed():
    m = model([node("Relu", ["x"], ["y"])], {"x": ("float32", ["batch", 3, "batch"])}, ["y"])
    assert shapes(m) == [["batch", "3", "batch"]]
    assert shapes(m, {"batch": 8}) == [["8", "3", "8"]]


def test_dimensions_without_a_name_get_distinct_symbols():
    m = model([node("Relu", ["x"], ["y"])], {"x": ("float32", [None, "?", "a-b"])}, ["y"])
    assert shapes(m) == [["x_0", "x_1", "a_b"]]


def heads():
    """[batch, seq, 12] as [batch, 4 heads, seq, 3], by the arithmetic that exporters write."""
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "zero"], ["b"], axis=0),
        node("Gather", ["shape", "one"], ["s"], axis=0),
        node("Unsqueeze", ["b", "axis"], ["b1"]),
        node("Unsqueeze", ["s", "axis"], ["s1"]),
        node("Concat", ["b1", "s1", "four", "minus"], ["target"], axis=0),
        node("Reshape", ["x", "target"], ["r"]),
        node("Transpose", ["r"], ["y"], perm=[0, 2, 1, 3]),
    ]
    constants = {"zero": np.int64(0), "one": np.int64(1), "axis": np.array([0]), "four": np.array([4]), "minus": np.array([-1])}
    return model(nodes, {"x": ("float32", ["batch", "seq", 12])}, ["y"], 13, constants)


def test_reshape_to_a_computed_shape():
    assert shapes(heads()) == [["batch", "4", "seq", "3"]]
    for b, s in ((2, 5), (1, 1), (0, 3)):
        got = ours(heads(), {"x": normal(b, s, 12)})[0]
        np.testing.assert_array_equal(got, normal(b, s, 12).reshape(b, s, 4, 3).transpose(0, 2, 1, 3))


def test_shape_arithmetic_leaves_no_nodes_behind():
    f = load(heads().SerializeToString())
    assert [n.op for n in f.nodes()] == ["parameter", "reshape", "transpose"]


@pytest.mark.parametrize("n", [0, 1, 4, 7])
def test_arithmetic_in_floats_that_is_rounded(n):
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Cast", ["shape"], ["f"], to=TensorProto.FLOAT),
        node("Mul", ["f", "half"], ["h"]),
        node("Floor", ["h"], ["w"]),
        node("Cast", ["w"], ["count"], to=TensorProto.INT64),
        node("ConstantOfShape", ["count"], ["y"]),
    ]
    m = model(nodes, {"x": ("float32", ["n"])}, ["y"], 13, {"half": np.float32([0.5])})
    assert shapes(m) == [["(n // 2)"]]
    assert ours(m, {"x": normal(n)})[0].shape == (n // 2,)


def test_expand_tile_range_and_slice_by_computed_sizes():
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Expand", ["c", "shape"], ["e"]),
        node("Tile", ["x", "shape"], ["t"]),
        node("Squeeze", ["shape"], ["n"]),
        node("Range", ["zero", "n", "two"], ["r"]),
        node("Div", ["shape", "twos"], ["half"]),
        node("Slice", ["x", "half", "shape"], ["s"]),
    ]
    constants = {"c": np.float32([7]), "zero": np.int64(0), "two": np.int64(2), "twos": np.array([2])}
    m = model(nodes, {"x": ("float32", ["n"])}, {"e": "float32", "t": "float32", "r": "int64", "s": "float32"}, 13, constants)
    for n in (1, 2, 5):
        compare(m, {"x": normal(n)})


def test_slices_of_a_symbolic_dimension_clamp_as_numpy_does():
    bounds = [(0, 3), (-2, 2**31), (1, -1), (4, 2)]
    for start, end in bounds:
        m = model([node("Slice", ["x", "s", "e"], ["y"])], {"x": ("float32", ["n"])}, ["y"], 13,
                  {"s": np.array([start]), "e": np.array([end])})  # fmt: skip
        for n in range(6):
            np.testing.assert_array_equal(ours(m, {"x": normal(n)})[0], normal(n)[start:end], f"{start}:{end} of {n}")


def test_two_symbols_that_have_to_be_equal_become_one():
    m = model([node("Add", ["a", "b"], ["y"])], {"a": ("float32", ["n", 2]), "b": ("float32", ["m", 2])}, ["y"])
    f = load(m.SerializeToString())
    assert [p.type.shape[0] for p in f.params] == [f.results[0].type.shape[0]] * 2


def test_a_table_bounds_the_symbol_that_slices_it():
    """Positions of a table of 6 rows, cut to the length: the sum needs a length of at most 6."""
    nodes = [
        node("Shape", ["x"], ["n"]),
        node("Slice", ["table", "zero", "n"], ["p"]),
        node("Add", ["x", "p"], ["y"]),
    ]
    m = model(nodes, {"x": ("float32", ["n"])}, ["y"], 13, {"table": normal(6), "zero": np.array([0])})
    (symbol,) = load(m.SerializeToString()).symbols()
    assert (symbol["name"], symbol["hi"]) == ("n", 6)
    np.testing.assert_allclose(ours(m, {"x": normal(4)})[0], normal(4) + normal(6)[:4])


@pytest.mark.parametrize("size", [(5, 6), (8, 8), (1, 9)])
def test_convolution_and_pooling_of_symbolic_sizes(size):
    nodes = [
        node("Conv", ["x", "w"], ["c"], strides=[2, 1], auto_pad="SAME_UPPER"),
        node("MaxPool", ["c"], ["p"], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
        node("AveragePool", ["p"], ["y"], kernel_shape=[2, 2], pads=[1, 1, 1, 1]),
    ]
    m = model(nodes, {"x": ("float32", [1, 2, "h", "w_"])}, ["y"], 11, {"w": normal(3, 2, 3, 3, seed=1)})
    compare(m, {"x": normal(1, 2, *size)}, 1e-4, 1e-5)


def test_resize_to_a_multiple_of_the_shape_repeats_elements():
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Mul", ["s", "k"], ["t"]),
        node(
            "Resize", ["x", "", "", "t"], ["y"], mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"
        ),
    ]
    m = model(nodes, {"x": ("float32", [1, 1, "h", "w"])}, ["y"], 13, {"k": np.array([1, 1, 2, 3])})
    assert shapes(m) == [["1", "1", "2*h", "3*w"]]
    assert "gather" not in {n.op for n in load(m.SerializeToString()).nodes()}
    x = normal(1, 1, 2, 3)
    np.testing.assert_array_equal(ours(m, {"x": x})[0], x.repeat(2, 2).repeat(3, 3))


@pytest.mark.parametrize("op,operands", [("Reshape", ["x", "s"]), ("Expand", ["x", "s"])])
def test_shapes_of_a_rank_that_is_not_known_are_refused(op, operands):
    m = model([node(op, operands, ["y"])], {"x": ("float32", [4]), "s": ("int64", ["k"])}, ["y"], 13)
    with pytest.raises(Error, match="not supported: a list of numbers whose length is not known") as fault:
        load(m.SerializeToString())
    assert fault.value.code == "TC0202"


def test_branches_on_shapes_are_chosen_while_importing():
    def side(op):
        return helper.make_graph([node(op, ["x"], ["o"])], op, [], [helper.make_tensor_value_info("o", TensorProto.FLOAT, None)])

    nodes = [
        node("Size", ["x"], ["n"]),
        node("Greater", ["n", "three"], ["c"]),
        node("If", ["c"], ["y"], then_branch=side("Neg"), else_branch=side("Abs")),
    ]
    m = model(nodes, {"x": ("float32", [4])}, ["y"], 13, {"three": np.int64(3)})
    assert [n.op for n in load(m.SerializeToString()).nodes()] == ["parameter", "neg"]


def chain(make, count, constants=None):
    """`count` nodes one after the other from x to y."""
    names = ["x", *(f"h{k}" for k in range(1, count)), "y"]
    nodes = [make(a, b) for a, b in pairwise(names)]
    return model(nodes, {"x": ("float32", [1, 2, "h", "w"])}, ["y"], 13, constants)


@pytest.mark.parametrize("kernel,stride,pad", [(2, 2, 0), (3, 2, 0), (3, 2, 1), (2, 2, 1), (5, 2, 2)])
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_sizes_stay_short_through_pooling_with_ceil_mode(op, kernel, stride, pad):
    attributes = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4, "ceil_mode": 1}
    m = chain(lambda a, b: node(op, [a], [b], **attributes), 4)
    assert len(shapes(m)[0][2]) < 80
    compare(m, {"x": normal(1, 2, 37, 64)})


@pytest.mark.parametrize("kernel,stride", [(3, 1), (3, 2), (1, 2), (2, 3)])
@pytest.mark.parametrize("auto", ["SAME_UPPER", "SAME_LOWER"])
def test_sizes_stay_short_through_automatic_padding(auto, kernel, stride):
    weights = {"k": normal(2, 2, kernel, kernel) * np.float32(0.3)}
    m = chain(lambda a, b: node("Conv", [a, "k"], [b], auto_pad=auto, strides=[stride] * 2), 4, weights)
    assert len(shapes(m)[0][2]) < 80
    compare(m, {"x": normal(1, 2, 37, 50)}, 1e-4, 1e-5)


def test_a_start_before_the_dimension_is_its_first_element():
    constants = {"b": np.array([-9]), "e": np.array([-10]), "a": np.array([2]), "s": np.array([-1])}
    m = model([node("Slice", ["x", "b", "e", "a", "s"], ["y"])], {"x": ("float32", [1, 1, "n"])}, ["y"], 13, constants)
    compare(m, {"x": normal(1, 1, 3)})


def test_a_size_that_grows_beyond_reason_is_refused():
    """Each step holds the size before it twice: written out it would double every time."""
    nodes = [node("Shape", ["x"], ["s0"])]
    for k in range(40):
        nodes += [node("Mul", [f"s{k}", f"s{k}"], [f"p{k}"]), node("Mod", [f"p{k}", "m"], [f"q{k}"])]
        nodes += [node("Add", [f"q{k}", f"s{k}"], [f"s{k + 1}"])]
    nodes += [node("ConstantOfShape", ["s40"], ["y"])]
    m = model(nodes, {"x": ("float32", ["n"])}, ["y"], 13, {"m": np.array([1000])})
    with pytest.raises(Error, match="terms is not supported"):
        load(m.SerializeToString())
