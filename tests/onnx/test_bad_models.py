"""Damaged, hostile and unsupported models: always an `Error` with its place, never a crash, a hang or a huge allocation."""

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx_support import model, normal

from tcomp.errors import Error
from tcomp.frontend.onnx import load


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs, outputs, **attributes)


def network():
    nodes = [
        node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        node("MaxPool", ["c"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Reshape", ["p", "s"], ["r"]),
        node("Gemm", ["r", "m"], ["g"], transB=1),
        node("Softmax", ["g"], ["y"]),
    ]
    constants = {"w": normal(2, 1, 3, 3), "s": np.array([0, -1]), "m": normal(3, 8)}
    return model(nodes, {"x": ("float32", ["n", 1, 4, 4])}, ["y"], 13, constants)


def shaping():
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Slice", ["s", "zero", "one"], ["n"]),
        node("Concat", ["n", "k"], ["t"], axis=0),
        node("Expand", ["c", "t"], ["e"]),
        node("Pad", ["e", "p"], ["q"]),
        node("Tile", ["q", "k2"], ["y"]),
    ]
    constants = {"zero": np.array([0]), "one": np.array([1]), "k": np.array([3]), "c": np.float32([1]),
                 "p": np.array([0, 1, 1, 0]), "k2": np.array([2, 2])}  # fmt: skip
    return model(nodes, {"x": ("float32", ["n", 2])}, ["y"], 13, constants)


def damaged(data, rng):
    """The bytes cut off somewhere, or with a few bits flipped."""
    if rng.random() < 0.3:
        return data[: rng.randrange(len(data))]
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def refused(make):
    """How many of 250 damaged files of a model are refused. Every other one gives a function."""
    data, rng, errors = make().SerializeToString(), random.Random(1), 0
    for _ in range(250):
        try:
            load(damaged(data, rng))
        except Error as fault:
            assert fault.code.startswith("TC02"), fault
            errors += 1
    return errors


@pytest.mark.parametrize("make", [network, shaping])
def test_damaged_files_give_a_function_or_an_error(make):
    """In a process of its own, so that one that hangs can be ended."""
    script = f"import test_bad_models as t; print(t.refused(t.{make.__name__}))"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 50


@pytest.mark.parametrize("data", [b"", b"\0", b"not a model", bytes(1000), b"\x08" * 50])
def test_files_that_are_no_models(data):
    with pytest.raises(Error) as fault:
        load(data)
    assert fault.value.code == "TC0201"


def test_a_missing_file(tmp_path):
    with pytest.raises(Error, match=r"TC0201: cannot read .*none\.onnx"):
        load(tmp_path / "none.onnx")


HUGE = 1 << 40


@pytest.mark.parametrize(
    "nodes",
    [
        [node("ConstantOfShape", ["h"], ["y"])],
        [node("Expand", ["x", "h"], ["y"])],
        [node("Tile", ["x", "h"], ["y"])],
        [node("Pad", ["x", "hh"], ["y"])],
        [node("Range", ["zero", "h0", "one"], ["r"]), node("Cast", ["r"], ["y"], to=TensorProto.FLOAT)],
        [node("OneHot", ["z", "h0", "v"], ["y"])],
        [node("Upsample", ["x", "scales"], ["y"])],
        [node("Unsqueeze", ["x"], ["u"], axes=[0]), node("AveragePool", ["u"], ["y"], kernel_shape=[HUGE])],
        [node("EyeLike", ["big"], ["y"])],
    ],
)
def test_absurd_sizes_are_refused_without_allocating(nodes):
    constants = {"h": np.array([HUGE, HUGE]), "hh": np.array([0, 0, HUGE, HUGE]), "h0": np.int64(HUGE * 4), "zero": np.int64(0),
                 "one": np.int64(1), "z": np.array([[0]]), "v": np.float32([0, 1]),
                 "scales": np.float32([1e9, 1e9])}  # fmt: skip
    opset = 9 if nodes[0].op_type in ("Upsample", "Unsqueeze") else 11
    ports = {"x": ("float32", [2, 3])} | ({"big": ("float32", [HUGE, HUGE])} if nodes[0].op_type == "EyeLike" else {})
    with pytest.raises(Error, match="TC02"):
        load(model(nodes, ports, ["y"], opset, constants).SerializeToString())


def test_a_tensor_that_claims_more_than_it_holds():
    for dims in ([1 << 50], [1 << 31, 1 << 31], [-1], [5]):
        m = model([node("Identity", ["w"], ["y"])], {}, ["y"])
        m.graph.initializer.append(TensorProto(name="w", data_type=1, dims=dims, raw_data=bytes(16)))
        with pytest.raises(Error) as fault:
            load(m.SerializeToString())
        assert fault.value.code == "TC0201" and "initializer 'w' of graph 'g'" in fault.value.place


def message(nodes, opset=13, ports=None, constants=None, outputs=("y",)):
    with pytest.raises(Error) as fault:
        load(model(nodes, ports or {"x": ("float32", [2, 3])}, list(outputs), opset, constants).SerializeToString())
    return fault.value


def test_errors_name_the_node_its_operator_and_the_graph():
    fault = message([node("Relu", ["x"], ["h"]), node("StringNormalizer", ["h"], ["y"], name="words")])
    assert fault.code == "TC0202" and "not supported" in str(fault)
    assert fault.place == "node 'words' (StringNormalizer) of graph 'g'"
    fault = message([node("Relu", ["x"], ["h"]), node("Add", ["h", "w"], ["y"])], constants={"w": normal(4)})
    assert fault.code == "TC0203" and fault.place == "node 'Add#1' (Add) of graph 'g'"
    assert "[2, 3] and [4]" in fault.found


def test_errors_in_subgraphs_give_the_path():
    value = helper.make_tensor_value_info("o", TensorProto.FLOAT, None)
    side = helper.make_graph([node("StringNormalizer", ["x"], ["o"], name="inner")], "then", [], [value])
    fault = message([node("If", ["c"], ["y"], name="if", then_branch=side, else_branch=side)], constants={"c": np.bool_(True)})
    assert fault.place == "node 'inner' (StringNormalizer) of graph 'g/if.then'"


def test_malformed_nodes():
    reader = message([node("Relu", ["nothing"], ["y"], name="late")])
    assert (reader.code, reader.place) == ("TC0203", "node 'late' (Relu) of graph 'g'") and "'nothing'" in reader.found
    nobody = message([node("Relu", ["x"], ["z"])])
    assert (nobody.code, nobody.place) == ("TC0203", "an output of graph 'g'") and "'y'" in nobody.found
    assert message([node("Relu", [], ["y"])]).code == "TC0203"
    assert message([node("Transpose", ["x"], ["y"], perm=[0, 0])]).code == "TC0203"
    assert message([node("Transpose", ["x"], ["y"], perm=1.5)]).code == "TC0203"
    assert message([node("Concat", ["x", "x"], ["y"])]).code == "TC0203"
    assert message([node("Relu", ["x"], ["y"]), node("Neg", ["x"], ["y"])]).code == "TC0203"
    assert message([node("Gather", ["x", "i"], ["y"])], constants={"i": np.array([2])}).code == "TC0203"
    assert message([node("Reshape", ["x", "s"], ["y"])], constants={"s": np.array([4, -1])}).code == "TC0203"


def test_unsupported_models():
    assert message([node("Relu", ["x"], ["y"])], opset=1000).code == "TC0202"
    assert message([node("Nonsense", ["x"], ["y"])]).code == "TC0202"
    assert message([node("Gelu", ["x"], ["y"])], opset=13).code == "TC0202"
    m = model([node("Foo", ["x"], ["y"], domain="com.example")], {"x": ("float32", [2])}, ["y"], domains=["com.example"])
    with pytest.raises(Error, match=r"domain 'com\.example' is not supported"):
        load(m.SerializeToString())
    m = model([node("Relu", ["x"], ["y"])], {"x": ("float32", [2])}, ["y"])
    m.graph.input[0].type.tensor_type.elem_type = TensorProto.COMPLEX64
    with pytest.raises(Error, match="complex64 is not supported"):
        load(m.SerializeToString())


def test_dims_that_the_model_does_not_have():
    data = network().SerializeToString()
    with pytest.raises(Error, match="a dimension of the model: n"):
        load(data, {"batch": 1})
    with pytest.raises(Error, match="TC0105"):
        load(data, {"n": -1})


def test_a_size_that_is_wrong_is_named():
    m = model([node("Tile", ["x", "times"], ["y"])], {"x": ("float32", [3])}, ["y"], 13, {"times": np.array([-2])})
    with pytest.raises(Error, match=r"TC0203.*Tile: the number of repeats: the value -2"):
        load(m)
