"""`canonicalise`: the forms it gives, and that it keeps the meaning bit for bit."""

import time

import numpy as np
import pytest
from random_graphs import SIZES, M, N, check_same, module_of, random_module, random_program, results

from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.graph import broadcast, cast, full, reduce_keep, reshape, transpose
from tcomp.ir.module import Module
from tcomp.ir.node import Node
from tcomp.ir.ops import apply, constant, parameter
from tcomp.ir.types import TensorType
from tcomp.passes.canonicalise import canonicalise
from tcomp.passes.decompose import decompose


def x(*shape: index.Dim, dtype: dt.DType = dt.f32, name: str = "x") -> Node:
    return parameter(name, dtype, shape)


def canonical(*results: Node) -> tuple[Node, ...]:
    """The canonical results; the meaning is checked on the way."""
    before = module_of(*results)
    after = canonicalise(before)
    check_same(before, after, {"n": 3, "m": 2}, bitwise=True)
    return after.func.results


def one(result: Node) -> Node:
    return canonical(result)[0]


def ops(module: Module) -> list[str]:
    return [n.op for n in module.func.nodes()]


@pytest.mark.parametrize("seed", range(200))
def test_random_graphs_keep_their_meaning_and_stay_once_canonical(seed: int):
    program = random_program(seed, steps=16, families="ppppmmmmmrc")
    before = random_module(program)
    after = canonicalise(before)
    assert canonicalise(after).func.results == after.func.results
    for sizes in SIZES:
        check_same(before, after, sizes, bitwise=True, program=program)


@pytest.mark.parametrize("seed", range(60))
def test_decomposed_graphs_stay_decomposed(seed: int):
    program = random_program(seed, families="pmmrc")
    before = random_module(program)
    parts = decompose(canonicalise(before))
    after = canonicalise(parts)
    lasts = [(n["axes"], n.operands[0].type.rank - 1) for n in after.func.nodes() if n.op == "reduce"]
    assert all(axes == (last,) or last not in axes for axes, last in lasts)
    for sizes in SIZES:
        check_same(before, after, sizes, program=program)


# --- movements -------------------------------------------------------------------------------------


def test_transposes_compose_and_vanish():
    a = x(2, N, 4)
    assert one(transpose(transpose(a, (1, 2, 0)), (2, 0, 1))) is a
    assert one(transpose(transpose(a, (1, 2, 0)), (1, 0, 2))) is transpose(a, (2, 1, 0))
    assert one(transpose(x(2, 1, N), (1, 0, 2))).op == "reshape"


def test_a_transpose_is_of_what_is_repeated():
    out = one(transpose(broadcast(x(2, 3), (2, 4, 3), (0, 2)), (2, 1, 0)))
    assert out.op == "broadcast" and out.operands[0].op == "transpose" and out["axes"] == (0, 2)
    assert one(transpose(broadcast(x(2, 3), (2, 4, 3), (0, 2)), (1, 0, 2))).operands[0] is x(2, 3)


def test_units_move_past_a_transpose():
    out = one(transpose(reshape(x(2, N), (2, 1, N)), (2, 1, 0)))
    assert out.op == "reshape" and out.operands[0] is transpose(x(2, N), (1, 0))


def test_reshapes_compose_unless_the_model_asserts_them():
    a = x(N, 6)
    assert one(reshape(reshape(a, (N, 2, 3)), (2 * N, 3))) is reshape(a, (2 * N, 3))
    assert one(reshape(reshape(a, (6 * N,)), (N, 6))) is a
    asserted = reshape(reshape(a, (M, 6)), (6, M))
    assert canonicalise(module_of(asserted)).func.results[0] is asserted


def test_a_reshape_of_repeated_axes_repeats_along_others():
    out = one(reshape(broadcast(x(5), (2, 3, 5), (2,)), (6, 5)))
    assert out is broadcast(x(5), (6, 5), (1,))
    assert one(reshape(full(1, dt.f32, (N, 2)), (2 * N,))) is full(1, dt.f32, (2 * N,))


