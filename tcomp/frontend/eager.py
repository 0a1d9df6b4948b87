"""Functions of `tcomp.numpy` outside a trace: each runs at once, compiled and cached like a jitted function of its own."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from tcomp.frontend import pytree
from tcomp.frontend.jit import Jit, Options
from tcomp.frontend.program import trace_flat
from tcomp.frontend.registry import Public
from tcomp.frontend.tracer import Traced, active
from tcomp.ir.interp import graph

_SEQUENCES = ("arrays", "operands", "conditions", "choices")  # parameters that hold several arrays


def dual(p: Public) -> Callable[..., Any]:
    """The public function: traces where a trace is active or an argument is traced, else runs at once."""
    jitted = functools.cache(lambda: Jit(p.function, Options(), _static(p)))

    @functools.wraps(p.function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if active() is not None or any(isinstance(a, Traced) for a in args):
            return p.function(*args, **kwargs)
        if p.at_once is not None:
            return p.at_once(*args, **kwargs)
        if not kwargs and (result := jitted().at_hand(*args)) is not NotImplemented:
            return result
        if p.canonical is not None:
            args = p.canonical(*args, **kwargs)
        try:
            bound = jitted().signature.bind(*args, **kwargs)
        except TypeError as e:
            raise TypeError(f"{p.name}: {e}") from None
        for name in p.arrays:
            if name in bound.arguments:
                bound.arguments[name] = _operand(name, bound.arguments[name])
        if not any(_holds_array(bound.arguments.get(name)) for name in p.arrays):
            return _at_once(p, bound)
        return jitted()(*bound.args, **bound.kwargs)

    return call


def _static(p: Public) -> list[str]:
    return [n for n in inspect.signature(p.function).parameters if n not in p.arrays]


def _operand(name: str, value: Any) -> Any:
    """An array argument: lists of numbers are arrays, Python scalars stay weak."""
    if name in _SEQUENCES and isinstance(value, (list, tuple)):
        return tuple(np.asarray(v) if isinstance(v, (list, tuple)) else v for v in value)
    return np.asarray(value) if isinstance(value, (list, tuple)) else value


def _holds_array(value: Any) -> bool:
    if isinstance(value, tuple):
        return any(map(_holds_array, value))
    return value is not None and not isinstance(value, (bool, int, float))


def _at_once(p: Public, bound: inspect.BoundArguments) -> Any:
    """A function of no arrays: its program has no inputs, so its value is computed here."""
    program = trace_flat(lambda _: p.function(*bound.args, **bound.kwargs), p.name, pytree.NOTHING, (), ())
    return pytree.unflatten(program.output, iter(graph.run(program.func, [])))
