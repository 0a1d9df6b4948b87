"""The e-graph's parts: equalities that must be derived, extraction, merging, contraction orders, the worker's limits."""

import itertools
import random
import time

import pytest

from tcomp.passes.egraph.audit import audit
from tcomp.passes.egraph.cost import FORBIDDEN, Costs, Factor, Rates, Sizes
from tcomp.passes.egraph.engine import Engine, ENode, Frozen
from tcomp.passes.egraph.extract import Problem, cost_of, extract, greedy
from tcomp.passes.egraph.merge import merge
from tcomp.passes.egraph.schedule import Budget, saturate
from tcomp.passes.egraph.solve import request_of, solve
from tcomp.passes.egraph.terms import Terms
from tcomp.passes.egraph.worker import Worker
from tcomp.passes.rules.families import FAMILIES, RULES

ENGINE = Engine(RULES)
RATES = Rates(2e11, 1e10, 2e10, 2e-6, 4)
JSON_RATES = {"flops": 2e11, "pointwise": 1e10, "bandwidth": 2e10, "step": 2e-6, "element": 4}
NAMES = [r.name for r in RULES]


class Builder(Terms):
    """Short names for tests."""

    def L(self, name: str, indices: str) -> int:
        return self.leaf(name, indices)

    def W(self, name: str, indices: str) -> int:
        return self.leaf(name, indices, True)

    def mul(self, *factors: int) -> int:
        return self.ein((), *factors)

    def inv(self, x: int) -> int:
        return self.un("inv", x)

    def exp(self, x: int) -> int:
        return self.un("exp", x)

    def max(self, i: str, x: int) -> int:
        return self.row("max", (i,), (x,))

    def ren(self, i: str, j: str, x: int) -> int:
        return self.row("ren", (i, j), (x,))

    def minus(self, a: int, b: int) -> int:
        return self.add(a, self.neg(b))


def softmax_safe(t: Builder, p: int, v: int) -> tuple[int, int]:
    e = t.exp(t.minus(p, t.max("j", p)))
    return t.ein("j", t.mul(e, t.inv(t.ein("j", e))), v), t.mul(t.ein("j", e, v), t.inv(t.ein("j", e)))


def lazy_softmax(t: Builder) -> tuple[int, int]:
    """(e / l) V = (e V) / l"""
    p, v = t.L("p", "ij"), t.L("v", "je")
    e = t.exp(p)
    return t.ein("j", t.mul(e, t.inv(t.ein("j", e))), v), t.mul(t.ein("j", e, v), t.inv(t.ein("j", e)))


def safe_lazy_softmax(t: Builder) -> tuple[int, int]:
    return softmax_safe(t, t.L("p", "ij"), t.L("v", "je"))


def softmax_made_safe(t: Builder) -> tuple[int, int]:
    """From the unsafe form; the maximum is known from elsewhere."""
    p, v = t.L("p", "ij"), t.L("v", "je")
    u = t.exp(p)
    return t.ein("j", t.mul(u, t.inv(t.ein("j", u))), v), softmax_safe(t, p, v)[1]


def scale_into_weights(t: Builder) -> tuple[int, int]:
    x, wq, k = t.L("x", "ic"), t.W("wq", "cd"), t.L("k", "jd")
    s = t.const(0.125)
    return t.mul(t.ein("d", t.ein("c", x, wq), k), s), t.ein("d", t.ein("c", x, t.mul(wq, s)), k)


def absorbed_keys(t: Builder) -> tuple[int, int]:
    """x (Wq Wk') x'"""
    x, wq, wk = t.L("x", "ic"), t.W("wq", "cd"), t.W("wk", "cd")
    xj = t.ren("i", "j", x)
    k = t.ren("i", "j", t.ein("c", x, wk))
    goal = t.ein(["c", "c'"], x, t.ren("c", "c'", xj), t.ein("d", wq, t.ren("c", "c'", wk)))
    return t.ein("d", t.ein("c", x, wq), k), goal


