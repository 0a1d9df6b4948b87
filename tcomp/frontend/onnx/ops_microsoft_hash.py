"""com.microsoft: MurmurHash3, A. Appleby's 32-bit hash (public domain) of every element's bytes, in the GRAPH's own integers."""

from __future__ import annotations

from tcomp.frontend.onnx.build import scalar, with_scalar
from tcomp.frontend.onnx.ops_math import rotated
from tcomp.frontend.onnx.registry import MICROSOFT, Context, operator
from tcomp.ir import dtype as dt
from tcomp.ir.graph import cast, full
from tcomp.ir.node import Node
from tcomp.ir.ops import apply


def _mixed(hash_: Node, word: Node) -> Node:
    """The hash after one more word."""
    word = with_scalar("mul", rotated(with_scalar("mul", word, 0xCC9E2D51), 15), 0x1B873593)
    return with_scalar("add", with_scalar("mul", rotated(apply("xor", hash_, word), 13), 5), 0xE6546B64)


def _finished(hash_: Node, length: int) -> Node:
    hash_ = apply("xor", hash_, scalar(length, hash_))
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        hash_ = with_scalar("mul", apply("xor", hash_, with_scalar("shr", hash_, shift)), factor)
    return apply("xor", hash_, with_scalar("shr", hash_, 16))


@operator("MurmurHash3", domain=MICROSOFT)
def murmur_hash(c: Context, x: Node) -> Node:
    """Of u32, or of i32 if `positive` is 0."""
    bits = x.type.dtype.bits
    if bits not in (32, 64) or not (x.type.dtype.is_integer or x.type.dtype.is_float):
        raise c.unsupported(f"elements of type {x.type.dtype}")
    whole = apply("bitcast", x, dtype=dt.u32 if bits == 32 else dt.u64)
    words = [whole] if bits == 32 else [cast(whole, dt.u32), cast(with_scalar("shr", whole, 32), dt.u32)]
    hash_ = full(c.integer("seed", 0) & 0xFFFFFFFF, dt.u32, x.type.shape)
    for word in words:
        hash_ = _mixed(hash_, word)
    hash_ = _finished(hash_, bits // 8)
    return hash_ if c.integer("positive", 1) else apply("bitcast", hash_, dtype=dt.i32)
