"""Parameters of an operator that may be data: a number that is known while importing, or a scalar of the program."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from tcomp.frontend.onnx import build
from tcomp.frontend.onnx.registry import Context
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.graph import broadcast, cast, reshape
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import apply, constant

Number: TypeAlias = float | Node  # a Node has rank 0
MOST = 64  # elements of a list of parameters
_ARITHMETIC: dict[str, Callable[[float, float], float]] = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}


def numbers(c: Context, x: Node, what: str) -> tuple[Number, ...]:
    """The elements of a small tensor of floats, each by itself known or not."""
    count = index.product(x.type.shape)
    if c.constant(x) is None and not (isinstance(count, int) and count <= MOST):
        c.facts.must_be_known(x)
        raise c.unsupported(f"{what} depends on the inputs", f"up to {MOST} numbers may")
    assert isinstance(count, int)
    return tuple(_number(c, _element(x, count, k)) for k in range(count))


def number(c: Context, x: Node) -> Number:
    """The one element of `x`."""
    return _number(c, reshape(x, ()))


def _number(c: Context, x: Node) -> Number:
    known = c.constant(x)
    if known is not None:
        return float(known)
    c.facts.must_be_known(x)
    return x


def _element(x: Node, count: int, k: int) -> Node:
    """Element k of `x` in row-major order, of the part of a `concat` that has it."""
    if x.op == "concat" and x.type.rank == 1:
        for part in x.operands:
            size = part.type.shape[0]
            if not isinstance(size, int):
                break
            if k < size:
                return _element(part, size, k)
            k -= size
    flat = reshape(x, (count,))
    return reshape(build.take(flat, 0, k, 1), ())


def spread(v: Number, like: Node) -> Node:
    """`v` in the dtype and shape of `like`."""
    if not isinstance(v, Node):
        return build.scalar(v, like)
    return broadcast(cast(v, like.type.dtype), like.type.shape, ())


def with_number(op: str, x: Node, v: Number) -> Node:
    return apply(op, x, spread(v, x))


def combined(op: str, a: Number, b: Number) -> Number:
    """a `op` b (add, sub or mul) in f64."""
    if not isinstance(a, Node) and not isinstance(b, Node):
        return _ARITHMETIC[op](a, b)
    wide = [cast(v, dt.f64) if isinstance(v, Node) else constant(np.float64(v)) for v in (a, b)]
    return apply(op, *wide)


def data_size(c: Context, value: Node, what: str, most: int | None = None) -> Dim:
    """The size, 0 to `most`, that the scalar `value` is; where it is out of these bounds the call fails (TC0605)."""
    if c.facts.nested:
        raise c.unsupported(f"{what} depends on the data of the inputs", "outside of loops and branches it may")
    return c.facts.data_size(value, most)
