"""Vectors in memory: plain, masked, gathered and scattered, for every element type on every target.

Where the machine has masked instructions for the element width they are used; elsewhere a helper of the module goes lane by
lane, so that a tail costs neither code at each use nor a read outside the buffer. Elements here are in memory form.
"""

from __future__ import annotations

from dataclasses import dataclass

from tcomp.codegen.llvm.builder import FunctionBuilder, mangle
from tcomp.codegen.llvm.writer import Writer
from tcomp.ir.machine import LANES

MASK = f"<{LANES} x i1>"
OFFSETS = f"<{LANES} x i64>"


@dataclass(frozen=True, slots=True)
class Offsets:
    """Bytes from a base, one number for each lane: a vector of `element`, i32 or i64."""

    element: str
    vector: str

    @property
    def text(self) -> str:
        return f"<{LANES} x {self.element}> {self.vector}"

    def wide(self, w: Writer) -> str:
        """The numbers as i64."""
        return self.vector if self.element == "i64" else w.b.value(f"sext {self.text} to {OFFSETS}")


def bytes_of(element: str) -> int:
    return {"float": 4, "double": 8}.get(element) or int(element[1:]) // 8


def kind_of(element: str) -> str:
    return f"<{LANES} x {element}>"


def _masks_natively(w: Writer, element: str) -> bool:
    if bytes_of(element) >= 4:
        return bool(w.features & {"avx512f", "avx"})
    return {"avx512bw", "avx512vl"} <= w.features


def _gathers_natively(w: Writer, element: str) -> bool:
    return bytes_of(element) >= 4 and "avx512f" in w.features


def load(w: Writer, element: str, pointer: str, mask: str | None) -> str:
    """LANES consecutive elements; those not in the mask are not touched and 0."""
    kind = kind_of(element)
    align = bytes_of(element)
    if mask is None:
        return w.b.value(f"load {kind}, ptr {pointer}, align {align}")
    if not _masks_natively(w, element):
        return gather(w, element, pointer, consecutive(element), mask)
    name = f"@llvm.masked.load.{mangle(element, LANES)}.p0"
    w.b.module.declare(f"{kind} {name}(ptr, i32, {MASK}, {kind})")
    return w.b.value(f"call {kind} {name}(ptr {pointer}, i32 {align}, {MASK} {mask}, {kind} zeroinitializer)")


def store(w: Writer, element: str, x: str, pointer: str, mask: str | None) -> None:
    """LANES consecutive elements; those not in the mask are left alone."""
    kind = kind_of(element)
    align = bytes_of(element)
    if mask is None:
        w.b.effect(f"store {kind} {x}, ptr {pointer}, align {align}")
        return
    if (lane := _only_lane(mask)) is not None:
        one = w.b.value(f"extractelement {kind} {x}, i64 {lane}")
        at = w.b.value(f"getelementptr i8, ptr {pointer}, i64 {lane * align}") if lane else pointer
        w.b.effect(f"store {element} {one}, ptr {at}, align {align}")
        return
    if not _masks_natively(w, element):
        scatter(w, element, x, pointer, consecutive(element), mask)
        return
    name = f"@llvm.masked.store.{mangle(element, LANES)}.p0"
    w.b.module.declare(f"void {name}({kind}, ptr, i32, {MASK})")
    w.b.effect(f"call void {name}({kind} {x}, ptr {pointer}, i32 {align}, {MASK} {mask})")


def _only_lane(mask: str) -> int | None:
    """The lane of a constant mask of one. It is stored as an element: of a masked store after a narrowing LLVM 22 makes one of
    the wide element, over its neighbours."""
    bits = mask.strip("<>").split(", ")
    return bits.index("i1 1") if bits.count("i1 1") == 1 else None


def consecutive(element: str) -> Offsets:
    """The byte offsets of consecutive elements."""
    return Offsets("i64", f"<{', '.join(f'i64 {k * bytes_of(element)}' for k in range(LANES))}>")


def gather(w: Writer, element: str, base: str, offsets: Offsets, mask: str | None) -> str:
    """The elements at byte offsets from `base`; those not in the mask are not touched and 0."""
    kind = kind_of(element)
    chosen = mask or "splat (i1 true)"
    if not _gathers_natively(w, element):
        name = w.b.module.helper(f"gather_{element}", lambda: _gather_helper(w, element))
        return w.b.value(f"call {kind} {name}(ptr {base}, {OFFSETS} {offsets.wide(w)}, {MASK} {chosen})")
    pointers = w.b.value(f"getelementptr i8, ptr {base}, {offsets.text}")
    name = f"@llvm.masked.gather.{mangle(element, LANES)}.v{LANES}p0"
    w.b.module.declare(f"{kind} {name}(<{LANES} x ptr>, i32, {MASK}, {kind})")
    arguments = f"<{LANES} x ptr> {pointers}, i32 {bytes_of(element)}, {MASK} {chosen}, {kind} zeroinitializer"
    return w.b.value(f"call {kind} {name}({arguments})")


