"""Products of bytes: several of a row at once, in every lane, by words of the packed second operand.

Four by one VNNI instruction, of which one factor is unsigned and the other signed; two, widened to 16 bits, by multiplying and
adding neighbours. The first operand is read as it lies: its rows are contiguous, aligned or not. A last word of fewer bytes is
put together byte by byte, so nothing is read past the row; the rest of it is zero.
"""

from __future__ import annotations

from tcomp.codegen.llvm import loops, masks, memory, values
from tcomp.codegen.llvm.address import access, text
from tcomp.codegen.llvm.panels import along_k, panel
from tcomp.codegen.llvm.writer import Tile, Writer
from tcomp.ir import index
from tcomp.ir.dtype import u8
from tcomp.ir.machine import LANES, Intrinsic
from tcomp.ir.node import Dim, Node

_WIDE = f"<{LANES} x i32>"


def words(w: Writer, e: Node, row: Intrinsic, acc: Tile) -> Tile:
    """acc + a b, as vectors."""
    a, b = e.operands[:2]
    m, n = values.extents(e.type)
    keys = values.keys_of((m, n), "lanes")
    each, unsigned = row.atom[2], a.type.dtype == u8
    left = panel(w, access(w, a), [(r, 0) for r in range(m)], 1, each)
    right = panel(w, access(w, b), [(0, v * LANES) for v in range(n // LANES)], 0)
    count = w.window(b).valid[1]
    tails = [None if count is None else masks.prefix(w, count, v * LANES) for v in range(n // LANES)]
    na, nb = len(left.pointers), len(right.pointers)

    def step(carried: list[str], steps: int, rest: Dim = 0) -> list[str]:
        """`steps` words, or the last one of `rest` bytes."""
        pa, pb = carried[:na], carried[na : na + nb]
        sums = dict(zip(keys, carried[na + nb :]))
        for k in range(steps):
            vectors = [memory.load(w, "i32", right.at(w, pb, v, k), tails[v]) for v in range(n // LANES)]
            for r in range(m):
                word = _word(w, left.at(w, pa, r, k), each, unsigned, rest)
                every = w.splat("i32", word)
                for v, y in enumerate(vectors):
                    sums[r, v] = _product(w, row, every, y, sums[r, v], unsigned)
        return [*left.advanced(w, pa, steps), *right.advanced(w, pb, steps), *sums.values()]

    state = [("ptr", p) for p in (*left.pointers, *right.pointers)] + [(memory.kind_of("i32"), acc.parts[k]) for k in keys]
    depth = w.window(a).extents[1]
    rest = index.mod(depth, each)
    result = along_k(w, index.floordiv(depth, each), 1, e["unroll"], state, lambda c, steps, _: step(c, steps))
    if isinstance(rest, int):
        result = step(result, 1, rest) if rest else result
    else:
        phis = [(kind, x) for (kind, _), x in zip(state, result)]
        once = text(w, index.minimum(rest, 1))
        result = loops.counted(w, "0", once, 1, phis, lambda _, c: step(c, 1, rest), certain=False)
    return Tile(acc.type, "lanes", dict(zip(keys, result[na + nb :])))


def _word(w: Writer, pointer: str, each: int, unsigned: bool, rest: Dim) -> str:
    """The word at an address, of all its bytes or of the first `rest`."""
    if each == 4 and rest == 0:
        return w.b.value(f"load i32, ptr {pointer}, align 1")
    total = ""
    for j in range(each if rest == 0 else each - 1):
        part = _byte(w, pointer, j, rest, "zext" if unsigned or each == 4 else "sext", each)
        if part is None:
            continue
        part = w.b.value(f"shl i32 {part}, {j * 32 // each}") if j else part
        total = w.b.value(f"or i32 {total}, {part}") if total else part
    return total


def _byte(w: Writer, pointer: str, j: int, rest: Dim, extension: str, each: int) -> str | None:
    """Byte j of a word, widened to a part of it; None or 0 where it is past `rest`."""
    if isinstance(rest, int):
        if rest and j >= rest:
            return None
        at = w.pure(w.level, f"getelementptr i8, ptr {pointer}, i64 {j}") if j else pointer
        return _part(w, at, extension, each)
    near = text(w, index.minimum(j, index.sub(rest, 1)))
    part = _part(w, w.b.value(f"getelementptr i8, ptr {pointer}, i64 {near}"), extension, each)
    there = w.b.value(f"icmp slt i64 {j}, {text(w, rest)}")
    return w.b.value(f"select i1 {there}, i32 {part}, i32 0")


def _part(w: Writer, pointer: str, extension: str, each: int) -> str:
    byte = w.b.value(f"load i8, ptr {pointer}, align 1")
    if extension == "zext":
        return w.b.value(f"zext i8 {byte} to i32")
    half = w.b.value(f"sext i8 {byte} to i{32 // each}")
    return w.b.value(f"zext i{32 // each} {half} to i32")


def _product(w: Writer, row: Intrinsic, every: str, y: str, total: str, unsigned: bool) -> str:
    """total + the sums of products of the parts."""
    if row.name.startswith("madd"):
        return _added(w, row, every, y, total)
    first, second = (every, y) if unsigned else (y, every)
    if row.per_vector == 1:
        return w.b.call(_WIDE, "@llvm.x86.avx512.vpdpbusd.512", *_typed(total, first, second))
    halves = [_halves(w, x) for x in (total, first, second)]
    kind = "<8 x i32>"
    got = [w.b.call(kind, "@llvm.x86.avx512.vpdpbusd.256", *(f"{kind} {h[s]}" for h in halves)) for s in (0, 1)]
    return _joined(w, kind, got)


def _typed(*arguments: str) -> list[str]:
    return [f"{_WIDE} {x}" for x in arguments]


def _added(w: Writer, row: Intrinsic, x: str, y: str, total: str) -> str:
    """Products of 16-bit parts, neighbours added."""
    if row.per_vector == 1:
        kind, name, pieces = "<32 x i16>", "@llvm.x86.avx512.pmaddw.d.512", [(x, y)]
        sums = [
            w.b.call(_WIDE, name, *(f"{kind} {w.b.value(f'bitcast {_WIDE} {p} to {kind}')}" for p in pair)) for pair in pieces
        ]
        return w.b.value(f"add {_WIDE} {total}, {sums[0]}")
    got: list[str] = []
    for s in (0, 1):
        parts = [w.b.value(f"bitcast <8 x i32> {_halves(w, v)[s]} to <16 x i16>") for v in (x, y)]
        got.append(w.b.call("<8 x i32>", "@llvm.x86.avx2.pmadd.wd", *(f"<16 x i16> {p}" for p in parts)))
    return w.b.value(f"add {_WIDE} {total}, {_joined(w, '<8 x i32>', got)}")


def _halves(w: Writer, x: str) -> list[str]:
    """The two halves of a vector."""
    lists = [", ".join(f"i32 {k}" for k in range(s, s + LANES // 2)) for s in (0, LANES // 2)]
    return [w.pure(w.level, f"shufflevector {_WIDE} {x}, {_WIDE} poison, <{LANES // 2} x i32> <{q}>") for q in lists]


def _joined(w: Writer, kind: str, halves: list[str]) -> str:
    every = ", ".join(f"i32 {k}" for k in range(LANES))
    return w.b.value(f"shufflevector {kind} {halves[0]}, {kind} {halves[1]}, <{LANES} x i32> <{every}>")
