"""Traced arrays: indexing as NumPy defines it, values refused at the user's line, symbolic sizes, places of nodes."""

import copy
import random

import numpy as np
import pytest
from frontend_support import Interpreted, interpreter, run, same

import tcomp.numpy as tnp
from tcomp.errors import Error
from tcomp.frontend.dimension import Dimension
from tcomp.frontend.jit import jit, set_compiler
from tcomp.frontend.program import trace
from tcomp.frontend.spec import spec
from tcomp.ir import index
from tcomp.ir.interp import graph

X = np.arange(4 * 5 * 6, dtype=np.int32).reshape(4, 5, 6)
ROWS = np.array([0, -1, 2])
GRID = np.array([[1], [-2]])
MASK = X[:, :, 0] % 3 == 0
KEYS = [
    np.s_[1],
    np.s_[-1, 2, 3],
    np.s_[1:3, ::-1, ::2],
    np.s_[..., -2:],
    np.s_[None, 1, ..., None],
    np.s_[::-2, 4:0:-3, 10:],
    np.s_[3:1, :, -100:100],
    np.s_[ROWS],
    np.s_[:, ROWS],
    np.s_[ROWS, ROWS],
    np.s_[GRID, ROWS],
    np.s_[:, GRID, ROWS],
    np.s_[GRID, :, ROWS],
    np.s_[0, :, ROWS],
    np.s_[0, ROWS, 1:3],
    np.s_[:, None, ROWS, 1:],
    np.s_[1:, ROWS, None, -1],
    np.s_[ROWS, ..., 2],
    np.s_[..., [0, 1], ::-1],
    np.s_[[True, False, True, True]],
    np.s_[MASK],
    np.s_[:, X[0] % 2 == 1],
    np.s_[MASK, 1],
    np.s_[[]],
    np.s_[np.int64(2), np.uint8(1)],
    np.s_[()],
    np.s_[...],
]


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_indexing_is_numpys(key):
    assert same(run(lambda x: x[key], X), X[key])


def test_random_keys():
    rng = random.Random(0)
    parts = [0, -1, None, slice(None), slice(1, None, 2), slice(None, None, -1), slice(-1, 0, -2), ROWS, GRID, np.array(1)]
    for _ in range(300):
        key = tuple(rng.choice(parts) for _ in range(rng.randint(1, 4)))
        if sum(k is not None for k in key) > 3:
            continue
        if rng.random() < 0.3:
            key = (*key[:1], Ellipsis, *key[1:])
        assert same(run(lambda x, key=key: x[key], X), X[key]), key


def test_traced_positions_count_from_the_end_and_are_checked():
    i, j = np.array([0, -1, 3]), np.array([[1], [-5]], np.int32)
    assert same(run(lambda x, i: x[i], X, i), X[i])
    assert same(run(lambda x, i, j: x[i, :, j], X, i, j), X[i, :, j])
    assert same(run(lambda x, i: x[:, i[0], i], X, i), X[:, i[0], i])
    assert same(run(lambda x, k: x[k], X, np.uint8(3)), X[3])
    with pytest.raises(Error, match="TC0604"):
        run(lambda x, i: x[i], X, np.array([4]))
    with pytest.raises(Error, match="TC0604"):
        run(lambda x, i: x[i], X, np.array([-5]))


@pytest.mark.parametrize(
    ("key", "code"),
    [
        (np.s_[4], "TC0604"),
        (np.s_[-5], "TC0604"),
        (np.s_[[0, 9]], "TC0604"),
        (np.s_[0, 0, 0, 0], "TC0102"),
        (np.s_[..., ...], "TC0105"),
        (np.s_[[True, False]], "TC0102"),
        (np.s_[1.5], "TC0103"),
        (np.s_["a"], "TC0105"),
        (np.s_[::0], "TC0105"),
    ],
    ids=str,
)
def test_wrong_keys_are_refused(key, code):
    with pytest.raises(Error) as e:
        run(lambda x: x[key], X)
    assert e.value.code == code
    assert "test_tracer.py" in e.value.place


