"""Dependent reductions as one kernel: results against float64, special values, odd sizes, and what the text and report say."""

from dataclasses import replace

import numpy as np
import pytest
from chains import entropy, maxsim, sampled, softmax, variance

import tcomp
import tcomp.numpy as xp
from tcomp.codegen.llvm.machines import machine_for
from tcomp.schedule.choice import parse_choice
from tcomp.schedule.lower import cascade, cascade_report
from tcomp.schedule.space import cascade_points

SIZES = (1, 7, 33, 200)


@pytest.fixture
def fused(monkeypatch):
    """Every cascade is one kernel, whether it pays or not; a call makes the choice another one."""
    monkeypatch.setattr(cascade_report, "why_apart", lambda p, machine: "")
    choose = cascade.choose_cascade

    def choice(**changes):
        monkeypatch.setattr(cascade, "choose_cascade", lambda p, machine: replace(choose(p, machine), **changes))

    return choice


def attention(q, k, v, n=xp):
    return n.matmul(softmax(n.matmul(q, n.permute_dims(k, (0, 2, 1))) * 0.3, n), v)


def logsumexp(x, n=xp):
    m = n.max(x, axis=-1)
    return n.log(n.sum(n.exp(x - m[:, None]), axis=-1)) + m


def cross_entropy(x, target, n=xp):
    hit = n.arange(x.shape[1])[None, :] == target[:, None]
    return logsumexp(x, n) - n.sum(n.where(hit, x, n.zeros_like(x)), axis=-1)


def third_moment(x, n=xp):
    d = x - n.mean(x, axis=-1, keepdims=True)
    return n.sum(d * d * d, axis=-1) / n.sqrt(variance(x, n))


def covariance(x, y, n=xp):
    return n.mean((x - n.mean(x, axis=-1, keepdims=True)) * (y - n.mean(y, axis=-1, keepdims=True)), axis=-1)


def layernorm_product(x, g, w, n=xp):
    d = x - n.mean(x, axis=-1, keepdims=True)
    return n.matmul(d / n.sqrt(n.mean(d * d, axis=-1, keepdims=True) + 1e-5) * g, w)


def rmsnorm_product(x, g, w, n=xp):
    return n.matmul(x / n.sqrt(n.mean(x * x, axis=-1, keepdims=True) + 1e-6) * g, w)


def cosine(x, y, n=xp):
    a, b = (n.sqrt(n.sum(z * z, axis=-1, keepdims=True)) for z in (x, y))
    return n.sum(x / a * (y / b), axis=-1)


def softmin_product(x, v, n=xp):
    e = n.exp(n.min(x, axis=-1, keepdims=True) - x)
    return n.matmul(e / n.sum(e, axis=-1, keepdims=True), v)


def farthest(h, w, n=xp):
    return n.argmin(n.matmul(h, w), axis=-1)