def test_broadcasts_compose_without_units():
    out = one(broadcast(broadcast(x(1, 3), (2, 3), (0, 1)), (4, 2, 3), (1, 2)))
    assert out.op == "broadcast" and out["axes"] == (2,) and out.operands[0] is reshape(x(1, 3), (3,))
    assert one(broadcast(x(3), (1, 3, 1), (1,))) is reshape(x(3), (1, 3, 1))


def test_slices_compose_and_reach_through():
    a, b = x(10), x(4, name="b")
    step = {"shape": (3,), "step": (2,)}
    inner = apply("slice", a, start=(9,), shape=(10,), step=(-1,))
    assert one(apply("slice", inner, start=(1,), **step)) is apply("slice", a, start=(8,), shape=(3,), step=(-2,))
    whole = apply("slice", a, start=(0,), shape=(10,), step=(1,))
    assert one(whole) is a
    joined = apply("concat", a, b, axis=0)
    assert one(apply("slice", joined, start=(10,), shape=(4,), step=(1,))) is b
    padded = apply("pad", b, full(0, dt.f32), low=(2,), high=(1,))
    assert one(apply("slice", padded, start=(2,), shape=(4,), step=(1,))) is b
    rows = broadcast(b, (4, 6), (0,))
    assert one(apply("slice", rows, start=(0, 2), shape=(4, 2), step=(1, 1))) is broadcast(b, (4, 2), (0,))


def test_pads_add_up():
    zero = full(0, dt.f32)
    twice = apply("pad", apply("pad", x(3), zero, low=(1,), high=(0,)), zero, low=(1,), high=(2,))
    assert one(twice) is apply("pad", x(3), zero, low=(2,), high=(2,))
    assert one(apply("pad", x(3), zero, low=(0,), high=(0,))) is x(3)
    other = apply("pad", apply("pad", x(3), full(-0.0, dt.f32), low=(1,), high=(0,)), zero, low=(1,), high=(2,))
    assert one(other) is other


def test_concatenated_slices_are_what_was_cut():
    a = x(6, 2)
    parts = [apply("slice", a, start=(b, 0), shape=(n, 2), step=(1, 1)) for b, n in ((0, 2), (2, 3), (5, 1))]
    assert one(apply("concat", *parts, axis=0)) is a
    assert one(apply("concat", *parts[1:], axis=0)).op == "slice"
    assert one(apply("concat", parts[0], parts[2], axis=0)).op == "concat"
    assert one(apply("concat", x(0, 2, name="e"), a, axis=0)) is a


# --- pointwise -------------------------------------------------------------------------------------

NOTHING = [("add", -0.0), ("sub", 0.0), ("mul", 1), ("div", 1), ("pow", 1), ("max", -np.inf), ("min", np.inf)]
SOMETHING = [("add", 0.0), ("sub", -0.0), ("mul", 0), ("mul", -1), ("max", np.inf), ("floordiv", 1)]


@pytest.mark.parametrize("op, value", NOTHING)
def test_what_changes_nothing_goes(op: str, value: float):
    a = x(N, 2)
    assert one(apply(op, a, full(value, dt.f32, (N, 2)))) is a


@pytest.mark.parametrize("op, value", SOMETHING)
def test_what_changes_some_float_stays(op: str, value: float):
    out = apply(op, x(N, 2), full(value, dt.f32, (N, 2)))
    assert one(out) is out


def test_integers_have_more_identities():
    a = x(4, dtype=dt.i32)
    zero, ones = full(0, dt.i32, (4,)), full(-1, dt.i32, (4,))
    for op, other in (("add", zero), ("or", zero), ("and", ones), ("xor", zero), ("shl", zero)):
        assert one(apply(op, a, other)) is a
    for out in (apply("mul", a, zero), apply("and", zero, a), apply("sub", a, a)):
        assert one(out) is zero
    assert one(apply("eq", a, a)) is full(True, dt.bool_, (4,))


def test_operations_on_themselves():
    a = x(3)
    assert one(apply("max", a, a)) is a
    assert one(apply("neg", apply("neg", a))) is a
    assert one(apply("floor", apply("floor", a))) is apply("floor", a)
    assert one(apply("lt", a, a)) is full(False, dt.bool_, (3,))
    for out in (apply("sub", a, a), apply("div", a, a), apply("eq", a, a)):
        assert one(out) is out


