"""One window from request to answer: saturate, merge, price, extract, and write the choice as rows again.

request: rows, roots (numbers of rows), streamed (those that are never stored), sizes, rates, budget (of `schedule.Budget`), rules
(names), merge, extract (effort).
answer: rows in which every sum of products has at most two factors, roots (numbers of these rows), equal (pairs of a row of the
answer and one of the request that has its value), and what the report shows.
Runs in the worker process; tests call it directly.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tcomp.passes.egraph.chains import long_products
from tcomp.passes.egraph.cost import FORBIDDEN, UNIT, Costs, Factor, Plan, rates_from
from tcomp.passes.egraph.engine import Engine, ENode, Frozen, key_of, rules_named
from tcomp.passes.egraph.equal import chance, difference, small_sizes
from tcomp.passes.egraph.extract import Choice, Problem, extract, greedy
from tcomp.passes.egraph.merge import merge
from tcomp.passes.egraph.rule import IndexRule
from tcomp.passes.egraph.schedule import Budget, Run, saturate
from tcomp.passes.egraph.terms import EMPTY, Names, Row, Terms, from_json, to_json

SEEDS = 2  # random operands that an answer is compared on
UNEQUAL = 1e-6  # relative error in float64 beyond which two programs are not the same
_VIEWS = frozenset(["leaf", "const", "ren", "win", "part"])
Json = Mapping[str, Any]


def solve(engine: Engine, request: Json) -> dict[str, Any]:
    """The answer to a request. ValueError where a result cannot be made."""
    table = Terms(dict(request["sizes"]))
    for row in from_json(request["rows"]):
        table.row(*row)
    rows = tuple(table.rows)
    longer = long_products(table)
    rules = rules_named(engine.rules, request["rules"])
    start, work = time.perf_counter(), time.process_time()
    engine.open(table.rows, table.sizes, longer, rules)
    run = saturate(engine, rules, Budget(**request["budget"]))
    graph = engine.freeze(rows, request["sizes"])
    saturated = time.perf_counter()
    groups = merge(graph) if request["merge"] else 0
    answer = _extracted(graph, request, groups, engine.rules)
    report = {**_account(run), **answer["report"], "saturation": saturated - start, "extraction": time.perf_counter() - saturated}
    if not report["used"] and report["after"] < report["before"]:  # what the text has for one result is now that of another
        report["used"] = sorted(run.fired)
    return {**answer, "report": {**report, "processor": time.process_time() - work}}


def _account(run: Run) -> dict[str, Any]:
    return {"why": run.why, "turns": run.turns, "fired": dict(run.fired), "enodes": run.nodes, "rows": run.rows}


def _extracted(graph: Frozen, request: Json, groups: int, rules: Sequence[IndexRule]) -> dict[str, Any]:
    """The best choice as rows, with its cost and that of the text as written, in seconds."""
    roots = tuple(graph.rows[r] for r in request["roots"])
    costs = Costs(graph, rates_from(request["rates"]), frozenset(graph.rows[r] for r in request["streamed"]))
    priced: dict[int, list[tuple[int, ENode]]] = {}
    given: dict[int, list[tuple[int, ENode]]] = {}
    for n in graph.nodes:
        cost = costs.of(n)
        if cost < FORBIDDEN:
            priced.setdefault(n.cls, []).append((cost, n))
        if n.key in graph.given:
            given.setdefault(n.cls, []).append((cost, n))
    written = Problem(given, roots)
    choice = greedy(written)
    best = extract(Problem(priced, roots), request["extract"], known=choice)
    before = _cost_as_written(graph, request, {n.key: cost for options in given.values() for cost, n in options}, best.cost)
    writer = _Writer(graph, costs, best.choice)
    numbers = [writer.row(r) for r in roots]
    merged = sum(n.op == "cat" for n in best.choice.values())
    report = {"before": before * UNIT, "after": best.cost * UNIT, "how": best.how, "merges": min(groups, merged)}
    report["steps"] = [_steps(from_json(request["rows"]), request["roots"]), _steps(writer.terms.rows, numbers)]
    report["used"] = _used(graph, best.choice, rules)
    sizes = {n: s for n, s in graph.sizes.items() if n not in request["sizes"]}
    report |= _checked(request, graph.sizes, writer.terms, numbers)
    equal = writer.written({cls: r for r, cls in reversed([*enumerate(graph.rows)])})
    return {"rows": to_json(writer.terms.rows), "roots": numbers, "equal": equal, "sizes": sizes, "report": report}


def _cost_as_written(graph: Frozen, request: Json, costs: Mapping[Any, int], least: int) -> int:
    """The cost of the text's rows, equal ones too; `least` where some row has none."""
    rows = from_json(request["rows"])
    keys = [key_of(rows[r], graph.rows) for r in _needed(rows, request["roots"])]
    return sum(costs[k] for k in keys) if all(k in costs for k in keys) else least


def _used(graph: Frozen, choice: Choice, rules: Sequence[IndexRule]) -> list[str]:
    """The rules that made what a choice has and the text has not, those that made what they matched among them."""
    by = 0
    for n in choice.values():
        by |= graph.by.get(n.key, 0)
    return [r.name for k, r in enumerate(rules) if by >> k & 1 and not r.simplifies]


