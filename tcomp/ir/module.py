"""`Module`: what passes map to what passes; it says which stage it is in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tcomp.errors import Error
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
        """The kernel of this name, which is one of the module's."""
        return next(k for k in self.kernels if k.name == name)

    def require(self, stage: str, user: str) -> None:
        """TC0401 unless the module is at this stage. user: the pass that takes it."""
        if self.stage != stage:
            raise Error("TC0401", f"{user} of a module at stage {self.stage}", f"stage {stage}")

    def graph(self, user: str) -> Func:
        """The function of a module at stage GRAPH; TC0401 for another. user: who asks for it."""
        self.require("graph", user)
        if self.func is None:
            raise Error("TC0401", f"{user} of a module without a function", "a function")
        return self.func
