"""`load`: an ONNX model becomes a GRAPH function.

Parameters are named as the model's inputs, results as its outputs. Named dimensions become symbols, which `dims` may fix. Where
the model needs two symbols to be equal, or the value of an overridable initializer as a size, the import starts again
knowing that. Where symbols meet in a broadcast the function is one for calls in which they are equal, and `others` holds one for
all calls.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tcomp.errors import Error
from tcomp.frontend.meetings import Meetings, noting
from tcomp.frontend.onnx import protos, regions, schemas
from tcomp.frontend.onnx.build import Equal, is_unsure
from tcomp.frontend.onnx.facts import DATA, STEP, Facts, Frozen
from tcomp.frontend.onnx.importer import Importer, Scope
from tcomp.frontend.onnx.ports import input_of, output_of
from tcomp.frontend.onnx.protos import text
from tcomp.ir import index
from tcomp.ir.graph import Fate, Func
from tcomp.ir.node import Dim, Node
from tcomp.ir.types import Size, Sizes

_ATTEMPTS = 256


def load(source: str | os.PathLike[str] | bytes | Any, dims: Sizes | None = None) -> Func:
    """The GRAPH function of an ONNX model: a path, the bytes of a file, or a ModelProto.

    dims: of named dimensions sizes, or bounds (least, most), or ranges of multiples. Raises `Error`: TC0201 (not a readable
    model), TC0202 (not supported), TC0203 (a node that breaks its operator's rules), TC0204 (external data).
    """
    model, folder = protos.parse_model(source)
    try:
        return _Model(model, folder, dims or {}).load()
    except (ValueError, RecursionError, MemoryError) as fault:
        raise Error("TC0201", f"not a readable ONNX model: {fault}", "a valid model") from fault


class _Model:
    """A model and what earlier attempts have learned: which symbols stand for what, which defaults have to be constants."""

    def __init__(self, model: Any, folder: Path | None, dims: Sizes) -> None:
        self.graph, self.folder = model.graph, folder
        self.opsets = schemas.opsets(model.opset_import) or ({"": 1} if model.ir_version < 3 else {})
        self.functions = {(_domain(f), text(f.name), text(f.overload)): f for f in model.functions}
        initializers = {text(t.name) for t in self.graph.initializer}
        inputs = [text(p.name) for p in self.graph.input]
        self.overridable = {n for n in inputs if n in initializers} if model.ir_version >= 4 else set()
        self.inputs = [p for p in self.graph.input if text(p.name) not in initializers or text(p.name) in self.overridable]
        self.dims, self.symbols = dims, _Symbols(self.inputs, dims)
        self.weights: dict[str, Node] = {}
        self._check_names(inputs)

    def _check_names(self, inputs: list[str]) -> None:
        if not self.graph.node and not self.graph.output:
            raise Error("TC0201", "a model without nodes and outputs", "an ONNX model")
        if len(set(inputs)) != len(inputs) or "" in inputs:
            raise Error("TC0201", "two inputs of one name, or one without a name", "each name once")

    def load(self) -> Func:
        """The function; where symbols meet in broadcasts, the one in which they are equal, and behind it the general one."""
        noted = Meetings()
        refused: tuple[Fate, ...] = ()
        try:
            general = self._settled(noted)
        except Error as e:
            if not noted.pairs:
                raise
            general, refused = None, (Fate("all", "only equal ones where some meet", f"{e.code}: {e.found}", e.place),)
        if general is not None and not noted.pairs:
            return general
        self.symbols = _Symbols(self.inputs, self.dims)
        try:
            equal = self._settled(Meetings(equal=True))
        except Error:
            if general is None:
                raise
            return general
        return replace(equal, others=(general,) if general is not None else (), account=(*equal.account, *refused))

    def _settled(self, noted: Meetings) -> Func:
        """The function, once all is known that has to be, and the meetings of the last attempt."""
        for _ in range(_ATTEMPTS):
            noted.forget()
            try:
                with noting(noted):
                    return replace(self._attempt(), account=self.symbols.account(), promised=self.symbols.promised())
            except Equal as found:
                if is_unsure(found.symbol, found.other):
                    raise Error("TC0202", f"a model that only works where {found} is not supported: the data decides") from found
                self.symbols.fix(found)
            except Frozen as found:
                self.overridable.remove(found.name)
                self.inputs = [p for p in self.inputs if text(p.name) != found.name]
        raise Error("TC0202", f"a model that needs more than {_ATTEMPTS} equal dimensions is not supported")

    def _attempt(self) -> Func:
        importer = Importer(self.functions, Facts(frozenset(self.overridable)), self.folder)
        name = re.sub(r"\W", "_", text(self.graph.name)) or "main"
        scope = Scope(text(self.graph.name) or "main", self.opsets)
        if not self.weights:
            importer.enter(self.graph, scope)
            self.weights.update((n, v) for n, v in scope.values.items() if isinstance(v, Node))
        scope.values.update((n, importer.facts.settle(w)) for n, w in self.weights.items())
        defaults = tuple((n, self.weights[n]["value"].array) for n in self.weights if n in self.overridable)
        read = [input_of(p, self.symbols.dim, self.symbols.fresh) for p in self.inputs]
        params = tuple(n for found, _, _ in read for n in found)
        for p, (_, array) in ((p, d) for p in params for d in defaults if d[0] == p["name"]):
            self._check_default(p, array)
        for p in params:
            importer.facts.settle(p)
        scope.values.update((text(p.name), value) for p, (_, value, _) in zip(self.inputs, read))
        importer.body(self.graph.node, scope)
        written = [output_of(o, scope.find(text(o.name), f"an output of graph '{scope.path}'")) for o in self.graph.output]
        results = tuple(importer.facts.settle(r) for found, _, _ in written for r in found)
        names = tuple(n for _, found, _ in written for n in found)
        func = Func(name if not name[0].isdigit() else f"_{name}", params, results, names, importer.locs, defaults)
        func = replace(func, containers=tuple(c for part in (*read, *written) for c in part[2]))
        return _with_sizes(func, importer.facts.sizes, importer.facts.required)

    def _check_default(self, p: Node, array: np.ndarray) -> None:
        shape = p.type.shape
        fits = len(shape) == array.ndim and all(isinstance(d, Node) or d == n for d, n in zip(shape, array.shape))
        if not fits:
            raise Error("TC0203", f"the default of input '{p['name']}' has shape {array.shape}", str(p.type))


def _with_sizes(func: Func, sizes: Mapping[Node, Node], required: Set[Node]) -> Func:
    """`func` with the values of the sizes that are data, of those that it needs or that must be bound, as further results."""
    found = regions.needed_sizes(func.results, tuple(sizes.items()), required)
    values, symbols = tuple(v for v, _ in found), tuple(s for _, s in found)
    names = tuple(f"size {s['name']}" for s in symbols)
    return replace(func, results=func.results + values, result_names=func.result_names + names, sizes=symbols)


def _domain(function: Any) -> str:
    return "" if text(function.domain) == "ai.onnx" else text(function.domain)


def _is_size(given: Any) -> bool:
    """Whether a size, two in order, or a range of multiples are what `dims` may hold."""
    if isinstance(given, range):
        return len(given) > 0 and given.step > 0 and given.start >= 0 and given.start % given.step == 0
    low, high = given if isinstance(given, tuple) and len(given) == 2 else (given, given)
    return given is None or (isinstance(low, int) and isinstance(high, int) and 0 <= low <= high)


def _facts(given: Size) -> tuple[int, int | None, int]:
    """Bounds of a symbol, and what it is a multiple of."""
    match given:
        case range():
            return given[0], given[-1], given.step
        case tuple():
            return given[0], given[1], 1
    return 0, None, 1


class _Symbols:
    """The symbols of the model's dimensions: unique names, sizes that the caller fixes or bounds, equalities found on the way."""

    def __init__(self, inputs: list[Any], dims: Sizes) -> None:
        self._given = dict(dims)
        self._names: dict[str, str] = {}  # the file's name -> the symbol's
        self._fixed: dict[Node, Dim] = {}
        self._fates: list[Fate] = []
        named = {text(d.dim_param) for p in inputs for d in p.type.tensor_type.shape.dim if d.dim_param}
        unknown = [n for n in dims if n not in named]
        if unknown:
            raise Error("TC0105", f"dims names '{unknown[0]}'", f"a dimension of the model: {', '.join(sorted(named)) or 'none'}")
        if not all(map(_is_size, dims.values())):
            raise Error("TC0105", f"dims = {dims}", "sizes from 0, pairs (least, most), ranges of multiples, or None")

    def dim(self, owner: str, axis: int, d: Any) -> Dim:
        """The size of an input's axis."""
        if d.HasField("dim_value") and d.dim_value >= 0:
            return int(d.dim_value)
        name = text(d.dim_param)
        name = name if re.search(r"\w", name) else ""  # "?" names nothing
        given = self._given.get(name)
        if isinstance(given, int):
            return given
        return self._now(index.symbol(self._name(name or f"{owner}.{axis}"), *_facts(given)))

    def fresh(self, name: str) -> Dim:
        """A symbol that no dimension of the file names."""
        return self._now(index.symbol(self._name(name), 0))

    def _now(self, symbol: Dim) -> Dim:
        """What a symbol has become."""
        for _ in range(len(self._fixed) + 1):
            symbol = index.substitute(symbol, self._fixed)
        return symbol

    def _name(self, name: str) -> str:
        if name not in self._names:
            plain = re.sub(r"\W", "_", name, flags=re.ASCII)
            plain = f"d_{plain}" if not plain or plain[0].isdigit() or plain.startswith((DATA, STEP)) else plain
            taken = set(self._names.values())
            unique, k = plain, 2
            while unique in taken:
                unique, k = f"{plain}_{k}", k + 1
            self._names[name] = unique
        return self._names[name]

    def fix(self, found: Equal) -> None:
        self._fixed[found.symbol] = found.other
        self._fates.append(found.fate())

    def promised(self) -> tuple[str, ...]:
        """The symbols whose bounds the caller gave."""
        return tuple(self._name(name) for name, given in self._given.items() if isinstance(given, tuple | range))

    def account(self) -> tuple[Fate, ...]:
        """What became of dimensions: by the caller's wish, and by equalities."""
        fixed = [Fate(name, str(g), "given by dims") for name, g in self._given.items() if isinstance(g, int)]
        return (*fixed, *self._fates)
