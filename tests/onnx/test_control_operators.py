"""If, Loop, Scan and the recurrent operators against onnxruntime: captures, no turns, counts from data, lengths, directions."""

import itertools

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper

import tcomp
from tcomp.errors import Error

RNG = np.random.default_rng(7)


def value(name, array_or_shape, kind=T.FLOAT):
    if isinstance(array_or_shape, np.ndarray):
        return h.make_tensor_value_info(name, h.np_dtype_to_tensor_dtype(array_or_shape.dtype), array_or_shape.shape)
    return h.make_tensor_value_info(name, kind, array_or_shape)


def model(nodes, inputs, outputs, constants=()):
    inits = [numpy_helper.from_array(a, name) for name, a in dict(constants).items()]
    graph = h.make_graph(nodes, "g", inputs, outputs, inits)
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8)


def compare(m, *feeds, rtol=1e-4, atol=1e-5):
    session = onnxruntime.InferenceSession(m.SerializeToString())
    exe = tcomp.compile(m)
    for feed in feeds:
        expected = session.run(None, feed)
        got = exe.run(feed)
        for port, want in zip(exe.outputs, expected):
            assert got[port.name].shape == want.shape and got[port.name].dtype == want.dtype
            np.testing.assert_allclose(got[port.name], want, rtol=rtol, atol=atol)
    return exe


# --- recurrent operators -----------------------------------------------------------------------------------

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
EXTRAS = {"RNN": {"activations": ["Relu"]}, "GRU": {"linear_before_reset": 1}, "LSTM": {"input_forget": 1}}


def recurrent(op, direction, steps="t", peephole=False, **attributes):
    directions, gates, hidden, size = 2 if direction == "bidirectional" else 1, GATES[op], 6, 5
    rows = gates * hidden
    shapes = {"w": (directions, rows, size), "r": (directions, rows, hidden), "b": (directions, 2 * rows)}
    weights = {name: RNG.standard_normal(s).astype(np.float32) * 0.5 for name, s in shapes.items()}
    if peephole:
        weights["p"] = RNG.standard_normal((directions, 3 * hidden)).astype(np.float32)
    if "activations" in attributes:
        attributes["activations"] = attributes["activations"] * directions
    names, outputs = ["x", "w", "r", "b", "lengths", "h0"], ["y", "yh"]
    inputs = [value("x", (steps, 3, size)), value("lengths", (3,), T.INT32), value("h0", (directions, 3, hidden))]
    if op == "LSTM":
        names, outputs = [*names, "c0", *(["p"] if peephole else [])], [*outputs, "yc"]
        inputs.append(value("c0", (directions, 3, hidden)))
    node = h.make_node(op, names, outputs, hidden_size=hidden, direction=direction, **attributes)
    return model([node], inputs, [value(o, None) for o in outputs], weights)


def feed_for(m, steps, lengths):
    feed = {"x": RNG.standard_normal((steps, 3, 5)).astype(np.float32), "lengths": np.array(lengths, np.int32)}
    for p in m.graph.input[2:]:
        shape = [d.dim_value for d in p.type.tensor_type.shape.dim]
        feed[p.name] = RNG.standard_normal(shape).astype(np.float32)
    return feed


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("op", GATES)
def test_recurrent_operators_of_any_length(op, direction):
    m = recurrent(op, direction)
    compare(m, feed_for(m, 7, [7, 2, 5]), feed_for(m, 1, [1, 1, 1]), feed_for(m, 40, [40, 3, 1]))


@pytest.mark.parametrize("op", GATES)
def test_variants_of_recurrent_operators(op):
    for extra in (EXTRAS[op], {"clip": 0.5}):
        m = recurrent(op, "bidirectional", 4, **extra)
        compare(m, feed_for(m, 4, [4, 2, 1]))


def test_peepholes():
    m = recurrent("LSTM", "forward", peephole=True)
    compare(m, feed_for(m, 6, [6, 6, 3]))


