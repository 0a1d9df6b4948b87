"""Symbolic evaluation of small integer tensors: what a model computes from shapes becomes index expressions.

`evaluate(node, known)` gives the elements of a GRAPH node as an object array of Dims, or None. It understands the operations that
exporters use on shapes: movement, gather, arithmetic, comparisons, reductions, and casts; a division in floats that is rounded
later is a division of integers (`Ratio` in between). `known` is a memo that the caller keeps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.index import INDEX
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import OPS, apply, constant
from tcomp.ir.types import TensorType

LIMIT = 4096  # elements of a tensor that may be a shape
Dims = np.ndarray  # of dtype object
Memo = dict[Node, "Dims | None"]


def evaluate(root: Node, known: Memo) -> Dims | None:
    """The elements of `root` as Dims, or None where they depend on data."""
    stack = [root]
    while stack:
        n = stack[-1]
        if n in known:
            stack.pop()
            continue
        if not _plausible(n):
            known[n] = None
            continue
        missing = [o for o in n.operands if o not in known]
        if missing:
            stack.extend(missing)
            continue
        known[n] = _step(n, [known[o] for o in n.operands])
    return known[root]


def _plausible(n: Node) -> bool:
    """Whether `n` can be computed from shapes: small, of known size, not read from data."""
    t = n.type
    if not isinstance(t, TensorType) or n.op == "parameter" or not all(isinstance(d, int) for d in t.shape):
        return False
    known_op = n.op in _MEANING or n.op in ("constant", "dimension")
    return known_op and math.prod(d for d in t.shape if isinstance(d, int)) <= LIMIT


def _step(n: Node, operands: list[Dims | None]) -> Dims | None:
    if n.op == "constant":
        return _exact(n["value"].array)
    if n.op == "dimension":
        return _boxed(n["dim"])
    if any(o is None for o in operands):
        return None
    f = _MEANING.get(n.op)
    return None if f is None else f(n, *operands)


@dataclass(frozen=True, slots=True)
class Ratio:
    """A value in floats that is top / bottom, not known to be whole."""

    top: Dim
    bottom: int


def _exact(x: np.ndarray) -> Dims | None:
    """A constant's elements as Python integers, or as ratios where they have few bits after the point."""
    if x.size > LIMIT:
        return None
    out = np.empty(x.shape, object)
    for k in np.ndindex(x.shape):
        out[k] = int(x[k]) if x.dtype.kind in "biu" else _rational(float(x[k]))
        if out[k] is None:
            return None
    return out


def _rational(x: float) -> Dim | Ratio | None:
    if not abs(x) < 2**53:
        return None
    f = Fraction(x)
    return f.numerator if f.denominator == 1 else Ratio(f.numerator, f.denominator) if f.denominator <= 1024 else None


def _boxed(x: Dim) -> Dims:
    out = np.empty((), object)
    out[()] = x
    return out


def _each(f: Callable[..., Any], *arrays: Dims) -> Dims | None:
    """`f` element by element; None where it has no answer for one of them."""
    out = np.empty(arrays[0].shape, object)
    for k in np.ndindex(out.shape):
        out[k] = f(*(a[k] for a in arrays))
        if out[k] is None:
            return None
    return out


def _quotient(a: Dim, b: Dim) -> Dim | None:
    """Division towards zero, where the signs are known."""
    if isinstance(a, int) and isinstance(b, int):
        return 0 if b == 0 else int(abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)
    low, bottom = index.bounds(a)[0], index.bounds(b)[0]
    if low is None or low < 0 or bottom is None:
        return None
    return index.floordiv(a, b) if isinstance(b, Node) or b > 0 else None


def _floordiv(a: Dim, b: Dim) -> Dim | None:
    if isinstance(a, int) and isinstance(b, int):
        return 0 if b == 0 else a // b
    return index.floordiv(a, b) if isinstance(b, Node) or b > 0 else None


def _mod(a: Dim, b: Dim) -> Dim | None:
    if isinstance(a, int) and isinstance(b, int):
        return 0 if b == 0 else a % b
    return index.mod(a, b) if isinstance(b, Node) or b > 0 else None


def _rem(a: Dim, b: Dim) -> Dim | None:
    q = _quotient(a, b)
    return None if q is None else index.sub(a, index.mul(q, b))


