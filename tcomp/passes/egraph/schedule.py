"""When which rule runs: every rule by itself, with a back-off of our own, until nothing changes or a budget is spent.

egglog's own back-off scheduler panics with containers. A rule that matched more than its limit rests for a few turns, with both
doubled each time; so the rules that explode wait and the others finish. A window is stopped at `nodes`: more is slower and worse.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tcomp.passes.egraph.engine import Engine
from tcomp.passes.egraph.rule import IndexRule


@dataclass(frozen=True, slots=True)
class Budget:
    """nodes: e-nodes of a window; seconds: of its saturation; turns through all rules; matches: of a rule in one turn."""

    nodes: int = 1000
    seconds: float = 4.0
    turns: int = 8
    matches: int = 50
    rest: int = 2


@dataclass(slots=True)
class Run:
    """How a saturation went: why it stopped, matches by rule (those that changed anything), turns."""

    why: str = "turns"
    fired: Counter[str] = field(default_factory=Counter)
    turns: int = 0


@dataclass(slots=True)
class _Rest:
    until: int = 0
    times: int = 0


def saturate(engine: Engine, rules: Sequence[IndexRule], budget: Budget) -> Run:
    """Run `rules` on the window that is open in `engine`."""
    run, start = Run(), time.perf_counter()
    active = [r for r in rules if not r.simplifies]
    resting = {r.name: _Rest() for r in active}
    for turn in range(budget.turns):
        run.turns = turn + 1
        changed = False
        for rule in active:
            state = resting[rule.name]
            if state.until > turn:
                changed = True
                continue
            changed |= _once(engine, rule, state, turn, budget, run)
            if time.perf_counter() - start > budget.seconds:
                run.why = "time"
                return run
            if engine.size() > budget.nodes:
                run.why = "nodes"
                return run
        if not changed:
            run.why = "saturated"
            return run
    return run


def _once(engine: Engine, rule: IndexRule, state: _Rest, turn: int, budget: Budget, run: Run) -> bool:
    """One run of one rule; whether it changed anything."""
    matches, updated = engine.apply(rule.name)
    if updated:
        run.fired[rule.name] += matches
        engine.settle()
    if matches > budget.matches << state.times:
        state.until = turn + 1 + (budget.rest << state.times)
        state.times += 1
    return updated
