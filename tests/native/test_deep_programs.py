"""Programs deeper than Python's stack, and expressions with exponentially many paths: compiled in time, and right."""

import sys

import numpy as np
import pytest

from tcomp.api import Compiler
from tcomp.frontend.jit import Jit, Options
from tcomp.passes.fusion import DEEPEST

X = np.linspace(-2, 2, 5 * 33, dtype=np.float32).reshape(5, 33)


pytestmark = pytest.mark.usefixtures("fast_code")


def chain(x, turns, step):
    for k in range(turns):
        x = step(x, np.float32(k))
    return x


STEPS = {
    "pointwise": (lambda x, k: np.maximum(x * np.float32(0.99) - k * np.float32(1e-4), -3), 300),
    "turned": (lambda x, k: (np.abs(x) - np.float32(0.01)).T, 200),
    "reversed": (lambda x, k: x[::-1] * np.float32(0.99), 200),
    "shared": (lambda x, k: x * np.float32(0.5) + x * x * np.float32(0.01), 60),
    "chosen": (lambda x, k: np.where(x > k * np.float32(0.01), x - np.float32(0.01), x + np.float32(0.01)), 150),
    "rows": (lambda x, k: x - x.mean(axis=1, keepdims=True) + np.float32(0.1), 30),
    "padded": (lambda x, k: np.pad(x, ((0, 0), (0, 1)))[:, 1:] + np.float32(0.01), 100),
}


@pytest.mark.parametrize("name", STEPS)
def test_deep_programs(name):
    step, turns = STEPS[name]
    compiled = Jit(lambda x: chain(x, turns, step), Options(), compiler=Compiler(use_cache=False))
    np.testing.assert_allclose(compiled(X), chain(X, turns, step), rtol=1e-3, atol=1e-5)


def test_a_chain_before_a_reduction_and_after():
    def f(x):
        x = chain(x, 40, STEPS["pointwise"][0])
        e = np.exp(x - x.max(axis=1, keepdims=True))
        return chain(e / e.sum(axis=1, keepdims=True), 40, STEPS["pointwise"][0])

    compiled = Jit(f, Options(), compiler=Compiler(use_cache=False))
    np.testing.assert_allclose(compiled(X), f(X), rtol=1e-4, atol=1e-6)


def test_one_kernel_as_long_as_its_chain_is_short(monkeypatch):
    def kernels(operations):
        f = Jit(lambda x: chain(x, operations, lambda x, k: -np.abs(x + k)), Options(), compiler=Compiler(use_cache=False))
        return f.lower(X).text("tile").count("\nkernel ")

    assert kernels(DEEPEST // 3 - 1) == 1
    assert kernels(DEEPEST // 3 + 1) == 2


def test_half_of_pythons_stack_is_enough(monkeypatch):
    monkeypatch.setenv("TCOMP_CHECK", "2")
    depth = sum(1 for _ in iter_frames())
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + 500)
    try:
        step = STEPS["pointwise"][0]
        compiled = Jit(lambda x: chain(x, 50, step), Options(), compiler=Compiler(use_cache=False))
        np.testing.assert_allclose(compiled(X), chain(X, 50, step), rtol=1e-3, atol=1e-5)
    finally:
        sys.setrecursionlimit(before)


def iter_frames():
    frame = sys._getframe()
    while frame is not None:
        yield frame
        frame = frame.f_back
