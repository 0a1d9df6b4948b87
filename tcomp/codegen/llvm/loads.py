"""Loads and stores of windows, one register vector or one element at a time.

By how its lanes lie in memory a vector is one load (contiguous), one element repeated (lane-free), a column of a 16 by 16 block
transposed in registers (rows contiguous), or a gather.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tcomp.codegen.llvm import lane_index, masks, memory
from tcomp.codegen.llvm.address import LANE, Access, Lanes, access, condition, element_address, lanes_of, row_lanes
from tcomp.codegen.llvm.convert import MEMORY, Elements, from_memory, to_memory
from tcomp.codegen.llvm.lanes import spread, transpose
from tcomp.codegen.llvm.masks import Mask
from tcomp.codegen.llvm.writer import Key, Writer, register_type
from tcomp.ir import index
from tcomp.ir.dtype import DType, u16
from tcomp.ir.machine import LANES
from tcomp.ir.node import Dim, Node, walk
from tcomp.ir.tile import Window, load_of

Other = Callable[[], str]  # emits the `else` value of a window


def elements(w: Writer, lanes: int = LANES) -> Elements:
    return Elements(w.b, lanes, w.features)


# --- loads ---------------------------------------------------------------------------------------------


def load_vector(w: Writer, n: Node, key: Key, other: Other | None) -> str:
    """Vector `key[-1]` of the rows `key[:-1]` of a window, in register form."""
    win = w.window(n)
    dtype: DType = win.buffer.dtype
    there = masks.existing(w, win, key)
    inside = masks.inside(w, win, key) if other is not None else None
    raw = _raw_vector(w, n, win, key, masks.both(w, there, inside))
    x = from_memory(elements(w), dtype, raw)
    if other is None or inside is None:
        return x
    kind = register_type(dtype)
    x = w.b.value(f"select {memory.MASK} {inside}, {kind} {x}, {kind} {other()}")
    if there is None:
        return x
    return w.b.value(f"select {memory.MASK} {there}, {kind} {x}, {kind} zeroinitializer")


def _raw_vector(w: Writer, n: Node, win: Window, key: Key, mask: Mask) -> str:
    element = MEMORY[win.buffer.dtype.name]
    if mask == "zeroinitializer":
        return "zeroinitializer"
    a = access(w, n)
    lanes = lanes_of(w, a, key)
    if lanes.offset is not None:
        return _gather_bent(w, element, lanes, mask)
    if lanes.stride == 1:
        return memory.load(w, element, lanes.pointer, mask)
    if lanes.stride == 0:
        return _repeated(w, element, lanes.pointer, mask)
    axis = _contiguous_axis(a, win)
    if axis is not None:
        return _transposed(w, n, win, a, key, axis)
    if mask is None and isinstance(lanes.stride, int) and abs(lanes.stride) <= _NEAR:
        return _spread(w, element, lanes.pointer, lanes.stride)
    return memory.gather(w, element, lanes.pointer, _strided(w, lanes.stride, element), mask)


_NEAR = 4  # strides up to which a few whole vectors cost less than a gather


def _spread(w: Writer, element: str, pointer: str, stride: int) -> str:
    """Lanes a small constant stride apart: the vectors that hold them, shuffled."""
    size, reach = memory.bytes_of(element), LANES - 1
    first = 0 if stride > 0 else stride * reach * size
    at = (first + i * reach * size for i in range(abs(stride)))
    pointers = [w.pure(w.level, f"getelementptr i8, ptr {pointer}, i64 {k}") if k else pointer for k in at]
    return spread(w.b, element, [memory.load(w, element, p, None) for p in pointers], stride)


def _strided(w: Writer, stride: Dim, element: str) -> memory.Offsets:
    """Byte offsets of lanes that lie `stride` elements apart."""
    return lane_index.offsets(w, index.mul(index.mul(stride, memory.bytes_of(element)), LANE))


def _gather_bent(w: Writer, element: str, lanes: Lanes, mask: Mask) -> str:
    assert lanes.offset is not None
    offsets = lane_index.offsets(w, index.mul(lanes.offset, memory.bytes_of(element)), mask)
    return memory.gather(w, element, lanes.pointer, offsets, mask)


def _repeated(w: Writer, element: str, pointer: str, mask: Mask) -> str:
    """One element in every lane; where no lane exists, zeros are read instead."""
    if mask is not None:
        bits = w.pure(w.level, f"bitcast {memory.MASK} {mask} to i{LANES}")
        some = w.pure(w.level, f"icmp ne i{LANES} {bits}, 0")
        pointer = w.pure(w.level, f"select i1 {some}, ptr {pointer}, ptr {memory.zeros(w)}")
    x = w.splat(element, w.b.value(f"load {element}, ptr {pointer}, align {memory.bytes_of(element)}"))
    if mask is None:
        return x
    kind = memory.kind_of(element)
    return w.b.value(f"select {memory.MASK} {mask}, {kind} {x}, {kind} zeroinitializer")


def _lanes_alone(win: Window) -> bool:
    """Whether only the last axis is partial, and no position is tested."""
    return win.other is None and all(v is None for v in win.valid[:-1])


def _contiguous_axis(a: Access, win: Window) -> int | None:
    """A row axis of some length whose elements are consecutive in memory, all of them there."""
    if not _lanes_alone(win):
        return None
    for k in range(win.rank - 1):
        extent = win.extents[k]
        if isinstance(extent, int) and extent >= 4 and k not in a.bent and a.strides[k] == 1:
            return k
    return None


def _transposed(w: Writer, n: Node, win: Window, a: Access, key: Key, axis: int) -> str:
    """The vector as a column of a block loaded along `axis`: the block's other columns are remembered for the rows to come."""
    first = key[axis] - key[axis] % LANES
    corner = (*key[:axis], first, *key[axis + 1 :])
    block = w.memo((n, "block", axis, corner, w.stamp(n)), lambda: _block(w, win, a, corner, axis))
    return str(block[key[axis] - first])


