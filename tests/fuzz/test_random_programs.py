"""Random GRAPH programs, compiled once each, agree with the interpreter at every size."""

import numpy as np
import pytest

from tcomp.api import Compiler
from tcomp.frontend.jit import Options
from tcomp.ir.ops import OPS
from tcomp.testing.differential import compare, differences
from tcomp.testing.generate import SIZES, generate

PROGRAMS = 150


pytestmark = pytest.mark.usefixtures("fast_code")


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_compiled_code_agrees(seed):
    found = differences(generate(seed), lambda func: Compiler(use_cache=False)(func, Options()))
    assert not found, "\n".join(map(str, found))


# sums that go on in a loop of another width; convolutions of 0 channels; a gather from an empty axis
@pytest.mark.parametrize("seed", [90285, 90066, 90163, 90113])
def test_every_stage_keeps_its_rules(seed, monkeypatch):
    monkeypatch.setenv("TCOMP_CHECK", "3")
    found = differences(generate(seed), lambda func: Compiler(use_cache=False)(func, Options()))
    assert not found, "\n".join(map(str, found))


def test_the_programs_use_every_operation():
    used = {n.op for seed in range(8 * PROGRAMS) for n in generate(seed).func.nodes()}
    assert {row.name for row in OPS.values() if row.kind != "control" and row.name != "copy"} == used - {"copy"}


def test_a_program_depends_on_its_seed_alone():
    a, b = generate(7), generate(7)
    assert a.func.results == b.func.results and a.func.results != generate(8).func.results
    for sizes in SIZES:
        assert all(np.array_equal(x, y, equal_nan=x.dtype.kind == "f") for x, y in zip(a.inputs(sizes), b.inputs(sizes)))


def test_differences_are_seen():
    one, nan = np.float32([1, 2]), np.float32([1, np.nan])
    assert compare([one], [one], ["r"]) == []
    assert compare([nan], [nan], ["r"]) == []
    assert len(compare([one], [nan], ["r"])) == 1
    assert len(compare([nan], [np.float32([1, np.inf])], ["r"], frozenset(["r"]))) == 1
    assert len(compare([one], [one.astype(np.float64)], ["r"])) == 1
    assert len(compare([one], [one[:1]], ["r"])) == 1
    assert len(compare([one], [np.nextafter(one, 9)], ["r"])) == 1
    assert compare([one], [np.nextafter(one, np.float32(9))], ["r"], frozenset(["r"])) == []
