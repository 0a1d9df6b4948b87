"""Products of register tiles: one micro-kernel generator for all rows of the intrinsic table.

`splat` rows: accumulators are phis of a loop over k; each step loads the vectors of b once and multiplies them by one element of
every row of a, repeated in all lanes. `lanes` rows: vectors run along k, and the partial sums of 16 columns are added across
lanes by one tree of shuffles. In both, pointers advance by constants where strides are known, rows of a symbolic stride hang in
threes on one pointer, and the loop is unrolled. Operands that are not plain windows (an `else`, gathers, arithmetic) go
through the general loop, one k at a time.
"""

from __future__ import annotations

from tcomp.codegen.llvm import lanes, loops, masks, memory, values
from tcomp.codegen.llvm.address import access, lanes_of, text
from tcomp.codegen.llvm.convert import Elements, cast
from tcomp.codegen.llvm.dot_words import words
from tcomp.codegen.llvm.panels import along_k, panel
from tcomp.codegen.llvm.writer import REGISTER, Key, Tile, Writer
from tcomp.ir import index
from tcomp.ir.dtype import DType
from tcomp.ir.machine import INTRINSICS, LANES, Intrinsic
from tcomp.ir.node import Dim, Node
from tcomp.ir.tile import restrict


def dot(w: Writer, e: Node, acc: Tile) -> Tile:
    """acc + a b, as vectors."""
    row = INTRINSICS[e["intrinsic"]]
    n = values.extents(e.type)[1]
    assert n % LANES == 0, f"a product of {n} columns"
    a, b = e.operands[:2]
    if row.a_from == "words":
        assert _runs_along(w, a, 1) and _has_vectors(w, b, n), "a product of bytes takes rows and packed words"
        return words(w, e, row, acc)
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


# --- splat -----------------------------------------------------------------------------------------------


def _fused(w: Writer, row: Intrinsic, x: str, y: str, z: str) -> str:
    """x * y + z of vectors, rounded as the row says."""
    e = Elements(w.b, LANES, w.features)
    element = REGISTER[row.c.name]
    if not row.c.is_float:
        return e.binary("add", element, z, e.binary("mul", element, x, y))
    if row.fused:
        return e.intrinsic("fma", element, x, y, z)
    return e.binary("fadd", element, z, e.binary("fmul", element, x, y))


def _outer_products(w: Writer, e: Node, row: Intrinsic, acc: Tile) -> Tile:
    """The `splat` form."""
    a, b = e.operands[:2]
    m, n = values.extents(e.type)
    keys = values.keys_of((m, n), "lanes")
    element = REGISTER[row.c.name]
    left = panel(w, access(w, a), [(r, 0) for r in range(m)], 1)
    right = panel(w, access(w, b), [(0, v * LANES) for v in range(n // LANES)], 0)
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
    result = along_k(w, _depth(w, a, b), 1, e["unroll"], state, step)
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
    left = panel(w, access(w, a), [(r, 0) for r in rows], 1)
    right = panel(w, access(w, b), [(0, c) for c in columns], 0)
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
    result = along_k(w, depth, LANES, _vector_unroll(e, len(keys)), state, step)
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
