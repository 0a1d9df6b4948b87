"""NonMaxSuppression against onnxruntime: one compiled program for all numbers of boxes, limits and thresholds."""

import numpy as np
from onnx import TensorProto as T
from onnx import helper as h
from test_control_operators import compare, model, value

import tcomp

RNG = np.random.default_rng(5)


def suppression(operands, constants=(), shape=("b", "c", "n"), **attributes):
    """A model whose operands are inputs, but for the constants."""
    batches, _, n = shape
    shapes = {"boxes": ((batches, n, 4), T.FLOAT), "scores": (shape, T.FLOAT), "most": ((1,), T.INT64)}
    inputs = [value(o, *shapes.get(o, ((), T.FLOAT))) for o in operands if o and o not in dict(constants)]
    node = h.make_node("NonMaxSuppression", operands, ["chosen"], **attributes)
    return model([node], inputs, [value("chosen", None, T.INT64)], constants)


def boxes(batches, n, spread=3.0):
    """Corners, in any order."""
    corner = RNG.random((batches, n, 2)) * spread
    return np.concatenate([corner, corner + RNG.random((batches, n, 2)) - 0.2], 2).astype(np.float32)


def scores(*shape):
    """With equal ones among them."""
    return np.round(RNG.random(shape), 1).astype(np.float32)


def feed(b, c, n, most=None, overlap=None, least=None, spread=3.0):
    given = {"boxes": boxes(b, n, spread), "scores": scores(b, c, n)}
    if most is not None:
        given["most"] = np.array([most])
    for name, v in (("overlap", overlap), ("least", least)):
        if v is not None:
            given[name] = np.array(v, np.float32)
    return given


def test_everything_is_data():
    m = suppression(["boxes", "scores", "most", "overlap", "least"])
    cases = [(2, 3, 20, 5, 0.3, 0.4), (1, 1, 1, 1, 0.5, 0.0), (1, 2, 40, 1000, 0.1, 0.0), (2, 2, 9, 3, 0.5, 2.0),
             (1, 1, 30, 0, 0.5, 0.0), (1, 80, 60, 10, 0.45, 0.25), (1, 1, 25, 4, 0.0, -1.0)]  # fmt: skip
    compare(m, *(feed(*case) for case in cases))


def test_no_boxes():
    exe = tcomp.compile(suppression(["boxes", "scores", "most", "overlap", "least"]))
    for shape in ((1, 2, 0), (0, 2, 3), (1, 0, 4)):
        assert exe.run(feed(*shape, 4, 0.5, 0.1))["chosen"].shape == (0, 3)


def test_without_a_threshold_of_scores():
    m = suppression(["boxes", "scores", "most", "overlap"], {"most": np.array([6]), "overlap": np.array([0.2], np.float32)})
    compare(m, *(feed(1, 2, n) for n in (1, 7, 30)))


def test_without_a_limit_nothing_is_chosen():
    compare(suppression(["boxes", "scores"]), feed(1, 1, 5))
    compare(suppression(["boxes", "scores", "", "overlap"]), feed(1, 1, 5, overlap=0.5))


def test_boxes_by_centre_and_size():
    m = suppression(["boxes", "scores", "most", "overlap", "least"], center_point_box=1)
    compare(m, *(feed(2, 2, n, 8, 0.3, 0.2) for n in (3, 25)))


def test_equal_boxes_and_equal_scores():
    m = suppression(["boxes", "scores", "most", "overlap"], shape=(1, 1, 6))
    same = {"boxes": np.tile(np.array([0, 0, 1, 1], np.float32), (1, 6, 1)), "scores": np.full((1, 1, 6), 0.5, np.float32)}
    for overlap in (0.5, 1.0):  # nothing overlaps by more than all of it
        compare(m, same | {"most": np.array([9]), "overlap": np.array(overlap, np.float32)})


def test_boxes_without_area_suppress_nothing():
    m = suppression(["boxes", "scores", "most", "overlap"], shape=(1, 1, 4))
    flat = np.array([[[0, 0, 0, 1], [0, 0, 0, 1], [0, 0, 1, 1], [0, 0, 1, 1]]], np.float32)
    compare(m, {"boxes": flat, "scores": scores(1, 1, 4), "most": np.array([4]), "overlap": np.array(0.1, np.float32)})


def test_the_chosen_boxes_are_gathered():
    """What detectors do next."""
    nodes = [
        h.make_node("NonMaxSuppression", ["boxes", "scores", "most", "overlap", "least"], ["chosen"]),
        h.make_node("Gather", ["chosen", "two"], ["which"], axis=1),
        h.make_node("Squeeze", ["which", "one"], ["at"]),
        h.make_node("Squeeze", ["boxes", "zero"], ["flat"]),
        h.make_node("Gather", ["flat", "at"], ["y"], axis=0),
    ]
    constants = {"two": np.array([2]), "one": np.array([1]), "zero": np.array([0])}
    inputs = [
        value("boxes", (1, "n", 4)),
        value("scores", (1, 3, "n")),
        value("most", (1,), T.INT64),
        value("overlap", ()),
        value("least", ()),
    ]
    m = model(nodes, inputs, [value("y", None)], constants)
    compare(m, *(feed(1, 3, n, 10, 0.4, 0.3) for n in (50, 4, 1)))


def test_a_loop_that_reduces_what_has_a_size_from_data():
    """Its kernels need workspaces whose sizes are data."""
    body = h.make_graph(
        [h.make_node("Mul", ["acc", "found"], ["p"]), h.make_node("ReduceSum", ["p"], ["s"], keepdims=0),
         h.make_node("Tanh", ["s"], ["t"]), h.make_node("Add", ["acc", "t"], ["next"]), h.make_node("Identity", ["c"], ["on"])],
        "body", [value("i", (), T.INT64), value("c", (), T.BOOL), value("acc", None)],
        [value("on", (), T.BOOL), value("next", None)])  # fmt: skip
    nodes = [
        h.make_node("Cast", ["x"], ["flags"], to=T.BOOL),
        h.make_node("Compress", ["x", "flags"], ["found"]),
        h.make_node("Loop", ["count", "", "found"], ["y"], body=body),
    ]
    m = model(nodes, [value("x", ("n",)), value("count", (), T.INT64)], [value("y", None)])
    lines = [(RNG.random(n) * (RNG.random(n) < 0.5) / max(n, 1)).astype(np.float32) for n in (3, 5000, 0)]
    compare(m, *({"x": x, "count": np.array(k)} for x in lines for k in (0, 3)))
