"""`layout`: transposes cancel between convolutions, never grow, and the meaning stays."""

import numpy as np
import pytest
from random_graphs import SIZES, M, N, check_same, module_of, random_module, random_program

from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.graph import broadcast, full, reshape, transpose
from tcomp.ir.module import Module
from tcomp.ir.node import Node
from tcomp.ir.ops import apply, constant, item, parameter
from tcomp.ir.region import canonical, deep_walk, region_parameter
from tcomp.passes.canonicalise import canonicalise
from tcomp.passes.decompose import decompose
from tcomp.passes.fold import fold
from tcomp.passes.layout import layout, transposed_bytes

LAST, FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


def moved(module: Module) -> list[Node]:
    """The transposes of what is not constant."""
    return [n for n in module.func.nodes() if n.op == "transpose" and n.operands[0].op != "constant"]


def laid_out(*results: Node) -> Module:
    before = module_of(*results)
    after = layout(fold(before))
    check_same(before, after, {"n": 2, "m": 3})
    assert transposed_bytes(after) <= transposed_bytes(canonicalise(fold(before)))
    return after


@pytest.mark.parametrize("seed", range(150))
def test_random_graphs_keep_their_meaning_and_move_no_more(seed: int):
    program = random_program(seed, steps=16, families="ppmmttrc")
    before = random_module(program)
    after = layout(before)
    assert transposed_bytes(after) <= transposed_bytes(canonicalise(before))
    assert layout(after).func.results == after.func.results
    for sizes in SIZES:
        check_same(before, after, sizes, program=program)


@pytest.mark.parametrize("seed", range(60))
def test_decomposed_graphs_stay_decomposed(seed: int):
    before = decompose(random_module(random_program(seed, steps=16, families="pmttrrcc")))
    for n in layout(before).func.nodes():
        if n.op == "reduce":
            last = n.operands[0].type.rank - 1
            assert n["axes"] == (last,) or last not in n["axes"]
        if n.op == "dot":
            assert (n["batch"], n["contract"]) in ((((), ()), ((1,), (0,))), (((0,), (0,)), ((2,), (1,))))
        assert n.op != "scan" or n["axis"] == n.type.rank - 1


# --- models in the order that their formats have ---------------------------------------------------


