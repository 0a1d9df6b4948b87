"""Positions that data decides: out of range they are an error of the call, however they come to their operation; what is not
used may hold anything."""

import numpy as np
import pytest

import tcomp
from tcomp.api import Compiler
from tcomp.frontend.jit import Options
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.graph import Func, broadcast, reshape, transpose
from tcomp.ir.interp.graph import run
from tcomp.ir.node import Node
from tcomp.ir.ops import apply, constant, parameter

N = index.symbol("n")
X = parameter("x", dt.f32, (N, 3))
ROWS = parameter("at", dt.i64, (2, 3))


def sliced(at: Node) -> Node:
    """The first row of [2, 3], as [1, 3]: the second is not used."""
    return apply("slice", at, start=(0, 0), shape=(1, 3), step=(1, 1))


WAYS = {
    "direct": lambda at: at,
    "flat": lambda at: reshape(at, (6,)),
    "transposed": lambda at: transpose(at, (1, 0)),
    "spread": lambda at: broadcast(at, (2, 2, 3), (1, 2)),
    "computed": lambda at: apply("add", at, at),
    "sliced": sliced,
    "sliced and turned": lambda at: transpose(sliced(at), (1, 0)),
    "reversed": lambda at: apply("slice", at, start=(0, at.type.shape[1] - 1), shape=at.type.shape, step=(1, -1)),
}


def compiled(*results: Node):
    names = tuple(f"r{k}" for k in range(len(results)))
    func = Func("f", tuple(n for n in (X, ROWS) if n in Func("f", (), results, ()).nodes()), results, names)
    return func, Compiler(use_cache=False)(func, Options())


def agree(func, program, *arrays):
    got = program(*arrays)
    for want, found in zip(run(func, arrays), got if isinstance(got, tuple) else (got,), strict=True):
        np.testing.assert_array_equal(want, found)


def refused(program, *arrays):
    with pytest.raises(tcomp.Error) as raised:
        program(*arrays)
    assert raised.value.code == "TC0604"


pytestmark = pytest.mark.usefixtures("fast_code")


x = np.arange(12, dtype=np.float32).reshape(4, 3)
good = np.array([[0, 1, 1], [1, 0, 1]])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("bad", [4, -1, 1 << 40, -(1 << 62)])
def test_gather(way, bad):
    func, program = compiled(apply("gather", X, WAYS[way](ROWS), axis=0))
    agree(func, program, x, good)
    for place in ((0, 0), (0, 2), (1, 1)):
        at = good.copy()
        at[place] = bad
        if "sliced" in way and place[0] == 1:
            agree(func, program, x, at)
        elif way == "computed" and abs(bad) < 1 << 62:
            at[place] = bad // 2 if bad > 0 else bad
            refused(program, x, at)
        elif way != "computed":
            refused(program, x, at)
    agree(func, program, x, good)


@pytest.mark.parametrize("way", ["direct", "transposed", "computed", "reversed"])
def test_coordinates(way):
    """Each coordinate is held against the size of its own axis: x is [4, 3]. The last column is not used."""
    at = WAYS[way](apply("slice", ROWS, start=(0, 0), shape=(2, 2), step=(1, 1)))
    func, program = compiled(apply("gather_nd", X, at, batch=0))
    coordinates = np.array([[1, 1, 9], [1, 1, 9]])
    agree(func, program, x, coordinates)
    for place in ((0, 0), (0, 1), (1, 0), (1, 1)):
        for value in (2, 3, 4, -1):
            off = coordinates.copy()
            off[place] = value
            try:
                run(func, [x, off])
            except tcomp.Error:
                refused(program, x, off)
            else:
                agree(func, program, x, off)


@pytest.mark.parametrize("monoid", [None, "add", "max"])
def test_scatter(monoid):
    func, program = compiled(
        apply("scatter_elements", X, ROWS, broadcast(constant(np.float32(7)), (2, 3), ()), axis=0, monoid=monoid),
        apply("scatter_nd", X, reshape(ROWS, (6, 1)), broadcast(constant(np.float32(7)), (6, 3), ()), monoid=monoid),
    )
    agree(func, program, x, good)
    refused(program, x, good + 3)
    refused(program, x, good - 1)
    agree(func, program, x, good)


@pytest.mark.parametrize(
    "at",
    [apply("iota", shape=(4,), axis=0, dtype=dt.i64), constant(np.int64(3)), constant(np.array([[0, 3], [1, 2]]))],
    ids=["iota", "constant", "constants"],
)
def test_positions_that_are_known_and_an_axis_that_is_not(at):
    func, program = compiled(apply("gather", X, at, axis=0))
    agree(func, program, x)
    refused(program, x[:3])
    refused(program, x[:0])
    agree(func, program, np.vstack([x, x]))
