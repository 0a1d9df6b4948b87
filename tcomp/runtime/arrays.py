"""Values of a caller as arrays that a program takes, and results as the caller's kind of array.

Never a silent change of dtype: arrays (NumPy's, PyTorch's, any with `__dlpack__` or `__array__`) must have the input's
dtype; only Python numbers and lists of them are converted, and only where no value changes. Everything else is made
right by copying: byte order, strides, alignment, subclasses. No copy is made where none is needed.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from tcomp.errors import Error
from tcomp.ir.artifact import Port
from tcomp.ir.dtype import ALL, from_numpy, to_numpy


def take(port: Port, value: Any) -> np.ndarray:
    """`value` as a C-contiguous, aligned array of the input's dtype. Raises TC0602."""
    wanted = to_numpy(ALL[port.dtype])
    array = _as_array(port, value, wanted)
    if array.dtype.newbyteorder("=") != wanted:
        raise _dtype_error(port, f"dtype {dtype_name(array.dtype)}", f"convert it: `{port.name}.astype(...)`")
    if array.dtype.isnative and array.flags.c_contiguous and array.flags.aligned:
        return array
    return np.array(array, wanted, order="C", copy=True)


def dtype_name(dtype: np.dtype) -> str:
    """The short name of a dtype where tcomp has it, else NumPy's."""
    known = from_numpy(dtype.newbyteorder("="))
    return known.name if known is not None else str(dtype)


def _as_array(port: Port, value: Any, wanted: np.dtype) -> np.ndarray:
    if _is_masked(value):
        raise _dtype_error(port, "a masked array, whose mask would be lost", "fill it: `.filled(...)`")
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value)
    if is_torch(value):
        return _from_torch(port, value)
    if isinstance(value, bool | int | float | complex | list | tuple):
        return _from_numbers(port, value, wanted)
    if hasattr(value, "__dlpack__"):
        return _from_dlpack(port, value)
    if hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
        return np.asarray(value)
    raise _dtype_error(port, f"an object of type {type(value).__name__}", "pass an array")


def _is_masked(value: Any) -> bool:
    """Whether `value` is a masked array, without importing what makes them."""
    masked = sys.modules.get("numpy.ma")
    return masked is not None and isinstance(value, masked.MaskedArray)


def _dtype_error(port: Port, found: str, hint: str) -> Error:
    return Error("TC0602", f"input `{port.name}` is {found}", port.dtype, hint=hint)


def _from_numbers(port: Port, value: Any, wanted: np.dtype) -> np.ndarray:
    """Python numbers, where the dtype holds every one of them exactly."""
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise _dtype_error(port, "a list that is no array", "make its rows equally long") from error
    if array.size == 0 and array.dtype == np.float64:
        return array.astype(wanted)  # an empty list has no dtype of its own
    if array.dtype == wanted:
        return array
    if not _holds(wanted, array):
        hint = f"pass an array: `np.asarray(..., dtype)` with the dtype of {port.dtype}"
        raise _dtype_error(
            port, f"{'a number' if array.ndim == 0 else 'a list'} that does not fit, {dtype_name(array.dtype)}", hint
        )
    return array.astype(wanted)


def _holds(wanted: np.dtype, array: np.ndarray) -> bool:
    """Whether `wanted` has the numbers of `array`, as the same kind of number or a wider one."""
    source, target = from_numpy(array.dtype), from_numpy(wanted)
    if source is None or target is None or (source.kind == "bool") != (target.kind == "bool"):
        return False
    if source.is_float and not target.is_float:
        return False
    with np.errstate(all="ignore"):
        there = array.astype(wanted)
    pairs = zip(there.ravel().tolist(), array.ravel().tolist())  # as Python numbers: they compare exactly
    return all(kept == given or given != given for kept, given in pairs)


def _from_dlpack(port: Port, value: Any) -> np.ndarray:
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise _dtype_error(port, f"an array that cannot be shared: {error}", "pass one in this machine's memory") from error


# --- PyTorch, which is never imported here -------------------------------------------------------------


def is_torch(value: Any) -> bool:
    """Whether `value` is a tensor of PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _from_torch(port: Port, tensor: Any) -> np.ndarray:
    """The tensor's memory as an array."""
    torch = sys.modules["torch"]
    if tensor.device.type != "cpu" or tensor.layout != torch.strided:
        found = f"a tensor on {tensor.device}" if tensor.device.type != "cpu" else f"a tensor of layout {tensor.layout}"
        raise _dtype_error(port, found, "use `.cpu()` or `.to_dense()` first")
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.dtype == torch.bfloat16:
        return np.asarray(tensor.view(torch.int16).numpy()).view(to_numpy(ALL["bf16"]))
    return np.asarray(tensor.numpy())


def to_torch(array: np.ndarray) -> Any:
    """A tensor over the array's memory."""
    torch: Any = sys.modules["torch"]
    if array.dtype == to_numpy(ALL["bf16"]):
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def give(results: Any, torch: bool) -> Any:
    """The result of a call, or the tuple of its results, as tensors where the caller works with PyTorch."""
    if not torch:
        return results
    return tuple(map(to_torch, results)) if isinstance(results, tuple) else to_torch(results)
