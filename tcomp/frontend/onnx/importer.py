"""From an ONNX graph to GRAPH nodes: names, subgraphs, functions, locations, and the errors' places.

An `Importer` is one attempt. It is given what is already known of symbols (`fixed`) and stops with `Equal` or `Frozen` where it
learns more; `reader.load` then starts again. Every node is imported by the row of its operator; an operator without a row is
replaced by the function body that its schema has, if any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tcomp.errors import Error
from tcomp.frontend import meetings
from tcomp.frontend.onnx import (  # noqa: F401 (their rows)
    ops_activation,
    ops_boxes,
    ops_control,
    ops_conv,
    ops_deform,
    ops_index,
    ops_legacy,
    ops_linear,
    ops_math,
    ops_matrix,
    ops_microsoft,
    ops_microsoft_attention,
    ops_microsoft_cache,
    ops_microsoft_experts,
    ops_microsoft_hash,
    ops_microsoft_image,
    ops_microsoft_norm,
    ops_microsoft_quant,
    ops_microsoft_rnn,
    ops_microsoft_state,
    ops_ml_encoders,
    ops_ml_linear,
    ops_ml_svm,
    ops_ml_trees,
    ops_norm,
    ops_pool,
    ops_quant,
    ops_random,
    ops_reduce,
    ops_resize,
    ops_rnn,
    ops_sample,
    ops_sequence,
    ops_shape,
    ops_signal,
    ops_slice,
    ops_text,
    ops_unique,
    protos,
    registry,
    schemas,
)
from tcomp.frontend.onnx.build import Equal
from tcomp.frontend.onnx.containers import Value, parts, rebuilt
from tcomp.frontend.onnx.facts import Facts
from tcomp.frontend.onnx.protos import text
from tcomp.frontend.onnx.registry import Context
from tcomp.ir.loc import Loc, Locs
from tcomp.ir.node import Node
from tcomp.ir.ops import constant
from tcomp.ir.region import deep_walk, regions

MAX_DEPTH = 24  # of subgraphs and functions in one another
MAX_NODES = 200_000  # after functions are inlined
_MALFORMED = (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, MemoryError)


@dataclass(slots=True)
class Scope:
    """Names of one graph or function body; `outer` is searched for names that subgraphs read from outside."""

    path: str
    opsets: Mapping[str, int]
    outer: Scope | None = None
    values: dict[str, Value] = field(default_factory=dict)
    attributes: Mapping[str, Any] | None = None  # of the call, in a function body

    def find(self, name: str, place: str = "") -> Value:
        """The value of a name. TC0203 at `place`, that of the reader, where there is none."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.outer
        raise Error("TC0203", f"'{name}' is read, and nothing before gives it", "nodes in topological order", place)