def _parts(x: Any) -> tuple[Dim, int]:
    return (x.top, x.bottom) if isinstance(x, Ratio) else (x, 1)


def _ratio(top: Dim, bottom: int) -> Any:
    """top / bottom: a Dim where that is whole for certain."""
    if bottom <= 0:
        return None
    q = index.floordiv(top, bottom)
    return q if index.mul(q, bottom) == top else Ratio(top, bottom)


def _product(a: Any, b: Any) -> Any:
    (ta, ba), (tb, bb) = _parts(a), _parts(b)
    return index.mul(ta, tb) if ba == bb == 1 else _ratio(index.mul(ta, tb), ba * bb)


def _division(a: Any, b: Any) -> Any:
    """A quotient in floats."""
    (ta, ba), (tb, bb) = _parts(a), _parts(b)
    if isinstance(tb, int):
        return _ratio(index.mul(ta, bb), ba * tb)
    q = index.floordiv(index.mul(ta, bb), tb)
    return q if ba == 1 and index.mul(q, tb) == index.mul(ta, bb) else None


def _rounded(how: str) -> Callable[[Any], Any]:
    """floor, ceil and truncation of a ratio (truncation where it is not negative)."""

    def f(x: Any) -> Any:
        if not isinstance(x, Ratio):
            return x
        if how == "trunc" and (index.bounds(x.top)[0] or 0) < 0:
            return None
        return index.ceildiv(x.top, x.bottom) if how == "ceil" else index.floordiv(x.top, x.bottom)

    return f


def _power(a: Dim, b: Dim) -> Dim | None:
    if not isinstance(b, int) or not 0 <= b <= 8:
        return None
    return index.product([a] * b)


def _choice(c: Dim, a: Dim, b: Dim) -> Dim | None:
    if isinstance(c, int):
        return a if c else b
    return index.add(index.mul(c, a), index.mul(index.sub(1, c), b))


def _not(x: Dim) -> Dim:
    return index.sub(1, x)


def _on_booleans(f: Callable[..., Dim | None]) -> Callable[..., Dims | None]:
    """Bitwise operations, known here for booleans only."""
    return lambda n, *xs: _each(f, *xs) if n.type.dtype.kind == "bool" else None


def _absolute(x: Dim) -> Dim | None:
    lo, hi = index.bounds(x)
    return x if lo is not None and lo >= 0 else index.mul(x, -1) if hi is not None and hi <= 0 else None


def _cast(n: Node, x: Dims) -> Dims | None:
    """Casts keep what is known; to bool is `x != 0`, to narrow integers only where the value surely fits."""
    t = n["dtype"]
    if t.kind == "bool":
        if any(isinstance(v, Ratio) for v in x.reshape(-1)):
            return None
        return _each(lambda v: _not(index.equal(v, 0)), x)
    if t.is_float:
        return x
    whole = _each(_rounded("trunc"), x)
    if t.bits >= 32 or whole is None:
        return whole
    return x if all(isinstance(v, int) and 0 <= v < 128 for v in x.reshape(-1)) else None


def _reduce(n: Node, x: Dims) -> Dims | None:
    f = {"add": index.add, "mul": index.mul, "max": index.maximum, "min": index.minimum}.get(n["monoid"])
    axes = n["axes"]
    if f is None or any(isinstance(v, Ratio) for v in x.reshape(-1)):
        return None
    moved = np.moveaxis(x, axes, range(len(axes))).reshape(-1, *(d for a, d in enumerate(x.shape) if a not in axes))
    if not len(moved) and n["monoid"] in ("max", "min"):
        return None
    total = np.full(moved.shape[1:], 1 if n["monoid"] == "mul" else 0, object) if not len(moved) else moved[0]
    for part in moved[1:]:
        total = _each(f, np.asarray(total, object), np.asarray(part, object))
    return np.asarray(total, object)


def _scan(n: Node, x: Dims) -> Dims | None:
    f = {"add": index.add, "mul": index.mul}.get(n["monoid"])
    if f is None or n["reverse"] or n["exclusive"] or x.ndim != 1 or any(isinstance(v, Ratio) for v in x):
        return None
    out = x.copy()
    for k in range(1, len(x)):
        out[k] = f(out[k - 1], x[k])
    return out


