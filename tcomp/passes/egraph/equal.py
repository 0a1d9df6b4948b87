"""Whether two terms are equal: random tests in finite fields, and in float64 with the error met.

Fields (Schwartz and Zippel): sums of products are polynomials, and two that differ agree at a random point with probability of at
most degree / prime. `exp` needs a second prime q dividing p - 1: exp(x) mod p is w^(x mod q) for a w of order q, which has all
laws of exp, and leaves no value mod q; so every level of nested exps takes one more prime, each large. Other functions are random
but fixed functions of their argument. A maximum has no meaning in a field: there, and for constants that were rounded, only
float64 decides. Sizes are small ones, as the rules read none.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from tcomp.passes.egraph.evaluate import FLOATS, Domain, Named, align, normal, union_of
from tcomp.passes.egraph.instances import leaf_values, value_of
from tcomp.passes.egraph.terms import Row, Terms, size_of
from tcomp.passes.primes import is_prime

BITS = 61  # of the smallest prime
TOLERANCE = 1e-7


@dataclass(frozen=True, slots=True)
class Verdict:
    """how: `field` or `float64`. bound: the chance that a wrong pair passed, or the largest relative error that was met."""

    equal: bool
    how: str
    bound: float


def equal(t: Terms, a: int, b: int, seed: int = 0) -> Verdict:
    """Compare two rows of a table."""
    t = Terms(small_sizes(t), t.rows, t._known)
    if not any(row[0] == "max" for row in _below(t, (a, b))):
        verdict = _in_field(t, a, b, seed)
        if verdict is not None and verdict.equal:
            return verdict
    error = difference(t, [(a, b)], seed)
    return Verdict(error <= TOLERANCE, "float64", error)


def difference(t: Terms, pairs: Sequence[tuple[int, int]], seed: int = 0) -> float:
    """The largest error between pairs of rows in float64, relative to the largest element."""
    leaf, known = leaf_values(t.sizes, seed), dict[int, Named]()
    worst = 0.0
    with np.errstate(all="ignore"):
        for a, b in pairs:
            left, right = (value_of(t, r, leaf, FLOATS, known) for r in (a, b))
            worst = max(worst, _error(left, right))
    return worst


def chance(t: Terms, pairs: Sequence[tuple[int, int]], seed: int = 0) -> float | None:
    """The chance that some pair is wrong and yet equal at a random point of the fields; None where they decide nothing."""
    worst = 0.0
    for a, b in pairs:
        if any(row[0] == "max" for row in _below(t, (a, b))):
            return None
        verdict = _in_field(t, a, b, seed)
        if verdict is None or not verdict.equal:
            return None
        worst = max(worst, verdict.bound)
    return worst


def _error(left: Named, right: Named) -> float:
    """Infinite where there is nothing to compare."""
    names = union_of((left, right))
    x, y = np.broadcast_arrays(align(left, names), align(right, names))
    both = np.isfinite(x) & np.isfinite(y)
    if not both.any():
        return math.inf
    scale = float(np.abs(x[both]).max(initial=0.0))
    return float(np.abs(x[both] - y[both]).max(initial=0.0)) / (scale or 1.0)


def small_sizes(t: Terms) -> dict[str, int]:
    """Sizes of 2 and 3 in turn, equal where a name takes the place of another; windows and joined indices fit."""
    group: dict[str, str] = {n: n for n in t.sizes}

    def find(n: str) -> str:
        n = n if n in group else n.rstrip("'")
        while group[n] != n:
            n = group[n]
        return n

    for op, attrs, _ in t.rows:
        if op == "ren":
            group[find(attrs[0])] = find(attrs[1])
    roots = list(dict.fromkeys(map(find, t.sizes)))
    small = {n: 2 + k % 2 for k, n in enumerate(roots)}
    for op, attrs, _ in reversed(t.rows):
        if op == "win":
            h, p, r, stride, dilation = attrs
            small[find(h)] = stride * (small[find(p)] - 1) + dilation * (small[find(r)] - 1) + 1
    out = {n: small[find(n)] for n in t.sizes}
    for op, attrs, _ in t.rows:
        if op == "cat":
            out[attrs[0]] = sum(int(np.prod([size_of(out, n) for n in g])) for g in attrs[1:])
    return out


def _below(t: Terms, roots: Sequence[int]) -> list[Row]:
    seen: set[int] = set()
    stack = list(roots)
    while stack:
        r = stack.pop()
        if r not in seen:
            seen.add(r)
            stack.extend(t.rows[r][2])
    return [t.rows[r] for r in seen]


# --- finite fields ----------------------------------------------------------------------------------------


@cache
def primes(levels: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Primes p0, p1, .. of which each divides the one before less 1, and for each but the last an element of that order."""
    last = (1 << BITS) + 1
    while not is_prime(last):
        last += 2
    found = [last]
    orders: list[int] = []
    for _ in range(levels - 1):
        q, k = found[0], 2
        while not is_prime(k * q + 1):
            k += 2
        p = k * q + 1
        w = next(w for g in range(2, 1000) if (w := pow(g, k, p)) != 1)
        found.insert(0, p)
        orders.insert(0, w)
    return tuple(found), tuple(orders)


