"""Control flow whose shapes the data decides, against onnxruntime: branches of different shapes, carried values that grow or
shrink from turn to turn, sizes that are data inside of loops and branches. One compiled program for all calls."""

import gc
import re

import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from test_control_operators import compare, model, value

import tcomp
from tcomp.errors import Error
from tcomp.runtime import memory

RNG = np.random.default_rng(11)


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def graph(nodes, outputs, inputs=(), name="body"):
    return h.make_graph(nodes, name, list(inputs), [value(n, None, k) if isinstance(n, str) else n for n, k in outputs])


def branches(then, orelse, outputs=("y",)):
    """An If under `flag` whose sides are lists of nodes that give `outputs` with t or e before their names."""
    sides = [graph(nodes, [(f"{p}{o}", T.FLOAT) for o in outputs], name=p) for nodes, p in ((then, "t"), (orelse, "e"))]
    return h.make_node("If", ["flag"], list(outputs), then_branch=sides[0], else_branch=sides[1])


def body(nodes, carried, collected=(), going="cond"):
    """The graph of a Loop: `carried` maps a name to that of its next value; nodes may read `i` and `cond`."""
    inputs = [value("i", (), T.INT64), value("cond", (), T.BOOL), *(value(n, None) for n in carried)]
    more = [h.make_node("Identity", [going], ["on"])]
    return graph([*nodes, *more], [("on", T.BOOL), *((n, T.FLOAT) for n in (*carried.values(), *collected))], inputs)


# --- branches ----------------------------------------------------------------------------------------------


def test_branches_of_different_shapes():
    node = branches([h.make_node("Exp", ["x"], ["ty"])], [h.make_node("Concat", ["x", "z"], ["ey"], axis=0)])
    after = h.make_node("ReduceSum", ["y"], ["total"], keepdims=0)
    inputs = [value("flag", (), T.BOOL), value("x", ("n", 3)), value("z", ("m", 3))]
    m = model([node, after], inputs, [value("y", None), value("total", None)])
    feeds = [
        {"flag": np.array(f), "x": floats(n, 3), "z": floats(k, 3)} for f in (True, False) for n, k in ((2, 3), (0, 4), (5, 0))
    ]
    compare(m, *feeds)


def test_sizes_that_are_data_in_branches():
    """The positions of what is positive, or of what is not; both results of a branch have the same size."""
    sides = []
    for p, op in (("t", "Greater"), ("e", "LessOrEqual")):
        sides.append([
            h.make_node(op, ["x", "zero"], [f"{p}0"]),
            h.make_node("Compress", ["x", f"{p}0"], [f"{p}y"], axis=0),
            h.make_node("Exp", [f"{p}y"], [f"{p}z"]),
        ])  # fmt: skip
    nodes = [branches(*sides, outputs=("y", "z")), h.make_node("Add", ["y", "z"], ["sum"])]
    outputs = [value("y", None), value("z", None), value("sum", None)]
    m = model(nodes, [value("flag", (), T.BOOL), value("x", ("n",))], outputs, {"zero": np.float32(0)})
    compare(m, *({"flag": np.array(f), "x": floats(n)} for f in (True, False) for n in (7, 1, 0, 50)))


def test_only_the_size_of_the_branch_that_is_taken_counts():
    """The shape of the other branch is one that nothing has."""
    then = [h.make_node("Reshape", ["x", "shape"], ["ty"])]
    node = branches(then, [h.make_node("Concat", ["x", "x"], ["e0"], axis=0), h.make_node("Unsqueeze", ["e0", "first"], ["ey"])])
    inputs = [value("flag", (), T.BOOL), value("x", ("n",)), value("shape", (2,), T.INT64)]
    m = model([node], inputs, [value("y", None)], {"first": np.array([0])})
    good, bad = np.array([2, 3]), np.array([5, 7])
    x = floats(6)
    exe = compare(m, *({"flag": np.array(f), "x": x, "shape": s} for f, s in ((True, good), (False, good), (False, bad))))
    with pytest.raises(Error, match="TC0605"):
        exe.run({"flag": np.array(True), "x": x, "shape": bad})


def test_branches_of_different_ranks_are_refused():
    node = branches([h.make_node("Exp", ["x"], ["ty"])], [h.make_node("ReduceSum", ["x"], ["ey"], keepdims=0)])
    m = model([node], [value("flag", (), T.BOOL), value("x", ("n",))], [value("y", None)])
    with pytest.raises(Error, match=r"TC0202.*branches of different ranks"):
        tcomp.compile(m)


