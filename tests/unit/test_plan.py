"""The plan of what is written as mathematics is within 1.1 of the best known algorithm: operations, bytes moved, peak memory."""

import importlib.util
import sys
from pathlib import Path

import pytest

PATH = Path(__file__).parents[1] / "bench" / "plan.py"
SPEC = importlib.util.spec_from_file_location("bench_plan", PATH)
plan = sys.modules["bench_plan"] = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(plan)


@pytest.mark.parametrize("scale", [0.5, 1.0])
@pytest.mark.parametrize("name", plan.WORKLOADS)
def test_figures_are_those_of_the_best_known_algorithm(name, scale):
    found = plan.rows(plan.WORKLOADS[name], scale)
    assert [r.what for r in found if r.ratio > plan.MOST] == [], found


def test_a_plan_that_is_not_the_best_is_seen():
    """Softmax of scores that are needed themselves: they are stored."""
    told = plan.Workload(
        lambda q, k, v: (plan.attention(q, k, v), q @ plan.turned(k)), plan.WORKLOADS["attention"].specs, plan.best_attention
    )
    assert [r.what for r in plan.rows(told) if r.ratio > plan.MOST]