def _block(w: Writer, win: Window, a: Access, corner: Key, axis: int) -> list[str]:
    """LANES columns from `corner`, each LANES elements along `axis`, transposed. Columns that do not exist are zeros."""
    element = MEMORY[win.buffer.dtype.name]
    extent, count = win.extents[axis], win.valid[-1]
    assert isinstance(extent, int)
    rows = masks.prefix(w, extent, corner[axis])
    columns = []
    for lane in range(LANES):
        at = (*corner[:-1], corner[-1] * LANES + lane)
        pointer = row_lanes(w, a, at, axis).pointer
        if count is not None:
            there = condition(w, index.less(at[-1], count))
            pointer = _or_zeros(w, there, pointer)
        columns.append(memory.load(w, element, pointer, rows))
    return transpose(w.b, element, columns)


def _or_zeros(w: Writer, there: bool | str, pointer: str) -> str:
    """`pointer` where the condition holds, else the address of zeros."""
    if isinstance(there, bool):
        return pointer if there else memory.zeros(w)
    return w.pure(w.level, f"select i1 {there}, ptr {pointer}, ptr {memory.zeros(w)}")


def load_element(w: Writer, n: Node, at: Key, other: Other | None) -> str:
    """One element of a window, in register form."""
    win = w.window(n)
    dtype: DType = win.buffer.dtype
    there = masks.exists(w, win, at)
    inside: bool | str = masks.is_inside(w, win, at) if other is not None else True
    x = from_memory(elements(w, 1), dtype, _raw_element(w, n, at, masks.conjunction(w, [there, inside])))
    if other is None or inside is True:
        return x
    kind = register_type(dtype, 1)
    x = other() if inside is False else w.b.value(f"select i1 {inside}, {kind} {x}, {kind} {other()}")
    if isinstance(there, bool):
        return x
    return w.b.value(f"select i1 {there}, {kind} {x}, {kind} {_zero(kind)}")


def _raw_element(w: Writer, n: Node, at: Key, exists: bool | str) -> str:
    """The element, or 0 where it does not exist: then neither it is read nor an index that it is found by."""
    win = w.window(n)
    element = MEMORY[win.buffer.dtype.name]
    align = memory.bytes_of(element)
    a = access(w, n)
    if isinstance(exists, bool) or not _reads_indices(win):
        pointer = memory.zeros(w) if exists is False else _or_zeros(w, exists, element_address(w, a, at))
        return w.b.value(f"load {element}, ptr {pointer}, align {align}")
    before = w.b.block
    found: list[str] = []

    def load() -> None:
        found.append(w.b.value(f"load {element}, ptr {element_address(w, a, at)}, align {align}"))
        found.append(w.b.block)

    guarded(w, exists, load)
    return w.b.value(f"phi {element} [ {_zero(element)}, %{before} ], [ {found[0]}, %{found[1]} ]")


def _zero(element: str) -> str:
    return "false" if element == "i1" else "0" if element.startswith("i") else "0.0"


def _reads_indices(win: Window) -> bool:
    return any(n.op == "read" for n in walk(p for p in win.positions if isinstance(p, Node)))


def guarded(w: Writer, test: bool | str, body: Callable[[], None]) -> None:
    """Run `body`, a level deeper, where the condition holds."""
    if test is False:
        return
    if test is True:
        body()
        return
    do, after = w.b.fresh("do"), w.b.fresh("after")
    landing = w.b.landing()
    w.b.branch_if(str(test), do, after)
    w.b.start(do)
    with w.scope(landing):
        body()
    w.b.branch(after)
    w.b.start(after)


# --- stores --------------------------------------------------------------------------------------------


def store_vector(w: Writer, n: Node, key: Key, x: str) -> Mask:
    """Write one vector to a window; gives the mask it was written under."""
    win = w.window(n)
    element = MEMORY[win.buffer.dtype.name]
    mask = masks.existing(w, win, key)
    if mask == "zeroinitializer":
        return mask
    raw = to_memory(elements(w), win.buffer.dtype, x)
    lanes = lanes_of(w, access(w, n), key)
    if lanes.offset is not None:
        offsets = lane_index.offsets(w, index.mul(lanes.offset, memory.bytes_of(element)), mask)
        memory.scatter(w, element, raw, lanes.pointer, offsets, mask)
    elif lanes.stride == 1:
        memory.store(w, element, raw, lanes.pointer, mask)
    else:
        memory.scatter(w, element, raw, lanes.pointer, _strided(w, lanes.stride, element), mask)
    return mask


def store_element(w: Writer, n: Node, at: Key, x: str) -> None:
    """Write one element of a window, where it exists."""
    win = w.window(n)
    element = MEMORY[win.buffer.dtype.name]
    raw = to_memory(elements(w, 1), win.buffer.dtype, x)

    def store() -> None:
        pointer = element_address(w, access(w, n), at)
        w.b.effect(f"store {element} {raw}, ptr {pointer}, align {memory.bytes_of(element)}")

    guarded(w, masks.exists(w, win, at), store)


def as_bits(w: Writer, n: Node) -> Node:
    """A load of 16-bit floats as one of their bits, so that copying them changes none; any other node as it is."""
    win = w.window(n)
    if win.other is not None or win.buffer.dtype.name not in ("f16", "bf16"):
        return n
    return load_of(replace(win, buffer=replace(win.buffer, dtype=u16)))
