"""Compiled code against the interpreter: dtypes, shapes, places of NaN and infinities, integers exactly, floats within a bound.

for fault in differences(generate(seed), compiled):
    print(fault)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tcomp.errors import Error
from tcomp.ir.graph import Func
from tcomp.ir.interp.graph import run
from tcomp.testing.generate import Program

# Units in the last place of what is approximated, by dtype: relative, beside the smallest normal number
_RELATIVE = {"float64": 2e-14, "float32": 2e-6, "float16": 2e-3, "bfloat16": 1.6e-2}
_SMALLEST = {"float64": 3e-308, "float32": 2e-38, "float16": 6.2e-5, "bfloat16": 2e-38}

OUT_OF_RANGE = "TC0604"

Compiled = Callable[..., object]  # arrays in, one array or a tuple out
Compile = Callable[[Func], Compiled]


@dataclass(frozen=True, slots=True)
class Difference:
    """Where compiled code and the interpreter disagree."""

    seed: int
    sizes: tuple[tuple[str, int], ...]
    what: str

    def __str__(self) -> str:
        return f"seed {self.seed} at {dict(self.sizes)}: {self.what}"


def differences(program: Program, compile: Compile) -> list[Difference]:
    """All differences of a program, compiled once and called at each of its sizes, and again after an error."""
    compiled = compile(program.func)
    found = [(tuple(sizes.items()), what) for sizes in program.sizes for what in _faults(program, compiled, sizes)]
    return [Difference(program.seed, sizes, what) for sizes, what in found]


def _faults(program: Program, compiled: Compiled, sizes: Mapping[str, int]) -> list[str]:
    """What is wrong with one call."""
    arrays = program.inputs(sizes)
    before = [a.copy() for a in arrays]
    want = _outcome(lambda: run(program.func, arrays))
    got = _outcome(lambda: _listed(compiled(*arrays)))
    faults = _compare_outcomes(program, want, got)
    if any(a.tobytes() != b.tobytes() for a, b in zip(arrays, before)):
        faults.append("an input was written to")
    return faults


Outcome = list[np.ndarray] | str


def _outcome(call: Callable[[], list[np.ndarray]]) -> Outcome:
    """The results of a call, or the code of its error."""
    try:
        return call()
    except Error as e:
        return e.code


def _listed(results: object) -> list[np.ndarray]:
    return [np.asarray(r) for r in (results if isinstance(results, tuple) else (results,))]


def _compare_outcomes(program: Program, want: Outcome, got: Outcome) -> list[str]:
    if want == OUT_OF_RANGE and not isinstance(got, str):
        return []  # what the results do not need is not computed, faults included
    if isinstance(want, str) or isinstance(got, str):
        return [] if isinstance(want, str) and isinstance(got, str) and want == got else [f"{_show(got)}, expected {_show(want)}"]
    return compare(want, got, program.func.result_names, program.approximate)


def _show(outcome: Outcome) -> str:
    return outcome if isinstance(outcome, str) else "results"


def compare(
    want: Sequence[np.ndarray], got: Sequence[np.ndarray], names: Sequence[str], approximate: frozenset[str] = frozenset()
) -> list[str]:
    """How results differ from those wanted; of those in `approximate` floats may be a few units in the last place off."""
    faults = []
    for name, a, b in zip(names, want, got, strict=True):
        if a.dtype != b.dtype or a.shape != b.shape:
            faults.append(f"{name} is {b.dtype}{list(b.shape)}, expected {a.dtype}{list(a.shape)}")
            continue
        wrong = ~_agree(a, b, name in approximate)
        if wrong.any():
            place = tuple(int(k) for k in np.argwhere(wrong)[0])
            count = int(wrong.sum())
            faults.append(f"{name}{list(place)} is {b[place]!r}, expected {a[place]!r} ({count} of {a.size} elements differ)")
    return faults


def _agree(want: np.ndarray, got: np.ndarray, approximate: bool) -> np.ndarray:
    """Element by element: equal, both NaN, or near enough."""
    if want.dtype.kind in "biu":
        return np.asarray(want == got)
    with np.errstate(all="ignore"):
        a, b = want.astype(np.float64), got.astype(np.float64)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        if not approximate:
            return np.asarray(same)
        allowed = _RELATIVE[want.dtype.name] * np.abs(a) + _SMALLEST[want.dtype.name]
        return np.asarray(same | (np.isfinite(a) & np.isfinite(b) & (np.abs(a - b) <= allowed)))
