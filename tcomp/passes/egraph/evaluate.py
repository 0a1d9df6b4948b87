"""The meaning of index terms: each row a tensor with named axes, over any kind of number.

A `Domain` says what numbers are: float64 (`FLOATS`), residues modulo primes (`equal.py`), or z3's reals (`prove.py`). Arrays may
hold objects: products and sums are built from broadcasting alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from tcomp.passes.egraph.terms import Row, size_of

Named = tuple[tuple[str, ...], np.ndarray]  # axis names, sorted; the array


@dataclass(frozen=True, slots=True)
class Domain:
    """Numbers: `const` makes one, `apply` is a pointwise function by name, `largest` reduces along an axis."""

    const: Callable[[float], Any]
    add: Callable[[Any, Any], Any]
    mul: Callable[[Any, Any], Any]
    total: Callable[[np.ndarray, tuple[int, ...]], np.ndarray]  # sum over axes
    largest: Callable[[np.ndarray, int], np.ndarray]
    apply: Callable[..., Any]


def _apply_float(op: str, *xs: np.ndarray) -> np.ndarray:
    from tcomp.ir.ops import OPS

    if op == "inv":
        return np.asarray(1.0 / xs[0])
    if op == "where":
        return np.asarray(np.where(xs[0] > 0, xs[1], xs[2]))  # a condition is a leaf: any number stands for it
    return np.asarray(OPS[op].reference(*xs))


FLOATS = Domain(
    lambda v: np.float64(v),
    lambda a, b: a + b,
    lambda a, b: a * b,
    lambda x, axes: np.asarray(x.sum(axes)),
    lambda x, axis: np.asarray(x.max(axis)),
    _apply_float,
)


def align(x: Named, names: Sequence[str]) -> np.ndarray:
    """The array of `x` with an axis for each of `names` (sorted), of size 1 where x has none."""
    have, array = x
    return array.reshape([array.shape[have.index(n)] if n in have else 1 for n in names])


def union_of(values: Iterable[Named]) -> list[str]:
    return sorted({n for names, _ in values for n in names})


def evaluate(
    row: Row, kids: Sequence[Named], leaf: Callable[[Row], Named], sizes: Mapping[str, int], d: Domain = FLOATS
) -> Named:
    """The value of one row from those of its kids. `leaf(row)` gives operands. ValueError where a row has no meaning."""
    op, attrs, _ = row
    match op:
        case "leaf":
            return leaf(row)
        case "const":
            return (), np.asarray(d.const(attrs[0]))
        case "ein":
            return _ein(attrs[0], kids, sizes, d)
        case "add":
            return _pointwise(lambda *xs: reduce(d.add, xs), kids)
        case "un" | "bin" | "tri":
            return _pointwise(lambda *xs: d.apply(attrs[0], *xs), kids)
        case "max":
            return _max(attrs[0], kids[0], d)
        case "ren":
            return normal([attrs[1] if n == attrs[0] else n for n in kids[0][0]], kids[0][1])
        case "win":
            return _window(attrs, kids[0], sizes)
        case "cat":
            return _cat(attrs, kids, sizes)
        case "part":
            return _part(attrs, kids[0], sizes)
    raise ValueError(op)


def _pointwise(f: Callable[..., Any], kids: Sequence[Named]) -> Named:
    names = union_of(kids)
    return tuple(names), np.asarray(f(*(align(k, names) for k in kids)))


def _ein(summed: Sequence[str], kids: Sequence[Named], sizes: Mapping[str, int], d: Domain) -> Named:
    names = union_of(kids)
    product = reduce(d.mul, (align(k, names) for k in kids))
    absent = math.prod(size_of(sizes, n) for n in summed if n not in names)
    if absent != 1:
        product = d.mul(product, np.asarray(d.const(absent)))
    axes = tuple(k for k, n in enumerate(names) if n in summed)
    out = d.total(product, axes) if axes else product
    return tuple(n for n in names if n not in summed), np.asarray(out)


def _max(i: str, x: Named, d: Domain) -> Named:
    names, array = x
    if i not in names:
        return x
    k = names.index(i)
    return names[:k] + names[k + 1 :], np.asarray(d.largest(array, k))


def normal(names: Sequence[str], array: np.ndarray) -> Named:
    """Axes sorted by name; a name that stands twice means the diagonal."""
    names, out = list(names), array
    while repeated := next((n for n in names if names.count(n) > 1), None):
        a = names.index(repeated)
        b = names.index(repeated, a + 1)
        if out.shape[a] != out.shape[b]:
            raise ValueError("a diagonal of unequal sizes")
        out = np.diagonal(out, axis1=a, axis2=b)
        names = [n for k, n in enumerate(names) if k not in (a, b)] + [repeated]
    order = sorted(range(len(names)), key=lambda k: names[k])
    return tuple(names[k] for k in order), out.transpose(order)


def _window(attrs: tuple[Any, ...], x: Named, sizes: Mapping[str, int]) -> Named:
    h, p, r, stride, dilation = attrs
    names, array = x
    if h not in names:
        return x
    k = names.index(h)
    at = stride * np.arange(size_of(sizes, p))[:, None] + dilation * np.arange(size_of(sizes, r))[None, :]
    if at.size and at.max() >= array.shape[k]:
        raise ValueError("a window outside its operand")
    return normal([*names[:k], p, r, *names[k + 1 :]], np.take(array, at, axis=k))


def _flattened(x: Named, group: Sequence[str], rest: Sequence[str], sizes: Mapping[str, int]) -> np.ndarray:
    """x as [group flattened, rest...]; indices that it lacks repeat it."""
    names = sorted({*group, *rest})
    full = np.broadcast_to(align(x, names), [size_of(sizes, n) for n in names])
    order = [names.index(n) for n in (*group, *rest)]
    out = full.transpose(order)
    return out.reshape((-1, *out.shape[len(group) :]))


def _cat(attrs: tuple[Any, ...], kids: Sequence[Named], sizes: Mapping[str, int]) -> Named:
    n, *groups = attrs
    rest = sorted({m for k, g in zip(kids, groups) for m in k[0] if m not in g})
    parts = [_flattened(k, g, rest, sizes) for k, g in zip(kids, groups)]
    return normal([n, *rest], np.concatenate(parts, 0))


def _part(attrs: tuple[Any, ...], x: Named, sizes: Mapping[str, int]) -> Named:
    n, k, group = attrs
    names, array = x
    if n not in names:
        return x
    lead = np.moveaxis(array, names.index(n), 0)
    count = math.prod(size_of(sizes, m) for m in group)
    piece = lead[:count] if k == 0 else lead[lead.shape[0] - count :]
    shape = [*(size_of(sizes, m) for m in group), *lead.shape[1:]]
    return normal([*group, *(m for m in names if m != n)], piece.reshape(shape))