def test_selections_of_one_branch():
    a, b, c = x(3), x(3, name="b"), x(3, dtype=dt.bool_, name="c")
    assert one(apply("where", full(True, dt.bool_, (3,)), a, b)) is a
    assert one(apply("where", c, a, a)) is a
    assert one(apply("where", apply("not", c), a, b)) is apply("where", c, b, a)


CASTS = [("i8", "i32", "i8"), ("f16", "f32", "f64"), ("i32", "f64", "i32"), ("bool", "u8", "f32"), ("i64", "i32", "i16")]
LOSSY = [("f32", "f16", "f32"), ("i32", "f32", "i32"), ("f32", "i32", "f32"), ("i32", "bool", "i32"), ("i8", "u8", "i32")]


@pytest.mark.parametrize("first, middle, last", CASTS)
def test_lossless_casts_go(first: str, middle: str, last: str):
    a = x(4, dtype=dt.ALL[first])
    assert one(cast(cast(a, dt.ALL[middle]), dt.ALL[last])) is cast(a, dt.ALL[last])


@pytest.mark.parametrize("first, middle, last", LOSSY)
def test_lossy_casts_stay(first: str, middle: str, last: str):
    out = cast(cast(x(4, dtype=dt.ALL[first]), dt.ALL[middle]), dt.ALL[last])
    assert one(out) is out


def test_lossless_casts_give_the_same_bits():
    exact = [(a, b) for a in dt.ALL.values() for b in dt.ALL.values() if a != b]
    for a, b in exact:
        p = x(8, dtype=a)
        before = module_of(*(cast(cast(p, b), c) for c in dt.ALL.values()))
        data = np.array([0, 1, -1, 127, 255, -128, 300, 2**31], np.float64).astype(np.int64).astype(dt.to_numpy(a))
        for r, s in zip(results(before, data), results(canonicalise(before), data)):
            assert r.tobytes() == s.tobytes(), (a, b, r, s)


# --- where the work is done ------------------------------------------------------------------------


def test_what_is_repeated_is_computed_before():
    a, b = x(3), x(4, name="b")
    out = one(apply("add", broadcast(a, (2, 3, 4), (1,)), broadcast(b, (2, 3, 4), (2,))))
    assert out.op == "broadcast" and out.operands[0].type.shape == (3, 4)
    whole = apply("add", broadcast(a, (3, 4), (0,)), broadcast(b, (3, 4), (1,)))
    assert one(whole) is whole


def test_masks_of_positions_are_small():
    at = [apply("iota", shape=(2, N, N), axis=k, dtype=dt.i32) for k in (1, 2)]
    out = one(apply("ge", *at))
    assert out.op == "broadcast" and out.operands[0].type == TensorType(dt.bool_, (N, N))


def test_softmax_with_kept_axes_has_no_reshape():
    a = x(2, N, 8)
    keep = reshape(apply("reduce", a, monoid="max", axes=(2,)), (2, N, 1))
    out = one(apply("sub", a, broadcast(keep, (2, N, 8), (0, 1, 2))))
    assert out is apply("sub", a, reduce_keep(a, "max", (2,)))


def test_a_layer_norm_after_a_product_stays_in_its_shape():
    """[2, n, 4] @ [4, 8], bias, residual, softmax: one reshape, at the end."""
    w, bias = parameter("w", dt.f32, (4, 8)), parameter("bias", dt.f32, (8,))
    y = apply("dot", x(2, N, 4), w, batch=((), ()), contract=((2,), (0,)))
    y = apply("add", y, broadcast(bias, y.type.shape, (2,)))
    y = apply("add", y, apply("exp", x(2, N, 8, name="res")))
    y = apply("exp", apply("sub", y, reduce_keep(y, "max", (2,))))
    y = apply("div", y, reduce_keep(y, "add", (2,)))
    before = module_of(y)
    after = canonicalise(decompose(canonicalise(before)))
    check_same(before, after, {"n": 3, "m": 2})
    result = after.func.results[0]
    assert result.op == "reshape" and result.operands[0].type.shape == (2 * N, 8)
    assert all(n.type.shape in ((2 * N, 8), (2 * N,)) for n in after.func.nodes() if n.op in ("add", "sub", "div", "reduce"))
    assert ops(after).count("reshape") == 3  # two inputs and the result


