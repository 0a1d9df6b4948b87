"""`fold`: what can be known is computed now.

Takes and gives a GRAPH of the same meaning: operations on constants become constants, by the references of the op table. What
only repeats or counts (`broadcast`, `iota`, `window`) stays, since it is never stored; a constant of equal elements becomes one,
repeated. Must not make programs large: an operation stays where its result is over 64 MB, or over four times its operands and
not small. An operation that faults on its constants is left to fault when it runs.

    y = transpose w[768, 3072]   ->   y = a constant [3072, 768]
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tcomp.errors import Error
from tcomp.ir.graph import broadcast
from tcomp.ir.interp.graph import evaluate
from tcomp.ir.module import Module
from tcomp.ir.node import Dim, Node, with_operands
from tcomp.ir.ops import OPS, constant
from tcomp.ir.ops.table import CONTROL
from tcomp.ir.types import TensorType, TupleType
from tcomp.passes.rebuild import rebuilt

LARGEST = 64 << 20  # bytes of a result
SMALL = 64 << 10  # bytes of a result that may be any multiple of its operands
GROWTH = 4
_UNSTORED = frozenset(["broadcast", "iota", "window"])
_VIEWS = frozenset(["broadcast", "window"])
_SLOW = frozenset(["erf", "scatter_elements", "scatter_nd"])  # references that walk their elements in Python


def fold(module: Module) -> Module:
    """`module` with everything computed that does not depend on the parameters."""
    return rebuilt(module, _Folding().change)


class _Folding:
    """Values known so far, of nodes of the new program."""

    def __init__(self) -> None:
        self.known: dict[Node, Any] = {}

    def change(self, old: Node, operands: tuple[Node, ...]) -> Node:
        n = with_operands(old, operands)
        if n.op == "constant":
            return self._constant(n)
        if n not in self.known and not self._evaluate(n):
            return n
        if n.op in _UNSTORED or isinstance(n.type, TupleType) or not self._pays(n):
            return n
        return self._stored(np.asarray(self.known[n]))

    def _constant(self, n: Node) -> Node:
        array = n["value"].array
        one = _only_element(array)
        if one is not None:
            return self._repeated(one, array)
        self.known[n] = array
        return n

    def _stored(self, array: np.ndarray) -> Node:
        """The constant of a value, as one element repeated where all are equal bit for bit."""
        one = _only_element(array)
        if one is not None:
            return self._repeated(one, array)
        array = np.ascontiguousarray(array).reshape(array.shape)
        array.setflags(write=False)  # so that `constant` need not copy it
        result = constant(array)
        self.known[result] = array
        return result

    def _repeated(self, one: np.ndarray, array: np.ndarray) -> Node:
        small = constant(one)
        result = broadcast(small, array.shape, ())
        self.known[small], self.known[result] = one, array
        return result

    def _evaluate(self, n: Node) -> bool:
        """Compute the value of `n` if its operands are known; whether it is known now."""
        row = OPS[n.op]
        if n.op == "parameter" or row.kind == CONTROL or any(o not in self.known for o in n.operands) or not _is_sized(n):
            return False
        try:
            with np.errstate(all="ignore"):
                self.known[n] = evaluate(n, [self.known[o] for o in n.operands], {})
        except (Error, ValueError):  # it will say so when it runs
            return False
        return True

    def _pays(self, n: Node) -> bool:
        size = _bytes(n.type)
        return size <= SMALL or size <= GROWTH * sum(self._stored_bytes(o) for o in n.operands)

    def _stored_bytes(self, n: Node) -> int:
        """The bytes that a known operand takes in the program."""
        if n.op in _UNSTORED:
            return sum(self._stored_bytes(o) for o in n.operands)
        return _bytes(n.type)


def _only_element(array: np.ndarray) -> np.ndarray | None:
    """The element, of rank 0, that all of a larger array equal bit for bit."""
    if array.size < 2 or not array.ndim:
        return None
    bits = np.ascontiguousarray(array).reshape(-1).view(f"u{array.dtype.itemsize}")
    if bits[0] != bits[-1] or bits[0] != bits[bits.size // 2] or not bool((bits == bits[0]).all()):
        return None
    return bits[:1].view(array.dtype).reshape(())


def _bytes(t: TensorType | TupleType) -> int:
    if isinstance(t, TupleType):
        return sum(map(_bytes, t.elements))
    return math.prod(_number(d) for d in t.shape) * t.dtype.bytes


def _number(d: Dim) -> int:
    assert isinstance(d, int)
    return d


def _is_sized(n: Node) -> bool:
    """Whether the node depends on no symbol, and its result is not too large to compute."""
    types = n.type.elements if isinstance(n.type, TupleType) else (n.type,)
    if any(not isinstance(d, int) for t in types for d in t.shape) or any(_has_symbol(v) for _, v in n.attrs):
        return False
    return n.op in _VIEWS or _bytes(n.type) <= (SMALL if n.op in _SLOW else LARGEST)


def _has_symbol(value: Any) -> bool:
    return any(map(_has_symbol, value)) if isinstance(value, tuple) else isinstance(value, Node)
