"""Conversions as ONNX has them, where the op table differs: 8-bit floats saturate or do not, powers of two round by mode."""

from __future__ import annotations

import ml_dtypes

from tcomp.frontend.onnx.build import scalar, with_scalar
from tcomp.frontend.onnx.registry import Context
from tcomp.ir import dtype as dt
from tcomp.ir.dtype import DType, to_numpy
from tcomp.ir.graph import cast
from tcomp.ir.node import Node
from tcomp.ir.ops import apply

_LARGEST_POWER = 254  # the code of 2^127


def converted(c: Context, x: Node, target: DType) -> Node:
    """`x` as `target`, by the attributes `saturate` and `round_mode` of its node."""
    if not (target.is_float and target.is_storage) or x.type.dtype == target:
        return cast(x, target)
    saturate = bool(c.integer("saturate", 1))
    if target == dt.f8e8m0:
        return _power(c, cast(x, dt.f32), saturate, c.string("round_mode", "up"))
    return saturated(cast(x, dt.f32), target) if saturate else cast(x, target)


def saturated(x: Node, target: DType) -> Node:
    """An f32 as a small float, what is too large (infinity, too) as its largest number; NaN stays."""
    most = float(ml_dtypes.finfo(to_numpy(target)).max)
    return cast(with_scalar("min", with_scalar("max", x, -most), most), target)


def _power(c: Context, x: Node, saturate: bool, mode: str) -> Node:
    """The f8e8m0 of an f32: the exponent of the power of two above, below or nearest (halves up)."""
    if mode not in ("up", "down", "nearest"):
        raise c.broken(f"round_mode {mode!r}", "up, down or nearest")
    bits = apply("bitcast", x, dtype=dt.u32)
    more = {"up": 0x7FFFFF, "down": 0, "nearest": 0x400000}[mode]
    code = with_scalar("shr", with_scalar("add", bits, more), 23)
    if mode == "up":  # up from 0 to 2^-127, the code 0, as far as that goes
        code = apply("where", with_scalar("le", bits, 0x400000), scalar(0, code), code)
    if saturate:
        code = with_scalar("min", code, _LARGEST_POWER)
    else:
        small = with_scalar("lt", x, 2.0**-127)
        code = apply("where", small, scalar(255, code), with_scalar("min", code, 255))
    code = apply("where", apply("isnan", x), scalar(255, code), code)
    return apply("bitcast", cast(code, dt.u8), dtype=dt.f8e8m0)