def test_a_reshape_does_not_break_a_broadcast_of_inputs():
    """Channels of [n, c, h * w] repeat along one axis; merged with it they would need divisions."""
    image = reshape(x(N, 12), (N, 3, 4))
    out = apply("mul", image, broadcast(x(3, name="scale"), (N, 3, 4), (1,)))
    assert one(out) is out


def test_reductions_move_before_a_reshape_of_the_other_axes():
    out = one(apply("reduce", reshape(x(2, N, 8), (2 * N, 8)), monoid="add", axes=(1,)))
    assert out.op == "reshape" and out.operands[0].operands[0] is x(2, N, 8)
    merged = apply("reduce", reshape(x(N, 2, 8), (N, 16)), monoid="add", axes=(1,))
    assert one(merged) is merged


# --- the pass --------------------------------------------------------------------------------------


def test_places_unite():
    a = x(2, 3)
    before = module_of(apply("neg", transpose(transpose(apply("exp", a), (1, 0)), (1, 0))))
    after = canonicalise(before)
    kept = after.func.results[0].operands[0]
    assert {p.line for p in after.func.locs.of(kept)} == {2, 4}


def test_a_thousand_operations_take_less_than_a_third_of_a_second():
    y = x(8, N, 4)
    for k in range(100):
        w = parameter(f"w{k}", dt.f32, (4, 4))
        z = apply("dot", y, w, batch=((), ()), contract=((2,), (0,)))
        z = reshape(transpose(reshape(z, (8, N, 2, 2)), (0, 2, 1, 3)), (8, 2 * N, 2))
        z = reshape(apply("mul", z, full(0.5, dt.f32, z.type.shape)), (8, N, 4))
        y = apply("add", apply("sub", z, reduce_keep(z, "max", (2,))), y)
    module = module_of(y)
    assert len(module.func.nodes()) > 1000
    start = time.process_time()
    canonicalise(module)
    assert time.process_time() - start < 0.3


def test_deep_programs():
    y = x(4)
    for k in range(5000):
        y = apply("neg" if k % 3 else "exp", reshape(y, (2, 2) if k % 2 else (4,)))
    assert "reshape" not in ops(canonicalise(module_of(y)))[1:-1]


def test_constants_of_one_element_are_scalars():
    out = one(apply("mul", x(2, 2), broadcast(constant(np.full((1, 1), 3, np.float32)), (2, 2), (0, 1))))
    assert out is apply("mul", x(2, 2), full(3, dt.f32, (2, 2)))


def test_a_sum_of_one_element_starts_from_zero():
    before = module_of(apply("reduce", x(1, 2), monoid="add", axes=(0,)), apply("reduce", x(1, 2), monoid="max", axes=(0,)))
    after = canonicalise(before)
    data = np.array([[-0.0, 1.0]], np.float32)
    for passed in (after, decompose(before)):
        total, top = results(passed, data)
        assert "reduce" not in ops(passed) and np.signbit(total).tolist() == [False, False] and np.signbit(top[0])


def test_what_repeats_along_merged_columns_keeps_its_shape():
    """Work on [n, 4, 8] that varies along both axes does not move to [2n, 16], where it would need a quotient for each lane."""
    y = apply("dot", x(2 * N, 3), parameter("w", dt.f32, (3, 16)), batch=((), ()), contract=((1,), (0,)))
    cube = reshape(y, (N, 4, 8))
    out = one(apply("mul", cube, broadcast(x(4, name="scale"), (N, 4, 8), (1,))))
    assert out.op == "mul" and out.type.shape == (N, 4, 8)
    rows = reshape(y, (2, N, 16))
    out = one(apply("mul", rows, broadcast(x(2, name="scale"), (2, N, 16), (0,))))
    assert out.op == "reshape" and out.operands[0].type.shape == (2 * N, 16)