# --- carried values ----------------------------------------------------------------------------------------


def growing(condition):
    nodes = [
        h.make_node("Gather", ["rows", "i"], ["row"], axis=0),
        h.make_node("Unsqueeze", ["row", "first"], ["line"]),
        h.make_node("Mul", ["acc", "half"], ["less"]),
        h.make_node("Concat", ["less", "line"], ["next"], axis=0),
        h.make_node("ReduceSum", ["next"], ["total"], keepdims=0),
        h.make_node("Less", ["total", "limit"], ["small"]),
    ]
    node = h.make_node("Loop", ["count", "start", "acc0"], ["y"], body=body(nodes, {"acc": "next"}, going=condition))
    inputs = [value("rows", ("k", 3)), value("acc0", ("n", 3)), value("count", (), T.INT64), value("start", (), T.BOOL)]
    constants = {"first": np.array([0]), "half": np.float32(0.5), "limit": np.float32(4)}
    return model(
        [node, h.make_node("ReduceMean", ["y"], ["mean"], axes=[0])], inputs, [value("y", None), value("mean", None)], constants
    )


@pytest.mark.parametrize("condition", ["cond", "small"])
def test_a_carried_value_that_grows(condition):
    cases = [(1, 0, 0, True), (2, 5, 5, True), (0, 4, 3, True), (3, 9, 9, True), (2, 3, 3, False), (4, 1, 1, True)]
    if condition == "cond":
        cases = [c for c in cases if c[3]]
    feeds = [
        {"acc0": floats(n, 3), "rows": floats(k, 3), "count": np.array(count), "start": np.array(s)} for n, k, count, s in cases
    ]
    compare(growing(condition), *(f for f in feeds if len(f["acc0"]) or f["count"]))


def test_a_carried_value_that_begins_empty():
    nodes = [
        h.make_node("Cast", ["i"], ["f"], to=T.FLOAT),
        h.make_node("Mul", ["x", "f"], ["part"]),
        h.make_node("Concat", ["part", "acc", "part"], ["next"], axis=-1),
    ]
    node = h.make_node("Loop", ["count", "", "none"], ["y"], body=body(nodes, {"acc": "next"}))
    m = model([node], [value("x", (2, "n")), value("count", (), T.INT64)], [value("y", None)], {"none": floats(2, 0)})
    compare(m, *({"x": floats(2, n), "count": np.array(c)} for n, c in ((3, 4), (1, 0), (1, 1), (0, 3), (2, 30))))


def test_a_decoder_that_keeps_what_it_has_seen():
    """Keys and values of every step are carried, and grow together; each step attends to all."""
    nodes = [
        h.make_node("Gather", ["tokens", "i"], ["t"], axis=0),
        h.make_node("Add", ["t", "state"], ["x"]),
        *(n for part in "qkv" for n in (h.make_node("MatMul", ["x", f"w{part}"], [part]),)),
        h.make_node("Concat", ["keys", "k"], ["keys1"], axis=0),
        h.make_node("Concat", ["values", "v"], ["values1"], axis=0),
        h.make_node("Transpose", ["keys1"], ["turned"], perm=[1, 0]),
        h.make_node("MatMul", ["q", "turned"], ["scores"]),
        h.make_node("Softmax", ["scores"], ["p"], axis=-1),
        h.make_node("MatMul", ["p", "values1"], ["o"]),
        h.make_node("Tanh", ["o"], ["state1"]),
    ]
    carried = {"state": "state1", "keys": "keys1", "values": "values1"}
    node = h.make_node("Loop", ["count", "", "s0", "k0", "v0"], ["s", "ks", "vs", "all"], body=body(nodes, carried, ["state1"]))
    weights = {f"w{part}": floats(8, 8) * 0.3 for part in "qkv"}
    shapes = {"tokens": ("t", 1, 8), "s0": (1, 8), "k0": ("past", 8), "v0": ("past", 8)}
    inputs = [*(value(n, s) for n, s in shapes.items()), value("count", (), T.INT64)]
    m = model([node], inputs, [value(n, None) for n in ("s", "ks", "vs", "all")], weights)
    feeds = []
    for past, steps in ((0, 5), (3, 1), (4, 0), (2, 20)):
        made = {"tokens": floats(steps, 1, 8), "s0": floats(1, 8), "k0": floats(past, 8), "v0": floats(past, 8)}
        feeds.append({**made, "count": np.array(steps)})
    exe = compare(m, *(f for f in feeds if f["count"]))
    (none,) = (f for f in feeds if not f["count"])  # onnxruntime forgets the axes of what it did not collect
    got = exe.run(none)
    assert got["all"].shape == (0, 1, 8)
    assert all(np.array_equal(got[f"{n}s"], none[f"{n}0"]) for n in "kv")
    assert re.search(r"gives = \(data__\d+,\)", exe.text("graph"))  # one size of both


