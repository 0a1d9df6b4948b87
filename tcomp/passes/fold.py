"""`fold`: what can be known is computed now.

Takes and gives a GRAPH of the same meaning: operations on constants become constants, by the references of the op table. What
only repeats or counts (`broadcast`, `iota`, `window`) stays, since it is never stored; a constant of equal elements becomes one,
repeated. Must not make programs large: an operation stays where its result is over 64 MB, or over four times its operands and
not small; and dequantised weights of a product of few rows stay as they are stored, since reading them is its work. An operation
that faults on its constants is left to fault when it runs.

    y = transpose w[768, 3072]   ->   y = a constant [3072, 768]
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tcomp.errors import Error
from tcomp.ir.graph import Func, broadcast
from tcomp.ir.interp.graph import evaluate
from tcomp.ir.module import Module
from tcomp.ir.node import Dim, Node, with_operands
from tcomp.ir.ops import OPS, constant
from tcomp.ir.ops.reduction import free_axes
from tcomp.ir.ops.table import CONTROL, MOVEMENT, POINTWISE
from tcomp.ir.region import own_dims
from tcomp.ir.types import TensorType, TupleType
from tcomp.passes.rebuild import rebuilt

LARGEST = 64 << 20  # bytes of a result
SMALL = 64 << 10  # bytes of a result that may be any multiple of its operands
GROWTH = 4
FEW_ROWS = 4  # of a product whose work is reading its weights: up to here bytes are faster than floats in panels (measured)
LARGE_WEIGHTS = 1 << 20  # bytes
_UNSTORED = frozenset(["broadcast", "iota", "window"])
_VIEWS = frozenset(["broadcast", "window"])
_SLOW = frozenset(["erf", "scatter_elements", "scatter_nd"])  # references that walk their elements in Python


def fold(module: Module) -> Module:
    """`module` with everything computed that does not depend on the parameters."""
    kept = _dequantised(module.func) if module.func is not None else frozenset()
    return rebuilt(module, _Folding(kept).change)


class _Folding:
    """Values known so far, of nodes of the new program."""

    def __init__(self, kept: frozenset[Node]) -> None:
        self.kept = kept
        self.known: dict[Node, Any] = {}

    def change(self, old: Node, operands: tuple[Node, ...]) -> Node:
        n = with_operands(old, operands)
        if n.op == "constant":
            return self._constant(n)
        if old in self.kept:
            return n
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
        if n.op not in _UNSTORED and any(map(self._is_swollen, n.operands)):
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

    def _is_swollen(self, o: Node) -> bool:
        """Whether a known operand repeats the few elements that are stored of it more often than one would compute with."""
        return _bytes(o.type) > max(LARGEST, GROWTH * self._stored_bytes(o))

    def _stored_bytes(self, n: Node) -> int:
        """The bytes that a known operand takes in the program."""
        if n.op in _UNSTORED:
            return sum(self._stored_bytes(o) for o in n.operands)
        return _bytes(n.type)


def _dequantised(func: Func) -> frozenset[Node]:
    """What is computed of constants, for the second operands of products of few rows alone, that is large and twice as large as
    the constants."""
    readers: dict[Node, list[Node]] = {}
    for n in func.nodes():
        for o in n.operands:
            readers.setdefault(o, []).append(n)
    kept: set[Node] = set(func.results)
    found: set[Node] = set()
    for n in func.nodes():
        if n.op == "dot" and n.type.dtype.is_float and n.operands[0] is not n.operands[1] and _has_few_rows(n):
            inside = _computed(n.operands[1])
            users = {r for x in inside for r in readers[x]} - inside - {n}
            found |= inside if not users and not inside & kept else set()
    return frozenset(found)


def _has_few_rows(n: Node) -> bool:
    rows = [n.operands[0].type.shape[a] for a in free_axes(n.operands[0].type.rank, n["batch"][0], n["contract"][0])]
    return all(isinstance(d, int) for d in rows) and math.prod(map(_number, rows)) <= FEW_ROWS


def _computed(root: Node) -> set[Node]:
    """The operations under `root` where it is dequantisation: of constants alone, large, and larger than these."""
    inside: set[Node] = set()
    constants: set[Node] = set()
    stack = [root]
    while stack:
        n = stack.pop()
        if n.op == "constant":
            constants.add(n)
        elif OPS[n.op].kind not in (POINTWISE, MOVEMENT) or not _is_sized(n):
            return set()
        elif n not in inside:
            inside.add(n)
            stack.extend(n.operands)
    size = _bytes(root.type)
    return inside if size >= LARGE_WEIGHTS and 2 * sum(_bytes(c.type) for c in constants) <= size else set()


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
    return not own_dims(n) and (n.op in _VIEWS or _bytes(n.type) <= (SMALL if n.op in _SLOW else LARGEST))
