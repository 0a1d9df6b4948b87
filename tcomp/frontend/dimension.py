"""`Dimension`: a symbolic size as users meet it in `x.shape`. Sizes that are known are plain integers, never Dimensions."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from tcomp.frontend.operators import of_scalars
from tcomp.frontend.places import fault
from tcomp.frontend.registry import FUNCTIONS
from tcomp.ir import index
from tcomp.ir.node import Dim, Node


class Dimension:
    """A size that is known only when the program is called. Integer arithmetic gives a Dimension or an int; arithmetic with
    floats and arrays gives a traced array; comparisons answer where all values agree, else they raise TC0101."""

    __array_ufunc__ = None
    __slots__ = ("node",)
    weak = True  # as a Python integer: it takes the dtype of what it meets

    def __init__(self, node: Node) -> None:
        self.node = node

    def __repr__(self) -> str:
        return index.show(self.node)

    def __hash__(self) -> int:
        return hash(self.node)

    def _unknown(self, use: str) -> NoReturn:
        hint = "a symbolic size has no value while tracing: leave the dimension out of `dynamic=` to specialise on it"
        raise fault("TC0101", f"{use} the symbolic size `{self}`", "a size that is known while tracing", hint)

    def __index__(self) -> int:
        self._unknown("an integer was asked of")

    def __int__(self) -> int:
        self._unknown("`int()` of")

    def __float__(self) -> float:
        self._unknown("`float()` of")

    def __bool__(self) -> bool:
        low, high = index.bounds(self.node)
        if (low is not None and low > 0) or (high is not None and high < 0):
            return True
        self._unknown("`bool()` of")

    def _compare(self, other: Any, decide: Callable[[Dim, Dim], Dim], word: str) -> bool:
        answer = decide(self.node, raw(other))
        if isinstance(answer, int):
            return bool(answer)
        self._unknown(f"`{word} {other!r}` of")

    def __eq__(self, other: object) -> bool:
        return self._compare(other, index.equal, "==") if is_size(other) else NotImplemented

    def __ne__(self, other: object) -> bool:
        return not self._compare(other, index.equal, "!=") if is_size(other) else NotImplemented

    def __lt__(self, other: Any) -> bool:
        return self._compare(other, index.less, "<") if is_size(other) else NotImplemented

    def __gt__(self, other: Any) -> bool:
        return self._compare(other, lambda a, b: index.less(b, a), ">") if is_size(other) else NotImplemented

    def __le__(self, other: Any) -> bool:
        return self._compare(other, lambda a, b: index.less(a, index.add(b, 1)), "<=") if is_size(other) else NotImplemented

    def __ge__(self, other: Any) -> bool:
        return self._compare(other, lambda a, b: index.less(b, index.add(a, 1)), ">=") if is_size(other) else NotImplemented


def is_size(x: object) -> bool:
    """Whether `x` can stand for a size: an integer or a Dimension."""
    return isinstance(x, (int, np.integer, Dimension)) and not isinstance(x, bool)


def raw(x: Any) -> Dim:
    """The index expression of a size."""
    return x.node if isinstance(x, Dimension) else operator.index(x)


def shown(x: Dim) -> int | Dimension:
    """An index expression as users meet it."""
    value = index.constant(x)
    if value is not None:
        return value
    assert isinstance(x, Node)
    return Dimension(x)


def _traced(function: str, a: Any, b: Any) -> Any:
    """The traced `function` of a size and a number, as weak as they are."""
    return of_scalars(FUNCTIONS[function](a, b), a, b)


def _arithmetic(exact: Callable[[Dim, Dim], Dim] | None, function: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The operator and its reflection: `exact` on sizes, the traced `function` on anything else."""

    def forward(self: Dimension, other: Any) -> Any:
        if exact is not None and is_size(other):
            return shown(exact(self.node, raw(other)))
        return _traced(function, self, other) if isinstance(other, (int, float, Dimension)) else NotImplemented

    def backward(self: Dimension, other: Any) -> Any:
        if exact is not None and is_size(other):
            return shown(exact(raw(other), self.node))
        return _traced(function, other, self) if isinstance(other, (int, float, np.generic)) else NotImplemented

    return forward, backward


for _name, _exact, _function in (
    ("add", index.add, "add"),
    ("sub", index.sub, "subtract"),
    ("mul", index.mul, "multiply"),
    ("floordiv", index.floordiv, "floor_divide"),
    ("mod", index.mod, "remainder"),
    ("truediv", None, "divide"),
    ("pow", None, "power"),
):
    _forward, _backward = _arithmetic(_exact, _function)
    setattr(Dimension, f"__{_name}__", _forward)
    setattr(Dimension, f"__r{_name}__", _backward)
setattr(Dimension, "__neg__", lambda self: shown(index.mul(self.node, -1)))  # noqa: B010 - beside its siblings
