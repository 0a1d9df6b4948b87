"""com.microsoft: Attention, MultiHeadAttention, QAttention, RotaryEmbedding.

Everything is computed in [batch, heads, sequence, size of a head]. Scores are in the accumulator's precision. A mask adds
`mask_filter_value` where it hides a key; what lies after a row's own position (`unidirectional`) is hidden for certain.
"""

from __future__ import annotations

import math

from tcomp.frontend.onnx import build
from tcomp.frontend.onnx.build import along, normal_positions, scalar, take, with_scalar
from tcomp.frontend.onnx.ops_activation import softmax_of
from tcomp.frontend.onnx.ops_linear import dot, matmul_of
from tcomp.frontend.onnx.ops_math import position
from tcomp.frontend.onnx.ops_microsoft_quant import integer_product
from tcomp.frontend.onnx.registry import MICROSOFT, Context, operator
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.graph import broadcast, cast, reshape, transpose
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import apply

_PAIRS = ((0, 1), (0, 1))


def split_heads(x: Node, heads: int) -> Node:
    """[B, S, heads * D] as [B, heads, S, D]."""
    b, s, hidden = x.type.shape
    return transpose(reshape(x, (b, s, heads, index.floordiv(hidden, heads))), (0, 2, 1, 3))


def join_heads(x: Node) -> Node:
    """[B, heads, S, D] as [B, S, heads * D]."""
    b, heads, s, d = x.type.shape
    return reshape(transpose(x, (0, 2, 1, 3)), (b, s, index.mul(heads, d)))


def scores_of(q: Node, k: Node, scale: float) -> Node:
    """[B, heads, S, T]: scaled products of queries and keys, in the accumulator's precision."""
    wide = dt.accumulator(q.type.dtype)
    product = dot(cast(q, wide), cast(k, wide), _PAIRS, ((3,), (3,)))
    return with_scalar("mul", product, scale)


def mixed(probabilities: Node, v: Node, dtype: dt.DType) -> Node:
    """[B, S, heads * D]: values by probabilities, rounded to `dtype`."""
    out = dot(probabilities, cast(v, probabilities.type.dtype), _PAIRS, ((3,), (2,)))
    return cast(join_heads(out), dtype)


def scale_of(c: Context, head: Dim) -> float:
    """The attribute `scale`, or 1 / sqrt(size of a head) where it is left out or 0."""
    given: float = c.real("scale", 0.0)
    if given:
        return given
    if not isinstance(head, int):
        raise c.unsupported("a size of heads that is not known")
    return 1 / math.sqrt(head)


def hide(scores: Node, visible: Node) -> Node:
    """Scores with -inf where `visible` (of the same shape) does not hold."""
    return apply("where", visible, scores, scalar(-math.inf, scores))


def earlier(scores: Node, past: Dim) -> Node:
    """Whether a key's position is not after the row's own one, `past` keys being older than all rows."""
    shape = scores.type.shape
    row, key = position(shape, 2), position(shape, 3)
    return apply("le", key, apply("add", row, build.size_like(past, row)))


def _masked(c: Context, scores: Node, mask: Node | None) -> Node:
    """Scores plus `mask_filter_value` where the mask hides a key: zeros in [B, T] or [B, S, T], or bounds in [B] or [2B]."""
    if mask is None:
        return scores
    shape, value = scores.type.shape, c.real("mask_filter_value", -10000.0)
    if mask.type.rank == 1:
        seen = _within(c, cast(mask, dt.i64), shape)
    elif mask.type.rank in (2, 3):
        axes = (0, 3) if mask.type.rank == 2 else (0, 2, 3)
        fit = build.relabel(mask, tuple(shape[a] for a in axes))
        seen = broadcast(with_scalar("gt", fit, 0), shape, axes)
    else:
        raise c.unsupported(f"a mask of type {mask.type}")
    return apply("add", scores, apply("where", seen, scalar(0, scores), scalar(value, scores)))


def _within(c: Context, bounds: Node, shape: build.Shape) -> Node:
    """Keys before each sequence's end, and from its start on if that is given."""
    batch, count = shape[0], bounds.type.shape[0]
    keys = position(shape, 3)
    if count == batch:
        return apply("lt", keys, broadcast(bounds, shape, (0,)))
    if count != index.mul(2, batch):
        raise c.unsupported(f"mask bounds of type {bounds.type} for a batch of {index.show(batch)}")
    end, start = (broadcast(take(bounds, 0, at, batch), shape, (0,)) for at in (0, batch))
    return apply("and", apply("lt", keys, end), apply("ge", keys, start))


