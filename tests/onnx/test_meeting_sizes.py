"""Dimensions of different names that meet in a broadcast: equal or 1, as the call says, for every operator that broadcasts."""

import itertools

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_support import theirs

import tcomp
from tcomp.errors import Error
from tcomp.frontend.meetings import Meetings
from tcomp.frontend.onnx import load
from tcomp.ir.interp.graph import run

node = helper.make_node
PAIRS = ((3, 3), (1, 4), (4, 1), (1, 1), (0, 0), (0, 1), (1, 0))  # equal, or one of them 1


def model(nodes, inputs, constants=None):
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()]
    out = helper.make_tensor_value_info("o", TensorProto.FLOAT, None)
    kept = [numpy_helper.from_array(np.asarray(a), k) for k, a in (constants or {}).items()]
    graph = helper.make_graph(nodes, "g", ports, [out], kept)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


ADD = node("Add", ["x", "y"], ["s"])
MODELS = {
    "Add": ([node("Add", ["x", "y"], ["o"])], {"x": ["a", "b"], "y": ["c", "d"]}, None),
    "Where": ([node("Less", ["x", "y"], ["s"]), node("Where", ["s", "x", "y"], ["o"])], {"x": ["a", "b"], "y": ["c", "d"]}, None),
    "Max, Sum": ([node("Max", ["x", "y"], ["s"]), node("Sum", ["s", "x", "y"], ["o"])], {"x": ["a", "b"], "y": ["c", "d"]}, None),
    "Expand": ([node("Shape", ["y"], ["s"]), node("Expand", ["x", "s"], ["o"])], {"x": ["a", "b"], "y": ["c", "d"]}, None),
    "MatMul": ([node("MatMul", ["x", "y"], ["o"])], {"x": ["a", "b", 2, 3], "y": ["c", "d", 3, "m"]}, None),
    "Gemm": ([node("Gemm", ["w", "w", "y"], ["m"]), node("Add", ["x", "m"], ["o"])], {"x": ["a", "b"], "y": ["c", "d"]}, None),
    "PRelu": ([ADD, node("PRelu", ["s", "y"], ["o"])], {"x": ["a", "b"], "y": ["c", "d"]}, None),
    "Einsum": ([node("Einsum", ["x", "y"], ["o"], equation="ij,ij->i")], {"x": ["a", "b"], "y": ["c", "d"]}, None),
    "Softmax": ([ADD, node("Softmax", ["s"], ["o"], axis=-1)], {"x": ["a", "b"], "y": ["c", "d"]}, None),
    "ReduceSum": ([ADD, node("ReduceSum", ["s"], ["r"], keepdims=1), node("Mul", ["r", "x"], ["o"])],
                  {"x": ["a", "b"], "y": ["c", "d"]}, None),
    "Concat": ([ADD, node("Mul", ["s", "x"], ["t"]), node("Concat", ["s", "t"], ["o"], axis=1)],
               {"x": ["a", "b"], "y": ["c", "d"]}, None),
    "Reshape": ([ADD, node("Reshape", ["s", "flat"], ["o"])], {"x": ["a", "b"], "y": ["c", "d"]}, {"flat": np.array([-1])}),
    "Shape": ([ADD, node("Shape", ["s"], ["t"]), node("Cast", ["t"], ["o"], to=TensorProto.FLOAT)],
              {"x": ["a", "b"], "y": ["c", "d"]}, None),
    "LayerNormalization": ([ADD, node("LayerNormalization", ["s", "g"], ["o"])], {"x": ["a", "b", 4], "y": ["c", "d", 4]},
                           {"g": np.ones(4, np.float32)}),
    "Conv": ([ADD, node("Conv", ["s", "w"], ["o"], pads=[1, 1, 1, 1])], {"x": ["a", 2, "b", 3], "y": ["c", 2, "d", 3]},
             {"w": np.ones((2, 2, 3, 3), np.float32) / 9}),
}  # fmt: skip


