"""`extremes`: what does not change where an extreme is, is not computed; what does not change which it is, is done after it.

Takes and gives a GRAPH. The position of the largest of a row stays if all its elements grow by the same, or go through a function
that grows: a term that is the same for a whole row, a positive factor or divisor, an exponential. A negative factor makes the
largest the smallest. So the nearest of some points needs no lengths of the rows, and the likeliest of some classes no softmax,
nor a choice by chance from the logarithms of one. The largest itself is that of the elements before: the terms that other
reductions of the row give come after it, so that one pass finds both. Results differ from the text's where elements are equal but
for rounding, or not finite: class `reassociates`; fp="bitwise" has the text's. Must leave alone what is needed for more than its
extreme.

    i = argreduce min (d + broadcast(r)) axis 1   ->   i = argreduce min d axis 1
    p = reduce max (s - broadcast(l)) axes (1)    ->   p = (reduce max s axes (1)) - l        where l is made by a reduction
"""

from __future__ import annotations

from tcomp.ir import index
from tcomp.ir.graph import Func, attributes, broadcast
from tcomp.ir.module import Module
from tcomp.ir.node import Node, with_operands
from tcomp.ir.ops import OPS, apply
from tcomp.ir.region import deep_walk
from tcomp.passes.rebuild import rebuilt

_OTHER = {"max": "min", "min": "max"}
_GROWING = frozenset(["exp", "exp2", "sigmoid", "tanh"])
MOST = 200  # operations that are followed from an extreme


def extremes(module: Module, reassociates: bool = True) -> Module:
    """`module` with the operands of its `argreduce`s reduced to what orders their elements, and of its extremes likewise."""
    func = module.graph("`extremes`")
    if not reassociates or not any(map(_is_extreme, deep_walk(func.results))):
        return module
    needed = _needed(func)

    def change(old: Node, operands: tuple[Node, ...]) -> Node:
        n = with_operands(old, operands)
        if not _is_extreme(n) or old.operands[0] in needed:
            return n
        if n.op == "reduce":
            return _later(operands[0], n["axes"], n["monoid"]) or n
        x, turned = _ordering(operands[0], n["axis"])
        monoid = _OTHER[n["monoid"]] if turned else n["monoid"]
        return apply("argreduce", x, monoid=monoid, axis=n["axis"], last=n["last"], dtype=n["dtype"])

    return rebuilt(module, change)


def _is_extreme(n: Node) -> bool:
    """Whether a node finds an extreme of floats, or where it is."""
    if n.op not in ("argreduce", "reduce") or n["monoid"] not in _OTHER or not n.operands[0].type.dtype.is_float:
        return False
    return n.op == "argreduce" or _is_some(n)


def _needed(func: Func) -> frozenset[Node]:
    """What is needed for more than its extremes, or for one that nothing can be done after."""
    found = set(func.results)
    for n in deep_walk(func.results):
        if not _is_extreme(n):
            found.update(n.operands)
        elif n.op == "reduce" and _later(n.operands[0], n["axes"], n["monoid"]) is None:
            found.add(n.operands[0])
    return frozenset(found)


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


def _without_terms(x: Node, axis: int, done: dict[Node, Node] | None = None) -> Node:
    """A sum without the terms that are the same along the axis; the logarithm of a product is one. done: what was looked at."""
    done = {} if done is None else done
    if x in done or len(done) > MOST or x.op not in ("add", "sub", "log"):
        return done.get(x, x)
    done[x] = x
    done[x] = _without_factors(x, axis, done) if x.op == "log" else _without_summands(x, axis, done)
    return done[x]


def _without_summands(x: Node, axis: int, done: dict[Node, Node]) -> Node:
    a, b = x.operands
    if _is_same(b, axis):
        return _without_terms(a, axis, done)
    if _is_same(a, axis):
        rest = _without_terms(b, axis, done)
        return rest if x.op == "add" else apply("neg", rest)
    both = (_without_terms(a, axis, done), _without_terms(b, axis, done))
    return x if both == x.operands else with_operands(x, both)


def _without_factors(x: Node, axis: int, done: dict[Node, Node]) -> Node:
    """A logarithm without the positive factors that are the same along the axis, nor an exponential."""
    of = x.operands[0]
    if of.op == "exp":
        return _without_terms(of.operands[0], axis, done)
    found = _scaled(of, axis) if of.op in ("mul", "div") else None
    return x if found is None or found[1] else _without_terms(apply("log", found[0]), axis, done)


def _is_same(x: Node, axis: int) -> bool:
    """Whether a value is the same along an axis, as far as `MOST` operations tell."""
    stack, seen = [x], set[Node]()
    while stack:
        n = stack.pop()
        if n in seen:
            continue
        seen.add(n)
        if len(seen) > MOST or (n.op == "broadcast" and axis in n["axes"]):
            return False
        if n.op != "broadcast":
            if OPS[n.op].kind != "pointwise" or not n.operands:
                return False
            stack += n.operands
    return True


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


# --- the extreme itself -----------------------------------------------------------------------------------


def _is_some(n: Node) -> bool:
    """Whether there is an element for certain: the extreme of none is none."""
    shape = n.operands[0].type.shape
    return all((index.bounds(shape[a])[0] or 0) > 0 for a in n["axes"])


def _later(x: Node, axes: tuple[int, ...], monoid: str, most: int = MOST) -> Node | None:
    """The extreme of `x` with what other reductions of its rows give applied after it; None where there is nothing such."""
    if most == 0:
        return None
    if x.op in _GROWING or x.op == "neg":
        inner = _later(x.operands[0], axes, _OTHER[monoid] if x.op == "neg" else monoid, most - 1)
        return None if inner is None else apply(x.op, inner)
    if x.op in ("add", "sub", "mul", "div"):
        a, b = x.operands
        for k, (of, by) in enumerate(((a, b), (b, a))):
            turns = _turns(x.op, k, by)
            if turns is None or not all(_is_same(by, axis) for axis in axes):
                continue
            least = _OTHER[monoid] if turns else monoid
            first = _later(of, axes, least, most - 1)
            if first is None and _is_reduced(by):
                first = apply("reduce", of, monoid=least, axes=axes)
            return None if first is None else apply(x.op, *((first, _without_axes(by, axes, {}))[:: 1 - 2 * k]))
    return None


def _turns(op: str, place: int, by: Node) -> bool | None:
    """Whether `by`, the operand after the other one, or before it (place 1), turns that one's order; None: unknown."""
    if op in ("add", "sub"):
        return op == "sub" and place == 1
    sign = 0 if op == "div" and place == 1 else _sign(by)
    return sign < 0 if sign else None


def _is_reduced(x: Node) -> bool:
    """Whether a reduction gives a value that is the same along an axis."""
    stack, seen = [x], set[Node]()
    while stack:
        n = stack.pop()
        if n.op == "reduce":
            return True
        if n not in seen and (n.op == "broadcast" or OPS[n.op].kind == "pointwise"):
            seen.add(n)
            stack += n.operands
    return False


def _without_axes(x: Node, axes: tuple[int, ...], done: dict[Node, Node]) -> Node:
    """A value without axes along which it is the same."""
    if x not in done and x.op == "broadcast":
        left = [a for a in range(x.type.rank) if a not in axes]
        done[x] = broadcast(x.operands[0], tuple(x.type.shape[a] for a in left), tuple(left.index(a) for a in x["axes"]))
    elif x not in done:
        done[x] = apply(x.op, *(_without_axes(o, axes, done) for o in x.operands), **attributes(x))
    return done[x]
