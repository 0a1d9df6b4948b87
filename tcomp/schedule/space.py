"""The space of choices for products and dependent reductions: variables, their domains, what makes a point legal, as data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from tcomp.ir.dtype import DType, i8, u8
from tcomp.ir.machine import LANES, Intrinsic, Machine
from tcomp.schedule.choice import PACKINGS, CascadeChoice, DotChoice

FORMS = ("packed", "prepacked", "direct", "lanes")
COLUMNS = (LANES, 2 * LANES, 3 * LANES, 4 * LANES, 16 * LANES)
DEPTHS = (8, 16, 32, 64, 128, 256, 384, 512)
BLOCK_ROWS = (1, 4, 16, 32, 64, 128)  # of a cascade
BLOCK_COLUMNS = (64, 128, 256, 512, 1024)
PARTS = (1, 2, 4, 8, 16)


@dataclass(frozen=True, slots=True)
class Problem:
    """A product to schedule: sizes to steer by (a guess where symbolic), the first operand's dtype, and what is known of the
    second operand."""

    batch: int
    m: int
    n: int
    k: int
    dtype: DType
    constant: bool  # the second operand is known at compile time
    contiguous: str  # the second operand is contiguous along `n`, along `k`, or neither: ``
    costly_epilogue: bool
    single_store: bool  # the accumulator's dtype is the output's, so that blocks of k can meet in it
    computed: bool = False  # the second operand is computed as it is read


def row_of(dtype: DType, machine: Machine, form: str = "") -> Intrinsic:
    """The row for products whose first operand is of `dtype`."""
    if dtype not in (i8, u8):
        return machine.intrinsic(dtype, "lanes" if form == "lanes" else "splat")
    row = machine.words()
    assert row is not None, f"no products of {dtype} on this machine"
    return row


def largest_rows(row: Intrinsic, columns: int) -> int:
    """The most rows whose register tile leaves room for the operands."""
    rows = 1
    while row.fits(rows + 1, columns):
        rows += 1
    return rows


def legal(choice: DotChoice, p: Problem, machine: Machine) -> bool:
    """Whether a point of the space can be lowered for this problem on this machine."""
    row = row_of(p.dtype, machine)
    if not row.fits(choice.rows, choice.columns) and choice.rows > 1:
        return False
    if choice.form == "prepacked" and not p.constant:
        return False
    if row.a_from == "words" and (choice.form in ("direct", "lanes") or choice.block_depth % row.atom[2]):
        return False
    if choice.form == "direct" and p.contiguous != "n":
        return False
    if choice.form == "lanes" and (p.contiguous != "k" or p.constant):
        return False
    return choice.block_columns % choice.columns == 0 and (p.single_store or choice.block_depth >= p.k)


def points(p: Problem, machine: Machine) -> Iterator[DotChoice]:
    """Legal points for the tuner, coarse to fine in no particular order."""
    row = row_of(p.dtype, machine)
    for form, columns, depth, panels, many in product(FORMS, COLUMNS, DEPTHS, (1, 2, 4, 8, 12), (2, 4, 8, 16)):
        rows = largest_rows(row, columns)
        for unroll in (1, 2, 4, 8):
            choice = DotChoice(form, rows, columns, rows * panels, columns * many, depth, unroll, p.costly_epilogue)
            if legal(choice, p, machine):
                yield choice


@dataclass(frozen=True, slots=True)
class CascadeProblem:
    """Dependent reductions to schedule: sizes to steer by, of the grid's axes, of rows and of what streams.

    depths: inner axes of the products that stream; widths: columns of those that are reduced. direct: second factors lie along
    what streams; along: both factors lie along the inner axis. reductions: stages that are no products; accumulators: of all
    stages, for each row. inner: columns of the products that first factors are computed from. plain: what streams lies in memory,
    whether products of it are apart or not.
    """

    batch: int
    rows: int
    length: int
    depths: tuple[int, ...]
    widths: tuple[int, ...]
    dtype: DType
    direct: bool
    along: bool
    reductions: int
    accumulators: int
    inner: tuple[int, ...] = ()
    plain: bool = False


def legal_cascade(choice: CascadeChoice, p: CascadeProblem, machine: Machine) -> bool:
    """Whether a point of the space can be lowered for these reductions on this machine."""
    row = machine.intrinsic(p.dtype)
    blocked = p.depths if choice.packing != "lanes" else ()  # vectors along the inner axis find room for themselves
    tiles = ((choice.score, blocked), (choice.result, p.widths), (choice.inner, p.inner))
    if any(used and rows > 1 and not row.fits(rows, columns) for (rows, columns), used in tiles):
        return False
    lies = {"direct": p.direct or not p.depths, "lanes": p.along and bool(p.depths)}.get(choice.packing, bool(p.depths))
    whole = choice.columns % LANES == 0 and (choice.packing == "direct" or choice.depth >= max(p.depths, default=0))
    fits = 1 <= choice.rows <= max(1, p.rows) and 1 <= choice.parts <= max(1, p.length // choice.columns)
    return lies and whole and fits


def cascade_points(p: CascadeProblem, machine: Machine) -> Iterator[CascadeChoice]:
    """Legal points for the tuner, coarse to fine in no particular order."""
    row = machine.intrinsic(p.dtype)
    for packing, rows, columns, wide, parts in product(PACKINGS, BLOCK_ROWS, BLOCK_COLUMNS, COLUMNS[:4], PARTS):
        rows = min(rows, max(1, p.rows))
        tile = (min(largest_rows(row, wide), rows), wide)
        score = (min(rows, 4), LANES) if packing == "lanes" else tile
        for depth in DEPTHS if packing == "direct" and p.depths else (max(p.depths, default=1),):
            choice = CascadeChoice(rows, columns, score, tile, tile, depth, packing, parts)
            if legal_cascade(choice, p, machine):
                yield choice
