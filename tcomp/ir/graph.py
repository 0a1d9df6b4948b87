"""GRAPH functions: a DAG of pure tensor operations from named parameters to named results, and small builders."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tcomp.ir import index
from tcomp.ir.artifact import Container
from tcomp.ir.dtype import DType, to_numpy
from tcomp.ir.loc import Locs
from tcomp.ir.node import Dim, Node, walk
from tcomp.ir.ops import apply, constant


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of a symbolic dimension: `became` a size, another dimension or bounds, for a reason (`why`), which may have a
    place in the user's program (`where`)."""

    dimension: str
    became: str
    why: str
    where: str = ""


@dataclass(frozen=True, eq=False)
class Func:
    """A GRAPH function. `locs` says where each node came from: a side table, never part of identity.

    defaults: constants of parameters that a caller may leave out (ONNX's overridable initializers).
    sizes: symbols whose values are data: the last results, one i64 for each, in order; a value may depend on earlier ones.
    containers: of parameters and results, what they are parts of, where a caller sees sequences or optionals.
    account: of its symbolic dimensions, what became of each, and why. others: the same function for calls with sizes that this
    one does not take, in the order in which they are tried. promised: symbols whose bounds the caller gave.
    """

    name: str
    params: tuple[Node, ...]
    results: tuple[Node, ...]
    result_names: tuple[str, ...]
    locs: Locs = field(default_factory=Locs)
    defaults: tuple[tuple[str, np.ndarray], ...] = ()
    sizes: tuple[Node, ...] = ()
    containers: tuple[Container, ...] = ()
    account: tuple[Fate, ...] = ()
    others: tuple[Func, ...] = ()
    promised: tuple[str, ...] = ()

    def nodes(self) -> list[Node]:
        """All nodes the results need, operands before users."""
        return list(walk(self.results))

    @property
    def visible(self) -> tuple[Node, ...]:
        """The results that a caller gets."""
        return self.results[: len(self.results) - len(self.sizes)]

    def symbols(self) -> list[Node]:
        """The symbolic dimensions of the parameters, in order of first use."""
        return index.symbols(d for p in self.params for d in p.type.shape)


def full(value: float | int | bool, dtype: DType, shape: tuple[Dim, ...] = ()) -> Node:
    """A tensor whose elements are all `value`: a rank-0 constant, broadcast."""
    scalar = constant(np.asarray(value).astype(to_numpy(dtype)))
    return broadcast(scalar, shape, ())


def broadcast(x: Node, shape: tuple[Dim, ...], axes: tuple[int, ...]) -> Node:
    """`x` with its axis k as result axis axes[k]; nothing where the shape is already right."""
    if x.type.shape == tuple(shape) and axes == tuple(range(len(shape))):
        return x
    return apply("broadcast", x, shape=tuple(shape), axes=tuple(axes))


def broadcast_trailing(x: Node, shape: tuple[Dim, ...]) -> Node:
    """`x` broadcast by NumPy's rule: its axes are the last ones of `shape`. Where sizes are neither 1 nor equal for certain, the
    call must show that they are."""
    return broadcast(stretched(x, shape[len(shape) - x.type.rank :]), shape, tuple(range(len(shape) - x.type.rank, len(shape))))


def stretched(x: Node, shape: tuple[Dim, ...]) -> Node:
    """`x` with its axes as in `shape`, but for those that are 1 for certain: repeated where they turn out to be 1."""
    if all(d in (1, e) for d, e in zip(x.type.shape, shape, strict=True)):
        return x
    return apply("stretch", x, shape=tuple(1 if d == 1 else e for d, e in zip(x.type.shape, shape)))


def reshape(x: Node, shape: Iterable[Dim]) -> Node:
    """The elements of `x`, in row-major order, in another shape."""
    shape = tuple(shape)
    return x if x.type.shape == shape else apply("reshape", x, shape=shape)


def transpose(x: Node, perm: Iterable[int]) -> Node:
    """`x` with its axis perm[k] as axis k."""
    perm = tuple(perm)
    return x if perm == tuple(range(x.type.rank)) else apply("transpose", x, perm=perm)


def cast(x: Node, dtype: DType) -> Node:
    """`x` in another dtype; itself where it has it."""
    return x if x.type.dtype == dtype else apply("cast", x, dtype=dtype)


def expand_dims(x: Node, axis: int) -> Node:
    """`x` with a new axis of size 1 at `axis`."""
    return reshape(x, (*x.type.shape[:axis], 1, *x.type.shape[axis:]))


def reduce_keep(x: Node, monoid: str, axes: tuple[int, ...]) -> Node:
    """`x` reduced over `axes` and broadcast back to its own shape."""
    small = apply("reduce", x, monoid=monoid, axes=axes)
    kept = tuple(a for a in range(x.type.rank) if a not in axes)
    return broadcast(small, x.type.shape, kept)


def uniform(n: Node) -> np.ndarray | None:
    """The element (of rank 0) that all of `n` are: of a constant of one element, however it is repeated; None where unknown."""
    while n.op in ("broadcast", "reshape"):
        n = n.operands[0]
    if n.op != "constant" or n["value"].array.size != 1:
        return None
    element: np.ndarray = n["value"].array.reshape(())
    return element


def attributes(n: Node) -> dict[str, Any]:
    """The attributes of a node as a dictionary."""
    return dict(n.attrs)
