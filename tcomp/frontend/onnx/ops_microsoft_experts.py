"""com.microsoft: mixtures of experts. A loop over the experts, in which one that no token has chosen does nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tcomp.frontend.onnx import build, regions
from tcomp.frontend.onnx.build import pick, take, with_scalar
from tcomp.frontend.onnx.ops_activation import fast_gelu_of, softmax_of
from tcomp.frontend.onnx.ops_linear import dot
from tcomp.frontend.onnx.ops_microsoft import silu_of
from tcomp.frontend.onnx.ops_microsoft_quant import repeated, unpacked
from tcomp.frontend.onnx.registry import MICROSOFT, Context, operator
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.graph import broadcast, cast, full, reshape
from tcomp.ir.node import Dim, Node, walk
from tcomp.ir.ops import apply, item

_ACTIVATIONS: dict[str, Callable[[Node], Node]] = {
    "relu": lambda x: with_scalar("max", x, 0),
    "gelu": fast_gelu_of,
    "silu": silu_of,
    "identity": lambda x: x,
}


@dataclass(frozen=True, slots=True)
class Layer:
    """The weights [experts, out, in] of one layer, and what there is to them: biases [experts, out]; of whole numbers of `bits`
    bits their scales [experts, out, blocks], and zero points in bytes."""

    weights: Node
    bias: Node | None
    scales: Node | None = None
    zeros: Node | None = None
    bits: int = 0

    def of(self, expert: Dim) -> Layer:
        """Of one expert, without the first axis."""
        bias, scales, zeros = (None if v is None else pick(v, 0, expert) for v in (self.bias, self.scales, self.zeros))
        return Layer(pick(self.weights, 0, expert), bias, scales, zeros, self.bits)

    def __call__(self, x: Node) -> Node:
        """x [tokens, in] through the layer of one expert, in f32."""
        weights = cast(self.weights, dt.f32) if self.scales is None else self._dequantised(self.scales)
        out = dot(x, weights, ((), ()), ((1,), (1,)))
        return out if self.bias is None else apply("add", out, build.spread(cast(self.bias, dt.f32), out.type.shape))

    def _dequantised(self, scales: Node) -> Node:
        codes = cast(unpacked(self.weights, self.bits), dt.f32)
        rows, columns = codes.type.shape
        scales = reshape(cast(scales, dt.f32), (rows, index.floordiv(index.product(scales.type.shape), rows)))
        blocks = scales.type.shape[1]
        if not isinstance(blocks, int) or not isinstance(columns, int):
            raise TypeError("experts of a size that is not known")
        if self.zeros is None:
            zeros = full(2 ** (self.bits - 1), dt.f32, (rows, blocks))
        else:
            found = unpacked(self.zeros, self.bits)
            flat = take(found, found.type.rank - 1, 0, blocks if found.type.rank == 2 else rows)
            zeros = reshape(cast(flat, dt.f32), (rows, blocks))
        size = columns // blocks
        return apply("mul", apply("sub", codes, repeated(zeros, 1, size, columns)), repeated(scales, 1, size, columns))


def _chosen_weights(c: Context, logits: Node, mixing: Node | None) -> tuple[Node, Node]:
    """([tokens, experts] of f32: the share that each expert has in each token; whether it has one)."""
    k, (tokens, experts) = c.integer("k", 1), logits.type.shape
    if isinstance(experts, int) and not 1 <= k <= experts:
        raise c.broken(f"{k} of {experts} experts", "as many as there are")
    wide = cast(logits, dt.f32)
    best, at = (item(apply("top_k", wide, k=k, axis=1, largest=True), j) for j in (0, 1))
    even = bool(c.integer("normalize_routing_weights", 0))
    if mixing is not None:
        shares = apply("gather_elements", cast(mixing, dt.f32), at, axis=1)
        if even:
            total = apply("reduce", shares, monoid="add", axes=(1,))
            shares = apply("div", shares, broadcast(total, shares.type.shape, (0,)))
    elif even:
        shares = softmax_of(best, (1,))
    else:
        shares = apply("gather_elements", softmax_of(wide, (1,)), at, axis=1)
    none = full(0, dt.f32, (tokens, experts))
    weights = apply("scatter_elements", none, at, shares, axis=1, monoid=None)
    no, yes = full(False, dt.bool_, none.type.shape), full(True, dt.bool_, at.type.shape)
    flags = apply("scatter_elements", no, at, yes, axis=1, monoid=None)
    return weights, flags


def _gated(c: Context, gate: Node, line: Node) -> Node:
    """SwiGLU, clipped where the model says so."""
    if c.integer("swiglu_limit_after_activation", 0):
        raise c.unsupported("a limit after the activation")
    if c.has("swiglu_limit"):
        limit = c.real("swiglu_limit")
        gate = with_scalar("min", gate, limit)
        line = with_scalar("max", with_scalar("min", line, limit), -limit)
    turned = silu_of(gate, c.real("activation_alpha", 1.0))
    return apply("mul", turned, with_scalar("add", line, c.real("activation_beta", 0.0)))


def _inner(c: Context, first: Layer, third: Layer | None, x: Node) -> Node:
    """What the second layer is given."""
    name, h = c.string("activation_type", "relu"), first(x)
    if name == "swiglu":
        fusion, (tokens, width) = c.integer("swiglu_fusion", 0), h.type.shape
        half = index.floordiv(width, 2)
        if fusion == 0 and third is not None:
            return _gated(c, h, third(x))
        if fusion == 1:
            pairs = reshape(h, (tokens, half, 2))
            return _gated(c, *(pick(pairs, 2, k) for k in (0, 1)))
        if fusion == 2:
            return _gated(c, take(h, 1, 0, half), take(h, 1, half, half))
        raise c.broken(f"swiglu_fusion {fusion} {'with' if third else 'without'} a third layer", "0 with one, 1 or 2 without")
    if name not in _ACTIVATIONS or third is not None:
        raise c.unsupported(f"activation {name!r} {'with' if third else 'without'} a third layer")
    return _ACTIVATIONS[name](h)


def _mixture(c: Context, x: Node, logits: Node, mixing: Node | None, layers: Sequence[Layer | None]) -> Node:
    """The sum of what the chosen experts make of each token, by their shares."""
    if c.integer("use_sparse_mixer", 0):
        raise c.unsupported("use_sparse_mixer")
    first, second, third = layers
    assert first is not None and second is not None
    tokens, experts = logits.type.shape
    flat = cast(reshape(x, (tokens, x.type.shape[-1])), dt.f32)
    weights, flags = _chosen_weights(c, logits, mixing)

    def turn(expert: Node, carried: tuple[Node, ...]) -> tuple[Node, ...]:
        (total,) = carried
        share, mine = (pick(v, 1, expert) for v in (weights, flags))
        outside = frozenset(walk([total, share, mine, flat, *(v for layer in layers if layer for v in _nodes(layer))]))
        inner = _inner(c, first.of(expert), None if third is None else third.of(expert), flat)
        out = second.of(expert)(inner)
        shape = out.type.shape
        part = apply("mul", out, broadcast(share, shape, (0,)))
        part = apply("where", broadcast(mine, shape, (0,)), part, full(0, dt.f32, shape))
        any_ = apply("reduce", mine, monoid="or", axes=(0,))
        return regions.cond(c, any_, [apply("add", total, part)], [total], outside)

    (total,) = regions.loop(c, (full(0, dt.f32, flat.type.shape),), experts, turn)
    return cast(reshape(total, x.type.shape), x.type.dtype)


def _nodes(layer: Layer) -> list[Node]:
    return [v for v in (layer.weights, layer.bias, layer.scales, layer.zeros) if v is not None]


@operator("MoE", domain=MICROSOFT)
def moe(
    c: Context, x: Node, logits: Node, w1: Node, b1: Node | None, w2: Node, b2: Node | None = None, w3: Node | None = None,
    b3: Node | None = None,
) -> Node:  # fmt: skip
    return _mixture(c, x, logits, None, [Layer(w1, b1), Layer(w2, b2), None if w3 is None else Layer(w3, b3)])


@operator("QMoE", domain=MICROSOFT)
def qmoe(
    c: Context, x: Node, logits: Node, w1: Node, s1: Node, b1: Node | None, w2: Node, s2: Node, b2: Node | None = None,
    w3: Node | None = None, s3: Node | None = None, b3: Node | None = None, z1: Node | None = None, z2: Node | None = None,
    z3: Node | None = None, mixing: Node | None = None, *more: Node | None,
) -> Node:  # fmt: skip
    """Weights are whole numbers: (code - zero point) * scale, for each row, or for each block of a row."""
    if c.string("quant_type", "int") != "int" or any(v is not None for v in more) or c.integer("weights_prepacked", -1) == 1:
        raise c.unsupported("weights that are no plain whole numbers")
    usual = c.integer("expert_weight_bits", 4)
    bits = [c.integer(f"fc{k}_expert_weight_bits", usual) for k in (1, 2, 3)]
    if any(b not in (2, 4, 8) for b in bits):
        raise c.unsupported(f"weights of {bits} bits")
    third = None if w3 is None else Layer(w3, b3, s3, z3, bits[2])
    return _mixture(c, x, logits, mixing, [Layer(w1, b1, s1, z1, bits[0]), Layer(w2, b2, s2, z2, bits[1]), third])
