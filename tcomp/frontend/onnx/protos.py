"""From the bytes of a file to checked protobuf messages and NumPy arrays.

Nothing here trusts the file: sizes are compared with the data that is there before anything is allocated, external data is read
only from inside the model's folder, and whatever protobuf raises becomes TC0201.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from tcomp.errors import Error
from tcomp.ir import dtype as dt
from tcomp.ir.dtype import DType, to_numpy

MAX_FILE = 1 << 31  # protobuf's own limit
MAX_BYTES = 1 << 40  # of one tensor of a model: what is larger is a damaged file, not a wish
INT, FLOAT, STRING, TENSOR, GRAPH, FLOATS, INTS, STRINGS = 2, 1, 3, 4, 5, 6, 7, 8  # AttributeProto.type

_DTYPES: dict[int, DType] = {
    1: dt.f32, 2: dt.u8, 3: dt.i8, 4: dt.u16, 5: dt.i16, 6: dt.i32, 7: dt.i64,
    9: dt.bool_, 10: dt.f16, 11: dt.f64, 12: dt.u32, 13: dt.u64, 16: dt.bf16,
    17: dt.f8e4m3fn, 18: dt.f8e4m3fnuz, 19: dt.f8e5m2, 20: dt.f8e5m2fnuz, 21: dt.u4, 22: dt.i4, 23: dt.f4e2m1, 24: dt.f8e8m0,
    25: dt.u2, 26: dt.i2,
}  # fmt: skip
NUMBERS: dict[DType, int] = {v: k for k, v in _DTYPES.items()}
_NAMES = {0: "undefined", 8: "string", 14: "complex64", 15: "complex128"}
_FIELDS = {1: "float_data", 7: "int64_data", 11: "double_data", 12: "uint64_data", 13: "uint64_data"}  # others: int32_data


def text(name: str | bytes) -> str:
    """A string of the file, which need not be valid UTF-8."""
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else name


def element_type(number: int, what: str) -> DType:
    """The DType of an ONNX element type; TC0202 where there is none."""
    found = _DTYPES.get(number)
    if found is None:
        raise Error("TC0202", f"{what} of element type {_NAMES.get(number, number)} is not supported")
    return found


def parse_model(source: str | os.PathLike[str] | bytes | Any) -> tuple[Any, Path | None]:
    """The ModelProto of a path, of bytes or of itself, and the folder that its external data may be in."""
    import onnx

    if isinstance(source, onnx.ModelProto):
        return source, None
    data, folder = (bytes(source), None) if isinstance(source, bytes | bytearray | memoryview) else _read(Path(source))
    try:
        return onnx.ModelProto.FromString(data), folder
    except Exception as fault:  # protobuf's DecodeError, or what its other implementations raise
        raise Error("TC0201", "not a readable ONNX model: " + str(fault), "the bytes of an ONNX file") from fault


def _read(path: Path) -> tuple[bytes, Path]:
    try:
        size = path.stat().st_size
        if size > MAX_FILE:
            raise Error("TC0201", f"{path} has {size} bytes", "at most 2 GiB", hint="keep the weights as external data")
        return path.read_bytes(), path.resolve().parent
    except OSError as fault:
        raise Error("TC0201", f"cannot read {path}: {fault.strerror}", "an ONNX file") from fault


def shape_of(dims: Iterable[int], dtype: DType, what: str) -> tuple[int, ...]:
    """Plain dimensions, refused (TC0201) where they are negative or name more bytes than any machine has."""
    shape = tuple(int(d) for d in dims)
    if any(d < 0 for d in shape) or math.prod(shape) * dtype.bytes > MAX_BYTES or len(shape) > 32:
        raise Error("TC0201", f"{what} has shape {list(shape)[:33]}", "a shape that fits into memory")
    return shape


def to_array(tensor: Any, folder: Path | None) -> np.ndarray:
    """The read-only array of a TensorProto; raw data is not copied, external data is memory-mapped."""
    what = f"tensor '{text(tensor.name)}'" if tensor.name else "a tensor"
    dtype = element_type(tensor.data_type, what)
    shape = shape_of(tensor.dims, dtype, what)
    if tensor.data_location == 1:
        return _external(tensor, dtype, shape, folder, what)
    if tensor.HasField("segment"):
        raise Error("TC0202", f"{what} in segments is not supported")
    count = math.prod(shape)
    flat = _raw(tensor.raw_data, dtype, count, what) if tensor.raw_data else _typed(tensor, dtype, count, what)
    if flat.size != math.prod(shape):
        raise Error("TC0201", f"{what} of shape {list(shape)} holds {flat.size} elements", f"{math.prod(shape)}")
    return _sealed(flat.reshape(shape))


def _sealed(x: np.ndarray) -> np.ndarray:
    x.setflags(write=False)
    return x


def packed_bytes(count: int, dtype: DType) -> int:
    """Bytes that a file has for `count` elements: those of less than a byte lie close together."""
    return -(-count * dtype.bits // 8)


def _unpacked(data: np.ndarray, count: int, dtype: DType) -> np.ndarray:
    """Elements of less than a byte, one for each byte; in the file the first is the lowest bits."""
    shifts = np.arange(0, 8, dtype.bits, dtype=np.uint8)
    codes = (data[:, None] >> shifts) & np.uint8(2**dtype.bits - 1)
    return codes.reshape(-1)[:count].view(to_numpy(dtype))


def _raw(data: bytes, dtype: DType, count: int, what: str) -> np.ndarray:
    if dtype.bits < 8:
        if len(data) != packed_bytes(count, dtype):
            raise Error("TC0201", f"{what} holds {len(data)} bytes", f"{packed_bytes(count, dtype)}")
        return _unpacked(np.frombuffer(data, np.uint8), count, dtype)
    if len(data) % dtype.bytes:
        raise Error("TC0201", f"{what} holds {len(data)} bytes", f"a multiple of {dtype.bytes}")
    x = np.frombuffer(data, to_numpy(dtype).newbyteorder("<") if to_numpy(dtype).isbuiltin == 1 else to_numpy(dtype))
    if dtype == dt.bool_:
        return np.asarray(x.view(np.uint8) != 0)
    return x.astype(to_numpy(dtype), copy=False)


def _typed(tensor: Any, dtype: DType, count: int, what: str) -> np.ndarray:
    """The elements of the typed field: bits of 16-bit floats and small integers come in int32_data, those of less than a byte
    packed into bytes."""
    values = getattr(tensor, _FIELDS.get(tensor.data_type, "int32_data"))
    held = packed_bytes(count, dtype) if dtype.bits < 8 else count
    if len(values) != held:
        raise Error("TC0201", f"{what} holds {len(values)} elements", f"{held}")
    if dtype.is_storage:
        codes = np.array(values, np.int64).astype(np.uint8)
        return _unpacked(codes, count, dtype) if dtype.bits < 8 else codes.view(to_numpy(dtype))
    if dtype.is_float and dtype.bits == 16:
        bits = np.array(values, np.int32).astype(np.uint16)
        return bits.view(np.float16 if dtype == dt.f16 else ml_dtypes.bfloat16)
    wide = {"float_data": np.float32, "double_data": np.float64, "uint64_data": np.uint64, "int64_data": np.int64}
    x = np.array(values, wide.get(_FIELDS.get(tensor.data_type, ""), np.int32))
    return x.astype(to_numpy(dtype))


def _external(tensor: Any, dtype: DType, shape: tuple[int, ...], folder: Path | None, what: str) -> np.ndarray:
    entries = {text(e.key): text(e.value) for e in tensor.external_data}
    path = _inside(entries.get("location", ""), folder, what)
    count = math.prod(shape)
    offset, size = _number(entries, "offset", 0, what), packed_bytes(count, dtype)
    length = _number(entries, "length", size, what)
    if length != size or offset + size > path.stat().st_size:
        found = f"{what}: {length} bytes at {offset} of {path.name}, which has {path.stat().st_size}"
        raise Error("TC0204", found, f"{size} bytes inside the file")
    if size == 0:
        return _sealed(np.zeros(shape, to_numpy(dtype)))
    data = np.memmap(path, np.uint8, "r", offset, (size,))
    if dtype == dt.bool_:
        return _sealed((np.asarray(data) != 0).reshape(shape))
    if dtype.bits < 8:
        return _sealed(_unpacked(np.asarray(data), count, dtype).reshape(shape))
    return _sealed(np.asarray(data).view(to_numpy(dtype)).reshape(shape))


def _number(entries: dict[str, str], key: str, default: int, what: str) -> int:
    value = entries.get(key, str(default))
    if not value.isascii() or not value.isdigit() or len(value) > 18:
        raise Error("TC0204", f"{what}: external {key} is {value[:40]!r}", "a number of bytes")
    return int(value)


def _inside(location: str, folder: Path | None, what: str) -> Path:
    """The file at `location`, links resolved, which has to be inside `folder`."""
    if folder is None:
        raise Error(
            "TC0204", f"{what} is in the external file {location!r}, and the model has no folder",
            hint="give the path of the model, or load its external data first",
        )  # fmt: skip
    relative = Path(location)
    if not location or "\0" in location or relative.is_absolute() or ".." in relative.parts:
        raise Error("TC0204", f"{what} is at {location!r}", "a file in the model's folder")
    path = (folder / relative).resolve()
    if not path.is_relative_to(folder):
        raise Error("TC0204", f"{what} is at {location!r}, a link out of the model's folder", "a file in the model's folder")
    if not path.is_file():
        raise Error("TC0204", f"{what}: there is no file {location!r} beside the model")
    return path
