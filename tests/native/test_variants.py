"""Programs with variants: sizes that meet in a broadcast may turn out equal or 1; one artifact, every size right, nothing
compiled after the first call."""

import threading

import numpy as np
import pytest

import tcomp
from tcomp import trace, variants
from tcomp.driver import stages_of
from tcomp.errors import Error

SIZES = [(3, 3), (1, 5), (7, 1), (1, 1), (0, 0), (0, 1), (1, 0), (65, 65), (64, 1), (300, 300)]


def centred(x, y):
    s = x + y
    return s - s.mean(axis=0, keepdims=True), x.sum() * y


def arrays(n, m, columns=5):
    rng = np.random.default_rng(n * 100 + m)
    return rng.standard_normal((n, columns), np.float32), rng.standard_normal((m, columns), np.float32)


def expected(x, y):
    s = x + y
    return s - (s.mean(0, keepdims=True) if len(s) else s), x.sum() * y


def check(program, n, m):
    x, y = arrays(n, m)
    for got, want in zip(program(x, y), expected(x, y), strict=True):
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


@pytest.fixture(scope="module")
def exe():
    return tcomp.compile(centred, tcomp.spec("f32[n, 5]"), tcomp.spec("f32[m, 5]"), use_cache=False)


@pytest.mark.parametrize("n,m", SIZES)
def test_every_size_is_right(exe, n, m):
    check(exe, n, m)
    x, y = arrays(n, m)
    for got, want in zip(exe(np.asfortranarray(x), y[::1]), exe(x, y), strict=True):  # by the slow path
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("n,m", [(3, 5), (0, 5), (5, 0), (2, 4)])
def test_sizes_that_do_not_broadcast_are_refused(exe, n, m):
    with pytest.raises(Error, match=r"(?s)TC0605.*a broadcast.*test_variants.py"):
        exe(*arrays(n, m))
    with pytest.raises(Error, match=r"(?s)TC0601.*\(m, 5\)"):
        exe(arrays(3, 3)[0], np.zeros((3, 4), np.float32))


def test_the_inputs_are_those_of_all_variants(exe):
    assert [p.shape for p in exe.inputs] == [("n", 5), ("m", 5)]
    assert len(exe.artifact.variants) == 2 and [p.shape for p in exe.artifact.inputs] == [("n", 5), ("n", 5)]


def test_equal_sizes_run_what_is_compiled_for_them(exe):
    """The first variant is the program as it would be with one symbol."""
    alone = tcomp.compile(centred, tcomp.spec("f32[n, 5]"), tcomp.spec("f32[n, 5]"), use_cache=False)
    assert exe.text("tile") == alone.text("tile") and "(1 <" not in exe.text("tile")
    assert "(1 < m)" in exe.artifact.widest.texts["tile"]


def test_the_report_says_what_became_of_dimensions(exe):
    report = exe.report()
    assert [row[:2] for row in report["dimensions"]] == [["n", "symbolic"], ["m", "symbolic"], ["m", "n"]]
    assert "broadcast" in report["dimensions"][2][2] and "test_variants.py" in report["dimensions"][2][3]
    assert [row[1] for row in report["variants"]] == ["m = n", "all other sizes"]


def test_any_variant_shows_its_text(exe):
    assert exe.text("graph", 0) == exe.text("graph") and "stretch" not in exe.text("graph")
    assert "stretch" in exe.text("graph", 1) and "define" in exe.text("llvm", 1)
    with pytest.raises(Error, match=r"TC0105.*variant 2"):
        exe.text("graph", 2)


def test_every_variant_is_dumped(tmp_path, monkeypatch):
    monkeypatch.setenv("TCOMP_DUMP", str(tmp_path))
    tcomp.compile(lambda x, y: x + y, tcomp.spec("f32[n=1..64]"), tcomp.spec("f32[m]"), use_cache=False)
    names = {p.name.partition("00-graph")[0] for p in tmp_path.glob("*00-graph.tc")}
    assert names == {"", "other0-", "n1-", "nfew-"}


def test_a_general_program_that_cannot_be_compiled_is_left_out(monkeypatch):
    """The program then is one for equal sizes, and says so."""

    def refusing(func, options, variant=""):
        if variant:
            raise Error("TC0501", "a stretch", place="somewhere")
        return stages_of(func, options)

    monkeypatch.setattr(variants, "stages_of", refusing)
    exe = tcomp.compile(centred, tcomp.spec("f32[n, 5]"), tcomp.spec("f32[m, 5]"), use_cache=False)
    check(exe, 4, 4)
    with pytest.raises(Error, match="TC0601"):
        exe(*arrays(1, 5))
    told = ["all", "only what the variants take", "the general one: TC0501: a stretch", "somewhere"]
    assert exe.report()["dimensions"][-1] == told