class Model:
    """Layers of a channels-first model over channels-last convolutions, as an importer writes them."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def weights(self, *shape: int) -> Node:
        return constant(self.rng.integers(-1, 2, shape).astype(np.float32))

    def conv(self, x: Node, out: int, window: int = 1, stride: int = 1) -> Node:
        low = (0, window // 2, window // 2, 0)
        last = transpose(x, LAST)
        if window > 1:
            last = apply("pad", last, full(0, dt.f32), low=low, high=low)
        w = transpose(self.weights(out, last.type.shape[3], window, window), (2, 3, 1, 0))
        y = transpose(apply("conv", last, w, strides=(stride, stride), dilations=(1, 1), groups=1), FIRST)
        return apply("add", y, broadcast(self.weights(out), y.type.shape, (1,)))

    def relu(self, x: Node) -> Node:
        return apply("max", x, full(0, dt.f32, x.type.shape))

    def pool(self, x: Node) -> Node:
        low = (0, 1, 1, 0)
        padded = apply("pad", transpose(x, LAST), full(-np.inf, dt.f32), low=low, high=low)
        near = apply("window", padded, axes=(1, 2), sizes=(3, 3), strides=(2, 2), dilations=(1, 1))
        return transpose(apply("reduce", near, monoid="max", axes=(4, 5)), FIRST)

    def mean(self, x: Node) -> Node:
        total = apply("reduce", x, monoid="add", axes=(2, 3))
        return apply("div", total, full(4, dt.f32, total.type.shape))

    def bottleneck(self, x: Node, out: int, stride: int) -> Node:
        y = self.relu(self.conv(x, out // 2))
        y = self.relu(self.conv(y, out // 2, 3, stride))
        shortcut = x if stride == 1 and x.type.shape[1] == out else self.conv(x, out, 1, stride)
        return self.relu(apply("add", self.conv(y, out), shortcut))

    def squeeze(self, x: Node) -> Node:
        n, c = x.type.shape[:2]
        gate = reshape(self.mean(x), (n, c, 1, 1))
        gate = apply("sign", self.conv(self.relu(self.conv(gate, 2)), c))
        return apply("mul", x, broadcast(gate, x.type.shape, (0, 1, 2, 3)))

    def upsample(self, x: Node) -> Node:
        n, c, h, w = x.type.shape
        return reshape(broadcast(x, (n, c, h, 2, w, 2), (0, 1, 2, 4)), (n, c, 2 * h, 2 * w))


def image(*shape: object) -> Node:
    return parameter("x", dt.f32, shape or (N, 3, 16, 16))


def test_a_residual_network_transposes_its_input_only():
    m = Model()
    y = m.pool(m.relu(m.conv(image(), 8, 3, 2)))
    for stride in (1, 1, 2, 1):
        y = m.bottleneck(y, 16, stride)
    y = apply("dot", m.mean(y), m.weights(5, 16), batch=((), ()), contract=((1,), (1,)))
    after = laid_out(y)
    assert [n.operands[0].op in ("parameter", "pad") for n in moved(after)] == [True]


def test_dense_connections():
    m = Model()
    y = m.conv(image(), 4, 3)
    for _ in range(3):
        y = apply("concat", y, m.relu(m.conv(y, 4, 3)), axis=1)
    parts = [m.conv(y, 4), m.conv(y, 4, 3), m.conv(m.pool(m.upsample(y)), 4)]
    after = laid_out(m.mean(apply("concat", *parts, axis=1)))
    assert len(moved(after)) == 1 and {n["axis"] for n in after.func.nodes() if n.op == "concat"} == {3}


def test_gates_and_upsampling():
    m = Model()
    y = m.squeeze(m.conv(image(), 8, 3))
    y = m.conv(apply("add", m.upsample(m.conv(y, 8, 1, 2)), y), 1)
    after = laid_out(y)
    assert len(moved(after)) == 1  # the one channel of the result needs none
    assert after.func.results[0].op == "reshape"


def test_a_result_in_the_order_of_its_format():
    m = Model()
    after = laid_out(m.relu(m.conv(image(), 8)))
    assert len(moved(after)) == 2 and after.func.results[0].op == "transpose"


def test_channel_shuffle():
    m = Model()
    y = m.conv(image(), 8)
    y = transpose(reshape(y, (N, 2, 4, 16, 16)), (0, 2, 1, 3, 4))
    y = m.conv(reshape(y, (N, 8, 16, 16)), 4)
    shuffled = [n for n in moved(laid_out(m.mean(y))) if n.type.rank == 5]
    assert [n["perm"] for n in shuffled] == [(0, 1, 2, 4, 3)]


def test_slices_gathers_and_scans_follow():
    y = transpose(image(2, 3, 4, 5), LAST)
    y = apply("slice", y, start=(0, 1, 0, 0), shape=(2, 3, 5, 3), step=(1, 1, 1, 1))
    y = apply("gather", y, constant(np.array([2, 0])), axis=1)
    y = apply("scan", y, monoid="add", axis=1, reverse=True, exclusive=False)
    assert moved(laid_out(transpose(y, FIRST))) == []


def test_axes_of_size_one_do_not_hold_transposes():
    y = reshape(transpose(image(2, 4, 1, 5), FIRST), (2, 5, 4))
    after = laid_out(apply("reduce", y, monoid="max", axes=(2,)))
    (reduce,) = [n for n in after.func.nodes() if n.op == "reduce"]
    assert moved(after) == [] and reduce["axes"] == (1,)


def test_products_absorb_orders():
    q, k = (transpose(parameter(name, dt.f32, (2, N, 3, 4)), (0, 2, 1, 3)) for name in "qk")
    scores = apply("dot", q, transpose(k, (0, 1, 3, 2)), batch=((0, 1), (0, 1)), contract=((3,), (2,)))
    after = laid_out(scores)
    assert moved(after) == []
    (dot,) = [n for n in after.func.nodes() if n.op == "dot"]
    assert (dot["batch"], dot["contract"]) == (((0, 2), (0, 2)), ((3,), (3,)))


def test_an_order_that_a_reshape_needs_stays():
    m = Model()
    y = reshape(m.conv(image(2, 3, 4, 4), 8), (2, 128))
    after = laid_out(y)
    assert [n["perm"] for n in moved(after)] == [LAST, FIRST]


def test_work_beside_a_flattened_value_is_done_in_its_order():
    m = Model()
    y = m.conv(image(2, 3, 4, 4), 8)
    gate = m.relu(apply("mul", y, broadcast(m.weights(8), y.type.shape, (1,))))
    after = laid_out(reshape(y, (2, 128)), reshape(gate, (2, 128)), m.conv(m.relu(y), 1))
    assert [n["perm"] for n in moved(after)] == [LAST, FIRST]


def test_branches_are_laid_out_too():
    m = Model()
    flag, x = parameter("flag", dt.bool_, ()), image(2, 3, 8, 8)
    p = region_parameter(0, x.type)
    then = canonical((p,), (m.mean(m.conv(m.relu(m.conv(p, 4, 3)), 4)),))
    orelse = canonical((p,), (m.mean(m.conv(p, 4)),))
    before = module_of(item(apply("cond", flag, x, then=then, orelse=orelse), 0))
    after = layout(fold(before))
    check_same(before, after, {"n": 2, "m": 3})
    inside = [n for n in deep_walk(after.func.results) if n.op == "transpose"]
    assert [n.operands[0].op for n in inside] == ["pad", "parameter"]  # each branch its input


def test_one_size_that_the_model_asserts_follows():
    y = transpose(image(2, 3, 4, N), LAST)
    before = module_of(transpose(reshape(y, (2, 4, M, 3)), FIRST))
    after = layout(before)
    check_same(before, after, {"n": 5, "m": 5})
    assert moved(after) == [] and after.func.results[0] is reshape(image(2, 3, 4, N), (2, 3, 4, M))


def test_two_sizes_that_may_regroup_do_not_follow():
    p, q = index.symbol("p"), index.symbol("q")
    turned = reshape(transpose(parameter("a", dt.f32, (N, M)), (1, 0)), (p, q))
    before = module_of(transpose(turned, (1, 0)), parameter("b", dt.f32, (p, q)))
    after = layout(before)
    check_same(before, after, {"n": 2, "m": 6, "p": 3, "q": 4})
    assert len(moved(after)) == 2


def test_transposed_constants_take_any_order():
    """A selection between constants by a transposed condition: moving the transpose turns the constants, not them it."""
    values = [constant(np.arange(24, dtype=np.int64).reshape(2, 3, 4) + k) for k in (0, 100)]
    chosen = parameter("c", dt.bool_, (3, 4, 2))
    after = laid_out(transpose(apply("where", transpose(chosen, (2, 0, 1)), *values), (1, 2, 0)))
    assert moved(after) == []


def test_bytes_never_grow_where_sinking_would_make_them():
    """Padding after the transpose would be transposed too: the program stays as it was."""
    y = transpose(image(2, 3, 4, 5), LAST)
    low = (0, 9, 9, 0)
    grown = apply("pad", y, full(0, dt.f32), low=low, high=low)
    after = laid_out(apply("add", grown, parameter("z", dt.f32, grown.type.shape)))
    assert [n.operands[0].op for n in moved(after)] == ["parameter"]