def values_after_output(t: Builder) -> tuple[int, int]:
    """P (x Wv) Wo = P (x (Wv Wo))"""
    p, x, wv, wo = t.L("p", "ij"), t.L("x", "jc"), t.W("wv", "ce"), t.W("wo", "eo")
    return t.ein("e", t.ein("j", p, t.ein("c", x, wv)), wo), t.ein("j", p, t.ein("c", x, t.ein("e", wv, wo)))


def rms_norm(t: Builder) -> tuple[int, int]:
    """gamma goes into the weights, rho out of the product"""
    x, g, w = t.L("x", "ic"), t.W("g", "c"), t.W("w", "co")
    rho = t.un("rsqrt", t.ein("c", x, x, t.const(0.25)))
    return t.ein("c", t.mul(x, rho, g), w), t.mul(rho, t.ein("c", x, t.mul(g, w)))


def layer_norm(t: Builder) -> tuple[int, int]:
    """centring becomes column sums of the weights"""
    x, w = t.L("x", "ic"), t.W("w", "co")
    mu = t.ein("c", x, t.const(0.25))
    return t.ein("c", t.minus(x, mu), w), t.add(t.ein("c", x, w), t.mul(t.const(-1.0), mu, t.ein("c", w)))


def low_rank(t: Builder) -> tuple[int, int]:
    """LoRA: x W + (x A) B = x (W + A B)"""
    x, w, a, b = t.L("x", "ic"), t.W("w", "co"), t.W("A", "cr"), t.W("B", "ro")
    return t.add(t.ein("c", x, w), t.ein("r", t.ein("c", x, a), b)), t.ein("c", x, t.add(w, t.ein("r", a, b)))


def norm_into_convolution(t: Builder) -> tuple[int, int]:
    y, w, s = t.L("y", "ncpq"), t.W("w", "ocab"), t.W("s", "o")
    image = t.row("win", ("p", "u", "a", 1, 1), (t.row("win", ("q", "v", "b", 1, 1), (y,)),))
    return t.mul(t.ein("cab", image, w), s), t.ein("cab", image, t.mul(w, s))


def pooling_and_channels(t: Builder) -> tuple[int, int]:
    """an average over windows and a product over channels change places"""
    y, w = t.L("y", "ncp"), t.W("w", "co")
    share = t.const(0.5)
    pooled = t.ein("a", t.row("win", ("p", "u", "a", 1, 1), (y,)), share)
    after = t.ein("a", share, t.row("win", ("p", "u", "a", 1, 1), (t.ein("c", y, w),)))
    return t.ein("c", pooled, w), after


def chain(t: Builder) -> tuple[int, int]:
    a, b, c, d = t.L("A", "ia"), t.L("B", "ab"), t.L("C", "bc"), t.L("D", "cd")
    return t.ein("c", t.ein("b", t.ein("a", a, b), c), d), t.ein("a", a, t.ein("b", b, t.ein("c", c, d)))


def linear_attention(t: Builder) -> tuple[int, int]:
    q, k, v = t.L("q", "id"), t.L("k", "jd"), t.L("v", "je")
    return t.ein("j", t.ein("d", q, k), v), t.ein("d", q, t.ein("j", k, v))


def split_maximum(t: Builder) -> tuple[int, int]:
    """flash: the sum of exps by blocks, each with its own maximum, corrected"""
    x, v = t.L("x", "qoi"), t.L("v", "oie")
    local = t.max("i", x)
    whole = t.max("o", local)
    start = t.ein("o", t.ein("i", t.exp(t.minus(x, whole)), v))
    return start, t.ein("o", t.exp(t.minus(local, whole)), t.ein("i", t.exp(t.minus(x, local)), v))


def three_products(t: Builder) -> tuple[int, int]:
    a, b, c, d = t.L("a", "ic"), t.L("b", "co"), t.L("c", "co"), t.L("d", "co")
    return t.add(*(t.ein("c", a, w) for w in (b, c, d))), t.ein("c", a, t.add(b, c, d))


