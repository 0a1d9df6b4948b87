"""Signatures of calls: what of the arguments decides which compiled program serves them, and how several generalise to one."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tcomp.errors import Error
from tcomp.frontend import pytree
from tcomp.frontend.program import Abstract, abstract
from tcomp.frontend.pytree import Tree
from tcomp.frontend.spec import Spec, spec
from tcomp.ir import index
from tcomp.ir.dtype import to_numpy
from tcomp.ir.node import Dim, Node

Shapes = tuple[tuple[Dim, ...], ...]
_STATIC_TYPES = (str, bytes, type, np.dtype, slice, type(Ellipsis))


@dataclass(frozen=True, slots=True)
class Call:
    """The arguments of one call, taken apart. `described` has None where a leaf is static."""

    tree: Tree
    leaves: tuple[Any, ...]
    described: tuple[Abstract | None, ...]
    statics: tuple[tuple[str, Any], ...]
    key: Hashable  # of everything but shapes
    shapes: Shapes

    def arrays(self) -> list[Any]:
        """The array leaves as executables take them."""
        return [as_array(leaf, a) for leaf, a in zip(self.leaves, self.described) if a is not None]


def taken_apart(bound: inspect.BoundArguments, static_names: frozenset[str], dynamic: Mapping[str, Any]) -> Call:
    """The call of bound arguments: static ones aside, the rest flattened and described."""
    arguments = bound.arguments
    statics = tuple((k, arguments[k]) for k in arguments if k in static_names)
    leaves, tree = pytree.flatten({k: v for k, v in arguments.items() if k not in static_names})
    described = _described(tree, leaves)
    if dynamic:
        described = _declared(tree, described, dynamic)
    fixed = tuple(frozen(leaf) for leaf, a in zip(leaves, described) if a is None)
    kinds = tuple((a.dtype, len(a.shape), a.weak) for a in described if a is not None)
    key = (tree, tuple((k, frozen(v)) for k, v in statics), fixed, kinds)
    shapes = tuple(a.shape for a in described if a is not None)
    return Call(tree, tuple(leaves), described, statics, key, shapes)


def _described(tree: Tree, leaves: Sequence[Any]) -> tuple[Abstract | None, ...]:
    """What is known of each leaf. The error of one names it."""
    out: list[Abstract | None] = []
    for k, leaf in enumerate(leaves):
        try:
            out.append(_describe(leaf))
        except Error as e:
            raise Error(e.code, f"argument `{pytree.names(tree, '')[k]}`: {e.found}", e.expected, e.place, e.hint) from None
    return tuple(out)


def _describe(leaf: Any) -> Abstract | None:
    found = abstract(leaf)
    if found is None and not isinstance(leaf, _STATIC_TYPES):
        hint = "name the argument in static_argnames= if it is no array"
        raise Error("TC0105", f"an argument of type {type(leaf).__name__}", "arrays, scalars and containers of them", hint=hint)
    return found


def frozen(value: Any) -> Hashable:
    """A static value as a part of a key: equal keys mean equal values of equal types."""
    kind = type(value)
    match value:
        case np.ndarray() | np.generic() if not value.dtype.hasobject:
            return (kind, value.dtype, value.shape, value.tobytes())
        case np.ndarray():
            return (kind, value.dtype, value.shape, frozen(value.tolist()))
        case list() | tuple():
            return (kind, tuple(map(frozen, value)))
        case set() | frozenset():
            return (kind, frozenset(map(frozen, value)))
        case dict():
            return (kind, tuple((frozen(k), frozen(v)) for k, v in value.items()))
        case slice():
            return (kind, frozen((value.start, value.stop, value.step)))
        case float() | complex():
            return (kind, repr(value))
    try:
        hash(value)
    except TypeError:
        raise Error("TC0105", f"a static argument of type {kind.__name__}", "a hashable value") from None
    return (kind, value)


def as_array(leaf: Any, a: Abstract) -> Any:
    """An array argument in native byte order; what speaks DLPack stays as it is."""
    if isinstance(leaf, np.ndarray):
        return leaf if leaf.dtype.isnative else leaf.astype(leaf.dtype.newbyteorder("="))
    if hasattr(leaf, "__dlpack__") and not isinstance(leaf, np.generic):
        return leaf
    try:
        return np.asarray(leaf, to_numpy(a.dtype))
    except OverflowError:
        raise Error("TC0602", f"the Python integer {leaf}", "one of 64 bits") from None


def _declared(tree: Tree, described: tuple[Abstract | None, ...], dynamic: Mapping[str, Any]) -> tuple[Abstract | None, ...]:
    """The descriptions with the declared symbolic dimensions in place of sizes."""
    names = pytree.names(tree, "")
    for name in dynamic:
        if name not in names:
            raise Error("TC0105", f"dynamic= of `{name}`", f"an array argument: {', '.join(names)}")
    return tuple(_with_symbols(n, a, dynamic[n]) if n in dynamic else a for n, a in zip(names, described))


def _with_symbols(name: str, a: Abstract | None, declared: Any) -> Abstract:
    if a is None:
        raise Error("TC0105", f"dynamic= of `{name}`", "an array argument")
    if isinstance(declared, (str, Spec)):
        wanted = spec(declared) if isinstance(declared, str) else declared
        fits = wanted.dtype == a.dtype and len(wanted.shape) == len(a.shape)
        fits = fits and all(isinstance(w, Node) or w == d for w, d in zip(wanted.shape, a.shape))
        if not fits:
            raise Error("TC0601", f"`{name}`: {a.dtype}{list(a.shape)}", str(wanted))
        return Abstract(a.dtype, wanted.shape, a.weak)
    sizes = list(a.shape)
    for axis, word in declared.items():
        if not -len(sizes) <= axis < len(sizes):
            raise Error("TC0104", f"dynamic= of axis {axis} of `{name}`, of rank {len(sizes)}", "an axis of the argument")
        sizes[axis] = index.symbol(word) if isinstance(word, str) else word.node
    return Abstract(a.dtype, tuple(sizes), a.weak)


def generalised(seen: Sequence[Shapes]) -> Shapes:
    """Shapes that hold for all of `seen`: a size that varies is a symbol, the same one where sizes always agreed. Symbols that
    are there already keep their names to themselves."""
    symbols: dict[tuple[Dim, ...], Dim] = {}
    taken = {s["name"] for s in index.symbols(d for shapes in seen for shape in shapes for d in shape)}
    names = (name for k in itertools.count() if (name := f"n{k}") not in taken)
    out = []
    for leaf in zip(*seen):
        dims = []
        for column in zip(*leaf):
            if any(d != column[0] for d in column) and column not in symbols:
                symbols[column] = index.symbol(next(names))
            dims.append(symbols.get(column, column[0]))
        out.append(tuple(dims))
    return tuple(out)


def fits(pattern: Shapes, shapes: Shapes) -> bool:
    """Whether sizes agree with a pattern: its sizes equal, each symbol one value."""
    values: dict[Node, Dim] = {}
    for wanted, found in zip(pattern, shapes):
        for w, d in zip(wanted, found):
            if w != d and (not isinstance(w, Node) or values.setdefault(w, d) != d):
                return False
    return True
