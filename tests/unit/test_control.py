"""cond and loop: types, meaning, text, and that passes go through regions."""

import numpy as np
import pytest

from tcomp.checking import check_meaning, check_text
from tcomp.errors import Error
from tcomp.ir import dtype as dt
from tcomp.ir import index as ix
from tcomp.ir.graph import Func, full, reshape
from tcomp.ir.interp import graph
from tcomp.ir.interp.tile import run_main
from tcomp.ir.module import Module
from tcomp.ir.ops import apply, constant, item, parameter
from tcomp.ir.region import Region, deep_walk, region_parameter, sunk
from tcomp.ir.types import TensorType
from tcomp.ir.verify import verify
from tcomp.passes.canonicalise import canonicalise
from tcomp.passes.decompose import decompose
from tcomp.passes.fold import fold
from tcomp.passes.layout import layout
from tcomp.testing.control import N, control_flow, inputs_of

X = parameter("x", dt.f32, (3,))
P0, P1 = region_parameter(0, X.type), region_parameter(1, X.type)
FLAG = region_parameter(0, TensorType(dt.bool_, ()))
STEP, SIZE = ix.symbol("step"), ix.symbol("size")
COUNT, X2 = parameter("count", dt.i64, ()), parameter("x2", dt.f32, (2, 3))
HEIGHT, ROWS = region_parameter(0, COUNT.type), region_parameter(1, TensorType(dt.f32, (SIZE, 3)))


def counted(extent, body: Region, *operands, carried=1, conditional=False, **more):
    return apply("loop", *operands, body=body, carried=carried, extent=extent, counter=STEP, conditional=conditional, **more)


DOUBLE = Region((P0,), (apply("add", P0, P0), P0))


def func(*results) -> Func:
    params = {n: None for n in deep_walk(results) if n.op == "parameter" and not n["name"].startswith("p")}
    return Func("f", tuple(params), results, tuple(f"r{k}" for k in range(len(results))))


@pytest.mark.parametrize("extent", [0, 1, 4])
def test_a_counted_loop_carries_and_collects(extent):
    loop = counted(extent, DOUBLE, X)
    x = np.array([1, 2, 3], np.float32)
    last, line = graph.run(func(item(loop, 0), item(loop, 1)), [x])
    np.testing.assert_array_equal(last, x * 2**extent)
    np.testing.assert_array_equal(line, np.array([x * 2**t for t in range(extent)], np.float32).reshape(extent, 3))


def test_a_conditional_loop_ends_with_its_condition_or_its_extent():
    small = apply("lt", apply("reduce", P1, monoid="add", axes=(0,)), full(100.0, dt.f32))
    body = Region((FLAG, P1), (small, apply("add", P1, P1)))
    start = parameter("go", dt.bool_, ())
    for extent, times in ((None, 7), (3, 3)):
        loop = counted(extent, body, start, X, carried=2, conditional=True)
        f = Func("f", (start, X), (item(loop, 1),), ("y",))
        x = np.array([1, 1, 1], np.float32)
        assert graph.run(f, [np.array(True), x])[0][0] == 2**times
        assert graph.run(f, [np.array(False), x])[0][0] == 1


def test_only_the_branch_taken_is_run():
    table, at = parameter("table", dt.f32, (2,)), parameter("at", dt.i64, ())
    q0, q1 = region_parameter(0, table.type), region_parameter(1, at.type)
    read = Region((q0, q1), (apply("gather", q0, q1, axis=0),))
    other = Region((q0, q1), (full(-1.0, dt.f32),))
    inside = apply("lt", at, constant(np.int64(2)))
    f = Func("f", (table, at), (item(apply("cond", inside, table, at, then=read, orelse=other), 0),), ("y",))
    values = np.array([5, 6], np.float32)
    assert graph.run(f, [values, np.array(1)])[0] == 6
    assert graph.run(f, [values, np.array(9)])[0] == -1


REFUSED = {
    "equal types": lambda: apply("cond", parameter("p", dt.bool_, ()), X, then=Region((P0,), (P0,)), orelse=Region((P0,), ())),
    "bool": lambda: apply("cond", X, then=Region((), ()), orelse=Region((), ())),
    "what its region takes": lambda: counted(3, DOUBLE, parameter("y", dt.f64, (3,))),
    "what it carries": lambda: counted(3, Region((P0,), (apply("cast", P0, dtype=dt.f64),)), X),
    "one for each that it carries": lambda: counted(
        3, Region((HEIGHT, ROWS), (HEIGHT, ROWS, HEIGHT), (SIZE,)), COUNT, X2, carried=2
    ),
    "of another type": lambda: counted(3, Region((FLAG,), (FLAG, FLAG), (SIZE,)), parameter("p", dt.bool_, ()), gives=(STEP,)),
    "values of one size in all turns": lambda: counted(
        3, Region((HEIGHT, ROWS), (HEIGHT, ROWS, ROWS, HEIGHT), (SIZE,)), COUNT, X2, carried=2, gives=(STEP,)
    ),
    "equal types, but for 0 dimensions": lambda: apply(
        "cond", parameter("p", dt.bool_, ()), X, then=Region((P0,), (P0,)), orelse=Region((P0,), (reshape(P0, (3, 1)),))
    ),
    "their values as the last results": lambda: apply(
        "cond", FLAG, X, then=Region((P0,), (P0,)), orelse=Region((P0,), (full(0.0, dt.f32, (2,)),)), gives=(STEP,)
    ),
    "an extent, or a condition": lambda: counted(None, DOUBLE, X),
    "a greatest number of steps": lambda: counted(
        None, Region((FLAG, P1), (FLAG, P1, P1)), parameter("p", dt.bool_, ()), X, carried=2, conditional=True
    ),
}


