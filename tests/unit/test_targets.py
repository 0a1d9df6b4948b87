"""The forms that optimisers of tensor programs are asked for, each found from the text as written: what the GRAPH is afterwards.

Others are where their mechanism is tested: the lazy softmax, absorbed latent attention, LoRA, common factors, chains, Kronecker
products and tensor trains in `test_saturate.py`.
"""

import pytest
from random_graphs import module_of
from test_egraph import ENGINE, RATES, Builder
from test_saturate import MACHINE, agree, check, dot, ops, saturated, scaled, w, x

from tcomp.ir import dtype as dt
from tcomp.ir.graph import broadcast, full, reshape
from tcomp.ir.module import Module
from tcomp.ir.node import Node
from tcomp.ir.ops import apply
from tcomp.passes.canonicalise import canonicalise
from tcomp.passes.egraph.axes import Inexpressible
from tcomp.passes.egraph.cost import FORBIDDEN, Costs, Rates
from tcomp.passes.egraph.encode import encode
from tcomp.passes.egraph.extract import Problem, extract
from tcomp.passes.egraph.merge import merge
from tcomp.passes.egraph.schedule import Budget, saturate
from tcomp.passes.fold import fold
from tcomp.passes.rules.families import RULES
from tcomp.passes.saturate import rates_of

NODES = 1000


def along(v: Node, like: Node, axis: int) -> Node:
    return broadcast(v, like.type.shape, (axis,))


def total(v: Node) -> Node:
    return apply("reduce", v, monoid="add", axes=(1,))


def relu(v: Node) -> Node:
    return apply("max", v, full(0.0, v.type.dtype, v.type.shape))


def conv(image: Node, weights: Node, stride: int = 1) -> Node:
    return apply("conv", image, weights, strides=(stride, stride), dilations=(1, 1), groups=1)


def merged(*results: Node, params: tuple[Node, ...]) -> Module:
    """The folded program after saturation, which means the same and merges products."""
    before = module_of(*results, params=params)
    after = saturated(before)
    agree(before, after, tolerance=1e-4)
    assert after.algebra[0]["changed"] and after.algebra[0]["merges"] > 0
    return canonicalise(fold(after))


# --- attention and norms ----------------------------------------------------------------------------------


def test_the_scale_of_scores_goes_into_the_weights_of_the_queries():
    a = x("x", 64, 128)
    q, k = dot(a, w(1, 128, 64)), dot(a, w(2, 128, 64))
    s = scaled(dot(q, k, contract=((1,), (1,))), 0.125)
    after = check(s, most=2 * (2 * 64 * 128 * 64 + 64 * 64 * 64), params=(a,), worth=1.0)
    assert "mul" not in ops(after)


def test_weights_of_queries_and_keys_become_one_where_they_are_wide():
    """x (Wq Wk') x'"""
    n, c, d = 256, 32, 256
    a = x("x", n, c)
    s = dot(dot(a, w(1, c, d)), dot(a, w(2, c, d)), contract=((1,), (1,)))
    after = check(s, most=2 * n * c * c + 2 * n * n * c, params=(a,))
    assert ops(after).count("dot") == 2


def test_weights_of_values_and_output_become_one_where_they_are_wide():
    """P (x Wv) Wo = P (x (Wv Wo))"""
    n, c, d = 64, 64, 256
    p, a = x("p", n, n), x("x", n, c)
    after = check(dot(dot(p, dot(a, w(1, c, d))), w(2, d, c)), most=2 * (n * c * c + n * n * c), params=(p, a))
    assert ops(after).count("dot") == 2


def test_the_scales_of_an_rms_norm_leave_its_product():
    """Those of columns go into the weights, those of rows to the result."""
    n, c, o = 256, 64, 32
    a = x("x", n, c)
    rho = apply("rsqrt", apply("add", scaled(total(apply("mul", a, a)), 1 / c), full(1e-6, dt.f32, (n,))))
    y = apply("mul", apply("mul", a, along(rho, a, 0)), along(w(5, c), a, 1))
    after = check(dot(y, w(6, c, o)), most=2 * n * c * o + 2 * n * c + n * o, params=(a,), worth=1.0)
    (product,) = [m for m in after.func.nodes() if m.op == "dot"]
    assert [v.op for v in product.operands] == ["parameter", "constant"]


def test_centring_goes_into_the_weights():
    """(x - mean x) W = x (W - mean W): the column sums of W are known."""
    n, c, o = 256, 64, 32
    a = x("x", n, c)
    centred = apply("sub", a, along(scaled(total(a), 1 / c), a, 0))
    after = check(dot(centred, w(6, c, o)), most=2 * n * c * o, params=(a,), worth=1.0)
    assert ops(after) == ["parameter", "constant", "dot"]


def exps_and_their_sum(t: Builder, rates: Rates) -> dict[int, str]:
    """What extraction takes for exp(P) V and the row sums of exp(P): the operation of each class."""
    e = t.exp(t.L("p", "ij"))
    roots = t.ein("j", e, t.L("v", "je")), t.ein("j", e)
    graph = frozen(t)
    assert merge(graph) == 1
    return {cls: n.op for cls, (_, n) in chosen(graph, rates, [graph.rows[r] for r in roots]).items()}


