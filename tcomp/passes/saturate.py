"""`saturate`: the mathematics that costs least, by equality saturation.

Takes and gives a GRAPH. Windows of it (`egraph/windows.py`) become index terms, all rules of `rules/families.py` run on them at
once, and the cheapest program that they reach, by the machine's rates, takes the window's place if it costs clearly less than the
text as written. What is not rewritten stays node for node.
Rewrites are of class `reassociates`: results differ by rounding, or where a value of either form is not finite; fp="bitwise"
leaves this pass out. Equal windows are solved once, through `solved`, which maps a request's hash to the text of its answer.

    s = dot q[n, d], k[m, d] contract (1, 1);  y = dot s[n, m], v[m, e] contract (1, 0)
    ->   t = dot k[m, d], v[m, e] contract (0, 0);  y = dot q[n, d], t[d, e] contract (1, 0)
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

from tcomp import knobs, trace
from tcomp.ir.graph import Func
from tcomp.ir.machine import Machine
from tcomp.ir.module import Module
from tcomp.ir.node import Node, with_operands
from tcomp.passes.cascade.cascade import find
from tcomp.passes.egraph.axes import Inexpressible
from tcomp.passes.egraph.cost import Rates
from tcomp.passes.egraph.decode import Decoder
from tcomp.passes.egraph.encode import Encoded, encode
from tcomp.passes.egraph.schedule import Budget
from tcomp.passes.egraph.solve import request_of
from tcomp.passes.egraph.terms import EMPTY, Names, Terms, dump, elements, free_indices, from_json
from tcomp.passes.egraph.windows import Window, may_match, windows
from tcomp.passes.egraph.worker import Worker
from tcomp.passes.rebuild import rebuilt
from tcomp.passes.rules.families import FAMILIES, FOLDING, RULES

Ask = Callable[[Mapping[str, Any], float], tuple[dict[str, Any] | None, str]]
SECONDS = 60.0  # that a window may wait for a worker that is kept from running; its work has budgets of its own
FUSED = 3.0  # pointwise operations in the time of one of a product: most stand in a kernel that waits for something else
LEAST = 10e-6  # seconds of products below which a window is not worth the time of solving it
SHARE = 0.003  # of the program's products, likewise
WORTH = 0.97  # of the cost as written, above which a window stays as it is
MOST_PLACES = 3  # that the account names of a window
_BUDGET = Budget()
_worker = Worker()
_solved: dict[str, str] = {}


class Solved(Protocol):
    """Texts of answers by key: a dictionary is one."""

    def get(self, key: str, /) -> str | None:
        """The text kept under a key."""

    def __setitem__(self, key: str, value: str, /) -> None:
        """Keep a text."""


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What became of one window, for the report.

    at: where its results are in the user's text; nodes: its operations. before, after: predicted seconds of a call, as written
    and of the best program found. kept: why the window stays as written, where it does. rules: those that made the best program,
    of `fired`, all that found something, with how often. why: what ended saturation (`saturated`, or what its budget ran out of:
    `nodes`, `rows`, `time`, `turns`); how: whether the choice is `optimal`, `feasible` or `greedy`. error: the largest between
    both forms on random small operands in float64; chance: of unequal forms to be equal in finite fields, None where these decide
    nothing. saturation, extraction: seconds when it was solved; processor: those of the worker's processor; memory: bytes
    of the worker then; seconds: that the answer took now.
    """

    at: str
    nodes: int
    before: float = 0.0
    after: float = 0.0
    changed: bool = False
    kept: str = ""
    rules: tuple[str, ...] = ()
    fired: tuple[tuple[str, int], ...] = ()
    merges: int = 0
    enodes: int = 0
    rows: int = 0
    memory: int = 0
    why: str = ""
    how: str = "as written"
    error: float | None = None
    chance: float | None = None
    saturation: float = 0.0
    extraction: float = 0.0
    processor: float = 0.0
    seconds: float = 0.0
    cached: bool = False

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def begin() -> None:
    """Have a worker come up meanwhile, for a program that is likely to ask it: it takes half a second."""
    if knobs.ALGEBRA.read():
        _worker.begin()