def _attended(c: Context, q: Node, k: Node, v: Node, mask: Node | None, more: Node | None, dtype: dt.DType) -> Node:
    """[B, S, heads * D] from queries, and keys and values with the past in front."""
    past = index.sub(k.type.shape[2], q.type.shape[2])
    scores = _masked(c, scores_of(q, k, scale_of(c, q.type.shape[3])), mask)
    if more is not None:
        scores = apply("add", scores, build.spread(cast(more, scores.type.dtype), scores.type.shape))
    if c.integer("unidirectional", 0):
        scores = hide(scores, earlier(scores, past))
    return mixed(softmax_of(scores, (3,)), v, dtype)


def _with_past(past: Node | None, x: Node) -> Node:
    if past is None:
        return x
    b, heads, _, d = x.type.shape
    return build.concat([build.relabel(past, (b, heads, past.type.shape[2], d)), x], 2)


def _stacked(k: Node, v: Node) -> Node:
    """[2, B, heads, T, D]."""
    return build.concat([reshape(x, (1, *x.type.shape)) for x in (k, v)], 0)


def _plain(c: Context, *names: str) -> None:
    """TC0202 where a switch of `names` is on."""
    for name in names:
        if c.integer(name, 0):
            raise c.unsupported(f"{name} = {c.integer(name)}")


def _projected(
    c: Context, joint: Node, sizes: tuple[Dim, Dim, Dim], mask: Node | None, past: Node | None, more: Node | None
) -> tuple[Node, Node]:
    """(output, present) of queries, keys and values side by side in [B, S, sum of sizes]."""
    heads, parts = c.integer("num_heads"), []
    at: Dim = 0
    for size in sizes:
        parts.append(split_heads(take(joint, 2, at, size), heads))
        at = index.add(at, size)
    q, k, v = parts
    if past is not None:
        old = [build.pick(past, 0, n) for n in (0, 1)]
        k, v = _with_past(old[0], k), _with_past(old[1], v)
    return _attended(c, q, k, v, mask, more, joint.type.dtype), _stacked(k, v) if len(c.wanted) > 1 else k


@operator("Attention", domain=MICROSOFT)
def attention(
    c: Context, x: Node, weights: Node, bias: Node | None = None, mask: Node | None = None, past: Node | None = None,
    more: Node | None = None, length: Node | None = None,
) -> tuple[Node, Node]:  # fmt: skip
    """(output, keys and values so far) with the projections of queries, keys and values in one matrix."""
    _plain(c, "do_rotary", "past_present_share_buffer")
    joint = matmul_of(x, weights)
    if bias is not None:
        joint = apply("add", joint, build.spread(bias, joint.type.shape))
    third = index.floordiv(weights.type.shape[1], 3)
    sizes = c.integers("qkv_hidden_sizes", (third, third, third))
    return _projected(c, joint, sizes, mask, past, more)


@operator("QAttention", domain=MICROSOFT)
def qattention(
    c: Context, x: Node, weights: Node, bias: Node, sx: Node, sw: Node, mask: Node | None = None, zx: Node | None = None,
    zw: Node | None = None, past: Node | None = None,
) -> tuple[Node, Node]:  # fmt: skip
    """`Attention` whose projection is of quantised operands."""
    _plain(c, "do_rotary", "past_present_share_buffer")
    joint = integer_product(x, sx, zx, weights, sw, zw)
    joint = apply("add", joint, build.spread(cast(bias, dt.f32), joint.type.shape))
    third = index.floordiv(weights.type.shape[1], 3)
    return _projected(c, joint, (third, third, third), mask, past, None)


@operator("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(
    c: Context, q: Node, k: Node | None = None, v: Node | None = None, bias: Node | None = None, mask: Node | None = None,
    more: Node | None = None, past_k: Node | None = None, past_v: Node | None = None, length: Node | None = None,
    beams: Node | None = None,
) -> tuple[Node, Node, Node]:  # fmt: skip
    """(output, keys, values): projected operands, in [B, S, hidden], packed, or keys and values by heads already."""
    if length is not None or beams is not None or (len(c.wanted) > 3 and c.wanted[3]):
        raise c.unsupported("caches that are updated in place, beams, or scores as a result")
    qh, kh, vh = _by_heads(c, q, k, v, bias)
    if past_k is not None and past_v is not None:
        kh, vh = _with_past(past_k, kh), _with_past(past_v, vh)
    return _attended(c, qh, kh, vh, mask, more, q.type.dtype), kh, vh


