"""Control flow: `cond` picks one of two regions, `loop` runs one again and again. Their meaning is in `interp/graph.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from tcomp.errors import Error
from tcomp.ir import dtype as dt
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops.table import CONTROL, OpDef, Type, register
from tcomp.ir.region import Region
from tcomp.ir.types import TensorType, TupleType


def _no_reference(*arrays: np.ndarray, **attrs: Any) -> np.ndarray:
    raise AssertionError("the meaning of control flow is in interp/graph.py")


def _types(values: tuple[Node, ...]) -> tuple[TensorType, ...]:
    return tuple(v.type for v in values)


def _require_params(name: str, region: Region, given: tuple[TensorType, ...]) -> None:
    wanted = _types(region.params)
    if wanted != given:
        found = ", ".join(map(str, given))
        raise Error("TC0102", f"`{name}` of ({found})", f"what its region takes: ({', '.join(map(str, wanted))})")


def _require_flag(name: str, t: TensorType) -> None:
    if t != TensorType(dt.bool_, ()):
        raise Error("TC0103", f"`{name}` under a condition of type {t}", "bool[]")


def _infer_cond(pred: TensorType, *captures: TensorType, then: Region, orelse: Region) -> Type:
    _require_flag("cond", pred)
    for region in (then, orelse):
        _require_params("cond", region, captures)
    one, two = _types(then.results), _types(orelse.results)
    if one != two:
        raise Error("TC0102", f"`cond` of regions that give ({', '.join(map(str, one))}) and ({', '.join(map(str, two))})",
                    "equal types")  # fmt: skip
    return TupleType(one)


register(
    OpDef(
        "cond",
        CONTROL,
        None,
        ("then", "orelse"),
        _infer_cond,
        _no_reference,
        "the results of region `then` on the captures where the first operand holds, else those of `orelse`; the other does "
        "not run",
    )
)


def _infer_loop(*operands: TensorType, body: Region, carried: int, extent: Dim | None, counter: Node, conditional: bool) -> Type:
    _require_params("loop", body, operands)
    if extent is None and not conditional:
        raise Error("TC0104", "`loop` without an end", "an extent, or a condition")
    if conditional:
        _require_flag("loop", operands[0] if operands and carried else TensorType(dt.f32, ()))
    results = _types(body.results)
    if results[:carried] != operands[:carried]:
        found, wanted = (", ".join(map(str, types[:carried])) for types in (results, operands))
        raise Error("TC0102", f"`loop` whose body gives ({found})", f"({wanted}), what it carries")
    lines = results[carried:]
    if lines and extent is None:
        raise Error("TC0104", "`loop` that collects values while a condition holds", "a greatest number of steps")
    return TupleType((*results[:carried], *(TensorType(t.dtype, (extent, *t.shape)) for t in lines if extent is not None)))


register(
    OpDef(
        "loop",
        CONTROL,
        None,
        ("body", "carried", "extent", "counter", "conditional"),
        _infer_loop,
        _no_reference,
        "runs `body` for counter = 0, 1, ... below `extent` (none: without bound), on the carried values (the first `carried` "
        "operands, then what the body gave last) and the captures; where `conditional`, while the first carried value holds. "
        "Gives the last carried values, then the body's further results of all steps, along a new first axis (undefined where a "
        "condition ended it before)",
    )
)