def _moved(n: Node, *operands: Dims) -> Dims | None:
    """Movement means the same for Dims as for numbers."""
    if any(isinstance(v, Node) and v.type is INDEX for v in n.type.shape):
        return None
    attrs = dict(n.attrs)
    if any(isinstance(v, Node) for values in attrs.values() if isinstance(values, tuple) for v in values):
        return None
    return np.asarray(OPS[n.op].reference(*operands, **attrs), object)


def _gather(n: Node, x: Dims, positions: Dims) -> Dims | None:
    if not all(isinstance(v, int) for v in positions.reshape(-1)):
        return None
    return np.asarray(OPS[n.op].reference(x, positions.astype(np.int64), **dict(n.attrs)), object)


def _iota(n: Node) -> Dims | None:
    x = np.arange(n.type.shape[n["axis"]], dtype=np.int64)
    wide = x.reshape([-1 if a == n["axis"] else 1 for a in range(len(n.type.shape))])
    return _exact(np.broadcast_to(wide, n.type.shape))


def _pointwise(f: Callable[..., Any], ratios: bool = False) -> Callable[..., Dims | None]:
    """`f` on every element; None where one is a ratio and `f` does not take them."""

    def g(n: Node, *xs: Dims) -> Dims | None:
        if not ratios and any(isinstance(v, Ratio) for x in xs for v in x.reshape(-1)):
            return None
        return _each(f, *xs)

    return g


_MEANING: dict[str, Callable[..., Dims | None]] = {
    **dict.fromkeys(("reshape", "broadcast", "transpose", "slice", "concat"), _moved),
    **dict.fromkeys(("gather", "gather_elements", "gather_nd"), _gather),
    **{how: _pointwise(_rounded(how), True) for how in ("floor", "ceil", "trunc")},
    "iota": _iota,
    "cast": _cast,
    "reduce": _reduce,
    "scan": _scan,
    "add": _pointwise(index.add),
    "sub": _pointwise(index.sub),
    "mul": _pointwise(_product, True),
    "neg": _pointwise(lambda x: index.mul(x, -1)),
    "abs": _pointwise(_absolute),
    "quotient": _pointwise(_quotient),
    "floordiv": _pointwise(_floordiv),
    "div": _pointwise(_division, True),
    "mod": _pointwise(_mod),
    "rem": _pointwise(_rem),
    "pow": _pointwise(_power),
    "max": _pointwise(index.maximum),
    "min": _pointwise(index.minimum),
    "where": _pointwise(_choice),
    "eq": _pointwise(index.equal),
    "ne": _pointwise(lambda a, b: _not(index.equal(a, b))),
    "lt": _pointwise(index.less),
    "gt": _pointwise(lambda a, b: index.less(b, a)),
    "le": _pointwise(lambda a, b: _not(index.less(b, a))),
    "ge": _pointwise(lambda a, b: _not(index.less(a, b))),
    "not": _on_booleans(_not),
    "and": _on_booleans(index.minimum),
    "or": _on_booleans(index.maximum),
}


def to_node(dims: Dims, t: TensorType) -> Node | None:
    """The canonical GRAPH node of a scalar or vector of Dims; None for other ranks, and for ratios."""
    if any(isinstance(v, Ratio) for v in dims.reshape(-1)):
        return None
    if all(isinstance(v, int) for v in dims.reshape(-1)):
        return constant(np.array(dims.tolist(), dt.to_numpy(t.dtype)).reshape(dims.shape))
    if t.rank > 1 or not t.dtype.is_integer:
        return None
    parts = [_scalar(v, t) for v in dims.reshape(-1)]
    if t.rank == 0:
        return parts[0]
    if len(parts) > 1 and len(set(parts)) == 1:
        return apply("broadcast", parts[0], shape=t.shape, axes=())
    lines = [apply("reshape", p, shape=(1,)) for p in parts]
    return lines[0] if len(lines) == 1 else apply("concat", *lines, axis=0)


def _scalar(v: Dim, t: TensorType) -> Node:
    if isinstance(v, int):
        return constant(np.asarray(v, dt.to_numpy(t.dtype)))
    return apply("dimension", dim=v, dtype=t.dtype)
