"""Random GRAPH programs over the op table, and inputs for them.

    program = generate(seed)
    arrays = program.inputs(program.sizes[0])

A program is made to have one right answer, so that a comparison may be strict. It has one of two styles:

* `exact`: every float is a small whole number, which all its sums can hold, so that any order of adding gives the same;
* `wild`: floats of the whole range, NaN, infinities and both zeros among them, in operations that are rounded at most once.
  What is approximated (`exp`, ...) is only moved about afterwards.

Each operation is run on the inputs while the program grows, and dropped where it would break its style's promise. Dimensions
are 0, 1, primes, multiples of the vector length and their neighbours, and the symbols n and m: one compiled program serves all
`sizes`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tcomp.errors import Error
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.dtype import DType, to_numpy
from tcomp.ir.graph import Func
from tcomp.ir.interp.graph import evaluate
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import OPS, constant, parameter
from tcomp.testing.makers import DTYPES, MAKERS, Maker, Pool

N, M = index.symbol("n"), index.symbol("m")
LARGEST = {"n": 33, "m": 5}  # the sizes at which a program is tried while it grows; smaller ones take parts of these inputs
SIZES: tuple[dict[str, int], ...] = (LARGEST, {"n": 16, "m": 1}, {"n": 1, "m": 4}, {"n": 0, "m": 2}, {"n": 7, "m": 0})
STATIC = (0, 1, 1, 2, 3, 5, 7, 16, 17, 33)
APPROXIMATED = frozenset(
    {
        *("rsqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh"),
        *("cosh", "tanh", "asinh", "acosh", "atanh", "erf", "sigmoid", "pow", "atan2"),
    }
)
SUMS = frozenset(["reduce", "scan", "dot", "conv", "scatter_elements", "scatter_nd"])
MOST_ELEMENTS, MOST_RESULTS = 1 << 14, 5
_WHOLE = {"f16": 1 << 11, "bf16": 1 << 8, "f32": 1 << 24, "f64": 1 << 53}  # whole numbers up to this are exact
_SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 65504.0, 3e38, -3e38, 1e-30, 1e9)


@dataclass(frozen=True, slots=True)
class Program:
    """A random program. approximate: its results that may differ by a few units in the last place."""

    seed: int
    style: str
    func: Func
    approximate: frozenset[str]
    sizes: tuple[dict[str, int], ...] = SIZES

    def inputs(self, sizes: Mapping[str, int]) -> list[np.ndarray]:
        """Inputs at these sizes (at most `LARGEST`): the same values always, as far as they fit."""
        return [_part(_values(p, self.style, self.seed), p, sizes) for p in self.func.params]


def generate(
    seed: int,
    steps: int = 7,
    style: str | None = None,
    dtypes: tuple[DType, ...] = DTYPES,
    makers: tuple[Maker, ...] = MAKERS,
) -> Program:
    """The program of this seed: about `steps` operations, made by these makers, over values of these dtypes."""
    rng = random.Random(seed)
    chosen = style or rng.choice(("exact", "wild"))
    growing = _Growing(rng, seed, chosen, dtypes, makers)
    for _ in range(60 * steps):
        if len(growing.made) >= steps:
            break
        growing.grow()
    return growing.program()


class _Growing:
    """A program in the making: the values so far, and what they are at the largest sizes."""

    def __init__(self, rng: random.Random, seed: int, style: str, dtypes: tuple[DType, ...], makers: tuple[Maker, ...]) -> None:
        self.rng, self.seed, self.style, self.makers = rng, seed, style, makers
        self.values: dict[Node, np.ndarray] = {}
        self.approximate: set[Node] = set()
        self.made: list[Node] = []
        self.params = [parameter("sizes", dt.f32, (N, M))]  # binds the symbols, whatever else there is
        self.params += [parameter(f"p{k}", rng.choice(dtypes), self._shape()) for k in range(rng.randint(1, 3))]
        self.pool = Pool(rng, [*self.params, *self._constants(dtypes)], (N, M))
        for n in self.pool.nodes:
            self.values[n] = n["value"].array if n.op == "constant" else _values(n, style, seed)

    def _shape(self) -> tuple[Dim, ...]:
        rank = self.rng.choice((0, 1, 1, 2, 2, 2, 3, 3, 4))
        dims = [self.rng.choice((N, M, *STATIC)) for _ in range(rank)]
        if _count(dims) > MOST_ELEMENTS // 4:
            return self._shape()
        return tuple(dims)

    def _constants(self, dtypes: tuple[DType, ...]) -> list[Node]:
        source = parameter("constant", self.rng.choice(dtypes), (self.rng.choice((1, 3, 16)),) * self.rng.randint(0, 2))
        return [constant(_values(source, self.style, self.seed + 1))]

    def grow(self) -> None:
        """Try one more operation, with the helpers it needs (broadcasts, casts, positions)."""
        maker = self.rng.choice(self.makers)
        try:
            new = maker(self.rng, self.pool)
        except (Error, ValueError, IndexError):  # operands that do not fit
            return
        if new is not None and self._accept(new):
            self.made.append(new)
            self.pool.nodes.append(new)

    def _accept(self, new: Node) -> bool:
        """Whether `new` and the helpers below it keep the promise; their values are kept if so."""
        fresh: dict[Node, np.ndarray] = {}
        approximate: set[Node] = set()
        for n in Func("f", (), (new,), ("r",)).nodes():
            if n in self.values:
                continue
            if n.op not in ("sort", "top_k") and (n.type.rank > 4 or _count(n.type.shape) > MOST_ELEMENTS):
                return False
            operands = [fresh[o] if o in fresh else self.values[o] for o in n.operands]
            value = self._value(n, operands)
            if value is None:
                return False
            fresh[n] = value
            if any(o in approximate or o in self.approximate for o in n.operands):
                if OPS[n.op].kind != "movement":
                    return False
                approximate.add(n)
            elif n.op in APPROXIMATED:
                approximate.add(n)
        self.values |= fresh
        self.approximate |= approximate
        return True

    def _value(self, n: Node, operands: list[np.ndarray]) -> np.ndarray | None:
        """What `n` is at the largest sizes; None where that has no single right answer."""
        if self.style == "exact" and n.op in APPROXIMATED | {"sqrt", "div", "bitcast"}:
            return None
        if self.style == "wild" and n.op in SUMS and _adds_floats(n):
            return None
        if (n.op == "cast" and not _casts(operands[0], n.type.dtype)) or (n.op == "bitcast" and _any_nan(operands[0])):
            return None
        try:
            with np.errstate(all="ignore"):
                value = evaluate(n, operands, LARGEST)
                bound = evaluate(n, [_absolute(o) for o in operands], LARGEST) if n.op in SUMS else value
        except (Error, ValueError):
            return None
        whole = self.style == "wild" or isinstance(value, tuple) or (_is_whole(value) and _is_whole(bound))
        return value if whole else None

    def program(self) -> Program:
        used = {o for n in Func("f", (), tuple(self.made), ()).nodes() for o in n.operands}
        results = list(dict.fromkeys(n for n in self.made if n not in used))[-MOST_RESULTS:] or self.params[:1]
        results += [n for n in self.made if n in used and self.rng.random() < 0.1]
        names = tuple(f"r{k}" for k in range(len(results)))
        func = Func(f"random{self.seed}", tuple(self.params), tuple(results), names)
        return Program(self.seed, self.style, func, frozenset(k for k, n in zip(names, results) if n in self.approximate))


def _count(dims: list[Dim] | tuple[Dim, ...]) -> int:
    return int(np.prod([max(1, index.evaluate(d, LARGEST)) for d in dims], dtype=np.int64))


def _adds_floats(n: Node) -> bool:
    """Whether an operation adds or multiplies floats up, in whatever order."""
    return n.type.dtype.is_float and n.get("monoid", "add") in ("add", "mul")


def _casts(x: np.ndarray, to: DType) -> bool:
    """Whether a cast has one right answer: floats to integers must fit."""
    if not to.is_integer or x.dtype.kind in "biu":
        return True
    info = np.iinfo(to_numpy(to))
    wide = np.trunc(x.astype(np.float64))
    return bool(np.all((wide >= float(info.min)) & (wide < float(info.max))))


def _any_nan(x: np.ndarray) -> bool:
    return x.dtype.kind not in "biu" and bool(np.isnan(x.astype(np.float64)).any())


def _absolute(x: np.ndarray) -> np.ndarray:
    return x if x.dtype.kind in "biu" else np.abs(x)


def _is_whole(x: np.ndarray) -> bool:
    """Whether every float is a whole number that its dtype holds with all below it."""
    if x.dtype.kind in "biu":
        return True
    t = dt.from_numpy(x.dtype)
    assert t is not None
    wide = x.astype(np.float64)
    return bool(np.all(np.isfinite(wide)) and np.all(np.abs(wide) <= _WHOLE[t.name]) and np.all(wide == np.trunc(wide)))


def _values(p: Node, style: str, seed: int) -> np.ndarray:
    """A parameter's values at the largest sizes."""
    rng = np.random.default_rng([seed, sum(map(ord, p["name"]))])
    shape = tuple(index.evaluate(d, LARGEST) for d in p.type.shape)
    t: DType = p.type.dtype
    if t.kind == "bool":
        return np.asarray(rng.integers(0, 2, shape) > 0)
    if t.is_integer:
        info = np.iinfo(to_numpy(t))
        small = rng.integers(max(-4, info.min), 4, shape, dtype=to_numpy(t), endpoint=True)
        any_of_all = rng.integers(info.min, info.max, shape, dtype=to_numpy(t), endpoint=True)
        return np.where((rng.random(shape) < 0.5) | (style == "exact"), small, any_of_all)
    if style == "exact":
        return np.asarray(rng.integers(-3, 4, shape)).astype(to_numpy(t))
    normal = rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4, shape)
    with np.errstate(all="ignore"):
        return np.where(rng.random(shape) < 0.3, rng.choice(_SPECIAL, shape), normal).astype(to_numpy(t))


def _part(values: np.ndarray, p: Node, sizes: Mapping[str, int]) -> np.ndarray:
    shape = [index.evaluate(d, sizes) for d in p.type.shape]
    return np.ascontiguousarray(values[tuple(slice(d) for d in shape)]).reshape(shape)
