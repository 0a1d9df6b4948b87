"""What the onnx package's schemas tell: whether an operator exists at an opset, its arity, and the function body it may have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from tcomp.errors import Error
from tcomp.frontend.onnx import containers, protos
from tcomp.frontend.onnx.protos import text
from tcomp.ir.node import Node
from tcomp.ir.types import TensorType


def domain(node: Any) -> str:
    """The operator's domain; the default one is ''."""
    name = text(node.domain)
    return "" if name == "ai.onnx" else name


def opsets(imports: Iterable[Any]) -> dict[str, int]:
    """Versions by domain; TC0202 where the default domain's is newer than the installed onnx package knows."""
    import onnx

    found = {("" if text(o.domain) == "ai.onnx" else text(o.domain)): int(o.version) for o in imports}
    newest = onnx.defs.onnx_opset_version()
    if "" in found and not 1 <= found[""] <= newest:
        raise Error("TC0202", f"opset {found['']} is not supported", f"1 to {newest}", hint="a newer onnx package may know it")
    return found


def newest() -> dict[str, int]:
    """The version of the default domain that the installed onnx package writes."""
    import onnx

    return {"": onnx.defs.onnx_opset_version()}


_OLD_NAMES = ("Upsample", "Scatter", "TreeEnsembleClassifier", "TreeEnsembleRegressor")  # deprecated, in files all the same


@cache
def _schema(name: str, domain: str, opset: int) -> Any:
    import onnx

    try:
        return onnx.defs.get_schema(name, opset, domain)
    except onnx.defs.SchemaError:
        return None


def require_version(name: str, domain: str, opset: int) -> None:
    """TC0201 for an operator of a domain whose version the model leaves out."""
    if not opset:
        raise Error("TC0201", f"{name} of domain '{domain or 'ai.onnx'}', whose version the model does not name", "opset_import")


def known(name: str, domain: str, opset: int) -> bool:
    """Whether the onnx package has a schema for an operator."""
    return _schema(name, domain, opset) is not None


def find(name: str, domain: str, opset: int, inputs: Sequence[Any]) -> Any:
    """The schema of an operator; TC0202 or TC0203 where there is none or the arity does not fit."""
    schema = _schema(name, domain, opset)
    if schema is None and domain:
        raise Error("TC0202", f"{name} of domain '{domain}' is not supported")
    if schema is None or (schema.deprecated and schema.name not in _OLD_NAMES):
        raise Error("TC0202", f"{name} at opset {opset} is not supported: the operator does not exist there")
    missing = schema.inputs[len(inputs) : schema.min_input]  # those at the end that are named '' are left out
    if any(p.option.name != "Optional" for p in missing) or len(inputs) > schema.max_input:
        raise Error("TC0203", f"{name} of {len(inputs)} operands", f"{schema.min_input} to {schema.max_input}")
    required = [p for p in schema.inputs[: len(inputs)] if p.option.name == "Single"]
    if any(inputs[k] is None for k, p in enumerate(schema.inputs[: len(inputs)]) if p.option.name == "Single"):
        raise Error("TC0203", f"{name} without an operand that it needs", f"{[p.name for p in required]}")
    return schema


def defaults(schema: Any, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes of a call with the schema's defaults for those left out."""
    known = {n: a.default_value for n, a in schema.attributes.items() if a.default_value.type}
    return known | dict(attributes)


def body(schema: Any, node: Any, attributes: Mapping[str, Any], inputs: Sequence[Any], opset: int) -> Any:
    """The FunctionProto that stands for a node by its schema, or None."""
    import onnx

    if schema.has_function:
        return onnx.FunctionProto.FromString(schema.get_function_with_opset_version(_version(schema, opset)))
    if not schema.has_context_dependent_function:
        return None
    plain = onnx.NodeProto(op_type=schema.name, input=[n for n in node.input], output=[n for n in node.output])
    for name, a in attributes.items():
        copy = plain.attribute.add()
        copy.CopyFrom(a)
        copy.name, copy.ref_attr_name = name, ""
    types = [_type_proto(v).SerializeToString() for v in inputs]
    versions = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
    try:
        found = schema.get_context_dependent_function_with_opset_version(max(versions), plain.SerializeToString(), types)
    except RuntimeError as fault:  # what the onnx package's own parser and builder raise
        raise Error("TC0203", f"{schema.name}: {fault}", "a node that its function body can be built for") from fault
    return onnx.FunctionProto.FromString(found) if found else None


def _version(schema: Any, opset: int) -> int:
    return int(max((v for v in schema.function_opset_versions if v <= opset), default=schema.since_version))


def _type_proto(value: Any) -> Any:
    """The TypeProto of a tensor or of a sequence; empty where an operand is left out."""
    import onnx

    if containers.is_sequence(value):
        kind = containers.kind_of(value)
        if kind is None:
            return onnx.TypeProto()
        element = onnx.helper.make_tensor_type_proto(protos.NUMBERS[kind[0]], ["?"] * kind[1])
        return onnx.helper.make_sequence_type_proto(element)
    if not isinstance(value, Node) or not isinstance(value.type, TensorType):
        return onnx.TypeProto()
    shape = [d if isinstance(d, int) else "?" for d in value.type.shape]
    return onnx.helper.make_tensor_type_proto(protos.NUMBERS[value.type.dtype], shape)
