"""Which e-nodes to take: greedy by the cost of trees, then exact by the cost of the whole, each value counted once.

The exact problem (CP-SAT): a 0/1 variable for each e-node and each class; a class that is needed takes exactly one e-node, an
e-node needs its operands; cycles are cut by positions inside strongly connected classes. Greedy is the hint and the fallback.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tcomp.passes.egraph.engine import ENode

GAP = 0.003  # of the cost, below which a better choice is not looked for
Choice = dict[int, ENode]  # for every class that is needed


@dataclass(frozen=True, slots=True)
class Problem:
    """E-nodes with their costs, by class; classes that must be made."""

    members: Mapping[int, Sequence[tuple[int, ENode]]]
    roots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Extraction:
    """A choice, its cost, and `how`: `optimal`, `feasible` (the time was up) or `greedy`."""

    choice: Choice
    cost: int
    how: str


def greedy(problem: Problem) -> Choice | None:
    """For each class the e-node whose tree costs least; None where a root cannot be made."""
    best: dict[int, tuple[int, ENode]] = {}
    users: dict[int, list[tuple[int, ENode]]] = defaultdict(list)
    todo: deque[tuple[int, ENode]] = deque()
    for options in problem.members.values():
        for option in options:
            todo.append(option)
            for k in set(option[1].kids):
                users[k].append(option)
    while todo:
        cost, n = todo.popleft()
        if any(k not in best for k in n.kids):
            continue
        total = cost + sum(best[k][0] for k in set(n.kids))
        if n.cls not in best or total < best[n.cls][0]:
            best[n.cls] = (total, n)
            todo.extend(users[n.cls])
    if any(r not in best for r in problem.roots):
        return None
    return _needed(problem.roots, {c: n for c, (_, n) in best.items()})


def _needed(roots: Iterable[int], choice: Mapping[int, ENode]) -> Choice:
    """The part of a choice that the roots need."""
    out: Choice = {}
    stack = list(roots)
    while stack:
        c = stack.pop()
        if c not in out:
            out[c] = choice[c]
            stack.extend(choice[c].kids)
    return out


def cost_of(problem: Problem, choice: Choice) -> int:
    """The sum over the e-nodes of a choice, each once."""
    costs = {id(n): cost for c in choice for cost, n in problem.members[c]}
    return sum(costs[id(n)] for n in choice.values())


def reduced(problem: Problem) -> Problem:
    """Without what cannot be reached, needs itself, or needs more than another at no less cost."""
    members: dict[int, list[tuple[int, ENode]]] = {}
    stack = list(problem.roots)
    while stack:
        c = stack.pop()
        if c in members:
            continue
        members[c] = _undominated([o for o in problem.members.get(c, ()) if c not in o[1].kids])
        stack.extend(k for _, n in members[c] for k in n.kids)
    return Problem(members, problem.roots)


def _undominated(options: list[tuple[int, ENode]]) -> list[tuple[int, ENode]]:
    kept: list[tuple[int, ENode]] = []
    for cost, n in sorted(options, key=lambda o: (len(set(o[1].kids)), o[0])):
        if not any(c <= cost and set(m.kids) <= set(n.kids) for c, m in kept):
            kept.append((cost, n))
    return kept


def extract(problem: Problem, effort: float = 0.5, known: Choice | None = None) -> Extraction:
    """The best choice.

    known: a choice to start from beside the greedy one. effort: of the solver, in its own units (about a second each), so that
    answers do not depend on what else the machine does. Raises ValueError where a root cannot be made.
    """
    starts = [c for c in (known, greedy(problem)) if c is not None]
    if not starts:
        raise ValueError("a result cannot be made")
    hint = min(starts, key=lambda c: cost_of(problem, c))
    first = Extraction(hint, cost_of(problem, hint), "greedy")
    small = reduced(problem)
    if all(len(options) <= 1 for options in small.members.values()):
        return Extraction(hint, first.cost, "optimal")
    found = _Model(small).solve(first, effort)
    return first if found is None or found.cost > first.cost else found


class _Model:
    """The CP-SAT model of a reduced problem."""

    def __init__(self, problem: Problem) -> None:
        import networkx as nx
        from ortools.sat.python import cp_model

        self.problem, self.cp = problem, cp_model
        self.model: Any = cp_model.CpModel()
        self.options = [(cost, n) for options in problem.members.values() for cost, n in options]
        self.taken = [self.model.new_bool_var(f"x{k}") for k in range(len(self.options))]
        self.needed = {c: self.model.new_bool_var(f"y{c}") for c in problem.members}
        graph = nx.DiGraph([(n.cls, k) for _, n in self.options for k in n.kids])
        graph.add_nodes_from(problem.members)
        self.component = {c: (at, len(part)) for at, part in enumerate(nx.strongly_connected_components(graph)) for c in part}
        self._constrain()

    def _constrain(self) -> None:
        by: dict[int, list[Any]] = {c: [] for c in self.problem.members}
        places = {c: self.model.new_int_var(0, size - 1, f"t{c}") for c, (_, size) in self.component.items() if size > 1}
        for x, (_, n) in zip(self.taken, self.options):
            by[n.cls].append(x)
            for k in set(n.kids):
                self.model.add_implication(x, self.needed[k])
                if self.component[k][0] == self.component[n.cls][0]:
                    self.model.add(places[k] >= places[n.cls] + 1).only_enforce_if(x)
        for c, options in by.items():
            self.model.add_exactly_one([*options, ~self.needed[c]])
        for r in self.problem.roots:
            self.model.add(self.needed[r] == 1)
        self.model.minimize(sum(cost * x for x, (cost, _) in zip(self.taken, self.options)))

    def solve(self, first: Extraction, effort: float) -> Extraction | None:
        """The best choice, starting from `first`; None where the effort did not suffice."""
        chosen = {id(n) for n in first.choice.values()}
        for x, (_, n) in zip(self.taken, self.options):
            self.model.add_hint(x, int(id(n) in chosen))
        for c, y in self.needed.items():
            self.model.add_hint(y, int(c in first.choice))
        solver: Any = self.cp.CpSolver()
        solver.parameters.max_deterministic_time = effort
        solver.parameters.num_workers = 1
        solver.parameters.linearization_level = 2  # the linear relaxation of choosing is tight: five times faster
        solver.parameters.relative_gap_limit = GAP
        solver.parameters.random_seed = 1
        status = solver.solve(self.model)
        if status not in (self.cp.OPTIMAL, self.cp.FEASIBLE):
            return None
        choice = {n.cls: n for x, (_, n) in zip(self.taken, self.options) if solver.value(x)}
        how = "optimal" if status == self.cp.OPTIMAL else "feasible"
        kept = _needed(self.problem.roots, choice)
        return Extraction(kept, cost_of(self.problem, kept), how)


def warm() -> None:
    """Load the solver and solve a small problem: the first in a process takes longest."""
    one, other = ENode(0, "const", (0.0,), ()), ENode(0, "const", (1.0,), ())
    _Model(Problem({0: [(1, one), (2, other)]}, (0,))).solve(Extraction({0: one}, 1, "greedy"), 1.0)