def rand(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def wide(*arrays):
    return [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]


def agrees(f, *arrays, tolerance=2e-5):
    """What `f` gives through the compiler is what it gives in float64, in one kernel; the report's rows are given back."""
    compiled = tcomp.jit(lambda *a: f(*a))
    got = compiled(*arrays)
    with np.errstate(all="ignore"):
        want = f(*wide(*arrays), n=np)
    np.testing.assert_allclose(np.asarray(got), want, rtol=tolerance, atol=tolerance)
    rows = compiled.lower(*arrays).compile().report()["cascades"]
    assert any(r["fused"] for r in rows) or 1 in arrays[1 if f is attention else 0].shape[1:], rows
    return rows


def lowered(f, *specs):
    """(report's cascades, text of TILE) of a function of these specs."""
    low = tcomp.jit(f).lower(*(tcomp.spec(s) for s in specs))
    return low.compile().report()["cascades"], low.text("tile")


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("m", [7, 33, 200])
def test_attention(fused, m, n):
    agrees(attention, rand(2, m, 16), rand(2, n, 16, seed=1), rand(2, n, 24, seed=2))


@pytest.mark.parametrize("parts", [2, 3, 5])
def test_a_split_axis_is_merged(fused, parts):
    fused(parts=parts, columns=32)
    agrees(attention, rand(2, 5, 16), rand(2, 200, 16, seed=1), rand(2, 200, 24, seed=2))
    agrees(logsumexp, rand(9, 300) * 20)
    agrees(variance, rand(9, 300) + 50)
    agrees(sampled, rand(5, 20), rand(20, 200, seed=1), rand(5, 200, seed=2))


@pytest.mark.parametrize("packing", ["panels", "block", "direct", "lanes"])
def test_ways_to_read_the_second_factor(fused, packing):
    fused(packing=packing, score=(4, 16), columns=64)
    agrees(attention, rand(2, 70, 16), rand(2, 200, 16, seed=1), rand(2, 200, 24, seed=2))


def test_doubles_and_many_heads(fused):
    def f(q, k, v, n=xp):
        return n.matmul(softmax(n.matmul(q, n.permute_dims(k, (0, 1, 3, 2))), n), v)

    q, k, v = (rand(2, 3, 100, 16, seed=s, dtype=np.float64) for s in range(3))
    agrees(f, q, k, v, tolerance=1e-12)
    agrees(f, rand(2, 3, 5, 256), rand(2, 3, 70, 256, seed=1), rand(2, 3, 70, 400, seed=2))


def test_shared_heads(fused):
    """Grouped queries: as many heads of queries as fit share one of keys and values."""

    def f(q, k, v, n=xp):
        k, v = (n.broadcast_to(x[:, :, None], (2, 2, 3, 70, 16)).reshape((2, 6, 70, 16)) for x in (k, v))
        return n.matmul(softmax(n.matmul(q, n.permute_dims(k, (0, 1, 3, 2))), n), v)

    agrees(f, rand(2, 6, 50, 16), rand(2, 2, 70, 16, seed=1), rand(2, 2, 70, 16, seed=2))


ROWS = (logsumexp, variance, third_moment, entropy)


@pytest.mark.parametrize("f", ROWS)
@pytest.mark.parametrize("n", SIZES)
def test_reductions_of_rows_in_one_pass(fused, f, n):
    fused(columns=64)
    agrees(f, rand(9, n) * 3, tolerance=1e-4)


def test_a_variance_far_from_zero_keeps_its_digits(fused):
    fused(columns=64)
    agrees(variance, rand(5, 4000) + 1e4, tolerance=1e-3)


def test_two_streams(fused):
    fused(columns=64)
    agrees(covariance, rand(9, 300), rand(9, 300, seed=1))
    agrees(cosine, rand(9, 300), rand(9, 300, seed=1))
    agrees(cross_entropy, rand(9, 300), np.arange(9).astype(np.int32) * 30)


@pytest.mark.parametrize("n", SIZES[1:])
def test_folded_into_the_next_product(fused, n):
    fused(columns=64)
    agrees(layernorm_product, rand(40, n), rand(n, seed=1), rand(n, 48, seed=2), tolerance=1e-4)
    agrees(rmsnorm_product, rand(40, n), rand(n, seed=1), rand(n, 48, seed=2), tolerance=1e-4)
    agrees(softmin_product, rand(40, n), rand(n, 20, seed=2))


@pytest.mark.parametrize("n", SIZES[1:])
def test_extremes_over_a_product(fused, n):
    fused(columns=64)
    agrees(maxsim, rand(8, 16), rand(5, n, 16, seed=1))
    agrees(sampled, rand(5, 20), rand(20, n, seed=1), rand(5, n, seed=2))
    agrees(farthest, rand(35, 20), rand(20, n, seed=1))


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_special_values(fused, value):
    fused(columns=64)
    x = rand(6, 200)
    x[1, 3], x[2, 190], x[3, :] = value, value, value
    agrees(logsumexp, x)
    agrees(variance, x)
    agrees(softmin_product, x, rand(200, 20))


def test_no_tensor_of_the_size_of_the_scores():
    rows, text = lowered(attention, "f32[2, 384, 32]", "f32[2, 384, 32]", "f32[2, 384, 32]")
    assert [r["fused"] for r in rows] == [True] and "384, 384" not in text
    assert rows[0]["stages"][1]["correction"] == "[[exp(neg(d0))]]"
    assert rows[0]["workspace"] < 384 * 384 * 4


def test_attention_of_any_length(fused):
    f = tcomp.jit(lambda q, k, v: attention(q, k, v), dynamic={"q": {1: "m"}, "k": {1: "n"}, "v": {1: "n"}})
    for m, n in ((1, 1), (7, 33), (200, 64), (33, 0), (0, 5)):
        q, k, v = rand(2, m, 16), rand(2, n, 16, seed=1), rand(2, n, 24, seed=2)
        want = np.zeros((2, m, 24)) if not n else attention(*wide(q, k, v), n=np)
        np.testing.assert_allclose(f(q, k, v), want, rtol=2e-5, atol=2e-5)


# --- masks --------------------------------------------------------------------------------------------


def masked(mask, fill=-np.inf):
    def f(q, k, v, n=xp):
        s = n.matmul(q, n.permute_dims(k, (0, 2, 1))) * 0.3
        i, j = n.arange(s.shape[1])[:, None], n.arange(s.shape[2])[None, :]
        return n.matmul(softmax(n.where(mask(i, j, n)[None], s, fill), n), v)

    return f


MASKS = {
    "causal": lambda i, j, n: i >= j,
    "strictly causal": lambda i, j, n: i > j,
    "causal, aligned at the end": lambda i, j, n: j - i <= 40,
    "sliding window": lambda i, j, n: (j <= i) & (i < j + 30),
    "both sides": lambda i, j, n: n.abs(i - j) < 20,
    "prefix": lambda i, j, n: j < 77,
    "block diagonal": lambda i, j, n: i // 32 == j // 32,
    "blocks and neighbours": lambda i, j, n: (j // 16 <= i // 16 + 1) & (j // 16 >= i // 16 - 1),
    "either": lambda i, j, n: (j < 5) | (i - j == 3),
    "not": lambda i, j, n: n.logical_not(j > i),
    "scattered": lambda i, j, n: (i * 7 + j * 3) % 5 == 0,
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("m, n", [(33, 33), (200, 200), (70, 200)])
def test_masks(fused, name, m, n):
    fused(rows=32, columns=64)
    agrees(masked(MASKS[name]), rand(2, m, 16), rand(2, n, 16, seed=1), rand(2, n, 24, seed=2))


@pytest.mark.parametrize("name", ["causal", "sliding window", "prefix", "blocks and neighbours"])
def test_masks_of_any_length(fused, name):
    fused(rows=32, columns=64)
    f = masked(MASKS[name])
    g = tcomp.jit(lambda q, k, v: f(q, k, v), dynamic={x: {1: "n"} for x in "qkv"})
    for n in (1, 33, 64, 200):
        q, k, v = rand(2, n, 16), rand(2, n, 16, seed=1), rand(2, n, 24, seed=2)
        np.testing.assert_allclose(g(q, k, v), f(*wide(q, k, v), n=np), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("dtype", [bool, np.float32])
def test_a_mask_made_beforehand_is_arithmetic(fused, dtype):
    fused(rows=32, columns=64)
    tril = np.tril(np.ones((200, 200), bool))
    mask = tril if dtype is bool else np.where(tril, 0, -np.inf).astype(np.float32)

    def f(q, k, v, n=xp):
        s = n.matmul(q, n.permute_dims(k, (0, 2, 1)))
        s = n.where(n.asarray(mask)[None], s, -np.inf) if dtype is bool else s + n.asarray(mask)[None]
        return n.matmul(softmax(s, n), v)

    agrees(f, rand(2, 200, 16), rand(2, 200, 16, seed=1), rand(2, 200, 24, seed=2))
    _, text = lowered(f, "f32[2, 200, 16]", "f32[2, 200, 16]", "f32[2, 200, 24]")
    assert "200, 200" not in text and text.count("= dot(") == 2, "no mask is read; one loop without a test, one with"


def test_causal_attention_skips_what_lies_right():
    _, text = lowered(masked(MASKS["causal"]), *["f32[2, 512, 32]"] * 3)
    first, second = (line for line in text.splitlines() if line.strip().startswith("for j"))
    assert "0..256*(bi // 256)" in first and "256*(bi // 256)..bi + 64" in second


def test_positions_that_became_constants_are_positions():
    """Counting up to a thousand is computed beforehand: what it is compared with is still arithmetic."""

    def f(q, k, v, n=xp):
        s = n.matmul(q, n.permute_dims(k, (0, 2, 1)))
        i = n.arange(s.shape[1], dtype=n.int32)
        return n.matmul(softmax(n.where((2 * i[:, None] + 1 >= 2 * i[None, :])[None], s, -np.inf), n), v)

    agrees(f, rand(2, 300, 16), rand(2, 300, 16, seed=1), rand(2, 300, 24, seed=2))
    _, text = lowered(f, *["f32[2, 512, 32]"] * 3)
    assert text.count("= dot(") == 2 and "i32[512]" not in text


def test_rows_without_columns_are_nan(fused):
    fused(rows=32, columns=64)
    f = masked(lambda i, j, n: j < i - 40)
    agrees(f, rand(2, 200, 16), rand(2, 200, 16, seed=1), rand(2, 200, 24, seed=2))
    f = masked(lambda i, j, n: (i * 7 + j * 3) % 5 * (i != 9) == 1)
    agrees(f, rand(2, 33, 16), rand(2, 33, 16, seed=1), rand(2, 33, 24, seed=2))


def test_rows_without_columns_may_be_asked_to_be_zero(fused):
    """As exported models write it: the NaN of a row that is masked altogether becomes 0."""
    fused(rows=32, columns=64)

    def f(q, k, v, n=xp):
        s = n.matmul(q, n.permute_dims(k, (0, 2, 1)))
        i, j = n.arange(200)[:, None], n.arange(200)[None, :]
        p = softmax(n.where((j < i - 40)[None], s, -np.inf), n)
        return n.matmul(n.where(n.isnan(p), 0.0, p), v)

    agrees(f, rand(2, 200, 16), rand(2, 200, 16, seed=1), rand(2, 200, 24, seed=2))


def test_additive_mask(fused):
    def f(q, k, v, bias, n=xp):
        return n.matmul(softmax(n.matmul(q, n.permute_dims(k, (0, 1, 3, 2))) + bias, n), v)

    bias = rand(1, 1, 40, 70)
    bias[0, 0, 3:, 50:] = -np.inf
    agrees(f, rand(2, 3, 40, 16), rand(2, 3, 70, 16, seed=1), rand(2, 3, 70, 24, seed=2), bias)


def normed_scores(q, k, g, v, n=xp):
    s = n.matmul(q, k)
    d = s - n.mean(s, axis=-1, keepdims=True)
    return n.matmul(d / n.sqrt(n.mean(d * d, axis=-1, keepdims=True) + 1e-2) * g, v)


def weighted_twice(q, k, v, n=xp):
    """Scores are read again after the tile that could lie over them."""
    s = n.matmul(q, k)
    e = n.exp(s - n.max(s, axis=-1, keepdims=True))
    return n.matmul(e, v), n.matmul(e * s, v), n.sum(e * n.abs(s), axis=-1)


@pytest.mark.parametrize("m, n", [(1, 7), (1, 300), (40, 300)])
def test_tiles_over_a_product_are_its_last_readers(fused, m, n):
    agrees(normed_scores, rand(m, 16), rand(16, n, seed=1), rand(n, seed=2), rand(n, 24, seed=3), tolerance=2e-4)
    q, k, v = rand(m, 16), rand(16, n, seed=1) * 0.3, rand(n, 24, seed=2)
    compiled = tcomp.jit(lambda q, k, v: weighted_twice(q, k, v))
    for got, want in zip(compiled(q, k, v), weighted_twice(*wide(q, k, v), n=np)):
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4)


# --- first factors that are products themselves -------------------------------------------------------


def field(p, f, plane, w1, w2, n=xp):
    """Products of one row of waves each, multiplied, through two layers."""
    waves = n.einsum("ndf,dfg->ndg", n.sin(n.einsum("nd,df->ndf", p, f)), plane)
    h = n.matmul(waves[:, 0, :] * waves[:, 1, :] * waves[:, 2, :], w1)
    return n.matmul(n.where(h > 0, h, 0.01 * h), w2)


def layers(x, a, b, c, n=xp):
    """Three small layers."""
    return n.matmul(n.maximum(n.matmul(n.tanh(n.matmul(n.exp(-x), a)), b), 0), c)


FIELD = [(3, 16), (3, 16, 16), (16, 64), (64, 4)]


@pytest.mark.parametrize("rows", [1, 3, 64, 1000])
def test_products_of_small_factors_are_computed_for_a_block(fused, rows):
    agrees(field, rand(rows, 3), *(rand(*s, seed=k) for k, s in enumerate(FIELD)), tolerance=2e-4)
    agrees(layers, rand(rows, 24), *(rand(*s, seed=k) for k, s in enumerate([(24, 40), (40, 48), (48, 20)])), tolerance=2e-4)


def test_layers_of_equal_width(fused):
    agrees(layers, rand(70, 16), *(rand(16, 16, seed=k) for k in range(3)), tolerance=2e-4)


def test_they_have_no_memory():
    compiled = tcomp.jit(field).lower(*(tcomp.spec(f"f32[{', '.join(map(str, s))}]") for s in [(65536, 3), *FIELD])).compile()
    report, text = compiled.report(), compiled.text("tile")
    assert len(report["launches"]) == 1 and report["bytes"]["arena"] == 0
    assert report["bytes"]["moved"] < 1.01 * 4 * (65536 * 7 + 3 * 16 + 3 * 256 + 16 * 64 + 64 * 4)
    assert text.count(" inner2 = dot(") == 1 and "65536, 3, 16" not in text


def test_products_of_any_number_of_rows(fused):
    f = tcomp.jit(lambda x, a, b, c: layers(x, a, b, c), dynamic={"x": {0: "n"}})
    weights = [rand(*s, seed=k) for k, s in enumerate([(24, 40), (40, 48), (48, 20)])]
    for n in (0, 1, 33, 300):
        x = rand(n, 24)
        np.testing.assert_allclose(f(x, *weights), layers(*wide(x, *weights), n=np), rtol=2e-4, atol=2e-4)


def test_a_large_factor_is_multiplied_before():
    rows, text = lowered(layers, "f32[20000, 300]", "f32[300, 200]", "f32[200, 48]", "f32[48, 20]")
    assert "inner0" not in text
    assert sorted(r.get("why", "") for r in rows) == ["", "a larger chain computes a part of it"]


# --- the space of choices -----------------------------------------------------------------------------


@pytest.mark.parametrize("m, n", [(33, 200), (1, 3000)])
def test_points_of_the_space_run_as_their_text_says(fused, monkeypatch, m, n):
    """Every so often a point, replayed from its text."""
    machine, problems = machine_for("cpu")[0], []
    choose = cascade.choose_cascade
    monkeypatch.setattr(cascade, "choose_cascade", lambda p, machine: problems.append(p) or choose(p, machine))
    q, k, v = rand(2, m, 16), rand(2, n, 16, seed=1), rand(2, n, 24, seed=2)
    tcomp.jit(attention).lower(q, k, v).compile()
    points = list(cascade_points(problems[0], machine))
    for point in points[:: max(1, len(points) // 12)]:
        replayed = parse_choice(point.text())
        monkeypatch.setattr(cascade, "choose_cascade", lambda p, machine, replayed=replayed: replayed)
        got = tcomp.jit(lambda q, k, v: attention(q, k, v))(q, k, v)
        np.testing.assert_allclose(got, attention(*wide(q, k, v), n=np), rtol=2e-5, atol=2e-5, err_msg=point.text())
