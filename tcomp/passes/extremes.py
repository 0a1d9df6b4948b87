"""`extremes`: what does not change where an extreme is, is not computed.

Takes and gives a GRAPH. The position of the largest of a row stays if all its elements grow by the same, or go through a function
that grows: a term that is the same for a whole row, a positive factor or divisor, an exponential. A negative factor makes the
largest the smallest. So the nearest of some points needs no lengths of the rows, and the likeliest of some classes no softmax.
Positions differ from the text's where elements are equal but for rounding, or not finite: class `reassociates`; fp="bitwise" has
the text's. Must leave alone what is needed for more than its position.

    i = argreduce min (d + broadcast(r)) axis 1   ->   i = argreduce min d axis 1
"""

from __future__ import annotations

from collections import Counter

from tcomp.ir.module import Module
from tcomp.ir.node import Node, with_operands
from tcomp.ir.ops import OPS, apply
from tcomp.ir.region import deep_walk
from tcomp.passes.rebuild import rebuilt

_OTHER = {"max": "min", "min": "max"}
_GROWING = frozenset(["exp", "exp2", "sigmoid", "tanh"])


def extremes(module: Module, reassociates: bool = True) -> Module:
    """`module` with the operands of its `argreduce`s reduced to what orders their elements."""
    func = module.graph("`extremes`")
    if not reassociates or not any(n.op == "argreduce" for n in deep_walk(func.results)):
        return module
    readers = Counter([*func.results, *(o for n in deep_walk(func.results) for o in n.operands)])

    def change(old: Node, operands: tuple[Node, ...]) -> Node:
        n = with_operands(old, operands)
        if n.op != "argreduce" or readers[old.operands[0]] > 1 or not n.operands[0].type.dtype.is_float:
            return n
        x, turned = _ordering(operands[0], n["axis"])
        monoid = _OTHER[n["monoid"]] if turned else n["monoid"]
        return apply("argreduce", x, monoid=monoid, axis=n["axis"], last=n["last"], dtype=n["dtype"])

    return rebuilt(module, change)


def _ordering(x: Node, axis: int) -> tuple[Node, bool]:
    """(what has the order of `x` along an axis, whether the other way round)."""
    turned = False
    while True:
        if x.op in _GROWING:
            x = x.operands[0]
        elif x.op == "neg":
            x, turned = x.operands[0], not turned
        elif x.op in ("mul", "div") and (found := _scaled(x, axis)) is not None:
            x, negative = found
            turned ^= negative
        else:
            rest = _without_terms(x, axis)
            if rest is x:
                return x, turned
            x = rest


def _scaled(x: Node, axis: int) -> tuple[Node, bool] | None:
    """(the other factor, whether it is turned) of a product or quotient by what has one sign along the axis."""
    a, b = x.operands
    for of, by in ((a, b), (b, a)) if x.op == "mul" else ((a, b),):
        sign = _sign(by) if _is_same(by, axis) else 0
        if sign:
            return of, sign < 0
    return None


def _without_terms(x: Node, axis: int) -> Node:
    """A sum without the terms that are the same along the axis."""
    if x.op not in ("add", "sub"):
        return x
    a, b = x.operands
    if _is_same(b, axis):
        return _without_terms(a, axis)
    if _is_same(a, axis):
        rest = _without_terms(b, axis)
        return rest if x.op == "add" else apply("neg", rest)
    both = (_without_terms(a, axis), _without_terms(b, axis))
    return x if both == x.operands else with_operands(x, both)


def _is_same(x: Node, axis: int) -> bool:
    """Whether a value is the same along an axis."""
    if x.op == "broadcast":
        return axis not in x["axes"]
    pointwise = OPS[x.op].kind == "pointwise" and bool(x.operands)
    return pointwise and all(_is_same(o, axis) for o in x.operands)


def _sign(x: Node) -> int:
    """1 or -1 where all elements are known to be above or below 0, else 0."""
    while x.op in ("broadcast", "reshape", "transpose"):
        x = x.operands[0]
    if x.op == "constant":
        array = x["value"].array
        return 1 if bool((array > 0).all()) else -1 if bool((array < 0).all()) else 0
    if x.op == "reduce" and x["monoid"] in ("add", "max", "min", "mul"):
        return max(0, _sign(x.operands[0]))
    return 1 if x.op in ("exp", "exp2", "sigmoid") else 0
