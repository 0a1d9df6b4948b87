"""Work across the lanes of vectors: transposition, sums of many vectors at once, trees, prefixes.

The shuffles are those that a 512-bit machine has as single instructions on 32-bit elements: interleaving within groups of four
lanes, and picking whole groups from two vectors.
"""

from __future__ import annotations

from collections.abc import Callable

from tcomp.codegen.llvm.builder import FunctionBuilder
from tcomp.ir.machine import LANES

Join = Callable[[str, str, int], str]  # (x, y, lanes) -> x op y, of vectors of so many lanes
_GROUPS = LANES // 4


def shuffle(b: FunctionBuilder, element: str, x: str, y: str, picks: list[int], lanes: int = LANES) -> str:
    """The lanes `picks` of x and y, those of y counted after x's."""
    kind = f"<{lanes} x {element}>"
    mask = ", ".join(f"i32 {p}" for p in picks)
    return b.value(f"shufflevector {kind} {x}, {kind} {y}, <{len(picks)} x i32> <{mask}>")


def _within_groups(pattern: tuple[int, int, int, int]) -> list[int]:
    """A pattern over (a0 a1 a2 a3, b0 b1 b2 b3) repeated in each group of four lanes."""
    return [g * 4 + (p if p < 4 else LANES + p - 4) for g in range(_GROUPS) for p in pattern]


def _across_groups(pattern: tuple[int, int, int, int]) -> list[int]:
    """A pattern over the groups of a and b."""
    return [(p * 4 if p < 4 else LANES + (p - 4) * 4) + k for p in pattern for k in range(4)]


_LOW, _HIGH = _within_groups((0, 4, 1, 5)), _within_groups((2, 6, 3, 7))
_LOW_PAIRS, _HIGH_PAIRS = _within_groups((0, 1, 4, 5)), _within_groups((2, 3, 6, 7))
_EVEN, _ODD = _across_groups((0, 2, 4, 6)), _across_groups((1, 3, 5, 7))


def transpose(b: FunctionBuilder, element: str, rows: list[str]) -> list[str]:
    """The columns of LANES vectors: 4 by 4 blocks within groups, then 4 by 4 groups."""

    def pick(x: str, y: str, picks: list[int]) -> str:
        return shuffle(b, element, x, y, picks)

    blocks: list[list[str]] = []  # of four rows: vector j holds column 4 g + j in group g
    for q in range(0, LANES, 4):
        pairs = [[pick(rows[q + k], rows[q + k + 1], m) for k in (0, 2)] for m in (_LOW, _HIGH)]
        blocks.append([pick(x, y, m) for x, y in pairs for m in (_LOW_PAIRS, _HIGH_PAIRS)])
    columns = [""] * LANES
    for j in range(4):
        first = [pick(blocks[0][j], blocks[1][j], m) for m in (_EVEN, _ODD)]
        second = [pick(blocks[2][j], blocks[3][j], m) for m in (_EVEN, _ODD)]
        for parity in (0, 1):
            columns[4 * parity + j] = pick(first[parity], second[parity], _EVEN)
            columns[4 * (parity + 2) + j] = pick(first[parity], second[parity], _ODD)
    return columns


def spread(b: FunctionBuilder, element: str, parts: list[str], stride: int) -> str:
    """Every `stride`-th element, where part i holds LANES elements from (LANES - 1) * i on; backwards where it is negative.

    The parts meet in one element, so that nothing past the last element is read.
    """
    step, reach = abs(stride), LANES - 1
    places = [k * step for k in (range(LANES) if stride > 0 else reversed(range(LANES)))]
    owner = [min(p // reach, step - 1) for p in places]
    first = [p if o == 0 else 0 for p, o in zip(places, owner)]
    result = shuffle(b, element, parts[0], "poison", first) if step == 1 else parts[0]
    for i, part in enumerate(parts[1:], 1):
        kept = first if i == 1 else list(range(LANES))
        picks = [LANES + p - reach * i if o == i else k for p, o, k in zip(places, owner, kept)]
        result = shuffle(b, element, result, part, picks)
    return result


def sum_group(b: FunctionBuilder, element: str, four: list[str], join: Join) -> str:
    """Lane j of each group: the sum of that group of vector j."""

    def halves(x: str, y: str, low: list[int], high: list[int]) -> str:
        return join(shuffle(b, element, x, y, low), shuffle(b, element, x, y, high), LANES)

    left, right = halves(four[0], four[1], _LOW, _HIGH), halves(four[2], four[3], _LOW, _HIGH)
    return halves(left, right, _LOW_PAIRS, _HIGH_PAIRS)


def sum_groups(b: FunctionBuilder, element: str, quads: list[str], join: Join) -> str:
    """Lane 4 q + j: the sum over the groups of lane j of quad q (four results of `sum_group`)."""

    def halves(x: str, y: str) -> str:
        return join(shuffle(b, element, x, y, _EVEN), shuffle(b, element, x, y, _ODD), LANES)

    return halves(halves(quads[0], quads[1]), halves(quads[2], quads[3]))


def tree(parts: list[str], join: Callable[[str, str], str]) -> str:
    """All parts joined, neighbours first: a chain no longer than the logarithm of their number."""
    while len(parts) > 1:
        parts = [join(parts[k], parts[k + 1]) if k + 1 < len(parts) else parts[k] for k in range(0, len(parts), 2)]
    return parts[0]


def across(b: FunctionBuilder, element: str, x: str, join: Join) -> str:
    """All lanes of a vector joined: halves onto each other."""
    lanes = LANES
    while lanes > 1:
        half = lanes // 2
        low, high = (shuffle(b, element, x, "poison", list(range(k, k + half)), lanes) for k in (0, half))
        if half == 1:
            low, high = (b.value(f"extractelement <{lanes} x {element}> {x}, i64 {k}") for k in (0, 1))
        x, lanes = join(low, high, half), half
    return x


def prefixes(b: FunctionBuilder, element: str, x: str, identity: str, join: Join) -> str:
    """Lane k: lanes 0 to k joined. `identity` is a vector."""
    step = 1
    while step < LANES:
        moved = shuffle(b, element, identity, x, [LANES + k - step if k >= step else k for k in range(LANES)])
        x = join(moved, x, LANES)
        step *= 2
    return x
