"""com.microsoft: layers with a state of fixed size (causal convolution, linear attention), and rotation by three places."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tcomp.frontend.onnx import build, regions
from tcomp.frontend.onnx.build import normal_positions, take, with_scalar
from tcomp.frontend.onnx.ops_linear import dot
from tcomp.frontend.onnx.ops_microsoft import silu_of
from tcomp.frontend.onnx.ops_microsoft_attention import join_heads, split_heads, turned_by
from tcomp.frontend.onnx.registry import MICROSOFT, Context, operator
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.graph import broadcast, cast, full, reshape, transpose
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import apply, constant

# --- causal convolution ----------------------------------------------------------------------------------


@operator("CausalConvWithState", domain=MICROSOFT)
def causal_conv(c: Context, x: Node, w: Node, bias: Node | None = None, past: Node | None = None) -> tuple[Node, Node]:
    """(each channel of [B, C, L] convolved with its own taps over itself and what was before, the last places of all that)."""
    activation, spacing = c.string("activation", "none"), c.integer("dilation", 1)
    extended = [n for n in ("state_window", "state_length", "state_update_capacity", "input_channels") if c.integer(n, 0)]
    if extended or c.integer("ndim", 1) != 1:
        raise c.unsupported(f"{' and '.join(extended) or 'more than one axis'}")
    if activation not in ("none", "silu", "swish") or w.type.rank != 3 or not isinstance(w.type.shape[2], int) or spacing < 1:
        raise c.broken(f"activation {activation!r}, dilation {spacing}, taps {w.type}", "silu, swish or none; [C, 1, taps]")
    last, shape = bool(c.integer("channels_last", 0)), x.type.shape
    first = _channels_first(x) if last else x
    y, state = _convolved(first, w, bias, past if past is None or not last else _channels_first(past), spacing)
    y = silu_of(y) if activation != "none" else y
    y, state = cast(y, x.type.dtype), cast(state, x.type.dtype)
    if not last:
        return y, state
    return reshape(transpose(y, (0, 2, 1)), shape), reshape(
        transpose(state, (0, 2, 1)), (shape[0], state.type.shape[2], *shape[2:])
    )


def _channels_first(x: Node) -> Node:
    """[B, L, *channels] as [B, C, L]."""
    return transpose(reshape(x, (*x.type.shape[:2], index.product(x.type.shape[2:]))), (0, 2, 1))


def _convolved(x: Node, w: Node, bias: Node | None, past: Node | None, spacing: int) -> tuple[Node, Node]:
    batch, channels, length = x.type.shape
    taps = w.type.shape[2]
    assert isinstance(taps, int)
    reach = (taps - 1) * spacing
    before = full(0, x.type.dtype, (batch, channels, reach)) if past is None else build.relabel(past, (batch, channels, reach))
    line = build.concat([cast(before, x.type.dtype), x], 2) if reach else x
    wide = dt.accumulator(x.type.dtype)
    parts = [] if bias is None else [build.along(cast(bias, wide), 1, x.type.shape)]
    for k in range(taps):
        factor = build.along(reshape(cast(take(w, 2, k, 1), wide), (channels,)), 1, x.type.shape)
        parts.append(apply("mul", cast(take(line, 2, k * spacing, length), wide), factor))
    return build.total(parts), take(line, 2, length, reach)


# --- linear attention ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rule:
    """What a step of linear attention does: forget by a decay, and write what differs from what is there."""

    decays: bool
    delta: bool


_RULES = {"linear": Rule(False, False), "gated": Rule(True, False), "delta": Rule(False, True), "gated_delta": Rule(True, True)}


@operator("LinearAttention", domain=MICROSOFT)
def linear_attention(
    c: Context, q: Node, k: Node, v: Node, past: Node | None = None, decay: Node | None = None, beta: Node | None = None
) -> tuple[Node, Node]:
    """(outputs of all steps, the last state [B, heads, d_k, d_v]). Heads of q or of k and v are shared, whichever are fewer."""
    name, own, shared = c.string("update_rule", "gated_delta"), c.integer("q_num_heads"), c.integer("kv_num_heads")
    rule = _RULES.get(name)
    if rule is None or own < 1 or shared < 1 or max(own, shared) % min(own, shared):
        raise c.broken(f"update_rule {name!r}, {own} heads over {shared}", f"one of {', '.join(_RULES)}; heads in groups")
    if rule.decays != (decay is not None) or rule.delta != (beta is not None) or c.integer("state_window", 0):
        raise c.unsupported("a window of states, or decay and beta that the rule has no use for")
    batch, steps, _ = q.type.shape
    group = max(1, own // shared)
    queries = _heads(q, own)
    if own < shared:
        queries = reshape(_each_more_often(queries, shared // own), (steps, batch, shared, queries.type.shape[3]))
    queries = reshape(queries, (steps, batch, shared, group, queries.type.shape[3]))
    keys, values = _heads(k, shared), _heads(v, shared)
    depth, width = keys.type.shape[3], values.type.shape[3]
    scale = c.real("scale", 0.0) or _scale(c, depth)
    rates = None if beta is None else _per_head(beta, shared, 1)
    factors = None if decay is None else apply("exp", _per_head(decay, shared, depth))
    shape = (batch, shared, depth, width)
    start = full(0, dt.f32, shape) if past is None else build.relabel(cast(past, dt.f32), shape)

    def turn(step: Node, carried: tuple[Node, ...]) -> tuple[Node, Node]:
        state, key, value = carried[0], build.pick(keys, 0, step), build.pick(values, 0, step)
        if factors is not None:
            state = apply("mul", state, broadcast(build.pick(factors, 0, step), shape, (0, 1, 2)))
        if rates is not None:
            known = dot(key, state, ((0, 1), (0, 1)), ((2,), (2,)))
            value = apply("mul", apply("sub", value, known), broadcast(build.pick(rates, 0, step), value.type.shape, (0, 1, 2)))
        more = apply("mul", broadcast(key, shape, (0, 1, 2)), broadcast(value, shape, (0, 1, 3)))
        state = apply("add", state, more)
        return state, dot(build.pick(queries, 0, step), state, ((0, 1), (0, 1)), ((3,), (2,)))

    last, found = regions.loop(c, (start,), steps, turn)
    found = with_scalar("mul", reshape(found, (steps, batch, index.product(found.type.shape[2:]))), scale)
    return cast(transpose(found, (1, 0, 2)), q.type.dtype), cast(last, q.type.dtype if past is None else past.type.dtype)


def _scale(c: Context, depth: Dim) -> float:
    if not isinstance(depth, int):
        raise c.unsupported("heads of a size that is not known")
    return float(depth**-0.5)


def _heads(x: Node, heads: int) -> Node:
    """[B, T, heads * D] as [T, B, heads, D], in f32."""
    b, t, width = x.type.shape
    return transpose(reshape(cast(x, dt.f32), (b, t, heads, index.floordiv(width, heads))), (1, 0, 2, 3))


def _each_more_often(x: Node, times: int) -> Node:
    """Heads of [T, B, heads, D] repeated in place."""
    t, b, heads, d = x.type.shape
    return broadcast(x, (t, b, heads, times, d), (0, 1, 2, 4))


def _per_head(x: Node, heads: int, most: Dim) -> Node:
    """[B, T, 1, or heads, or heads * most] as [T, B, heads, 1 or most], which then repeats where it has to."""
    b, t, width = x.type.shape
    if width == 1:
        x, width = broadcast(x, (b, t, heads), (0, 1, 2)), heads
    found = _heads(x, heads)
    return found if width != heads or most == 1 else broadcast(found, (t, b, heads, most), (0, 1, 2, 3))


# --- rotation by three positions -------------------------------------------------------------------------


@operator("MRotaryEmbedding", domain=MICROSOFT)
def multimodal_rotary_embedding(c: Context, x: Node, at: Node, cos: Node, sin: Node) -> Node:
    """`RotaryEmbedding` by the angles of a token's place in time, height or width, as `mrope_section` says for each angle."""
    if c.integer("is_packed_batching", 0) or c.real("scale", 1.0) != 1:
        raise c.unsupported("packed batches, or a scale of its own")
    half, sections, heads = cos.type.shape[1], c.integers("mrope_section"), c.integer("num_heads", 0)
    if len(sections) != 3 or min(sections) < 0 or sum(sections) != half or at.type.rank != 3:
        raise c.broken(f"sections {sections} of {index.show(half)} angles, positions {at.type}", "three that add up, [3, B, S]")
    if x.type.rank == 3:
        count = heads or index.floordiv(x.type.shape[2], 2 * half)
        if not isinstance(count, int):
            raise c.unsupported("a number of heads that is not known")
        wide = split_heads(x, count)
    else:
        wide = x
    which = constant(_streams(sections, bool(c.integer("mrope_layout", 0))))
    angles = [_mixed(apply("gather", t, normal_positions(at, t.type.shape[0]), axis=0), which) for t in (cos, sin)]
    out = turned_by(wide, angles[0], angles[1], bool(c.integer("interleaved", 0)))
    return join_heads(out) if x.type.rank == 3 else out


def _streams(sections: tuple[int, ...], woven: bool) -> np.ndarray:
    """Which of the three positions each angle takes: in blocks, or every third one as far as that goes."""
    if not woven:
        return np.repeat(np.arange(3), sections)
    found = np.zeros(sum(sections), np.int64)
    for k in (1, 2):
        found[k : sections[k] * 3 : 3] = k
    return found


def _mixed(angles: Node, which: Node) -> Node:
    """[B, S, half] of [3, B, S, half]."""
    shape = angles.type.shape[1:]
    at = broadcast(which, (1, *shape), (3,))
    return reshape(apply("gather_elements", angles, at, axis=0), shape)