def test_recurrent_weights_are_packed_once():
    exe = tcomp.compile(recurrent("LSTM", "forward"))
    text = exe.text("tile")
    main = text[text.index("\nmain") :]
    inside = main[main.index("repeat") :].split("swap")[0]
    assert inside.count("launch") == 3  # which sequences go on, the product, all the rest
    assert "f32[1, 6, 32]" in main  # the recurrent weights as panels of 32 columns


# --- Scan --------------------------------------------------------------------------------------------------


def scan_body():
    nodes = [h.make_node("Add", ["s", "x"], ["s1"]), h.make_node("Mul", ["s1", "k"], ["y"])]
    return h.make_graph(nodes, "body", [value("s", (3,)), value("x", (3,))], [value("s1", (3,)), value("y", (3,))])


@pytest.mark.parametrize("axis,back,out,turned", list(itertools.product((0, 1), (0, 1), (0, 1, -1), (0, 1))))
def test_scan_axes_and_directions(axis, back, out, turned):
    shape = ("n", 3) if axis == 0 else (3, "n")
    node = h.make_node(
        "Scan", ["s0", "x"], ["last", "y"], body=scan_body(), num_scan_inputs=1, scan_input_axes=[axis],
        scan_input_directions=[back], scan_output_axes=[out], scan_output_directions=[turned],
    )  # fmt: skip
    m = model([node], [value("s0", (3,)), value("x", shape), value("k", (3,))], [value("last", None), value("y", None)])
    feeds = []
    for n in (5, 1):
        x = RNG.standard_normal((n, 3) if axis == 0 else (3, n)).astype(np.float32)
        feeds.append({"s0": np.ones(3, np.float32), "x": x, "k": np.array([1, -2, 3], np.float32)})
    compare(m, *feeds)


# --- Loop --------------------------------------------------------------------------------------------------


def loop_model(condition: str, collect: bool):
    """acc += x[i] * i, as the body says; ends by its count, or when the sum of acc is over 20."""
    nodes = [
        h.make_node("Gather", ["x", "i"], ["row"], axis=0),
        h.make_node("Cast", ["i"], ["f"], to=T.FLOAT),
        h.make_node("Mul", ["row", "f"], ["part"]),
        h.make_node("Add", ["acc", "part"], ["next"]),
    ]
    if condition == "data":
        nodes += [h.make_node("ReduceSum", ["next"], ["total"], keepdims=0), h.make_node("Less", ["total", "limit"], ["on"])]
    else:
        nodes.append(h.make_node("Identity", ["cond"], ["on"]))
    outputs = [value("on", (), T.BOOL), value("next", (3,)), *([value("part", (3,))] if collect else [])]
    body = h.make_graph(nodes, "body", [value("i", (), T.INT64), value("cond", (), T.BOOL), value("acc", (3,))], outputs)
    names = ["y", "parts"] if collect else ["y"]
    node = h.make_node("Loop", ["count", "start", "acc0"], names, body=body)
    inputs = [value("x", (8, 3)), value("acc0", (3,)), value("limit", ())]
    return node, names, inputs


def loop_feed(count, start=True, limit=20.0):
    return {
        "x": np.arange(24, dtype=np.float32).reshape(8, 3), "acc0": np.ones(3, np.float32), "count": np.array(count, np.int64),
        "start": np.array(start), "limit": np.array(limit, np.float32),
    }  # fmt: skip


@pytest.mark.parametrize("count", [0, 1, 5])
def test_loops_of_a_known_count_collect(count):
    node, names, inputs = loop_model("none", True)
    m = model([node], inputs[:2], [value(n, None) for n in names], {"count": np.array(count), "start": np.array(True)})
    compare(m, {k: v for k, v in loop_feed(0).items() if k in ("x", "acc0")})


