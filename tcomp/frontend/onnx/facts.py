"""What is known of values while importing: constants are folded without loss, shapes are followed symbolically.

`Facts.settle` takes what an operator's row has built and returns its canonical form: subgraphs of constants become constants (by
the op table's references, with limits on size and work), small integer tensors that follow from shapes become `dimension`s.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tcomp.errors import Error
from tcomp.frontend.onnx import shapes
from tcomp.frontend.onnx.protos import MAX_BYTES
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.graph import cast, reshape
from tcomp.ir.node import Dim, Node, walk, with_operands
from tcomp.ir.ops import OPS, apply, constant
from tcomp.ir.ops.table import CONTROL, MOVEMENT, POINTWISE
from tcomp.ir.region import own_dims
from tcomp.ir.types import TensorType

FOLD_BYTES = 64 << 20  # of one folded constant
FOLD_WORK = 1 << 26  # elements read, and products of a folded dot or conv
MAX_RANK = 64  # NumPy's
MAX_TERMS = 2000  # of the tree that an index expression is
SLOW = frozenset(("erf", "scatter_elements", "scatter_nd"))  # their references go element by element
SLOW_SIZE = 1 << 16
SPREAD = frozenset(("broadcast", "iota"))  # kept as they are: a constant of their size would be a waste
SPREAD_SIZE = 64
DATA, STEP = "data__", "step__"  # how names of own symbols begin: sizes that are data, counters of loops; no dimension's does
_VIEWS = frozenset(("broadcast", "transpose", "reshape", "slice"))


class Frozen(Exception):
    """A parameter with a default whose value is needed while importing: it has to be a constant."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Facts:
    """The memo of one import."""

    def __init__(self, overridable: frozenset[str] = frozenset()) -> None:
        self._settled: dict[Node, Node] = {}
        self._arrays: dict[Node, Any] = {}  # values of nodes without inputs, broadcast views included
        self._dims: shapes.Memo = {}
        self._terms: dict[Node, int] = {}
        self._dequantised: set[Node] = set()
        self._inside: set[Node] = set()
        self._overridable = overridable
        self._counters = self._symbols = 0
        self.sizes: dict[Node, Node] = {}  # symbols that data gives, by their values, in the order in which these are known
        self.required: set[Node] = set()  # those of them that are bound though no size is made of them: what must hold
        self.visit: Callable[[Node], None] | None = None  # sees every new node: notes where it comes from
        self.turns: list[Dim] = []  # counters of the loops around

    def array(self, x: Node) -> np.ndarray | None:
        """The elements of `x` where no input takes part."""
        return self._arrays.get(self.settle(x))

    def dims(self, x: Node) -> np.ndarray | None:
        """The elements of a small integer tensor as Dims (an object array)."""
        found = shapes.evaluate(self.settle(x), self._dims)
        if found is None or any(isinstance(v, shapes.Ratio) for v in found.reshape(-1)):
            return None
        return found

    def must_be_known(self, x: Node) -> None:
        """Raise `Frozen` where `x` would be known if a default were a constant."""
        name = self._default_below(x) if self._overridable else ""
        if name:
            raise Frozen(name)

    def counter(self, extent: Dim | None) -> Node:
        """The counter of a new loop of so many steps (None: not known)."""
        last = None if extent is None else index.bounds(extent)[1]
        self._counters += 1
        return index.symbol(f"{STEP}{self._counters - 1}", 0, None if last is None else max(0, last - 1))

    def symbol(self, least: int = 0, most: int | None = None) -> Node:
        """A new symbol for a size that is data."""
        self._symbols += 1
        return index.symbol(f"{DATA}{self._symbols - 1}", least, most)

    def forget(self, count: int) -> list[tuple[Node, Node]]:
        """Take the sizes that were found after the first `count`, which belong to the body that was imported meanwhile."""
        found = list(self.sizes.items())[count:]
        for value, _ in found:
            del self.sizes[value]
        return found

    def data_size(self, x: Node, most: int | None = None, least: int = 0) -> Dim:
        """What the one element of `x` is as a number from `least` to `most`: a symbol where it is data, one for each value."""
        value = self.settle(reshape(cast(x, dt.i64), ()))
        found = self.dims(value)
        if found is not None:
            return _within(found.item(), least, most)
        if most == least:
            self.require(apply("eq", value, constant(np.asarray(least))))
            return least
        symbol = self._bound(value, least, most)
        if symbol["lo"] < least:
            self.require(apply("ge", value, constant(np.asarray(least))))
        if most is not None and (symbol["hi"] is None or symbol["hi"] > most):
            self.require(apply("le", value, constant(np.asarray(most))))
        return symbol

    def require(self, holds: Node) -> None:
        """The call fails with TC0605 unless the scalar `holds`: a number from 1 to 1, which is bound in any case."""
        value = self.settle(cast(reshape(holds, ()), dt.i64))
        found = self.dims(value)
        if found is not None and isinstance(_within(found.item(), 1, 1), int):
            return
        symbol = self._bound(value, 1, 1)
        if symbol["lo"] < 1:
            self.require(apply("ge", value, constant(np.asarray(1))))
            return
        self.required.add(symbol)

    def _bound(self, value: Node, least: int, most: int | None) -> Node:
        """The symbol that `value` is bound to."""
        if value not in self.sizes:
            self.sizes[value] = self.symbol(least, most)
            if value.op == "parameter" and self.visit is not None:
                self.visit(value)  # an error of the call names the node that asks
        return self.sizes[value]

    def seen(self) -> frozenset[Node]:
        """The nodes of the program so far, without those that are only inside of control flow that is done: these may not run."""
        return frozenset(self._settled.keys() - self._inside)

    def hide(self, inside: Iterable[Node]) -> None:
        """Note what is inside of control flow."""
        self._inside.update(inside)

    def _default_below(self, x: Node) -> str:
        """The overridable parameter that `x` is, through movement and pointwise operations; else ''."""
        stack, seen = [x], set()
        while stack:
            n = stack.pop()
            if n.op == "parameter":
                if n["name"] in self._overridable:
                    return str(n["name"])
                return ""
            if n not in seen and _size(n) <= shapes.LIMIT:
                seen.add(n)
                stack.extend(n.operands)
        return ""

    def settle(self, root: Node) -> Node:
        """The canonical form of `root`."""
        stack = [root]
        while stack:
            n = stack[-1]
            if n in self._settled:
                stack.pop()
                continue
            missing = [o for o in n.operands if o not in self._settled]
            if missing:
                stack.extend(missing)
                continue
            kept = self._canonical(with_operands(n, tuple(self._settled[o] for o in n.operands)))
            self._settled[n] = self._settled[kept] = kept
            if self.visit is not None:
                self.visit(kept)
        return self._settled[root]

    def _canonical(self, n: Node) -> Node:
        if n.op == "constant":
            self._arrays[n] = n["value"].array
            return n
        _check_size(n)
        self._check_dims(d for d in (n.type.shape if isinstance(n.type, TensorType) else ()) if isinstance(d, Node))
        folded = self._fold(n)
        if folded is not None:
            return folded
        followed = n.op != "parameter" and n not in self._dequantised and _small_integer(n)
        dims = shapes.evaluate(n, self._dims) if followed else None
        if dims is not None:
            self._check_dims(v for v in dims.reshape(-1) if isinstance(v, Node))
        found = None if dims is None else shapes.to_node(dims, n.type)
        if found is None:
            return n
        self._dims[found] = dims
        if found.op == "constant":
            self._arrays[found] = found["value"].array
        return found

    def _check_dims(self, dims: Iterable[Node]) -> None:
        """TC0202 where a size grows beyond reason: index expressions are shared, but written out (and ordered) as trees."""
        for d in dims:
            for n in walk([d]) if d not in self._terms else ():
                self._terms[n] = 1 + sum(self._terms[o] for o in n.operands)
            if self._terms[d] > MAX_TERMS:
                raise Error("TC0202", f"a size of {self._terms[d]} terms is not supported", hint="fix dimensions of the model")

    def _fold(self, n: Node) -> Node | None:
        """`n` as a constant, as a broadcast of one, or None (its value may be remembered all the same)."""
        if n.op in ("parameter", "dimension") or OPS[n.op].kind == CONTROL:
            return None
        if own_dims(n) or any(o not in self._arrays for o in n.operands):
            return None
        operands = [self._arrays[o] for o in n.operands]
        if operands and n.op != "broadcast" and _uniform(n, operands):
            return self._fold_uniform(n, operands)
        if not _affordable(n, operands):
            return None
        with np.errstate(all="ignore"):
            value = OPS[n.op].reference(*operands, **dict(n.attrs))
        return self._keep(n, value)

    def _fold_uniform(self, n: Node, operands: list[np.ndarray]) -> Node:
        """An operation on tensors that are one scalar each, repeated."""
        scalars = [o.reshape(-1)[:1].reshape(()) if o.size else np.zeros((), o.dtype) for o in (_first(o) for o in operands)]
        value = scalars[0]
        if n.op not in _VIEWS:
            with np.errstate(all="ignore"):
                value = np.asarray(OPS[n.op].reference(*scalars, **dict(n.attrs)))
        scalar = constant(value)
        self._settled[scalar] = scalar
        self._arrays[scalar] = scalar["value"].array
        wide = apply("broadcast", scalar, shape=n.type.shape, axes=())
        self._arrays[wide] = np.broadcast_to(value, n.type.shape)
        return wide

    def _stays_small(self, n: Node, value: np.ndarray) -> bool:
        """Whether `n` is part of the dequantisation of bytes, which passes want to see: only its value is remembered."""
        if value.size <= SPREAD_SIZE or OPS[n.op].kind not in (POINTWISE, MOVEMENT):
            return False
        widened = n.op == "cast" and n.operands[0].type.dtype in (dt.i8, dt.u8) and n.type.dtype.bits >= 32
        return widened or any(o in self._dequantised for o in n.operands)

    def _keep(self, n: Node, value: Any) -> Node | None:
        if isinstance(value, tuple):
            self._arrays[n] = value
            return None
        value = np.asarray(value)
        if self._stays_small(n, value):
            self._dequantised.add(n)
            self._arrays[n] = value
            return None
        if (n.op in SPREAD and value.size > SPREAD_SIZE) or value.nbytes > FOLD_BYTES:
            self._arrays[n] = value
            return None
        value = np.ascontiguousarray(value).reshape(value.shape)
        if value.flags.writeable and value.base is None:
            value.setflags(write=False)
        found = constant(value)
        self._arrays[found] = found["value"].array
        return found