def test_a_traced_mask_is_refused_with_a_hint():
    with pytest.raises(Error, match=r"(?s)TC0105.*mask.*where"):
        run(lambda x: x[x > 3], X)


SYMBOLIC_KEYS = [
    np.s_[1:],
    np.s_[:-1],
    np.s_[2:-2],
    np.s_[::-1],
    np.s_[::2],
    np.s_[-3:],
    np.s_[5:1:-2],
    np.s_[:4],
    np.s_[-2::-1],
    np.s_[None, :3, ...],
]


@pytest.mark.parametrize("key", SYMBOLIC_KEYS, ids=str)
def test_slices_of_symbolic_sizes(key):
    program = trace(lambda x: x[key], (spec("i32[n, 3]"),))
    for n in range(8):
        x = np.arange(3 * n, dtype=np.int32).reshape(n, 3)
        assert same(Interpreted(program.func, None)(x), x[key]), n


def test_equal_counts_of_symbolic_slices_have_equal_forms():
    def fn(x):
        y = x[1:-1] + x[2:] + x[:-2]
        return y[1:-1] + y[2:] + y[:-2] + x[-3:].sum() + x[-3:][:2].sum()

    func = trace(fn, (spec("f64[n]"),)).func
    for n in range(7):
        x = np.arange(float(n))
        assert same(Interpreted(func, None)(x), fn(x)), n


def test_single_positions_of_symbolic_sizes_are_checked():
    execute = Interpreted(trace(lambda x: (x[0], x[-1]), (spec("i32[n, 3]"),)).func, None)
    x = np.arange(6, dtype=np.int32).reshape(2, 3)
    first, last = execute(x)
    assert same(first, x[0])
    assert same(last, x[-1])
    with pytest.raises(Error, match="TC0604"):
        execute(x[:0])