@pytest.mark.parametrize("condition", ["none", "data"])
def test_loops_whose_count_is_data(condition):
    node, names, inputs = loop_model(condition, False)
    given = inputs if condition == "data" else inputs[:2]
    m = model([node], [*given, value("count", (), T.INT64), value("start", (), T.BOOL)], [value(n, None) for n in names])
    wanted = {p.name for p in m.graph.input}
    cases = [(0, True), (1, True), (5, True), (8, True), (-3, True), (5, False)]
    compare(m, *({k: v for k, v in loop_feed(*case).items() if k in wanted} for case in cases))


def test_an_index_of_a_turn_out_of_range_is_an_error():
    node, names, inputs = loop_model("none", False)
    m = model([node], [*inputs[:2], value("count", (), T.INT64), value("start", (), T.BOOL)], [value(n, None) for n in names])
    feed = {k: v for k, v in loop_feed(9).items() if k != "limit"}
    exe = tcomp.compile(m)
    with pytest.raises(Error, match="TC0604"):
        exe.run(feed)


def test_a_loop_without_end_is_refused():
    node, names, inputs = loop_model("none", False)
    node.input[0] = ""
    m = model([node], inputs[:2], [value(n, None) for n in names], {"start": np.array(True)})
    with pytest.raises(Error, match="TC0202"):
        tcomp.compile(m)


def test_loops_in_loops_with_branches():
    """The inner loop runs i times; a branch in it picks by the parity of what it carries."""
    even = h.make_graph([h.make_node("Mul", ["v", "half"], ["e"])], "even", [], [value("e", ())])
    odd = h.make_graph(
        [h.make_node("Mul", ["v", "three"], ["m"]), h.make_node("Add", ["m", "one"], ["o0"]), h.make_node("Sin", ["o0"], ["o1"]),
         h.make_node("Sub", ["o0", "o1"], ["o2"]), h.make_node("Add", ["o2", "o1"], ["o3"]), h.make_node("Exp", ["one"], ["o4"]),
         h.make_node("Sub", ["o3", "o4"], ["o5"]), h.make_node("Add", ["o5", "o4"], ["o6"]), h.make_node("Round", ["o6"], ["o"])],
        "odd", [], [value("o", ())],
    )  # fmt: skip
    step = h.make_graph(
        [h.make_node("Mod", ["v", "two"], ["rest"], fmod=1), h.make_node("Less", ["rest", "one"], ["is_even"]),
         h.make_node("If", ["is_even"], ["w"], then_branch=even, else_branch=odd), h.make_node("Identity", ["c1"], ["c2"])],
        "step", [value("j", (), T.INT64), value("c1", (), T.BOOL), value("v", ())], [value("c2", (), T.BOOL), value("w", ())],
    )  # fmt: skip
    outer = h.make_graph(
        [h.make_node("Loop", ["i", "", "u"], ["u1"], body=step), h.make_node("Identity", ["c"], ["c0"]),
         h.make_node("Add", ["u1", "one"], ["u2"])],
        "outer", [value("i", (), T.INT64), value("c", (), T.BOOL), value("u", ())],
        [value("c0", (), T.BOOL), value("u2", ()), value("u1", ())],
    )  # fmt: skip
    constants = {"half": 0.5, "three": 3.0, "one": 1.0, "two": 2.0}
    node = h.make_node("Loop", ["count", "", "start"], ["last", "all"], body=outer)
    m = model(
        [node], [value("start", ())], [value("last", None), value("all", None)],
        {**{k: np.array(v, np.float32) for k, v in constants.items()}, "count": np.array(9)},
    )  # fmt: skip
    compare(m, *({"start": np.array(s, np.float32)} for s in (6, 7, 27)))


# --- If ----------------------------------------------------------------------------------------------------


