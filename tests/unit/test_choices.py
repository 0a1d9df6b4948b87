"""Choices: the default is a legal point of the space, points exist for every problem, and their text gives them back."""

from itertools import islice, product

import pytest

from tcomp.codegen.llvm.machines import machine_for
from tcomp.errors import Error
from tcomp.ir import dtype as dt
from tcomp.schedule.analytic import choose_dot
from tcomp.schedule.choice import parse_choice
from tcomp.schedule.space import Problem, legal, points

MACHINES = {name: machine_for(f"cpu:{name}")[0] for name in ("x86-64-v4", "x86-64-v3", "x86-64", "aarch64")}
SIZES = (1, 3, 17, 256, 4000)
PROBLEMS = [
    Problem(batch, m, n, k, t, known, lies, False, single)
    for m, n, k in product(SIZES, SIZES, SIZES)
    for batch, t, known, lies, single in (
        (1, dt.f32, True, "n", True),
        (1, dt.f32, False, "n", True),
        (4, dt.f32, False, "k", True),
        (1, dt.f64, False, "", True),
        (1, dt.i64, False, "n", False),
    )
]


@pytest.mark.parametrize("machine", MACHINES.values(), ids=list(MACHINES))
def test_the_default_is_legal(machine):
    assert [p for p in PROBLEMS if not legal(choose_dot(p, machine), p, machine)] == []


@pytest.mark.parametrize("machine", MACHINES.values(), ids=list(MACHINES))
def test_every_problem_whose_blocks_may_meet_has_points(machine):
    tried = [p for p in PROBLEMS[::23] if p.single_store]
    assert tried and all(next(points(p, machine), None) is not None for p in tried)


def test_a_choice_is_replayed_from_its_text():
    machine = MACHINES["x86-64-v4"]
    for p in PROBLEMS[::17]:
        for choice in (choose_dot(p, machine), *islice(points(p, machine), 0, 4000, 97)):
            assert parse_choice(choice.text()) == choice


@pytest.mark.parametrize("text", ["dot packed 14", "dot packed 14x32 block 1x2 unroll 4", "dot packed axb block 1x2x3 unroll 4"])
def test_other_text_is_no_choice(text):
    with pytest.raises(Error, match="TC0301"):
        parse_choice(text)