class Importer:
    """One attempt at a model."""

    def __init__(self, functions: Mapping[tuple[str, str, str], Any], facts: Facts, folder: Path | None) -> None:
        self.functions, self.facts, self.folder = functions, facts, folder
        self.locs = Locs()
        self._count = self._depth = 0

    def array(self, tensor: Any) -> np.ndarray:
        """The array of a TensorProto."""
        return protos.to_array(tensor, self.folder)

    def body(self, nodes: Sequence[Any], scope: Scope) -> None:
        """Import nodes in order; their results get names in `scope`."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise Error("TC0202", f"functions or subgraphs {MAX_DEPTH} deep are not supported", place=scope.path)
        try:
            for position, node in enumerate(nodes):
                self._count += 1
                if self._count > MAX_NODES:
                    raise Error("TC0202", f"a model of more than {MAX_NODES} nodes is not supported", place=scope.path)
                self._node(node, position, scope)
        finally:
            self._depth -= 1

    def _node(self, node: Any, position: int, scope: Scope) -> None:
        name = text(node.name) or f"{text(node.op_type)}#{position}"
        place = f"node '{name}' ({text(node.op_type)}) of graph '{scope.path}'"
        loc, outer = Loc(f"{scope.path}/{name}"), self.facts.visit
        self.facts.visit = lambda n: self._locate(n, loc)
        try:
            results = self._results(node, name, place, scope)
            self._bind(node, results, loc, scope)
        except Error as fault:
            raise _placed(fault, place) from fault
        except Equal as found:
            found.place = found.place or place
            raise
        except RecursionError as fault:
            raise Error("TC0202", f"{text(node.op_type)} is not supported: nested too deeply", place=place) from fault
        except _MALFORMED as fault:
            raise Error("TC0203", f"{text(node.op_type)}: {type(fault).__name__}: {fault}", "a valid node", place) from fault
        finally:
            self.facts.visit = outer

    def _bind(self, node: Any, results: Sequence[Value], loc: Loc, scope: Scope) -> None:
        """Give the results their names, in canonical form and with their location."""
        for out, value in zip(node.output, results):
            if not out:
                continue
            if text(out) in scope.values:
                raise Error("TC0203", f"gives '{text(out)}', which another node gives too", "each name once")
            if value is not None:
                scope.values[text(out)] = self._settled(value, loc)
        if any(out and text(out) not in scope.values for out in node.output):
            raise Error("TC0203", f"{text(node.op_type)} has {len(node.output)} results", f"at most {len(results)}")

    def _settled(self, value: Value, loc: Loc) -> Value:
        if not isinstance(value, Node):
            return rebuilt(value, iter([self._tensor(v, loc) for v in parts(value)]))
        return self._tensor(value, loc)

    def _tensor(self, value: Node, loc: Loc) -> Node:
        found = self.facts.settle(value)
        self.locs.add(found, loc)
        return found

    def _locate(self, n: Node, loc: Loc) -> None:
        """Note where a new node comes from, and what is in its regions and has no place yet."""
        self.locs.add(n, loc)
        for region in regions(n).values():
            for inner in deep_walk(region.results):
                if inner.op not in ("parameter", "constant") and not self.locs.of(inner):
                    self.locs.add(inner, loc)

    def _results(self, node: Any, name: str, place: str, scope: Scope) -> Sequence[Value]:
        inputs = [scope.find(text(i)) if i else None for i in node.input]
        while inputs and inputs[-1] is None:
            inputs.pop()
        domain = schemas.domain(node)
        attributes = _attributes(node, scope)
        path = f"{scope.path}/{name}"
        function = self.functions.get((domain, text(node.op_type), text(node.overload)))
        if function is not None:
            return self.inline(function, inputs, attributes, path, scope.opsets)
        opset, op = scope.opsets.get(domain, 0), text(node.op_type)
        schemas.require_version(op, domain, opset)
        handler = registry.find(op, opset, domain)
        if handler is not None and not schemas.known(op, domain, opset):
            registry.check_operands(op, handler, inputs)  # an operator of onnxruntime's own
        else:
            schema = schemas.find(op, domain, opset, inputs)
        if handler is None:
            body = schemas.body(schema, node, attributes, inputs, opset)
            if body is None:
                raise Error("TC0202", f"{op} is not supported")
            return self.inline(body, inputs, schemas.defaults(schema, attributes), path, scope.opsets)
        wanted = tuple(bool(o) for o in node.output)
        context = Context(
            op, opset, place, attributes, wanted, self.facts, self.array,
            lambda graph, values: self._branch(graph, values, path, scope),
        )  # fmt: skip
        results = handler(context, *inputs)
        return results if isinstance(results, tuple) else (results,)

    def inline(
        self, function: Any, inputs: Sequence[Value], attributes: Mapping[str, Any], path: str, outer: Mapping[str, int]
    ) -> list[Value]:
        """The results of a FunctionProto on values. Versions that it does not name are the caller's."""
        opsets = schemas.newest() | dict(outer) | schemas.opsets(function.opset_import)
        values: dict[str, Value] = {text(n): None for n in function.input}
        if len(inputs) > len(values):
            raise Error("TC0203", f"{len(inputs)} operands of function '{text(function.name)}'", f"at most {len(values)}")
        values.update(zip(values, inputs))
        known = {text(a.name): a for a in function.attribute_proto} | dict(attributes)
        scope = Scope(path, opsets, None, values, known)
        self.body(function.node, scope)
        return [scope.values.get(text(n)) for n in function.output]  # a body may leave out results that nobody asks for

    def _branch(self, graph: Any, values: Sequence[Value], path: str, outer: Scope) -> list[Value]:
        """The results of a subgraph whose parameters are `values`."""
        scope = Scope(f"{path}.{text(graph.name)}", outer.opsets, outer, {}, outer.attributes)
        self.enter(graph, scope)
        scope.values.update(zip((text(p.name) for p in graph.input), values))
        noted = meetings.noted() or meetings.Meetings()
        noted.branches += 1
        try:
            self.body(graph.node, scope)
        finally:
            noted.branches -= 1
        return [scope.find(text(o.name), f"an output of graph '{scope.path}'") for o in graph.output]

    def enter(self, graph: Any, scope: Scope) -> None:
        """Name the initializers of a graph."""
        if len(graph.sparse_initializer):
            raise Error("TC0202", "sparse initializers are not supported", place=scope.path)
        for tensor in graph.initializer:
            try:
                scope.values[text(tensor.name)] = self.facts.settle(constant(self.array(tensor)))
            except Error as fault:
                raise _placed(fault, f"initializer '{text(tensor.name)}' of graph '{scope.path}'") from fault


def _attributes(node: Any, scope: Scope) -> dict[str, Any]:
    """Attributes by name; in a function body, references stand for the call's attributes."""
    found: dict[str, Any] = {}
    for a in node.attribute:
        reference = text(a.ref_attr_name)
        if not reference:
            found[text(a.name)] = a
        elif scope.attributes is not None and reference in scope.attributes:
            found[text(a.name)] = scope.attributes[reference]
    return found


def _placed(fault: Error, place: str) -> Error:
    """`fault` at its ONNX place; what the op table refuses is a node whose operands break the operator's rules."""
    if fault.place:
        return fault
    code = fault.code if fault.code.startswith("TC02") else "TC0203"
    return Error(code, fault.found, fault.expected, place, fault.hint)