@pytest.mark.parametrize("expected", REFUSED)
def test_types_that_do_not_fit_are_refused(expected):
    with pytest.raises(Error, match=expected):
        REFUSED[expected]()


def test_what_is_known_sinks_into_regions():
    seven, y = full(7.0, dt.f32, (3,)), parameter("y", dt.f32, (3,))
    q = [region_parameter(k, X.type) for k in range(4)]
    body = Region(tuple(q), (apply("add", apply("mul", q[0], q[1]), q[2]),))
    loop = sunk(counted(2, body, X, seven, y, y))  # the last capture is not used
    assert loop.operands == (X, y)
    assert loop["body"].params == (P0, P1)
    assert any(n.op == "constant" for n in loop["body"].nodes())
    x = np.ones(3, np.float32)
    assert graph.run(Func("f", (X, y), (item(loop, 0),), ("z",)), [x, x])[0][0] == 57


def test_decided_control_flow_goes():
    y = parameter("y", dt.f32, (3,))
    then, orelse = Region((P0, P1), (apply("add", P0, P1),)), Region((P0, P1), (apply("mul", P0, P1),))
    picked = [item(apply("cond", constant(np.bool_(flag)), X, y, then=then, orelse=orelse), 0) for flag in (True, False)]
    loop = counted(0, DOUBLE, picked[0])
    module = Module("graph", "f", Func("f", (X, y), (picked[1], item(loop, 0), item(loop, 1)), ("a", "b", "c")))
    after = canonicalise(module)
    check_meaning("canonicalise", module, after)
    assert not any(n.op in ("cond", "loop") for n in after.func.nodes())


@pytest.mark.parametrize("seed", range(20))
def test_passes_keep_the_meaning_of_random_programs(seed):
    module = Module("graph", "random", control_flow(seed))
    verify(module)
    check_text("random", module)
    for change in (fold, canonicalise, layout, decompose):
        after = change(module)
        verify(after)
        check_text(change.__name__, after)
        check_meaning(change.__name__, module, after)
        module = after


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("threshold", [-1, 1 << 60], ids=["shared", "alone"])
def test_lowering_keeps_the_meaning_of_random_programs(monkeypatch, seed, threshold):
    from tcomp.driver import PASSES
    from tcomp.schedule.lower import body

    monkeypatch.setattr(body, "ALONE", threshold)
    module = Module("graph", "random", control_flow(seed))
    inputs = inputs_of(seed, 3)
    expected = graph.run(module.func, inputs)
    for name in ("decompose", "canonicalise", "lower", "memory_plan"):
        module = PASSES[name](module)
        verify(module)
        check_text(name, module)
        if module.stage == "tile":
            for order in range(3):
                for got, want in zip(run_main(module, inputs, order), expected):
                    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_a_size_that_control_flow_gives_has_to_be_bound():
    from dataclasses import replace

    seed = next(k for k in range(99) if control_flow(k).sizes)
    func_ = control_flow(seed)
    bare = replace(func_, results=func_.visible, result_names=func_.result_names[:3], sizes=())
    with pytest.raises(Error, match="a size that is none of its function or region"):
        verify(Module("graph", "f", bare))


def test_a_region_that_is_not_closed_is_a_fault():
    loop = counted(2, Region((P0,), (apply("add", P0, X),)), X)
    with pytest.raises(Error, match="the parameter `x` is not declared"):
        verify(Module("graph", "f", func(item(loop, 0))))


def test_an_order_that_forgets_the_turn_before_is_a_fault():
    from dataclasses import replace

    from tcomp.driver import PASSES
    from tcomp.ir.stmts import Launch, Repeat, flat, with_bodies
    from tcomp.schedule.lower import body

    before = body.ALONE
    body.ALONE = -1
    try:
        table = parameter("rows", dt.f32, (N, 3))
        t = ix.symbol("step")
        q = region_parameter(1, table.type)
        row = apply("slice", q, start=(t, 0), shape=(1, 3), step=(1, 1))
        total = apply("reduce", apply("concat", apply("reshape", P0, shape=(1, 3)), row, axis=0), monoid="add", axes=(0,))
        region = Region((P0, q), (apply("tanh", total),))
        loop = apply("loop", X, table, body=region, carried=1, extent=N, counter=t, conditional=False)
        module = Module("graph", "f", Func("f", (X, table), (item(loop, 0),), ("y",)))
        for name in ("decompose", "canonicalise", "lower", "memory_plan"):
            module = PASSES[name](module)
    finally:
        body.ALONE = before
    verify(module)
    (loop_,) = (s for s in module.main.body if isinstance(s, Repeat))
    numbers = [s.number for s in flat(loop_.body) if isinstance(s, Launch)]
    backwards = [s for s in loop_.body if isinstance(s, Launch) and any(k in numbers and k >= s.number for k in s.after)]
    assert backwards
    forgetful = tuple(replace(s, after=()) if s is backwards[0] else s for s in loop_.body)
    changed = tuple(with_bodies(s, [forgetful]) if s is loop_ else s for s in module.main.body)
    with pytest.raises(Error, match="does not wait for launch"):
        verify(replace(module, main=replace(module.main, body=changed)))
