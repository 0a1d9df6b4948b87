"""Numbers in text, bit for bit: short decimals where they are exact, else hex floats; NaNs with a payload by their bits."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from tcomp.ir.dtype import DType, to_numpy

INLINE = 16  # elements of a constant that are written out; larger ones are named by their digest


def show_float(x: float) -> str:
    """A Python float: `0.5`, `-inf`, `nan`, `0x1.921fb6p+1`."""
    if not np.isfinite(x):
        return "nan" if x != x else "inf" if x > 0 else "-inf"
    short = repr(x)
    if len(short) <= 6:
        return short
    mantissa, exponent = x.hex().split("p")
    return f"{mantissa.rstrip('0').rstrip('.')}p{exponent}"


def read_float(text: str) -> float:
    """The inverse of `show_float`. ValueError where the text is no number."""
    return float.fromhex(text) if "0x" in text else float(text)


def show_element(x: np.generic, dtype: DType) -> str:
    """One element of an array."""
    if not dtype.is_float:
        return str(bool(x)).lower() if dtype.kind == "bool" else str(int(x))
    value = float(x)
    if value != value and _bits(np.asarray(x)) != _bits(np.asarray(np.nan, to_numpy(dtype))):
        return f"nan:{_bits(np.asarray(x)):#x}"
    return show_float(value)


def _bits(x: np.ndarray) -> int:
    return int.from_bytes(x.tobytes(), "little")


def read_element(text: str, dtype: DType) -> np.ndarray:
    """The inverse of `show_element`, as an array of rank 0. ValueError where the text does not fit the dtype."""
    t = to_numpy(dtype)
    if text.startswith("nan:"):
        return np.frombuffer(int(text[4:], 16).to_bytes(t.itemsize, "little"), t)[0:1].reshape(())
    if dtype.is_float:
        return np.asarray(read_float(text)).astype(t)
    if dtype.kind == "bool":
        return np.asarray({"true": True, "false": False}[text])
    return np.asarray(int(text), t)


def show_array(array: np.ndarray, dtype: DType) -> str:
    """The elements of a small array in row-major order, in brackets."""
    return f"[{', '.join(show_element(x, dtype) for x in array.reshape(-1))}]"


def read_array(texts: Sequence[str], dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    """The array of these elements. ValueError where their number or text does not fit."""
    out = np.empty(len(texts), to_numpy(dtype))
    for k, text in enumerate(texts):
        out[k : k + 1].view(np.uint8)[...] = np.frombuffer(read_element(text, dtype).tobytes(), np.uint8)
    return out.reshape(shape)


def digest(array: np.ndarray) -> str:
    """sha256 of dtype, shape and bytes (row-major): the name of a large constant in text."""
    state = hashlib.sha256(f"{array.dtype.name} {array.shape} ".encode())
    state.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return state.hexdigest()
