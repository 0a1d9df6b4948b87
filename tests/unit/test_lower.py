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