def _within(value: Dim, least: int, most: int | None) -> Dim:
    """A number that is known while importing. TC0203 where it is out of its bounds for certain."""
    low, high = index.bounds(value)
    if (high is not None and high < least) or (most is not None and low is not None and low > most):
        raise Error("TC0203", f"the value {index.show(value)}", f"{least} to {most}" if most is not None else f"{least} or more")
    return value


def _size(n: Node) -> float:
    """The number of elements, symbolic dimensions as 1."""
    if not isinstance(n.type, TensorType):
        return 0
    return math.prod(d for d in n.type.shape if isinstance(d, int))


def _small_integer(n: Node) -> bool:
    return isinstance(n.type, TensorType) and not n.type.dtype.is_float and _size(n) <= shapes.LIMIT


def _first(x: np.ndarray) -> np.ndarray:
    return x[(slice(0, 1),) * x.ndim]


def _uniform(n: Node, operands: list[Any]) -> bool:
    """Whether all operands are one scalar repeated, in an operation that then gives one scalar repeated."""
    if n.op not in _VIEWS and OPS[n.op].kind != POINTWISE:
        return False
    return any(o.size > 1 for o in operands) and all(
        o.size and all(s == 0 or d == 1 for s, d in zip(o.strides, o.shape)) for o in operands
    )


