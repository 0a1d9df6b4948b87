"""`Module`: what passes map to what passes; it says which stage it is in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tcomp.ir.graph import Func
from tcomp.ir.stmts import Kernel, Main

STAGES = ("graph", "tile", "placed", "reg")


@dataclass(frozen=True, eq=False)
class Module:
    """A program at one stage. At `graph` only `func` counts; from `tile` on, `kernels` and `main`.

    constants: the values of main's constant buffers, by name, row-major (a kernel's packing is explicit). nodes: what a
    status word's low half numbers (the user's place). realised: how each operation of the graph was realised, for the report.
    algebra: what became of each window that was saturated, as JSON data, for the report. cascades: which dependent reductions
    became one pass, and why others did not, likewise.
    """

    stage: str
    name: str
    func: Func | None = None
    kernels: tuple[Kernel, ...] = ()
    main: Main | None = None
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()
    realised: tuple[tuple[str, str], ...] = ()
    target: str = "cpu"
    algebra: tuple[dict[str, Any], ...] = ()
    cascades: tuple[dict[str, Any], ...] = ()

    def kernel(self, name: str) -> Kernel:
        return next(k for k in self.kernels if k.name == name)
