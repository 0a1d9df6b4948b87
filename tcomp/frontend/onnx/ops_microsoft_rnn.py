"""com.microsoft: LSTM by weights of 8 bits; what they are multiplied by is quantised by its range."""

from __future__ import annotations

from tcomp.frontend.onnx.build import pick
from tcomp.frontend.onnx.ops_microsoft_quant import integer_product, quantized_by_range
from tcomp.frontend.onnx.ops_rnn import Product, lstm_of
from tcomp.frontend.onnx.registry import MICROSOFT, Context, operator
from tcomp.ir import dtype as dt
from tcomp.ir.graph import full, transpose
from tcomp.ir.node import Node


def _product(weights: Node, scale: Node, zero: Node, k: int) -> Product:
    """By the weights [in, 4 * hidden] of direction k, with one scale and zero point or one for each column."""
    codes, s, z = (pick(v, 0, k) for v in (weights, scale, zero))

    def product(x: Node) -> Node:
        return integer_product(*quantized_by_range(x), codes, s, z)

    return product


@operator("DynamicQuantizeLSTM", domain=MICROSOFT)
def dynamic_quantize_lstm(
    c: Context, x: Node, w: Node, r: Node, b: Node | None, lengths: Node | None, h: Node | None, cell: Node | None,
    p: Node | None, ws: Node, wz: Node, rs: Node, rz: Node,
) -> tuple[Node, ...]:  # fmt: skip
    """Weights are [directions, in, 4 * hidden]."""
    count, _, rows = w.type.shape
    b = full(0, dt.f32, (count, 2 * rows)) if b is None else b

    def quantised(k: int) -> tuple[Product, Product]:
        return _product(w, ws, wz, k), _product(r, rs, rz, k)

    return lstm_of(c, x, transpose(w, (0, 2, 1)), transpose(r, (0, 2, 1)), b, lengths, h, cell, p, quantised)
