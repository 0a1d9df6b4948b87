"""`fold`: constants are computed where that pays, and only there."""

import numpy as np
import pytest
from random_graphs import SIZES, N, check_same, module_of, random_module, random_program, results

from tcomp.errors import Error
from tcomp.ir import dtype as dt
from tcomp.ir.graph import broadcast, cast, full, reshape, transpose
from tcomp.ir.node import Node
from tcomp.ir.ops import apply, constant, item, parameter
from tcomp.passes.fold import LARGEST, SMALL, fold


def folded(*values: Node) -> tuple[Node, ...]:
    before = module_of(*values)
    after = fold(before)
    check_same(before, after, {"n": 2, "m": 3}, bitwise=True)
    return after.func.results


def one(value: Node) -> Node:
    return folded(value)[0]


def weights(*shape: int, dtype: type = np.float32) -> Node:
    return constant(np.arange(np.prod(shape), dtype=dtype).reshape(shape))


@pytest.mark.parametrize("seed", range(100))
def test_random_graphs_keep_their_meaning(seed: int):
    program = random_program(seed, families="ppmmtrc")
    before = random_module(program)
    after = fold(before)
    for sizes in SIZES:
        check_same(before, after, sizes, bitwise=True, program=program)


def test_moved_weights_are_constants():
    w = weights(2, 3, 4)
    for moved in (transpose(w, (2, 0, 1)), reshape(w, (6, 4)), cast(w, dt.f64), apply("neg", transpose(w, (1, 0, 2)))):
        assert one(moved).op == "constant"


def test_a_repeated_scalar_stays_repeated_but_is_known():
    ones = full(1, dt.f32, (4, 5))
    assert one(ones) is ones
    assert one(apply("add", weights(4, 5), ones)).op == "constant"
    assert one(apply("add", ones, ones)) is full(2, dt.f32, (4, 5))


def test_constants_of_equal_elements_are_one_repeated():
    assert one(constant(np.full((3, 4), 2.5, np.float32))) is full(2.5, dt.f32, (3, 4))
    mixed = constant(np.array([0.0, -0.0], np.float32))
    assert one(mixed) is mixed
    payloads = constant(np.array([0x7FC00000, 0x7FC00001, 0x7FC00000], np.uint32).view(np.float32))
    assert fold(module_of(payloads)).func.results[0] is payloads


def test_positions_stay_unless_something_is_made_of_them():
    line = apply("iota", shape=(6,), axis=0, dtype=dt.i32)
    assert one(line) is line
    assert one(apply("mul", line, line)).op == "constant"


def test_results_of_sort():
    many = apply("sort", constant(np.array([3, 1, 2], np.int32)), axis=0, descending=False)
    values, positions = folded(item(many, 0), item(many, 1))
    assert values["value"].array.tolist() == [1, 2, 3] and positions["value"].array.tolist() == [1, 2, 0]


def test_symbols_and_parameters_are_not_known():
    grown = broadcast(weights(3), (N, 3), (1,))
    assert one(apply("neg", grown)).op == "neg"
    assert one(apply("dimension", dim=N, dtype=dt.i64)).op == "dimension"
    assert one(apply("add", weights(3), parameter("x", dt.f32, (3,)))).op == "add"


def test_large_results_stay_operations():
    row = weights(SMALL // 4 + 1)
    wide = broadcast(row, (8, SMALL // 4 + 1), (1,))
    grown = apply("neg", wide)
    assert fold(module_of(grown)).func.results[0].op == "neg"
    assert one(apply("reduce", grown, monoid="max", axes=(1,))).type.shape == (8,)
    assert fold(module_of(apply("neg", full(1, dt.f32, (LARGEST // 4 + 1,))))).func.results[0].op == "neg"


def test_faults_are_left_for_the_call():
    before = module_of(apply("gather", weights(3), constant(np.array([0, 7])), axis=0))
    after = fold(before)
    assert after.func.results[0].op == "gather"
    with pytest.raises(Error, match="TC0604"):
        results(after)


def test_sixteen_bit_floats_are_equal_bit_for_bit():
    assert one(constant(np.full(3, 1.5, dt.to_numpy(dt.bf16)))) is full(1.5, dt.bf16, (3,))


def test_few_elements_repeated_often_are_not_computed_with():
    """What sums a broadcast would make an array of its size."""
    huge = broadcast(weights(4), (LARGEST, 4), (1,))
    total = apply("reduce", huge, monoid="add", axes=(0, 1))
    after = fold(module_of(total))
    assert after.func.results[0].op == "reduce"
    small = one(apply("reduce", broadcast(weights(4), (3, 4), (1,)), monoid="add", axes=(0, 1)))
    assert small.op == "constant"
