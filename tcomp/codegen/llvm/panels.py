"""Operands of products and the loop over k: pointers that advance by constants where strides are known.

Rows of a symbolic stride hang in threes on one pointer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tcomp.codegen.llvm import loops
from tcomp.codegen.llvm.address import Access, address, element_offset, text, value
from tcomp.codegen.llvm.writer import Index, Key, Writer
from tcomp.ir import index
from tcomp.ir.node import Dim

Step = Callable[[list[str], int, str | None], list[str]]  # (carried values, sub-steps, mask of the lanes) -> next values


@dataclass(frozen=True, slots=True)
class Panel:
    """One operand: pieces (rows or columns or vectors) at offsets from pointers that advance along k.

    pieces: (number of the pointer, byte offset). step: bytes from one k to the next.
    """

    pointers: list[str]
    pieces: list[tuple[int, Index]]
    step: Dim

    def at(self, w: Writer, pointers: list[str], piece: int, k: int) -> str:
        """The address of a piece `k` steps on."""
        number, offset = self.pieces[piece]
        pointer = pointers[number]
        known = offset if isinstance(offset, int) else 0
        if isinstance(offset, str):
            pointer = w.pure(w.level, f"getelementptr i8, ptr {pointer}, i64 {offset}")
        if isinstance(self.step, int):
            known += k * self.step
        elif k:
            pointer = w.pure(w.level, f"getelementptr i8, ptr {pointer}, i64 {value(w, index.mul(self.step, k))}")
        return w.pure(w.level, f"getelementptr i8, ptr {pointer}, i64 {known}") if known else pointer

    def advanced(self, w: Writer, pointers: list[str], k: int) -> list[str]:
        by = value(w, index.mul(self.step, k))
        return [w.b.value(f"getelementptr i8, ptr {p}, i64 {by}") for p in pointers]


_SHARED = 3  # pieces of a symbolic stride on one pointer: at 0, 1 and 2 strides


def panel(w: Writer, a: Access, points: list[Key], along: int, by: int = 1) -> Panel:
    """The panel of the pieces that begin at `points`, advancing along axis `along`, `by` elements at a time."""
    size = a.buffer.dtype.bytes
    anchors: list[tuple[int, Dim]] = []  # (first piece, offset in elements)
    pieces: list[tuple[int, Index]] = []
    for k, point in enumerate(points):
        offset = element_offset(a, point)
        apart = index.sub(offset, anchors[-1][1]) if anchors else 0
        if not anchors or not (isinstance(apart, int) or k - anchors[-1][0] < _SHARED):
            anchors.append((k, offset))
            apart = 0
        pieces.append((len(anchors) - 1, value(w, index.mul(apart, size))))
    pointers = [address(w, a.buffer, offset) for _, offset in anchors]
    return Panel(pointers, pieces, index.mul(a.strides[along], size * by))


def along_k(w: Writer, depth: Dim, chunk: int, unroll: int, state: list[tuple[str, str]], step: Step) -> list[str]:
    """`step` over all whole chunks of k, `unroll` of them at a time, then one by one."""
    kinds = [kind for kind, _ in state]
    carried = [x for _, x in state]

    def run(lo: Dim, hi: Dim, count: int, carried: list[str]) -> list[str]:
        trips = index.sub(hi, lo)
        if isinstance(trips, int) and trips <= chunk * count:
            return step(carried, count, None) if trips > 0 else carried
        low = index.bounds(trips)[0]
        certain = low is not None and low > 0
        phis = list(zip(kinds, carried))
        return loops.counted(w, text(w, lo), text(w, hi), chunk * count, phis, lambda _, c: step(c, count, None), certain)

    whole = index.sub(depth, index.mod(depth, chunk))
    main = index.sub(depth, index.mod(depth, chunk * unroll))
    carried = run(0, main, unroll, carried)
    rest = index.sub(whole, main)
    if isinstance(rest, int):
        return step(carried, rest // chunk, None) if rest else carried
    return run(main, whole, 1, carried)
