"""Products of bytes in compiled code: exact for every mix of signs, zero point and tail, by each instruction."""

from dataclasses import replace

import numpy as np
import pytest

from tcomp import driver
from tcomp.api import Compiler, link
from tcomp.codegen.llvm.machines import machine_for
from tcomp.driver import stages_of
from tcomp.frontend.jit import Options
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.graph import Func, broadcast, cast, full, reshape
from tcomp.ir.interp.graph import run
from tcomp.ir.ops import apply, constant, parameter
from tcomp.ir.printer import print_module

EDGES = {"i8": (-128, 127), "u8": (0, 255)}
SIZES = [(1, 8, 8), (3, 17, 9), (14, 64, 64), (37, 33, 100), (65, 70, 131), (8, 512, 1027)]


def numbers(kind: str, *shape: int, seed: int = 0) -> np.ndarray:
    """Bytes, the extreme ones frequent."""
    rng = np.random.default_rng(seed)
    low, high = EDGES[kind]
    out = rng.integers(low, high + 1, shape)
    return np.where(rng.random(shape) < 0.2, rng.choice([low, high], shape), out).astype(dt.to_numpy(dt.ALL[kind]))


def product(a, b):
    """dot of matrices as i32."""
    return apply("dot", cast(a, dt.i32), cast(b, dt.i32), batch=((), ()), contract=((1,), (0,)))


def exact(func: Func, *arrays: np.ndarray, words: int = 1, target: str = "cpu") -> None:
    """Fail unless compiled code is exact, and multiplies words in so many kernels."""
    options, row = Options(target=target), machine_for(target)[0].words()
    text = print_module(stages_of(func, options)["tile"])
    assert len({line for line in text.split("kernel @") if row is not None and f"@{row.name}" in line}) == (words if row else 0)
    got = Compiler(use_cache=False)(func, options).run({p["name"]: a for p, a in zip(func.params, arrays)})
    for x, want in zip(got.values(), run(func, list(arrays)), strict=True):
        assert x.dtype == want.dtype
        np.testing.assert_array_equal(x, want)


KINDS = pytest.mark.parametrize("kinds", [("i8", "i8"), ("u8", "i8"), ("i8", "u8"), ("u8", "u8")], ids=str)


@KINDS
@pytest.mark.parametrize("m, n, k", SIZES)
def test_signs_and_tails(kinds, m, n, k):
    a, b = numbers(kinds[0], m, k), numbers(kinds[1], k, n, seed=1)
    x, y = parameter("x", dt.ALL[kinds[0]], a.shape), parameter("y", dt.ALL[kinds[1]], b.shape)
    exact(Func("f", (x, y), (product(x, y), product(x, constant(b))), ("p", "q")), a, b, words=2)


@KINDS
@pytest.mark.parametrize("target", ["cpu:x86-64-v3", "cpu:x86-64-v4"])
@pytest.mark.skipif("avx512bw" not in machine_for("cpu")[0].features, reason="the target's code runs here")
def test_instructions_of_other_machines(kinds, target):
    a, b = numbers(kinds[0], 15, 83), numbers(kinds[1], 83, 50, seed=1)
    x, y = parameter("x", dt.ALL[kinds[0]], a.shape), parameter("y", dt.ALL[kinds[1]], b.shape)
    exact(Func("f", (x, y), (product(x, y),), ("p",)), a, b, target=target)


@pytest.mark.parametrize("sizes", [(1, 8, 8), (5, 16, 33), (40, 70, 130), (1, 9, 0)])
def test_sizes_known_only_when_it_runs(sizes):
    """k of a word, two or three bytes more, and none."""
    m, n, k = (index.symbol(s) for s in ("rows", "columns", "depth"))
    x, y = parameter("x", dt.u8, (m, k)), parameter("y", dt.i8, (k, n))
    a, b = numbers("u8", sizes[0], sizes[2]), numbers("i8", sizes[2], sizes[1])
    exact(Func("f", (x, y), (product(x, y),), ("p",)), a, b)


def test_zero_points():
    """Numbers subtracted from either operand: a known one, one of the inputs, one inside known weights; the product is one."""
    a, b = numbers("u8", 9, 40), numbers("u8", 40, 24)
    x, zero = parameter("x", dt.u8, a.shape), parameter("zero", dt.u8, ())
    wide = apply("sub", cast(x, dt.i32), broadcast(cast(zero, dt.i32), a.shape, ()))
    known = apply("sub", cast(x, dt.i32), full(77, dt.i32, a.shape))
    weights = constant(b.astype(np.int32) - 133)
    dots = [apply("dot", v, weights, batch=((), ()), contract=((1,), (0,))) for v in (wide, known)]
    exact(Func("f", (x, zero), tuple(dots), ("p", "q")), a, np.uint8(200))