def test_the_branch_not_taken_does_not_run():
    """Positions that are out of range are read in one branch only."""
    first = h.make_graph([h.make_node("Gather", ["x", "at"], ["a"])], "first", [], [value("a", (2,))])
    other = h.make_graph([h.make_node("Constant", [], ["b"], value_floats=[1.0, 2.0])], "other", [], [value("b", (2,))])
    node = h.make_node("If", ["flag"], ["y"], then_branch=first, else_branch=other)
    m = model([node], [value("flag", (), T.BOOL), value("x", (4,)), value("at", (2,), T.INT64)], [value("y", None)])
    exe = tcomp.compile(m)
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(exe(np.array(True), x, np.array([3, 0])), [3, 0])
    np.testing.assert_array_equal(exe(np.array(False), x, np.array([9, 0])), [1, 2])
    with pytest.raises(Error, match="TC0604"):
        exe(np.array(True), x, np.array([9, 0]))


def test_what_two_branches_read_is_read_in_neither_unless_taken():
    """The same positions, out of range, in a branch of each of two conditions, and in turns of two loops."""
    nodes = []
    for k in "12":
        first = h.make_graph([h.make_node("Gather", ["x", "at"], ["a"])], "first", [], [value("a", (2,))])
        other = h.make_graph([h.make_node("Identity", ["none"], ["b"])], "other", [], [value("b", (2,))])
        nodes.append(h.make_node("If", [f"flag{k}"], [f"y{k}"], then_branch=first, else_branch=other))
        turn = [
            h.make_node("Gather", ["x", "at"], ["r"]),
            h.make_node("Add", ["s", "r"], ["s1"]),
            h.make_node("Identity", ["c"], ["c1"]),
        ]
        step = h.make_graph(turn, "step", [value("i", (), T.INT64), value("c", (), T.BOOL), value("s", (2,))],
                            [value("c1", (), T.BOOL), value("s1", (2,))])  # fmt: skip
        nodes.append(h.make_node("Loop", [f"count{k}", "", "none"], [f"z{k}"], body=step))
    inputs = [value("x", (4,)), value("at", (2,), T.INT64), *(value(f"flag{k}", (), T.BOOL) for k in "12"),
              *(value(f"count{k}", (), T.INT64) for k in "12")]  # fmt: skip
    m = model(nodes, inputs, [value(n, (2,)) for n in ("y1", "z1", "y2", "z2")], {"none": np.zeros(2, np.float32)})
    exe = tcomp.compile(m)
    x, yes, no = np.arange(4, dtype=np.float32), np.array(True), np.array(False)
    assert all(not v.any() for v in exe(x, np.array([9, -9]), no, no, np.array(0), np.array(0)))
    assert [v.tolist() for v in exe(x, np.array([3, 1]), no, yes, np.array(1), np.array(2))] == [[0, 0], [3, 1], [3, 1], [6, 2]]
    for case in ((yes, no, 0, 0), (no, yes, 0, 0), (no, no, 1, 0), (no, no, 0, 1)):
        with pytest.raises(Error, match="TC0604"):
            exe(x, np.array([9, 1]), *map(np.asarray, case))


def test_a_rank_that_depends_on_a_size_is_assumed_and_checked():
    squeezed = h.make_graph([h.make_node("Squeeze", ["z", "axis"], ["a"])], "squeezed", [], [value("a", None)])
    same = h.make_graph([h.make_node("Identity", ["z"], ["b"])], "same", [], [value("b", None)])
    nodes = [
        h.make_node("AveragePool", ["x"], ["z"], kernel_shape=[4], strides=[4]),
        h.make_node("Shape", ["z"], ["shape"], start=2),
        h.make_node("Squeeze", ["shape"], ["size"]),
        h.make_node("Equal", ["size", "one"], ["flag"]),
        h.make_node("If", ["flag"], ["y"], then_branch=squeezed, else_branch=same),
    ]
    m = model(nodes, [value("x", (2, 3, "n"))], [value("y", None)], {"one": np.array(1), "axis": np.array([2])})
    exe = tcomp.compile(m)
    x = RNG.standard_normal((2, 3, 5)).astype(np.float32)
    np.testing.assert_allclose(exe(x), x[..., :4].mean(-1), rtol=1e-5)
    with pytest.raises(Error, match="TC0605"):
        exe(np.ones((2, 3, 9), np.float32))