def scatter(w: Writer, element: str, x: str, base: str, offsets: Offsets, mask: str | None) -> None:
    """Write the elements at byte offsets from `base`, lane 0 first; those not in the mask are left alone."""
    kind = kind_of(element)
    chosen = mask or "splat (i1 true)"
    if not _gathers_natively(w, element):
        name = w.b.module.helper(f"scatter_{element}", lambda: _scatter_helper(w, element))
        w.b.effect(f"call void {name}({kind} {x}, ptr {base}, {OFFSETS} {offsets.wide(w)}, {MASK} {chosen})")
        return
    pointers = w.b.value(f"getelementptr i8, ptr {base}, {offsets.text}")
    name = f"@llvm.masked.scatter.{mangle(element, LANES)}.v{LANES}p0"
    w.b.module.declare(f"void {name}({kind}, <{LANES} x ptr>, i32, {MASK})")
    arguments = f"{kind} {x}, <{LANES} x ptr> {pointers}, i32 {bytes_of(element)}, {MASK} {chosen}"
    w.b.effect(f"call void {name}({arguments})")


def _lane_loop(b: FunctionBuilder) -> str:
    """Open a loop over the lanes of %mask, body run where the lane is set; gives the address of the lane's element."""
    slots = b.alloca(8 * LANES)
    bits = b.value(f"bitcast {MASK} %mask to i{LANES}")
    b.effect(f"store {OFFSETS} %offsets, ptr {slots}, align 64")
    b.branch("lane")
    b.start("lane")
    b.effect("%k = phi i64 [ 0, %entry ], [ %next, %after ]")
    shifted = b.value(f"lshr i{LANES} {bits}, {b.value(f'trunc i64 %k to i{LANES}')}")
    b.branch_if(b.value(f"trunc i{LANES} {shifted} to i1"), "body", "after")
    b.start("body")
    slot = b.value(f"getelementptr i64, ptr {slots}, i64 %k")
    return b.value(f"getelementptr i8, ptr %base, i64 {b.value(f'load i64, ptr {slot}, align 8')}")


def _end_lanes(b: FunctionBuilder) -> None:
    b.branch("after")
    b.start("after")
    b.effect("%next = add i64 %k, 1")
    b.branch_if(b.value(f"icmp ult i64 %next, {LANES}"), "lane", "done")
    b.start("done")


def _gather_helper(w: Writer, element: str) -> str:
    b = FunctionBuilder(w.b.module)
    kind = kind_of(element)
    found = b.alloca(bytes_of(element) * LANES)
    b.effect(f"store {kind} zeroinitializer, ptr {found}, align 64")
    pointer = _lane_loop(b)
    x = b.value(f"load {element}, ptr {pointer}, align {bytes_of(element)}")
    b.effect(f"store {element} {x}, ptr {b.value(f'getelementptr {element}, ptr {found}, i64 %k')}")
    _end_lanes(b)
    b.effect(f"ret {kind} {b.value(f'load {kind}, ptr {found}, align 64')}")
    head = f"define internal {kind} @gather_{element}(ptr %base, {OFFSETS} %offsets, {MASK} %mask) nounwind noinline"
    return f"{head} {{\n{b.body()}\n}}"


def _scatter_helper(w: Writer, element: str) -> str:
    b = FunctionBuilder(w.b.module)
    kind = kind_of(element)
    given = b.alloca(bytes_of(element) * LANES)
    b.effect(f"store {kind} %x, ptr {given}, align 64")
    pointer = _lane_loop(b)
    slot = b.value(f"getelementptr {element}, ptr {given}, i64 %k")
    b.effect(f"store {element} {b.value(f'load {element}, ptr {slot}')}, ptr {pointer}, align {bytes_of(element)}")
    _end_lanes(b)
    b.effect("ret void")
    arguments = f"{kind} %x, ptr %base, {OFFSETS} %offsets, {MASK} %mask"
    return f"define internal void @scatter_{element}({arguments}) nounwind noinline {{\n{b.body()}\n}}"


def zeros(w: Writer) -> str:
    """The address of zeros, a vector of any element type long: what may be read in place of an element that is not there."""
    size = 8 * LANES
    return w.b.module.helper("zeros", lambda: f"@zeros = internal constant [{size} x i8] zeroinitializer, align {size}")
