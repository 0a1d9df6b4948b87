"""einsum against NumPy's over spellings, and the form of the program it becomes."""

import numpy as np
import pytest
from frontend_support import Interpreted, run, same

import tcomp.numpy as tnp
from tcomp.errors import Error
from tcomp.frontend.program import trace
from tcomp.frontend.spec import spec

SIZES = dict(zip("abcdefghijklmn", (2, 3, 4, 5, 2, 3, 4, 5, 2, 3, 4, 2, 3, 2)))
CASES = [
    "ij,jk->ik",
    "ij,jk",
    "ij->ji",
    "ij->",
    "ij->j",
    "ii->i",
    "ii",
    "iji->j",
    "iji,jk->ik",
    "iii->i",
    "i,i->",
    "i,j->ij",
    "bij,bjk->bik",
    "bij,bjk->b",
    "ij,ij->ij",
    "ij,jk,kl->il",
    "ijk,ai,bj,ck->abc",
    "ab,bc,cd,de,ef->af",
    "i,i,i->i",
    "nci,ncj,ijk->nck",
    "hdm,nm->hnd",
    "ij,k->",
    " i j , j k -> k i ",
    "ba",
]


def arrays(text, dtype=np.float64):
    rng = np.random.default_rng(0)
    parts = text.replace(" ", "").partition("->")[0].split(",")
    return [(rng.standard_normal([SIZES[c] for c in p]) * 3).astype(dtype) for p in parts]


@pytest.mark.parametrize("text", CASES)
@pytest.mark.parametrize("dtype", [np.float64, np.int32])
def test_spelling_is_numpys(text, dtype):
    given = arrays(text, dtype)
    assert same(run(lambda *a: tnp.einsum(text, *a), *given), np.einsum(text, *given), 1e-9)
    assert same(run(lambda *a: np.einsum(text, *a), *given), np.einsum(text, *given), 1e-9)


@pytest.mark.parametrize("text", ["...ij,...jk->...ik", "...ij,jk", "i...->...", "...ii->...i", "...,...", "i...j,j...->..."])
def test_ellipsis_is_numpys(text):
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((3, 4, 4)), rng.standard_normal((4, 4))
    given = [a, b] if "," in text else [a]
    given = [a.transpose(1, 0, 2), rng.standard_normal((4, 3))] if text.startswith("i...j") else given
    given = [a, rng.standard_normal((1, 4, 4))] if text == "...ij,...jk->...ik" else given
    assert same(run(lambda *x: tnp.einsum(text, *x), *given), np.einsum(text, *given), 1e-9)


def test_interleaved_form_and_dtypes():
    a, b = arrays("ij,jk", np.float32)
    assert same(run(lambda a, b: tnp.einsum(a, [0, 1], b, [1, 2], [0, 2]), a, b), np.einsum(a, [0, 1], b, [1, 2], [0, 2]), 1e-5)
    assert same(run(lambda a: tnp.einsum(a, [Ellipsis, 1]), a), np.einsum(a, [Ellipsis, 1]))
    mixed = run(lambda a, b: tnp.einsum("ij,jk->ik", a, b), a.astype(np.int32), b)
    assert mixed.dtype == np.float64
    m = a > 0
    assert same(run(lambda m: tnp.einsum("ij,kj->ik", m, m), m), np.einsum("ij,kj->ik", m, m))


def test_sizes_of_one_broadcast():
    a, b = np.ones((1, 3)), np.arange(12.0).reshape(4, 3)
    assert same(run(lambda a, b: tnp.einsum("ij,ij->ij", a, b), a, b), a * b)
    assert same(run(lambda a, b: tnp.einsum("ij,ij->i", a, b), a, b), (a * b).sum(1))


def operations(text, *specs):
    func = trace(lambda *a: tnp.einsum(text, *a), tuple(map(spec, specs))).func
    return [n.op for n in func.nodes()], func


def test_a_product_is_one_dot_without_copies():
    assert operations("ij,jk->ik", "f32[8, 9]", "f32[9, 7]")[0] == ["parameter", "parameter", "dot"]
    assert operations("bij,bjk->bik", "f32[2, 8, 9]", "f32[2, 9, 7]")[0] == ["parameter", "parameter", "dot"]
    ops, _ = operations("ij,ij->ij", "f32[8, 9]", "f32[8, 9]")
    assert ops == ["parameter", "parameter", "mul"]


def test_a_chain_is_contracted_in_the_cheap_order():
    _, func = operations("ij,jk,kl->il", "f32[100, 100]", "f32[100, 100]", "f32[100, 1]")
    dots = [n.type.shape for n in func.nodes() if n.op == "dot"]
    assert all(1 in shape for shape in dots)


def test_symbolic_sizes():
    _, func = operations("bij,bjk,kl->bil", "f64[b, n, 3]", "f64[b, 3, n]", "f64[n, 2]")
    rng = np.random.default_rng(2)
    for b, n in ((1, 1), (2, 5), (0, 3)):
        given = [rng.standard_normal(s) for s in ((b, n, 3), (b, 3, n), (n, 2))]
        assert same(Interpreted(func, None)(*given), np.einsum("bij,bjk,kl->bil", *given), 1e-9)
    _, func = operations("ii->i", "f64[n, n]")
    x = rng.standard_normal((4, 4))
    assert same(Interpreted(func, None)(x), np.diagonal(x))


@pytest.mark.parametrize(
    ("text", "code"),
    [*((t, "TC0105") for t in ("ij,jk->iz", "ij->ii", "ij,jk", "ijk->i", "i1->i")), ("ii->i", "TC0102")],
)
def test_wrong_subscripts_are_refused(text, code):
    a = np.ones((2, 3))
    given = [a, a.T] if text == "ij,jk->iz" else [a]
    with pytest.raises(Error) as e:
        run(lambda *x: tnp.einsum(text, *x), *given)
    assert e.value.code == code


def test_sizes_that_differ_are_refused():
    with pytest.raises(Error, match="TC0102"):
        run(lambda a, b: tnp.einsum("ij,jk->ik", a, b), np.ones((2, 3)), np.ones((4, 5)))