def test_a_carried_value_that_shrinks_by_what_it_holds():
    """What is above the mean stays, for as long as there is more than one."""
    nodes = [
        h.make_node("ReduceMean", ["x"], ["mean"], keepdims=1),
        h.make_node("Greater", ["x", "mean"], ["above"]),
        h.make_node("Compress", ["x", "above"], ["next"], axis=0),
        h.make_node("Size", ["next"], ["left"]),
        h.make_node("Greater", ["left", "one"], ["more"]),
    ]
    node = h.make_node("Loop", ["", "start", "x0"], ["y"], body=body(nodes, {"x": "next"}, going="more"))
    m = model([node], [value("x0", ("n",)), value("start", (), T.BOOL)], [value("y", None)], {"one": np.array(1)})
    compare(m, *({"x0": floats(n), "start": np.array(s)} for n, s in ((30, True), (2, True), (1000, True), (4, False))))


def test_sizes_in_turns():
    """A range as long as the turn's number in a list, and what of the rows is not zero."""
    nodes = [
        h.make_node("Gather", ["counts", "i"], ["n"], axis=0),
        h.make_node("Range", ["zero", "n", "one"], ["line"]),
        h.make_node("Cast", ["line"], ["f"], to=T.FLOAT),
        h.make_node("ReduceSum", ["f"], ["a"], keepdims=0),
        h.make_node("Gather", ["rows", "i"], ["row"], axis=0),
        h.make_node("NonZero", ["row"], ["at"]),
        h.make_node("Cast", ["at"], ["g"], to=T.FLOAT),
        h.make_node("ReduceSum", ["g"], ["b"], keepdims=0),
        h.make_node("Sum", ["acc", "a", "b"], ["next"]),
    ]
    node = h.make_node("Loop", ["count", "", "acc0"], ["y", "each"], body=body(nodes, {"acc": "next"}, ["b"]))
    inputs = [value("counts", ("k",), T.INT64), value("rows", ("k", "w")), value("count", (), T.INT64), value("acc0", ())]
    m = model([node], inputs, [value("y", None), value("each", None)], {"zero": np.array(0), "one": np.array(1)})
    feeds = []
    for k, w in ((4, 6), (1, 3), (0, 2), (9, 40)):
        rows = floats(k, w) * (RNG.random((k, w)) < 0.5)
        feeds.append({"counts": RNG.integers(0, 9, k), "rows": rows, "count": np.array(k), "acc0": np.float32(0)})
    compare(m, *({n: np.asarray(a, np.float32 if a.dtype.kind == "f" else np.int64) for n, a in f.items()} for f in feeds))


def test_branches_in_turns():
    """A turn adds a row, or leaves out the rows above 0 in the first column."""
    more = [h.make_node("Concat", ["acc", "line"], ["tnext"], axis=0)]
    less = [
        h.make_node("Gather", ["acc", "none"], ["column"], axis=1),
        h.make_node("LessOrEqual", ["column", "nothing"], ["low"]),
        h.make_node("Compress", ["acc", "low"], ["enext"], axis=0),
    ]
    nodes = [
        h.make_node("Gather", ["rows", "i"], ["line0"], axis=0),
        h.make_node("Unsqueeze", ["line0", "first"], ["line"]),
        h.make_node("Gather", ["adds", "i"], ["flag"], axis=0),
        branches(more, less, outputs=("next",)),
    ]
    node = h.make_node("Loop", ["count", "", "acc0"], ["y"], body=body(nodes, {"acc": "next"}))
    inputs = [value("rows", ("k", 3)), value("adds", ("k",), T.BOOL), value("acc0", ("n", 3)), value("count", (), T.INT64)]
    constants = {"first": np.array([0]), "none": np.array(0), "nothing": np.float32(0)}
    m = model([node], inputs, [value("y", None)], constants)
    feeds = []
    for n, k in ((2, 6), (1, 1), (5, 0), (3, 30)):
        feeds.append({"rows": floats(k, 3), "adds": RNG.random(k) < 0.7, "acc0": floats(n, 3), "count": np.array(k)})
    compare(m, *feeds)


