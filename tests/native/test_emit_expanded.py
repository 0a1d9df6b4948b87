"""Kernels of all stages, placed and expanded by the passes, then run natively and by the interpreter."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from reg import MACHINES, Native, check, emit, machine

from tcomp.codegen.llvm.compile import compile_text, named
from tcomp.passes.expand import expand_kernel
from tcomp.passes.place import place_kernel


def _module(name):
    """A module of helpers of the unit tests, which live in another folder."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parents[1] / "unit" / f"{name}.py")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


samples = _module("sample_kernels")
SAMPLES = {make.__name__: (stage, make) for stage, makes in samples.KERNELS.items() for make in makes}
SIZES = ({"n": 1, "m": 3}, {"n": 29, "m": 70}, {"n": 70, "m": 1})


def registers(name, m=None):
    """The register form of a sample; products by the machine's own intrinsics."""
    stage, make = SAMPLES[name]
    kernel = make(f"{m.family}_f32") if name == "gemm_kernel" and m else make()
    kernel = place_kernel(kernel) if stage == "tile" else kernel
    return expand_kernel(kernel) if stage != "reg" else kernel


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", SAMPLES)
def test_samples(name, machine):
    m = MACHINES[machine]
    kernel = registers(name, m)
    run = Native(kernel, m)
    for sizes in SIZES if kernel.symbols else ({},):
        arrays = {"where": np.random.default_rng(0).integers(0, sizes["m"], sizes["n"])} if name == "gather_kernel" else None
        check(kernel, symbols={s["name"]: sizes[s["name"]] for s in kernel.symbols}, arrays=arrays, rtol=1e-5, native=run)


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_become_objects_for_aarch64(name):
    arm = machine("aarch64")
    text, _ = emit(registers(name, arm), arm)
    assert compile_text(text, named("aarch64"))[:4] == b"\x7fELF"


def test_a_checked_index_is_read_once():
    """The check reads it; the loop over the row finds its value."""
    text, _ = emit(registers("gather_kernel"))
    assert text.count("load i64") == 3  # the two symbols, and the index


def test_scratch_is_what_the_phases_need_rounded_to_pages():
    kernel = registers("gemm_kernel")
    _, code = emit(kernel)
    assert code.scratch == -(-60 * 64 * 4 // 4096) * 4096
    assert emit(registers("top_kernel"))[1].scratch == 0
