"""The borders of a model: its inputs as parameters, its outputs as results; sequences and optionals are several of these."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tcomp.errors import Error
from tcomp.frontend.onnx import containers, protos
from tcomp.frontend.onnx.containers import Maps, Maybe, TensorList, Value
from tcomp.frontend.onnx.protos import text
from tcomp.ir import dtype as dt
from tcomp.ir.artifact import Container
from tcomp.ir.dtype import DType
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import parameter

Dims = Callable[[str, int, Any], Dim]  # the size of an axis: from the owner's name, the axis, and what the file says
Fresh = Callable[[str], Dim]  # a new symbol
SUPPORTED = "a tensor, or a sequence or optional of tensors"


def input_of(p: Any, dims: Dims, fresh: Fresh) -> tuple[tuple[Node, ...], Value, tuple[Container, ...]]:
    """(parameters, the value that they make, what they are to a caller if that is no tensor) of a ValueInfoProto."""
    name, what = text(p.name), f"input '{text(p.name)}'"
    kind, inner = _kind(p.type, what)
    if kind == "tensor":
        value: Value = _tensor(name, inner, dims, what)
    elif kind == "sequence":
        value = _list(name, inner, fresh, what)
    else:
        flag = parameter(f"{name}#0", dt.bool_, ())
        own = _own_dims(name, fresh)
        value = Maybe(flag, _list(name, inner, fresh, what, 1) if "sequence" in kind else _tensor(f"{name}#1", inner, own, what))
    found = tuple(containers.parts(value))
    ports = tuple(str(n["name"]) for n in found)
    return found, value, () if kind == "tensor" else (Container("input", name, kind, ports),)


def _kind(type: Any, what: str) -> tuple[str, Any]:
    """The kind of a container and its TypeProto.Tensor."""
    match type.WhichOneof("value"):
        case "tensor_type":
            return "tensor", type.tensor_type
        case "sequence_type":
            kind, inner = _kind(type.sequence_type.elem_type, what)
            if kind == "tensor":
                return "sequence", inner
        case "optional_type":
            kind, inner = _kind(type.optional_type.elem_type, what)
            if kind in ("tensor", "sequence"):
                return f"optional {kind}", inner
    raise Error("TC0202", f"{what} of kind {type.WhichOneof('value')} is not supported", SUPPORTED, place=what)


def _tensor(name: str, tensor: Any, dims: Dims, what: str) -> Node:
    if not tensor.HasField("shape"):
        raise Error("TC0202", f"{what} of unknown rank is not supported", "a shape", place=what)
    dtype = protos.element_type(tensor.elem_type, what)
    shape = tuple(dims(name, k, d) for k, d in enumerate(tensor.shape.dim))
    protos.shape_of((d for d in shape if isinstance(d, int)), dtype, what)
    return parameter(name, dtype, shape)


def _own_dims(name: str, fresh: Fresh) -> Dims:
    """Dimensions of what may not be there: they say nothing of others of the same name."""
    return lambda _, k, d: int(d.dim_value) if d.HasField("dim_value") and d.dim_value >= 0 else fresh(f"{name}.{k}")


def _list(name: str, tensor: Any, fresh: Fresh, what: str, first: int = 0) -> TensorList:
    """A sequence. Of the shape that the file says its tensors have only the rank counts: models and their data differ in it."""
    dtype = protos.element_type(tensor.elem_type, what)
    rank = len(tensor.shape.dim) if tensor.HasField("shape") else fresh(f"{name}_rank")
    data = parameter(f"{name}#{first}", dtype, (fresh(f"{name}_elements"),))
    return TensorList(data, parameter(f"{name}#{first + 1}", dt.i64, (fresh(f"{name}_length"), rank)))


def output_of(o: Any, value: Value) -> tuple[list[Node], tuple[str, ...], tuple[Container, ...]]:
    """(results, their names, what they are to a caller if that is no tensor) of an output."""
    name = text(o.name)
    if isinstance(value, Node):
        return [value], (name,), ()
    if value == ():
        value = containers.empty(_declared(o, f"output '{name}'"), 0)
    found = containers.parts(value)
    names = tuple(f"{name}#{k}" for k in range(len(found)))
    return found, names, (Container("output", name, _shown(value, name), names),)


def _declared(o: Any, what: str) -> DType:
    """The element type that the file gives an output of no tensors."""
    return protos.element_type(_kind(o.type, what)[1].elem_type, what)


def _shown(value: Value, name: str) -> str:
    match value:
        case TensorList():
            return "sequence"
        case Maps():
            return "maps"
        case tuple() if all(isinstance(x, Node) for x in value):
            return "tuple"
        case Maybe(value=None):
            return "optional nothing"
        case Maybe(value=Node()):
            return "optional tensor"
        case Maybe(value=inner) if not isinstance(inner, Maybe):
            return f"optional {_shown(inner, name)}"
    raise Error("TC0202", f"output '{name}' is not supported: a container of containers", SUPPORTED)
