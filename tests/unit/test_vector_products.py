"""Products with one row or one column: which become reductions, and which are read as they lie."""

import numpy as np
import pytest

import tcomp
import tcomp.numpy as xp
from tcomp.driver import PIPELINE, func_of, run_passes
from tcomp.frontend.spec import spec
from tcomp.ir.module import Module


def after(f, *specs):
    """The operations of a function's graph after the pass, without movement and pointwise work."""
    module = Module("graph", "f", func_of(f, tuple(map(spec, specs))))
    module = run_passes(module, PIPELINE[: PIPELINE.index("vector_products") + 1])
    return [n.op for n in module.func.nodes() if n.op in ("dot", "reduce")]


@pytest.mark.parametrize(
    ("f", "a", "b", "expected"),
    [
        (lambda a, b: a @ b, "f32[9, 5]", "f32[5, 1]", "reduce"),
        (lambda a, b: a @ b, "f32[1, 5]", "f32[5, 9]", "dot"),
        (lambda a, b: a @ b.T, "f32[1, 5]", "f32[9, 5]", "reduce"),
        (lambda a, b: a.T @ b, "f32[5, 9]", "f32[5, 1]", "dot"),
        (lambda a, b: xp.einsum("hdr,hd->hr", a, b), "f32[3, 5, 9]", "f32[3, 5]", "dot"),
        (lambda a, b: xp.einsum("hrd,hd->hr", a, b), "f32[3, 9, 5]", "f32[3, 5]", "reduce"),
    ],
)
def test_the_matrix_is_read_along_its_rows(f, a, b, expected):
    assert after(f, a, b) == [expected]


def test_a_column_against_a_matrix_that_lies_across():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((3, 40, 70)).astype("f4"), rng.standard_normal((3, 40)).astype("f4")
    f = tcomp.jit(lambda a, b: xp.einsum("hdr,hd->hr", a, b))
    np.testing.assert_allclose(f(a, b), np.einsum("hdr,hd->hr", a, b), rtol=1e-4, atol=1e-4)
