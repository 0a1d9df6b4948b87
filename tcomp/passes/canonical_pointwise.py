"""Rules of `canonicalise` for pointwise operations and casts that hold bit for bit, signed zeros and NaN included."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tcomp.ir.dtype import DType, to_numpy
from tcomp.ir.node import Node
from tcomp.ir.ops import MONOIDS, OPS, constant
from tcomp.passes.normal import Normaliser, Rule

Value = Callable[[DType], "float | int | None"]


def _number(floats: float | None, others: int | None) -> Value:
    """One value for floats, one for integers and bool; None where there is none."""
    return lambda t: floats if t.is_float else others


def _ones(t: DType) -> float | int | None:
    return None if t.is_float else MONOIDS["and"].identity(t)


_NEITHER: Value = _number(None, None)
# operation: (value on the right that changes nothing, whether it may stand on the left too, value that decides the result)
_CONSTANTS: dict[str, tuple[Value, bool, Value]] = {
    "add": (_number(-0.0, 0), True, _NEITHER),
    "sub": (_number(0.0, 0), False, _NEITHER),
    "mul": (_number(1, 1), True, _number(None, 0)),
    "div": (_number(1, None), False, _NEITHER),
    "quotient": (_number(None, 1), False, _NEITHER),
    "floordiv": (_number(None, 1), False, _NEITHER),
    "pow": (_number(1, 1), False, _NEITHER),
    "shl": (_number(None, 0), False, _NEITHER),
    "shr": (_number(None, 0), False, _NEITHER),
    "and": (_ones, True, _number(None, 0)),
    "or": (_number(None, 0), True, _ones),
    "xor": (_number(None, 0), True, _NEITHER),
    "max": (MONOIDS["max"].identity, True, lambda t: None if t.is_float else MONOIDS["min"].identity(t)),
    "min": (MONOIDS["min"].identity, True, lambda t: None if t.is_float else MONOIDS["max"].identity(t)),
}
# x op x: the operand itself, or a constant, which may hold for floats too
_SAME_OPERAND = frozenset(["max", "min", "and", "or"])
_SAME_CONSTANT: dict[str, tuple[int, bool]] = {
    "sub": (0, False),
    "xor": (0, False),
    "eq": (1, False),
    "le": (1, False),
    "ge": (1, False),
    "ne": (0, False),
    "lt": (0, True),
    "gt": (0, True),
}


def scalar_value(n: Node) -> np.ndarray | None:
    """The one value that all elements of `n` have, as an array of rank 0, where it is known."""
    while n.op in ("broadcast", "reshape") and n.operands[0].type.rank == 0:
        n = n.operands[0]
    return n["value"].array if n.op == "constant" and n.type.rank == 0 else None


def _is(n: Node, value: float | int | None) -> bool:
    """Whether all of `n` is `value`, with its sign."""
    if value is None or (found := scalar_value(n)) is None:
        return False
    want = np.asarray(value).astype(found.dtype)
    return found.tobytes() == want.tobytes()


def _everywhere(value: float | int, like: Node, m: Normaliser) -> Node:
    return m.full(constant(np.asarray(value).astype(to_numpy(like.type.dtype))), like.type.shape)


def _neutral(n: Node, m: Normaliser) -> Node | None:
    x, y = n.operands
    neutral, both, decisive = _CONSTANTS[n.op]
    t = x.type.dtype
    if _is(y, neutral(t)):
        return x
    if both and _is(x, neutral(t)):
        return y
    if _is(y, decisive(t)):
        return y
    return x if both and _is(x, decisive(t)) else None


def _same(n: Node, m: Normaliser) -> Node | None:
    x, y = n.operands
    if x is not y:
        return None
    if n.op in _SAME_OPERAND:
        return x
    value, floats = _SAME_CONSTANT[n.op]
    return _everywhere(value, n, m) if floats or not x.type.dtype.is_float else None


def _involution(n: Node, m: Normaliser) -> Node | None:
    x = n.operands[0]
    return x.operands[0] if x.op == n.op else None


def _idempotent(n: Node, m: Normaliser) -> Node | None:
    return n.operands[0] if n.operands[0].op == n.op else None


def _where(n: Node, m: Normaliser) -> Node | None:
    condition, x, y = n.operands
    known = scalar_value(condition)
    if known is not None:
        return x if known else y
    if x is y:
        return x
    return m.like(n, (condition.operands[0], y, x)) if condition.op == "not" else None


# --- casts -----------------------------------------------------------------------------------------

_MANTISSA = {"bf16": (8, 127), "f16": (11, 15), "f32": (24, 127), "f64": (53, 1023)}  # digits, largest exponent


def holds(wide: DType, narrow: DType) -> bool:
    """Whether every value of `narrow` is one of `wide`."""
    if wide == narrow or narrow.kind == "bool":
        return True
    if wide.kind == "bool" or (narrow.is_float and not wide.is_float):
        return False
    if narrow.is_float:
        return all(a >= b for a, b in zip(_MANTISSA[wide.name], _MANTISSA[narrow.name]))
    digits = narrow.bits - (narrow.kind == "int")
    if wide.is_float:
        return _MANTISSA[wide.name][0] >= digits
    return wide.bits - (wide.kind == "int") >= digits and (wide.kind == "int" or narrow.kind == "uint")


def _cast(n: Node, m: Normaliser) -> Node | None:
    x = n.operands[0]
    if x.type.dtype == n.type.dtype:
        return x
    if x.op != "cast":
        return None
    first, middle, last = x.operands[0].type.dtype, x.type.dtype, n.type.dtype
    wraps = all(t.is_integer for t in (first, middle, last)) and last.bits <= middle.bits
    return m.cast(x.operands[0], last) if wraps or holds(middle, first) else None


def _bitcast(n: Node, m: Normaliser) -> Node | None:
    x = n.operands[0]
    if x.type.dtype == n.type.dtype:
        return x
    return m.make("bitcast", x.operands[0], dtype=n.type.dtype) if x.op == "bitcast" else None


def _table() -> dict[str, tuple[Rule, ...]]:
    rules: dict[str, tuple[Rule, ...]] = {"neg": (_involution,), "not": (_involution,), "where": (_where,)}
    rules |= {"cast": (_cast,), "bitcast": (_bitcast,)}
    for name in _CONSTANTS:
        rules[name] = (_neutral,)
    for name in (*_SAME_OPERAND, *_SAME_CONSTANT):
        rules[name] = (*rules.get(name, ()), _same)
    for row in OPS.values():
        if row.arity == 1 and "idempotent" in row.facts:
            rules[row.name] = (_idempotent,)
    return rules


POINTWISE_RULES: dict[str, tuple[Rule, ...]] = _table()