def test_loops_in_loops_that_grow():
    """Turn i of the outer loop adds i rows in an inner one."""
    inner_nodes = [h.make_node("Concat", ["u", "row"], ["u1"], axis=0), h.make_node("Identity", ["c1"], ["c2"])]
    inner_inputs = [value("j", (), T.INT64), value("c1", (), T.BOOL), value("u", None)]
    inner = graph(inner_nodes, [("c2", T.BOOL), ("u1", T.FLOAT)], inner_inputs, "inner")
    nodes = [h.make_node("Loop", ["i", "", "acc"], ["longer"], body=inner), h.make_node("Mul", ["longer", "half"], ["next"])]
    node = h.make_node("Loop", ["count", "", "acc0"], ["y"], body=body(nodes, {"acc": "next"}))
    inputs = [value("row", (1, 3)), value("acc0", ("n", 3)), value("count", (), T.INT64)]
    m = model([node], inputs, [value("y", None)], {"half": np.float32(0.5)})
    compare(m, *({"row": floats(1, 3), "acc0": floats(n, 3), "count": np.array(k)} for n, k in ((1, 5), (2, 0), (0, 3), (1, 9))))


@pytest.mark.parametrize("count", ["", "largest"])
def test_a_loop_that_only_a_condition_ends_collects(count):
    nodes = [
        h.make_node("Mul", ["x", "half"], ["next"]),
        h.make_node("ReduceMax", ["next"], ["top"], keepdims=0),
        h.make_node("Greater", ["top", "limit"], ["more"]),
        h.make_node("Concat", ["next", "x"], ["pair"], axis=0),
    ]
    node = h.make_node("Loop", [count, "start", "x0"], ["y", "all"], body=body(nodes, {"x": "next"}, ["pair"], "more"))
    constants = {"half": np.float32(0.5), "limit": np.float32(0.1)}
    if count:
        constants[count] = np.array(2**63 - 1)
    m = model([node], [value("x0", ("n", 2)), value("start", (), T.BOOL)], [value("y", None), value("all", None)], constants)
    exe = compare(m, *({"x0": np.abs(floats(n, 2)) + 1, "start": np.array(True)} for n in (3, 1)))
    assert [v.shape for v in exe(floats(2, 2), np.array(False))] == [(2, 2), (0, 4, 2)]  # onnxruntime forgets the axes


def test_what_is_collected_has_one_size_in_all_turns():
    nodes = [
        h.make_node("NonZero", ["x"], ["at"]),
        h.make_node("Cast", ["at"], ["f"], to=T.FLOAT),
        h.make_node("Neg", ["x"], ["next"]),
    ]
    node = h.make_node("Loop", ["count", "", "x0"], ["y", "all"], body=body(nodes, {"x": "next"}, ["f"]))
    m = model([node], [value("x0", ("n",)), value("count", (), T.INT64)], [value("y", None), value("all", None)])
    few, none = floats(8) * (RNG.random(8) < 0.5), np.zeros(3, np.float32)
    exe = compare(m, *({"x0": x.astype(np.float32), "count": np.array(k)} for x, k in ((few, 3), (none, 2), (floats(4), 1))))
    assert exe(floats(4), np.array(0))[1].shape[0] == 0


def test_collected_values_of_different_sizes_are_an_error():
    nodes = [h.make_node("Range", ["zero", "i", "one"], ["line"]), h.make_node("Cast", ["line"], ["f"], to=T.FLOAT)]
    node = h.make_node(
        "Loop", ["count", "", "x0"], ["y", "all"], body=body([*nodes, h.make_node("Neg", ["x"], ["next"])], {"x": "next"}, ["f"])
    )
    constants = {"zero": np.array(0), "one": np.array(1)}
    m = model([node], [value("x0", (2,)), value("count", (), T.INT64)], [value("y", None), value("all", None)], constants)
    exe = compare(m, {"x0": floats(2), "count": np.array(1)})
    with pytest.raises(Error, match="TC0605"):
        exe(floats(2), np.array(3))


