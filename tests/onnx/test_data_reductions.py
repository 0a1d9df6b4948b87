"""Reductions and running sums along axes that are data: one compiled program for all of them, against onnxruntime."""

import itertools

import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from test_control_operators import compare, model, value

import tcomp
from tcomp.errors import Error

RNG = np.random.default_rng(5)
REDUCTIONS = ["Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp"]
CUBE = RNG.uniform(0.5, 1.5, (2, 3, 4)).astype(np.float32)


def reduction(op, count=1, shape=CUBE.shape, kind=T.FLOAT, **attributes):
    node = h.make_node(f"Reduce{op}", ["x", "axes"], ["y"], **attributes)
    m = model([node], [value("x", shape, kind), value("axes", (count,), T.INT64)], [value("y", None, kind)])
    m.opset_import[0].version = 18
    return m


def along(x, count):
    """Every choice of `count` axes, in any order, some counted from the end."""
    rank = x.ndim
    for axes in itertools.permutations(range(rank), count):
        yield {"x": x, "axes": np.array([a - rank * (k % 2) for k, a in enumerate(axes)], np.int64)}


@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("op", REDUCTIONS)
def test_reductions(op, keep):
    compare(reduction(op, keepdims=keep), *along(CUBE, 1))
    compare(reduction(op, 2, keepdims=keep), *along(CUBE, 2))


@pytest.mark.parametrize("keep", [0, 1])
def test_all_axes_and_none(keep):
    compare(reduction("Sum", 3, keepdims=keep), *along(CUBE, 3))
    compare(reduction("Sum", 0, keepdims=keep), {"x": CUBE, "axes": np.zeros(0, np.int64)})
    compare(reduction("Sum", 0, keepdims=keep, noop_with_empty_axes=1), {"x": CUBE, "axes": np.zeros(0, np.int64)})


@pytest.mark.parametrize("noop", [0, 1])
def test_any_number_of_axes(noop):
    exe = tcomp.compile(reduction("Sum", "k", noop_with_empty_axes=noop))
    for axes in ((), (1,), (0, -1), (2, 0, 1)):
        over = axes if axes or noop else None
        got = exe.run({"x": CUBE, "axes": np.array(axes, np.int64)})["y"]
        np.testing.assert_allclose(got, CUBE if over == () else CUBE.sum(over, keepdims=True), rtol=1e-5)
    with pytest.raises(Error, match=r"TC0202.*keepdims"):
        tcomp.compile(reduction("Sum", "k", keepdims=0))


@pytest.mark.parametrize("op", ["Sum", "Mean", "Max"])
@pytest.mark.parametrize("kind", [T.INT32, T.INT64, T.DOUBLE])
def test_other_dtypes(op, kind):
    x = RNG.integers(-9, 9, CUBE.shape).astype(h.tensor_dtype_to_np_dtype(kind))
    compare(reduction(op, kind=kind), *along(x, 1))


@pytest.mark.parametrize("op", ["Sum", "Prod", "Max"])
def test_sizes_of_0_and_1(op):
    m = reduction(op, shape=("a", "b", "c"), keepdims=0)
    exe = tcomp.compile(m)
    ufunc, empty = {"Sum": (np.add, 0), "Prod": (np.multiply, 1), "Max": (np.maximum, -np.inf)}[op]
    for shape, axis in itertools.product([(2, 3, 4), (1, 5, 1), (3, 0, 2), (0, 1, 4), (1, 1, 1)], range(3)):
        x = RNG.standard_normal(shape).astype(np.float32)
        want = ufunc.reduce(x, axis, initial=empty)
        got = exe.run({"x": x, "axes": np.array([axis])})["y"]
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize("axes", [(3,), (-4,), (2**40,), (-(2**63),)])
def test_an_axis_out_of_range_fails_the_call(axes):
    exe = tcomp.compile(reduction("Sum"))
    with pytest.raises(Error, match=r"(?s)TC0605.*ReduceSum"):
        exe.run({"x": CUBE, "axes": np.array(axes)})
    assert exe.run({"x": CUBE, "axes": np.array([-3])})["y"].shape == (1, 3, 4)


@pytest.mark.parametrize("axes", [(0, 0), (1, -2)])
def test_an_axis_named_twice_fails_the_call(axes):
    with pytest.raises(Error, match=r"(?s)TC0605.*ReduceMax"):
        tcomp.compile(reduction("Max", 2)).run({"x": CUBE, "axes": np.array(axes)})


def cumulative(shape=CUBE.shape, kind=T.FLOAT, op="CumSum", opset=17, **attributes):
    node = h.make_node(op, ["x", "axis"], ["y"], **attributes)
    m = model([node], [value("x", shape, kind), value("axis", (), T.INT64)], [value("y", None, kind)])
    m.opset_import[0].version = opset
    return m


@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("exclusive", [0, 1])
def test_running_sums(reverse, exclusive):
    m = cumulative(reverse=reverse, exclusive=exclusive)
    compare(m, *({"x": CUBE, "axis": np.array(a)} for a in range(-3, 3)))


def test_running_sums_of_any_size():
    m = cumulative(("a", "b", "c"), T.INT32)
    cubes = [RNG.integers(-99, 99, s).astype(np.int32) for s in ((2, 3, 4), (1, 40, 2), (3, 1, 1), (2, 0, 3))]
    compare(m, *({"x": x, "axis": np.array(a)} for x in cubes for a in (0, -2, 2)))


def test_running_products():
    exe = tcomp.compile(cumulative(op="CumProd", opset=26))
    for a in range(-3, 3):
        np.testing.assert_allclose(exe.run({"x": CUBE, "axis": np.array(a)})["y"], np.cumprod(CUBE, a), rtol=1e-5)


def test_a_running_sum_along_no_axis_fails_the_call():
    with pytest.raises(Error, match=r"(?s)TC0605.*CumSum"):
        tcomp.compile(cumulative()).run({"x": CUBE, "axis": np.array(3)})


def test_no_element_is_looked_up_by_dividing():
    text = tcomp.compile(cumulative((64, 128, 256))).text("tile")
    assert "data__" in text and "//" not in text and "%" not in text


def test_every_pass_keeps_what_is_computed(monkeypatch):
    monkeypatch.setenv("TCOMP_CHECK", "3")
    compare(reduction("LogSumExp", 1, (2, 3, 4), keepdims=0), *along(CUBE, 1))
    compare(cumulative((2, 3, 4), reverse=1), *({"x": CUBE, "axis": np.array(a)} for a in range(3)))
