"""What TCOMP_CHECK asks for after every pass: 1 the rules of the stage, 2 the round trip of its text, 3 equal meaning.

At level 3 the module before and the module after a pass are run by the interpreters on the same random inputs. Results must be
equal but for rounding: products and sums may have been reassociated. A fault of the call (an index out of range) must be the
same on both sides.
"""

from __future__ import annotations

import numpy as np

from tcomp import knobs
from tcomp.errors import Error
from tcomp.ir import index
from tcomp.ir.dtype import to_numpy
from tcomp.ir.interp import graph as graph_interp
from tcomp.ir.interp import tile as tile_interp
from tcomp.ir.module import Module
from tcomp.ir.node import Dim
from tcomp.ir.parser import parse
from tcomp.ir.printer import large_constants, print_module
from tcomp.ir.types import TensorType
from tcomp.ir.verify import verify

SIZES = (3, 8)  # what a symbolic dimension is in a trial, or its next multiple; the next where the program refuses the first
TOLERANCE = 1e-4  # of the largest magnitude of a result


def check(name: str, before: Module, after: Module) -> None:
    """Check what pass `name` made of `before`. Raises TC0302 where a rule is broken, TC0001 where text or meaning is lost."""
    level = knobs.CHECK.read()
    if level >= 1:
        verify(after)
    if level >= 2:
        check_text(name, after)
    if level >= 3:
        check_meaning(name, before, after)


def check_text(name: str, module: Module) -> None:
    """TC0001 unless the text of `module` gives the same text again."""
    text = print_module(module)
    if print_module(parse(text, large_constants(module))) != text:
        raise Error("TC0001", f"the text of the module after `{name}` does not survive a round trip")


def check_meaning(name: str, before: Module, after: Module, seed: int = 0) -> None:
    """TC0001 unless both modules give the same results on random inputs."""
    for size in SIZES:
        inputs = random_inputs(before, np.random.default_rng(seed), size)
        one, two = outcome(before, inputs), outcome(after, inputs)
        if one != "TC0605" or two != "TC0605":
            break
    if isinstance(one, str) or isinstance(two, str):
        same = one == two
    else:
        same = len(one) == len(two) and all(close(a, b) for a, b in zip(one, two))
    if not same:
        raise Error("TC0001", f"the pass `{name}` changes the meaning of {before.name}: {difference(one, two)}")


def outcome(module: Module, inputs: list[np.ndarray]) -> list[np.ndarray] | str:
    """The results, or the code of the error of the call."""
    try:
        if module.stage == "graph":
            return graph_interp.run(module.graph("a trial"), inputs)
        return tile_interp.run_main(module, inputs)
    except Error as e:
        return e.code


def random_inputs(module: Module, rng: np.random.Generator, size: int) -> list[np.ndarray]:
    """One array for each input: floats of a normal distribution, integers from 0 to 2."""
    if module.stage == "graph":
        types = [p.type for p in module.graph("a trial").params]
    else:
        assert module.main is not None
        types = [TensorType(b.dtype, b.shape) for b in module.main.inputs]
    return [_random(t, rng, size) for t in types]


def _random(t: TensorType, rng: np.random.Generator, size: int) -> np.ndarray:
    shape = tuple(_size(d, size) for d in t.shape)
    if t.dtype.is_float:
        return rng.standard_normal(shape).astype(to_numpy(t.dtype))
    return rng.integers(0, 2 if t.dtype.kind == "bool" else 3, shape).astype(to_numpy(t.dtype))


def _size(d: Dim, size: int) -> int:
    """A trial size that the symbols' bounds allow."""
    return index.evaluate(d, {s["name"]: index.nearest(s, size) for s in index.symbols([d])})


def close(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal shapes, dtypes, integers, NaN and infinities; floats within `TOLERANCE` of the largest, or what f16 rounds away."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind in "biu":
        return bool(np.array_equal(a, b))
    x, y = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(x)
    if not np.array_equal(x[~finite], y[~finite], equal_nan=True):
        return False
    scale = float(np.max(np.abs(x[finite]), initial=0.0)) or 1.0
    return bool(np.all(np.abs(x[finite] - y[finite]) <= scale * (TOLERANCE if a.dtype.itemsize > 2 else 2e-2)))


def difference(one: list[np.ndarray] | str, two: list[np.ndarray] | str) -> str:
    """What to tell of two different outcomes."""
    if isinstance(one, str) or isinstance(two, str):
        words = [x if isinstance(x, str) else "results" for x in (one, two)]
        return f"{words[0]} before, {words[1]} after"
    bad = next((k for k, (a, b) in enumerate(zip(one, two)) if not close(a, b)), len(one))
    return f"result {bad} differs"
