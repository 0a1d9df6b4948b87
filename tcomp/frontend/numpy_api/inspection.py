"""Questions about shapes and dtypes that are answered at once, traced arrays or not; dtypes and constants."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from tcomp.frontend import promotion
from tcomp.frontend.registry import FUNCTIONS
from tcomp.frontend.tracer import Traced, array, operand
from tcomp.ir.dtype import STORED, to_numpy


def result_type(*arrays_and_dtypes: Any) -> np.dtype:
    """The dtype that these arrays, dtypes and scalars have in common."""
    return to_numpy(promotion.common(tuple(map(_kind, arrays_and_dtypes))))


def _kind(x: Any) -> promotion.Kind:
    if isinstance(x, (np.dtype, type, str)):
        return to_numpy(promotion.element_type(x))
    return operand(x).kind


def can_cast(from_: Any, to: Any, casting: str = "safe") -> bool:
    """Whether a cast is allowed."""
    source = from_ if isinstance(from_, (type, str)) else getattr(from_, "dtype", from_)
    return bool(np.can_cast(source, to, casting))  # type: ignore[arg-type]


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is of a kind of the array API standard, or equal to a dtype."""
    return bool(np.isdtype(np.dtype(dtype), kind))


def finfo(x: Any) -> Any:
    """Limits of a float dtype."""
    return ml_dtypes.finfo(np.dtype(x) if isinstance(x, (type, str)) else getattr(x, "dtype", x))


def iinfo(x: Any) -> Any:
    """Limits of an integer dtype."""
    return np.iinfo(x if isinstance(x, (type, str)) else getattr(x, "dtype", x))


def shape(x: Any) -> tuple[Any, ...]:
    """The shape of an array or nested list."""
    return array(x).shape if isinstance(x, Traced) else np.shape(x)


def ndim(x: Any) -> int:
    """The rank of an array or nested list."""
    return len(shape(x))


def size(x: Any, axis: int | None = None) -> Any:
    """The number of elements, or the size along an axis."""
    if axis is not None:
        return shape(x)[axis]
    return x.size if isinstance(x, Traced) else np.size(x)


def iscomplexobj(x: Any) -> bool:
    """False: arrays here are real."""
    return False


def isrealobj(x: Any) -> bool:
    """True: arrays here are real."""
    return True


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> np.ndarray:
    """The array behind a DLPack capsule's owner."""
    return np.from_dlpack(x)


_NUMERIC = (
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "bool_", "intp"),
)


class NamespaceInfo:
    """What the array API standard lets a program ask about this namespace."""

    def capabilities(self) -> dict[str, Any]:
        return {"boolean indexing": False, "data-dependent shapes": False, "max dimensions": 64}

    def default_device(self) -> str:
        return "cpu"

    def devices(self) -> list[str]:
        return ["cpu"]

    def default_dtypes(self, *, device: Any = None) -> dict[str, np.dtype]:
        names = {"real floating": np.float64, "integral": np.int64, "indexing": np.int64}
        return {k: np.dtype(v) for k, v in names.items()}

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, np.dtype]:
        found = {n: np.dtype(n) for n in ("bool", *_NUMERIC[:8], "float32", "float64")}
        return {n: t for n, t in found.items() if kind is None or np.isdtype(t, kind)}


def namespace_info() -> NamespaceInfo:
    """Devices, dtypes and capabilities, as the array API standard asks for them."""
    return NamespaceInfo()


QUESTIONS: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (result_type, can_cast, isdtype, finfo, iinfo, shape, ndim, size, iscomplexobj, isrealobj, from_dlpack)
}
FUNCTIONS.update(QUESTIONS)
QUESTIONS["__array_namespace_info__"] = namespace_info

DTYPES: dict[str, Any] = {
    **{n: getattr(np, n) for n in _NUMERIC},
    "bool": np.bool_,
    "bfloat16": ml_dtypes.bfloat16,
    **{t.name: t.type for t in map(to_numpy, STORED)},
    "dtype": np.dtype,
    "ndarray": np.ndarray,
}
CONSTANTS: dict[str, Any] = {"pi": math.pi, "e": math.e, "inf": math.inf, "nan": math.nan, "newaxis": None}
