"""The default decisions, from the machine's table alone: no tuning needed."""

from __future__ import annotations

from dataclasses import replace

from tcomp.ir.dtype import i32
from tcomp.ir.machine import LANES, Machine
from tcomp.schedule.choice import CascadeChoice, DotChoice
from tcomp.schedule.space import CascadeProblem, Problem, largest_rows, row_of

FEW = 8  # rows up to which a second operand that is computed is computed in registers, for one register tile
SMALL = 32  # rows up to which few rows of the second operand are kept in L1
MANY = 1024  # rows from which copying the second operand into panels pays
DEPTH = 512  # elements of k that a block takes: its panel of the second operand stays in L2
BLOCK_ROWS = 256  # rows of a block: its part of the result stays in L2 between blocks of k


def round_up(x: int, to: int) -> int:
    """The smallest positive multiple of `to` that is at least x."""
    return -(-max(1, x) // to) * to


def balanced(n: int, most: int) -> int:
    """The size of equal parts of n, none above `most`."""
    return -(-n // -(-n // most)) if n else most


def choose_dot(p: Problem, machine: Machine) -> DotChoice:
    """Register tile by the register file, blocks by L2, form by what is known of the second operand. Bytes are like words."""
    if row_of(p.dtype, machine).a_from == "words":
        each = row_of(p.dtype, machine).atom[2]
        words = choose_dot(replace(p, dtype=i32, k=-(-p.k // each), contiguous=""), machine)
        return replace(words, block_depth=words.block_depth * each)
    row = machine.intrinsic(p.dtype)
    columns = LANES * 2 if row.registers >= 32 and row.per_vector == 1 else LANES
    form = _form(p)
    if form == "direct" and p.m == 1 and p.single_store and p.k * p.n * p.dtype.bytes > machine.l2:
        return _streamed(p)
    if row.per_vector == 1 and p.n >= LANES * 4 and (p.m <= 4 or form in ("direct", "packed")) and form != "lanes":
        columns = LANES * 4  # few rows, wide: whole cache lines of the second operand, and fewer loads of it than of the first
    columns = min(columns, round_up(p.n, LANES))
    rows = min(largest_rows(row, columns), max(1, p.m))
    depth = _depth(p, form)
    wide = max(columns, (machine.l2 // 2) // max(1, depth * p.dtype.bytes) // columns * columns)
    block_columns = min(round_up(p.n, columns), wide, 512 if form != "direct" else 256)
    block_rows = _block_rows(p, rows, block_columns)
    return DotChoice(form, rows, columns, block_rows, block_columns, depth, 4, p.costly_epilogue)


def _streamed(p: Problem) -> DotChoice:
    """One row against a large second operand: whole kilobytes of a few of its rows at a time, since memory is all it takes."""
    columns = min(LANES * 16, round_up(p.n, LANES))
    return DotChoice("direct", 1, columns, 1, min(round_up(p.n, columns), columns * 4), min(8, p.k), 1, p.costly_epilogue)


def _form(p: Problem) -> str:
    if p.constant:
        return "prepacked"
    if p.computed:
        return "direct" if p.contiguous == "n" and p.m <= FEW else "packed"
    small = p.m <= SMALL or p.k * p.n * p.dtype.bytes <= 32 << 10
    if p.contiguous == "n" and (small or p.m <= MANY):
        return "direct"
    return "lanes" if p.m <= SMALL and p.contiguous == "k" else "packed"


def _depth(p: Problem, form: str) -> int:
    if not p.single_store or form == "lanes":
        return max(1, p.k)
    if form == "direct" and p.k * p.n * p.dtype.bytes > 32 << 10:
        return balanced(p.k, DEPTH // 2) if p.m > SMALL else 32 if p.n >= 2048 else 64
    return balanced(p.k, DEPTH)


def _block_rows(p: Problem, rows: int, block_columns: int) -> int:
    """Rows of a block: enough blocks for all threads to share, few enough that claiming them costs nothing."""
    blocks_across = -(-p.n // block_columns) * p.batch
    wanted = max(1, 16 // max(1, blocks_across))
    return min(round_up(-(-p.m // wanted), rows), round_up(BLOCK_ROWS, rows))


# --- dependent reductions ---------------------------------------------------------------------------

ROWS = 64  # rows of a block: so many that packing a second factor for each block costs little beside its products
COLUMNS = 256
FEW = 8  # rows up to which packing a second factor costs more than vectors along the inner axis
PARTS = 4  # parts for each core where rows and batches give no work for all


def choose_cascade(p: CascadeProblem, machine: Machine) -> CascadeChoice:
    """Blocks by the caches, packing by how second factors lie and how often they are read, parts by the number of cores."""
    row = machine.intrinsic(p.dtype)
    columns = LANES * 2 if row.registers >= 32 and row.per_vector == 1 else LANES
    rows = _rows(p)
    most = LANES * 4 if rows <= 4 and row.per_vector == 1 else columns
    wide = min(max((round_up(w, LANES) for w in p.widths), default=LANES), most)
    narrow = min(max((round_up(n, LANES) for n in p.inner), default=LANES), columns)
    blocks = _blocks(p)
    depth = max(p.depths, default=1)
    packing = _packing(p, rows)
    score = (_even(rows, largest_rows(row, columns)), columns) if packing != "lanes" else (min(rows, 4), LANES)
    deep = p.direct and depth > 256
    return CascadeChoice(
        rows,
        min(4 * COLUMNS if deep else COLUMNS, round_up(p.length, LANES)),
        score,
        (_even(rows, largest_rows(row, wide)), wide),
        (_even(rows, largest_rows(row, narrow)), narrow),
        32 if deep else depth,
        packing,
        _parts(p, blocks, machine),
    )


def why_apart(p: CascadeProblem, machine: Machine) -> str:
    """'' where one pass moves fewer bytes than a kernel for each product and for the reductions, else why it does not.

    Apart, values of the domain's size are written (twice as dear as reading) and read between kernels, unless they stay in L2;
    those that lie in memory are read once more. In one pass each block of rows reads second factors again, unless these do."""
    size = p.batch * p.rows * p.length * p.dtype.bytes
    row = p.length * p.dtype.bytes
    if not p.depths and not p.widths:
        return "" if row > machine.l2 // 2 else f"a row of {row} bytes stays in the cache: passes over it move nothing"
    if not (p.depths and p.reductions):
        few = _blocks(p) < 2 * machine.cores
        if few or size <= machine.l2 // 2:
            return "too few blocks of rows for all threads" if few else f"{size} bytes stay in the cache between two kernels"
    shared = p.length * (sum(p.depths) + sum(p.widths)) * p.dtype.bytes
    blocks = _blocks(p) // p.batch
    again = (blocks - 1) * p.batch * shared if shared > machine.l2 // 2 else 0
    between = 1 if p.plain else 3
    moved = size * (3 * len(p.depths) + between * (len(p.widths) > 0 and p.reductions > 0))
    if p.accumulators > p.reductions + len(p.widths) and p.widths:
        again += size * sum(p.widths) // COLUMNS
    return "" if again < moved else f"{blocks} blocks of rows would read {shared} bytes again each, to save moving {moved}"


def _packing(p: CascadeProblem, rows: int) -> str:
    if p.direct or not p.depths:
        return "direct"
    if p.along and rows <= FEW:
        return "lanes"
    return "block"


def _even(rows: int, most: int) -> int:
    """Rows of a register tile: of which a block is a multiple, if that wastes less than half of the registers."""
    fit = max(r for r in range(1, most + 1) if rows % r == 0 or r == rows)
    return fit if 2 * fit >= min(rows, most) else most


def _blocks(p: CascadeProblem) -> int:
    return p.batch * -(-p.rows // _rows(p))


def _rows(p: CascadeProblem) -> int:
    """Rows of a block: half as many where that gives work to more threads."""
    few = p.batch * -(-p.rows // ROWS) < FEW
    return min(p.rows, ROWS // 2 if few else ROWS)


def _parts(p: CascadeProblem, blocks: int, machine: Machine) -> int:
    if blocks >= 2 * machine.cores or p.length < 8 * COLUMNS:
        return 1
    return min(p.length // (4 * COLUMNS), -(-PARTS * machine.cores // blocks))
