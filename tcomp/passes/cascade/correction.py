"""How accumulators change when an earlier result does: the stable T with b(x, u') = T[u -> u'] b(x, u).

b is the closure of an element under the derivatives by its states: b_0 is the element, and d b / d u = A_u b with numbers
A_u. Then T = product over u of expm((u' - u) A_u), which is written out where A_u is a number times the identity plus a
nilpotent part, or a rotation. A softmax gives exp(u - u'), a variance a polynomial in the distance, an entropy their product.
T acts on sums over any elements, since it does not know x; it shrinks them where u moves as its reduction does, which is
checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from tcomp.ir import tile
from tcomp.ir.dtype import DType, to_numpy
from tcomp.ir.node import Node
from tcomp.ir.ops import OPS
from tcomp.ir.types import TileType
from tcomp.passes.cascade import rank
from tcomp.passes.cascade.expression import NoDerivative, add, derivative, leaves, mul, number, show, value_of

Matrix = tuple[tuple[Fraction, ...], ...]
CLOSURE = rank.LIMIT


@dataclass(frozen=True, slots=True)
class Transfer:
    """basis: the accumulators' elements over x and u leaves. matrix: T over `distance` leaves of the states, by rows."""

    basis: tuple[Node, ...]
    states: tuple[Node, ...]
    matrix: tuple[tuple[Node, ...], ...]

    def text(self) -> str:
        """`[[exp(-d0)]]`."""
        return "[" + ", ".join("[" + ", ".join(map(show, row)) + "]" for row in self.matrix) + "]"


def distance(state: Node) -> Node:
    """The leaf that stands for u' - u in a transfer's matrix."""
    return tile.ref("d" + str(state["name"])[1:], TileType(state.type.dtype))


def transfer(element: Node, starts: Mapping[Node, float]) -> Transfer | str:
    """The transfer of an element over x and u leaves, or why there is none. starts: what each state is before any element."""
    return _transfer(element, tuple(starts.get(u, 0.0) for u in leaves(element, "u")))


@lru_cache(maxsize=512)  # layers have equal elements, and several passes ask
def _transfer(element: Node, starts: tuple[float, ...]) -> Transfer | str:
    measured = rank.rank_of([element])
    if measured.rank is None:
        return f"no fixed number of sums gives {show(element)}: {measured.witness}"
    states = tuple(leaves(element, "u"))
    try:
        basis = _closure(element, states)
    except NoDerivative as e:
        return f"`{e}` in {show(element)} has no derivative"
    except rank.NotAlgebraic as e:
        return f"`{e}` in {show(element)} is not algebraic"
    if isinstance(basis, str):
        return basis
    dtype = element.type.dtype
    total = _identity(len(basis[0]), dtype)
    for u, a, start in zip(states, basis[1], starts):
        shrinking = _shrinks(a, start)
        t = _exponential(a, distance(u), dtype) if shrinking else None
        if t is None:
            return f"the correction of {show(element)} by {show(u)} " + ("has no closed form" if shrinking else "grows")
        total = _product(total, t, dtype)
    return Transfer(basis[0], states, total)


def _closure(element: Node, states: Sequence[Node]) -> tuple[tuple[Node, ...], list[Matrix]] | str:
    """The basis, and A for each state."""
    basis, done = [element], 0
    rows: list[list[Node]] = []
    while done < len(basis):
        rows.append([derivative(basis[done], u) for u in states])
        for d in rows[-1]:
            if value_of(d) != 0 and rank.coordinates(basis, d) is None:
                basis.append(d)
        if len(basis) > CLOSURE:
            return f"the derivatives of {show(element)} by its earlier results do not end after {CLOSURE}"
        done += 1
    matrices = []
    for k, u in enumerate(states):
        found = [_numbers(basis, row[k]) for row in rows]
        if any(r is None for r in found):
            return f"the derivatives of {show(element)} by {show(u)} combine with numbers that depend on earlier results"
        matrices.append(tuple(r for r in found if r is not None))
    return tuple(basis), matrices


def _numbers(basis: list[Node], e: Node) -> tuple[Fraction, ...] | None:
    """e as a combination of the basis, if it is the same one at every state."""
    if value_of(e) == 0:
        return (Fraction(0),) * len(basis)
    one, two = (rank.coordinates(basis, e, seed) for seed in (1, 2))
    return tuple(one) if one is not None and one == two else None


