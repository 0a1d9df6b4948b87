"""Buffers as the interpreter keeps them: logical arrays, whatever their order; all accesses are checked.

A buffer has *extents*, where its elements are, and *room*, what its memory covers: own buffers are laid out for the upper
bounds of their extents, and an order with blocks rounds up to the block. New memory holds garbage (NaN, or a large odd number),
so that reading what was never written shows.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from tcomp.ir import layout
from tcomp.ir.dtype import DType, to_numpy
from tcomp.ir.interp.indices import Value
from tcomp.ir.types import Buffer


@dataclass(frozen=True, slots=True)
class Storage:
    """The memory of one buffer. array: its room; extents: where its elements are; writable: not an input."""

    buffer: Buffer
    array: np.ndarray
    extents: tuple[int, ...]
    writable: bool = True

    @property
    def elements(self) -> np.ndarray:
        """The part that holds elements."""
        return self.array[tuple(slice(n) for n in self.extents)]


def garbage(shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    """New memory, as bad as memory gets."""
    t = to_numpy(dtype)
    if dtype.is_float:
        return np.full(shape, np.nan, t)
    return np.full(shape, True if dtype.kind == "bool" else int(ml_dtypes.iinfo(t).max) - (2 if dtype.bits > 2 else 0), t)


def room(buffer: Buffer, capacity: tuple[int, ...]) -> tuple[int, ...]:
    """The extents that memory laid out for `capacity` covers."""
    return tuple(-(-n // b) * b for n, b in zip(capacity, layout.blocks(buffer)))


def allocate(buffer: Buffer, extents: tuple[int, ...]) -> Storage:
    """New memory for a buffer of these extents."""
    own = buffer.space not in ("global", "ws")
    capacity = tuple(_static(d) for d in layout.capacity(buffer)) if own else extents
    assert all(e <= c for e, c in zip(extents, capacity)), f"{buffer.name}: extents {extents} beyond its capacity {capacity}"
    return Storage(buffer, garbage(room(buffer, capacity), buffer.dtype), extents)


def _static(d: object) -> int:
    assert isinstance(d, int)
    return d


def adopt(buffer: Buffer, array: np.ndarray, extents: tuple[int, ...], writable: bool) -> Storage:
    """A caller's array as a buffer: of its room, or of its extents alone where these differ (then it is copied)."""
    assert array.dtype == to_numpy(buffer.dtype), f"{buffer.name}: an array of {array.dtype} for {buffer.dtype}"
    covered = room(buffer, extents)
    if array.shape == covered:
        return Storage(buffer, array, extents, writable)
    assert array.shape == extents, f"{buffer.name}: an array of shape {array.shape} for {extents}"
    wide = Storage(buffer, np.zeros(covered, array.dtype), extents, writable)
    wide.elements[...] = array
    return wide


def check_inside(storage: Storage, positions: list[Value], what: str) -> None:
    """AssertionError unless every position lies in the buffer's memory (foreign memory: among its elements)."""
    for axis, (p, n) in enumerate(zip(positions, storage.array.shape)):
        low, high = (p.min(), p.max()) if isinstance(p, np.ndarray) and p.size else (p, p)
        if isinstance(low, np.ndarray):
            continue
        assert low >= 0 and high < n, f"{what} {storage.buffer.name}: positions {low} to {high} of axis {axis}, of size {n}"


def gather(storage: Storage, positions: list[Value]) -> np.ndarray:
    """The elements at these positions (broadcast together). AssertionError outside the buffer."""
    check_inside(storage, positions, "read outside")
    return np.asarray(storage.array[tuple(positions)])


def gather_or(storage: Storage, positions: list[Value], extents: tuple[int, ...], other: np.ndarray) -> np.ndarray:
    """The elements at these positions, `other` at those outside the buffer's extents."""
    inside = np.ones(extents, bool)
    for p, n in zip(positions, storage.extents):
        inside = inside & (p >= 0) & (p < n)
    out = np.broadcast_to(other, extents).copy()
    at = tuple(np.broadcast_to(p, extents)[inside] for p in positions)
    out[inside] = storage.array[at] if positions else storage.array
    return out


def scatter(storage: Storage, positions: list[Value], value: np.ndarray, combine: np.ufunc | None) -> None:
    """Write to these positions, or combine with what is there. AssertionError outside the buffer, or into an input."""
    assert storage.writable, f"{storage.buffer.name} is an input, and inputs are never written"
    if value.size == 0:
        return
    check_inside(storage, positions, "write outside")
    if combine is None:
        one = not any(isinstance(p, np.ndarray) for p in positions)  # of a window of unit axes
        storage.array[tuple(positions)] = value.reshape(()) if one else value
    else:
        at = tuple(np.broadcast_to(p, value.shape) for p in positions)
        combine.at(storage.array, at, value)
