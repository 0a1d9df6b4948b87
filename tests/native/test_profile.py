"""Profiles: a row for every launch, with times that add up, bytes and flops that are right; symbolic sizes; faults."""

import numpy as np
import pytest

from tcomp.codegen.llvm.build import build
from tcomp.codegen.llvm.machines import machine_for
from tcomp.driver import PIPELINE, run_passes
from tcomp.errors import Error
from tcomp.ir import dtype as dt
from tcomp.ir import index as ix
from tcomp.ir.graph import Func
from tcomp.ir.module import Module
from tcomp.ir.ops import apply, parameter
from tcomp.runtime.executable import Executable, link


def executable(func: Func) -> Executable:
    return link(build(run_passes(Module("graph", func.name, func), PIPELINE), *machine_for("cpu"), {}, {}))


def softmax_of_product(rows) -> Func:
    """Scores x @ w, reduced over the columns, and over the rows: several launches."""
    x, w = parameter("x", dt.f32, (rows, 70)), parameter("w", dt.f32, (70, 90))
    scores = apply("dot", x, w, batch=((), ()), contract=((1,), (0,)))
    top, total = (apply("reduce", scores, monoid=m, axes=(a,)) for m, a in (("max", 1), ("add", 0)))
    return Func("f", (x, w), (top, total), ("top", "total"))


@pytest.mark.parametrize("rows", [333, ix.symbol("n")])
def test_a_row_for_every_launch(rows):
    exe = executable(softmax_of_product(rows))
    x, w = np.ones((333, 70), np.float32), np.ones((70, 90), np.float32)
    profile = exe.profile(x, w)
    assert len(profile.rows) == len(exe.report()["launches"]) >= 2
    assert profile.runs >= 3 and 0 < sum(row.seconds for row in profile.rows) <= profile.seconds
    product = max(profile.rows, key=lambda row: row.flops)
    assert product.flops == pytest.approx(2 * 333 * 70 * 90, rel=0.25 if rows == 333 else 0.6)
    assert all(row.bytes >= 4 * 333 * 90 for row in profile.rows[:1])
    lines = str(profile).splitlines()
    assert len(lines) == len(profile.rows) + 2 and product.kernel in str(profile)


def test_what_a_call_takes_a_profile_takes():
    exe = executable(softmax_of_product(8))
    exe.profile(np.ones((70, 8), np.float32).T, np.ones((70, 90), ">f4"))
    with pytest.raises(Error, match="TC0601"):
        exe.profile(np.ones((9, 70), np.float32), np.ones((70, 90), np.float32))


def test_an_empty_program():
    x = parameter("x", dt.f32, (ix.symbol("n"), 4))
    profile = executable(Func("f", (x,), (apply("neg", x),), ("y",))).profile(np.ones((0, 4), np.float32))
    assert all(row.flops == 0 and row.bytes == 0 for row in profile.rows)
    assert "one run" in str(profile)
