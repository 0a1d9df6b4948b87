"""Index expressions: the symbolic integers that serve shapes, positions and loop bounds.

A `Dim` is a plain int, or a `Node` of type `INDEX` in canonical form:

* `affine`: a sum of coefficients times atoms plus a constant; atoms sorted, coefficients non-zero;
* atoms: `sym` (a dimension, loop variable or tile axis, carrying its bounds and what it is a multiple of),
  `floordiv`, `mod`, `min`, `max`, `mul` (of two non-constants), `eq`, `lt` (0 or 1), `read` (an element of an integer buffer).

Equal forms are the same node, so equality is identity. Arithmetic is exact and floors (as Python's does). Everything here is
context-free: what is known about a symbol stands in the symbol.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any

from tcomp.ir.names import show_name
from tcomp.ir.node import _ARITHMETIC, Dim, Node, node, walk


class IndexType:
    """The type of all index expressions (one instance, `INDEX`)."""

    def __repr__(self) -> str:
        return "index"


INDEX = IndexType()
Bounds = tuple[int | None, int | None]  # inclusive; None: unbounded


def symbol(name: str, lo: int | None = 0, hi: int | None = None, multiple: int = 1) -> Node:
    """A named integer with lo <= name <= hi that is a multiple of `multiple`."""
    return node("sym", (), (("name", name), ("lo", lo), ("hi", hi), ("multiple", multiple)), INDEX)


def loop_symbol(name: str, lo: Dim, hi: Dim, step: int = 1) -> Node:
    """The variable of a loop over lo, lo + step, ... below hi, with the bounds and the multiple that follow: text omits them."""
    low, high = bounds(lo)[0], bounds(hi)[1]
    if high is not None:
        high = (high - 1) // step * step if divisible(lo, step) else high - 1
        high = high if low is None else max(low, high)
    return symbol(name, low, high, math.gcd(multiple_of(lo), step))


def nearest(symbol: Node, value: int) -> int:
    """The value next to `value` that a symbol can have: the multiple above it, within its bounds."""
    lo, hi, m = symbol["lo"], symbol["hi"], symbol["multiple"]
    value = -(-(value if lo is None else max(value, lo)) // m) * m
    return value if hi is None else min(value, hi // m * m)


LIKELY = 256  # what a size that is not known is taken for where it only steers a choice


def likely(x: Dim) -> int:
    """A size to steer by: the size itself (1 for none), its bound where that is small, or a guess."""
    if isinstance(x, int):
        return max(1, x)
    hi = bounds(x)[1]
    return LIKELY if hi is None else max(1, min(hi, LIKELY))


def as_node(x: Dim) -> Node:
    """`x` as a node, for use as an operand."""
    return x if isinstance(x, Node) else node("affine", (), (("coefficients", ()), ("constant", int(x))), INDEX)


def as_dim(n: Node) -> Dim:
    """A node as a Dim: an int where it is constant."""
    return n["constant"] if n.op == "affine" and not n.operands else n


def constant(x: Dim) -> int | None:
    """The value of `x` where it is known."""
    if isinstance(x, int):
        return x
    return x["constant"] if x.op == "affine" and not x.operands else None


def terms(x: Dim) -> tuple[dict[Node, int], int]:
    """`x` as (coefficient of each atom, constant)."""
    if isinstance(x, int):
        return {}, x
    if x.op == "affine":
        return dict(zip(x.operands, x["coefficients"])), x["constant"]
    return {x: 1}, 0


def affine(coefficients: Mapping[Node, int], c: int) -> Dim:
    """The sum of coefficient * atom, plus c, in canonical form."""
    if any(a.op == "mod" for a in coefficients):
        coefficients, c = _rejoined(coefficients, c)
    kept = [(a, k) for a, k in coefficients.items() if k]
    if not kept:
        return int(c)
    if len(kept) > 1:
        kept.sort(key=lambda ak: _order(ak[0]))
    if c == 0 and len(kept) == 1 and kept[0][1] == 1:
        return kept[0][0]
    attrs = (("coefficients", tuple(k for _, k in kept)), ("constant", int(c)))
    return node("affine", (a for a, _ in kept), attrs, INDEX)


def _rejoined(coefficients: Mapping[Node, int], c: int) -> tuple[dict[Node, int], int]:
    """k*(x % d) + k*d*(x // d) as k*x, also where d is symbolic (then d*(x // d) is a product atom)."""
    out = dict(coefficients)
    for atom, k in coefficients.items():
        if atom.op != "mod" or not k or out.get(atom) != k:
            continue
        x, d = atom.operands
        quotient = node("floordiv", (x, d), (), INDEX)
        size = constant(as_dim(d))
        whole, factor = (quotient, k * size) if size is not None else (_monomial(quotient, d), k)
        if out.get(whole) != factor:
            continue
        del out[atom], out[whole]
        inner, shift = terms(x)
        c += k * shift
        for a, m in inner.items():
            out[a] = out.get(a, 0) + m * k
    return out, c


def _order(atom: Node) -> tuple[str, str]:
    """A total order on atoms that does not depend on the process; remembered in the node, for sorting asks often."""
    try:
        return atom._order
    except AttributeError:
        key = (atom.op, show(atom))
        object.__setattr__(atom, "_order", key)
        return key


def add(a: Dim, b: Dim) -> Dim:
    """a + b."""
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    if a == 0 or b == 0:
        return b if a == 0 else a
    ka, ca = terms(a)
    kb, cb = terms(b)
    for atom, k in kb.items():
        ka[atom] = ka.get(atom, 0) + k
    return affine(ka, ca + cb)


def sub(a: Dim, b: Dim) -> Dim:
    """a - b."""
    return add(a, mul(b, -1))


def mul(a: Dim, b: Dim) -> Dim:
    """a * b; products of sums are distributed."""
    ca, cb = constant(a), constant(b)
    if ca is not None and cb is not None:
        return ca * cb
    if ca is not None:
        a, b, cb = b, a, ca
    if cb is not None:
        ka, c = terms(a)
        return affine({atom: k * cb for atom, k in ka.items()}, c * cb)
    return _product(a, b)


def _product(a: Dim, b: Dim) -> Dim:
    """The product of two non-constants, distributed over sums, so that equal polynomials are equal."""
    (ka, ca), (kb, cb) = terms(a), terms(b)
    out: dict[Node, int] = {}
    for x, k in ka.items():
        for y, m in kb.items():
            p = _monomial(x, y)
            out[p] = out.get(p, 0) + k * m
        out[x] = out.get(x, 0) + k * cb
    for y, m in kb.items():
        out[y] = out.get(y, 0) + m * ca
    return affine(out, ca * cb)


def _monomial(x: Node, y: Node) -> Node:
    """The atom x * y: factors sorted, nested products flattened."""
    factors = [f for n in (x, y) for f in (n.operands if n.op == "mul" else (n,))]
    return node("mul", sorted(factors, key=_order), (), INDEX)


def floordiv(a: Dim, b: Dim) -> Dim:
    """a // b for b > 0; a where b is 0, the extent of an axis without elements."""
    cb = constant(b)
    if cb in (0, 1):
        return a
    if cb is None:
        return _exact_quotient(a, b)
    whole, rest = _split(a, cb)
    lo, hi = bounds(rest)
    if lo is not None and hi is not None and lo // cb == hi // cb:
        return add(whole, lo // cb)
    return add(whole, _nested_div(rest, cb))


def _nested_div(rest: Dim, b: int) -> Dim:
    """rest // b as an atom; (x // c) // b is x // (c * b)."""
    if isinstance(rest, Node) and rest.op == "floordiv" and (c := constant(as_dim(rest.operands[1]))) is not None:
        return floordiv(as_dim(rest.operands[0]), c * b)
    return node("floordiv", (as_node(rest), as_node(b)), (), INDEX)


def _exact_quotient(a: Dim, b: Dim) -> Dim:
    """a // b for a symbolic b: known where every term of a holds b as a factor, else an atom."""
    ka, c = terms(a)
    if a == 0 or a == b:
        return 0 if a == 0 else 1
    quotient = {atom: _without(atom, b) for atom in ka}
    if c == 0 and ka and all(q is not None for q in quotient.values()):
        total: Dim = 0
        for atom, k in ka.items():
            total = add(total, mul(quotient[atom] or 0, k))
        return total
    hi = bounds(sub(a, b))[1]
    if hi is not None and hi < 0 and (bounds(a)[0] or -1) >= 0:
        return 0
    return node("floordiv", (as_node(a), as_node(b)), (), INDEX)


def _without(atom: Node, factor: Dim) -> Dim | None:
    """atom / factor where factor is an atom and divides it."""
    if atom is factor:
        return 1
    if atom.op != "mul" or factor not in atom.operands:
        return None
    left = list(atom.operands)
    left.remove(as_node(factor))
    return left[0] if len(left) == 1 else node("mul", left, (), INDEX)


def _split(a: Dim, b: int) -> tuple[Dim, Dim]:
    """(q, r) with a // b = q + r // b, taking into q all terms that b divides for certain."""
    ka, c = terms(a)
    whole = {x: k // b for x, k in ka.items() if k % b == 0}
    rest = {x: k for x, k in ka.items() if k % b}
    for x, k in list(rest.items()):
        if x.op == "sym" and k > 0 and b % k == 0 and divisible(x, b // k):
            whole[_scaled(x, b // k)] = 1
            del rest[x]
    step = math.gcd(b, *(k * multiple_of(x) for x, k in rest.items()))
    low = c % b
    return affine(whole, (c - low) // b), affine(rest, low - low % step)  # what is below the step never carries


def _scaled(x: Node, d: int) -> Node:
    """The exact quotient x // d of a multiple of d, as an atom."""
    return node("floordiv", (x, as_node(d)), (), INDEX)


def mod(a: Dim, b: Dim) -> Dim:
    """a % b for b > 0; 0 where b is 0, the extent of an axis without elements."""
    cb = constant(b)
    if cb in (0, 1):
        return 0
    if cb is None:
        return _symbolic_mod(a, b)
    ka, c = terms(a)
    rest = affine({x: k % cb for x, k in ka.items() if (k * multiple_of(x)) % cb}, c % cb)
    lo, hi = bounds(rest)
    if lo is not None and hi is not None and lo // cb == hi // cb:
        return sub(rest, lo // cb * cb)
    return node("mod", (as_node(rest), as_node(cb)), (), INDEX)


def _symbolic_mod(a: Dim, b: Dim) -> Dim:
    quotient = floordiv(a, b)
    if not (isinstance(quotient, Node) and quotient.op == "floordiv" and as_dim(quotient.operands[1]) == b):
        return sub(a, mul(quotient, b))
    return node("mod", (as_node(a), as_node(b)), (), INDEX)


def ceildiv(a: Dim, b: Dim) -> Dim:
    """a / b rounded up, for b > 0."""
    return floordiv(add(a, sub(b, 1)), b)


def round_up(a: Dim, b: int) -> Dim:
    """The smallest multiple of b that is at least a."""
    return mul(ceildiv(a, b), b)


def minimum(a: Dim, b: Dim) -> Dim:
    """The smaller of both; one of them where their bounds decide."""
    return _choose("min", a, b)


def maximum(a: Dim, b: Dim) -> Dim:
    """The larger of both; one of them where their bounds decide."""
    return _choose("max", a, b)


def broadcast(*sizes: Dim) -> Dim:
    """The size of an axis on which NumPy's rule lets these sizes meet: those that are not 1 are equal."""
    known = list(dict.fromkeys(d for d in sizes if d != 1)) or [1]
    sure = next((d for d in known if equal(d, 1) == 0), None)
    if sure is not None or len(known) == 1:
        return known[0] if sure is None else sure
    known.sort(key=show)
    largest, least = reduce(maximum, known), reduce(minimum, known)
    return minimum(largest, mul(largest, least) if len(known) > 2 else mul(*known))  # 0 where one is 0


def _choose(op: str, a: Dim, b: Dim) -> Dim:
    lo, hi = bounds(sub(a, b))
    if hi is not None and hi <= 0:
        return a if op == "min" else b
    if lo is not None and lo >= 0:
        return b if op == "min" else a
    return node(op, sorted((as_node(a), as_node(b)), key=_order), (), INDEX)


def equal(a: Dim, b: Dim) -> Dim:
    """1 where a == b, else 0."""
    lo, hi = bounds(sub(a, b))
    if lo == hi == 0:
        return 1
    if (lo is not None and lo > 0) or (hi is not None and hi < 0):
        return 0
    return node("eq", sorted((as_node(a), as_node(b)), key=_order), (), INDEX)


def less(a: Dim, b: Dim) -> Dim:
    """1 where a < b, else 0."""
    lo, hi = bounds(sub(a, b))
    if hi is not None and hi < 0:
        return 1
    if lo is not None and lo >= 0:
        return 0
    return node("lt", (as_node(a), as_node(b)), (), INDEX)


def read(buffer: Any, position: Iterable[Dim], lo: int | None = None, hi: int | None = None) -> Node:
    """An element of an integer buffer used as an index (gather); lo and hi bound it once it has been checked."""
    return node("read", map(as_node, position), (("buffer", buffer), ("lo", lo), ("hi", hi)), INDEX)


def bounds(x: Dim) -> Bounds:
    """Inclusive bounds of `x` over all values of its symbols."""
    if isinstance(x, int):
        return x, x
    match x.op:
        case "sym" | "read":
            return x["lo"], x["hi"]
        case "affine":
            return _affine_bounds(x)
        case "floordiv" | "mod":
            return _division_bounds(x)
        case "min" | "max":
            (al, ah), (bl, bh) = (bounds(as_dim(o)) for o in x.operands)
            return _min_bounds(al, ah, bl, bh) if x.op == "min" else _max_bounds(al, ah, bl, bh)
        case "eq" | "lt":
            return 0, 1
        case "mul":
            return _product_bounds(x)
    raise AssertionError(x.op)


def _affine_bounds(x: Node) -> Bounds:
    lo: int | None = x["constant"]
    hi: int | None = lo
    for atom, k in zip(x.operands, x["coefficients"]):
        low, high = bounds(atom)
        if k < 0:
            low, high = high, low
        lo = None if lo is None or low is None else lo + k * low
        hi = None if hi is None or high is None else hi + k * high
    return lo, hi


def _division_bounds(x: Node) -> Bounds:
    (al, ah), (bl, bh) = (bounds(as_dim(o)) for o in x.operands)
    if x.op == "mod":
        top = None if bh is None else bh - 1
        if al is not None and al >= 0 and ah is not None:
            top = ah if top is None else min(top, ah)
        return 0, top
    if al is None or al < 0:
        divisor = constant(as_dim(x.operands[1]))
        if divisor is None:
            return None, None
        return (None if al is None else al // divisor), (None if ah is None else ah // divisor)
    low = 0 if bh is None else al // bh
    return low, None if ah is None else ah // max(1, bl or 1)


def _min_bounds(al: int | None, ah: int | None, bl: int | None, bh: int | None) -> Bounds:
    lo = None if al is None or bl is None else min(al, bl)
    highs = [h for h in (ah, bh) if h is not None]
    return lo, min(highs) if highs else None


def _max_bounds(al: int | None, ah: int | None, bl: int | None, bh: int | None) -> Bounds:
    lows = [v for v in (al, bl) if v is not None]
    return max(lows) if lows else None, None if ah is None or bh is None else max(ah, bh)


def _product_bounds(x: Node) -> Bounds:
    lo, hi = 1, 1
    unbounded = False
    for f in x.operands:
        low, high = bounds(f)
        if low is None or low < 0:
            return None, None
        lo *= low
        unbounded |= high is None
        hi *= high or 0
    return lo, None if unbounded else hi


def multiple_of(x: Dim) -> int:
    """An integer that divides `x` for certain (0 for zero itself)."""
    if isinstance(x, int):
        return abs(x)
    match x.op:
        case "sym":
            return int(x["multiple"])
        case "affine":
            return math.gcd(x["constant"], *(k * multiple_of(a) for a, k in zip(x.operands, x["coefficients"])))
        case "mul":
            return math.prod(multiple_of(f) for f in x.operands)
        case "min" | "max" | "mod":
            return math.gcd(*(multiple_of(as_dim(o)) for o in x.operands)) or 1
        case "floordiv":
            d = constant(as_dim(x.operands[1]))
            m = multiple_of(as_dim(x.operands[0]))
            return m // d if d and m % d == 0 and m else 1
    return 1


def divisible(x: Dim, n: int) -> bool:
    """Whether n divides x for certain."""
    return multiple_of(x) % n == 0


def substitute(x: Dim, values: Mapping[Node, Dim]) -> Dim:
    """`x` with symbols (or other atoms) replaced, in canonical form again."""
    if isinstance(x, int) or not values:
        return x
    if x.op == "sym":
        return values.get(x, x)
    done: dict[Node, Dim] = {}
    for n in walk([x]):
        done[n] = values[n] if n in values else rebuild(n, [done[o] for o in n.operands])
    return done[x]


def rebuild(n: Node, operands: list[Dim]) -> Dim:
    """The index expression of `n`'s op over other operands, in canonical form."""
    match n.op:
        case "sym":
            return n
        case "affine":
            total: Dim = n["constant"]
            for o, k in zip(operands, n["coefficients"]):
                total = add(total, mul(o, k))
            return total
        case "read":
            return read(n["buffer"], operands, n["lo"], n["hi"])
        case "mul":
            product: Dim = 1
            for o in operands:
                product = mul(product, o)
            return product
    return {"floordiv": floordiv, "mod": mod, "min": minimum, "max": maximum, "eq": equal, "lt": less}[n.op](*operands)


def symbols(xs: Iterable[Dim]) -> list[Node]:
    """The symbols in `xs`, in order of first use."""
    return [n for n in walk(x for x in xs if isinstance(x, Node)) if n.op == "sym"]


def evaluate(x: Dim, values: Mapping[str, int], load: Any = None) -> int:
    """The value of `x`, symbols by name; `load(buffer, position)` reads an element where there are `read` atoms."""
    if isinstance(x, int):
        return x
    done: dict[Node, int] = {}
    for n in walk([x]):
        v = [done[o] for o in n.operands]
        done[n] = values[n["name"]] if n.op == "sym" else load(n["buffer"], v) if n.op == "read" else _value(n, v)
    return done[x]


def _value(n: Node, v: list[int]) -> int:
    match n.op:
        case "affine":
            return int(n["constant"] + sum(k * x for k, x in zip(n["coefficients"], v)))
        case "floordiv":
            return v[0] // (v[1] or 1)
        case "mod":
            return v[0] % (v[1] or 1)
        case "min":
            return min(v)
        case "max":
            return max(v)
        case "mul":
            return math.prod(v)
        case "eq":
            return int(v[0] == v[1])
        case "lt":
            return int(v[0] < v[1])
    raise AssertionError(n.op)


def product(dims: Iterable[Dim]) -> Dim:
    """The product of `dims`: the number of elements of a shape."""
    total: Dim = 1
    for d in dims:
        total = mul(total, d)
    return total


_INFIX = {"floordiv": "//", "mod": "%", "mul": "*", "eq": "==", "lt": "<"}


def show(x: Dim) -> str:
    """The text of `x`, as the printer writes it and the parser reads it."""
    if isinstance(x, int):
        return str(x)
    match x.op:
        case "sym":
            return show_name(x["name"])
        case "affine":
            return _show_sum(x)
        case "min" | "max":
            return f"{x.op}({', '.join(show(as_dim(o)) for o in x.operands)})"
        case "read":
            return _show_read(x)
    return "(" + f" {_INFIX[x.op]} ".join(map(_show_factor, x.operands)) + ")"


def _show_read(x: Node) -> str:
    """`buffer[position]`, and the bounds of the element in braces where they are known."""
    text = f"{show_name(x['buffer'].name)}[{', '.join(show(as_dim(o)) for o in x.operands)}]"
    return text if (x["lo"], x["hi"]) == (None, None) else f"{text}{{{show_bound(x['lo'])}, {show_bound(x['hi'])}}}"


def show_bound(bound: int | None) -> str:
    """A bound in text."""
    return "none" if bound is None else str(bound)


def _show_factor(operand: Node) -> str:
    """An operand of an infix operator: sums and negative numbers in parentheses."""
    text = show(as_dim(operand))
    return f"({text})" if operand.op == "affine" and (operand.operands or operand["constant"] < 0) else text


def _show_sum(x: Node) -> str:
    """Positive terms first: `n - j`, `100 - s`, `i + 8`."""
    if not x.operands:
        return str(x["constant"])
    pieces = [(k, show(atom) if abs(k) == 1 else f"{abs(k)}*{show(atom)}") for atom, k in zip(x.operands, x["coefficients"])]
    positive, negative = [p for p in pieces if p[0] > 0], [p for p in pieces if p[0] < 0]
    c = x["constant"]
    number = [(c, str(abs(c)))] if c else []
    (first, text), *rest = [*positive, *negative, *number] if positive or c <= 0 else [*number, *negative]
    return ("-" if first < 0 else "") + text + "".join(f" {'-' if k < 0 else '+'} {piece}" for k, piece in rest)


_ARITHMETIC.update(add=add, sub=sub, mul=mul, floordiv=floordiv, mod=mod)
