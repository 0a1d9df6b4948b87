"""Random operators: the published generator, the distributions, the same numbers in every call and others in every place."""

import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from scipy import stats
from test_control_operators import model, value

import tcomp
from tcomp.frontend.onnx.ops_random import ARRAYS, NODES, threefry
from tcomp.ir import dtype as dt
from tcomp.ir.graph import Func
from tcomp.ir.interp.graph import run
from tcomp.ir.ops import constant

COUNT = 20000
KNOWN = [  # counter, key, result: the answers that the authors publish for 20 rounds
    ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
]


@pytest.mark.parametrize("counter, key, answer", KNOWN)
def test_the_published_answers(counter, key, answer):
    words = [np.array(w, np.uint32) for w in (*key, *counter)]
    nodes = [constant(w) for w in words]
    results = threefry((nodes[0], nodes[1]), (nodes[2], nodes[3]), NODES)
    assert all(r.type.dtype == dt.u32 for r in results)
    assert tuple(int(r) for r in run(Func("f", (), results, ("a", "b")), [])) == answer
    assert tuple(int(r) for r in threefry((words[0], words[1]), (words[2], words[3]), ARRAYS)) == answer


def like(name, kind=T.FLOAT, **attributes):
    """Numbers of the shape of x, which only the call knows."""
    node = h.make_node(f"Random{name}Like", ["x"], ["y"], **attributes)
    return tcomp.compile(model([node], [value("x", ("n",), kind)], [value("y", None, kind)]))


def drawn(name, count=COUNT, kind=T.FLOAT, **attributes):
    x = np.zeros(count, h.tensor_dtype_to_np_dtype(kind))
    return like(name, kind, **attributes)(x)


KINDS = {"f32": T.FLOAT, "f64": T.DOUBLE, "f16": T.FLOAT16, "bf16": T.BFLOAT16}


@pytest.mark.parametrize("kind", KINDS)
def test_uniform(kind):
    found = drawn("Uniform", kind=KINDS[kind], low=-2.0, high=4.0, seed=3.0).astype(np.float64)
    assert found.min() >= -2 and found.max() <= 4 and abs(found.mean() - 1) < 0.05 and abs(found.var() - 3) < 0.1
    if kind in ("f32", "f64"):
        assert stats.kstest(found, stats.uniform(-2, 6).cdf).pvalue > 0.001 and found.max() < 4
        assert len(np.unique(found)) > COUNT * 0.99


@pytest.mark.parametrize("kind", KINDS)
def test_normal(kind):
    found = drawn("Normal", kind=KINDS[kind], mean=1.0, scale=2.0, seed=4.0).astype(np.float64)
    assert abs(found.mean() - 1) < 0.06 and abs(found.std() - 2) < 0.04 and np.isfinite(found).all()
    if kind in ("f32", "f64"):
        assert stats.kstest(found, stats.norm(1, 2).cdf).pvalue > 0.001
        assert abs(stats.skew(found)) < 0.06 and abs(stats.kurtosis(found)) < 0.15


def test_neighbours_do_not_depend_on_each_other():
    for name in ("Uniform", "Normal"):
        x = drawn(name, seed=1.0).astype(np.float64)
        assert all(abs(np.corrcoef(x[:-k], x[k:])[0, 1]) < 0.03 for k in (1, 2, 3, 64))


def test_a_prefix_does_not_depend_on_the_size():
    exe = like("Normal", seed=2.0)
    np.testing.assert_array_equal(exe(np.zeros(100, np.float32)), exe(np.zeros(257, np.float32))[:100])
    assert exe(np.zeros(0, np.float32)).shape == (0,)


