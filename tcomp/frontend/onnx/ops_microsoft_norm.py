"""com.microsoft: normalisations with what stands before them (skip connections, biases, embeddings) and after (activations)."""

from __future__ import annotations

from tcomp.frontend.onnx import build
from tcomp.frontend.onnx.build import along, channels_first, channels_last, mean, normal_positions, with_scalar
from tcomp.frontend.onnx.ops_activation import in_wide
from tcomp.frontend.onnx.ops_microsoft import silu_of
from tcomp.frontend.onnx.ops_microsoft_quant import dequantized
from tcomp.frontend.onnx.ops_norm import centred, layer_norm
from tcomp.frontend.onnx.registry import MICROSOFT, Context, operator
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.graph import broadcast, cast, full, reshape
from tcomp.ir.node import Node
from tcomp.ir.ops import apply

operator("LayerNormalization")(layer_norm)  # onnxruntime wrote it into the default domain before opset 17
Stages = tuple[Node, Node, Node]


def normalised(x: Node, epsilon: float, gamma: Node, beta: Node | None, centre: bool) -> Stages:
    """(y, mean, 1 / deviation) over the last axis, the last two [..., 1] in the accumulator's precision."""
    wide = cast(x, dt.accumulator(x.type.dtype))
    axes, small = (x.type.rank - 1,), (*x.type.shape[:-1], 1)
    kept = tuple(range(x.type.rank - 1))
    if centre:
        d, m, power = centred(wide, axes)
    else:
        d, m, power = wide, mean(wide, axes, False), mean(apply("mul", wide, wide), axes, False)
    root = apply("sqrt", with_scalar("add", power, epsilon))
    inverse = apply("div", build.scalar(1, root), root)
    y = apply("mul", d, broadcast(inverse, d.type.shape, kept))
    y = apply("mul", y, build.spread(cast(gamma, y.type.dtype), y.type.shape))
    if beta is not None:
        y = apply("add", y, build.spread(cast(beta, y.type.dtype), y.type.shape))
    return cast(y, x.type.dtype), reshape(m, small), reshape(inverse, small)


def _skipped(x: Node, skip: Node, bias: Node | None) -> Node:
    """x + skip + bias, in the accumulator's precision."""
    wide = dt.accumulator(x.type.dtype)
    total = apply("add", cast(x, wide), build.spread(cast(skip, wide), x.type.shape))
    return total if bias is None else apply("add", total, build.spread(cast(bias, wide), x.type.shape))


@operator("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_norm(
    c: Context, x: Node, skip: Node, gamma: Node, beta: Node | None = None, bias: Node | None = None
) -> tuple[Node, ...]:
    """(y, mean, 1 / deviation, x + skip + bias)."""
    total = _skipped(x, skip, bias)
    y, m, inverse = normalised(total, c.real("epsilon", 1e-12), gamma, beta, centre=True)
    return cast(y, x.type.dtype), m, inverse, cast(total, x.type.dtype)


