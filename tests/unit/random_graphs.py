"""Modules of random GRAPH functions, inputs for them, and the check that a pass kept their meaning.

Values are small integers, exact in every dtype used, so that sums in any order agree.
"""

from collections.abc import Sequence

import numpy as np

from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.graph import Func
from tcomp.ir.interp.graph import run
from tcomp.ir.loc import Loc, Locs
from tcomp.ir.module import Module
from tcomp.ir.node import Node
from tcomp.ir.ops import parameter
from tcomp.testing.generate import M, N, Program, generate
from tcomp.testing.makers import FAMILIES

SIZED = parameter("sizes", dt.f32, (N, M))  # binds the symbols, whatever else there is
DTYPES = (dt.f32, dt.f32, dt.f32, dt.f16, dt.bf16, dt.i32, dt.i8, dt.u8, dt.u32, dt.i64, dt.bool_)
SIZES = tuple({"n": n, "m": m} for n, m in ((2, 3), (1, 2), (0, 3), (3, 1), (1, 1)))


def module_of(*results: Node, params: tuple[Node, ...] | None = None) -> Module:
    """A module whose function has these results; every node gets a place of its own."""
    func = Func("f", (), results, tuple(f"r{k}" for k in range(len(results))))
    nodes = func.nodes()
    if params is None:
        params = (SIZED, *(n for n in nodes if n.op == "parameter" and n is not SIZED))
    locs = Locs()
    for k, n in enumerate(nodes):
        locs.add(n, Loc("user.py", k + 1))
    return Module("graph", "f", Func("f", params, results, func.result_names, locs))


def random_program(seed: int, steps: int = 12, families: str = "pmrc") -> Program:
    """A random function. families: p(ointwise), m(ovement), t(ransposes), r(eductions), c(ontractions); one named twice comes
    twice as often."""
    names = {name[0]: makers for name, makers in FAMILIES.items()}
    return generate(seed, steps, "exact", DTYPES, tuple(maker for f in families for maker in names[f]))


def random_module(program: Program) -> Module:
    """The module of a random function, every node at a place of its own."""
    return module_of(*program.func.results, params=program.func.params)


def values_for(p: Node, sizes: dict[str, int], rng: np.random.Generator) -> np.ndarray:
    shape = [index.evaluate(d, sizes) for d in p.type.shape]
    if p.type.dtype == dt.bool_:
        return rng.integers(0, 2, shape) > 0
    return rng.integers(0 if p.type.dtype.kind == "uint" else -3, 4, shape).astype(dt.to_numpy(p.type.dtype))


def results(module: Module, *arrays: np.ndarray) -> list[np.ndarray]:
    """The results of a module of `module_of` on these arrays."""
    return run(module.func, [np.zeros((1, 1), np.float32), *arrays])


def same(a: np.ndarray, b: np.ndarray, bitwise: bool = False) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    x, y = (v.astype(np.float64) if v.dtype.kind not in "biu" else v for v in (a, b))
    if x.dtype == np.float64 and bitwise and not np.array_equal(np.signbit(x[x == 0]), np.signbit(y[y == 0])):
        return False
    return bool(np.array_equal(x, y, equal_nan=x.dtype == np.float64))


def check_same(
    before: Module, after: Module, sizes: dict[str, int], bitwise: bool = False, program: Program | None = None
) -> None:
    """Both functions give the same results on one set of inputs, those of the program where there is one."""
    assert after.func.params == before.func.params and after.func.result_names == before.func.result_names
    assert [r.type for r in after.func.results] == [r.type for r in before.func.results]
    inputs: Sequence[np.ndarray]
    if program is None:
        rng = np.random.default_rng(0)
        inputs = [values_for(p, sizes, rng) for p in before.func.params]
    else:
        inputs = program.inputs(sizes)
    for k, (a, b) in enumerate(zip(run(before.func, inputs), run(after.func, inputs))):
        assert same(a, b, bitwise), f"result {k} at {sizes}:\n{a}\nbecame\n{b}"
