"""What algebra gains on models: predicted by saturation's own cost, and measured, with it beside without it.

    python tests/bench/algebra.py MODEL.onnx ... [--seconds 2] [--dim NAME=SIZE] [--artifacts DIR] [--json FILE]

Each model is compiled twice, with TCOMP_ALGEBRA=1 and 0, and both run on the same inputs in bursts that take turns; the ratio is
the median over pairs of neighbouring bursts, above 1 where algebra is faster, 1 where both are the same code. Inputs are the
arrays `in:NAME` of `MODEL.golden.npz` where that stands beside the model, else random. --artifacts keeps what was compiled in a
folder, and takes it from there later. Exit code 1 where a model is slower than 0.95 of what it is without, results differ by more
than 1e-3 of the largest magnitude, or a window took more than its budget.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tcomp
from tcomp.cli.algebra import paired, predicted_gain, ratio_of
from tcomp.cli.bench import largest_gap
from tcomp.cli.model import make_inputs
from tcomp.passes.egraph.schedule import Budget
from tcomp.passes.egraph.worker import MEMORY, PROCESSOR

LEAST, GAP = 0.95, 1e-3
COLUMNS = (
    "model",
    "windows",
    "changed",
    "predicted",
    "measured",
    "gap",
    "e-nodes",
    "rows",
    "seconds",
    "MiB",
    "ended by",
)


@dataclass(frozen=True, slots=True)
class Row:
    """predicted, measured: time without over time with algebra.

    seconds (of the worker's processor), memory, enodes, rows: of the worst window.
    """

    model: str
    windows: int
    changed: int
    predicted: float
    measured: float
    gap: float
    enodes: int
    rows: int
    seconds: float
    memory: int
    why: dict[str, int]

    def faults(self) -> list[str]:
        """What breaks a promise."""
        budget = Budget()
        within = self.enodes <= budget.nodes and self.rows <= budget.rows and self.seconds <= PROCESSOR and self.memory <= MEMORY
        found = {
            f"{self.measured:.2f}x of the speed without algebra": self.measured >= LEAST,
            f"results differ by {self.gap:.1e}": self.gap <= GAP,
            "a window outside of its budget": within,
            "a window without an answer": not any(name.startswith("no answer") for name in self.why),
        }
        return [text for text, holds in found.items() if not holds]

    def cells(self) -> list[str]:
        """As one line of the table."""
        why = " ".join(f"{name}:{count}" for name, count in sorted(self.why.items()))
        times = f"{self.predicted:.3f}", f"{self.measured:.3f}", f"{self.gap:.0e}"
        worst = str(self.enodes), str(self.rows), f"{self.seconds:.2f}", str(self.memory >> 20), why
        return [self.model, str(self.windows), str(self.changed), *times, *worst]


def compiled(model: Path, on: bool, dims: Mapping[str, int], folder: Path | None) -> Any:
    """The program with or without algebra."""
    kept = folder / f"{model.parent.name}-{model.stem}-{'with' if on else 'without'}.tcomp" if folder else None
    if kept is not None and kept.exists():
        return tcomp.load(kept)
    os.environ["TCOMP_ALGEBRA"] = str(int(on))
    program = tcomp.compile(str(model), dims=dims, use_cache=False)
    if kept is not None:
        program.save(str(kept))
    return program


def inputs_of(model: Path, program: Any, dims: Mapping[str, int]) -> dict[str, np.ndarray]:
    golden = model.with_suffix(".golden.npz")
    if golden.exists():
        with np.load(golden, allow_pickle=False) as arrays:
            return {name[3:]: arrays[name] for name in arrays.files if name.startswith("in:")}
    return make_inputs(program.inputs, {}, dims, 0, frozenset(name for name, _ in program.artifact.defaults))


def measured(model: Path, seconds: float, dims: Mapping[str, int], folder: Path | None) -> Row:
    """Both programs of a model, run beside each other."""
    on, off = compiled(model, True, dims, folder), compiled(model, False, dims, folder)
    inputs = inputs_of(model, on, dims)
    results = [[program.run(inputs)[p.name] for p in on.outputs] for program in (on, off)]
    same = on.artifact.objects == off.artifact.objects
    ratio = 1.0 if same else ratio_of(*paired(lambda: on.run(inputs), lambda: off.run(inputs), seconds))
    windows: Any = on.report()["algebra"]
    return Row(
        model=f"{model.parent.name}/{model.stem}",
        windows=len(windows),
        changed=sum(w["changed"] for w in windows),
        predicted=predicted_gain(windows),
        measured=ratio,
        gap=largest_gap(*results),
        enodes=max((w["enodes"] for w in windows), default=0),
        rows=max((w["rows"] for w in windows), default=0),
        seconds=max((w["processor"] for w in windows), default=0.0),
        memory=max((w["memory"] for w in windows), default=0),
        why=dict(Counter(f"no answer: {w['why']}" if w["kept"] == "no answer" else w["why"] for w in windows)),
    )


def dims_of(texts: Sequence[str]) -> dict[str, int]:
    pairs = (text.partition("=") for text in texts)
    return {name: int(size) for name, _, size in pairs}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--seconds", type=float, default=2.0, help="of calls, for each of the two programs")
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=SIZE")
    parser.add_argument("--artifacts", type=Path)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.artifacts:
        args.artifacts.mkdir(parents=True, exist_ok=True)
    print(" | ".join(COLUMNS), flush=True)
    rows = []
    for model in args.models:
        rows.append(measured(model, args.seconds, dims_of(args.dim), args.artifacts))
        print(" | ".join(rows[-1].cells()), *(f"<- {fault}" for fault in rows[-1].faults()), flush=True)
    if args.json:
        args.json.write_text(json.dumps([asdict(r) for r in rows], indent=1))
    return int(any(r.faults() for r in rows))


if __name__ == "__main__":
    sys.exit(main())