def rates_of(machine: Machine, element: int) -> Rates:
    """The rates that costs are made of, for elements of this many bytes."""
    lanes = {"fma512": 64, "fma256": 32, "neon": 16, "sse": 8}[machine.family] * 8 // (2 * element)
    cores = min(machine.cores, 64)
    clock = 2.5e9
    products = 1.2 * lanes * clock * cores
    return Rates(products, FUSED * products, 12e9 * min(cores, 8), 2e-6, element)


def saturate(
    module: Module,
    machine: Machine,
    ask: Ask | None = None,
    solved: Solved | None = None,
    budget: Budget = _BUDGET,
    worth: float = WORTH,
    least: float = LEAST,
    reassociates: bool = True,
) -> Module:
    """`module` with its windows rewritten, and the account of every window that was tried in `algebra`.

    ask: sends a request to a worker, by default to the process's own. solved: answers known, by default of this process.
    worth: the part of its cost as written that a window may keep and still be rewritten. least: seconds that its products must
    take for it to be tried. reassociates: whether sums may be taken in another order; nothing is done where not, nor where the
    knob TCOMP_ALGEBRA is off.
    """
    func = module.graph("`saturate`")
    if not (reassociates and knobs.ALGEBRA.read()):
        return module
    solver = _Solver(ask or _worker.ask, _solved if solved is None else solved, budget, worth, least)
    found, account = _solutions(func, machine, solver)
    after = _rewritten(module, found) if found else module
    return replace(after, algebra=tuple(a.as_json() for a in account))


@dataclass(frozen=True, slots=True)
class _Solution:
    """A window that is rewritten: its rows with those of the answer after them, the row of each root, and rows of equal value."""

    window: Window
    encoded: Encoded
    terms: Terms
    roots: dict[Node, int]
    equal: dict[int, int]


@dataclass(frozen=True, slots=True)
class _Solver:
    """Asks for answers, each question once."""

    ask: Ask
    solved: Solved
    budget: Budget
    worth: float
    least: float

    def answer(self, request: Mapping[str, Any]) -> tuple[dict[str, Any] | None, str, bool]:
        """The answer or None, why there is none, whether it was known."""
        key = hashlib.sha256(dump(request).encode()).hexdigest()
        known = self.solved.get(key)
        if known is not None:
            return json.loads(known), "", True
        answer, why = self.ask(request, SECONDS)
        if answer is not None:
            self.solved[key] = dump(answer)
        return answer, why, False


def _solutions(func: Func, machine: Machine, solver: _Solver) -> tuple[list[_Solution], list[Rewritten]]:
    """Solve all windows; those that changed, and the account of all."""
    found, account = [], []
    rated = [(w, e, rates_of(machine, w.nodes[0].type.dtype.bytes)) for w, e in _encoded(func)]
    times = [_least_time(e.terms, known) for _, e, known in rated]
    least = max(solver.least, SHARE * sum(times))
    inside = _streamed(func) if max(times, default=0.0) >= least else frozenset()
    for (window, encoded, known), seconds in zip(rated, times):
        if seconds < least or not may_match(encoded.terms, RULES):
            continue
        start = time.perf_counter()
        roots = [encoded.rows[n] for n in window.roots]
        streamed = sorted({encoded.rows[n] for n in window.nodes if n in inside and n in encoded.rows})
        rules = _rules_for(encoded.terms)
        request = request_of(encoded.terms, roots, asdict(known), rules, solver.budget, streamed=streamed)
        answer, why, cached = solver.answer(request)
        row = Rewritten(_place(func, window), len(window.nodes), seconds=time.perf_counter() - start, cached=cached)
        if answer is None:
            account.append(replace(row, kept="no answer", why=why))
            continue
        account.append(_accounted(row, answer["report"], solver.worth))
        if account[-1].changed:
            found.append(_solution(window, encoded, answer))
            trace.event("rule", name="saturate", window=account[-1].as_json())
    return found, account


def _streamed(func: Func) -> frozenset[Node]:
    """What passes of dependent reductions keep inside: values of all that streams, which no one else reads."""
    return frozenset(n for c in find(func)[0] for n in c.members if n.type.shape == c.domain and n not in c.outputs)


def _least_time(terms: Terms, rates: Rates) -> float:
    """About the time of the sums of products of a window as written, in seconds, without the steps."""
    free: list[Names] = []
    total = 0.0
    for op, attrs, kids in terms.rows:
        below = [free[k] for k in kids]
        free.append(free_indices(op, attrs, below))
        if op == "ein" and attrs[0]:
            moved = rates.element * sum(elements(terms.sizes, names) for names in below)
            total += max(2.0 * elements(terms.sizes, EMPTY.union(*below)) / rates.flops, moved / rates.bandwidth)
    return total


