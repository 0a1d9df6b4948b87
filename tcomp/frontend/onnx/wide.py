"""Operators with a function body that are one operation all the same: 16-bit floats are computed in f32, and rounded once.

Their bodies would round every step. In f32 attention is a chain of dependent reductions that run in one pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tcomp.ir import dtype as dt
from tcomp.ir.graph import cast
from tcomp.ir.node import Node

ONE_OPERATION = frozenset({"Attention"})


def widened(schema: Any, inputs: Sequence[Any]) -> list[Any]:
    """The operands of a node as its body computes on them."""
    if schema.name not in ONE_OPERATION:
        return list(inputs)
    return [cast(x, dt.accumulator(x.type.dtype)) if isinstance(x, Node) and x.type.dtype.is_float else x for x in inputs]


def rounded(schema: Any, inputs: Sequence[Any], results: Sequence[Any]) -> list[Any]:
    """The body's results in the dtypes that the schema gives them: those of the operands with the same type variable."""
    if schema.name not in ONE_OPERATION:
        return list(results)
    named = {p.type_str: x.type.dtype for p, x in zip(schema.inputs, inputs) if isinstance(x, Node)}
    return [cast(r, named[p.type_str]) if isinstance(r, Node) else r for p, r in zip(schema.outputs, results)]