def test_sizes_that_are_expressions_are_checked_on_the_fast_path():
    from onnx import TensorProto, helper

    shapes = {"past": ["old", 3], "new": ["fresh", 3], "mask": ["all", 3]}
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    nodes = [helper.make_node("Concat", ["past", "new"], ["both"], axis=0), helper.make_node("Mul", ["both", "mask"], ["y"])]
    graph = helper.make_graph(nodes, "g", ports, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    exe = tcomp.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), use_cache=False)
    assert exe.artifact.inputs[2].shape == ("fresh + old", 3)
    for old, fresh, all_ in ((4, 2, 6), (4, 2, 1), (1, 0, 1), (0, 1, 5)):
        past, new, mask = (np.random.default_rng(d).standard_normal((d, 3), np.float32) for d in (old, fresh, all_))
        got = exe.call_flat(past, new, mask)
        np.testing.assert_array_equal(got, np.concatenate([past, new]) * mask)
    with pytest.raises(Error, match=r"(?s)TC0605.*Mul.*old = 4, fresh = 2, all = 5"):
        exe(np.zeros((4, 3), np.float32), np.zeros((2, 3), np.float32), np.zeros((5, 3), np.float32))


def test_files_and_the_cache_hold_all_variants(exe, tmp_path, monkeypatch):
    exe.save(tmp_path / "m.tcomp")
    for native in (True, False):
        loaded = tcomp.load(tmp_path / "m.tcomp", native=native)
        for n, m in ((3, 3), (1, 5), (7, 1)):
            check(loaded, n, m)
    monkeypatch.setenv("TCOMP_CACHE", "1")
    monkeypatch.setenv("TCOMP_CACHE_DIR", str(tmp_path / "cache"))
    for _ in range(2):
        cached = tcomp.compile(centred, tcomp.spec("f32[n, 5]"), tcomp.spec("f32[m, 5]"))
        check(cached, 1, 5)
        check(cached, 5, 5)


def test_constants_are_there_once(tmp_path):
    w = np.random.default_rng(0).standard_normal((500, 500), np.float32)
    exe = tcomp.compile(lambda x, y: (x + y) @ w, tcomp.spec("f32[n, 500]"), tcomp.spec("f32[m, 500]"), use_cache=False)
    first, second = ({id(c.data) for c in a.constants} for a in exe.artifact.variants)
    assert first == second
    exe.save(tmp_path / "m.tcomp")
    assert (tmp_path / "m.tcomp").stat().st_size < 1.6 * w.nbytes
    loaded, x = tcomp.load(tmp_path / "m.tcomp"), np.ones((4, 500), np.float32)
    np.testing.assert_allclose(loaded(x, x[:1]), (x + x[:1]) @ w, rtol=1e-4, atol=1e-4)


