"""com.microsoft: GroupQueryAttention, attention with fewer heads of keys and values, over a cache that holds the past.

Each sequence of the batch has its own length: `seqlens_k` + 1 keys in all, of which the last S are this call's, unless this is
the first call, when they start at 0. The cache that comes back is as long as the one given or as the longest sequence; what lies
behind a sequence's end there is what the old cache held, or 0.
"""

from __future__ import annotations

from tcomp.frontend.onnx import build
from tcomp.frontend.onnx.build import scalar, take, with_scalar
from tcomp.frontend.onnx.ops_activation import softmax_of
from tcomp.frontend.onnx.ops_math import position
from tcomp.frontend.onnx.ops_microsoft_attention import (
    hide,
    mixed,
    rotated,
    scale_of,
    scores_of,
    split_heads,
)
from tcomp.frontend.onnx.ops_microsoft_norm import normalised
from tcomp.frontend.onnx.registry import MICROSOFT, Context, operator
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.graph import broadcast, cast, full, reshape
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import apply


@operator("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(
    c: Context, q: Node, k: Node | None, v: Node | None, past_k: Node | None, past_v: Node | None, lengths: Node, total: Node,
    cos: Node | None = None, sin: Node | None = None, at: Node | None = None, more: Node | None = None, sink: Node | None = None,
    k_scale: Node | None = None, v_scale: Node | None = None, q_norm: Node | None = None, k_norm: Node | None = None,
    *newer: Node | None,
) -> tuple[Node, Node, Node]:  # fmt: skip
    """(output, keys so far, values so far)."""
    _check(c)
    if any(x is not None for x in (k_scale, v_scale, *newer)):
        raise c.unsupported("scales of a quantised cache, or lengths of queries")
    qh, kh, vh = _parts(c, q, k, v)
    qh, kh = _normed(c, "q", qh, q_norm), _normed(c, "k", kh, k_norm)
    batch, length = qh.type.shape[0], qh.type.shape[2]
    all_keys = c.sizes(total, "the total sequence length")[0]
    before = _before(cast(reshape(lengths, (batch,)), dt.i64), all_keys, length)
    if c.integer("do_rotary", 0):
        if cos is None or sin is None:
            raise c.broken("do_rotary without tables of cosines and sines", "both")
        where = _positions(before, at, batch, length)
        qh, kh = (rotated(x, cos, sin, where, bool(c.integer("rotary_interleaved", 0))) for x in (qh, kh))
    kc, vc = (_cached(past, x, before, all_keys) for past, x in ((past_k, kh), (past_v, vh)))
    return _over_cache(c, qh, kc, vc, before, all_keys, more, sink), kc, vc


def _check(c: Context) -> None:
    for name in ("k_quant_type", "v_quant_type"):
        if c.string(name, "NONE") != "NONE":
            raise c.unsupported(f"a quantised cache ({name} = {c.string(name)})")
    for name in ("qk_output", "sliding_window_cache"):
        if c.integer(name, 0):
            raise c.unsupported(f"{name} = {c.integer(name)}")


def _parts(c: Context, q: Node, k: Node | None, v: Node | None) -> tuple[Node, Node, Node]:
    """Queries, keys and values by heads; one operand may hold all three side by side."""
    heads, fewer = c.integer("num_heads"), c.integer("kv_num_heads")
    if heads < 1 or fewer < 1 or heads % fewer:
        raise c.broken(f"{heads} heads, {fewer} of keys and values", "a multiple")
    if k is not None and v is not None:
        return split_heads(q, heads), split_heads(k, fewer), split_heads(v, fewer)
    size = index.floordiv(q.type.shape[2], heads + 2 * fewer)
    widths = [index.mul(size, n) for n in (heads, fewer, fewer)]
    starts: list[Dim] = [0, widths[0], index.add(widths[0], widths[1])]
    found = [split_heads(take(q, 2, a, w), n) for a, w, n in zip(starts, widths, (heads, fewer, fewer))]
    return found[0], found[1], found[2]


