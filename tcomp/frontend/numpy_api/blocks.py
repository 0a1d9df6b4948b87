"""Block-scaled arrays: small floats, and a scale for each block of them along the last axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tcomp.errors import Error
from tcomp.frontend.registry import public
from tcomp.frontend.tracer import Traced, strong
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.dtype import DType
from tcomp.ir.graph import broadcast, cast, reshape
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import apply


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """The dtypes that values may have, that of the scales, and how many values share a scale."""

    values: tuple[DType, ...]
    scale: DType
    block: int


FORMATS: dict[str, BlockFormat] = {  # mx: OCP Microscaling Formats 1.0, sections 5 and 6
    "mxfp4": BlockFormat((dt.f4e2m1,), dt.f8e8m0, 32),
    "mxfp8": BlockFormat((dt.f8e4m3fn, dt.f8e5m2), dt.f8e8m0, 32),
    "nvfp4": BlockFormat((dt.f4e2m1,), dt.f8e4m3fn, 16),
}


@public("values", "scales", "tensor_scale")
def block_dequantise(values: Any, scales: Any, /, format: str, tensor_scale: Any = None) -> Traced:
    """values[..., K] times scales[..., K / block], as float32.

    format: `mxfp4` or `mxfp8` (scales float8_e8m0fnu, blocks of 32), or `nvfp4` (scales float8_e4m3fn, blocks of 16, all of it
    times `tensor_scale`). The product with the scale of the block is exact wherever float32 holds it. Raises TC0105 for another
    format, TC0103 for other dtypes, TC0102 for other shapes.
    """
    found = FORMATS.get(format)
    if found is None:
        raise Error("TC0105", f"the block format {format!r}", f"one of {', '.join(FORMATS)}")
    v, s = strong(values).node, strong(scales).node
    if v.type.dtype not in found.values or s.type.dtype != found.scale:
        expected = f"{' or '.join(map(str, found.values))}, and {found.scale}"
        raise Error("TC0103", f"{format} of values {v.type.dtype} and scales {s.type.dtype}", expected)
    wide = _products(v, s, found.block)
    if tensor_scale is not None:
        scale = cast(strong(tensor_scale).node, dt.f32)
        wide = apply("mul", wide, broadcast(reshape(scale, ()), wide.type.shape, ()))
    return Traced(wide)


def _products(v: Node, s: Node, block: int) -> Node:
    """Every value times the scale of its block."""
    shape: tuple[Dim, ...] = (*s.type.shape, block)
    whole = (*s.type.shape[:-1], index.mul(s.type.shape[-1], block)) if s.type.rank else ()
    if v.type.rank == 0 or v.type.shape != whole:
        raise Error("TC0102", f"values {v.type} and scales {s.type}", f"a scale for each {block} values of the last axis")
    terms = apply("mul", cast(reshape(v, shape), dt.f32), broadcast(cast(s, dt.f32), shape, tuple(range(s.type.rank))))
    return reshape(terms, v.type.shape)
