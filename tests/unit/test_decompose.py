"""`decompose`: every operation comes out in the form that lowering takes, and means the same."""

import numpy as np
import pytest
from random_graphs import SIZES, N, check_same, module_of, random_module, random_program, results

from tcomp.errors import Error
from tcomp.ir import dtype as dt
from tcomp.ir.graph import broadcast, full, transpose
from tcomp.ir.module import Module
from tcomp.ir.node import Node
from tcomp.ir.ops import apply, constant, item, parameter
from tcomp.passes.contraction import FEW_GROUPS
from tcomp.passes.decompose import decompose

MATRIX = {(((), ()), ((1,), (0,))), (((0,), (0,)), ((2,), (1,)))}


def ops(module: Module) -> list[str]:
    return [n.op for n in module.func.nodes()]


def only(module: Module, op: str) -> Node:
    (found,) = [n for n in module.func.nodes() if n.op == op]
    return found


def is_canonical(n: Node) -> bool:
    match n.op:
        case "reduce":
            last = n.operands[0].type.rank - 1
            return n["axes"] == (last,) or (n["axes"] != () and last not in n["axes"])
        case "scan":
            return n["axis"] == n.type.rank - 1
        case "sort" | "top_k":
            return n["axis"] == n.operands[0].type.rank - 1
        case "dot":
            return (n["batch"], n["contract"]) in MATRIX and n.type.dtype in (dt.f32, dt.f64, dt.i32, dt.i64)
        case "conv":
            return n["groups"] == 1 or n.operands[1].type.shape[-2:] == (1, n["groups"])
    return n.op != "argreduce"


@pytest.mark.parametrize("seed", range(150))
def test_random_graphs_keep_their_meaning_and_become_canonical(seed: int):
    program = random_program(seed, families="pmrrcc")
    before = random_module(program)
    after = decompose(before)
    assert all(map(is_canonical, after.func.nodes()))
    for sizes in SIZES:
        check_same(before, after, sizes, program=program)


def x(*shape: object, dtype: dt.DType = dt.f32, name: str = "x") -> Node:
    return parameter(name, dtype, shape)


def decomposed(*results: Node) -> Module:
    before = module_of(*results)
    after = decompose(before)
    check_same(before, after, {"n": 3, "m": 2})
    return after


def test_trailing_axes_are_merged_and_known_units_vanish():
    after = decomposed(apply("reduce", x(N, 1, 2, 3), monoid="add", axes=(1, 2, 3)))
    assert only(after, "reduce").operands[0].type.shape == (N, 6)


def test_a_last_axis_of_one_element_is_not_what_vectors_run_along():
    after = decomposed(apply("reduce", x(N, 4, 5, 1), monoid="add", axes=(1, 2)))
    assert only(after, "reduce").operands[0].type.shape == (N, 20)


def test_mixed_axes_are_reduced_in_two_steps_rounded_once():
    after = decomposed(apply("reduce", x(2, 3, 4, dtype=dt.f16), monoid="add", axes=(0, 2)))
    reduces = [n for n in after.func.nodes() if n.op == "reduce"]
    assert [r["axes"] for r in reduces] == [(2,), (0,)] and all(r.type.dtype == dt.f32 for r in reduces)
    assert after.func.results[0].op == "cast"


def test_two_steps_of_16_bit_sums_do_not_round_between():
    before = module_of(apply("reduce", x(2, 2, 2, dtype=dt.f16), monoid="add", axes=(0, 2)))
    data = np.array([[[2048, 1], [0, 0]], [[1, 0], [0, 0]]], np.float16)
    assert results(decompose(before), data)[0][0] == results(before, data)[0][0] == 2050


def test_windows_are_reduced_beside_the_channels():
    near = apply("window", x(1, 8, 8, 16), axes=(1, 2), sizes=(3, 3), strides=(2, 2), dilations=(1, 1))
    r = only(decomposed(apply("reduce", near, monoid="max", axes=(4, 5))), "reduce")
    assert r["axes"] == (3, 4) and r.operands[0].type.shape == (1, 3, 3, 3, 3, 16)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("monoid", ["max", "min"])
def test_positions_of_extremes_see_ties_and_nan(monoid: str, last: bool):
    before = module_of(apply("argreduce", x(4, 5), monoid=monoid, axis=1, last=last, dtype=dt.i64))
    nan = np.nan
    rows = [[1, 3, 3, 1, 2], [0.0, -0.0, 0.0, -1, 1], [nan, 1, nan, 9, 0], [-np.inf, np.inf, -np.inf, np.inf, 0]]
    data = np.array(rows, np.float32)
    assert results(decompose(before), data)[0].tolist() == results(before, data)[0].tolist()


