"""Arguments and results as nested containers: a flat list of leaves and a hashable tree that puts them back.

Containers are tuples, named tuples, lists, dicts (in order of their keys as given), dataclasses (unless their `is_leaf` is true)
and None (no leaves).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tcomp.errors import Error


@dataclasses.dataclass(frozen=True, slots=True)
class Tree:
    """The shape of a nest. kind: the container's type, `Leaf` for a leaf. keys: of a dict's or dataclass's items.

    key_types: of a dict's keys that are no text, which may be equal and yet differ (1, True and 1.0).
    """

    kind: type
    keys: tuple[Any, ...] = ()
    children: tuple[Tree, ...] = ()
    key_types: tuple[type, ...] = ()

    @property
    def leaves(self) -> int:
        return 1 if self.kind is Leaf else sum(c.leaves for c in self.children)


class Leaf:
    """Marks a leaf in a Tree."""


_COMMON = frozenset((np.ndarray, int, float, bool, str))  # leaves that need no closer look
LEAF = Tree(Leaf)
NOTHING = Tree(type(None))


def flatten(x: Any) -> tuple[list[Any], Tree]:
    """The leaves of `x` from left to right, and its tree. TC0105 where it is nested without end."""
    leaves: list[Any] = []
    try:
        return leaves, _flatten(x, leaves)
    except RecursionError:
        found = f"a {type(x).__name__} that is nested deeper than Python's calls, or holds itself"
        raise Error("TC0105", found, "arrays, scalars and containers of them") from None


def _flatten(x: Any, leaves: list[Any]) -> Tree:
    kind = type(x)
    if kind in _COMMON:
        leaves.append(x)
        return LEAF
    if x is None:
        return NOTHING
    if kind is tuple or kind is list or isinstance(x, (tuple, list)):
        return Tree(kind, (), tuple(_flatten(e, leaves) for e in x))
    if isinstance(x, dict):
        key_types = tuple(type(k) for k in x if type(k) is not str)
        return Tree(kind, tuple(x), tuple(_flatten(e, leaves) for e in x.values()), key_types)
    if dataclasses.is_dataclass(x) and not isinstance(x, type) and not getattr(x, "is_leaf", False):
        names = tuple(f.name for f in dataclasses.fields(x) if f.init)
        return Tree(kind, names, tuple(_flatten(getattr(x, n), leaves) for n in names))
    leaves.append(x)
    return LEAF


def unflatten(tree: Tree, leaves: Iterator[Any]) -> Any:
    """The nest with these leaves."""
    if tree.kind is Leaf:
        return next(leaves)
    if tree is NOTHING or tree.kind is type(None):
        return None
    make: Callable[..., Any] = tree.kind
    items = [unflatten(c, leaves) for c in tree.children]
    if dataclasses.is_dataclass(tree.kind):
        return make(**dict(zip(tree.keys, items)))
    if issubclass(tree.kind, dict):
        return _as_dict(tree.kind, dict(zip(tree.keys, items)))
    return make(*items) if hasattr(tree.kind, "_fields") else make(items)


def _as_dict(kind: type, pairs: dict[Any, Any]) -> Any:
    """A dict of this kind: plain ones as they are, others (OrderedDict, defaultdict) filled."""
    if kind is dict:
        return pairs
    made = kind()
    made.update(pairs)
    return made


def names(tree: Tree, prefix: str) -> list[str]:
    """A name for each leaf: the path to it, joined by `_`."""
    if tree.kind is Leaf:
        return [prefix]
    keys = tree.keys or getattr(tree.kind, "_fields", tuple(range(len(tree.children))))
    return [n for k, c in zip(keys, tree.children) for n in names(c, f"{prefix}_{_word(k)}" if prefix else _word(k))]


def _word(key: Any) -> str:
    return "".join(c if c.isalnum() or c == "_" else "_" for c in str(key))
