"""Products of register tiles: one micro-kernel generator for all rows of the intrinsic table.

`splat` rows: accumulators are phis of a loop over k; each step loads the vectors of b once and multiplies them by one element of
every row of a, repeated in all lanes. `lanes` rows: vectors run along k, and the partial sums of 16 columns are added across
lanes by one tree of shuffles. In both, pointers advance by constants where strides are known, rows of a symbolic stride hang in
threes on one pointer, and the loop is unrolled. Operands that are not plain windows (an `else`, gathers, arithmetic) go
through the general loop, one k at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tcomp.codegen.llvm import lanes, loops, masks, memory, values
from tcomp.codegen.llvm.address import Access, access, address, element_offset, lanes_of, text, value
from tcomp.codegen.llvm.convert import Elements, cast
from tcomp.codegen.llvm.writer import REGISTER, Index, Key, Tile, Writer
from tcomp.ir import index
from tcomp.ir.dtype import DType
from tcomp.ir.machine import INTRINSICS, LANES, Intrinsic
from tcomp.ir.node import Dim, Node
from tcomp.ir.tile import restrict

Step = Callable[[list[str], int, str | None], list[str]]  # (carried values, sub-steps, mask of the lanes) -> next values


def dot(w: Writer, e: Node, acc: Tile) -> Tile:
    """acc + a b, as vectors."""
    row = INTRINSICS[e["intrinsic"]]
    n = values.extents(e.type)[1]
    assert n % LANES == 0, f"a product of {n} columns"
    a, b = e.operands[:2]
    plain = _is_plain(a, row.a) and _is_plain(b, row.b)
    if row.a_from == "lanes" and plain and _runs_along(w, a, 1) and _runs_along(w, b, 0):
        return _sums(w, e, row, acc)
    if row.a_from == "splat" and plain and _has_rows(w, a) and _has_vectors(w, b, n):
        return _outer_products(w, e, row, acc)
    return _general(w, e, row, acc)


def _is_plain(n: Node, dtype: DType) -> bool:
    """A window of the row's own dtype, without `else`: every element that its counts leave is in the buffer."""
    return n.op == "load" and not n["has_else"] and n.type.dtype == dtype


def _runs_along(w: Writer, n: Node, k: int) -> bool:
    """Whether elements are consecutive along axis k, and all of them exist along the other."""
    a = access(w, n)
    return k not in a.bent and a.strides[k] == 1 and w.window(n).valid[1 - k] is None


def _has_rows(w: Writer, a: Node) -> bool:
    """Whether all rows of a exist, their elements a constant stride apart."""
    return 1 not in access(w, a).bent and w.window(a).valid[0] is None


