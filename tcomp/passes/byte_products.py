"""`byte_products`: products of i32 values that are bytes become products of bytes.

Takes a decomposed GRAPH, gives one of the same meaning, bit for bit: every `dot`, and every `conv` by known weights, whose i32
operands are bytes less a number that is the same for all of them, is one of u8 by i8 (either way), with sums over the operands
put right. Signs are made to differ by flipping the highest bit of the first operand; sums of known weights are known. Must leave
alone what is too small to gain, and all of it where the machine has no instruction for products of bytes.

    y = dot cast(a : i8), cast(b : i8)   ->   y = dot(bitcast(a ^ -128 : u8), b) - 128 * broadcast(reduce add b)
    y = dot (cast(a : u8) - z), w        ->   y = dot(a, w : i8) - z * broadcast(reduce add w)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.graph import broadcast, cast, full
from tcomp.ir.machine import Machine
from tcomp.ir.module import Module
from tcomp.ir.node import Node, with_operands
from tcomp.ir.ops import apply, constant
from tcomp.passes.rebuild import rebuilt

LEAST_DEPTH, LEAST_COLUMNS = 8, 8  # below, words are mostly padding
_BYTES = (dt.i8, dt.u8)
_MOVED = frozenset(["broadcast", "reshape", "transpose", "slice", "window"])


@dataclass(frozen=True, slots=True)
class Bytes:
    """The i32 value `cast(node) + offset - zero`: node of i8 or u8, zero an i32 scalar or None."""

    node: Node
    offset: int = 0
    zero: Node | None = None


def byte_products(module: Module, machine: Machine) -> Module:
    """`module` with its products of bytes as such."""
    if machine.words() is None:
        return rebuilt(module, lambda n, operands: with_operands(n, operands))
    return rebuilt(module, partial(_changed, memo={}))


def _changed(n: Node, operands: tuple[Node, ...], memo: dict[Node, Bytes | None]) -> Node:
    new = with_operands(n, operands)
    if n.op not in ("dot", "conv") or n.type.dtype != dt.i32 or not _is_large(new):
        return new
    if n.op == "conv" and (n["groups"] != 1 or operands[1].op != "constant"):
        return new
    a, b = (bytes_of(o, memo) for o in operands)
    if a is None or b is None or b.zero is not None or (b.offset and n.op == "conv"):
        return new
    return _product(new, _of_other_sign(a, b.node.type.dtype), b)


def _is_large(n: Node) -> bool:
    """Whether the product is worth it; sizes that are not known count as large."""
    b = n.operands[1].type.shape
    depth = index.product(b[:-1]) if n.op == "conv" else b[-2]
    return all(not isinstance(d, int) or d >= least for d, least in ((depth, LEAST_DEPTH), (b[-1], LEAST_COLUMNS)))


# --- what is bytes ---------------------------------------------------------------------------------


def bytes_of(n: Node, memo: dict[Node, Bytes | None]) -> Bytes | None:
    """`n`, an i32 value, as bytes; None where it is not."""
    if n not in memo:
        memo[n] = _found(n, memo)
    return memo[n]


def _found(n: Node, memo: dict[Node, Bytes | None]) -> Bytes | None:
    match n.op:
        case "cast" if n.operands[0].type.dtype in _BYTES:
            return Bytes(n.operands[0])
        case "constant":
            return _constant_bytes(n["value"].array)
        case "sub":
            x, zero = bytes_of(n.operands[0], memo), _scalar(n.operands[1])
            if x is None or zero is None or x.zero is not None:
                return None
            known = zero["value"].array if zero.op == "constant" else None
            return replace(x, zero=zero) if known is None else replace(x, offset=x.offset - int(known))
        case "pad":
            return _padded(n, memo)
    if n.op not in _MOVED:
        return None
    x = bytes_of(n.operands[0], memo)
    return None if x is None else replace(x, node=apply(n.op, x.node, **dict(n.attrs)))


def _constant_bytes(array: np.ndarray) -> Bytes | None:
    """A constant whose elements span at most 255."""
    if array.size == 0:
        return None
    low, high = int(array.min()), int(array.max())
    if high - low > 255:
        return None
    if low >= -128 and high <= 127:
        return Bytes(_stored(array.astype(np.int8)))
    if low >= 0 and high <= 255:
        return Bytes(_stored(array.astype(np.uint8)))
    return Bytes(_stored((array - (low + 128)).astype(np.int8)), low + 128)


def _stored(array: np.ndarray) -> Node:
    array.setflags(write=False)
    return constant(array)


def _scalar(n: Node) -> Node | None:
    """The scalar that `n` repeats, or None."""
    while n.op in ("broadcast", "reshape") and n.type.rank:
        n = n.operands[0]
    if n.op == "constant" and n.type.rank and (n["value"].array == n["value"].array.reshape(-1)[:1]).all():
        return constant(n["value"].array.reshape(-1)[0])
    return n if n.type.rank == 0 else None


def _padded(n: Node, memo: dict[Node, Bytes | None]) -> Bytes | None:
    """Padding by a byte: by a known value that is one, or by zero where what zero stands for is a byte of the same dtype."""
    x, fill = bytes_of(n.operands[0], memo), n.operands[1]
    if x is None or fill.op != "constant":
        return None
    wanted, t = int(fill["value"].array) - x.offset, x.node.type.dtype
    info = np.iinfo(dt.to_numpy(t))
    if x.zero is None and info.min <= wanted <= info.max:
        byte = full(wanted, t)
    elif x.zero is not None and wanted == 0 and x.zero.op == "cast" and x.zero.operands[0].type.dtype == t:
        byte = x.zero.operands[0]
    else:
        return None
    return replace(x, node=apply("pad", x.node, byte, **dict(n.attrs)))


# --- the product -----------------------------------------------------------------------------------


def _of_other_sign(a: Bytes, sign: dt.DType) -> Bytes:
    """`a` as bytes of the other dtype than `sign`: the same less or plus 128."""
    if a.node.type.dtype != sign:
        return a
    target, moved = (dt.u8, -128) if sign == dt.i8 else (dt.i8, 128)
    flipped = _flipped(a.node, target)
    return replace(a, node=flipped, offset=a.offset + moved)


def _flipped(x: Node, target: dt.DType) -> Node:
    """The bytes with their highest bit flipped, read as `target`; under movements, where there may be less to do."""
    if x.op == "constant":
        return _stored((x["value"].array.view(np.uint8) ^ np.uint8(128)).view(dt.to_numpy(target)))
    if x.op in _MOVED:
        return apply(x.op, _flipped(x.operands[0], target), **dict(x.attrs))
    bits = x if x.type.dtype == dt.u8 else apply("bitcast", x, dtype=dt.u8)
    return apply("bitcast", apply("xor", bits, full(128, dt.u8, x.type.shape)), dtype=target)


def _product(n: Node, a: Bytes, b: Bytes) -> Node:
    """The product of the bytes, and what makes it that of the values: with A = a + p and B = b + q for numbers p and q, the sum
    of A B is that of a b, plus p times that of b, plus q times that of a, plus k p q."""
    total = apply(n.op, a.node, b.node, **dict(n.attrs))
    p = _shift(a)
    if p is not None:
        columns = _column_sums(n, b.node)
        if columns.op == "constant" and p.op == "constant":
            columns = constant(columns["value"].array * p["value"].array)
        else:
            columns = apply("mul", columns, broadcast(p, columns.type.shape, ()))
        total = apply("add", total, broadcast(columns, n.type.shape, _last_axes(n, columns)))
    if b.offset:
        rows = apply("reduce", cast(a.node, dt.i32), monoid="add", axes=(a.node.type.rank - 1,))
        if p is not None:
            depth = apply("dimension", dim=n.operands[0].type.shape[-1], dtype=dt.i32)
            rows = apply("add", rows, broadcast(apply("mul", depth, p), rows.type.shape, ()))
        rows = apply("mul", rows, full(b.offset, dt.i32, rows.type.shape))
        total = apply("add", total, broadcast(rows, n.type.shape, tuple(range(rows.type.rank))))
    return total


def _shift(a: Bytes) -> Node | None:
    """The scalar that is added to every byte, or None for nothing."""
    known = full(a.offset, dt.i32)
    if a.zero is None:
        return known if a.offset else None
    return apply("sub", known, a.zero)


def _column_sums(n: Node, b: Node) -> Node:
    """The sums of the second operand's bytes over what is contracted."""
    axes = tuple(range(b.type.rank - 1)) if n.op == "conv" else (b.type.rank - 2,)
    if b.op == "constant":
        return _stored(b["value"].array.sum(axes, dtype=np.int32))
    return apply("reduce", cast(b, dt.i32), monoid="add", axes=axes)


def _last_axes(n: Node, columns: Node) -> tuple[int, ...]:
    """Where sums over columns go in the result: their batch axis, and the last."""
    return (*range(columns.type.rank - 1), n.type.rank - 1)
