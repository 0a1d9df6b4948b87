"""Parameters of an operator that may be data: a number that is known while importing, or a scalar of the program."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from tcomp.frontend.onnx import build
from tcomp.frontend.onnx.registry import MOST_SIZES, Context, element
from tcomp.ir import dtype as dt
from tcomp.ir.graph import broadcast, cast, reshape
from tcomp.ir.node import Node
from tcomp.ir.ops import apply, constant

Number: TypeAlias = float | Node  # a Node has rank 0
_ARITHMETIC: dict[str, Callable[[float, float], float]] = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}


def numbers(c: Context, x: Node, what: str) -> tuple[Number, ...]:
    """The elements of a short list of floats, each by itself known or not."""
    count = c.count(x)
    if c.constant(x) is None and count > MOST_SIZES:
        raise c.unsupported(f"{what} depends on the inputs", f"up to {MOST_SIZES} numbers may")
    flat = c.facts.settle(reshape(x, (count,)))
    return tuple(number(c, element(flat, k)) for k in range(count))


def number(c: Context, x: Node) -> Number:
    """The one element of `x`."""
    known = c.constant(x)
    if known is not None:
        return float(known.reshape(()))
    c.facts.must_be_known(x)
    return reshape(x, ())


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