def test_sort_along_the_first_axis():
    many = apply("sort", x(3, 4), axis=0, descending=True)
    after = decomposed(item(many, 0), item(many, 1))
    assert only(after, "sort")["axis"] == 1 and ops(after).count("transpose") == 3


def test_linear_layer_needs_no_transpose_of_the_input():
    w = constant(np.ones((5, 4), np.float32))
    after = decomposed(apply("dot", x(2, N, 4), w, batch=((), ()), contract=((2,), (1,))))
    moved = [n for n in after.func.nodes() if n.op == "transpose"]
    assert [n.operands[0] for n in moved] == [w]
    assert only(after, "dot").operands[0].type.shape == (2 * N, 4)


def test_the_constant_operand_takes_the_transpose():
    w = constant(np.ones((3, 4, 5), np.float32))
    after = decomposed(apply("dot", x(2, 3, 4), w, batch=((), ()), contract=((2, 1), (1, 0))))
    assert all(n.operands[0].op == "constant" for n in after.func.nodes() if n.op == "transpose")


def test_a_batch_along_which_the_second_operand_repeats_joins_the_rows():
    shared = broadcast(x(4, 5, name="w"), (N, 4, 5), (1, 2))
    after = decomposed(apply("dot", x(N, 3, 4), shared, batch=((0,), (0,)), contract=((2,), (1,))))
    assert only(after, "dot").operands[0].type.shape == (3 * N, 4)


@pytest.mark.parametrize("dtype", [dt.bool_, dt.i8, dt.u16, dt.u32, dt.u64, dt.f16, dt.bf16, dt.f64], ids=str)
def test_products_of_other_dtypes(dtype: dt.DType):
    a, b = x(2, N, 3, dtype=dtype), x(2, 3, 4, dtype=dtype, name="y")
    after = decomposed(apply("dot", a, b, batch=((0,), (0,)), contract=((2,), (1,))))
    assert is_canonical(only(after, "dot")) and after.func.results[0].type.dtype == dtype


def test_sixteen_bit_products_round_once():
    before = module_of(
        apply("dot", x(1, 3, dtype=dt.f16), x(3, 1, dtype=dt.f16, name="y"), batch=((), ()), contract=((1,), (0,)))
    )
    a, b = np.array([[2048, 1, 1]], np.float16), np.ones((3, 1), np.float16)
    assert results(decompose(before), a, b)[0][0, 0] == 2050


def test_empty_and_unit_contractions_are_no_products():
    empty = decomposed(apply("dot", x(3, 0), x(0, 4, name="y"), batch=((), ()), contract=((1,), (0,))))
    assert "dot" not in ops(empty)
    outer = decomposed(apply("dot", x(2, 3), x(2, 4, name="y"), batch=((0,), (0,)), contract=((), ())))
    assert "dot" not in ops(outer) and "mul" in ops(outer)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("groups, per, each", [(1, 3, 2), (4, 1, 1), (4, 1, 3), (FEW_GROUPS, 2, 3), (FEW_GROUPS + 2, 2, 3)])
@pytest.mark.parametrize("dtype", [dt.f32, dt.bf16])
def test_convolutions(rank: int, groups: int, per: int, each: int, dtype: dt.DType):
    space, window = (6, 5, 4)[:rank], (3, 2, 1)[:rank]
    data, w = x(2, *space, groups * per, dtype=dtype), x(*window, per, groups * each, dtype=dtype, name="w")
    strides, dilations = (1, 2, 1)[:rank], (2, 1, 1)[:rank]
    after = decomposed(apply("conv", data, w, strides=strides, dilations=dilations, groups=groups))
    assert all(map(is_canonical, after.func.nodes()))
    if groups > 1 and per == 1 and each > 1:
        assert only(after, "reduce")["axes"] == tuple(range(rank + 1, 2 * rank + 1))


def test_a_convolution_of_one_window_is_a_product():
    w = x(2, 3, 4, 5, name="w")
    after = decomposed(apply("conv", x(N, 2, 3, 4), w, strides=(1, 1), dilations=(1, 1), groups=1))
    assert only(after, "dot").type.shape == (N, 5) and "conv" not in ops(after)


def test_squares_are_products():
    after = decomposed(apply("pow", x(3), full(2, dt.f32, (3,))), apply("pow", x(3), full(0.5, dt.f32, (3,))))
    assert ops(after).count("mul") == 1 and ops(after).count("pow") == 1


def test_places_follow():
    before = module_of(apply("reduce", transpose(x(2, 3, 4), (0, 2, 1)), monoid="add", axes=(0, 2)))
    place = before.func.locs.of(before.func.results[0])
    after = decompose(before).func
    assert place and all(set(place) <= set(after.locs.of(n)) for n in after.nodes() if n.op == "reduce")


def test_other_stages_are_refused():
    with pytest.raises(Error, match="TC0401"):
        decompose(Module("tile", "f"))