def _has_vectors(w: Writer, b: Node, columns: int) -> bool:
    """Whether LANES columns of b are consecutive and its rows a constant stride apart."""
    a = access(w, b)
    if 0 in a.bent:
        return False
    found = (lanes_of(w, a, (0, v)) for v in range(columns // LANES))
    return all(x.offset is None and x.stride == 1 for x in found)


def _depth(w: Writer, a: Node, b: Node) -> Dim:
    """How many products each result sums: elements past a count along k are zero."""
    wa, wb = w.window(a), w.window(b)
    depth = wa.extents[1]
    for count in (wa.valid[1], wb.valid[0]):
        if count is not None:
            depth = index.minimum(depth, index.maximum(count, 0))
    return depth


# --- operands ------------------------------------------------------------------------------------------


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


def _panel(w: Writer, a: Access, points: list[Key], along: int) -> Panel:
    """The panel of the pieces that begin at `points`, advancing along axis `along`."""
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
    return Panel(pointers, pieces, index.mul(a.strides[along], size))


def _fused(w: Writer, row: Intrinsic, x: str, y: str, z: str) -> str:
    """x * y + z of vectors, rounded as the row says."""
    e = Elements(w.b, LANES, w.features)
    element = REGISTER[row.c.name]
    if not row.c.is_float:
        return e.binary("add", element, z, e.binary("mul", element, x, y))
    if row.fused:
        return e.intrinsic("fma", element, x, y, z)
    return e.binary("fadd", element, z, e.binary("fmul", element, x, y))


# --- the loop over k -----------------------------------------------------------------------------------


def _along_k(w: Writer, depth: Dim, chunk: int, unroll: int, state: list[tuple[str, str]], step: Step) -> list[str]:
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


def _outer_products(w: Writer, e: Node, row: Intrinsic, acc: Tile) -> Tile:
    """The `splat` form."""
    a, b = e.operands[:2]
    m, n = values.extents(e.type)
    keys = values.keys_of((m, n), "lanes")
    element = REGISTER[row.c.name]
    left = _panel(w, access(w, a), [(r, 0) for r in range(m)], 1)
    right = _panel(w, access(w, b), [(0, v * LANES) for v in range(n // LANES)], 0)
    count = w.window(b).valid[1]
    tails = [None if count is None else masks.prefix(w, count, v * LANES) for v in range(n // LANES)]
    na, nb = len(left.pointers), len(right.pointers)

    def step(carried: list[str], steps: int, _: str | None) -> list[str]:
        pa, pb = carried[:na], carried[na : na + nb]
        sums = dict(zip(keys, carried[na + nb :]))
        for k in range(steps):
            vectors = [memory.load(w, element, right.at(w, pb, v, k), tails[v]) for v in range(n // LANES)]
            for r in range(m):
                x = w.b.value(f"load {element}, ptr {left.at(w, pa, r, k)}, align {memory.bytes_of(element)}")
                every = w.splat(element, x)
                for v, y in enumerate(vectors):
                    sums[r, v] = _fused(w, row, every, y, sums[r, v])
        return [*left.advanced(w, pa, steps), *right.advanced(w, pb, steps), *sums.values()]

    kind = memory.kind_of(element)
    state = [("ptr", p) for p in (*left.pointers, *right.pointers)] + [(kind, acc.parts[k]) for k in keys]
    result = _along_k(w, _depth(w, a, b), 1, e["unroll"], state, step)
    return Tile(acc.type, "lanes", dict(zip(keys, result[na + nb :])))


# --- vectors along k -----------------------------------------------------------------------------------


def _sums(w: Writer, e: Node, row: Intrinsic, acc: Tile) -> Tile:
    """The `lanes` form: blocks of rows by groups of columns that fit the registers."""
    m, n = values.extents(e.type)
    parts: dict[Key, str] = {}
    join = values.joiner(w, "add", row.c)
    element = REGISTER[row.c.name]
    height = _rows_at_once(row, m)
    for first in range(0, m, height):
        rows = range(first, min(m, first + height))
        width = _columns_at_once(row, len(rows))
        for v in range(n // LANES):
            quads: dict[int, list[str]] = {r: [] for r in rows}
            for j in range(v * LANES, (v + 1) * LANES, width):
                sums = _partial_sums(w, e, row, rows, range(j, j + width))
                for r in rows:
                    of_row = [sums[r, c] for c in range(j, j + width)]
                    quads[r] += [lanes.sum_group(w.b, element, of_row[q : q + 4], join) for q in range(0, width, 4)]
            for r in rows:
                parts[r, v] = join(acc.parts[r, v], lanes.sum_groups(w.b, element, quads[r], join), LANES)
    return Tile(acc.type, "lanes", parts)


def _rows_at_once(row: Intrinsic, m: int) -> int:
    """As many rows as go with four columns."""
    return next((r for r in range(min(m, 8), 1, -1) if _fits(row, r, 4)), 1)


def _columns_at_once(row: Intrinsic, rows: int) -> int:
    return next((c for c in (16, 8) if _fits(row, rows, c)), 4)


def _fits(row: Intrinsic, rows: int, columns: int) -> bool:
    """Sums, one vector of each row, and one of a column."""
    return (rows * columns + rows + 1) * row.per_vector <= row.registers - 1


def _partial_sums(w: Writer, e: Node, row: Intrinsic, rows: range, columns: range) -> dict[Key, str]:
    """For each result a vector whose lanes sum to it."""
    a, b = e.operands[:2]
    element = REGISTER[row.c.name]
    keys = [(r, c) for r in rows for c in columns]
    left = _panel(w, access(w, a), [(r, 0) for r in rows], 1)
    right = _panel(w, access(w, b), [(0, c) for c in columns], 0)
    na, nb = len(left.pointers), len(right.pointers)

    def step(carried: list[str], steps: int, mask: str | None) -> list[str]:
        pa, pb = carried[:na], carried[na : na + nb]
        sums = dict(zip(keys, carried[na + nb :]))
        for k in range(0, steps * LANES, LANES):
            xs = [memory.load(w, element, left.at(w, pa, r, k), mask) for r in range(len(rows))]
            for c, column in enumerate(columns):
                y = memory.load(w, element, right.at(w, pb, c, k), mask)
                for r, x in zip(rows, xs):
                    sums[r, column] = _fused(w, row, x, y, sums[r, column])
        return [*left.advanced(w, pa, steps * LANES), *right.advanced(w, pb, steps * LANES), *sums.values()]

    kind = memory.kind_of(element)
    zero = "zeroinitializer"
    state = [("ptr", p) for p in (*left.pointers, *right.pointers)] + [(kind, zero) for _ in keys]
    depth = _depth(w, a, b)
    result = _along_k(w, depth, LANES, _vector_unroll(e, len(keys)), state, step)
    tail = index.mod(depth, LANES)
    if tail != 0:
        result = step(result, 1, masks.prefix(w, tail, 0))
    return dict(zip(keys, result[na + nb :]))


def _vector_unroll(e: Node, results: int) -> int:
    """Enough independent sums to hide the latency of an instruction, without making a body long."""
    return int(max(1, min(e["unroll"], 16 // results)))


# --- anything else -------------------------------------------------------------------------------------


def _general(w: Writer, e: Node, row: Intrinsic, acc: Tile) -> Tile:
    """One k at a time; operands are any expressions, of any dtype that converts to the row's."""
    a, b = e.operands[:2]
    m, n = values.extents(e.type)
    keys = values.keys_of((m, n), "lanes")
    depth: Dim = a.type.shape[1]
    high = index.bounds(depth)[1]
    symbol = index.symbol(w.b.fresh("k of a product "), 0, None if high is None else max(0, high - 1))
    one = (symbol, 1, None)
    left, right = restrict(a, (None, one)), restrict(b, (one, None))
    pieces = Elements(w.b, LANES, w.features)

    def body(counter: str, carried: list[str]) -> list[str]:
        w.symbols[symbol] = (counter, w.level)
        sums = dict(zip(keys, carried))
        for v in range(n // LANES):
            y = cast(pieces, b.type.dtype, row.b, values.vector(w, right, (0, v)))
            for r in range(m):
                x = cast(pieces, a.type.dtype, row.a, values.splat_of(w, left, (r, 0)))
                sums[r, v] = _fused(w, row, x, y, sums[r, v])
        return list(sums.values())

    low = index.bounds(depth)[0]
    state = [(memory.kind_of(REGISTER[row.c.name]), acc.parts[k]) for k in keys]
    result = loops.counted(w, "0", text(w, depth), 1, state, body, certain=low is not None and low > 0)
    return Tile(acc.type, "lanes", dict(zip(keys, result)))
