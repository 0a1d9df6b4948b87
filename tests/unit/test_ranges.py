"""Bounds of positions: what is known to be in range is not checked; all else is."""

import numpy as np
import pytest

from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.graph import broadcast, cast, full, reshape
from tcomp.ir.ops import apply, constant, parameter
from tcomp.schedule.lower.ranges import known_range

AT = parameter("at", dt.i32, (4,))
TABLE = constant(np.array([3, 9, 5], np.int32))
LOOKED_UP = apply("gather", TABLE, AT, axis=0)
CONDITION = apply("lt", AT, full(2, dt.i32, (4,)))
SCORES = parameter("s", dt.f32, (4, 7))
KNOWN = {
    "a constant": (TABLE, (3, 9)),
    "an empty constant": (constant(np.zeros(0, np.int64)), (0, 0)),
    "a look-up": (LOOKED_UP, (3, 9)),
    "moved": (reshape(broadcast(LOOKED_UP, (2, 4), (1,)), (8,)), (3, 9)),
    "one of two": (apply("where", CONDITION, LOOKED_UP, full(-1, dt.i32, (4,))), (-1, 9)),
    "side by side": (apply("concat", LOOKED_UP, TABLE, axis=0), (3, 9)),
    "padded": (apply("pad", LOOKED_UP, full(11, dt.i32), low=(1,), high=(0,)), (3, 11)),
    "a place": (apply("iota", shape=(4,), axis=0, dtype=dt.i64), (0, 3)),
    "the largest's place": (apply("argreduce", SCORES, monoid="max", axis=1, last=False, dtype=dt.i64), (0, 6)),
    "a wider integer": (cast(LOOKED_UP, dt.i64), (3, 9)),
}
UNKNOWN = {
    "a parameter": AT,
    "a sum": apply("add", LOOKED_UP, LOOKED_UP),
    "one of two, one unknown": apply("where", CONDITION, LOOKED_UP, AT),
    "a narrower integer that may wrap": cast(constant(np.array([3, 300], np.int32)), dt.i8),
    "from floats": cast(SCORES, dt.i32),
    "a place along an axis of unknown size": apply("iota", shape=(index.symbol("n"),), axis=0, dtype=dt.i64),
}


@pytest.mark.parametrize("case", KNOWN)
def test_known(case):
    node, bounds = KNOWN[case]
    assert known_range(node) == bounds


@pytest.mark.parametrize("case", UNKNOWN)
def test_unknown(case):
    assert known_range(UNKNOWN[case]) is None