def test_seeds_and_places():
    """A seed gives the same numbers everywhere and always; nodes without one have numbers of their own, the same in all calls."""
    nodes = [h.make_node("RandomUniformLike", ["x"], [n], **({"seed": s} if s is not None else {}))
             for n, s in (("a", 1.0), ("b", 1.0), ("c", 2.0), ("d", None), ("e", None))]  # fmt: skip
    m = model(nodes, [value("x", (50,))], [value(n, (50,)) for n in "abcde"])
    x = np.zeros(50, np.float32)
    first, again = (tcomp.compile(m).run({"x": x}) for _ in range(2))
    assert all((first[n] == again[n]).all() for n in "abcde") and (first["a"] == first["b"]).all()
    others = [first[n].tobytes() for n in "acde"]
    assert len(set(others)) == 4


@pytest.mark.parametrize("turns", [2, 5])
def test_turns_of_a_loop_draw_other_numbers(turns):
    """Unrolled or not."""
    body = h.make_graph([h.make_node("RandomUniformLike", ["x"], ["y"]), h.make_node("Identity", ["c"], ["on"])], "body",
                        [value("i", (), T.INT64), value("c", (), T.BOOL)],
                        [value("on", (), T.BOOL), value("y", (20,))])  # fmt: skip
    loop = h.make_node("Loop", ["count", "go"], ["y"], body=body)
    m = model([loop], [value("x", (20,))], [value("y", None)], {"count": np.array(turns), "go": np.array(True)})
    rows = tcomp.compile(m)(np.zeros(20, np.float32))
    assert rows.shape == (turns, 20) and len({r.tobytes() for r in rows}) == turns


def test_shapes_and_types_by_attributes():
    nodes = [
        h.make_node("RandomUniform", [], ["a"], shape=[2, 0, 3]),
        h.make_node("RandomNormal", [], ["b"], shape=[1], dtype=T.DOUBLE),
        h.make_node("RandomNormalLike", ["x"], ["c"], dtype=T.FLOAT16),
    ]
    outputs = [value("a", None), value("b", None, T.DOUBLE), value("c", None, T.FLOAT16)]
    found = tcomp.compile(model(nodes, [value("x", (4,), T.DOUBLE)], outputs)).run({"x": np.zeros(4)})
    assert [(v.shape, v.dtype.name) for v in found.values()] == [((2, 0, 3), "float32"), ((1,), "float64"), ((4,), "float16")]


def test_bernoulli():
    m = model([h.make_node("Bernoulli", ["p"], ["y"], dtype=T.BOOL, seed=5.0)], [value("p", ("n",))], [value("y", None, T.BOOL)])
    exe = tcomp.compile(m)
    for p in (0.0, 0.3, 1.0):
        assert abs(exe(np.full(COUNT, p, np.float32)).mean() - p) < 0.02 * (0 < p < 1) + 1e-9


def test_multinomial():
    node = h.make_node("Multinomial", ["x"], ["y"], sample_size=COUNT, seed=6.0, dtype=T.INT64)
    exe = tcomp.compile(model([node], [value("x", ("b", 4))], [value("y", None, T.INT64)]))
    weights = np.array([[1, 2, 3, 4], [0, 1, 0, 0], [5, 0, 5, 0]], np.float32)
    with np.errstate(divide="ignore"):
        found = exe(np.log(weights))
    assert found.shape == (3, COUNT)
    shares = np.stack([np.bincount(row, minlength=4) / COUNT for row in found])
    np.testing.assert_allclose(shares, weights / weights.sum(1, keepdims=True), atol=0.015)
    assert (shares[weights == 0] == 0).all()


def test_numbers_of_a_known_shape_are_those_of_any_shape():
    m = model([h.make_node("RandomNormal", [], ["y"], shape=[300, 7], seed=2.0)], [], [value("y", None)])
    np.testing.assert_allclose(tcomp.compile(m)(), drawn("Normal", 2100, seed=2.0).reshape(300, 7), rtol=1e-5, atol=1e-6)


def test_refusals():
    for node in (
        h.make_node("RandomUniform", [], ["y"], shape=[-1]),
        h.make_node("RandomUniform", [], ["y"], shape=[2], dtype=T.INT32),
    ):
        with pytest.raises(tcomp.Error, match="TC0203"):
            tcomp.compile(model([node], [], [value("y", None)]))