def _rules_for(terms: Terms) -> list[str]:
    """The rules that can pay: those of exponentials need a maximum, and an exp that is not bounded as written."""
    exps = [terms.rows[kids[0]][0] for op, attrs, kids in terms.rows if (op, attrs) == ("un", ("exp",))]
    unsafe = any(below != "add" for below in exps) and any(op == "max" for op, _, _ in terms.rows)
    left_out = {"proofs"} if unsafe else {"proofs", "exponentials"}
    return [r.name for name, family in FAMILIES.items() if name not in left_out for r in family]


def _accounted(row: Rewritten, report: Mapping[str, Any], worth: float) -> Rewritten:
    """The row with what the answer says."""
    before, after = report["before"], report["after"]
    kept = _kept(report, worth)
    same = ("merges", "enodes", "rows", "memory", "why", "how", "error", "chance", "saturation", "extraction", "processor")
    numbers = {name: report[name] for name in same if name in report}
    fired = tuple(sorted(report["fired"].items()))
    rules = tuple(report["used"])
    return replace(row, before=before, after=after, changed=not kept, kept=kept, rules=rules, fired=fired, **numbers)


def _kept(report: Mapping[str, Any], worth: float) -> str:
    """Why a window stays as written; nothing where it is clearly cheaper, or the same with weights folded.

    Predictions are not better than a few parts in a hundred, and another order of operations may fuse less well.
    """
    before, after = report["before"], report["after"]
    if after >= before:
        return "nothing cheaper"
    folded = report["steps"][1] < report["steps"][0] and FOLDING.issuperset(report["used"])
    return "" if folded or after < worth * before else f"gain below {1 - worth:.0%}"


def _place(func: Func, window: Window) -> str:
    """Where the results of a window are made, in the user's text."""
    places = dict.fromkeys(str(place) for n in window.roots for place in func.locs.of(n))
    return ", ".join(list(places)[:MOST_PLACES]) + (", ..." if len(places) > MOST_PLACES else "")


def _encoded(func: Func) -> list[tuple[Window, Encoded]]:
    """All windows with their terms. What turns out to have none becomes a border, and windows are formed anew."""
    opaque: set[Node] = set()
    while True:
        out = []
        try:
            for w in windows(func, opaque):
                out.append((w, encode(w.nodes, w.leaves)))
        except Inexpressible as found:
            opaque.add(found.args[0])
            continue
        return out


def _solution(window: Window, encoded: Encoded, answer: Mapping[str, Any]) -> _Solution:
    """The answer's rows joined to those of the window, so that what is as written is the same row."""
    terms = _with_sizes(encoded.terms, answer["sizes"])
    number: list[int] = []
    for op, attrs, kids in from_json(answer["rows"]):
        number.append(terms.row(op, attrs, (number[k] for k in kids)))
    equal = {number[made]: row for made, row in answer["equal"]}
    return _Solution(window, encoded, terms, {n: number[r] for n, r in zip(window.roots, answer["roots"])}, equal)


def _with_sizes(terms: Terms, more: Mapping[str, int]) -> Terms:
    """A table with the same rows and further sizes."""
    out = Terms({**terms.sizes, **more})
    for row in terms.rows:
        out.row(*row)
    return out


def _rewritten(module: Module, found: list[_Solution]) -> Module:
    """The module with each root of a solved window made anew."""
    at = {n: s for s in found for n in s.window.roots}
    done: dict[Node, Node] = {}
    decoders: dict[int, Decoder] = {}
    origins: dict[Node, Node] = {}

    def change(old: Node, operands: tuple[Node, ...]) -> Node:
        new = with_operands(old, operands)
        s = at.get(old)
        if s is not None:
            decoder = decoders.get(id(s))
            if decoder is None:
                outside = {leaf: done[leaf] for leaf in s.window.leaves if leaf in done}
                decoder = decoders[id(s)] = Decoder(s.encoded, s.terms, outside, old.type.dtype, s.equal, origins)
            new = decoder.root(old, s.roots[old])
        done[old] = new
        return new

    return rebuilt(module, change, origins)