TARGETS = (
    lazy_softmax,
    safe_lazy_softmax,
    softmax_made_safe,
    scale_into_weights,
    absorbed_keys,
    values_after_output,
    rms_norm,
    layer_norm,
    low_rank,
    norm_into_convolution,
    pooling_and_channels,
    chain,
    linear_attention,
    split_maximum,
    three_products,
)
SIZES = {"i": 3, "j": 3, "c": 4, "d": 2, "e": 3, "o": 2, "r": 2, "a": 2, "b": 2, "q": 4, "v": 3, "u": 3, "p": 5, "n": 2}


@pytest.mark.parametrize("target", TARGETS, ids=lambda f: f.__name__)
def test_derived(target):
    """Both forms end in one class; nothing in the e-graph is wrong."""
    t = Builder(dict(SIZES))
    start, goal = target(t)
    found = None
    for rules in (tuple(r for r in RULES if r not in FAMILIES["proofs"]), RULES):
        found = found or derivation(t, start, goal, rules)
    assert found is not None, "not derived"
    checked = audit(found)
    assert not checked.wrong and checked.left == 0 and checked.compared > 0


def derivation(t: Builder, start: int, goal: int, rules) -> Frozen | None:
    """An e-graph in which both rows are one class, after as few turns as it takes; None where there is none in the budget."""
    ENGINE.open(t.rows, t.sizes)
    for _ in range(5):
        run = saturate(ENGINE, rules, Budget(nodes=3000, rows=10**6, turns=1, seconds=20.0, matches=10**6))
        graph = ENGINE.freeze(t.rows, t.sizes)
        if graph.rows[start] == graph.rows[goal]:
            return graph
        if run.why != "turns":
            return None
    return None


def test_what_is_not_equal_is_not_derived():
    t = Builder(dict(SIZES))
    a, b, c = t.L("a", "ic"), t.L("b", "co"), t.L("c", "co")
    start, other = t.add(t.ein("c", a, b), t.ein("c", a, c)), t.ein("c", a, b, c)
    ENGINE.open(t.rows, t.sizes)
    saturate(ENGINE, RULES, Budget())
    graph = ENGINE.freeze(t.rows, t.sizes)
    assert graph.rows[start] != graph.rows[other]


def test_an_exp_that_a_rule_made_must_be_bounded():
    """The unsafe softmax may be rewritten into forms with other exps; only bounded ones have a price."""
    t = Builder(dict(SIZES))
    p, v = t.L("p", "ij"), t.L("v", "je")
    t.ein("j", t.exp(p), v)
    t.max("j", p)
    ENGINE.open(t.rows, t.sizes)
    saturate(ENGINE, RULES, Budget(matches=200))
    graph = ENGINE.freeze(t.rows, t.sizes)
    costs = Costs(graph, RATES)
    exps = [n for n in graph.nodes if (n.op, n.attrs) == ("un", ("exp",))]
    made = [n for n in exps if n.cls not in graph.exps]
    assert made and all((costs.of(n) >= FORBIDDEN) == (n.kids[0] not in graph.bounded) for n in made)
    assert all(costs.of(n) < FORBIDDEN for n in exps if n.cls in graph.exps)


# --- extraction -------------------------------------------------------------------------------------------


def random_problem(seed: int, classes: int = 7) -> Problem:
    """Operands of an e-node are classes of any number, so there are cycles; class 0 has an e-node without operands."""
    rng = random.Random(seed)
    members = {c: [] for c in range(classes)}
    for c in members:
        members[c].append((rng.randrange(20, 60), ENode(c, "leaf", (c,), ())))
        for k in range(rng.randrange(1, 4)):
            kids = tuple(sorted(rng.sample(range(classes), rng.randrange(1, 3))))
            members[c].append((rng.randrange(1, 12), ENode(c, "un", (k,), kids)))
    return Problem(members, (classes - 1,))


