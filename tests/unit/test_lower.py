"""What lowering refuses, and that kernels which differ in name only are one."""

import pytest

from tcomp.driver import PASSES, run_passes
from tcomp.errors import Error
from tcomp.ir import dtype as dt
from tcomp.ir.graph import Func
from tcomp.ir.module import Module
from tcomp.ir.ops import apply, parameter


def lowered(*results, names=("y",)):
    params = tuple(n for r in results for n in Func("f", (), (r,), ("y",)).nodes() if n.op == "parameter")
    func = Func("f", tuple(dict.fromkeys(params)), tuple(results), tuple(f"y{k}" for k in range(len(results))))
    return run_passes(Module("graph", "f", func), ("lower",), PASSES)


def test_an_operation_without_kernels_is_refused():
    x = parameter("x", dt.f32, (4, 8))
    with pytest.raises(Error) as e:
        lowered(apply("argreduce", x, monoid="max", axis=1, last=False, dtype=dt.i64))
    assert e.value.code == "TC0501" and "argreduce" in str(e.value)


def test_equal_kernels_are_one():
    x, y = parameter("x", dt.f32, (4, 8)), parameter("y", dt.f32, (4, 8))
    module = lowered(apply("exp", x), apply("exp", y))
    assert len(module.kernels) == 1
    assert len([s for s in module.main.body if hasattr(s, "kernel")]) == 2


def test_a_parameter_as_result_is_copied():
    x = parameter("x", dt.f32, (4, 8))
    module = lowered(x, x)
    assert [b.name for b in module.main.outputs] == ["y0", "y1"]
    assert len([s for s in module.main.body if hasattr(s, "kernel")]) == 2


@pytest.mark.parametrize("name", ["i", "i0", "j", "k", "k0", "p", "q", "n0", "b0", "c0", "u0", "o0", "x", "y0", "chunk0"])
def test_dimensions_may_be_named_like_loops(name):
    import numpy as np

    import tcomp

    def f(a, b, where):
        p = np.exp(a @ b - np.max(a @ b, axis=-1, keepdims=True))
        return np.concatenate([p, np.cumsum(a, axis=0)], axis=1)[where], np.transpose(a).sum(axis=0)

    specs = (tcomp.spec(f"f32[{name}, 8]"), tcomp.spec(f"f32[8, {name}]"), tcomp.spec("i64[3]"))
    exe = tcomp.compile(f, *specs, use_cache=False)
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((5, 8)).astype(np.float32), rng.standard_normal((8, 5)).astype(np.float32)
    where = np.array([4, 0, 2])
    for got, want in zip(exe(a, b, where), f(a, b, where)):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-5)


def test_a_parameter_and_the_result_may_share_a_name():
    import numpy as np

    import tcomp

    assert tcomp.jit(lambda result: result + 1)(np.zeros(3, np.float32)).tolist() == [1, 1, 1]
