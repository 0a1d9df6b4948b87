"""The default decisions, from the machine's table alone: no tuning needed."""

from __future__ import annotations

from tcomp.ir.machine import LANES, Machine
from tcomp.schedule.choice import DotChoice
from tcomp.schedule.space import Problem, largest_rows

SMALL = 32  # rows up to which few rows of the second operand are kept in L1
MANY = 1024  # rows from which copying the second operand into panels pays
DEPTH = 512  # elements of k that a block takes: its panel of the second operand stays in L2
BLOCK_ROWS = 256  # rows of a block: its part of the result stays in L2 between blocks of k


def round_up(x: int, to: int) -> int:
    return -(-max(1, x) // to) * to


def balanced(n: int, most: int) -> int:
    """The size of equal parts of n, none above `most`."""
    return -(-n // -(-n // most)) if n else most


def choose_dot(p: Problem, machine: Machine) -> DotChoice:
    """Register tile by the register file, blocks by L2, form by what is known of the second operand."""
    row = machine.intrinsic(p.dtype)
    columns = LANES * 2 if row.registers >= 32 and row.per_vector == 1 else LANES
    form = _form(p)
    if row.per_vector == 1 and p.n >= LANES * 4 and (p.m <= 4 or form in ("direct", "packed")) and form != "lanes":
        columns = LANES * 4  # few rows, wide: whole cache lines of the second operand, and fewer loads of it than of the first
    columns = min(columns, round_up(p.n, LANES))
    rows = min(largest_rows(row, columns), max(1, p.m))
    depth = _depth(p, form)
    wide = max(columns, (machine.l2 // 2) // max(1, depth * p.dtype.bytes) // columns * columns)
    block_columns = min(round_up(p.n, columns), wide, 512 if form != "direct" else 256)
    block_rows = _block_rows(p, rows, block_columns)
    return DotChoice(form, rows, columns, block_rows, block_columns, depth, 4, p.costly_epilogue)


def _form(p: Problem) -> str:
    if p.constant:
        return "prepacked"
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