@operator("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_rms_norm(c: Context, x: Node, skip: Node, gamma: Node, bias: Node | None = None) -> tuple[Node, ...]:
    total = _skipped(x, skip, bias)
    y, m, inverse = normalised(total, c.real("epsilon", 1e-12), gamma, None, centre=False)
    return cast(y, x.type.dtype), m, inverse, cast(total, x.type.dtype)


@operator("SimplifiedLayerNormalization", domain=MICROSOFT)
@operator("SimplifiedLayerNormalization")
def rms_norm(c: Context, x: Node, scale: Node) -> tuple[Node, Node]:
    """(y, 1 / root mean square) over the axes from `axis` on, in the dtype of `scale`."""
    axis = c.axis(c.integer("axis", -1), x.type.rank)
    flat = reshape(x, (*x.type.shape[:axis], index.product(x.type.shape[axis:])))
    weights = reshape(scale, (index.product(scale.type.shape),))
    y, _, inverse = normalised(cast(flat, dt.accumulator(x.type.dtype)), c.real("epsilon", 1e-5), weights, None, centre=False)
    small = (*x.type.shape[:axis], *[1] * (x.type.rank - axis))
    return reshape(cast(y, scale.type.dtype), x.type.shape), reshape(inverse, small)


@operator("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_norm(
    c: Context,
    ids: Node,
    segments: Node | None,
    words: Node,
    positions: Node,
    segment_rows: Node | None,
    gamma: Node,
    beta: Node,
    mask: Node | None = None,
    at: Node | None = None,
) -> tuple[Node, ...]:
    """(normalised sum of embeddings, the number of tokens of each sequence, the sum)."""
    own = build.take(positions, 0, 0, ids.type.shape[1]) if at is None else _rows(positions, at)
    more = None if segments is None or segment_rows is None else _rows(segment_rows, segments)
    return _embedded(c, _rows(words, ids), own, more, gamma, beta, mask)


def _rows(table: Node, at: Node) -> Node:
    return apply("gather", table, normal_positions(at, table.type.shape[0]), axis=0)


def _embedded(
    c: Context, words: Node, positions: Node, segments: Node | None, gamma: Node, beta: Node, mask: Node | None
) -> tuple[Node, ...]:
    """`embed_layer_norm` of rows that were looked up."""
    own = positions if positions.type.rank == 3 else reshape(positions, (1, *positions.type.shape))
    total = apply("add", words, build.spread(own, words.type.shape))
    if segments is not None:
        total = apply("add", total, build.spread(segments, total.type.shape))
    y, _, _ = normalised(total, c.real("epsilon", 1e-12), gamma, beta, centre=True)
    none = full(0, dt.i32, words.type.shape[:1])
    counts = none if mask is None else apply("reduce", cast(mask, dt.i32), monoid="add", axes=(1,))
    return y, counts, total


@operator("QEmbedLayerNormalization", domain=MICROSOFT)
def quantised_embed_layer_norm(
    c: Context, ids: Node, segments: Node | None, words: Node, positions: Node, segment_rows: Node | None, gamma: Node,
    beta: Node, mask: Node | None, ws: Node, ps: Node, ss: Node | None, gs: Node, bs: Node, wz: Node, pz: Node,
    sz: Node | None, gz: Node, bz: Node,
) -> tuple[Node, Node]:  # fmt: skip
    """`EmbedLayerNormalization` by tables of bytes with a scale and a zero point each."""
    more = None
    if segments is not None and segment_rows is not None and ss is not None:
        more = dequantized(_rows(segment_rows, segments), ss, sz)
    own = dequantized(build.take(positions, 0, 0, ids.type.shape[1]), ps, pz)
    rows = dequantized(_rows(words, ids), ws, wz)
    y, counts, _ = _embedded(c, rows, own, more, dequantized(gamma, gs, gz), dequantized(beta, bs, bz), mask)
    return y, counts


@operator("GatedRMSNorm", domain=MICROSOFT)
def gated_rms_norm(c: Context, x: Node, scale: Node, gate: Node) -> Node:
    """Groups of as many elements as `scale` has, divided by their root mean square, times an activation of the gate."""
    (size,), width = scale.type.shape, x.type.shape[-1]
    if c.string("activation", "silu") not in ("silu", "swish", "sigmoid"):
        raise c.broken(f"activation {c.string('activation')!r}", "silu, swish or sigmoid")
    groups = cast(reshape(x, (*x.type.shape[:-1], index.floordiv(width, size), size)), dt.f32)
    y = reshape(normalised(groups, c.real("epsilon", 1e-5), scale, None, centre=False)[0], x.type.shape)
    wide = cast(gate, dt.f32)
    factor = apply("sigmoid", wide) if c.string("activation", "silu") == "sigmoid" else silu_of(wide)
    return cast(apply("mul", y, factor), x.type.dtype)


@operator("GroupNorm", domain=MICROSOFT)
def group_norm(c: Context, x: Node, gamma: Node, beta: Node) -> Node:
    """By groups of channels, which come last unless `channels_last` = 0; `activation` = 1 is SiLU."""
    last = bool(c.integer("channels_last", 1))
    first = channels_first(x) if last else x
    y = in_wide(lambda v: _by_groups(c, v, gamma, beta), first)
    y = in_wide(silu_of, y) if c.integer("activation", 0) else y
    return channels_last(y) if last else y


def _by_groups(c: Context, x: Node, gamma: Node, beta: Node) -> Node:
    """Groups of [N, C, *space] normalised, then scaled and shifted by channel."""
    n, channels, *space = x.type.shape
    groups = c.integer("groups")
    if not isinstance(channels, int) or groups < 1 or channels % groups:
        raise c.broken(f"{groups} groups of {index.show(channels)} channels", "a divisor")
    parts = reshape(x, (n, groups, channels // groups, *space))
    axes = tuple(range(2, parts.type.rank))
    d, _, variance = centred(parts, axes)
    root = apply("sqrt", with_scalar("add", variance, c.real("epsilon", 1e-5)))
    y = reshape(apply("div", d, broadcast(root, d.type.shape, (0, 1))), x.type.shape)
    scale, shift = (along(cast(v, x.type.dtype), 1, x.type.shape) for v in (gamma, beta))
    return apply("add", apply("mul", y, scale), shift)
