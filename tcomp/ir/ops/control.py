"""Control flow: `cond` picks one of two regions, `loop` runs one again and again. Their meaning is in `interp/graph.py`.

Results whose shape only the regions know have symbols of their own, `gives`, as dimensions: the value of each is a result, too,
and whoever uses such a result binds the symbol to it (`Func.sizes`, `Region.sizes`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from tcomp.errors import Error
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops.table import CONTROL, OpDef, Type, register
from tcomp.ir.region import Region, grown
from tcomp.ir.types import TensorType, TupleType

Types = tuple[TensorType, ...]
SIZE = TensorType(dt.i64, ())


def _no_reference(*arrays: np.ndarray, **attrs: Any) -> np.ndarray:
    raise AssertionError("the meaning of control flow is in interp/graph.py")


def _types(values: tuple[Node, ...]) -> Types:
    return tuple(v.type for v in values)


def _shown(types: Types) -> str:
    return ", ".join(map(str, types))


def _require_params(name: str, region: Region, given: Types) -> None:
    wanted = _types(region.params)
    if wanted != given:
        raise Error("TC0102", f"`{name}` of ({_shown(given)})", f"what its region takes: ({_shown(wanted)})")


def _require_flag(name: str, t: TensorType) -> None:
    if t != TensorType(dt.bool_, ()):
        raise Error("TC0103", f"`{name}` under a condition of type {t}", "bool[]")


def _local(d: Dim, sizes: Collection[Node]) -> bool:
    return not set(sizes).isdisjoint(index.symbols([d]))


# --- cond ----------------------------------------------------------------------------------------------


def _infer_cond(
    pred: TensorType, *captures: TensorType, then: Region, orelse: Region, gives: tuple[Node, ...] = ()
) -> Type:
    _require_flag("cond", pred)
    for region in (then, orelse):
        _require_params("cond", region, captures)
    one, two = _types(then.visible), _types(orelse.visible)
    pairs = differing(one, two, {*then.sizes, *orelse.sizes})
    if pairs is None or len(pairs) != len(gives):
        raise Error("TC0102", f"`cond` of regions that give ({_shown(one)}) and ({_shown(two)})",
                    f"equal types, but for {len(gives)} dimensions")  # fmt: skip
    names = dict(zip(pairs, gives))
    met = [TensorType(a.dtype, tuple(names.get(p, p[0]) for p in zip(a.shape, b.shape))) for a, b in zip(one, two)]
    if any(t != SIZE for t in met[len(met) - len(gives) :]):
        raise Error("TC0104", f"`cond` that gives {len(gives)} sizes with ({_shown(one)})", "their values as the last results")
    return TupleType(tuple(met))


def differing(one: Sequence[TensorType], two: Sequence[TensorType], local: Collection[Node] = ()) -> list[tuple[Dim, Dim]] | None:
    """The pairs of dimensions, each once and in order, in which the types of two sides differ, or which only the sides know; None
    where the types do not go together."""
    if [(t.dtype, t.rank) for t in one] != [(t.dtype, t.rank) for t in two]:
        return None
    pairs = dict.fromkeys(pair for a, b in zip(one, two) for pair in zip(a.shape, b.shape))
    return [(d, e) for d, e in pairs if d != e or _local(d, local)]


register(
    OpDef(
        "cond",
        CONTROL,
        None,
        ("then", "orelse", "gives"),
        _infer_cond,
        _no_reference,
        "the results of region `then` on the captures where the first operand holds, else those of `orelse`; the other does "
        "not run. Pairs of dimensions in which the two differ are the symbols `gives`, whose values are the last results",
    )
)


# --- loop ----------------------------------------------------------------------------------------------


def _infer_loop(
    *operands: TensorType, body: Region, carried: int, extent: Dim | None, counter: Node, conditional: bool,
    gives: tuple[Node, ...] = (),
) -> Type:  # fmt: skip
    sizes = grown(body, carried)
    if len(gives) != len(sizes):
        raise Error("TC0104", f"`loop` that gives {len(gives)} sizes", f"one for each that it carries: {len(sizes)}")
    params = _types(body.params)
    if len(params) != len(operands) or not all(_fits(a, p, sizes) for a, p in zip(operands, params)):
        raise Error("TC0102", f"`loop` of ({_shown(operands)})", f"what its region takes: ({_shown(params)})")
    _require_params("loop", body, (*params[:carried], *operands[carried:]))
    if extent is None and not conditional:
        raise Error("TC0104", "`loop` without an end", "an extent, or a condition")
    if conditional:
        _require_flag("loop", operands[0] if operands and carried else TensorType(dt.f32, ()))
    results = _types(body.visible)
    if len(results) < carried or not all(_fits(r, p, sizes) for r, p in zip(results, params[:carried])):
        found, wanted = _shown(results[:carried]), _shown(params[:carried])
        raise Error("TC0102", f"`loop` whose body gives ({found})", f"({wanted}), what it carries")
    if any(params[k] != SIZE for k in sizes.values()):
        raise Error("TC0103", "`loop` that carries a size of another type", str(SIZE))
    return TupleType((*_last(params[:carried], dict(zip(sizes, gives))), *_collected(results[carried:], extent, body.sizes)))


def _fits(given: TensorType, wanted: TensorType, free: Collection[Node]) -> bool:
    """Whether two types are equal but for dimensions that may be any."""
    same = given.dtype == wanted.dtype and given.rank == wanted.rank
    return same and all(d == e or e in free for d, e in zip(given.shape, wanted.shape))


def _last(params: Types, gives: dict[Node, Node]) -> Types:
    """What a loop ends with: its carried values, their changing dimensions as symbols that are known after it."""
    return tuple(TensorType(t.dtype, tuple(gives.get(d, d) if isinstance(d, Node) else d for d in t.shape)) for t in params)


def _collected(lines: Types, extent: Dim | None, sizes: Collection[Node]) -> Types:
    if lines and extent is None:
        raise Error("TC0104", "`loop` that collects values while a condition holds", "a greatest number of steps")
    if any(_local(d, sizes) for t in lines for d in t.shape):
        raise Error("TC0102", f"`loop` that collects ({_shown(lines)})", "values of one size in all turns")
    return tuple(TensorType(t.dtype, (extent, *t.shape)) for t in lines if extent is not None)


register(
    OpDef(
        "loop",
        CONTROL,
        None,
        ("body", "carried", "extent", "counter", "conditional", "gives"),
        _infer_loop,
        _no_reference,
        "runs `body` for counter = 0, 1, ... below `extent` (none: without bound), on the carried values (the first `carried` "
        "operands, then what the body gave last) and the captures; where `conditional`, while the first carried value holds. "
        "Gives the last carried values, then the body's further results of all steps, along a new first axis (undefined where a "
        "condition ended it before). Carried dimensions that change from turn to turn are sizes of the body whose values are "
        "carried, too; `gives` are the symbols for what they are in the end",
    )
)
