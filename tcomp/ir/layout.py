"""Layouts of buffers: capacity, strides, and the byte address of an element, all from `order`."""

from __future__ import annotations

from dataclasses import dataclass

from tcomp.ir import index
from tcomp.ir.index import ceildiv
from tcomp.ir.node import Dim
from tcomp.ir.types import Buffer


@dataclass(frozen=True, slots=True)
class Digit:
    """One factor of the order: `(position of axis // divisor) % modulus * stride` elements; modulus None: no limit."""

    axis: int
    divisor: int
    modulus: int | None
    stride: Dim


def capacity(buffer: Buffer) -> tuple[Dim, ...]:
    """The extents that memory is laid out for: exact in foreign memory, upper bounds in our own."""
    if buffer.space in ("global", "ws"):
        return buffer.shape
    out: list[Dim] = []
    for d in buffer.shape:
        hi = index.bounds(d)[1]
        assert hi is not None, f"{buffer.name}: the extent {index.show(d)} of an own tile has no upper bound"
        out.append(hi)
    return tuple(out)


def blocks(buffer: Buffer) -> tuple[int, ...]:
    """What each axis is rounded up to by the order's blocks."""
    sizes = [1] * buffer.rank
    for axis, block in buffer.order or ():
        sizes[axis] *= block or 1
    return tuple(sizes)


def room(buffer: Buffer) -> tuple[Dim, ...]:
    """What memory covers along each axis: the capacity, in whole blocks."""
    return tuple(index.round_up(d, block) for d, block in zip(capacity(buffer), blocks(buffer)))


def digits(buffer: Buffer) -> tuple[tuple[Digit, ...], Dim]:
    """The factors of the layout, outer to inner, and the number of elements it takes."""
    shape = capacity(buffer)
    order = buffer.order if buffer.order is not None else tuple((a, 0) for a in range(buffer.rank))
    inner = dict.fromkeys(range(buffer.rank), 1)  # elements of the axis that inner factors cover
    out: list[Digit] = []
    stride: Dim = 1
    for axis, block in reversed(order):
        out.append(Digit(axis, inner[axis], block or None, stride))
        stride = index.mul(stride, block or ceildiv(shape[axis], inner[axis]))
        inner[axis] *= block or 1
        if buffer.pad and len(out) == 1:
            stride = index.add(stride, buffer.pad)
    return tuple(reversed(out)), stride


def size(buffer: Buffer) -> Dim:
    """Bytes of the buffer."""
    return index.mul(digits(buffer)[1], buffer.dtype.bytes)


def offset(buffer: Buffer, position: tuple[Dim, ...]) -> Dim:
    """The element offset of a position, as an index expression."""
    total: Dim = 0
    for d in digits(buffer)[0]:
        q = index.floordiv(position[d.axis], d.divisor)
        q = q if d.modulus is None else index.mod(q, d.modulus)
        total = index.add(total, index.mul(q, d.stride))
    return total