def _by_heads(c: Context, q: Node, k: Node | None, v: Node | None, bias: Node | None) -> tuple[Node, Node, Node]:
    """Queries, keys and values in [B, heads, S, D], the bias added to those that are not by heads already."""
    heads = c.integer("num_heads")
    if q.type.rank == 5:
        q, k, v = (_third(q, n) for n in range(3))
    elif k is not None and k.type.rank == 5:
        k, v = (_third(k, n) for n in range(2))
    if k is None or v is None:
        raise c.broken(
            f"a query of type {q.type} without keys or values", "[batch, sequence, heads, 3, size] where they are left out"
        )
    parts: list[Node] = []
    start: Dim = 0
    for x in (q, k, v):
        if x.type.rank == 4:
            parts.append(x)
            start = index.add(start, index.mul(x.type.shape[1], x.type.shape[3]))
            continue
        hidden = x.type.shape[2]
        if bias is not None:
            x = apply("add", x, along(take(bias, 0, start, hidden), 2, x.type.shape))
        parts.append(split_heads(x, heads))
        start = index.add(start, hidden)
    return parts[0], parts[1], parts[2]


def _third(x: Node, n: int) -> Node:
    """Part `n` of [B, S, heads, parts, D] as [B, S, heads * D]."""
    b, s, heads, _, d = x.type.shape
    return reshape(take(x, 3, n, 1), (b, s, index.mul(heads, d)))


def rotated(x: Node, cos: Node, sin: Node, at: Node, interleaved: bool) -> Node:
    """[B, heads, S, D] turned by the angles of positions `at` [B, S]; what is behind twice the cache's width stays."""
    angles = [apply("gather", t, normal_positions(at, t.type.shape[0]), axis=0) for t in (cos, sin)]
    return turned_by(x, angles[0], angles[1], interleaved)


def turned_by(x: Node, cos: Node, sin: Node, interleaved: bool) -> Node:
    """[B, heads, S, D] turned by angles [B, S, half]."""
    half = cos.type.shape[-1]
    b, heads, s, d = x.type.shape
    turned, rest = take(x, 3, 0, index.mul(half, 2)), index.sub(d, index.mul(half, 2))
    shape = (b, heads, s, half)
    co, si = (broadcast(build.relabel(cast(t, x.type.dtype), (b, s, half)), shape, (0, 2, 3)) for t in (cos, sin))
    if interleaved:
        pairs = reshape(turned, (b, heads, s, half, 2))
        left, right = (build.pick(pairs, 4, n) for n in (0, 1))
    else:
        left, right = (take(turned, 3, start, half) for start in (0, half))
    real = apply("sub", apply("mul", left, co), apply("mul", right, si))
    imaginary = apply("add", apply("mul", right, co), apply("mul", left, si))
    if interleaved:
        both = build.concat([reshape(p, (*shape, 1)) for p in (real, imaginary)], 4)
        out = reshape(both, turned.type.shape)
    else:
        out = build.concat([real, imaginary], 3)
    return out if rest == 0 else build.concat([out, take(x, 3, index.mul(half, 2), rest)], 3)


@operator("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(c: Context, x: Node, at: Node, cos: Node, sin: Node) -> Node:
    """Positions are given for each token, or as one start for all rows."""
    _plain(c, "is_packed_batching")
    width, heads = index.mul(cos.type.shape[1], 2), c.integer("num_heads", 0)
    if x.type.rank == 3:
        count = heads if c.integer("rotary_embedding_dim", 0) and heads else index.floordiv(x.type.shape[2], width)
        if not isinstance(count, int):
            raise c.unsupported("a number of heads that is not known")
        wide = split_heads(x, count)
    else:
        wide = x
    b, s = wide.type.shape[0], wide.type.shape[2]
    if index.product(at.type.shape) == 1 and (at.type.rank == 1 or s != 1):
        steps = position((b, s), 1)
        at = apply("add", steps, broadcast(cast(reshape(at, ()), dt.i64), (b, s), ()))
    out = rotated(wide, cos, sin, at, bool(c.integer("interleaved", 0)))
    return join_heads(out) if x.type.rank == 3 else out