def cost_without_cycles(choice: dict[int, tuple[int, ENode]], roots) -> int:
    """The cost of what the roots need, each once; huge where something needs itself."""
    done: set[int] = set()

    def visit(c: int, above: tuple[int, ...]) -> int:
        if c in above:
            return 10**9
        if c in done:
            return 0
        cost, n = choice[c]
        total = cost + sum(visit(k, (*above, c)) for k in n.kids)
        done.add(c)
        return total

    return sum(visit(r, ()) for r in roots)


def brute_force(problem: Problem) -> int:
    """The least cost over all choices."""
    classes = sorted(problem.members)
    picks = itertools.product(*(problem.members[c] for c in classes))
    return min(cost_without_cycles(dict(zip(classes, pick)), problem.roots) for pick in picks)


@pytest.mark.parametrize("seed", range(12))
def test_extraction_is_exact(seed):
    problem = random_problem(seed)
    found = extract(problem, effort=5.0)
    assert found.how == "optimal" and found.cost == cost_of(problem, found.choice)
    assert found.cost <= 1.003 * brute_force(problem)
    assert cost_of(problem, greedy(problem)) >= found.cost


def test_a_root_that_cannot_be_made():
    with pytest.raises(ValueError, match="cannot be made"):
        extract(Problem({0: [(1, ENode(0, "un", ("exp",), (0,)))]}, (0,)))


def test_what_streams_costs_no_bytes():
    """The scores between two products are written and read, unless one pass keeps them."""
    t = Builder({**SIZES, "i": 500, "j": 400, "d": 4, "e": 4})
    q, k, v = t.L("q", "id"), t.L("k", "jd"), t.L("v", "je")
    s = t.ein("d", q, k)
    p = t.exp(s)
    y = t.ein("j", p, v)
    ENGINE.open(t.rows, t.sizes)
    graph = ENGINE.freeze(t.rows, t.sizes)
    apart, inside = Costs(graph, RATES), Costs(graph, RATES, frozenset(graph.rows[r] for r in (s, p)))
    costs = {n.cls: (apart.of(n), inside.of(n)) for n in graph.nodes}
    saved = sum(a - b for a, b in (costs[graph.rows[r]] for r in (s, y)))
    moved = RATES.time(2 * 500 * 400 * RATES.element / RATES.bandwidth)
    assert 0.7 * moved < saved <= moved
    assert costs[graph.rows[p]][0] == costs[graph.rows[p]][1]


# --- contraction orders -----------------------------------------------------------------------------------


def test_contraction_orders_are_those_of_exhaustive_search():
    rng = random.Random(1)
    for _ in range(20):
        sizes = Sizes({n: rng.choice([2, 8, 64, 512]) for n in "abcde"}, RATES)
        factors = tuple(Factor(frozenset(rng.sample("abcde", rng.choice([1, 2, 3]))), False, 1000) for _ in range(4))
        names = frozenset().union(*(f.names for f in factors))
        summed = frozenset(n for n in names if rng.random() < 0.6)
        best = min(sizes.along(path, factors, names - summed).cost for path in paths(4))
        assert sizes.contract(factors, summed).cost <= best


def paths(n: int):
    """All paths of pairs for n factors."""
    if n == 1:
        yield ()
        return
    for pair in itertools.combinations(range(n), 2):
        for rest in paths(n - 1):
            yield (pair, *rest)


def test_weights_are_joined_for_nothing():
    sizes = Sizes({"i": 4, "c": 64, "o": 64}, RATES)
    x = Factor(frozenset("ic"), False, 1024)
    w, s = Factor(frozenset("co"), True, 16384), Factor(frozenset("o"), True, 256)
    assert sizes.contract((x, w, s), frozenset("c")).cost == sizes.contract((x, w), frozenset("c")).cost + 1