def test_symbolic_sizes_do_arithmetic():
    def fn(x):
        n = x.shape[0]
        assert isinstance(n, Dimension)
        assert (n + 1) - n == 1
        assert n >= 0
        assert (2 * n) % 2 == 0
        scaled = x * n / (n + 1.0)
        return tnp.reshape(x, (n * 3,)), scaled, tnp.arange(n), tnp.mean(x, axis=0), tnp.zeros((n, n // 2)), x.size, x[: n // 2]

    execute = Interpreted(trace(fn, (spec("f32[n, 3]"),)).func, None)
    for n in (1, 2, 5):
        x = np.arange(3 * n, dtype=np.float32).reshape(n, 3)
        halves = (np.zeros((n, n // 2)), np.array(3 * n), x[: n // 2])
        want = (x.reshape(-1), x * n / np.float32(n + 1), np.arange(n), x.mean(0), *halves)
        for g, w in zip(execute(x), want, strict=True):
            assert same(g, w, 1e-6)


def test_symbolic_sizes_that_meet_are_equal_or_one_of_them_is_1():
    alone = [trace(lambda x, y: x + y, (spec("f32[n]"), spec(f"f32[{d}]"))).func for d in ("n", "1")]
    assert all(f.others == () and f.account == () for f in alone)
    equal = trace(lambda x, y: (x + y) * x, (spec("f32[n]"), spec("f32[m]"))).func
    (general,) = equal.others
    assert {n.op for n in equal.nodes()} == {"parameter", "add", "mul"} and len(equal.symbols()) == 1
    assert sum(n.op == "stretch" for n in general.nodes()) == 2 and len(general.symbols()) == 2
    assert [(f.dimension, f.became) for f in equal.account] == [("m", "n")] and "test_tracer.py" in equal.account[0].where
    for n, m in ((3, 3), (1, 4), (4, 1), (1, 1), (0, 0), (0, 1), (1, 0)):
        x, y = np.arange(n, dtype=np.float32), np.arange(m, dtype=np.float32) + 1
        assert same(graph.run(general, [x, y])[0], (x + y) * x)


def test_symbolic_sizes_that_cannot_be_1_must_be_one_symbol():
    with pytest.raises(Error, match=r"(?s)TC0102.*n against m.*dynamic="):
        trace(lambda x, y: x + y, (spec("f32[n=2..8]"), spec("f32[m=2..8]")))


def test_a_product_decides_which_of_two_sizes_counts():
    """The mask's columns are those of the scores, or one: nothing else has a meaning where the values have as many rows."""
    f = trace(lambda x, mask, v: (x + mask) @ v, (spec("f32[r, s]"), spec("f32[m, t]"), spec("f32[s, 2]"))).func
    (general,) = f.others
    assert [str(n.type) for n in general.nodes() if n.op == "stretch"] == ["f32[min(max(m, r), (m * r)), s]"] * 2
    for r, s, m, t in ((3, 4, 3, 4), (3, 4, 1, 1), (1, 4, 3, 1), (3, 1, 1, 1), (0, 4, 1, 4)):
        x, mask, v = np.ones((r, s), np.float32), np.full((m, t), 2, np.float32), np.ones((s, 2), np.float32)
        assert same(graph.run(general, [x, mask, v])[0], (x + mask) @ v)
    with pytest.raises(Error, match=r"(?s)TC0102.*inner size"):
        trace(lambda x, y, v: (x + y) @ v, (spec("f32[r, s]"), spec("f32[r, t]"), spec("f32[u, 2]")))


def test_stacks_of_matrices_meet_like_other_sizes():
    f = trace(lambda x, y: x @ y, (spec("f32[n, 2, 3]"), spec("f32[m, 3, 2]"))).func
    for n, m in ((4, 4), (1, 4), (4, 1), (0, 1)):
        x, y = np.ones((n, 2, 3), np.float32), np.full((m, 3, 2), 2, np.float32)
        assert same(graph.run(f.others[0], [x, y])[0], x @ y)


@pytest.mark.parametrize("use", [bool, int, float, range, lambda n: n > 3, lambda n: n == 5, lambda n: [0] * n])
def test_values_of_symbolic_sizes_are_refused(use):
    with pytest.raises(Error, match="TC0101"):
        trace(lambda x: use(x.shape[0]), (spec("f32[n]"),))


def test_an_if_on_a_traced_array_shows_the_users_line():
    def fn(x):
        if x.sum() > 0:
            return x
        return -x

    with pytest.raises(Error) as e:
        run(fn, X)
    lines = str(e.value).splitlines()
    assert lines[0].startswith("TC0101")
    assert lines[1].strip().endswith("in fn")
    assert lines[2].strip() == "if x.sum() > 0:"
    assert lines[3].strip() == "^" * len("x.sum() > 0")
    assert lines[3].index("^") - lines[2].index("if") == len("if ")


@pytest.mark.parametrize("use", [bool, int, float, complex, np.asarray, lambda x: x.item(), lambda x: 1 in x, lambda x: range(x)])
def test_values_of_traced_arrays_are_refused(use):
    with pytest.raises(Error, match="TC0101"):
        run(lambda x: use(x[0, 0, 0]), X)


def test_the_traceback_holds_user_frames_only(monkeypatch):
    def inner(x):
        return bool(x)

    with pytest.raises(Error) as e:
        run(lambda x: inner(x), X[0, 0])
    files = [entry.path.name for entry in e.traceback]
    assert files[-1] == "test_tracer.py"
    assert files.count("jit.py") <= 1
    assert "tracer.py" not in files
    monkeypatch.setenv("TCOMP_DEBUG", "1")
    with pytest.raises(Error) as e:
        run(lambda x: inner(x), X[0, 0])
    assert "tracer.py" in [entry.path.name for entry in e.traceback]


def test_errors_of_the_users_code_pass_through():
    with pytest.raises(ZeroDivisionError) as e:
        run(lambda x: x + 1 // 0, X)
    assert e.traceback[-1].path.name == "test_tracer.py"


def test_faults_of_tcomp_keep_their_traceback():
    class Broken:
        def __call__(self, func, options):
            graph.run(func, [])

    with interpreter():
        set_compiler(Broken())
        with pytest.raises(ValueError) as e:
            jit(lambda x: x)(X)
    assert e.traceback[-1].path.name == "graph.py"


def test_assignment_is_refused_with_a_hint():
    def fn(x):
        x[0] = 1
        return x

    with pytest.raises(Error, match=r"(?s)TC0105.*where"):
        run(fn, X)


def test_iteration_over_a_known_axis():
    assert same(run(lambda x: sum(row * k for k, row in enumerate(x)), X), sum(X[k] * k for k in range(4)))
    assert run(lambda x: [len(x), *x.shape], X) == [4, 4, 5, 6]
    with pytest.raises(Error, match="TC0101"):
        trace(lambda x: list(x), (spec("f32[n]"),))


def test_lists_of_traced_arrays_are_arrays():
    assert same(run(lambda x: tnp.sum([x[0], x[1] * 2], axis=0), X), np.sum([X[0], X[1] * 2], axis=0))
    assert same(run(lambda x: x[0, 0] + [1, 2, 3, 4, 5, 6], X), X[0, 0] + np.arange(1, 7))


def test_constants_are_kept_as_they_were():
    table = np.arange(3.0)

    def fn(x):
        y = x + table
        table[:] = -1
        return y + table

    assert same(run(fn, np.zeros(3)), np.arange(3.0) - 1)


def test_nodes_know_the_users_line():
    def fn(x):
        y = tnp.exp(x)
        return tnp.mean(y, axis=0)

    func = trace(fn, (X.astype(np.float32),)).func
    first = fn.__code__.co_firstlineno
    lines = {n.op: func.locs.of(n)[0] for n in func.nodes() if func.locs.of(n)}
    assert lines["exp"].line == first + 1
    assert lines["reduce"].line == first + 2
    assert lines["reduce"].file == __file__
    assert lines["reduce"].function == "fn"


@pytest.mark.parametrize("use", [
    lambda x, old: x + old, lambda x, old: old + x, lambda x, old: -old, lambda x, old: old.T, lambda x, old: old[0],
    lambda x, old: (x, [old]), lambda x, old: x[old], lambda x, old: old.sum(), lambda x, old: old.reshape(-1),
    lambda x, old: old,
    lambda x, old: np.concatenate([x, old]), lambda x, old: tnp.where(x > 0, old, x), lambda x, old: old.astype(np.float64),
    lambda x, old: np.einsum("aij,akj->ik", x, old), lambda x, old: np.add(x, [old]), lambda x, old: tnp.zeros_like(old) + old,
])  # fmt: skip
def test_a_traced_array_of_another_call_is_refused(use):
    kept = []

    def leak(x):
        kept.append(x)
        return x

    run(leak, X)
    for again in (lambda x: use(x, kept[0]), lambda y: use(y, kept[0])):  # a parameter of the same name, and one of another
        with pytest.raises(Error, match=r"TC0105.*another call"):
            run(again, X)


def test_the_standards_namespace():
    def fn(x):
        xp = x.__array_namespace__()
        return xp.sum(xp.astype(x, xp.float64))

    assert same(run(fn, X), X.sum().astype(float))


def test_traced_arrays_do_not_hash():
    with pytest.raises(TypeError):
        run(lambda x: {x: 1}, X)


def test_results_that_are_inputs_constants_or_scalars():
    with interpreter():
        got = run(lambda x: (x, np.arange(3), 2, 2.5, True, np.float32(1)), X)
    want = (X, np.arange(3), np.array(2), np.array(2.5), np.array(True), np.array(1, np.float32))
    assert all(same(g, w) for g, w in zip(got, want, strict=True))
    with pytest.raises(Error, match="TC0105"):
        run(lambda x: "text", X)


def test_reshape_with_an_unknown_size():
    n = index.symbol("n")
    program = trace(lambda x: x.reshape(-1, 2), (spec("f32[n, 4]"),))
    assert program.func.results[0].type.shape == (index.mul(n, 2), 2)


def test_dimension_is_hashable_and_copies():
    d = Dimension(index.symbol("n"))
    assert {d: 1}[Dimension(index.symbol("n"))] == 1
    assert copy.copy(d) == d
    assert repr(d + 1) == "n + 1"
