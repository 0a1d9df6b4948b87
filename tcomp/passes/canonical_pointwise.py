"""Rules of `canonicalise` for pointwise operations and casts that hold bit for bit, signed zeros and NaN included.

What can be said in a pattern is data: `rules/identities.py`.
"""

from __future__ import annotations

import numpy as np

from tcomp.ir.dtype import DType
from tcomp.ir.graph import uniform
from tcomp.ir.node import Node
from tcomp.ir.ops import MONOIDS
from tcomp.passes.normal import Normaliser, RuleFunction, by_root, joined
from tcomp.passes.rules.identities import IDENTITIES

# x op the identity of the dual is that identity, where every value lies between the two
_DUAL = {"max": "min", "min": "max", "and": "or", "or": "and"}


def _is_identity(n: Node, monoid: str) -> bool:
    """Whether all of `n` is the identity of a monoid, with its sign."""
    found = uniform(n)
    return (
        found is not None and found.tobytes() == np.asarray(MONOIDS[monoid].identity(n.type.dtype)).astype(found.dtype).tobytes()
    )


def _monoid(n: Node, m: Normaliser) -> Node | None:
    """The identity of a monoid changes nothing; that of its dual decides, but for NaN."""
    x, y = n.operands
    for one, other in ((x, y), (y, x)):
        if _is_identity(other, n.op):
            return one
        if n.op in _DUAL and not n.type.dtype.is_float and _is_identity(other, _DUAL[n.op]):
            return other
    return None


# --- casts -----------------------------------------------------------------------------------------

_MANTISSA = {  # digits, largest exponent
    "f4e2m1": (2, 2), "f8e4m3fn": (4, 8), "f8e5m2": (3, 15), "f8e4m3fnuz": (4, 7), "f8e5m2fnuz": (3, 15), "f8e8m0": (1, 127),
    "bf16": (8, 127), "f16": (11, 15), "f32": (24, 127), "f64": (53, 1023),
}  # fmt: skip


def holds(wide: DType, narrow: DType) -> bool:
    """Whether every value of `narrow` is one of `wide`."""
    if wide == narrow or (narrow.kind == "bool" and not wide.is_storage):
        return True
    if wide.is_float and wide.is_storage:
        return False  # without infinities, NaN or minus zero, as the case may be
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


_CODE: dict[str, tuple[RuleFunction, ...]] = {"cast": (_cast,), "bitcast": (_bitcast,), **{name: (_monoid,) for name in MONOIDS}}
POINTWISE_RULES = joined(_CODE, by_root(IDENTITIES))
