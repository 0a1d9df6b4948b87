"""One node whose operands are data: one compiled program for all their values, against NumPy."""

import numpy as np
import pytest
from onnx import helper as h
from onnx_support import model

import tcomp
from tcomp.errors import Error


def program(op, inputs, outputs=("y",), constants=None, opset=21, operands=(), **attributes):
    """A compiled model of one node. inputs: name -> (dtype, shape); constants: name -> array, operands after them if there is no
    list of `operands`."""
    node = h.make_node(op, [*operands] or [*inputs, *(constants or {})], list(outputs), name="the node", **attributes)
    return tcomp.compile(model([node], inputs, list(outputs), opset, constants=constants))


def shapes_of(x):
    """The shape of `x` as it is, and as symbols."""
    return list(x.shape), [f"d{k}" for k in range(x.ndim)]


def agree(exe, reference, *feeds):
    """Each feed gives what the reference does; where that gives None the call fails with TC0605 at the node."""
    for feed in feeds:
        want = reference(**feed)
        if want is None:
            fails(exe, feed)
            continue
        (got,) = exe.run({k: np.asarray(v) for k, v in feed.items()}).values()
        assert got.shape == want.shape, f"{got.shape}, expected {want.shape}, of {feed}"
        np.testing.assert_array_equal(got, want, f"of {feed}")


def fails(exe, feed, match="TC0605"):
    with pytest.raises(Error, match=match) as fault:
        exe.run({k: np.asarray(v) for k, v in feed.items()})
    assert "the node" in str(fault.value), f"{fault.value} of {feed}"
