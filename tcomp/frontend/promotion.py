"""Result dtypes by NumPy 2's rules (NEP 50), asked of NumPy itself; bfloat16 stands beside float16, and with it gives float32;
storage dtypes (8-bit floats, integers of less than a byte) take part in nothing.

A *kind* is a NumPy dtype, or `int` or `float` for a weak Python scalar.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from tcomp.errors import Error
from tcomp.ir import dtype as dt
from tcomp.ir.dtype import DType, from_numpy, to_numpy

Kind = np.dtype | type
_BF16, _F16, _F32 = to_numpy(dt.bf16), np.dtype(np.float16), np.dtype(np.float32)


@cache
def loop(ufunc: np.ufunc, kinds: tuple[Kind, ...]) -> tuple[DType, ...]:
    """The dtypes that `ufunc` computes in and gives, for operands of these kinds: inputs, then outputs. TC0103 if none fits."""
    return tuple(map(element_type, _resolve(ufunc, kinds)))


def _resolve(ufunc: np.ufunc, kinds: tuple[Kind, ...]) -> tuple[np.dtype, ...]:
    return _beside_f16(kinds, lambda ks: ufunc.resolve_dtypes((*ks, *[None] * ufunc.nout)), f"`{ufunc.__name__}`")


@cache
def common(kinds: tuple[Kind, ...]) -> DType:
    """The common dtype of operands of these kinds."""
    if len(set(kinds)) == 1 and isinstance(kinds[0], np.dtype):
        return element_type(kinds[0])
    samples: dict[Kind, float] = {int: 0, float: 0.0}
    found = _beside_f16(kinds, lambda ks: (np.result_type(*(samples.get(k, k) for k in ks)),), "the common dtype")
    return element_type(found[0])


def _beside_f16(
    kinds: tuple[Kind, ...], resolve: Callable[[tuple[Kind, ...]], tuple[np.dtype, ...]], name: str
) -> tuple[np.dtype, ...]:
    """`resolve` with float16 in bfloat16's place; both together are float32. Storage dtypes have no promotions."""
    shown = " and ".join(k.__name__ if isinstance(k, type) else str(k) for k in kinds)
    if any(isinstance(k, np.dtype) and (t := from_numpy(k)) is not None and t.is_storage for k in kinds):
        raise Error("TC0103", f"{name} of {shown}", "dtypes that are computed with: convert first, `x.astype(...)`")
    other = _F32 if _F16 in kinds else _F16
    try:
        found = resolve(tuple(other if k == _BF16 else k for k in kinds))
    except TypeError as e:
        raise Error("TC0103", f"{name} of {shown}", str(e).split("\n")[0]) from None
    if _BF16 not in kinds or _F16 in kinds:
        return found
    return tuple(_BF16 if t == _F16 else t for t in found)


def element_type(dtype: object) -> DType:
    """The element type of anything NumPy takes for a dtype. TC0103 for one without code."""
    if isinstance(dtype, DType):
        return dtype
    if isinstance(dtype, np.dtype) and (known := from_numpy(dtype)) is not None:
        return known
    try:
        found = from_numpy(np.dtype(dtype).newbyteorder("="))  # type: ignore[call-overload]
    except TypeError:
        found = None
    if found is None:
        raise Error("TC0103", f"dtype {dtype}", f"one of {', '.join(dt.ALL)}")
    return found


def kind_of(dtype: DType, weak: bool) -> Kind:
    """The kind of an array of `dtype`."""
    return (float if dtype.is_float else int) if weak else to_numpy(dtype)