class _Number:
    """An element of all the fields at once; arithmetic keeps the levels that both operands have."""

    __slots__ = ("residues",)

    def __init__(self, residues: Sequence[int]) -> None:
        self.residues = tuple(residues)


class _Field:
    """The domain of `evaluate` over `_Number`."""

    def __init__(self, levels: int, seed: int) -> None:
        self.primes, self.orders = primes(levels)
        self.seed = seed

    def number(self, value: float) -> _Number:
        f = Fraction(value)
        return _Number([f.numerator * pow(f.denominator, -1, p) % p for p in self.primes])

    def zip(self, f: Callable[[int, int, int], int], a: _Number, b: _Number) -> _Number:
        return _Number([f(x, y, p) for x, y, p in zip(a.residues, b.residues, self.primes)])

    def random(self, *key: object) -> _Number:
        return _Number([self._hash(level, *key) % p for level, p in enumerate(self.primes)])

    def _hash(self, *key: object) -> int:
        return int.from_bytes(hashlib.blake2b(repr((self.seed, *key)).encode(), digest_size=32).digest(), "big")

    def function(self, op: str, *xs: _Number) -> _Number:
        if op == "inv":
            return _Number([pow(x, -1, p) for x, p in zip(xs[0].residues, self.primes)])
        if op == "exp":
            lower = xs[0].residues[1:]
            return _Number([pow(w, x, p) for w, x, p in zip(self.orders, lower, self.primes)])
        levels = min(len(x.residues) for x in xs)
        if levels == 0:
            raise ValueError("more levels of exp than primes")
        made = self.random(op, *(x.residues for x in xs))
        return _Number(made.residues[:levels])

    def domain(self) -> Domain:
        add = np.frompyfunc(lambda a, b: self.zip(lambda x, y, p: (x + y) % p, a, b), 2, 1)
        mul = np.frompyfunc(lambda a, b: self.zip(lambda x, y, p: x * y % p, a, b), 2, 1)

        def total(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
            for axis in sorted(axes, reverse=True):
                x = np.asarray(add.reduce(x, axis=axis), object)
            return x

        def apply(op: str, *xs: np.ndarray) -> np.ndarray:
            return np.asarray(np.frompyfunc(lambda *a: self.function(op, *a), len(xs), 1)(*xs), object)

        def largest(x: np.ndarray, axis: int) -> np.ndarray:
            raise ValueError("a maximum in a field")

        return Domain(self.number, add, mul, total, largest, apply)

    def leaf(self, sizes: dict[str, int]) -> Callable[[Row], Named]:
        def make(row: Row) -> Named:
            name, indices, _ = row[1]
            out = np.empty([size_of(sizes, i) for i in indices], object)
            for at in np.ndindex(out.shape):
                out[at] = self.random(name, at)
            return normal(indices, out)

        return make


def _depth(t: Terms, row: int, known: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """How deep exps are nested, and the degree of the polynomial."""
    if row not in known:
        op, attrs, kids = t.rows[row]
        below = [_depth(t, k, known) for k in kids]
        depth = max((d for d, _ in below), default=0)
        degrees = [g for _, g in below]
        degree = sum(degrees) if op == "ein" else max(degrees, default=1)
        known[row] = (depth + ((op, attrs) == ("un", ("exp",))), degree)
    return known[row]


def _in_field(t: Terms, a: int, b: int, seed: int) -> Verdict | None:
    """The verdict of one random point; None where some value does not exist there."""
    known: dict[int, tuple[int, int]] = {}
    (d1, g1), (d2, g2) = _depth(t, a, known), _depth(t, b, known)
    field = _Field(max(d1, d2) + 1, seed)
    domain, leaf, values = field.domain(), field.leaf(t.sizes), dict[int, Named]()
    try:
        left, right = (value_of(t, r, leaf, domain, values) for r in (a, b))
    except ValueError:  # a number without an inverse, a window outside its operand
        return None
    names = union_of((left, right))
    x, y = np.broadcast_arrays(align(left, names), align(right, names))
    pairs: list[tuple[Any, Any]] = list(zip(x.reshape(-1), y.reshape(-1)))
    same = all(all(p == q for p, q in zip(m.residues, n.residues)) for m, n in pairs)
    return Verdict(same, "field", max(g1, g2) / field.primes[-1])
