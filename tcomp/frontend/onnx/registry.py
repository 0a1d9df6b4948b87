"""The table of ONNX operators, and what a row is given.

A row is a function `f(c, *operands) -> Node | tuple[Node | None, ...]`, registered by `@operator("Name", since=13)`: it serves
the opsets from `since` up to the next row of the same name. Operands are GRAPH nodes, None where an optional one is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any, TypeVar

import numpy as np

from tcomp.errors import Error
from tcomp.frontend.onnx import protos
from tcomp.frontend.onnx.containers import Value
from tcomp.frontend.onnx.facts import Facts
from tcomp.frontend.onnx.protos import text
from tcomp.ir import dtype as dt
from tcomp.ir.dtype import DType
from tcomp.ir.graph import cast, reshape
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import apply, constant

Handler = Callable[..., Any]
F = TypeVar("F", bound=Handler)

ML = "ai.onnx.ml"
MICROSOFT = "com.microsoft"
MOST_SIZES = 64  # numbers of one operand that may be data
_FAR, _NONE = constant(np.int64(protos.MAX_BYTES)), constant(np.int64(-1))
_ROWS: dict[tuple[str, str], list[tuple[int, Handler]]] = {}


def operator(*names: str, since: int = 1, domain: str = "") -> Callable[[F], F]:
    """Register a function as the meaning of the operators `names` of a domain from its opset `since` on."""

    def register(f: F) -> F:
        for name in names:
            _ROWS.setdefault((domain, name), []).append((since, f))
        return f

    return register


def rows(name: str, domain: str = "") -> list[tuple[int, Handler]]:
    """The rows of an operator, each with the opset from which on it serves, oldest first."""
    return sorted(_ROWS.get((domain, name), []), key=lambda row: row[0])


def names(domain: str = "") -> list[str]:
    """The operators of a domain that have rows."""
    return sorted(name for d, name in _ROWS if d == domain)


def find(name: str, opset: int, domain: str = "") -> Handler | None:
    """The row that serves operator `name` at this opset."""
    serving = [f for since, f in rows(name, domain) if since <= opset]
    return serving[-1] if serving else None


def check_operands(name: str, f: Handler, inputs: Sequence[Any]) -> None:
    """TC0203 where operands do not fit the row: its parameters without a default are needed. For operators without a schema."""
    params = list(signature(f).parameters.values())[1:]
    open_ended = any(p.kind is p.VAR_POSITIONAL for p in params)
    fixed = [p for p in params if p.kind is not p.VAR_POSITIONAL]
    needed = sum(p.default is p.empty for p in fixed)
    if len(inputs) < needed or (len(inputs) > len(fixed) and not open_ended):
        most = "or more" if open_ended else f"to {len(fixed)}"
        raise Error("TC0203", f"{name} of {len(inputs)} operands", f"{needed} {most}")
    required = [p.name for p in fixed if p.default is p.empty and "None" not in str(p.annotation)]
    if any(x is None and p.name in required for x, p in zip(inputs, fixed)):
        raise Error("TC0203", f"{name} without an operand that it needs", f"{required}")


def element(x: Node, k: int) -> Node:
    """Element k of a vector of known length as a scalar: of the part that has it where the vector is a `concat`."""
    while x.op == "concat" and all(isinstance(p.type.shape[0], int) for p in x.operands):
        for part in x.operands:
            if k < part.type.shape[0]:
                x = part
                break
            k -= part.type.shape[0]
    return reshape(apply("slice", x, start=(k,), shape=(1,), step=(1,)), ())


@dataclass(slots=True)
class Context:
    """What a row knows of its node: attributes, opset, place, which results are used, and what is known of values.

    branch: imports the subgraph of an attribute on given values (control flow). array: decodes a TensorProto.
    """

    op: str
    opset: int
    place: str
    attributes: dict[str, Any]
    wanted: tuple[bool, ...]
    facts: Facts
    array: Callable[[Any], np.ndarray]
    branch: Callable[[Any, Sequence[Value]], list[Value]]

    def unsupported(self, reason: str, hint: str = "") -> Error:
        return Error("TC0202", f"{self.op} is not supported: {reason}", place=self.place, hint=hint)

    def broken(self, found: str, expected: str = "") -> Error:
        return Error("TC0203", f"{self.op}: {found}", expected, self.place)

    def has(self, name: str) -> bool:
        return name in self.attributes

    def _get(self, name: str, kind: int, default: Any) -> Any:
        """The AttributeProto `name`, or None where it is left out and there is a default."""
        a = self.attributes.get(name)
        if a is None and default is ...:
            raise self.broken(f"attribute `{name}` is missing")
        if a is not None and a.type not in (kind, 0):
            raise self.broken(f"attribute `{name}` has type {a.type}", f"type {kind} of AttributeProto")
        return a

    def integer(self, name: str, default: Any = ...) -> Any:
        a = self._get(name, protos.INT, default)
        return default if a is None else int(a.i)

    def real(self, name: str, default: Any = ...) -> Any:
        a = self._get(name, protos.FLOAT, default)
        return default if a is None else float(a.f)

    def integers(self, name: str, default: Any = ...) -> Any:
        a = self._get(name, protos.INTS, default)
        return default if a is None else tuple(int(i) for i in a.ints)

    def reals(self, name: str, default: Any = ...) -> Any:
        a = self._get(name, protos.FLOATS, default)
        return default if a is None else tuple(float(i) for i in a.floats)

    def string(self, name: str, default: Any = ...) -> Any:
        a = self._get(name, protos.STRING, default)
        return default if a is None else text(a.s)

    def strings(self, name: str, default: Any = ...) -> Any:
        a = self._get(name, protos.STRINGS, default)
        return default if a is None else tuple(text(s) for s in a.strings)

    def tensor(self, name: str, default: Any = ...) -> Any:
        a = self._get(name, protos.TENSOR, default)
        return default if a is None else self.array(a.t)

    def graph(self, name: str) -> Any:
        return self._get(name, protos.GRAPH, ...).g

    def dtype(self, name: str, default: DType | None = None) -> DType:
        if default is not None and name not in self.attributes:
            return default
        try:
            return protos.element_type(self.integer(name), f"{self.op}: `{name}`")
        except Error as fault:
            raise Error(fault.code, fault.found, place=self.place) from fault

    def constant(self, x: Node | None) -> np.ndarray | None:
        """The elements of `x` where they are known while importing."""
        return None if x is None else self.facts.array(x)

    def count(self, x: Node) -> int:
        """How many elements a list of numbers has, which must be known."""
        dims = [d for d in x.type.shape if isinstance(d, int)]
        if len(dims) < x.type.rank:
            raise self.unsupported(f"a list of numbers whose length is not known: {x.type}")
        return math.prod(dims)

    def known(self, x: Node) -> tuple[int, ...] | None:
        """The elements of a small integer tensor as numbers; None where they are data, or may be."""
        found = self.facts.array(x)
        if found is None:
            self.facts.must_be_known(x)
            return None
        return tuple(int(v) for v in found.reshape(-1))

    def require_constant(self, x: Node, what: str) -> np.ndarray:
        found = self.facts.array(x)
        if found is None:
            self.facts.must_be_known(x)
            raise self.unsupported(f"{what} depends on the inputs", "make it a constant of the model")
        return found

    def dims(self, x: Node, what: str) -> tuple[Dim, ...]:
        """The elements of a small integer tensor of rank 0 or 1 as dimensions."""
        found = self.facts.dims(x)
        if found is None:
            self.facts.must_be_known(x)
            raise self.unsupported(f"{what} depends on the data of the inputs", "only sizes computed from shapes are known")
        return tuple(found.reshape(-1))

    def sizes(
        self, x: Node, what: str, most: int | Sequence[int | None] | None = None, least: int | Sequence[int] = 0
    ) -> tuple[Dim, ...]:
        """`dims` of numbers from `least` (to `most`, each its own or all the same) that may also be data: then symbols, which get
        their values while the program runs."""
        found, count = self.facts.dims(x), self.count(x)
        if found is None and count > MOST_SIZES:
            raise self.unsupported(f"a list of {count} sizes that depend on the data of the inputs", f"up to {MOST_SIZES} may")
        highs = (most,) * count if most is None or isinstance(most, int) else tuple(most)
        lows = (least,) * count if isinstance(least, int) else tuple(least)
        flat = self.facts.settle(reshape(x, (count,)))
        return tuple(self.size(element(flat, k), what, high, low) for k, (low, high) in enumerate(zip(lows, highs, strict=True)))

    def size(self, x: Node, what: str, most: int | None = None, least: int = 0) -> Dim:
        """The one element of `x`, a number from `least` (to `most`), as a dimension: a symbol where it is data. what: it is."""
        self._may_be_data(x)
        if most is None and self.facts.dims(x) is None:  # a bound of the symbol would be a size to reckon with
            wide = cast(reshape(x, ()), dt.i64)
            x = apply("where", apply("le", wide, _FAR), wide, _NONE)
        try:
            return self.facts.data_size(x, most, least)
        except Error as fault:
            raise fault if fault.code != "TC0203" else self.broken(f"{what}: {fault.found}", fault.expected) from None

    def require(self, holds: Node, what: str) -> None:
        """The call fails (TC0605) unless the boolean scalar `holds`. TC0203, that it is not `what`, where this is known."""
        known = self.facts.dims(cast(holds, dt.i64))
        if known is not None and known.item() == 0:
            raise self.broken(f"not {what}", what)
        self._may_be_data(holds)
        self.facts.require(holds)

    def _may_be_data(self, x: Node) -> None:
        if self.facts.dims(cast(x, dt.i64)) is None:
            self.facts.must_be_known(x)

    def axis(self, axis: int, rank: int) -> int:
        """`axis` counted from the front; TC0203 where it is out of range."""
        if not -rank <= axis < rank:
            raise self.broken(f"axis {axis} of rank {rank}", f"{-rank} to {rank - 1}")
        return axis % rank

    def axes(self, axes: Sequence[int], rank: int) -> tuple[int, ...]:
        """Distinct axes counted from the front, rising."""
        found = sorted(self.axis(int(a), rank) for a in axes)
        if len(set(found)) != len(found):
            raise self.broken(f"axes {list(axes)} of rank {rank}", "each axis once")
        return tuple(found)

    def bounded(self, shape: Sequence[Dim], what: str = "a result") -> tuple[Dim, ...]:
        """`shape`, refused where it names more elements than any machine has or a negative size."""
        known = [d for d in shape if isinstance(d, int)]
        if any(d < 0 for d in known) or math.prod(max(d, 1) for d in known) > protos.MAX_BYTES:
            raise self.broken(f"{what} of shape {list(map(str, shape))}", "a shape that fits into memory")
        return tuple(shape)
