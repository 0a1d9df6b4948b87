"""`sized`: a GRAPH function for some of the sizes it was written for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tcomp.ir import index
from tcomp.ir.graph import Func
from tcomp.ir.index import INDEX
from tcomp.ir.loc import Locs
from tcomp.ir.node import Dim, Node, rewrite
from tcomp.ir.ops import OPS, apply, parameter
from tcomp.ir.ops.table import CONTROL


def may_be_sized(func: Func) -> bool:
    """Whether `sized` takes a function: one without control flow, whose sizes are all known before a call."""
    return not func.sizes and all(OPS[n.op].kind != CONTROL for n in func.nodes())


def sized(func: Func, values: Mapping[Node, Dim]) -> Func:
    """`func` with its symbols `values` replaced: by sizes, or by symbols of narrower bounds. Places follow. Raises `Error` where
    an operation does not fit these sizes."""
    locs = Locs()

    def change(old: Node, operands: tuple[Node, ...]) -> Node:
        if old.op == "parameter":
            shape = tuple(index.substitute(d, values) for d in old.type.shape)
            new = parameter(old["name"], old.type.dtype, shape)
        else:
            new = apply(old.op, *operands, **{key: _with(v, values) for key, v in old.attrs})
        locs.add(new, *func.locs.of(old))
        return new

    roots = rewrite((*func.params, *func.results), change)
    count = len(func.params)
    return replace(func, params=roots[:count], results=roots[count:], locs=locs, others=())


def _with(value: Any, values: Mapping[Node, Dim]) -> Any:
    """An attribute with its index expressions replaced."""
    if isinstance(value, Node) and value.type is INDEX:
        return index.substitute(value, values)
    return tuple(_with(v, values) for v in value) if isinstance(value, tuple) else value
