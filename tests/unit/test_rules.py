"""Every rule that is data, one by one: both sides give the same bits on special values, for each dtype that the rule takes."""

from itertools import pairwise

import numpy as np
import pytest

from tcomp.errors import Error
from tcomp.ir import dtype as dt
from tcomp.ir.graph import Func
from tcomp.ir.interp.graph import run
from tcomp.ir.module import Module
from tcomp.ir.node import Node
from tcomp.ir.ops import parameter
from tcomp.ir.pattern import Number, build, pattern, variables
from tcomp.ir.rewrite import Rule
from tcomp.ir.types import TensorType
from tcomp.passes.canonicalise import canonicalise
from tcomp.passes.rules.identities import IDENTITIES

SPECIAL = [0.0, -0.0, 1, -1, 0.5, -2.5, 3, 7, np.inf, -np.inf, np.nan, 1e-42, -1e-42, 65504, 127, -128]
SIZE = len(SPECIAL)


def values(t: dt.DType, turn: int) -> np.ndarray:
    """Special values of a dtype, in an order of its own for each variable."""
    with np.errstate(all="ignore"):
        whole = (
            np.array(SPECIAL)
            if t.is_float
            else np.nan_to_num(np.array(SPECIAL), posinf=2**31 - 1, neginf=-(2**31)).astype(np.int64)
        )
        return np.roll(whole.astype(dt.to_numpy(t)), turn)


def instance(rule: Rule, t: dt.DType) -> tuple[Func, list[np.ndarray]] | None:
    """A function of both sides, and arrays for its parameters; None where the rule does not take the dtype."""
    names = sorted(variables(pattern(rule.lhs)))
    types = {n: dt.bool_ if n == "c" else t for n in names}
    bound = {n: parameter(n, types[n], (SIZE,)) for n in names}
    try:
        left = build(pattern(rule.lhs), bound, TensorType(condition_or(rule, t), (SIZE,)))
        right = build(pattern(rule.rhs), bound, left.type)
    except Error:
        return None
    if not rule.holds(bound):
        return None
    return Func("f", tuple(bound.values()), (left, right), ("l", "r")), [values(types[n], k) for k, n in enumerate(names)]


def condition_or(rule: Rule, t: dt.DType) -> dt.DType:
    """The dtype of a number on the left side."""
    first = pattern(rule.lhs).operands[0]
    return dt.bool_ if rule.root == "where" and isinstance(first, Number) else t


@pytest.mark.parametrize("rule", IDENTITIES, ids=lambda r: r.name)
def test_both_sides_have_the_same_bits(rule: Rule):
    tried = 0
    for t in dt.ALL.values():
        case = instance(rule, t)
        if case is None:
            continue
        tried += 1
        left, right = run(*case)
        assert left.dtype == right.dtype and equal_bits(left, right), (t, left, right)
    assert tried


def equal_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal bits, where any NaN is as good as another."""
    nan = np.isnan(a.astype(np.float64)) & np.isnan(b.astype(np.float64))
    return bool((nan | (a.view(f"u{a.itemsize}") == b.view(f"u{b.itemsize}"))).all())


@pytest.mark.parametrize("rule", IDENTITIES, ids=lambda r: r.name)
def test_the_normal_form_uses_it(rule: Rule):
    case = next(c for t in (dt.f32, dt.i32, dt.bool_) if (c := instance(rule, t)) is not None)
    func = Func("f", case[0].params, case[0].results[:1], ("l",))
    assert canonicalise(Module("graph", "f", func)).func.results[0] is normal(case[0])


def normal(func: Func) -> Node:
    right = Func("f", func.params, func.results[1:], ("r",))
    return canonicalise(Module("graph", "f", right)).func.results[0]


def test_names_are_unique():
    names = sorted(r.name for r in IDENTITIES)
    assert all(a != b for a, b in pairwise(names))
