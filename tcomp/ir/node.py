"""`Node`: the one pure value of all stages - tensor, tile, scalar or index expression.

Nodes are hash-consed: two nodes of the same op, operands, attributes and type are the same object, so equality is identity
and the hash is cached. The intern table is weak and locked. Walks are iterative: programs are deeper than Python's stack.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Union

Attrs = tuple[tuple[str, Any], ...]
Dim = Union[int, "Node"]  # a size, a position: a plain integer where it is known

_table: weakref.WeakValueDictionary[tuple[Any, ...], Node] = weakref.WeakValueDictionary()
_lock = threading.RLock()
_ARITHMETIC: dict[str, Callable[..., Dim]] = {}  # filled by ir/index.py, which defines arithmetic on index expressions


def _unlock() -> None:
    """In the child of a fork: whoever held the lock is gone."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_unlock)


class Node:
    """A hash-consed value: `op` applied to `operands` under `attrs`, of type `type`. Made by `node`, never changed."""

    __slots__ = ("__weakref__", "_hash", "_order", "attrs", "op", "operands", "type")
    op: str
    operands: tuple[Node, ...]
    attrs: Attrs
    type: Any
    _hash: int
    _order: tuple[str, str]  # the place of an index atom among others; set by ir/index.py when it is first asked for

    def __hash__(self) -> int:
        return self._hash

    def __getitem__(self, name: str) -> Any:
        """The attribute `name`; KeyError where there is none."""
        for key, value in self.attrs:
            if key == name:
                return value
        raise KeyError(name)

    def get(self, name: str, default: Any = None) -> Any:
        """The attribute `name`, or `default`."""
        return next((v for k, v in self.attrs if k == name), default)

    def __repr__(self) -> str:
        attrs = "".join(f" {k}={v}" for k, v in self.attrs)
        return f"<{self.op}{attrs}: {self.type} of {len(self.operands)}>"

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("a Node never changes")

    def __add__(self, other: Dim) -> Dim:
        return _ARITHMETIC["add"](self, other)

    __radd__ = __add__

    def __sub__(self, other: Dim) -> Dim:
        return _ARITHMETIC["sub"](self, other)

    def __rsub__(self, other: Dim) -> Dim:
        return _ARITHMETIC["sub"](other, self)

    def __mul__(self, other: Dim) -> Dim:
        return _ARITHMETIC["mul"](self, other)

    __rmul__ = __mul__

    def __neg__(self) -> Dim:
        return _ARITHMETIC["mul"](self, -1)

    def __floordiv__(self, other: Dim) -> Dim:
        return _ARITHMETIC["floordiv"](self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        return _ARITHMETIC["floordiv"](other, self)

    def __mod__(self, other: Dim) -> Dim:
        return _ARITHMETIC["mod"](self, other)

    def __rmod__(self, other: Dim) -> Dim:
        return _ARITHMETIC["mod"](other, self)


def node(op: str, operands: Iterable[Node] = (), attrs: Attrs = (), type: Any = None) -> Node:
    """The node of this op, operands, attributes and type: the existing one, or a new one."""
    operands = tuple(operands)
    key = (op, operands, attrs, type)
    found = _table.get(key)
    if found is not None:
        return found
    with _lock:
        found = _table.get(key)
        if found is not None:
            return found
        new = object.__new__(Node)
        for name, value in zip(("op", "operands", "attrs", "type", "_hash"), (*key, hash(key))):
            object.__setattr__(new, name, value)
        _table[key] = new
        return new


def walk(roots: Iterable[Node]) -> Iterator[Node]:
    """Every node reachable from `roots`, once, operands before users."""
    seen: set[Node] = set()
    stack = [(r, False) for r in reversed(list(roots))]
    while stack:
        n, ready = stack.pop()
        if ready:
            yield n
            continue
        if n in seen:
            continue
        seen.add(n)
        stack.append((n, True))
        stack.extend((o, False) for o in reversed(n.operands) if o not in seen)


def rewrite(roots: Iterable[Node], change: Callable[[Node, tuple[Node, ...]], Node]) -> tuple[Node, ...]:
    """`roots` rebuilt bottom-up: `change(old, new_operands)` gives what stands for each node."""
    roots = tuple(roots)
    done: dict[Node, Node] = {}
    for n in walk(roots):
        done[n] = change(n, tuple(done[o] for o in n.operands))
    return tuple(done[r] for r in roots)


def with_operands(n: Node, operands: tuple[Node, ...]) -> Node:
    """`n` over other operands of the same types."""
    return n if operands == n.operands else node(n.op, operands, n.attrs, n.type)
