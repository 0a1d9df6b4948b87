"""The op table, assembled from its families. Start with `table.py`."""

from tcomp.ir.ops import control, indexing, movement, pointwise, reduction
from tcomp.ir.ops.indexing import item
from tcomp.ir.ops.movement import Literal, constant, parameter
from tcomp.ir.ops.reduction import MONOIDS
from tcomp.ir.ops.table import OPS, OpDef, apply, having

__all__ = [
    "MONOIDS",
    "OPS",
    "Literal",
    "OpDef",
    "apply",
    "constant",
    "control",
    "having",
    "indexing",
    "item",
    "movement",
    "parameter",
    "pointwise",
    "reduction",
]
