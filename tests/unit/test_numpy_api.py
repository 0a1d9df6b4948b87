"""Functions of tcomp.numpy against NumPy's: in a trace, through NumPy's protocols, and run at once."""

import warnings

import numpy as np
import pytest
from frontend_support import interpreter, run, same

import tcomp.numpy as tnp
from tcomp.errors import Error

R = np.random.default_rng(0)
A = R.standard_normal((3, 4)).astype(np.float32)
B = R.standard_normal((4, 5)).astype(np.float32)
C = R.standard_normal((2, 3, 4))
V = R.standard_normal(6).astype(np.float32)
K = R.integers(-9, 9, (3, 4)).astype(np.int32)
N = np.where(R.random((3, 4)) < 0.3, np.nan, A).astype(np.float32)
H = R.standard_normal((5, 300)).astype(np.float16) + np.float16(8)
M = R.random((3, 4)) < 0.5
S = np.sort(V)

# (function of the namespace and arrays, arrays); each has to give what NumPy gives
SAME = {
    "sum": (lambda xp, x: (xp.sum(x), xp.sum(x, axis=1), xp.sum(x, axis=(0, -1), keepdims=True), xp.sum(x, axis=())), [C]),
    "sum dtype": (lambda xp, x: (xp.sum(x, dtype=np.float64), xp.sum(x > 0, axis=0)), [A]),
    "sum where": (lambda xp, x: xp.sum(x, axis=0, where=x > 0, initial=1.5), [A]),
    "where": (lambda xp, x: (xp.mean(x, axis=0, where=x > -1), xp.max(x, initial=-9, where=x < 0), xp.any(x, where=x > 5)), [A]),
    "quantile": (
        lambda xp, x: (xp.quantile(x, 0.3), xp.quantile(x, [0.0, 0.5, 1.0], axis=1), xp.percentile(x, 25, axis=0, keepdims=True)),
        [A],
    ),
    "quantile nan": (lambda xp, x: xp.quantile(x, 0.5, axis=0), [N]),
    "isin": (lambda xp, x: (xp.isin(x, [1, 2, -3]), xp.isin(x, x[0], invert=True)), [K]),
    "interp": (lambda xp, x, p, f: (xp.interp(x, p, f), xp.interp(p, p, f), xp.interp(x, p, f, left=-1, right=2)), [A, S, V]),
    "prod": (lambda xp, x: (xp.prod(x, axis=0), xp.prod(x)), [A]),
    "extrema": (lambda xp, x: (xp.max(x, axis=0), xp.min(x), xp.amax(x, axis=1, keepdims=True), xp.ptp(x, axis=1)), [A]),
    "extrema nan": (lambda xp, x: (xp.max(x, axis=0), xp.argmin(x, axis=1), xp.nanmax(x, axis=0), xp.nanmin(x)), [N]),
    "nan sums": (lambda xp, x: (xp.nansum(x, axis=0), xp.nanmean(x, axis=1), xp.nanprod(x)), [N]),
    "tests": (lambda xp, x: (xp.any(x, axis=0), xp.all(x), xp.count_nonzero(x, axis=1), xp.any(x, keepdims=True)), [M]),
    "arg": (lambda xp, x: (xp.argmax(x), xp.argmax(x, axis=0), xp.argmin(x, axis=-1, keepdims=True)), [A]),
    "arg flat keepdims": (lambda xp, x: xp.argmax(x, keepdims=True), [A]),
    "mean": (lambda xp, x: (xp.mean(x), xp.mean(x, axis=0), xp.mean(x, axis=1, keepdims=True)), [A]),
    "mean f16": (lambda xp, x: (xp.mean(x), xp.sum(x, axis=1), xp.std(x, axis=1)), [H]),
    "var": (lambda xp, x: (xp.var(x), xp.var(x, axis=1, ddof=1), xp.std(x, axis=0)), [A]),
    "var int": (lambda xp, x: (xp.var(x, axis=0), xp.std(x), xp.mean(x)), [K]),
    "average": (lambda xp, x: (xp.average(x), xp.average(x, axis=1, weights=xp.abs(x[0]))), [A]),
    "cumsum": (lambda xp, x: (xp.cumsum(x), xp.cumsum(x, axis=1), xp.cumprod(x, axis=0)), [K]),
    "cumulative_sum": (lambda xp, x: xp.cumulative_sum(x, axis=1, include_initial=True), [A]),
    "diff": (lambda xp, x: (xp.diff(x), xp.diff(x, n=2, axis=0), xp.diff(x, axis=0, prepend=1, append=x[:1])), [A]),
    "median": (lambda xp, x: (xp.median(x), xp.median(x, axis=0), xp.median(x, axis=1, keepdims=True)), [A]),
    "reshape": (lambda xp, x: (xp.reshape(x, (2, -1)), xp.reshape(x, -1), xp.ravel(x)), [A]),
    "axes": (lambda xp, x: (xp.moveaxis(x, 0, -1), xp.swapaxes(x, 0, 2), xp.transpose(x), xp.permute_dims(x, (2, 0, 1))), [C]),
    "moveaxis two": (lambda xp, x: xp.moveaxis(x, (0, 1), (-1, -2)), [C]),
    "expand": (lambda xp, x: (xp.expand_dims(x, axis=(0, 2)), xp.squeeze(xp.expand_dims(x, axis=1)), xp.atleast_3d(x)), [A]),
    "atleast": (lambda xp, x: (xp.atleast_2d(x), xp.atleast_3d(x), xp.atleast_1d(x)), [V]),
    "broadcast": (lambda xp, x: (xp.broadcast_to(x, (2, 3, 4)), *xp.broadcast_arrays(x, x[:1])), [A]),
    "concat": (lambda xp, x, y: (xp.concat([x, y]), xp.concatenate([x, y], axis=1), xp.concat([x, y], axis=None)), [A, K]),
    "stack": (lambda xp, x, y: (xp.stack([x, y], axis=-1), xp.vstack([x, y]), xp.hstack([x, y]), xp.unstack(x)), [A, K]),
    "split": (lambda xp, x: (*xp.split(x, 2, axis=1), *xp.split(x, [1, 2]), *xp.array_split(x, 3, axis=1)), [A]),
    "flip": (lambda xp, x: (xp.flip(x), xp.flip(x, axis=1), xp.fliplr(x), xp.flipud(x), xp.rot90(x), xp.rot90(x, 3)), [A]),
    "roll": (lambda xp, x: (xp.roll(x, 2), xp.roll(x, -1, axis=0), xp.roll(x, (1, 5), axis=(0, 1))), [A]),
    "tile": (lambda xp, x: (xp.tile(x, 2), xp.tile(x, (2, 1, 3))), [A]),
    "repeat": (lambda xp, x: (xp.repeat(x, 2), xp.repeat(x, 3, axis=1), xp.repeat(x, [1, 0, 2], axis=0)), [A]),
    "pad": (lambda xp, x: (xp.pad(x, 1), xp.pad(x, ((0, 2), (1, 0)), constant_values=2.5)), [A]),
    "pad modes": (lambda xp, x: [xp.pad(x, ((1, 2), (2, 1)), mode=m) for m in ("edge", "reflect", "symmetric", "wrap")], [A]),
    "choice": (lambda xp, m, x, y: (xp.where(m, x, y), xp.where(m, x, 0), xp.where(x, 1.5, y)), [M, A, K]),
    "clip": (lambda xp, x: (xp.clip(x, -1, 1), xp.clip(x, None, 0.5), xp.clip(x, x[0], 2)), [A]),
    "select": (lambda xp, x: xp.select([x > 1, x > 0], [x * 2, x * 3], -1), [A]),
    "take": (lambda xp, x, i: (xp.take(x, i, axis=1), xp.take(x, i), xp.take(x, [9, -9], axis=0, mode="clip")), [A, K % 4 - 2]),
    "take along": (lambda xp, x: xp.take_along_axis(x, xp.argsort(x, axis=1)[:, -2:], axis=1), [A]),
    "diagonal": (lambda xp, x: (xp.diagonal(x), xp.diagonal(x, 1), xp.diagonal(x, -2), xp.trace(x), xp.diag(x)), [A]),
    "sinc": (lambda xp, x: xp.sinc(x), [np.array([0, -0.0, 6e-8, 0.5, -1, 2.25, np.inf, np.nan], np.float16)]),
    "diag": (lambda xp, x: (xp.diag(x), xp.diag(x, 2), xp.diag(x, -1)), [V]),
    "triangles": (lambda xp, x: (xp.tril(x), xp.triu(x, 1), xp.tril(x, -1), xp.tri(3, 4)), [C]),
    "sort": (lambda xp, x: (xp.sort(x), xp.sort(x, axis=0), xp.argsort(x, axis=1), xp.sort(x, axis=None)), [N]),
    "search": (lambda xp, s, x: (xp.searchsorted(s, x), xp.searchsorted(s, x, side="right"), xp.digitize(x, s)), [S, A]),
    "matmul": (lambda xp, a, b: (xp.matmul(a, b), a @ b, xp.dot(a, b), xp.tensordot(a, b, axes=1)), [A, B]),
    "matmul vectors": (lambda xp, a, b: (a[0] @ b, a @ b[:, 0], a[0] @ b[:, 0], xp.dot(a[0], b[:, 1])), [A, B]),
    "matmul batches": (lambda xp, a, b: (a @ b, a[:, None] @ b[None, :, :, :1], a[0] @ b, a @ b[:1]), [C, C.transpose(0, 2, 1)]),
    "matmul int8": (lambda xp, a: a @ a.T, [(R.integers(-99, 99, (3, 9))).astype(np.int8)]),
    "matmul bool": (lambda xp, a: a @ a.T, [M]),
    "products": (lambda xp, a, b: (xp.outer(a[0], b), xp.inner(a, a), xp.vdot(a, a), xp.kron(a, b), xp.vecdot(a, a)), [A, B]),
    "tensordot": (lambda xp, a: (xp.tensordot(a, a, axes=([1, 2], [1, 2])), xp.tensordot(a[0, 0], a[1, 1], axes=0)), [C]),
    "cross": (lambda xp, a: xp.cross(a, a[::-1]), [A[:, :3]]),
    "linalg": (
        lambda xp, x: (
            xp.linalg.norm(x),
            xp.linalg.norm(x, axis=1),
            xp.linalg.norm(x, 1, axis=0),
            xp.linalg.norm(x, np.inf),
            xp.linalg.norm(x, "fro"),
            xp.linalg.vector_norm(x, ord=3, axis=0),
            xp.linalg.matrix_norm(x, ord=-1),
        ),
        [A],
    ),
    "matrix power": (lambda xp, x: (xp.linalg.matrix_power(x, 5), xp.linalg.matrix_power(x, 0)), [A[:, :3]]),
    "created": (
        lambda xp, x: (
            xp.zeros((2, 3)),
            xp.ones(3, dtype=np.int8),
            xp.full((2,), 7),
            xp.full_like(x, 2),
            xp.zeros_like(x, dtype=np.int64),
            xp.eye(3, 4, k=1, dtype=np.float32),
            xp.identity(2),
        ),
        [A],
    ),
    "arange": (
        lambda xp, x: (xp.arange(5), xp.arange(2, 9, 3), xp.arange(5, 0, -2), xp.arange(0.5, 2, 0.25), xp.arange(3, dtype="f4")),
        [A],
    ),
    "linspace": (lambda xp, x: (xp.linspace(0, 1, 5), xp.linspace(1, 2, 3, endpoint=False), xp.linspace(x[0], 1, 4)), [A]),
    "meshgrid": (lambda xp, a, b: (*xp.meshgrid(a[0], b[0]), *xp.meshgrid(a[0], b[0], indexing="ij")), [A, B]),
    "round": (lambda xp, x: (xp.round(x), xp.round(x, 2), x.round(1), xp.round(x * 100, -1)), [A]),
    "closeness": (lambda xp, x: (xp.isclose(x, x + 1e-9), xp.allclose(x, x), xp.array_equal(x, x + 1)), [A]),
    "nan_to_num": (lambda xp, x: (xp.nan_to_num(x / (x - x[0])), xp.nan_to_num(x, nan=2)), [N]),
    "methods": (
        lambda xp, x: (
            x.sum(0), x.mean(axis=1), x.reshape(4, 3), x.reshape((2, 6)), x.T, x.transpose(1, 0), x.astype(np.int32),
            x.clip(0, 1), x.max(), x.argmax(1), x.std(), x.any(), x.flatten(), x.swapaxes(0, 1), x.cumsum(0), x.dot(x.T), x.mT,
        ),
        [A],
    ),
    "operators": (lambda xp, x, i: (-x, +x, abs(x), ~i, 2 - x, 1 / (x + 9), i % 3, 7 // (i + 20), x > i, divmod(i, 4)), [A, K]),
    "bits": (lambda xp, i: (i << 2, i >> 1, i & 3, i | 8, i ^ -1, 2 ** abs(i), 5 - i, 3 & i), [K]),
}  # fmt: skip
STANDARD_ONLY = {
    "topk": (lambda xp, x: xp.topk(x, 2), lambda x: (-np.sort(-x)[:, :2], np.argsort(-x, kind="stable")[:, :2]), [A]),
    "sort descending": (lambda xp, x: xp.argsort(x, descending=True), lambda x: np.argsort(-x, kind="stable"), [K]),
    "correction": (lambda xp, x: xp.var(x, axis=0, correction=1), lambda x: np.var(x, axis=0, ddof=1), [A]),
    "rsqrt": (lambda xp, x: xp.rsqrt(xp.abs(x)), lambda x: 1 / np.sqrt(np.abs(x)), [A]),
}


def leaves(result):
    return [leaf for r in result for leaf in leaves(r)] if isinstance(result, (tuple, list)) else [result]


def check(got, want):
    got, want = leaves(got), leaves(want)
    assert len(got) == len(want)
    for k, (g, w) in enumerate(zip(got, want)):
        w = np.asarray(w)
        assert same(g, w, 2e-3 if w.dtype == np.float16 else 1e-5), f"result {k}: {g!r}, not {w!r}"


@pytest.mark.parametrize("name", SAME)
def test_traced_function_is_numpys(name):
    fn, arrays = SAME[name]
    with np.errstate(all="ignore"):
        want = fn(np, *arrays)
    check(run(lambda *a: fn(tnp, *a), *arrays), want)


@pytest.mark.parametrize("name", SAME)
def test_numpys_own_function_on_traced_arrays(name):
    fn, arrays = SAME[name]
    with np.errstate(all="ignore"):
        want = fn(np, *arrays)
    check(run(lambda *a: fn(np, *a), *arrays), want)


@pytest.mark.parametrize("name", ["meshgrid", "broadcast_arrays", "unstack", "split", "array_split", "divmod"])
def test_several_results_come_as_from_numpy(name):
    more = {"split": (2,), "array_split": (2,), "divmod": (2,)}.get(name, ())
    want = type(getattr(np, name)(A[0], *more))
    assert type(run(lambda x: getattr(tnp, name)(x, *more), A[0])) is want
    assert type(run(lambda x: getattr(np, name)(x, *more), A[0])) is want


@pytest.mark.parametrize("name", STANDARD_ONLY)
def test_function_of_the_standard(name):
    fn, reference, arrays = STANDARD_ONLY[name]
    check(run(lambda *a: fn(tnp, *a), *arrays), reference(*arrays))


def test_functions_run_at_once_outside_a_trace_and_are_cached():
    with interpreter() as compiler:
        check(tnp.add(A, 2), A + 2)
        check(tnp.add(A, 3), A + 3)
        check(tnp.sum(A, axis=1), A.sum(1))
        check(tnp.concat([A, A], axis=1), np.concatenate([A, A], axis=1))
        made = len(compiler.made)
        check(tnp.asarray([[1, 2], [3, 4]]), np.array([[1, 2], [3, 4]]))
        check(tnp.asarray(A, dtype=np.int32), A.astype(np.int32))
        assert len(compiler.made) == made
        check(tnp.add([1.0, 2.0], 1), np.array([2.0, 3.0]))
        check(tnp.einsum("ij,jk->ik", A, B), A @ B)
        check(tnp.einsum(A, [0, 1], B, [1, 2], [0, 2]), A @ B)
        check(tnp.linalg.norm(A), np.linalg.norm(A))
        assert len([e for e in compiler.made if e.func.name == "add"]) == 2  # one for (f32, int), one for the list


def test_functions_of_no_arrays_need_no_compiler():
    check([tnp.arange(3), tnp.zeros((2,)), tnp.eye(2), tnp.full((2,), 1.5), tnp.linspace(0, 1, 3)],
          [np.arange(3), np.zeros((2,)), np.eye(2), np.full((2,), 1.5), np.linspace(0, 1, 3)])  # fmt: skip


def test_the_namespace_has_the_standards_names():
    wanted = """abs acos acosh add all any arange argmax argmin argsort asarray asin asinh astype atan atan2 atanh bitwise_and
    bitwise_invert bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor broadcast_arrays broadcast_to can_cast ceil clip
    concat conj copysign cos cosh count_nonzero cumulative_prod cumulative_sum diff divide e empty empty_like equal exp
    expand_dims
    expm1 eye finfo flip floor floor_divide from_dlpack full full_like greater greater_equal hypot iinfo imag inf isdtype isfinite
    isinf isnan less less_equal linspace log log10 log1p log2 logaddexp logical_and logical_not logical_or logical_xor matmul
    matrix_transpose max maximum mean meshgrid min minimum moveaxis multiply nan negative newaxis nextafter nonzero not_equal ones
    ones_like permute_dims pi positive pow prod real reciprocal remainder repeat reshape result_type roll round searchsorted sign
    signbit sin sinh sort sqrt square squeeze stack std subtract sum take take_along_axis tan tanh tensordot tile tril triu trunc
    unique_all unique_counts unique_inverse unique_values unstack var vecdot where zeros zeros_like bool int8 int16 int32 int64
    uint8 uint16 uint32 uint64 float32 float64"""
    assert not [n for n in wanted.split() if not hasattr(tnp, n)]


@pytest.mark.parametrize(
    ("fn", "code"),
    [
        (lambda x: tnp.nonzero(x), "TC0105"),
        (lambda x: np.unique(x), "TC0105"),
        (lambda x: np.fft.fft(x), "TC0105"),
        (lambda x: np.frexp(x), "TC0105"),
        (lambda x: np.add(x, 1, out=np.zeros((3, 4))), "TC0105"),
        (lambda x: tnp.reshape(x, (5, 5)), "TC0102"),
        (lambda x: tnp.sum(x, axis=2), "TC0104"),
        (lambda x: tnp.concat([x, x.T]), "TC0102"),
        (lambda x: x + np.zeros(7), "TC0102"),
        (lambda x: x @ x, "TC0102"),
        (lambda x: tnp.max(x[:0]), "TC0102"),
        (lambda x: x & x, "TC0103"),
        (lambda x: tnp.arange(x[0, 0]), "TC0101"),
        (lambda x: x + "a", None),
        (lambda x: tnp.add(x, "a"), "TC0105"),
        (lambda x: tnp.transpose(x, (0, 0)), "TC0104"),
        (lambda x: tnp.diag(x[None]), "TC0102"),
    ],
)
def test_wrong_use_is_refused_at_the_users_line(fn, code):
    with pytest.raises(Error if code else TypeError) as e:
        run(fn, A)
    if code:
        assert e.value.code == code
        assert __file__ in e.value.place


def test_dtype_questions():
    assert tnp.result_type(np.int8, np.uint8) == np.int16
    assert tnp.result_type(A, 2.0) == np.float32
    assert tnp.can_cast(np.int8, np.int16)
    assert tnp.isdtype(np.float32, "real floating")
    info = tnp.__array_namespace_info__()
    assert info.default_dtypes()["indexing"] == np.int64
    assert list(info.dtypes(kind="real floating")) == ["float32", "float64"]
    assert tnp.finfo(np.float32).eps == np.finfo(np.float32).eps
    assert run(lambda x: x.astype(x.dtype) * (x.ndim + len(x) + x.size), A).dtype == np.float32


EMPTY = [np.zeros(0, np.float32), np.zeros((0, 3), np.float32), np.zeros((2, 0, 3), np.int32)]
SCALAR = [np.array(2.5, np.float32), np.array(3, np.int8)]
ANY_SHAPE = {
    "sum": lambda xp, x: (xp.sum(x), xp.sum(x, axis=0), xp.sum(x, axis=-1, keepdims=True), xp.prod(x), xp.mean(x)),
    "variance": lambda xp, x: (xp.var(x), xp.std(x, ddof=1), xp.median(x), xp.count_nonzero(x)),
    "tests": lambda xp, x: (xp.any(x), xp.all(x, axis=0), xp.cumsum(x), xp.cumsum(x, axis=0)),
    "shape": lambda xp, x: (xp.reshape(x, (-1,)), x.T, xp.stack([x, x]), xp.tile(x, 2), xp.repeat(x, 2), xp.expand_dims(x, -1)),
    "order": lambda xp, x: (xp.flip(x), xp.roll(x, 1), xp.sort(x, axis=None), xp.argsort(x), xp.searchsorted(x.ravel(), 1.0)),
    "values": lambda xp, x: (xp.exp(x), xp.where(x > 1, x, 0), xp.clip(x, 0, 1), xp.outer(x, x), xp.tensordot(x, x, axes=0)),
    "parts": lambda xp, x: (x[...], x[None], xp.take(x, np.zeros(0, int)), xp.linalg.norm(x), xp.pad(x, 1)),
}


@pytest.mark.parametrize("x", EMPTY + SCALAR, ids=lambda x: f"{x.dtype}{x.shape}")
@pytest.mark.parametrize("name", ANY_SHAPE)
def test_empty_arrays_and_scalars(name, x):
    fn = ANY_SHAPE[name]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = fn(np, x)
    check(run(lambda x: fn(tnp, x), x), want)