def arrays(inputs, a, c, b, d):
    """Arrays of shapes with these sizes."""
    sizes, rng = {"a": a, "b": b, "c": c, "d": d, "m": 5}, np.random.default_rng(a + 10 * c + 100 * b + 1000 * d)
    return {n: rng.standard_normal([sizes.get(s, s) for s in shape]).astype(np.float32) for n, shape in inputs.items()}


def fitting(name):
    """Sizes for the named model: of Gemm the sum [3, 3] decides; windows need what they run over."""
    for (a, c), (b, d) in itertools.product(PAIRS, PAIRS):
        if name == "Gemm":
            yield (a if a in (1, 3) else 3, c if c in (1, 3) else 1, b if b in (1, 3) else 1, d if d in (1, 3) else 3)
        elif name != "Conv" or min(b, d) > 0:
            yield a, c, b, d


def built(name):
    nodes, inputs, constants = MODELS[name]
    extra = {"w": np.arange(9, dtype=np.float32).reshape(3, 3)} if name == "Gemm" else {}
    return model(nodes, inputs, (constants or {}) | extra), inputs


@pytest.mark.parametrize("name", MODELS)
def test_every_operator_that_broadcasts(name):
    m, inputs = built(name)
    general = load(m.SerializeToString()).others[0]
    for sizes in fitting(name):
        given = arrays(inputs, *sizes)
        (got,), (want,) = run(general, [given[p["name"]] for p in general.params]), theirs(m, given)
        assert got.shape == want.shape, sizes
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5, err_msg=str(sizes))


@pytest.mark.parametrize("name", ["Expand", "MatMul", "Softmax", "Concat"])
def test_compiled_code_gives_the_same(name):
    m, inputs = built(name)
    exe = tcomp.compile(m, use_cache=False)
    for sizes in fitting(name):
        given = arrays(inputs, *sizes)
        (want,) = theirs(m, given)
        np.testing.assert_allclose(exe.run(given)["o"], want, rtol=1e-4, atol=1e-5, err_msg=str(sizes))
    with pytest.raises(Error, match="TC0605"):
        exe.run(arrays(inputs, 2, 3, 1, 1))


def test_sizes_that_have_to_be_equal_are_one():
    """A product's inner sizes, and all that must agree with them, leave nothing to choose."""
    nodes = [node("Mul", ["x", "y"], ["s"]), node("MatMul", ["s", "w"], ["o"])]
    func = load(model(nodes, {"x": ["a", "k"], "y": [1, "k"], "w": ["l", 2]}))
    assert func.others == () and [(f.dimension, f.became) for f in func.account] == [("l", "k")]
    assert "MatMul" in func.account[0].where and func.account[0].why == "both have to be equal"


def test_a_size_up_to_a_limit_leaves_nothing_to_choose():
    """Places for at most 512 words: what is cut to the length of the words is as long as they are, or the call is wrong."""
    nodes = [node("Shape", ["x"], ["n"]), node("Slice", ["places", "zero", "n", "zero"], ["p"]), node("Add", ["x", "p"], ["o"])]
    func = load(model(nodes, {"x": ["words"]}, {"places": np.zeros(512, np.float32), "zero": np.array([0])}))
    assert func.others == () and [(f.dimension, f.became) for f in func.account] == [("words", "at most 512")]


def test_a_size_that_meets_a_number_may_be_1():
    m = model([node("Mul", ["x", "w"], ["o"])], {"x": ["n", "k"]}, {"w": np.arange(4, dtype=np.float32)})
    exe = tcomp.compile(m, use_cache=False)
    for k in (4, 1):
        x = np.ones((3, k), np.float32)
        np.testing.assert_array_equal(exe(x), x * np.arange(4))
    with pytest.raises(Error, match=r"(?s)TC0605.*Mul"):
        exe(np.ones((3, 2), np.float32))
    assert exe.report()["dimensions"][-1][:3] == ["k", "4", "both meet in a broadcast: so in a variant"]


