"""When which rule runs: every rule by itself, with a back-off of our own, until nothing changes or a budget is spent.

egglog's own back-off scheduler panics with containers. A rule that matched more than its limit rests for a few turns, with both
doubled each time; so the rules that explode wait and the others finish. A window is stopped at `nodes`: more is slower and worse.
Sizes are budgets that hold: the step that passed one is taken back, by doing those before it again on the text, which gives the
same e-graph again. Time is that of the processor, whatever else the machine does.
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
    """nodes: e-nodes of a window; rows: of all its tables; seconds: of its saturation; turns through all rules; matches: of a
    rule in one turn, before it rests for `rest` turns.
    """

    nodes: int = 1000
    rows: int = 40_000
    seconds: float = 2.0
    turns: int = 8
    matches: int = 50
    rest: int = 2


@dataclass(slots=True)
class Run:
    """How a saturation went: why it stopped; the steps that changed something, as a rule and its matches; turns; its size."""

    why: str = "turns"
    steps: list[tuple[str, int]] = field(default_factory=list)
    turns: int = 0
    nodes: int = 0
    rows: int = 0

    @property
    def fired(self) -> Counter[str]:
        """Matches of each rule that changed something."""
        total: Counter[str] = Counter()
        for rule, matches in self.steps:
            total[rule] += matches
        return total


@dataclass(slots=True)
class _Rest:
    until: int = 0
    times: int = 0


def saturate(engine: Engine, rules: Sequence[IndexRule], budget: Budget) -> Run:
    """Run `rules` on the window that is open in `engine`."""
    run, start = Run(), time.process_time()
    run.nodes, run.rows = engine.size()
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
            spent = _spent(run, budget)
            if spent:
                _take_back(engine, budget, run)
                run.why = spent
                return run
            if time.process_time() - start > budget.seconds:
                run.why = "time"
                return run
        if not changed:
            run.why = "saturated"
            return run
    return run


def _once(engine: Engine, rule: IndexRule, state: _Rest, turn: int, budget: Budget, run: Run) -> bool:
    """One run of one rule; whether it changed anything."""
    matches, updated = engine.apply(rule.name)
    if updated:
        run.steps.append((rule.name, matches))
        engine.settle()
        run.nodes, run.rows = engine.size()
    if matches > budget.matches << state.times:
        state.until = turn + 1 + (budget.rest << state.times)
        state.times += 1
    return updated


def _spent(run: Run, budget: Budget) -> str:
    """The size that passed its budget."""
    return "nodes" if run.nodes > budget.nodes else "rows" if run.rows > budget.rows else ""


def _take_back(engine: Engine, budget: Budget, run: Run) -> None:
    """The window as it was before its last step."""
    while run.steps and _spent(run, budget):
        run.steps.pop()
        engine.again()
        for rule, _ in run.steps:
            engine.apply(rule)
            engine.settle()
        run.nodes, run.rows = engine.size()
