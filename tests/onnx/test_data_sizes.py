"""Sizes that are data: results whose size only a call knows, against onnxruntime, one compiled program for all of them."""

import gc

import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from test_control_operators import compare, model, value

import tcomp
from tcomp.errors import Error
from tcomp.runtime import memory

RNG = np.random.default_rng(3)


def test_positions_of_what_is_not_zero():
    nodes = [
        h.make_node("NonZero", ["x"], ["at"]),
        h.make_node("Transpose", ["at"], ["turned"], perm=[1, 0]),
        h.make_node("GatherND", ["x", "turned"], ["found"]),
        h.make_node("ReduceSum", ["found"], ["total"], keepdims=0),
    ]
    m = model(nodes, [value("x", ("n", 5))], [value("at", None, T.INT64), value("found", None), value("total", None)])
    feeds = [(RNG.standard_normal((n, 5)) * (RNG.random((n, 5)) < share)).astype(np.float32) for n, share in
             ((4, 0.5), (1, 0.0), (30, 0.1), (0, 1.0), (7, 1.0))]  # fmt: skip
    compare(m, *({"x": x} for x in feeds))


@pytest.mark.parametrize("name", ["data__0", "step__0"])
def test_a_dimension_may_have_any_name(name):
    """Also one that a size that is data, or the counter of a loop, would have."""
    nodes = [h.make_node("NonZero", ["x"], ["at"]), h.make_node("Transpose", ["at"], ["y"], perm=[1, 0])]
    m = model(nodes, [value("x", (name, 2))], [value("y", None, T.INT64)])
    compare(m, *({"x": RNG.integers(0, 2, (n, 2)).astype(np.float32)} for n in (0, 1, 9)))


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_compress(axis):
    attributes = {} if axis is None else {"axis": axis}
    length = {None: 12, 0: 3, 1: 4}[axis]
    m = model([h.make_node("Compress", ["x", "chosen"], ["y"], **attributes)],
              [value("x", (3, 4)), value("chosen", (length,), T.BOOL)], [value("y", None)])  # fmt: skip
    x = RNG.standard_normal((3, 4)).astype(np.float32)
    compare(m, *({"x": x, "chosen": RNG.random(length) < share} for share in (0.0, 0.4, 1.0)))


@pytest.mark.parametrize("kind", [T.INT64, T.INT32, T.FLOAT])
def test_ranges(kind):
    m = model([h.make_node("Range", ["a", "b", "s"], ["y"])], [value(n, (), kind) for n in "abs"], [value("y", None, kind)])
    dtype = h.tensor_dtype_to_np_dtype(kind)
    cases = [(0, 7, 1), (5, -4, -2), (3, 3, 1), (3, 0, 1), (-2, 9, 4)]
    exe = compare(m, *({n: np.array(v, dtype) for n, v in zip("abs", case)} for case in cases))
    with pytest.raises(Error, match="TC0605"):
        exe.run({"a": np.array(0, dtype), "b": np.array(3, dtype), "s": np.array(0, dtype)})


def test_a_shape_from_data():
    nodes = [
        h.make_node("ConstantOfShape", ["shape"], ["zeros"]),
        h.make_node("Add", ["zeros", "x"], ["y"]),
        h.make_node("ReduceMax", ["y"], ["top"], axes=[1], keepdims=0),
    ]
    m = model(nodes, [value("shape", (2,), T.INT64), value("x", ())], [value("y", None), value("top", None)])
    x = np.array(2.5, np.float32)
    compare(m, *({"shape": np.array(s), "x": x} for s in ((2, 3), (1, 1), (0, 4), (40, 7))))
    with pytest.raises(Error, match="TC0605"):
        tcomp.compile(m).run({"shape": np.array([2, -1]), "x": x})


def counting(condition: str):
    """Collects i * x while the condition holds."""
    nodes = [h.make_node("Cast", ["i"], ["f"], to=T.FLOAT), h.make_node("Mul", ["f", "x"], ["part"]),
             h.make_node("Add", ["acc", "part"], ["next"])]  # fmt: skip
    if condition == "data":
        nodes += [h.make_node("ReduceSum", ["next"], ["total"], keepdims=0), h.make_node("Less", ["total", "limit"], ["on"])]
    else:
        nodes.append(h.make_node("Identity", ["c"], ["on"]))
    body = h.make_graph(nodes, "body", [value("i", (), T.INT64), value("c", (), T.BOOL), value("acc", (3,))],
                        [value("on", (), T.BOOL), value("next", (3,)), value("part", (3,))])  # fmt: skip
    loop = h.make_node("Loop", ["count", "", "x"], ["last", "parts"], body=body)
    limit = [value("limit", ())] if condition == "data" else []
    return model([loop], [value("count", (), T.INT64), value("x", (3,)), *limit], [value("last", None), value("parts", None)])


@pytest.mark.parametrize("condition", ["none", "data"])
def test_loops_collect_as_many_values_as_they_make(condition):
    feeds = [{"count": np.array(n), "x": np.array([1, 2, 3], np.float32)} for n in (0, 1, 9, -2)]
    if condition == "data":
        feeds = [f | {"limit": np.array(limit, np.float32)} for f in feeds for limit in (0, 50, 1e9)]
    compare(counting(condition), *feeds)


def test_memory_comes_back():
    nodes = [h.make_node("NonZero", ["x"], ["at"]), h.make_node("ReduceSum", ["at"], ["y"], keepdims=0)]
    exe = tcomp.compile(model(nodes, [value("x", ("n",), T.INT64)], [value("y", None, T.INT64), value("at", None, T.INT64)]))
    x = np.arange(1000)

    def held() -> int:
        gc.collect()
        return memory.held() - memory.retained()

    exe(x)
    before = held()
    for _ in range(50):
        exe(x)
        exe.run({"x": x})
    assert held() <= before


def test_sizes_of_the_two_sides_of_a_branch():
    then = h.make_graph([h.make_node("NonZero", ["x"], ["a"])], "then", [], [value("a", None, T.INT64)])
    other = h.make_graph([h.make_node("NonZero", ["z"], ["b"])], "other", [], [value("b", None, T.INT64)])
    node = h.make_node("If", ["flag"], ["y"], then_branch=then, else_branch=other)
    m = model([node], [value("flag", (), T.BOOL), value("x", (4,)), value("z", (4,))], [value("y", None, T.INT64)])
    x, z = np.array([0, 1, 0, 1], np.float32), np.array([0, 0, 3, 0], np.float32)
    compare(m, *({"flag": np.array(f), "x": x, "z": z} for f in (True, False)))


def test_a_size_that_is_data_meets_another_in_a_broadcast():
    nodes = [h.make_node("NonZero", ["x"], ["at"]), h.make_node("Add", ["at", "z"], ["y"])]
    exe = tcomp.compile(model(nodes, [value("x", (4,)), value("z", (1, 3), T.INT64)], [value("y", None)]))
    z = np.array([[10, 20, 30]])
    for x in ([1, 0, 1, 1], [0, 0, 5, 0]):
        assert np.array_equal(exe(np.array(x, np.float32), z), np.array(np.nonzero(x)) + z)
    for x in ([1, 1, 0, 0], [0, 0, 0, 0]):
        with pytest.raises(Error, match=r"(?s)TC0605.*Add"):
            exe(np.array(x, np.float32), z)
