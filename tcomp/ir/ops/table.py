"""The op table: every operation is declared once.

A row holds the name, arity, attributes, type inference, NumPy reference, algebraic facts and a documentation line. The
interpreter, the printer and parser, `tcomp.numpy`, the fuzzer and the docs page are derived from it. GRAPH operations take
operands of exactly matching types: frontends write broadcasts and casts out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tcomp.errors import Error
from tcomp.ir import index
from tcomp.ir.dtype import DType
from tcomp.ir.node import Dim, Node, node
from tcomp.ir.types import TensorType, TupleType

Type = TensorType | TupleType
Infer = Callable[..., Type]

POINTWISE, MOVEMENT, REDUCTION, CONTRACTION, INDEXING, CONTROL, SOURCE = (
    "pointwise",
    "movement",
    "reduction",
    "contraction",
    "indexing",
    "control",
    "source",
)


@dataclass(frozen=True, slots=True)
class OpDef:
    """One row. arity None: any number of operands. `infer(*operand types, **attrs)` gives the result type or raises
    `Error`; `reference(*arrays, **attrs)` gives the NumPy meaning, dimensions in attrs already evaluated."""

    name: str
    kind: str
    arity: int | None
    attrs: tuple[str, ...]
    infer: Infer
    reference: Callable[..., Any]
    doc: str
    facts: frozenset[str] = frozenset()  # hold for every dtype; `test`: gives a bool; `costly`: takes many instructions
    integer_facts: frozenset[str] = frozenset()  # hold for integers and booleans only
    derivative: tuple[str, ...] = ()  # d/d operand k, as text over x, y, z and the result r


OPS: dict[str, OpDef] = {}


def register(row: OpDef) -> OpDef:
    """Add a row; names are unique."""
    assert row.name not in OPS, row.name
    OPS[row.name] = row
    return row


def having(fact: str) -> frozenset[str]:
    """The names of the operations of which a fact holds."""
    return frozenset(row.name for row in OPS.values() if fact in row.facts)


def apply(name: str, *operands: Node, **attrs: Any) -> Node:
    """The node of operation `name`, its type inferred. Raises `Error` (TC0102 to TC0104) where the operands do not fit."""
    row = OPS[name]
    if row.arity is not None and len(operands) != row.arity:
        raise Error("TC0105", f"`{name}` of {len(operands)} operands", f"{row.arity}")
    result = row.infer(*(o.type for o in operands), **attrs)
    return node(name, operands, tuple((k, attrs[k]) for k in row.attrs if k in attrs), result)


def show_shape(shape: tuple[Dim, ...]) -> str:
    """A shape as users read it: `[2, n, 64]`."""
    return f"[{', '.join(map(index.show, shape))}]"


def require_same_shape(name: str, types: tuple[TensorType, ...]) -> None:
    """TC0102 unless all shapes are equal."""
    if any(t.shape != types[0].shape for t in types):
        raise Error("TC0102", f"`{name}` of {' and '.join(show_shape(t.shape) for t in types)}", "equal shapes")


def require_same_dtype(name: str, types: tuple[TensorType, ...]) -> None:
    """TC0103 unless all dtypes are equal."""
    if any(t.dtype != types[0].dtype for t in types):
        raise Error("TC0103", f"`{name}` of {' and '.join(str(t.dtype) for t in types)}", "equal dtypes")


def require_dtype(name: str, t: TensorType, allowed: Callable[[DType], bool], expected: str) -> None:
    """TC0103 unless `allowed(dtype)`."""
    if not allowed(t.dtype):
        raise Error("TC0103", f"`{name}` of {t.dtype}", expected)


def require_computed(name: str, types: Sequence[TensorType]) -> None:
    """TC0103 for a storage dtype: its elements are only moved and converted."""
    for t in types:
        require_dtype(name, t, lambda d: not d.is_storage, "a dtype that is computed with: convert it first")


def require_axis(name: str, axis: int, rank: int) -> None:
    """TC0104 unless 0 <= axis < rank."""
    if not 0 <= axis < rank:
        raise Error("TC0104", f"`{name}` along axis {axis} of rank {rank}", f"an axis from 0 to {rank - 1}")