def test_sizes_that_are_data_and_have_to_be_equal():
    """Both are counted in the call: as many rows as x has positive elements, and as z has."""
    step = graph([h.make_node("Add", ["s", "a"], ["s0"]), h.make_node("Add", ["s0", "b"], ["s1"])],
                 [("s1", T.FLOAT)], [value("s", ()), value("a", ()), value("b", ())], "step")  # fmt: skip
    nodes = []
    for n in "xz":
        nodes += [h.make_node("Greater", [n, "zero"], [f"{n}0"]), h.make_node("Compress", [n, f"{n}0"], [f"{n}1"], axis=0)]
    nodes.append(h.make_node("Scan", ["zero", "x1", "z1"], ["y"], body=step, num_scan_inputs=2))
    nodes.append(h.make_node("Split", ["x1", "two"], ["first", "second"]))
    m = model(nodes, [value("x", ("n",)), value("z", ("m",))], [value(n, None) for n in ("y", "first", "second")],
              {"zero": np.float32(0), "two": np.array([1, 1])})  # fmt: skip
    x, z = np.array([1, -2, 3], np.float32), np.array([5, 6, -1, -1], np.float32)
    exe = compare(m, {"x": x, "z": z})
    for other in ((x, np.abs(z)), (np.abs(x), z), (np.abs(x), np.abs(z[:3]))):
        with pytest.raises(Error, match="TC0605"):
            exe(*other)


def test_two_loops_that_begin_with_the_same_value():
    """The size of what the first makes is known before the second is run: their buffers are not the same all the same."""
    shrinking = [h.make_node("Greater", ["x", "zero"], ["above"]), h.make_node("Compress", ["x", "above"], ["next"], axis=0)]
    turning = [h.make_node("Neg", ["z"], ["turned"])]
    nodes = [
        h.make_node("Loop", ["count", "", "x0"], ["y"], body=body(shrinking, {"x": "next"})),
        h.make_node("Loop", ["count", "", "x0"], ["w"], body=body(turning, {"z": "turned"})),
    ]
    inputs = [value("x0", ("n",)), value("count", (), T.INT64)]
    m = model(nodes, inputs, [value("y", None), value("w", None)], {"zero": np.float32(0)})
    compare(m, *({"x0": floats(n), "count": np.array(k)} for n, k in ((9, 3), (4, 0), (0, 2))))


def test_a_value_that_grows_beyond_all_memory():
    """A turn makes a square of zeros as large as a list says, twice."""
    nodes = [
        h.make_node("Gather", ["counts", "i"], ["n0"], axis=0),
        h.make_node("Reshape", ["n0", "one"], ["n"]),
        h.make_node("Concat", ["n", "n"], ["shape"], axis=0),
        h.make_node("ConstantOfShape", ["shape"], ["zeros"]),
        h.make_node("Concat", ["zeros", "zeros"], ["next"], axis=0),
    ]
    node = h.make_node("Loop", ["count", "", "x0"], ["y"], body=body(nodes, {"x": "next"}))
    inputs = [value("x0", ("a", "b")), value("counts", ("k",), T.INT64), value("count", (), T.INT64)]
    m = model([node], inputs, [value("y", None)], {"one": np.array([1])})
    exe = compare(m, {"x0": floats(3, 2), "counts": np.array([5, 0, 40, 2]), "count": np.array(4)})
    before = memory.held() - memory.retained()
    for _ in range(3):
        with pytest.raises(Error, match="TC0606"):
            exe(floats(3, 2), np.array([7, 1000, 1 << 24, 3]), np.array(4))
        assert exe(floats(3, 2), np.array([9]), np.array(1)).shape == (18, 9)
    gc.collect()
    assert memory.held() - memory.retained() <= before


def test_results_of_branches_are_written_where_they_belong():
    """A cache that is joined with what is new, or begun: no copy of either."""
    then = [h.make_node("MatMul", ["x", "w"], ["k0"]), h.make_node("Concat", ["past", "k0"], ["ty"], axis=0)]
    other = [h.make_node("MatMul", ["x", "w"], ["e0"]), h.make_node("Tanh", ["e0"], ["ey"])]
    inputs = [value("flag", (), T.BOOL), value("x", ("n", 64)), value("past", ("p", 64))]
    m = model([branches(then, other)], inputs, [value("y", None)], {"w": floats(64, 64)})
    feeds = [{"flag": np.array(f), "x": floats(n, 64), "past": floats(p, 64)} for f in (True, False) for n, p in ((3, 4), (1, 0))]
    text = compare(m, *feeds).text("reg")
    assert text.count("launch") == 4  # the size, a product and what is joined, a product that is bent
    assert "alone" not in text