def _shrinks(a: Matrix, start: float) -> bool:
    """Whether exp(d A) does not grow while the state moves away from where it starts (-inf: up, inf: down, else either way)."""
    rate = sum((a[k][k] for k in range(len(a))), Fraction(0)) / len(a)
    return not np.isinf(start) or rate * (1 if start < 0 else -1) <= 0


def _exponential(a: Matrix, d: Node, dtype: DType) -> tuple[tuple[Node, ...], ...] | None:
    """expm(d a), or None where it is not one of the forms that are written out."""
    n = len(a)
    rate = sum((a[k][k] for k in range(n)), Fraction(0)) / n
    rest = tuple(tuple(v - (rate if i == j else 0) for j, v in enumerate(row)) for i, row in enumerate(a))
    scale = number(1.0, dtype) if rate == 0 else tile.pointwise("exp", mul(number(float(rate), dtype), d))
    powers = [_unit(n)]
    while len(powers) <= n and any(map(any, powers[-1])):
        powers.append(_times(powers[-1], rest))
    if not any(map(any, powers[-1])):
        return tuple(tuple(mul(scale, _series(powers, i, j, d, dtype)) for j in range(n)) for i in range(n))
    return _rotation(rest, scale, d, dtype)


def _series(powers: list[Matrix], i: int, j: int, d: Node, dtype: DType) -> Node:
    """Entry i, j of the exponential of a nilpotent matrix."""
    out, term, factorial = number(0.0, dtype), number(1.0, dtype), 1
    for k, p in enumerate(powers[:-1]):
        factorial *= max(1, k)
        term = term if k == 0 else mul(term, d)
        out = add(out, mul(number(float(p[i][j] / factorial), dtype), term))
    return out


def _rotation(rest: Matrix, scale: Node, d: Node, dtype: DType) -> tuple[tuple[Node, ...], ...] | None:
    """cos(w d) + sin(w d) / w * rest, where the square of `rest` is -w * w."""
    square = _times(rest, rest)
    n = len(rest)
    if square[0][0] >= 0 or square != tuple(tuple(square[0][0] if i == j else Fraction(0) for j in range(n)) for i in range(n)):
        return None
    w = float(-square[0][0]) ** 0.5
    angle = mul(number(w, dtype), d)
    cos, sin = tile.pointwise("cos", angle), tile.pointwise("sin", angle)
    entry = [
        [add(mul(number(float(i == j), dtype), cos), mul(number(float(rest[i][j]) / w, dtype), sin)) for j in range(n)]
        for i in range(n)
    ]
    return tuple(tuple(mul(scale, e) for e in row) for row in entry)


def _unit(n: int) -> Matrix:
    return tuple(tuple(Fraction(int(i == j)) for j in range(n)) for i in range(n))


def _times(a: Matrix, b: Matrix) -> Matrix:
    return tuple(tuple(sum((x * b[k][j] for k, x in enumerate(row)), Fraction(0)) for j in range(len(b))) for row in a)


def _identity(n: int, dtype: DType) -> tuple[tuple[Node, ...], ...]:
    return tuple(tuple(number(float(i == j), dtype) for j in range(n)) for i in range(n))


def _product(a: Sequence[Sequence[Node]], b: Sequence[Sequence[Node]], dtype: DType) -> tuple[tuple[Node, ...], ...]:
    n = len(a)

    def entry(i: int, j: int) -> Node:
        out = number(0.0, dtype)
        for k in range(n):
            out = add(out, mul(a[i][k], b[k][j]))
        return out

    return tuple(tuple(entry(i, j) for j in range(n)) for i in range(n))


def at(e: Node, values: Mapping[Node, float]) -> float:
    """The value of an expression at numbers for its leaves (others are 1), by the references of the op table."""
    done: dict[Node, np.ndarray] = {}

    def go(n: Node) -> np.ndarray:
        if n not in done:
            t = to_numpy(n.type.dtype)
            if n.op == "ref":
                done[n] = np.asarray(values.get(n, 1.0)).astype(t)
            elif n.op == "full":
                done[n] = np.asarray(n["value"].value).astype(t)
            else:
                done[n] = np.asarray(OPS[n.op].reference(*map(go, n.operands), **dict(n.attrs)))
        return done[n]

    with np.errstate(all="ignore"):
        return float(go(e))