def test_operands_that_lie_otherwise():
    """A transposed first operand is copied into rows; a batch; a second operand contiguous along k."""
    a, b = numbers("u8", 3, 21, 10), numbers("i8", 3, 18, 21)
    x, y = parameter("x", dt.u8, a.shape), parameter("y", dt.i8, b.shape)
    dot = apply("dot", cast(x, dt.i32), cast(y, dt.i32), batch=((0,), (0,)), contract=((1,), (2,)))
    exact(Func("f", (x, y), (dot,), ("p",)), a, b)


@pytest.mark.parametrize("kind", ["i8", "u8"])
@pytest.mark.parametrize(
    "window, strides, dilations", [((3, 3), (1, 1), (1, 1)), ((1, 1), (1, 1), (1, 1)), ((2, 3), (2, 1), (1, 2))]
)
def test_convolutions(kind, window, strides, dilations):
    """Padding is by the zero point, which is an input."""
    a, w = numbers(kind, 2, 9, 10, 9), numbers("i8", *window, 9, 19)
    x, zero = parameter("x", dt.ALL[kind], a.shape), parameter("zero", dt.ALL[kind], ())
    wide = apply("sub", cast(x, dt.i32), broadcast(cast(zero, dt.i32), a.shape, ()))
    padded = apply("pad", wide, full(0, dt.i32), low=(0, 1, 2, 0), high=(0, 1, 0, 0))
    weights = constant(w.astype(np.int32))
    conv = apply("conv", padded, weights, strides=strides, dilations=dilations, groups=1)
    exact(Func("f", (x, zero), (conv,), ("p",)), a, np.asarray(37, a.dtype))


@pytest.mark.parametrize("m", [1, 4, 40])
@pytest.mark.parametrize("n", [64, 77])
def test_weights_are_dequantised_as_they_are_taken(m, n):
    """Groups of 16 rows share a scale; nothing of the size of the weights is stored."""
    rng = np.random.default_rng(2)
    q, scale = rng.integers(0, 16, (160, n)).astype(np.uint8), rng.random((10, n)).astype(np.float32)
    x, w, s = parameter("x", dt.f32, (m, 160)), parameter("w", dt.u8, q.shape), parameter("s", dt.f32, scale.shape)
    wide = apply("sub", cast(reshape(w, (10, 16, n)), dt.f32), full(8, dt.f32, (10, 16, n)))
    scaled = reshape(apply("mul", wide, broadcast(s, (10, 16, n), (0, 2))), (160, n))
    func = Func("f", (x, w, s), (apply("dot", x, scaled, batch=((), ()), contract=((1,), (0,))),), ("y",))
    if m > 1:  # one row is a reduction
        assert len(stages_of(func, Options())["tile"].kernels) == 1
    a = rng.standard_normal((m, 160)).astype(np.float32)
    got = Compiler(use_cache=False)(func, Options()).run({"x": a, "w": q, "s": scale})["y"]
    np.testing.assert_allclose(got, a @ ((q.astype(np.float32) - 8) * np.repeat(scale, 16, 0)), rtol=1e-4, atol=1e-4)


@KINDS
@pytest.mark.parametrize("hidden", [(), ("avx512vnni",), ("avx512vnni", "avxvnni"), ("avx512vnni", "avxvnni", "avx512bw")])
def test_every_instruction(kinds, hidden, monkeypatch):
    """What this machine has, and what it would use without."""
    machine, target = machine_for("cpu")
    less = replace(machine, features=machine.features - set(hidden), family="fma256" if hidden else machine.family)
    if less.words() is None:
        pytest.skip("no products of bytes on this machine")
    monkeypatch.setattr(driver, "machine_for", lambda name: (less, target))
    a, b = numbers(kinds[0], 15, 83), numbers(kinds[1], 83, 50, seed=1)
    x, y = parameter("x", dt.ALL[kinds[0]], a.shape), parameter("y", dt.ALL[kinds[1]], b.shape)
    func = Func("f", (x, y), (product(x, y),), ("p",))
    modules = stages_of(func, Options())
    assert f"@{less.words().name}" in print_module(modules["tile"])
    got = link(driver.artifact_of(modules, Options())).run({"x": a, "y": b})["p"]
    np.testing.assert_array_equal(got, a.astype(np.int32) @ b.astype(np.int32))