def test_many_factors():
    sizes = Sizes({n: 8 for n in "abcdefghij"}, RATES)
    factors = tuple(Factor(frozenset(pair), False, 256) for pair in zip("abcdefghi", "bcdefghij"))
    found = sizes.contract(factors, frozenset("bcdefghi"))
    assert found.cost > 0


# --- merging ----------------------------------------------------------------------------------------------


def test_merged_products_are_equal():
    """Every part that merging adds has the value of the product it stands for."""
    t = Builder({"i": 3, "c": 4, "o": 2, "p": 3, "h": 2, "d": 2})
    x = t.L("x", "ic")
    for name, own in (("u", "o"), ("v", "p"), ("w", "hd")):
        t.ein("c", x, t.W(name, "c" + own))
    ENGINE.open(t.rows, t.sizes)
    graph = ENGINE.freeze(t.rows, t.sizes)
    before = len(graph.nodes)
    assert merge(graph) == 1
    assert sum(n.op == "cat" for n in graph.nodes) == 2 and sum(n.op == "part" for n in graph.nodes) == 4
    found = audit(graph)
    assert not found.wrong and found.left == 0 and found.compared >= 3 and len(graph.nodes) == before + 7


# --- budgets ----------------------------------------------------------------------------------------------


def endless(size: int = 64) -> Builder:
    """Sums of sums of products that distribute without end."""
    t = Builder({"a": size, "b": size})
    y = t.L("s", "ab")
    for k in range(12):
        y = t.ein("b" if k % 2 else "a", t.add(y, t.W(f"u{k}", "ab")), t.add(y, t.W(f"v{k}", "ab")), t.W(f"t{k}", "ab"))
    return t


def nested(depth: int, seed: int) -> Builder:
    """exp(y^2 + c) of y less its sum and a weight, again and again: each constant its own."""
    rng = random.Random(seed)
    t = Builder({"a": 2, "b": 3})
    y = t.L("x", "ab")
    for k in range(depth):
        c = t.const(rng.random())
        y = t.add(y, t.neg(t.ein("b", y)), t.mul(c, t.W(f"w{k}", "b")))
        y = t.exp(t.add(t.mul(y, y), c))
    return t


def test_windows_leave_nothing_to_later_ones():
    """egglog's `pop` does: after 43 of these, a sum of the next window was another. `freeze` raises then."""
    engine = Engine(RULES)
    for seed in range(43):
        t = nested(1, seed)
        engine.open(t.rows, t.sizes)
    t = nested(15, 99)
    engine.open(t.rows, t.sizes)
    assert len(engine.freeze(t.rows, t.sizes).given) == len(t.rows)


def test_a_text_that_was_lost_is_noticed():
    t = nested(2, 1)
    ENGINE.open(t.rows[:-1], t.sizes)
    ENGINE._run(f"(let $t{len(t.rows) - 1} (const 7.0)) (set (by_const 7.0) 0)")
    with pytest.raises(ValueError, match="does not hold the text"):
        ENGINE.freeze(t.rows, t.sizes)


@pytest.mark.parametrize(("nodes", "rows"), [(40, 10**6), (150, 10**6), (10**6, 500), (10**6, 3000)])
def test_sizes_stay_within_their_budgets(nodes, rows):
    """Whatever one step would add: it is taken back."""
    t = endless()
    ENGINE.open(t.rows, t.sizes)
    before = ENGINE.size()
    run = saturate(ENGINE, RULES, Budget(nodes=nodes, rows=rows, matches=10**6, turns=50))
    assert run.why == ("nodes" if nodes < rows else "rows")
    assert (run.nodes, run.rows) == ENGINE.size()
    assert before[0] <= run.nodes <= max(nodes, before[0]) and before[1] <= run.rows <= max(rows, before[1])
    assert len(ENGINE.freeze(t.rows, t.sizes).nodes) == run.nodes