def _affordable(n: Node, operands: list[Any]) -> bool:
    if n.op == "broadcast":
        return True  # a view
    if n.op == "iota":  # a view of a line
        return bool(_size(n) == 0 or n.type.shape[n["axis"]] * dt.i64.bytes <= FOLD_BYTES)
    if any(isinstance(o, np.ndarray) and o.size > FOLD_WORK for o in operands):
        return False
    count = _size(n)
    if n.op in ("dot", "conv"):
        return bool(count * max(1, operands[1].size) <= FOLD_WORK)
    if n.op in SLOW and count > SLOW_SIZE:
        return False
    if isinstance(n.type, TensorType) and n.op not in ("transpose", "item", "window"):
        return bool(count * n.type.dtype.bytes <= FOLD_BYTES)
    return all(not isinstance(o, np.ndarray) or o.nbytes <= FOLD_BYTES for o in operands)


def _check_size(n: Node) -> None:
    """TC0203 for a result that no machine can hold: the sizes in the file are damaged."""
    if not isinstance(n.type, TensorType):
        return
    if n.type.rank > MAX_RANK:
        raise Error("TC0203", f"a result of {n.type.rank} axes", f"at most {MAX_RANK}")
    if _size(n) * dt.accumulator(n.type.dtype).bytes > MAX_BYTES:
        raise Error("TC0203", f"a result of type {n.type}", "a size that fits into memory")