def _checked(request: Json, sizes: Mapping[str, int], answer: Terms, roots: Sequence[int]) -> dict[str, float | None]:
    """How far the text and the answer are equal, on random operands of small sizes.

    error: the largest difference in float64, relative to the largest element. chance: of a wrong answer to be equal in the finite
    fields too; None where they decide nothing (a maximum, a rounded constant). ValueError where the answer is not equal, or has
    no value there: then it is not taken.
    """
    both = Terms(dict(sizes))
    first = [both.row(*row) for row in from_json(request["rows"])]
    second: list[int] = []
    for op, attrs, kids in answer.rows:
        second.append(both.row(op, attrs, (second[k] for k in kids)))
    both.sizes = small_sizes(both)
    pairs = [(first[a], second[b]) for a, b in zip(request["roots"], roots) if first[a] != second[b]]
    error = max((difference(both, pairs, seed) for seed in range(SEEDS)), default=0.0)
    if not error <= UNEQUAL:
        raise ValueError(f"the answer differs from the text by {error:.1e}")
    return {"error": error, "chance": chance(both, pairs)}


def _steps(rows: Sequence[Row], roots: Sequence[int]) -> int:
    """Operations of rows, each of two operands, that every call computes."""
    varies: list[bool] = []
    for op, attrs, kids in rows:
        varies.append(any(varies[k] for k in kids) or (op == "leaf" and not attrs[2]))
    return sum(max(1, len(rows[r][2]) - 1) for r in _needed(rows, roots) if varies[r] and rows[r][0] not in _VIEWS)


def _needed(rows: Sequence[Row], roots: Sequence[int]) -> set[int]:
    """The rows that the roots are made of."""
    needed, stack = set[int](), list(roots)
    while stack:
        r = stack.pop()
        if r not in needed:
            needed.add(r)
            stack += rows[r][2]
    return needed


class _Writer:
    """Writes a choice as rows; sums of more than two factors become pairs, in the order that was priced."""

    def __init__(self, graph: Frozen, costs: Costs, choice: Choice) -> None:
        self.graph, self.costs, self.choice = graph, costs, choice
        self.terms = Terms()
        self._done: dict[int, int] = {}

    def row(self, cls: int) -> int:
        """The row that makes a class. Iterative: a window is a deep chain."""
        stack = [cls]
        while stack:
            c = stack[-1]
            missing = [k for k in self.choice[c].kids if k not in self._done] if c not in self._done else []
            if missing:
                stack += missing
                continue
            stack.pop()
            if c not in self._done:
                self._done[c] = self._written(self.choice[c])
        return self._done[cls]

    def written(self, rows: Mapping[int, int]) -> list[tuple[int, int]]:
        """Each row that makes a class of `rows`, and the class's row there."""
        return [(made, rows[cls]) for cls, made in self._done.items() if cls in rows]

    def _written(self, n: ENode) -> int:
        kids = [self._done[k] for k in n.kids]
        if n.op != "ein" or len(kids) < 3:
            return self.terms.row(n.op, n.attrs, kids)
        pairs = sorted(zip(map(self.costs.factor, n.kids), kids), key=lambda p: (sorted(p[0].names), p[0].weight, p[0].moved))
        factors = tuple(f for f, _ in pairs)
        plan = self.costs.sizes.contract(factors, frozenset(n.attrs[0])).plan
        return _Paired(self.terms, factors, [k for _, k in pairs], frozenset(n.attrs[0])).top(plan)


class _Paired:
    """A sum of products as products of two, along a plan."""

    def __init__(self, terms: Terms, factors: Sequence[Factor], rows: Sequence[int], summed: Names) -> None:
        self.terms, self.factors, self.rows, self.summed = terms, factors, rows, summed

    def top(self, plan: Plan) -> int:
        names = EMPTY.union(*(f.names for f in self.factors))
        row, _ = self._made(plan, self.summed)
        absent = self.summed - names
        return self.terms.ein(absent, row) if absent else row

    def _made(self, plan: Plan, inside: Names) -> tuple[int, Names]:
        """The row of a plan summed over the indices `inside` that only it has, and its indices."""
        if isinstance(plan, int):
            names = self.factors[plan].names
            over = names & inside
            return (self.terms.ein(over, self.rows[plan]) if over else self.rows[plan]), names - over
        left, right = plan
        mine, yours = _names(left, self.factors), _names(right, self.factors)
        a, left_names = self._made(left, inside - yours)
        b, right_names = self._made(right, inside - mine)
        over = (left_names | right_names) & inside
        return self.terms.ein(over, a, b), (left_names | right_names) - over


def _names(plan: Plan, factors: Sequence[Factor]) -> Names:
    if isinstance(plan, int):
        return factors[plan].names
    return _names(plan[0], factors) | _names(plan[1], factors)


def request_of(
    terms: Terms,
    roots: Sequence[int],
    rates: Json,
    rules: Sequence[str],
    budget: Budget,
    effort: float = 0.5,
    streamed: Sequence[int] = (),
) -> dict[str, Any]:
    """The request for a table of rows; equal windows give equal requests."""
    return {
        "rows": to_json(terms.rows),
        "roots": list(roots),
        "streamed": list(streamed),
        "sizes": dict(terms.sizes),
        "rates": dict(rates),
        "budget": asdict(budget),
        "rules": list(rules),
        "merge": True,
        "extract": effort,
    }
