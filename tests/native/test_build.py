"""REG modules become artifacts: ports, constants, defaults, flops, bytes; and the artifact runs, from memory and from a file."""

from dataclasses import replace

import numpy as np
import pytest

from tcomp.codegen.llvm.build import build
from tcomp.codegen.llvm.machines import machine_for
from tcomp.driver import PIPELINE, run_passes
from tcomp.ir import dtype as dt
from tcomp.ir import index as ix
from tcomp.ir.graph import Func, reshape
from tcomp.ir.module import Module
from tcomp.ir.ops import apply, constant, parameter
from tcomp.ir.work import flops
from tcomp.runtime.artifact import read, write
from tcomp.runtime.executable import link

N = ix.symbol("n")


def module(func: Func) -> Module:
    return run_passes(Module("graph", func.name, func), PIPELINE)


def artifact(func: Func, target: str = "cpu"):
    return build(module(func), *machine_for(target), {"graph": "g"}, {"note": "n"})


@pytest.fixture(scope="module")
def scaled() -> Func:
    """(x + bias) * w, where w is 3 unless it is given."""
    x, w = (
        parameter(
            "x",
            dt.f32,
            (
                N,
                8,
            ),
        ),
        parameter("w", dt.f32, (1,)),
    )
    bias = constant(np.arange(8, dtype=np.float32))
    wide = [apply("broadcast", v, shape=(N, 8), axes=axes) for v, axes in ((bias, (1,)), (reshape(w, ()), ()))]
    return Func("scaled-1", (x, w), (apply("mul", apply("add", x, wide[0]), wide[1]),), ("y",),
                defaults=(("w", np.full(1, 3, np.float32)),))  # fmt: skip


X = np.arange(40, dtype=np.float32).reshape(5, 8)


def test_an_artifact_runs_from_memory_and_from_a_file(scaled, tmp_path):
    made = artifact(scaled)
    write(made, tmp_path / "m.tcomp")
    for exe in (link(made), link(read(tmp_path / "m.tcomp"))):
        np.testing.assert_array_equal(exe(X), (X + np.arange(8, dtype=np.float32)) * 3)
        np.testing.assert_array_equal(exe(X[:0]), X[:0])
        np.testing.assert_array_equal(exe.run({"w": [2.0], "x": X})["y"], (X + np.arange(8, dtype=np.float32)) * 2)


def test_what_an_artifact_says(scaled):
    made = artifact(scaled)
    assert made.entry == "tcomp_scaled_1" and made.symbols == ("n",)
    assert [(p.name, p.dtype, p.shape) for p in (*made.inputs, *made.outputs)] == [
        ("x", "f32", ("n", 8)), ("w", "f32", (1,)), ("y", "f32", ("n", 8)),
    ]  # fmt: skip
    assert made.defaults == (("w", "w.default"),) and made.constants[-1].data == 3
    assert set(made.texts) == {"graph", "llvm"} and made.texts["llvm"].count("define i64 @tcomp_scaled_1_plan") == 1
    assert made.report["note"] == "n" and made.flops == 0 and made.report["flops"] == "32*n"
    assert made.objects[0].target.startswith("cpu:host:") and made.report["bytes"]["code"] == len(made.objects[0].data)


def test_code_for_a_named_machine(scaled):
    made = artifact(scaled, "cpu:x86-64-v3")
    assert made.objects[0].target == "cpu:x86-64-v3" and {"avx2", "fma"} <= set(made.objects[0].features)


def test_only_reg_is_built(scaled):
    with pytest.raises(AssertionError, match="build takes REG"):
        build(Module("graph", "f", scaled), *machine_for("cpu"), {}, {})


def test_every_symbol_is_some_inputs_dimension(scaled):
    lone = module(scaled)
    main = replace(lone.main, inputs=(replace(lone.main.inputs[0], shape=(2 * N, 8)), *lone.main.inputs[1:]))
    with pytest.raises(AssertionError, match="no input has the symbol n alone"):
        build(replace(lone, main=main), *machine_for("cpu"), {}, {})


def test_flops():
    x, w = (
        parameter(
            "x",
            dt.f32,
            (
                4,
                6,
            ),
        ),
        parameter(
            "w",
            dt.f32,
            (
                6,
                5,
            ),
        ),
    )
    product = apply("dot", x, w, batch=((), ()), contract=((1,), (0,)))
    total = apply("reduce", apply("exp", product), monoid="add", axes=(0, 1))
    assert flops(Func("f", (x, w), (total,), ("y",))) == 2 * 4 * 5 * 6 + 20 + 20
    image, kernel = (
        parameter(
            "i",
            dt.f32,
            (
                1,
                8,
                8,
                4,
            ),
        ),
        parameter(
            "k",
            dt.f32,
            (
                3,
                3,
                2,
                6,
            ),
        ),
    )
    conv = apply("conv", image, kernel, strides=(1, 1), dilations=(1, 1), groups=2)
    assert flops(Func("f", (image, kernel), (conv,), ("y",))) == 2 * 6 * 6 * 6 * 3 * 3 * 2
    assert flops(Func("f", (image,), (image,), ("y",))) == 0
