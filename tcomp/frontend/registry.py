"""`FUNCTIONS`: the tracing functions of `tcomp.numpy` by name. Operators, methods and NumPy's protocols look them up here."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from tcomp.errors import Error
from tcomp.frontend.places import placed

if TYPE_CHECKING:
    from tcomp.frontend.tracer import Traced

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Public:
    """A public function: what traces it, and which of its parameters take arrays (the others are static)."""

    name: str
    function: Callable[..., Any]
    arrays: tuple[str, ...]
    canonical: Callable[..., tuple[Any, ...]] | None = None  # the arguments in the form that `arrays` speaks of
    at_once: Callable[..., Any] | None = None  # what answers outside a trace where nothing needs compiling


FUNCTIONS: dict[str, Callable[..., Traced]] = {}
PUBLIC: dict[str, Public] = {}
LINALG: dict[str, Public] = {}


def with_place(function: F) -> F:
    """`function`, whose errors carry the user's running line."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Error as e:
            if e.place:
                raise
            raise placed(e) from None

    return call  # type: ignore[return-value]


def public(
    *arrays: str,
    names: tuple[str, ...] = (),
    table: dict[str, Public] = PUBLIC,
    canonical: Callable[..., tuple[Any, ...]] | None = None,
    at_once: Callable[..., Any] | None = None,
) -> Callable[[F], F]:
    """Register a function under its own name and `names`. `arrays` are the parameters that take arrays, in order."""

    def register(function: F) -> F:
        call = with_place(function)
        for name in (function.__name__.rstrip("_"), *names):
            assert name not in table, name
            table[name] = Public(name, call, arrays, canonical, at_once)
            FUNCTIONS[name if table is PUBLIC else f"linalg.{name}"] = call
        return call

    return register