def test_what_was_taken_back_leaves_the_e_graph_as_it_was_before():
    """The same e-nodes, class by class, as where the schedule ends after the steps that stayed."""
    t = endless(2)
    ENGINE.open(t.rows, t.sizes)
    full = saturate(ENGINE, RULES, Budget(nodes=10**6, rows=10**6, turns=2, matches=10**6))
    assert full.why == "turns" and len(full.steps) > 2
    ENGINE.open(t.rows, t.sizes)
    part = saturate(ENGINE, RULES, Budget(turns=2, matches=10**6, nodes=full.nodes - 1))
    assert part.why == "nodes" and 0 < len(part.steps) < len(full.steps) and part.steps == full.steps[: len(part.steps)]
    left = ENGINE.freeze(t.rows, t.sizes)
    ENGINE.again()
    for rule, _ in part.steps:
        ENGINE.apply(rule)
        ENGINE.settle()
    again = ENGINE.freeze(t.rows, t.sizes)
    assert (left.nodes, left.rows) == (again.nodes, again.rows)
    checked = audit(left)
    assert not checked.wrong and checked.left == 0


# --- the worker -------------------------------------------------------------------------------------------


def request(rows: int = 3, **changes):
    t = Builder({n: 64 for n in "abcdefgh"})
    y = t.L("x0", "ab")
    for k in range(rows):
        y = t.ein("bcdefg"[k], y, t.L(f"x{k + 1}", "bcdefgh"[k : k + 2]))
    return {**request_of(t, [y], JSON_RATES, NAMES, Budget()), **changes}


def test_the_worker_answers_as_the_engine_does():
    worker = Worker()
    try:
        answer, why = worker.ask(request(), 60.0)
        here = solve(ENGINE, request())
        assert why == "" and answer is not None
        assert (answer["rows"], answer["roots"]) == (
            [[a, [list(x) if isinstance(x, tuple) else x for x in b], c] for a, b, c in here["rows"]],
            here["roots"],
        )
    finally:
        worker.stop()


UNLIMITED = {"nodes": 10**9, "rows": 10**9, "seconds": 10**9, "turns": 50, "matches": 10**9, "rest": 0}


def rich_request():
    """One without limits of its own, about a window that has no end."""
    t = endless()
    return {**request_of(t, [len(t.rows) - 1], JSON_RATES, NAMES, Budget()), "budget": UNLIMITED}


def test_an_answer_that_takes_too_much_work_ends_the_process_and_the_next_request_starts_another():
    worker = Worker(processor=1.0)
    try:
        assert worker.start()
        answer, why = worker.ask(rich_request(), 60.0)
        assert answer is None and why == "time"
        assert worker.ask(request(), 60.0)[0] is not None
    finally:
        worker.stop()


def test_a_process_that_does_not_answer_is_ended():
    worker = Worker(processor=1000.0)
    try:
        assert worker.start()
        start = time.monotonic()
        answer, why = worker.ask(rich_request(), 1.0)
        assert answer is None and why == "time" and time.monotonic() - start < 10
    finally:
        worker.stop()


def test_memory_is_limited():
    worker = Worker(memory=700 << 20, processor=60.0)
    try:
        if not worker.start():
            pytest.skip("the solvers alone need more")
        answer, why = worker.ask(rich_request(), 60.0)
        assert answer is None and why == "memory"
    finally:
        worker.stop()


def test_a_process_comes_up_while_others_work():
    """`begin` does not wait; who asks then meets the same process."""
    worker = Worker()
    try:
        start = time.monotonic()
        worker.begin()
        begun = worker._process
        assert begun is not None and time.monotonic() - start < 1.0
        worker.begin()
        assert worker.ask(request(), 60.0)[0] is not None and worker._process is begun
    finally:
        worker.stop()


def test_a_fault_in_a_request_is_reported_and_survived():
    worker = Worker()
    try:
        answer, why = worker.ask({**request(), "roots": [99]}, 60.0)
        assert answer is None and "IndexError" in why
        assert worker.ask(request(), 60.0)[0] is not None
    finally:
        worker.stop()