def test_a_row_sum_is_a_column_of_ones_where_products_are_far_cheaper():
    """exp(P) [V | 1]: in the e-graph for all; chosen where units for products leave other arithmetic far behind."""
    sizes = {"i": 4096, "j": 4096, "e": 64}
    cheap, dear = rates_of(MACHINE, 4), RATES
    assert cheap.flops < cheap.pointwise and dear.flops > 10 * dear.pointwise
    assert [*exps_and_their_sum(Builder(sizes), dear).values()].count("part") == 2
    assert "part" not in exps_and_their_sum(Builder(sizes), cheap).values()


def test_a_row_sum_and_a_product_are_one_pass_and_not_one_product():
    n, c, o = 256, 64, 16
    a = x("x", n, c)
    before = module_of(dot(a, w(1, c, o)), total(a), params=(a,))
    assert saturated(before).func.results == before.func.results


def test_a_softmax_is_made_safe_where_unsafe_exps_are_not_allowed():
    """exp(p - max p) for exp(p): in the e-graph of the unsafe text; chosen where exps as written may not stay."""
    t = Builder({"i": 64, "j": 64, "e": 64})
    p = t.L("p", "ij")
    e = t.exp(p)
    root = t.ein("j", t.mul(e, t.inv(t.ein("j", e))), t.L("v", "je"))
    t.max("j", p)
    graph = frozen(t)
    given = {n.cls for n in graph.nodes if (n.op, n.attrs) == ("un", ("exp",)) and n.cls in graph.exps}
    taken = [cls for cls in chosen(graph, RATES, [graph.rows[root]]) if cls in given]
    assert taken
    graph.exps.clear()
    picked = [n for _, n in chosen(graph, RATES, [graph.rows[root]]).values()]
    exps = [n for n in picked if (n.op, n.attrs) == ("un", ("exp",))]
    assert exps and all(n.kids[0] in graph.bounded for n in exps)


def frozen(t: Builder):
    ENGINE.open(t.rows, t.sizes)
    saturate(ENGINE, RULES, Budget(nodes=NODES))
    return ENGINE.freeze(t.rows, t.sizes)


def chosen(graph, rates: Rates, roots):
    """The cost and e-node of each class that the best choice needs."""
    costs = Costs(graph, rates)
    members: dict[int, list] = {}
    for n in graph.nodes:
        cost = costs.of(n)
        if cost < FORBIDDEN:
            members.setdefault(n.cls, []).append((cost, n))
    choice = extract(Problem(members, tuple(roots)), 1.0).choice
    return {cls: (costs.of(n), n) for cls, n in choice.items()}


# --- parallel branches ------------------------------------------------------------------------------------


def test_convolutions_of_size_1_of_one_image_are_one_product():
    """Inception: three branches that begin with a product over channels, their relus after it."""
    image = x("image", 1, 6, 6, 64)
    after = merged(*(relu(conv(image, w(k, 1, 1, 64, o))) for k, o in ((1, 16), (2, 24), (3, 8))), params=(image,))
    (product,) = [n for n in after.func.nodes() if n.op == "dot"]
    assert product.type.shape == (6, 6, 48)


def test_convolutions_with_equal_windows_of_one_image_are_one():
    image = x("image", 1, 6, 6, 32)
    after = merged(*(relu(conv(image, w(k, 3, 3, 32, o))) for k, o in ((1, 8), (2, 8), (3, 4))), params=(image,))
    (one,) = [n for n in after.func.nodes() if n.op == "conv"]
    assert one.type.shape == (1, 4, 4, 20)


def test_convolutions_with_other_windows_stay_apart():
    """Strides of 1 and 2; windows of 3 and 2."""
    image = x("image", 1, 7, 7, 32)
    results = conv(image, w(1, 3, 3, 32, 4)), conv(image, w(2, 3, 3, 32, 4), 2), conv(image, w(3, 2, 2, 32, 4))
    before = module_of(*results, params=(image,))
    after = saturated(before)
    agree(before, after)
    assert ops(after).count("conv") == 3


def test_branches_of_a_resnext_block_are_merged_at_once():
    """Four branches 1x1, 3x3, 1x1 that are added: their first products are one, four ways."""
    image, out = x("image", 1, 8, 8, 64), None
    for k in range(4):
        y = relu(conv(image, w(k, 1, 1, 64, 4)))
        y = conv(relu(conv(y, w(10 + k, 3, 3, 4, 4))), w(20 + k, 1, 1, 4, 64))
        out = y if out is None else apply("add", out, y)
    after = merged(out, params=(image,))
    assert [n.type.shape for n in after.func.nodes() if n.op == "dot" and n.type.shape[-1] == 16] == [(8, 8, 16)]


def test_convolutions_of_one_image_that_are_added_are_one():
    """x * a + x * b = x * (a + b)"""
    image = x("image", 1, 8, 8, 16)
    y = apply("add", conv(image, w(1, 3, 3, 16, 16)), conv(image, w(2, 3, 3, 16, 16)))
    after = check(y, most=2 * 36 * 9 * 16 * 16, params=(image,))
    assert ops(after).count("conv") == 1


@pytest.mark.parametrize("where", ["image, after", "image, before", "result"])
def test_a_window_over_an_axis_that_is_divided_elsewhere_is_a_border(where):
    """The index of a part is not that of the axis."""
    image, weights = x("image", 1, 14, 14, 8), w(1, 3, 3, 8, 8)
    y = conv(image, weights)
    other = reshape(image, (2, 7, 14, 8)) if "image" in where else reshape(y, (2, 6, 12, 8))
    rest = [other, apply("exp", other)]
    order = [*rest, y] if "before" in where else [y, *rest]
    with pytest.raises(Inexpressible, match=r"axes|divided"):
        encode(order, [image, weights])
