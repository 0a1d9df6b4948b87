"""Tracing: a Python function and abstract arguments become a GRAPH function, with the trees of its arguments and results."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tcomp.errors import Error
from tcomp.frontend import pytree
from tcomp.frontend.meetings import Meetings, choices, noting
from tcomp.frontend.promotion import element_type
from tcomp.frontend.pytree import Tree
from tcomp.frontend.spec import Spec
from tcomp.frontend.tracer import Trace, Traced, array, recording
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.dtype import DType
from tcomp.ir.graph import Func
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import parameter


@dataclass(frozen=True, slots=True)
class Abstract:
    """An argument without its value. weak: a Python scalar, which takes the dtype of what it meets."""

    dtype: DType
    shape: tuple[Dim, ...]
    weak: bool = False


@dataclass(frozen=True, slots=True)
class Program:
    """A traced function: `func`'s parameters are the array leaves of the arguments in order, its results those of `output`."""

    func: Func
    arguments: Tree
    output: Tree


def abstract(leaf: Any) -> Abstract | None:
    """What is known of an argument before the call; None for one that holds no array."""
    if isinstance(leaf, (np.ndarray, np.generic)):
        return Abstract(element_type(leaf.dtype), leaf.shape)
    if isinstance(leaf, type):
        return None
    if isinstance(leaf, Spec):
        return Abstract(leaf.dtype, leaf.shape)
    if isinstance(leaf, bool):
        return Abstract(dt.bool_, ())
    if isinstance(leaf, (int, float)):
        return Abstract(dt.f64 if isinstance(leaf, float) else dt.i64, (), weak=True)
    if hasattr(leaf, "__dlpack__") and hasattr(leaf, "dtype"):
        return Abstract(element_type(str(leaf.dtype).rpartition(".")[2]), tuple(leaf.shape))
    if hasattr(leaf, "__array__") or hasattr(leaf, "__array_interface__"):
        x = np.asarray(leaf)
        return Abstract(element_type(x.dtype), x.shape)
    return None


def trace(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Program:
    """Run `fn` on traced stand-ins for its arguments (arrays, specs, scalars, containers of them; all else is static)."""
    name, signature = getattr(fn, "__name__", "main"), signature_of(fn)
    try:
        given = signature.bind(*args, **(kwargs or {})).arguments
    except TypeError as e:
        expected = f"a spec or an array for each of {', '.join(signature.parameters)}"
        raise Error("TC0105", f"the arguments of {name}: {e}", expected) from None
    leaves, tree = pytree.flatten(dict(given))
    described = [abstract(leaf) for leaf in leaves]

    def call(values: dict[str, Any]) -> Any:
        bound = inspect.BoundArguments(signature, {})
        bound.arguments = {k: values[k] for k in given}
        return fn(*bound.args, **bound.kwargs)

    return trace_flat(call, name, tree, described, leaves)


def signature_of(fn: Callable[..., Any]) -> inspect.Signature:
    """The signature of `fn`; any arguments where it has none."""
    try:
        return inspect.signature(fn)
    except (TypeError, ValueError):
        return inspect.signature(lambda *args, **kwargs: None)


def trace_flat(
    call: Callable[[Any], Any], name: str, tree: Tree, described: Sequence[Abstract | None], leaves: Sequence[Any]
) -> Program:
    """Trace `call` on the nest of `tree` whose leaf k stands for described[k], or is the static leaves[k].

    Where symbolic sizes meet in a broadcast it is traced again with these equal, for the calls in which they are."""
    program, noted = _decided(lambda: _traced(call, name, tree, described, leaves))
    merged, account = noted.merging()
    if not merged:
        return program
    equal = [a and replace(a, shape=tuple(index.substitute(d, merged) for d in a.shape)) for a in described]
    with noting(Meetings()):
        first = _traced(call, name, tree, equal, leaves).func
    return replace(program, func=replace(first, others=(program.func,), account=account))


def _decided(attempt: Callable[[], Program]) -> tuple[Program, Meetings]:
    """The program for all calls, and the sizes that meet in it. Where it does not work with what both together give (a product
    wants the size of one of them), the size is that one, and the other is equal to it or 1."""
    noted = Meetings()
    try:
        with noting(noted):
            return attempt(), noted
    except Error as fault:
        if fault.code != "TC0102" or not noted.pairs:
            raise
        first = fault
    for chosen in choices(noted.pairs):
        again = Meetings(chosen=chosen)
        try:
            with noting(again):
                return attempt(), again
        except Error:
            continue
    raise first


def _traced(
    call: Callable[[Any], Any], name: str, tree: Tree, described: Sequence[Abstract | None], leaves: Sequence[Any]
) -> Program:
    recorded = Trace()
    names = _unique(pytree.names(tree, ""))
    params: list[Node] = []
    values: list[Any] = []
    with recording(recorded):
        for word, a, leaf in zip(names, described, leaves):
            if a is None:
                values.append(leaf)
                continue
            params.append(parameter(word, a.dtype, a.shape))
            values.append(Traced(params[-1], a.weak))
        result = call(pytree.unflatten(tree, iter(values)))
        found, output = pytree.flatten(result)
        nodes = [_result(leaf) for leaf in found]
    labels = _unique(pytree.names(output, "") if output is not pytree.LEAF else ["result"])
    func = Func(_word(name), tuple(params), tuple(nodes), tuple(f"r{n}" if n[:1].isdigit() else n for n in labels), recorded.locs)
    promised = tuple(str(s["name"]) for s in func.symbols() if s["hi"] is not None)
    return Program(replace(func, promised=promised), tree, output)


def _result(leaf: Any) -> Node:
    """A result as a node; arrays and scalars that do not depend on the arguments are constants."""
    if isinstance(leaf, Traced):
        return array(leaf).node
    try:
        return array(leaf).node
    except Error:
        found = f"a result of type {type(leaf).__name__}"
        raise Error("TC0105", found, "arrays, scalars, and tuples, lists and dicts of them") from None


def _unique(names: list[str]) -> list[str]:
    """Names as the text of a program takes them: identifiers, each once."""
    out: list[str] = []
    for n in names:
        word = _word(n)
        while word in out:
            word += "_"
        out.append(word)
    return out


def _word(name: str) -> str:
    word = "".join(c if (c.isalnum() and c.isascii()) or c == "_" else "_" for c in name) or "_"
    return f"x{word}" if word[0].isdigit() else word