def test_threads_may_call_any_variant(exe):
    faults = []

    def calls(k):
        try:
            for n, m in SIZES * 5:
                check(exe, n, m)
        except AssertionError as e:
            faults.append(e)

    threads = [threading.Thread(target=calls, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not faults


def test_jit_compiles_both_once():
    calls = []

    @tcomp.jit(dynamic={"x": {0: "n"}, "y": {0: "m"}})
    def f(x, y):
        calls.append(1)
        return x * y + x

    compiled = []
    with trace.listening(lambda kind, data: compiled.append(data["name"]) if kind == "pass" else None):
        for n, m in SIZES:
            x, y = arrays(n, m)
            np.testing.assert_array_equal(f(x, y), x * y + x)
            assert compiled.count("lower") == 2
    assert len(calls) == 2 and len(f.programs()) == 1


def test_matrices_meet_in_batches():
    f = tcomp.compile(lambda a, b: a @ b, tcomp.spec("f32[n, 4, 8]"), tcomp.spec("f32[m, 8, 6]"), use_cache=False)
    rng = np.random.default_rng(0)
    for n, m in SIZES:
        a, b = rng.standard_normal((n, 4, 8), np.float32), rng.standard_normal((m, 8, 6), np.float32)
        np.testing.assert_allclose(f(a, b), a @ b, rtol=1e-4, atol=1e-5)


def test_three_sizes_meet():
    specs = [tcomp.spec(f"f32[{d}, 3]") for d in ("a", "b", "c")]
    f = tcomp.compile(lambda x, y, z: np.maximum(x + y, z) * x, *specs, use_cache=False)
    for sizes in ((4, 4, 4), (1, 4, 4), (4, 1, 4), (4, 4, 1), (1, 1, 4), (4, 1, 1), (1, 1, 1), (0, 1, 1), (1, 1, 0)):
        x, y, z = (np.random.default_rng(k).standard_normal((d, 3), np.float32) for k, d in enumerate(sizes))
        np.testing.assert_array_equal(f(x, y, z), np.maximum(x + y, z) * x)
    with pytest.raises(Error, match="TC0605"):
        f(np.zeros((2, 3), np.float32), np.zeros((2, 3), np.float32), np.zeros((4, 3), np.float32))


# --- buckets: small sizes of a promised range ------------------------------------------------------------


def attention(q, k, v):
    s = q @ np.swapaxes(k, -1, -2) * 0.125
    e = np.exp(s - s.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True)) @ v


def heads(n, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((4, n, 32), np.float32) for _ in range(3)]


@pytest.fixture(scope="module")
def ranged():
    return tcomp.compile(attention, *[tcomp.spec("f32[4, n=0..300, 32]")] * 3, use_cache=False)


def test_small_sizes_of_a_range_have_variants_where_that_pays(ranged):
    report = ranged.report()
    assert [row[1] for row in report["variants"]] == ["n = 1", "n up to 16", "all other sizes"]
    assert [(row[0], row[2]) for row in report["buckets"]] == [("n = 1", "compiled"), ("n up to 16", "compiled")]
    assert all(float(row[1]) > 1.1 for row in report["buckets"]) and report["dimensions"] == [
        ["n", "symbolic, 0 to 300", "for all sizes of a call", ""]
    ]
    assert ranged.inputs[0].shape == (4, "n", 32) and "symbols(n [0, 300])" in ranged.text("tile")


@pytest.mark.parametrize("n", [0, 1, 2, 15, 16, 17, 64, 300])
def test_buckets_give_what_the_program_gives(ranged, n):
    want = attention(*map(np.float64, heads(n))) if n else np.zeros((4, 0, 32))
    np.testing.assert_allclose(ranged(*heads(n)), want, rtol=1e-4, atol=1e-5)


def test_sizes_outside_of_the_range_are_refused(ranged):
    with pytest.raises(Error, match=r"(?s)TC0605.*the size n must be at most 300"):
        ranged(*heads(301))


def test_buckets_are_saved(ranged, tmp_path):
    ranged.save(tmp_path / "m.tcomp")
    for native in (True, False):
        loaded = tcomp.load(tmp_path / "m.tcomp", native=native)
        assert [v.inputs for v in loaded.artifact.variants] == [v.inputs for v in ranged.artifact.variants]
        for n in (1, 5, 40):
            np.testing.assert_array_equal(loaded(*heads(n)), ranged(*heads(n)))


def test_the_profile_and_the_report_are_those_of_the_variant_that_runs(ranged):
    kernels = [[row.kernel for row in ranged.profile(*heads(n)).rows] for n in (1, 40)]
    assert kernels[0] != kernels[1]
    assert [[row[0] for row in ranged.report({"n": n})["launches"]] for n in (1, 40)] == kernels


def test_what_gains_nothing_is_not_compiled():
    """Rows of a product: a few of them are computed as fast by the program for all."""
    w = np.random.default_rng(0).standard_normal((256, 512), np.float32)
    exe = tcomp.compile(lambda x: np.maximum(x @ w, 0), tcomp.spec("f32[batch=1..64, 256]"), use_cache=False)
    assert exe.artifact.others == () and "variants" not in exe.report()
    assert all(row[2].startswith("not compiled") for row in exe.report()["buckets"]) and len(exe.report()["buckets"]) == 2


def test_a_range_of_a_model():
    from onnx import TensorProto, helper

    port = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "words"])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("Softmax", ["x"], ["y"], "soft", axis=-1)], "g", [port], [out])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    exe = tcomp.compile(model, dims={"batch": (1, 4000), "words": (1, 500)}, use_cache=False)
    assert len(exe.artifact.variants) <= 4 and ["words = 1", "compiled"] in [row[::2] for row in exe.report()["buckets"]]
    for batch, words in ((1, 1), (3, 1), (1, 9), (8, 500), (4000, 1)):
        x = np.random.default_rng(words).standard_normal((batch, words), np.float32)
        e = np.exp(x - x.max(-1, keepdims=True))
        np.testing.assert_allclose(exe(x), e / e.sum(-1, keepdims=True), rtol=1e-5, atol=1e-6)
