"""Sequences and optionals against onnxruntime: at the borders of a model, of a length that is data, under control flow."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from test_control_operators import model, value
from test_control_shapes import body, graph

import tcomp
from tcomp.errors import Error
from tcomp.ir.parser import parse

RNG = np.random.default_rng(21)


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def sequence(name, shape=("?", "?"), kind=T.FLOAT):
    return h.make_tensor_sequence_value_info(name, kind, shape)


def optional(name, inner):
    return h.make_value_info(name, h.make_optional_type_proto(inner.type))


def same(got, want):
    if want is None or got is None:
        assert got is want
    elif isinstance(want, list):
        assert isinstance(got, list) and len(got) == len(want)
        for g, w in zip(got, want):
            same(g, w)
    else:
        assert got.shape == want.shape and got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def compare(m, *feeds):
    session = onnxruntime.InferenceSession(m.SerializeToString())
    exe = tcomp.compile(m)
    for feed in feeds:
        got = exe.run(feed)
        for port, want in zip(exe.outputs, session.run(None, feed)):
            same(got[port.name], want)
    return exe


LISTS = [
    [floats(2, 3), floats(4, 1), floats(0, 5)],
    [floats(1, 1)],
    [floats(3, 2)] * 5,
]


def at(k):
    return np.array(k, np.int64)


# --- operations --------------------------------------------------------------------------------------------


def test_a_sequence_goes_through():
    m = model([h.make_node("Identity", ["s"], ["t"])], [sequence("s")], [sequence("t")])
    compare(m, *({"s": s} for s in LISTS))
    assert tcomp.compile(m)([]) == []


def test_lengths_and_places():
    nodes = [h.make_node("SequenceLength", ["s"], ["n"]), h.make_node("SequenceAt", ["s", "k"], ["y"])]
    m = model(nodes, [sequence("s"), value("k", (), T.INT64)], [value("n", (), T.INT64), value("y", ("?", "?"))])
    exe = compare(m, *({"s": s, "k": at(k)} for s in LISTS for k in (0, -1, len(s) - 1, -len(s))))
    for k in (3, -4):
        with pytest.raises(Error, match="TC0605"):
            exe(LISTS[0], at(k))
    with pytest.raises(Error, match="TC0605"):
        exe([], at(0))


@pytest.mark.parametrize("place", [True, False])
def test_insertion_and_erasure(place):
    names = ["k"] if place else []
    nodes = [h.make_node("SequenceInsert", ["s", "x", *names], ["t"]), h.make_node("SequenceErase", ["t", *names], ["u"]),
             h.make_node("SequenceErase", ["t", "first"], ["w"])]  # fmt: skip
    inputs = [sequence("s"), value("x", ("a", "b")), *([value("k", (), T.INT64)] if place else [])]
    m = model(nodes, inputs, [sequence(n) for n in "tuw"], {"first": at(0)})
    feeds = []
    for s in LISTS:
        feeds += [{"s": s, "x": floats(2, 2), "k": at(k)} for k in (0, -1, len(s) - 1, -len(s))]
    if place:
        exe = compare(m, *feeds)
        with pytest.raises(Error, match="TC0605"):
            exe(LISTS[0], floats(1, 1), at(4))
        assert len(exe([], floats(1, 1), at(0))[0]) == 1
    else:
        exe = compare(m, *({n: f[n] for n in "sx"} for f in feeds))
        assert len(exe([], floats(1, 1))[0]) == 1


@pytest.mark.parametrize("new,axis", [(0, 0), (0, 1), (0, -1), (1, 0), (1, 1), (1, -1)])
def test_joining(new, axis):
    m = model([h.make_node("ConcatFromSequence", ["s"], ["y"], axis=axis, new_axis=new)], [sequence("s", ("?",) * 3)],
              [value("y", ("?",) * (3 + new))])  # fmt: skip
    shapes = [[2, 3, 4] for _ in range(4)]
    if not new:
        for k, s in enumerate(shapes):
            s[axis] = k + 1
    feeds = [[floats(*s) for s in shapes], [floats(*shapes[0])]]
    exe = compare(m, *({"s": s} for s in feeds))
    wrong = [floats(2, 3, 4), floats(5, 5, 5)]
    with pytest.raises(Error, match="TC0605"):
        exe(wrong)
    with pytest.raises(Error, match="TC0605"):
        exe([])


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("split", ["none", "drop", "scalar", "given scalar", "given"])
def test_splitting(split, axis):
    names, inputs, constants = ["x"], [value("x", ("a", "b", "c"))], {}
    if split == "scalar":
        names, constants = ["x", "n"], {"n": at(2)}
    elif split.startswith("given"):
        names = ["x", "n"]
        inputs.append(value("n", () if split == "given scalar" else ("k",), T.INT64))
    extra = {"keepdims": 0} if split == "drop" else {}
    node = h.make_node("SplitToSequence", names, ["s"], axis=axis, **extra)
    m = model([node], inputs, [sequence("s", ("?",) * (2 if split == "drop" else 3))], constants)
    feeds = []
    for shape in ((5, 7, 3), (1, 1, 4), (2, 6, 6)):
        feed = {"x": floats(*shape)}
        n = shape[axis]
        if split == "given scalar":
            feed["n"] = at(min(n, 3))
        elif split == "given":
            feed["n"] = np.array([n // 2, 0, n - n // 2], np.int64)
        feeds.append(feed)
    exe = compare(m, *feeds)
    if split == "given":
        with pytest.raises(Error, match="TC0605"):
            exe(floats(4, 4, 4), np.array([1, 2], np.int64))


def test_a_place_that_is_data_in_a_sequence_of_known_length():
    nodes = [h.make_node("SequenceConstruct", ["x", "z"], ["s"]), h.make_node("SequenceAt", ["s", "k"], ["y"]),
             h.make_node("SequenceErase", ["s", "k"], ["t"])]  # fmt: skip
    m = model(nodes, [value("x", ("a", 2)), value("z", (3, "b")), value("k", (), T.INT64)], [value("y", None), sequence("t")])
    compare(m, *({"x": floats(4, 2), "z": floats(3, 1), "k": at(k)} for k in (0, 1, -1, -2)))


def test_tensors_of_different_ranks():
    nodes = [h.make_node("SequenceInsert", ["s", "x"], ["t0"]), h.make_node("SequenceInsert", ["t0", "z", "first"], ["t"])]
    m = model(nodes, [sequence("s", ("?",)), value("x", ("a", "b")), value("z", ())], [sequence("t", None)], {"first": at(0)})
    compare(
        m, {"s": [floats(3), floats(1)], "x": floats(2, 2), "z": floats()}, {"s": [floats(0)], "x": floats(1, 0), "z": floats()}
    )


def test_map_over_sequences():
    """The body takes the k-th tensor of a sequence and a tensor; it gives one tensor for each."""
    step = graph([h.make_node("Mul", ["a", "b"], ["c"]), h.make_node("ReduceSum", ["c"], ["d"], keepdims=0)],
                 [("c", T.FLOAT), ("d", T.FLOAT)], [value("a", ("?", "?")), value("b", (1, 1))])  # fmt: skip
    node = h.make_node("SequenceMap", ["s", "x"], ["t", "sums"], body=step)
    exe = tcomp.compile(model([node], [sequence("s"), value("x", (1, 1))], [sequence("t"), sequence("sums", ())]))
    for s in (*LISTS, []):
        x = floats(1, 1)
        same(list(exe(s, x)), [[v * x for v in s], [np.asarray((v * x).sum(), np.float32) for v in s]])


# --- control flow ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [False, True])
def test_a_loop_appends(given):
    """To an empty list, or to one that is given."""
    nodes = [
        h.make_node("Slice", ["x", "zero", "ends"], ["part"]),
        h.make_node("SequenceInsert", ["s", "part"], ["t"]),
    ]
    ends = [h.make_node("Unsqueeze", ["i", "zero"], ["i1"]), h.make_node("Add", ["i1", "one"], ["ends"])]
    step = body([*ends, *nodes], {"s": "t"})
    for info in (step.input[2], step.output[1]):
        info.CopyFrom(sequence(info.name, ("?",)))
    start = [] if given else [h.make_node("SequenceEmpty", [], ["s0"])]
    loop = h.make_node("Loop", ["count", "", "s0"], ["y"], body=step)
    inputs = [value("x", ("n",)), value("count", (), T.INT64), *([sequence("s0", ("?",))] if given else [])]
    length = h.make_node("SequenceLength", ["y"], ["len"])
    m = model([*start, loop, length], inputs, [sequence("y", ("?",)), value("len", (), T.INT64)],
              {"zero": np.array([0]), "one": np.array([1])})  # fmt: skip
    feeds = [{"x": floats(n), "count": at(k)} for n, k in ((5, 5), (3, 1), (40, 30), (2, 4))]
    if given:
        feeds = [{**f, "s0": [floats(2), floats(0)]} for f in (*feeds, {"x": floats(3), "count": at(0)})]
    exe = compare(m, *feeds)
    assert len(exe(floats(3), at(0), *([[]] if given else []))[0]) == 0


def test_a_loop_goes_through_a_sequence():
    """The sum of the totals of all tensors, and what is longer than two rows, in the order of the call."""
    nodes = [
        h.make_node("SequenceAt", ["s", "i"], ["x"]),
        h.make_node("ReduceSum", ["x"], ["total"], keepdims=0),
        h.make_node("Add", ["sum", "total"], ["sum1"]),
        h.make_node("Shape", ["x"], ["shape"], start=0, end=1),
        h.make_node("Squeeze", ["shape"], ["rows"]),
        h.make_node("Greater", ["rows", "two"], ["long"]),
    ]
    then = graph([h.make_node("SequenceInsert", ["kept", "x"], ["a"])], [("a", T.FLOAT)], name="then")
    other = graph([h.make_node("Identity", ["kept"], ["b"])], [("b", T.FLOAT)], name="other")
    for g in (then, other):
        g.output[0].CopyFrom(sequence(g.output[0].name))
    nodes.append(h.make_node("If", ["long"], ["kept1"], then_branch=then, else_branch=other))
    step = body(nodes, {"sum": "sum1", "kept": "kept1"})
    for info in (step.input[3], step.output[2]):
        info.CopyFrom(sequence(info.name))
    nodes = [h.make_node("SequenceLength", ["s"], ["n"]), h.make_node("SequenceEmpty", [], ["none"]),
             h.make_node("Loop", ["n", "", "zero", "none"], ["sum_all", "long_ones"], body=step)]  # fmt: skip
    m = model(nodes, [sequence("s")], [value("sum_all", ()), sequence("long_ones")], {"zero": np.float32(0), "two": at(2)})
    exe = compare(m, *({"s": s} for s in LISTS))
    same(list(exe([])), [np.float32(0).reshape(()), []])


def test_a_branch_picks_a_sequence():
    then = graph([h.make_node("SequenceConstruct", ["x", "x"], ["a"])], [("a", T.FLOAT)], name="then")
    other = graph([h.make_node("SequenceInsert", ["s", "x"], ["b"])], [("b", T.FLOAT)], name="other")
    for g in (then, other):
        g.output[0].CopyFrom(sequence(g.output[0].name))
    nodes = [
        h.make_node("If", ["flag"], ["t"], then_branch=then, else_branch=other),
        h.make_node("SequenceAt", ["t", "last"], ["y"]),
    ]
    inputs = [value("flag", (), T.BOOL), sequence("s"), value("x", ("a", "b"))]
    m = model(nodes, inputs, [sequence("t"), value("y", ("?", "?"))], {"last": at(-1)})
    compare(m, *({"flag": np.array(f), "s": s, "x": floats(2, 5)} for f in (True, False) for s in LISTS))


# --- optionals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["tensor", "sequence"])
def test_an_optional_that_may_be_there(kind):
    inner = value("x", ("a", "b")) if kind == "tensor" else sequence("x")
    result = value("y", ("?", "?")) if kind == "tensor" else sequence("y")
    then = graph([h.make_node("OptionalGetElement", ["x"], ["a"])], [("a", T.FLOAT)], name="then")
    make = h.make_node("Identity", ["z"], ["b"]) if kind == "tensor" else h.make_node("SequenceConstruct", ["z"], ["b"])
    other = graph([make], [("b", T.FLOAT)], name="other")
    for g in (then, other):
        named = h.make_value_info(g.output[0].name, result.type)
        g.output[0].CopyFrom(named)
    nodes = [
        h.make_node("OptionalHasElement", ["x"], ["has"]),
        h.make_node("If", ["has"], ["y"], then_branch=then, else_branch=other),
    ]
    m = model(nodes, [optional("x", inner), value("z", ("c", "d"))], [value("has", (), T.BOOL), result])
    m.opset_import[0].version = 18
    exe = tcomp.compile(m)
    z = floats(2, 2)
    for x in (floats(3, 1), floats(0, 4)) if kind == "tensor" else LISTS:
        same(list(exe(x, z)), [np.array(True), x])
    for has, y in (exe(None, z), exe.run({"z": z}).values()):
        same([has, y], [np.array(False), z if kind == "tensor" else [z]])


def test_what_is_not_there_cannot_be_taken():
    m = model([h.make_node("OptionalGetElement", ["x"], ["y"])], [optional("x", value("x", ("a",)))], [value("y", ("?",))])
    m.opset_import[0].version = 18
    exe = tcomp.compile(m)
    assert exe(floats(3)).shape == (3,)
    with pytest.raises(Error, match="TC0605"):
        exe(None)


def test_an_optional_result():
    then = graph([h.make_node("Optional", ["x"], ["a"])], [("a", T.FLOAT)], name="then")
    other = graph([h.make_node("Optional", [], ["b"], type=value("x", ("n",)).type)], [("b", T.FLOAT)], name="other")
    for g in (then, other):
        g.output[0].CopyFrom(optional(g.output[0].name, value("x", ("n",))))
    node = h.make_node("If", ["flag"], ["y"], then_branch=then, else_branch=other)
    m = model([node], [value("flag", (), T.BOOL), value("x", ("n",))], [optional("y", value("x", ("n",)))])
    m.opset_import[0].version = 18
    exe = tcomp.compile(m)
    x = floats(4)
    same(exe(np.array(True), x), x)
    assert exe(np.array(False), x) is None


# --- the borders -------------------------------------------------------------------------------------------


def test_ports_say_what_a_caller_sees(tmp_path):
    nodes = [h.make_node("SequenceInsert", ["s", "x"], ["t"])]
    exe = tcomp.compile(model(nodes, [sequence("s"), value("x", (2, "b"))], [sequence("t")]))
    assert [(p.name, p.dtype, p.shape) for p in exe.inputs] == [("s", "sequence of f32", ("?", "?")), ("x", "f32", (2, "b"))]
    assert [(p.name, p.dtype) for p in exe.outputs] == [("t", "sequence of f32")]
    assert parse(exe.text("graph")).func.containers == exe.artifact.containers
    exe.save(tmp_path / "s.tcomp")
    x = floats(2, 3)
    same(tcomp.load(tmp_path / "s.tcomp")(LISTS[0], x), [*LISTS[0], x])
    assert exe.profile(LISTS[0], x).rows
    assert "kernels" in str(exe.report())


def test_what_is_no_sequence_is_refused():
    exe = tcomp.compile(model([h.make_node("Identity", ["s"], ["t"])], [sequence("s")], [sequence("t")]))
    with pytest.raises(Error, match=r"TC0602.*`s` is ndarray"):
        exe(floats(3, 3))
    with pytest.raises(Error, match=r"TC0602.*`s\[1\]`"):
        exe([floats(1, 1), np.zeros((1, 1))])
    with pytest.raises(Error, match=r"TC0601.*`s\[0\]`"):
        exe([floats(1, 1, 1)])
    with pytest.raises(Error, match="TC0603"):
        exe.run({})


def test_containers_of_containers_are_refused():
    inner = h.make_sequence_type_proto(sequence("s").type)
    m = model([h.make_node("Identity", ["s"], ["t"])], [h.make_value_info("s", inner)], [h.make_value_info("t", inner)])
    with pytest.raises(Error, match=r"TC0202.*sequence_type"):
        tcomp.compile(m)
