"""What a program's plan computes and moves: exact where sizes are known, an expression of the dimensions where not."""

import math

import pytest

import tcomp
import tcomp.numpy as xp
from tcomp.errors import Error
from tcomp.ir import index as ix
from tcomp.ir.stmts import Branch, Launch, Repeat
from tcomp.ir.work import call_work


def report(f, *specs):
    return tcomp.jit(f).lower(*map(tcomp.spec, specs)).compile().report()


def softmax(s):
    p = xp.exp(s - xp.max(s, axis=-1, keepdims=True))
    return p / xp.sum(p, axis=-1, keepdims=True)


def attention(q, k, v):
    return softmax(q @ k.T) @ v


def causal(q, k, v):
    i = xp.arange(q.shape[0])
    return softmax(xp.where(i[:, None] >= i[None, :], q @ k.T, -math.inf)) @ v


@pytest.mark.parametrize(
    ("f", "specs", "flops", "moved"),
    [
        (lambda a, b: a @ b, ("f32[30, 50]", "f32[50, 70]"), 2 * 30 * 50 * 70, 4 * (30 * 50 + 50 * 70 + 30 * 70)),
        (lambda x: x * x + 1, ("f32[1000]",), 2000, 8000),
        (lambda x: xp.sum(x, axis=-1), ("f32[90, 33]",), 90 * 33, 4 * (90 * 33 + 90)),
    ],
)
def test_counts_are_those_of_the_mathematics(f, specs, flops, moved):
    found = report(f, *specs)
    assert found["flops"] == flops and found["bytes"]["moved"] == moved


@pytest.mark.parametrize("spec", ["f32[20000, 1024]", "f32[n, 1024]"])
def test_loops_in_levels_count_every_turn(spec):
    """A sum in levels adds up one in 64 once more."""
    found = report(lambda x: xp.sum(x, axis=0), spec)["flops"]
    if "n" in spec:
        found = tcomp.compile(lambda x: xp.sum(x, axis=0), tcomp.spec(spec), use_cache=False).report({"n": 20000})["flops"]
    assert 20000 * 1024 <= found <= 20000 * 1024 * 1.02


def test_work_of_symbolic_sums_is_short():
    found = report(lambda x: xp.sum(x, axis=0), "f32[n, 1024]")["flops"]
    assert "1024*n" in found and len(found) < 100


def test_masks_halve_the_work():
    specs = ["f32[1024, 64]"] * 3
    whole, half = report(attention, *specs)["flops"], report(causal, *specs)["flops"]
    assert whole == pytest.approx(4 * 64 * 1024 * 1024, rel=0.04)
    assert half == pytest.approx(whole / 2, rel=0.1)


@pytest.mark.parametrize("f", [attention, causal])
@pytest.mark.parametrize("n", [64, 700, 1024])
def test_symbolic_sizes(f, n):
    said = tcomp.jit(f).lower(*[tcomp.spec("f32[n, 64]")] * 3).compile().report({"n": n})
    known = report(f, *[f"f32[{n}, 64]"] * 3)
    assert said["flops"] == pytest.approx(known["flops"], rel=0.15)
    assert said["bytes"]["moved"] == known["bytes"]["moved"]
    assert all(isinstance(x, int) for _, *row in said["launches"] for x in row)


def test_sizes_that_are_missing():
    exe = tcomp.jit(attention).lower(*[tcomp.spec("f32[n, 64]")] * 3).compile()
    assert isinstance(exe.report()["flops"], str)
    with pytest.raises(Error, match="TC0105"):
        exe.report({"m": 3})


def test_loops_and_branches_of_main():
    n, turn = ix.symbol("n", 0), ix.symbol("turn", 0)
    one, two = (Launch(name, (), (), number) for number, name in enumerate(("a", "b")))
    loop = Repeat(turn, n, None, (one, Branch("c", (one,), (two, two), 2)), 3)
    counted = call_work((one, loop), lambda s: {"a": 5, "b": 4}[s.kernel])
    assert ix.evaluate(counted, {"n": 3}) == 5 + 3 * (5 + 8)
    endless = Repeat(turn, None, "go", (two,), 4)
    assert call_work((endless,), lambda s: 7) == 7
    grows = Repeat(turn, 4, None, (one,), 5)
    assert call_work((grows,), lambda s: ix.add(turn, 1)) == 1 + 2 + 3 + 4
