"""Choices: the default is a legal point of the space, points exist for every problem, and their text gives them back."""

from itertools import islice, product

import pytest

from tcomp.codegen.llvm.machines import machine_for
from tcomp.errors import Error
from tcomp.ir import dtype as dt
from tcomp.schedule.analytic import choose_cascade, choose_dot
from tcomp.schedule.choice import parse_choice
from tcomp.schedule.space import CascadeProblem, Problem, cascade_points, legal, legal_cascade, points

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

CASCADES = [
    CascadeProblem(batch, rows, length, depths, widths, t, direct, along, 2, 3, inner)
    for batch, rows, length, (depths, widths), (direct, along), t, inner in product(
        (1, 12),
        (1, 7, 512),
        (9, 300, 8192),
        (((64,), (64,)), ((512,), ()), ((), (40,)), ((), ())),
        ((True, False), (False, True), (False, False)),
        (dt.f32, dt.f64),
        ((), (16,)),
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


@pytest.mark.parametrize("machine", MACHINES.values(), ids=list(MACHINES))
def test_choices_for_dependent_reductions(machine):
    assert [p for p in CASCADES if not legal_cascade(choose_cascade(p, machine), p, machine)] == []
    for p in CASCADES[::7]:
        found = list(islice(cascade_points(p, machine), 0, 4000, 61))
        assert found
        for choice in (choose_cascade(p, machine), *found):
            assert parse_choice(choice.text()) == choice


WHOLE = "cascade 32x256 score 8x32 result 4x64 inner 16x16 depth 256 packing panels parts 1"
CUT = [
    WHOLE[: WHOLE.index(" parts")],
    WHOLE.replace("panels", "nothing"),
    WHOLE.replace("8x32", "8"),
    WHOLE.replace("score", "tile"),
]


@pytest.mark.parametrize(
    "text", ["dot packed 14", "dot packed 14x32 block 1x2 unroll 4", "dot packed axb block 1x2x3 unroll 4", *CUT]
)
def test_other_text_is_no_choice(text):
    with pytest.raises(Error, match="TC0301"):
        parse_choice(text)
