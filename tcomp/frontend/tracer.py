"""`Traced`: an array whose value is not known yet, wrapped around a GRAPH node; and what turns operands into nodes.

A `Trace` collects the places of the nodes made while it is active in its thread; nodes themselves belong to no trace, traced
arrays to the one in which they were made. A traced array may be *weak*: it came from a Python scalar, and like one it takes the
dtype of what it meets (NEP 50).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from tcomp.errors import Error
from tcomp.frontend.dimension import Dimension, shown
from tcomp.frontend.operators import Operators
from tcomp.frontend.places import fault, here
from tcomp.frontend.promotion import Kind, element_type, kind_of
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.dtype import DType, to_numpy
from tcomp.ir.graph import broadcast_trailing, cast, full
from tcomp.ir.loc import Locs
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import apply, constant


@dataclass(slots=True)
class Trace:
    """One run of the user's function on traced arrays."""

    locs: Locs = field(default_factory=Locs)

    def place(self, n: Node) -> None:
        """Remember the user's running line as the place of `n` and of those operands that have none yet."""
        loc = here()
        if loc is None:
            return
        self.locs.add(n, loc)
        pending = list(n.operands)
        while pending:
            o = pending.pop()
            if o not in self.locs.table:
                self.locs.add(o, loc)
                pending.extend(o.operands)


class _Active(threading.local):
    trace: Trace | None = None


_active = _Active()


def active() -> Trace | None:
    """The trace that this thread is in."""
    return _active.trace


@contextmanager
def recording(trace: Trace) -> Iterator[None]:
    """Make `trace` this thread's active one."""
    before, _active.trace = _active.trace, trace
    try:
        yield
    finally:
        _active.trace = before


class Traced(Operators):
    """An array of the program being traced. Behaves as a NumPy array whose elements cannot be looked at or assigned."""

    __slots__ = ("node", "trace", "weak")

    def __init__(self, node: Node, weak: bool = False) -> None:
        self.node, self.weak, self.trace = node, weak, _active.trace
        if _active.trace is not None:
            _active.trace.place(node)

    @property
    def shape(self) -> tuple[Any, ...]:
        return tuple(map(shown, self.node.type.shape))

    @property
    def dtype(self) -> np.dtype:
        return to_numpy(self.node.type.dtype)

    @property
    def ndim(self) -> int:
        return int(self.node.type.rank)

    @property
    def size(self) -> int | Dimension:
        return shown(index.product(self.node.type.shape))

    @property
    def itemsize(self) -> int:
        return int(self.dtype.itemsize)

    @property
    def nbytes(self) -> Any:
        total: Any = self.size
        return total * self.itemsize

    def __repr__(self) -> str:
        return f"<traced {self.node.type}>"

    def __copy__(self) -> Traced:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Traced:
        return self

    __hash__ = None  # type: ignore[assignment]


def refuse_value(x: Traced, use: str, hint: str = "") -> NoReturn:
    """TC0101: Python asked for a value that is not known while tracing."""
    hint = hint or "compute with tcomp.numpy.where(...), or name the argument it depends on in static_argnames="
    raise fault("TC0101", f"{use} the traced array {x.node.type}", "a value that is known while tracing", hint)


@dataclass(frozen=True, slots=True)
class Operand:
    """An argument of a function: a node, or a Python scalar that has no dtype of its own."""

    value: Node | bool | int | float
    kind: Kind

    @property
    def shape(self) -> tuple[Dim, ...]:
        return self.value.type.shape if isinstance(self.value, Node) else ()

    def as_node(self, dtype: DType, shape: tuple[Dim, ...] | None = None) -> Node:
        """The operand in `dtype`, broadcast to `shape`."""
        shape = self.shape if shape is None else shape
        if not isinstance(self.value, Node):
            require_fits(self.value, dtype)
            return full(self.value, dtype, shape)
        return broadcast_trailing(cast(self.value, dtype), shape)

    @property
    def dtype(self) -> DType:
        """Its own dtype: of a Python scalar, what NumPy makes of it alone."""
        return element_type(self.kind)


def _own(x: Traced) -> Traced:
    """`x`, which must belong to the active trace: parameters of two calls are equal nodes where their names are. TC0105."""
    if _active.trace is not None and x.trace is not _active.trace:
        hint = "do not keep traced arrays in globals or attributes between calls"
        raise Error("TC0105", f"a traced array of another call: {x.node.type}", "arrays of this call", hint=hint)
    return x


def require_fits(value: float, dtype: DType) -> None:
    """TC0103 where a Python integer is out of the range of an integer dtype, as NumPy 2 refuses it."""
    if not dtype.is_integer or not isinstance(value, int):
        return
    info = np.iinfo(to_numpy(dtype))
    if not info.min <= value <= info.max:
        raise Error("TC0103", f"the Python integer {value} with {dtype}", f"{info.min} to {info.max}")


def operand(x: Any) -> Operand:
    """`x` as an operand: traced arrays, arrays, scalars, sizes, nested lists. TC0105 for anything else."""
    if isinstance(x, Traced):
        return Operand(_own(x).node, kind_of(x.node.type.dtype, x.weak))
    if isinstance(x, (bool, np.bool_)):
        return Operand(constant(np.asarray(bool(x))), np.dtype(np.bool_))
    if isinstance(x, (int, float)) and not isinstance(x, np.generic):
        return Operand(x, float if isinstance(x, float) else int)
    if isinstance(x, Dimension):
        return Operand(apply("dimension", dim=x.node, dtype=dt.i64), int)
    if isinstance(x, (list, tuple)) and _holds_traced(x):
        return operand(stack([array(e) for e in x]))
    return _constant(x)


def _holds_traced(x: Any) -> bool:
    if isinstance(x, (list, tuple)):
        return any(map(_holds_traced, x))
    return isinstance(x, (Traced, Dimension))


def stack(elements: list[Traced]) -> Traced:
    """Arrays of one shape along a new first axis, in their common dtype: what NumPy makes of a list."""
    from tcomp.frontend.registry import FUNCTIONS

    result: Traced = FUNCTIONS["stack"](elements)
    return result


def _constant(x: Any) -> Operand:
    """An array that the program closes over."""
    if isinstance(x, (str, bytes, type)) or x is None or x is Ellipsis:
        raise Error("TC0105", f"{x!r} as an array", "an array, a scalar or a nested list of them")
    try:
        value = np.asarray(x)
        dtype = element_type(value.dtype)
    except (TypeError, ValueError) as e:
        raise Error("TC0105", f"a {type(x).__name__} as an array: {e}", "an array, a scalar or a nested list") from None
    native = to_numpy(dtype)
    return Operand(constant(value if value.dtype == native else value.astype(native)), native)


def array(x: Any) -> Traced:
    """`x` as a traced array."""
    if isinstance(x, Traced):
        return _own(x)
    o = operand(x)
    return Traced(o.as_node(o.dtype), isinstance(o.kind, type))


def strong(x: Any) -> Traced:
    """`x` as a traced array with a dtype of its own."""
    x = array(x)
    return Traced(x.node) if x.weak else x
