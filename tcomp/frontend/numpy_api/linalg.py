"""`tcomp.numpy.linalg`: the part of the array API's linear algebra that is products and reductions."""

from __future__ import annotations

import math
from typing import Any

from tcomp.errors import Error
from tcomp.frontend import shapes
from tcomp.frontend.numpy_api import manipulation, products, selection  # noqa: F401 - what is shared with linalg
from tcomp.frontend.registry import FUNCTIONS, LINALG, PUBLIC, public
from tcomp.frontend.tracer import Traced, strong

for _name in ("matmul", "tensordot", "vecdot", "cross", "outer", "diagonal", "trace", "matrix_transpose"):
    LINALG[_name] = PUBLIC[_name]
    FUNCTIONS[f"linalg.{_name}"] = PUBLIC[_name].function


def _as_float(x: Any) -> Traced:
    x = strong(x)
    return x if x.dtype.kind == "f" else FUNCTIONS["astype"](x, float)


@public("x", table=LINALG)
def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: float = 2) -> Traced:
    """The norm of order `ord` of the elements along axes."""
    x = _as_float(x)
    size = FUNCTIONS["abs"](x)
    if ord == math.inf or ord == -math.inf:
        return FUNCTIONS["max" if ord > 0 else "min"](size, axis=axis, keepdims=keepdims)
    if ord == 0:
        return FUNCTIONS["sum"](FUNCTIONS["astype"](x != 0, x.dtype), axis=axis, keepdims=keepdims)
    if ord == 2:
        return FUNCTIONS["sqrt"](FUNCTIONS["sum"](x * x, axis=axis, keepdims=keepdims))
    if ord == 1:
        return FUNCTIONS["sum"](size, axis=axis, keepdims=keepdims)
    return FUNCTIONS["sum"](size**ord, axis=axis, keepdims=keepdims) ** (1.0 / ord)


@public("x", table=LINALG)
def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro", axis: tuple[int, int] = (-2, -1)) -> Traced:
    """The Frobenius norm, or the largest or smallest sum of rows (inf) or columns (1), of matrices."""
    x = _as_float(x)
    rows, columns = (shapes.axis(a, x.ndim) for a in axis)
    if ord == "fro":
        return FUNCTIONS["sqrt"](FUNCTIONS["sum"](x * x, axis=(rows, columns), keepdims=keepdims))
    if ord not in (1, -1, math.inf, -math.inf):
        raise Error("TC0105", f"the matrix norm {ord!r}, which needs singular values", "'fro', 1, -1, inf or -inf")
    summed, rest = (rows, columns) if abs(ord) == 1 else (columns, rows)
    sums = FUNCTIONS["sum"](FUNCTIONS["abs"](x), axis=summed, keepdims=True)
    r = FUNCTIONS["max" if ord > 0 else "min"](sums, axis=rest, keepdims=True)
    return r if keepdims else FUNCTIONS["squeeze"](r, axis=(rows, columns))


@public("x", table=LINALG)
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Traced:
    """NumPy's norm: of vectors along one axis, of matrices along two, of all elements without an axis."""
    x = _as_float(x)
    if axis is None and ord is not None and x.ndim == 2:
        axis = (0, 1)
    if isinstance(axis, (tuple, list)) and len(axis) == 2 and ord is not None:
        return matrix_norm(x, keepdims=keepdims, ord=ord, axis=tuple(axis))
    return vector_norm(x, axis=axis, keepdims=keepdims, ord=2 if ord is None else ord)


@public("x", table=LINALG)
def matrix_power(x: Any, n: int, /) -> Traced:
    """A square matrix multiplied by itself, by repeated squaring."""
    x = strong(x)
    if n < 0:
        raise Error("TC0105", f"the matrix power {n}, which needs an inverse", "a power that is not negative")
    if n == 0:
        return FUNCTIONS["broadcast_to"](FUNCTIONS["eye"](x.shape[-1], dtype=x.dtype), x.shape)
    power: Traced = x
    r: Traced | None = None
    while n:
        r = (power if r is None else r @ power) if n & 1 else r
        n >>= 1
        power = power @ power if n else power
    assert r is not None
    return r
