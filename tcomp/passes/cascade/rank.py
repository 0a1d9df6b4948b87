"""How many accumulators a dependent reduction needs: the rank of its element g(x, u) with the earlier results u a free symbol.

sum_j g(x_j, u) is a function of finitely many sums that do not know u iff g has finite rank, g(x, u) = sum_i c_i(u) b_i(x).
The rank of the matrix g(x_p, u_q) over random x_p, u_q is exact in a finite field: a number t is carried mod p and mod q,
where q divides p - 1, and exp(t) is w^t for w of order q. What orders numbers (max, abs, comparisons) is tested in rationals
instead, with exp(t) = 2^t at integers. A rank above `LIMIT` is tried at twice the size: it must not grow. Largest
subexpressions without u, and those without x, are symbols themselves, whatever they compute: a rank found so is an upper
bound.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

from tcomp.ir.node import Node
from tcomp.passes.cascade.expression import is_streamed, kinds, value_of
from tcomp.passes.primes import is_prime

LIMIT = 6
SIZE = 14


class NotAlgebraic(Exception):
    """An operation on x and u together that the field has no meaning for; the argument names it."""


@dataclass(frozen=True, slots=True)
class Rank:
    """rank: of the element, None where it grows or is not known; witness: the reason then, in words."""

    rank: int | None
    witness: str = ""


@dataclass(frozen=True, slots=True)
class Field:
    """p, q primes, q divides p - 1; w of order q stands for e, v for e^i; i * i = -1."""

    p: int
    q: int
    w: int
    v: int
    i: int


@cache
def field() -> Field:
    q = next(n for n in range(1 << 39, 1 << 40) if is_prime(n))
    p = next(n for n in range(4 * q + 1, 4 * q * 1000, 4 * q) if is_prime(n))
    w = pow(3, (p - 1) // q, p)
    roots = (pow(g, (p - 1) // 4, p) for g in range(2, 50))
    return Field(p, q, w, pow(w, 7919, p), next(r for r in roots if r * r % p == p - 1))


Number = tuple[int, int | None]  # mod p, and mod q where it is known: exp of it needs that


def _constant(value: float) -> Number:
    f = field()
    fraction = Fraction(value)
    return tuple(fraction.numerator * pow(fraction.denominator, -1, m) % m for m in (f.p, f.q))  # type: ignore[return-value]


def _both(x: Number, y: Number, op: Callable[[int, int, int], int]) -> Number:
    f = field()
    return op(x[0], y[0], f.p), None if x[1] is None or y[1] is None else op(x[1], y[1], f.q)


def _quotient(a: int, b: int, m: int) -> int:
    return a * pow(b, -1, m) % m


def _power(x: Number, base: int) -> Number:
    if x[1] is None:
        raise NotAlgebraic("exp of exp")
    return pow(base, x[1], field().p), None


def _scaled(x: Number, k: int) -> Number:
    f = field()
    return x[0] * k % f.p, None if x[1] is None else x[1] * k % f.q


def _ratio(x: Number, plus: bool, base: int) -> Number:
    """(e^x +- e^-x) / 2 as a number mod p."""
    f = field()
    a, b = _power(x, base)[0], _power(_scaled(x, -1), base)[0]
    return (a + b if plus else a - b) * pow(2, -1, f.p) % f.p, None


_TWO = 6007  # 2^t is w^(_TWO t)
_FIELD: dict[str, Callable[..., Number]] = {
    "add": lambda x, y: _both(x, y, lambda a, b, m: (a + b) % m),
    "sub": lambda x, y: _both(x, y, lambda a, b, m: (a - b) % m),
    "mul": lambda x, y: _both(x, y, lambda a, b, m: a * b % m),
    "div": lambda x, y: _both(x, y, _quotient),
    "neg": lambda x: _scaled(x, -1),
    "exp": lambda x: _power(x, field().w),
    "exp2": lambda x: _power(_scaled(x, _TWO), field().w),
    "expm1": lambda x: _FIELD["sub"](_power(x, field().w), (1, 1)),
    "sinh": lambda x: _ratio(x, False, field().w),
    "cosh": lambda x: _ratio(x, True, field().w),
    "cos": lambda x: _ratio(x, True, field().v),
    "sin": lambda x: _FIELD["div"](_ratio(x, False, field().v), (field().i, None)),
    "tanh": lambda x: _FIELD["div"](_ratio(x, False, field().w), _ratio(x, True, field().w)),
    "sigmoid": lambda x: _FIELD["div"]((1, 1), _FIELD["add"]((1, 1), _power(_scaled(x, -1), field().w))),
    "fma": lambda x, y, z: _FIELD["add"](_FIELD["mul"](x, y), z),
    "cast": lambda x: x,
}


def _two_to(x: Fraction) -> Fraction:
    if x.denominator != 1 or abs(x) > 400:
        raise NotAlgebraic("exp of a fraction among comparisons")
    return Fraction(2) ** int(x)


ORDERED: dict[str, Callable[..., Any]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "neg": lambda x: -x,
    "exp": _two_to,
    "exp2": _two_to,
    "abs": abs,
    "sign": lambda x: (x > 0) - (x < 0),
    "max": max,
    "min": min,
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
    "and": lambda x, y: x and y,
    "or": lambda x, y: x or y,
    "not": lambda x: not x,
    "where": lambda c, x, y: x if c else y,
    "isnan": lambda x: False,
    "isinf": lambda x: False,
    "fma": lambda x, y, z: x * y + z,
    "cast": lambda x: x,
}


def atoms(e: Node) -> tuple[Node, ...]:
    """The largest subexpressions that do not mix what streams with results: the symbols of the test."""
    found: dict[Node, None] = {}
    stack = [e]
    while stack:
        n = stack.pop()
        mixed = is_streamed(n) and kinds(n) & {"m", "u"}
        if mixed:
            stack.extend(reversed(n.operands))
        elif n.op != "full":
            found[n] = None
    return tuple(found)


def evaluate(
    e: Node, values: Mapping[Node, Any], table: Mapping[str, Callable[..., Any]], constant: Callable[[float], Any]
) -> Any:
    """The value of an expression whose atoms have these values. Raises NotAlgebraic."""
    done: dict[Node, Any] = dict(values)

    def go(n: Node) -> Any:
        if n in done:
            return done[n]
        if n.op == "full":
            value = value_of(n)
            assert value is not None
            if value in (float("inf"), float("-inf")) or value != value:
                raise NotAlgebraic("an infinite constant")
            done[n] = constant(value)
        elif n.op == "where" and "where" not in table:
            done[n] = go(n.operands[1 if go(n.operands[0]) else 2])
        elif n.op not in table:
            raise NotAlgebraic(n.op)
        else:
            done[n] = table[n.op](*(go(o) for o in n.operands))
        return done[n]

    return go(e)


def rank_of(elements: list[Node]) -> Rank:
    """The rank of elements that share their accumulators: one, or those of several reductions side by side."""
    try:
        return _measured(elements, _field_matrix, field().p)
    except NotAlgebraic as first:
        try:
            return _measured(elements, _ordered_matrix, (1 << 61) - 1, grows=SIZE)
        except (NotAlgebraic, ZeroDivisionError):
            return Rank(None, f"`{first}` of what streams and earlier results together has no finite sum of products")


Matrix = Callable[[list[Node], int, random.Random], list[list[int]]]


def _measured(elements: list[Node], matrix: Matrix, p: int, grows: int = LIMIT) -> Rank:
    size = SIZE
    found = matrix_rank(matrix(elements, size, random.Random(0)), p)
    if found > LIMIT or grows > LIMIT:
        again = matrix_rank(matrix(elements, 2 * size, random.Random(1)), p)
        if again > found or found > LIMIT:
            return Rank(None, f"rank {found} over {size} samples, {again} over {2 * size}: it grows")
    return Rank(found)


def _samples(
    elements: list[Node], count: int, draw: Callable[[Node], Any]
) -> tuple[list[dict[Node, Any]], list[dict[Node, Any]]]:
    """Values of the atoms that stream, and of those that do not; what is the same for a row has one value."""
    every = dict.fromkeys(a for e in elements for a in atoms(e))
    streamed = [a for a in every if is_streamed(a)]
    fixed = {a: draw(a) for a in every if kinds(a) <= {"p"}}
    states = [a for a in every if not is_streamed(a) and a not in fixed]
    xs = [{**fixed, **{a: draw(a) for a in streamed}} for _ in range(count)]
    return xs, [{a: draw(a) for a in states} for _ in range(count)]


def _field_matrix(elements: list[Node], size: int, rng: random.Random) -> list[list[int]]:
    f = field()

    def draw(a: Node) -> Any:
        return rng.random() < 0.5 if a.type.dtype.kind == "bool" else (rng.randrange(2, f.p), rng.randrange(2, f.q))

    xs, us = _samples(elements, size, draw)
    return [[evaluate(e, {**x, **u}, _FIELD, _constant)[0] for e in elements for u in us] for x in xs]


def _ordered_matrix(elements: list[Node], size: int, rng: random.Random) -> list[list[int]]:
    p = (1 << 61) - 1

    def draw(a: Node) -> Any:
        return rng.random() < 0.5 if a.type.dtype.kind == "bool" else Fraction(rng.randrange(-20, 21))

    xs, us = _samples(elements, size, draw)
    rows = [[Fraction(evaluate(e, {**x, **u}, ORDERED, Fraction)) for e in elements for u in us] for x in xs]
    return [[v.numerator * pow(v.denominator, -1, p) % p for v in row] for row in rows]


def matrix_rank(rows: list[list[int]], p: int) -> int:
    """The rank of a matrix mod p."""
    rows = [r[:] for r in rows]
    rank = 0
    for c in range(len(rows[0])):
        pivot = next((k for k in range(rank, len(rows)) if rows[k][c] % p), None)
        if pivot is None:
            continue
        rows[rank], rows[pivot] = rows[pivot], rows[rank]
        inverse = pow(rows[rank][c], -1, p)
        for k in range(rank + 1, len(rows)):
            if rows[k][c] % p:
                factor = rows[k][c] * inverse % p
                rows[k] = [(a - factor * b) % p for a, b in zip(rows[k], rows[rank])]
        rank += 1
    return rank


def coordinates(basis: list[Node], e: Node, seed: int = 0) -> list[Fraction] | None:
    """The numbers a with e = sum_i a_i basis_i whatever streams, at one random state; None where there are none.

    The basis is independent there. Numbers are reconstructed as fractions of small size."""
    f, rng = field(), random.Random(seed)

    def draw(a: Node) -> Any:
        return rng.random() < 0.5 if a.type.dtype.kind == "bool" else (rng.randrange(2, f.p), rng.randrange(2, f.q))

    xs, us = _samples([*basis, e], 2 * len(basis) + 4, draw)
    rows = [[evaluate(b, {**x, **us[0]}, _FIELD, _constant)[0] for b in (*basis, e)] for x in xs]
    return _solved(rows, f.p)


def _solved(rows: list[list[int]], p: int) -> list[Fraction] | None:
    """The combination of all columns but the last that gives the last, in fractions."""
    count = len(rows[0]) - 1
    rows = [r[:] for r in rows]
    for c in range(count):
        pivot = next((k for k in range(c, len(rows)) if rows[k][c] % p), None)
        if pivot is None:
            return None
        rows[c], rows[pivot] = rows[pivot], rows[c]
        inverse = pow(rows[c][c], -1, p)
        rows[c] = [v * inverse % p for v in rows[c]]
        rows = [r if k == c else [(a - r[c] * b) % p for a, b in zip(r, rows[c])] for k, r in enumerate(rows)]
    if any(r[count] % p for r in rows[count:]):
        return None
    return [_fraction(rows[k][count], p) for k in range(count)]


_CONSTANTS = (1.0, 0.6931471805599453, 1.4426950408889634)  # of derivative rows: numbers may be small multiples of them
_SMALL = 1 << 16


def _fraction(a: int, p: int) -> Fraction:
    """The number that is a mod p: a fraction of small numerator and denominator, or such a multiple of a constant."""
    found = [(_smallest(a * pow(_constant(c)[0], -1, p) % p, p), c) for c in _CONSTANTS]
    simple = [(f, c) for f, c in found if abs(f.numerator) < _SMALL and f.denominator < _SMALL]
    f, c = simple[0] if simple else found[0]
    return f * Fraction(c)


def _smallest(a: int, p: int) -> Fraction:
    """The fraction of the smallest numerator and denominator that is a mod p."""
    r0, r1, s0, s1 = p, a % p, 0, 1
    bound = int((p // 2) ** 0.5)
    while r1 > bound:
        q = r0 // r1
        r0, r1, s0, s1 = r1, r0 - q * r1, s1, s0 - q * s1
    return Fraction(r1, s1)