def test_sizes_that_cannot_be_1_are_equal():
    m = model([node("Add", ["x", "y"], ["o"])], {"x": ["a"], "y": ["b"]})
    assert load(m, {"a": (2, 64), "b": (2, 64)}).others == ()
    assert len(load(m, {"a": (1, 64), "b": (2, 64)}).others) == 1


def test_a_shape_that_only_one_size_has():
    """A model that reshapes to a size of its example input is a model for that size: the account says where."""
    reshape = node("Reshape", ["x", "shape"], ["o"], "fixed")
    m = model([reshape], {"x": ["batch", 4]}, {"shape": np.array([8, 4])})
    exe = tcomp.compile(m, use_cache=False)
    (row,) = exe.report()["dimensions"]
    assert row[:2] == ["batch", "8"] and "node 'fixed' (Reshape)" in row[3] and exe.inputs[0].shape == (8, 4)
    with pytest.raises(Error, match=r"(?s)TC0601.*\(8, 4\)"):
        exe(np.zeros((5, 4), np.float32))
    open_, narrow = (load(model([reshape], {"x": ["batch", 4]}, {"shape": np.array(s)}), d) for s, d in (
        ([-1, 2, 4], None), ([8, 4], {"batch": (1, 4)})))  # fmt: skip
    assert open_.account == narrow.account == () and len(open_.symbols()) == len(narrow.symbols()) == 1


def test_a_shape_in_a_branch_fixes_nothing():
    """A call of another size may take the other branch."""
    sides = [
        helper.make_graph([node("Reshape", ["x", "eight"], ["t"])], "then", [], [helper.make_tensor_value_info("t", 1, None)]),
        helper.make_graph([node("Reshape", ["x", "free"], ["e"])], "orelse", [], [helper.make_tensor_value_info("e", 1, None)]),
    ]
    choice = node("If", ["b"], ["r"], then_branch=sides[0], else_branch=sides[1])
    nodes = [node("Cast", ["flag"], ["b"], to=TensorProto.BOOL), choice]
    m = model([*nodes, node("ReduceSum", ["r"], ["o"])], {"x": ["n", 4], "flag": []},
              {"eight": np.array([8, 4]), "free": np.array([-1, 4])})  # fmt: skip
    assert load(m).account == ()


def test_a_general_program_that_is_refused_is_told(monkeypatch):
    """Then there is the one for equal sizes, and the account says so."""

    def refused(noted, a, b, data=False):
        noted.pairs[(a, b)] = ""
        raise Error("TC0202", "sizes like these are not supported")

    monkeypatch.setattr(Meetings, "met", refused)
    func = load(model([node("Add", ["x", "y"], ["o"], "sum")], {"x": ["a"], "y": ["b"]}))
    assert func.others == () and [(f.dimension, f.became) for f in func.account] == [
        ("b", "a"), ("all", "only equal ones where some meet")]  # fmt: skip
    assert "TC0202" in func.account[1].why and "sum" in func.account[1].where


def test_many_inputs_meet():
    """The size that they have together grows with their number, not faster."""
    names = [f"x{k}" for k in range(9)]
    nodes = [node("Add", [f"s{k}" if k else "x0", f"x{k + 1}"], [f"s{k + 1}" if k < 7 else "o"]) for k in range(8)]
    (general,) = load(model(nodes, {n: [f"{n}_rows", f"{n}_columns"] for n in names})).others
    assert len(str(general.results[0].type)) < 1000
    rng = np.random.default_rng(0)
    for rows, columns in ((3, 4), (0, 4), (1, 3)):
        xs = [rng.standard_normal((rng.choice((1, rows)), rng.choice((1, columns)))) for _ in names]
        xs = [x.astype(np.float32) for x in xs]
        np.testing.assert_allclose(run(general, xs)[0], sum(xs), rtol=1e-5, atol=1e-5)
