"""Operators whose results' sizes are data, inside of branches and turns, against onnxruntime."""

import numpy as np
from onnx import TensorProto as T
from onnx import helper as h
from test_control_operators import compare, model, value

RNG = np.random.default_rng(53)


def test_unique_elements_of_a_branch():
    then = h.make_graph([h.make_node("Unique", ["x"], ["a"])], "then", [], [value("a", None)])
    other = h.make_graph([h.make_node("Neg", ["x"], ["b"])], "other", [], [value("b", None)])
    nodes = [h.make_node("If", ["flag"], ["found"], then_branch=then, else_branch=other), h.make_node("Abs", ["found"], ["y"])]
    m = model(nodes, [value("flag", (), T.BOOL), value("x", ("n",))], [value("y", None)])
    feeds = [{"flag": np.array(flag), "x": RNG.integers(-3, 4, n).astype(np.float32)} for n in (9, 1) for flag in (True, False)]
    compare(m, *feeds)


def test_boxes_of_every_image_in_a_loop():
    """The first box that is chosen for each image, or none."""
    nodes = [
        h.make_node("Gather", ["boxes", "i"], ["flat"], axis=0),
        h.make_node("Gather", ["scores", "i"], ["mine"], axis=0),
        h.make_node("Unsqueeze", ["flat", "zero"], ["one"]),
        h.make_node("Unsqueeze", ["mine", "both"], ["two"]),
        h.make_node("NonMaxSuppression", ["one", "two", "most", "overlap", "least"], ["chosen"]),
        h.make_node("Shape", ["chosen"], ["sizes"]),
        h.make_node("Gather", ["sizes", "zero"], ["count"], axis=0),
        h.make_node("ReduceSum", ["chosen"], ["sum"], keepdims=0),
        h.make_node("Identity", ["c"], ["on"]),
    ]
    body = h.make_graph(nodes, "body", [value("i", (), T.INT64), value("c", (), T.BOOL)],
                        [value("on", (), T.BOOL), value("count", None, T.INT64), value("sum", None, T.INT64)])  # fmt: skip
    loop = h.make_node("Loop", ["images", "go"], ["counts", "sums"], body=body)
    constants = {"zero": np.array([0]), "both": np.array([0, 1]), "most": np.array([20]), "go": np.array(True),
                 "overlap": np.array([0.3], np.float32), "least": np.array([0.4], np.float32)}  # fmt: skip
    inputs = [value("boxes", ("b", "n", 4)), value("scores", ("b", "n")), value("images", (), T.INT64)]
    m = model([loop], inputs, [value("counts", None, T.INT64), value("sums", None, T.INT64)], constants)
    feeds = []
    for b, n in ((3, 20), (1, 4), (2, 1)):
        corner = RNG.random((b, n, 2)) * 2
        found = np.concatenate([corner, corner + 0.5 + RNG.random((b, n, 2))], 2).astype(np.float32)
        feeds.append({"boxes": found, "scores": RNG.random((b, n)).astype(np.float32), "images": np.array(b)})
    compare(m, *feeds)
