"""Element types: one table, one promotion lattice (NumPy 2's, with bf16 and the small floats beside it)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import ml_dtypes
import numpy as np


@dataclass(frozen=True, slots=True)
class DType:
    """An element type. kind: bool, int, uint or float. bits: of one element (bool: 8; sub-byte types are stored one per byte)."""

    name: str
    kind: str
    bits: int

    @property
    def bytes(self) -> int:
        """Bytes of one element; sub-byte types count as one where they are stored unpacked."""
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def is_storage(self) -> bool:
        """Whether values are only kept and converted: the 8-bit and smaller floats, and integers of less than a byte."""
        return self.bits < 8 or (self.is_float and self.bits == 8)

    def __str__(self) -> str:
        return self.name


bool_ = DType("bool", "bool", 8)
i8, i16, i32, i64 = (DType(f"i{b}", "int", b) for b in (8, 16, 32, 64))
u8, u16, u32, u64 = (DType(f"u{b}", "uint", b) for b in (8, 16, 32, 64))
f16, bf16, f32, f64 = (
    DType("f16", "float", 16),
    DType("bf16", "float", 16),
    DType("f32", "float", 32),
    DType("f64", "float", 64),
)
i2, i4, u2, u4 = DType("i2", "int", 2), DType("i4", "int", 4), DType("u2", "uint", 2), DType("u4", "uint", 4)
f8e4m3fn, f8e5m2, f8e4m3fnuz, f8e5m2fnuz, f8e8m0 = (
    DType(f"f8{layout}", "float", 8) for layout in ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e8m0")
)
f4e2m1 = DType("f4e2m1", "float", 4)

COMPUTED: tuple[DType, ...] = (bool_, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64)
STORED: tuple[DType, ...] = (i2, i4, u2, u4, f4e2m1, f8e4m3fn, f8e5m2, f8e4m3fnuz, f8e5m2fnuz, f8e8m0)
ALL: dict[str, DType] = {t.name: t for t in COMPUTED + STORED}
_NUMPY: dict[str, np.dtype] = {
    "bool": np.dtype(np.bool_),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    **{f"i{b}": np.dtype(f"int{b}") for b in (8, 16, 32, 64)},
    **{f"u{b}": np.dtype(f"uint{b}") for b in (8, 16, 32, 64)},
    **{f"f{b}": np.dtype(f"float{b}") for b in (16, 32, 64)},
    **{f"i{b}": np.dtype(getattr(ml_dtypes, f"int{b}")) for b in (2, 4)},
    **{f"u{b}": np.dtype(getattr(ml_dtypes, f"uint{b}")) for b in (2, 4)},
    **{f"f8{k}": np.dtype(getattr(ml_dtypes, f"float8_{k}")) for k in ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz")},
    "f8e8m0": np.dtype(ml_dtypes.float8_e8m0fnu),
    "f4e2m1": np.dtype(ml_dtypes.float4_e2m1fn),
}
_FROM_NUMPY: dict[np.dtype, DType] = {v: ALL[k] for k, v in _NUMPY.items()}


def to_numpy(dtype: DType) -> np.dtype:
    """The NumPy dtype of `dtype` (from ml_dtypes what NumPy does not have)."""
    return _NUMPY[dtype.name]


def from_numpy(dtype: np.dtype | type | str) -> DType | None:
    """The element type of a NumPy dtype in native byte order, or None where there is none (strings, objects, complex)."""
    return _FROM_NUMPY.get(np.dtype(dtype))


@cache
def promote(a: DType, b: DType) -> DType:
    """The common type of two strong types, by NumPy 2's rules; bf16 promotes like f16, and with f16 to f32."""
    if a == b:
        return a
    if bf16 not in (a, b):
        return _FROM_NUMPY[np.promote_types(to_numpy(a), to_numpy(b))]
    other = b if a == bf16 else a
    if other == f16:
        return f32
    stand_in = promote(f16, other)
    return bf16 if stand_in == f16 else stand_in


def accumulator(dtype: DType) -> DType:
    """What sums of `dtype` are held in: f32 for the 16-bit floats, else itself (integers wrap at their own width)."""
    return f32 if dtype in (f16, bf16) else dtype
