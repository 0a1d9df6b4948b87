"""`Call`: runtime routines, written as internal functions of the module."""

from __future__ import annotations

from tcomp.codegen.llvm.writer import Writer
from tcomp.ir.stmts import Call


def call(w: Writer, s: Call) -> None:
    raise NotImplementedError(s.routine)
