"""What an attempt at a subgraph leaves behind when it is given up: nothing."""

import numpy as np
from onnx import TensorProto as T
from onnx import helper as h
from test_control_operators import model, value

from tcomp.frontend.onnx.reader import load


def unrolled_at_last():
    """A loop whose body works only where the step is known: its branches have different ranks."""
    then = h.make_graph([h.make_node("Unsqueeze", ["row", "zero"], ["a"])], "then", [], [value("a", None)])
    other = h.make_graph([h.make_node("Neg", ["row"], ["b"])], "other", [], [value("b", None)])
    nodes = [
        h.make_node("Cast", ["i"], ["at"], to=T.FLOAT),
        h.make_node("Greater", ["at", "half"], ["late"]),
        h.make_node("If", ["late"], ["picked"], then_branch=then, else_branch=other),
        h.make_node("ReduceSum", ["picked"], ["sum"], keepdims=0),
        h.make_node("Identity", ["c"], ["on"]),
    ]
    body = h.make_graph(
        nodes, "body", [value("i", (), T.INT64), value("c", (), T.BOOL)], [value("on", (), T.BOOL), value("sum", ())]
    )
    return h.make_node("Loop", ["three", "go"], ["sums"], name="unrolled", body=body)


CONSTANTS = {"zero": np.array([0]), "half": np.array(0.5, np.float32), "three": np.array(3), "go": np.array(True)}


def test_a_size_that_a_later_node_asks_for_is_found():
    nodes = [unrolled_at_last(), h.make_node("Reshape", ["x", "six"], ["y"])]
    inputs = [value("row", (4,)), value("x", ("n", 2))]
    func = load(model(nodes, inputs, [value("sums", (3,)), value("y", (6,))], {**CONSTANTS, "six": np.array([6])}))
    assert func.params[1].type.shape == (3, 2)


def test_nodes_made_afterwards_have_their_own_place():
    func = load(model([unrolled_at_last()], [value("row", (4,))], [value("sums", (3,))], CONSTANTS))
    assert {loc.file for loc in func.locs.of(func.results[0])} == {"g/unrolled"}