def _normed(c: Context, which: str, x: Node, weights: Node | None) -> Node:
    """Each head by its root mean square, times weights."""
    if weights is None:
        return x
    epsilon = c.real(f"{which}_norm_epsilon", 0.0) or c.real("qk_norm_epsilon", 1e-6)
    return normalised(x, epsilon, weights, None, centre=False)[0]


def _before(lengths: Node, total: Dim, length: Dim) -> Node:
    """[B]: how many keys of each sequence are older than this call's; none on the first call, whose tokens are all there are."""
    new, every = (build.size_like(d, lengths) for d in (length, total))
    older = apply("sub", with_scalar("add", lengths, 1), new)
    first = apply("eq", every, new)
    return apply("where", first, scalar(0, older), older)


def _positions(before: Node, at: Node | None, batch: Dim, length: Dim) -> Node:
    if at is not None:
        return build.relabel(at, (batch, length))
    return apply("add", position((batch, length), 1), broadcast(before, (batch, length), (0,)))


def _cached(past: Node | None, new: Node, before: Node, total: Dim) -> Node:
    """[B, heads, T, D]: the old cache with the new rows written from `before` on."""
    b, heads, length, d = new.type.shape
    if past is None:
        past = full(0, new.type.dtype, (b, heads, 0, d))
    past = build.relabel(past, (b, heads, past.type.shape[2], d))
    size = index.maximum(past.type.shape[2], total)
    old = build.zero_pad(past, (0, 0, 0, 0), (0, 0, index.sub(size, past.type.shape[2]), 0))
    row = apply("sub", position((b, size), 1), broadcast(before, (b, size), (0,)))
    last = build.size_like(length, row)
    inside = apply("and", with_scalar("ge", row, 0), apply("lt", row, last))
    shape = (b, heads, size, d)
    at = broadcast(apply("where", inside, row, scalar(0, row)), shape, (0, 2))
    return apply("where", broadcast(inside, shape, (0, 2)), apply("gather_elements", new, at, axis=2), old)


def _over_cache(c: Context, q: Node, k: Node, v: Node, before: Node, total: Dim, more: Node | None, sink: Node | None) -> Node:
    """[B, S, heads * D]: each query over the keys up to its own place, within the window if there is one."""
    heads, d = q.type.shape[1], q.type.shape[3]
    k, v = (_repeated(take(x, 2, 0, total), heads) for x in (k, v))
    scores, cap = scores_of(q, k, scale_of(c, d)), c.real("softcap", 0.0)
    if cap:
        scores = with_scalar("mul", apply("tanh", with_scalar("div", scores, cap)), cap)
    if more is not None:
        scores = apply("add", scores, build.spread(cast(more, scores.type.dtype), scores.type.shape))
    shape, window = scores.type.shape, c.integer("local_window_size", -1)
    own = apply("add", position(shape, 2), broadcast(before, shape, (0,)))
    key = position(shape, 3)
    if c.integer("causal", 1):
        scores = hide(scores, apply("le", key, own))
    if window >= 0:
        scores = hide(scores, apply("gt", key, with_scalar("sub", own, window)))
    return mixed(_probabilities(c, scores, sink), v, q.type.dtype)


def _repeated(x: Node, heads: Dim) -> Node:
    """[B, fewer, T, D] with each head for its whole group of `heads`."""
    b, fewer, t, d = x.type.shape
    group = index.floordiv(heads, fewer)
    return reshape(broadcast(x, (b, fewer, group, t, d), (0, 1, 3, 4)), (b, heads, t, d))


def _probabilities(c: Context, scores: Node, sink: Node | None) -> Node:
    """A softmax, with one more score in its sum: the head's sink, or 0 if `smooth_softmax` asks for it."""
    if sink is None and not c.integer("smooth_softmax", 0):
        return softmax_of(scores, (3,))
    shape = (*scores.type.shape[:3], 1)
    extra = full(0, scores.type.dtype, shape) if sink is None else broadcast(cast(sink, scores.type.dtype), shape, (1,))
    return take(softmax_of(build.concat([scores, extra], 3), (3,)), 3, 0, scores.type.shape[3])
