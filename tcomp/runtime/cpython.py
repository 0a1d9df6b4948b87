"""What the native call object needs of this interpreter: checked layouts, C API functions, two types.

Nothing is assumed: offsets that the LLVM text has baked in are compared with live objects first, and where anything
differs `refusal` says what, and calls go through ctypes instead.
"""

from __future__ import annotations

import ctypes
import sys
import sysconfig
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from tcomp.runtime import loader, native

_NUMPY_ABI = 0x02000000
_API_ABI, _API_NEW_FROM_DESCR, _API_SET_BASE = 0, 94, 282  # places in NumPy's table of C functions
_C_CONTIGUOUS, _ALIGNED, _WRITEABLE = 0x1, 0x100, 0x400
_PYTHON_FUNCTIONS = (
    "Py_IncRef", "Py_DecRef", "_PyObject_New", "PyObject_Free", "PyTuple_New", "PyTuple_SetItem", "PyEval_SaveThread",
    "PyEval_RestoreThread",
)  # fmt: skip
_EXPORTS = ("tc_environment", "tc_buffer_spec", "tc_program_spec", "tc_method")
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Binding:
    """The loaded call object. program: a type with the fields `address` and `keep`. method: address of a PyMethodDef."""

    program: type
    method: int


@cache
def refusal() -> str | None:
    """Why the native call object cannot be used here; None where it can."""
    if sys.implementation.name != "cpython":
        return f"the interpreter is {sys.implementation.name}, not CPython"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "the interpreter is a free-threaded build"
    if object.__basicsize__ != 16 or ctypes.sizeof(ctypes.c_void_p) != 8 or sys.byteorder != "little":
        return "objects of this interpreter have another header"
    return _numpy_refusal()


def available() -> bool:
    """Whether calls can go through the native call object; `refusal` says why not."""
    return refusal() is None


def binding() -> Binding:
    """The call object, compiled and loaded at the first call of this function."""
    with _lock:
        return _bind()


def function_over(address: int, keep: object) -> Callable[..., Any]:
    """A builtin function that runs the descriptor at `address` and keeps `keep` alive."""
    program = binding().program()
    program.address, program.keep = address, keep
    new = ctypes.pythonapi.PyCFunction_NewEx
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    function: Callable[..., Any] = new(binding().method, program, None)
    return function


@cache
def _bind() -> Binding:
    loader.provide({name: _address_of(getattr(ctypes.pythonapi, name)) for name in _PYTHON_FUNCTIONS})
    library = native.extend("call", _EXPORTS)
    make = ctypes.pythonapi.PyType_FromSpec
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p]
    buffer, base = make(library["tc_buffer_spec"]), make(library["tc_program_spec"])
    for forever in (buffer, NotImplemented):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(forever))
    environment = (ctypes.c_void_p * 5).from_address(library["tc_environment"])
    table = _numpy_table()
    functions = table[_API_NEW_FROM_DESCR], table[_API_SET_BASE]
    environment[:] = [id(NotImplemented), id(np.ndarray), *functions, id(buffer)]
    program = type("Program", (base,), {"__slots__": ("keep",), "__module__": "tcomp"})
    return Binding(program, library["tc_method"])


def _address_of(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _numpy_table() -> Any:
    """NumPy's C API: an array of addresses."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    from numpy._core import _multiarray_umath  # type: ignore[attr-defined]  # private, yet where every extension looks

    return (ctypes.c_void_p * (_API_SET_BASE + 1)).from_address(get(_multiarray_umath._ARRAY_API, None))


def _numpy_refusal() -> str | None:
    try:
        table = _numpy_table()
    except (ImportError, AttributeError):
        return "NumPy's table of C functions is not where it was"
    abi = ctypes.PYFUNCTYPE(ctypes.c_uint)(table[_API_ABI])()
    if abi != _NUMPY_ABI:
        return f"NumPy's binary interface is {abi:#x}, not {_NUMPY_ABI:#x}"
    whole = np.zeros((3, 5), np.float32)
    shifted = np.zeros(21, np.uint8)[1:].view(np.float32)
    frozen = np.zeros(2, np.int64)
    frozen.flags.writeable = False
    if not all(_laid_out(a) for a in (whole, whole.T, shifted, frozen, np.zeros((), np.bool_))):
        return "NumPy's arrays have another layout"
    return None


def _laid_out(array: np.ndarray) -> bool:
    """Whether the fields of an array are where the LLVM text looks for them."""
    words = (ctypes.c_int64 * 9).from_address(id(array))
    rank = ctypes.c_int.from_address(id(array) + 24).value
    flags = ctypes.c_int.from_address(id(array) + 64).value
    if (words[1], words[2], rank, words[7]) != (id(np.ndarray), array.ctypes.data, array.ndim, id(array.dtype)):
        return False
    named = {_C_CONTIGUOUS: "c_contiguous", _ALIGNED: "aligned", _WRITEABLE: "writeable"}
    if any(bool(flags & bit) != getattr(array.flags, name) for bit, name in named.items()):
        return False
    return not rank or tuple((ctypes.c_int64 * rank).from_address(words[4])) == array.shape
