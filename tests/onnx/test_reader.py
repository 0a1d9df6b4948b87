"""What a model's file holds beside its nodes: initializers, external data, functions, locations; and folding."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import set_external_data
from onnx_support import model, normal, ours

from tcomp.errors import Error
from tcomp.frontend.onnx import load
from tcomp.ir.interp.graph import run

ADD = helper.make_node("Add", ["x", "w"], ["y"], name="sum")


def adder(ir_version=8, also_input=False):
    ports = {"x": ("float32", [3])} | ({"w": ("float32", [3])} if also_input else {})
    return model([ADD], ports, ["y"], constants={"w": normal(3, seed=1)}, ir_version=ir_version)


def test_initializers_are_constants_and_those_that_are_inputs_too_have_defaults():
    f = load(adder().SerializeToString())
    assert [p["name"] for p in f.params] == ["x"] and not f.defaults
    f = load(adder(also_input=True).SerializeToString())
    assert [p["name"] for p in f.params] == ["x", "w"]
    assert [n for n, _ in f.defaults] == ["w"] and not f.defaults[0][1].flags.writeable
    f = load(adder(ir_version=3, also_input=True).SerializeToString())  # where the format asked for it, it means nothing
    assert [p["name"] for p in f.params] == ["x"] and not f.defaults


def test_an_overridable_shape_is_a_constant_after_all():
    m = model([helper.make_node("Reshape", ["x", "s"], ["y"])], {"x": ("float32", [6]), "s": ("int64", [2])}, ["y"], 13,
              {"s": np.array([2, 3])})  # fmt: skip
    f = load(m.SerializeToString())
    assert [p["name"] for p in f.params] == ["x"] and f.results[0].type.shape == (2, 3)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "int32", "int8", "uint8", "bool"])
@pytest.mark.parametrize("raw", [True, False])
def test_tensors_of_every_type_and_storage(dtype, raw):
    array = np.array([[0, 1, 2], [3, 4, 100]]).astype(dtype)
    number = helper.np_dtype_to_tensor_dtype(array.dtype)
    tensor = helper.make_tensor("w", number, array.shape, array.tobytes() if raw else array.reshape(-1).tolist(), raw=raw)
    m = model([helper.make_node("Identity", ["w"], ["y"])], {}, {"y": dtype})
    m.graph.initializer.append(tensor)
    (got,) = ours(m, {})
    assert got.dtype == array.dtype
    np.testing.assert_array_equal(got, array)


def test_bfloat16_weights():
    tensor = helper.make_tensor("w", TensorProto.BFLOAT16, [2], [1.5, -2.0])
    m = model([helper.make_node("Cast", ["w"], ["y"], to=TensorProto.FLOAT)], {}, ["y"])
    m.graph.initializer.append(tensor)
    assert ours(m, {})[0].tolist() == [1.5, -2.0]


def external(folder, location, length=None, offset=None):
    """A model beside weights of 12 bytes, whose external data is said to be at `location`."""
    m = adder()
    tensor = m.graph.initializer[0]
    (folder / "weights.bin").write_bytes(tensor.raw_data)
    set_external_data(tensor, location, offset=offset, length=length)
    tensor.ClearField("raw_data")
    path = folder / "model.onnx"
    path.write_bytes(m.SerializeToString())
    return path


def test_external_data_inside_the_folder(tmp_path):
    f = load(external(tmp_path, "weights.bin"))
    np.testing.assert_allclose(run(f, [normal(3)])[0], normal(3) + normal(3, seed=1))


@pytest.mark.parametrize("location", ["../weights.bin", "/etc/passwd", "sub/../../weights.bin", "", "missing.bin", "link.bin"])
def test_external_data_outside_the_folder_is_refused(tmp_path, location):
    outside = tmp_path / "outside.bin"
    outside.write_bytes(bytes(12))
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "link.bin").symlink_to(outside)
    with pytest.raises(Error) as fault:
        load(external(folder, location))
    assert fault.value.code == "TC0204" and "initializer 'w'" in fault.value.place


def test_external_data_that_is_cut_short_or_has_no_folder(tmp_path):
    for length, offset in ((16, None), (8, None), (None, 4), (12, 1 << 60)):
        with pytest.raises(Error, match="TC0204"):
            load(external(tmp_path, "weights.bin", length, offset))
    with pytest.raises(Error, match="TC0204"):
        load(external(tmp_path, "weights.bin").read_bytes())


def test_functions_of_the_model_are_inlined():
    body = [
        helper.make_node("Constant", [], ["c"]),
        helper.make_node("Mul", ["a", "c"], ["m"]),
        helper.make_node("Add", ["m", "b"], ["r"]),
    ]
    body[0].attribute.append(onnx.AttributeProto(name="value_float", ref_attr_name="by", type=onnx.AttributeProto.FLOAT))
    function = helper.make_function("mine", "scale", ["a", "b"], ["r"], body, [helper.make_opsetid("", 13)], ["by"])
    call = helper.make_node("scale", ["x", "x"], ["y"], domain="mine", by=3.0)
    m = model([call], {"x": ("float32", [3])}, ["y"], 13, functions=[function], domains=["mine"])
    np.testing.assert_allclose(ours(m, {"x": normal(3)})[0], 4 * normal(3), rtol=1e-6)


def test_a_function_that_calls_itself_is_refused():
    call = helper.make_node("loop", ["x"], ["y"], domain="mine")
    function = helper.make_function("mine", "loop", ["x"], ["y"], [call], [helper.make_opsetid("mine", 1)])
    m = model([call], {"x": ("float32", [3])}, ["y"], 13, functions=[function], domains=["mine"])
    with pytest.raises(Error, match="deep are not supported"):
        load(m.SerializeToString())


def test_nodes_know_where_they_came_from():
    f = load(adder().SerializeToString())
    assert [str(p) for p in f.locs.of(f.results[0])] == ["g/sum"]


def test_what_depends_on_constants_alone_is_folded():
    nodes = [
        helper.make_node("Exp", ["w"], ["e"]),
        helper.make_node("Transpose", ["e"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "t"], ["y"]),
    ]
    m = model(nodes, {"x": ("float32", [2, 3])}, ["y"], constants={"w": normal(4, 3)})
    f = load(m.SerializeToString())
    assert [n.op for n in f.nodes()] == ["parameter", "constant", "dot"]
    np.testing.assert_allclose(f.nodes()[1]["value"].array, np.exp(normal(4, 3)).T)


def test_one_repeated_number_stays_one_number():
    nodes = [
        helper.make_node("ConstantOfShape", ["s"], ["a"], value=numpy_helper.from_array(np.float32([2]))),
        helper.make_node("Sqrt", ["a"], ["b"]),
        helper.make_node("Transpose", ["b"], ["c"], perm=[1, 0]),
        helper.make_node("Mul", ["x", "c"], ["y"]),
    ]
    m = model(nodes, {"x": ("float32", [5000, 3000])}, ["y"], 13, {"s": np.array([3000, 5000])})
    sizes = [n["value"].array.size for n in load(m.SerializeToString()).nodes() if n.op == "constant"]
    assert sizes == [1]


def test_importing_twice_gives_the_same_nodes():
    data = adder().SerializeToString()
    assert load(data).results[0] is load(data).results[0]


def test_onnx_is_not_imported_before_a_model_is_read():
    import subprocess
    import sys

    code = "import sys, tcomp.frontend.onnx; sys.exit('onnx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
