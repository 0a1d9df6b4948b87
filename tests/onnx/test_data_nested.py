"""Positions and shapes that are data inside of loops and branches, against onnxruntime; and what every pass makes of them."""

import numpy as np
import pytest
from data_support import agree, program
from onnx import TensorProto as T
from onnx import helper as h
from test_control_operators import compare, model, value

import tcomp

X = np.random.default_rng(2).standard_normal(12).astype(np.float32)
ZERO = {"zero": np.array([0])}


def body(nodes, inputs, outputs):
    first = [value("i", (), T.INT64), value("c", (), T.BOOL)]
    on = h.make_node("Identity", ["c"], ["on"])
    return h.make_graph([*nodes, on], "body", [*first, *inputs], [value("on", (), T.BOOL), *outputs])


def test_a_loop_over_parts_of_lengths_that_are_data():
    nodes = [
        h.make_node("Gather", ["ends", "i"], ["end"]),
        h.make_node("Unsqueeze", ["end", "zero"], ["ends of one"]),
        h.make_node("Slice", ["x", "zero", "ends of one", "zero"], ["part"]),
        h.make_node("ReduceSum", ["part"], ["sum"], keepdims=0),
        h.make_node("Add", ["acc", "sum"], ["next"]),
    ]
    outer = [
        h.make_node("Size", ["ends"], ["n"]),
        h.make_node("Loop", ["n", "", "start"], ["y"], body=body(nodes, [value("acc", ())], [value("next", ())])),
    ]
    m = model(outer, [value("x", ("d",)), value("ends", ("k",), T.INT64), value("start", ())], [value("y", None)], ZERO)
    lists = ([1, 2, 3], [10, 20, -3, 0], [])
    compare(m, *({"x": X, "ends": np.array(e, np.int64), "start": np.ones((), np.float32)} for e in lists))


def test_a_window_that_moves_with_the_turns():
    nodes = [
        h.make_node("Unsqueeze", ["i", "zero"], ["turn"]),
        h.make_node("Mul", ["turn", "step"], ["from"]),
        h.make_node("Add", ["from", "width"], ["to"]),
        h.make_node("Slice", ["x", "from", "to", "zero"], ["part"]),
        h.make_node("ReduceSum", ["part"], ["sum"], keepdims=0),
    ]
    inputs = [value("x", ("d",)), value("n", (), T.INT64), value("step", (1,), T.INT64), value("width", (1,), T.INT64)]
    loop = h.make_node("Loop", ["n", ""], ["y"], body=body(nodes, [], [value("sum", ())]))
    feeds = [{"x": X, "n": np.array(n), "step": np.array([s]), "width": np.array([w])}
             for n, s, w in ((3, 2, 4), (0, 1, 1), (5, 3, 2))]  # fmt: skip
    compare(model([loop], inputs, [value("y", None)], ZERO), *feeds)


def side(name, shape, op):
    nodes = [h.make_node("Reshape", ["x", shape], [f"{name} x"]),
             h.make_node(op, [f"{name} x"], [f"{name} y"], axes=[0], keepdims=0)]  # fmt: skip
    return h.make_graph(nodes, name, [], [value(f"{name} y", None)])


def test_branches_reshape_as_the_data_says():
    node = h.make_node("If", ["f"], ["y"], then_branch=side("then", "s", "ReduceMax"), else_branch=side("else", "t", "ReduceMin"))
    inputs = [value("f", (), T.BOOL), value("x", (12,)), value("s", (2,), T.INT64), value("t", (2,), T.INT64)]
    m = model([node], inputs, [value("y", None)])
    feeds = [{"f": np.array(f), "x": X, "s": np.array(s), "t": np.array(t)}
             for f, s, t in ((True, (3, 4), (6, 2)), (False, (3, 4), (6, 2)), (True, (-1, 1), (4, 3)))]  # fmt: skip
    exe = compare(m, *feeds)
    exe.run(feeds[0] | {"t": np.array((7, 2))})  # nothing asks for it
    with pytest.raises(tcomp.Error, match="TC0605"):
        exe.run(feeds[1] | {"t": np.array((7, 2))})


def test_every_pass_means_the_same(monkeypatch):
    monkeypatch.setenv("TCOMP_CHECK", "3")
    x, pair = X.reshape(3, 4), ("int64", [2])
    exe = program("Slice", {"x": ("float32", ["a", "b"]), "starts": pair, "ends": pair, "axes": pair, "steps": pair})
    feed = {"x": x, "starts": np.array((3, 0)), "ends": np.array((-9, 2)), "axes": np.array((1, 0)), "steps": np.array((-2, 1))}
    agree(exe, lambda **_: x[0:2, 3::-2], feed)
    exe = program("Reshape", {"x": ("float32", ["a", "b"]), "shape": pair})
    agree(exe, lambda x, shape: x.reshape(shape), {"x": x, "shape": np.array((6, -1))}, {"x": x, "shape": np.array((1, 12))})
    exe = program("Squeeze", {"x": ("float32", ["a", "b", "c"]), "axes": ("int64", [1])})
    feeds = [{"x": np.expand_dims(x, a), "axes": np.array([a])} for a in (0, 1)]
    agree(exe, lambda x, axes: x.squeeze(tuple(axes)), *feeds)
    exe = program("Pad", {"x": ("float32", ["a", "b"]), "pads": ("int64", [4])}, mode="reflect")
    agree(exe, lambda x, pads: np.pad(x, ((1, 0), (0, 3)), "reflect"), {"x": x, "pads": np.array((1, 0, 0, 3))})
