"""Whole register tiles: what a `Let`, a carry or a `Store` needs at once; products and uniform branches at the root."""

from __future__ import annotations

from tcomp.codegen.llvm import dot, values
from tcomp.codegen.llvm.address import condition
from tcomp.codegen.llvm.writer import Tile, Writer
from tcomp.ir.index import as_dim
from tcomp.ir.machine import LANES
from tcomp.ir.node import Node
from tcomp.ir.types import TileType


def evaluate(w: Writer, e: Node, t: TileType | None = None, form: str | None = None) -> Tile:
    """All parts of `e`, broadcast to type `t`, in the given form (its own where none is)."""
    t = t or e.type
    if e.op == "dot":
        acc = evaluate(w, e.operands[2], TileType(e.type.dtype, e.type.shape), "lanes")
        return dot.dot(w, e, acc)
    if e.op == "when":
        return _branches(w, e, t, form)
    form = form or _form_in(w, e, t)
    keys = values.keys_of(values.extents(t), form)
    return Tile(t, form, {k: values.read(w, e, k, form) for k in keys})


def _form_in(w: Writer, e: Node, t: TileType) -> str:
    shape = values.extents(t)
    return values.form_of(w, e) if e.type.shape == t.shape else "scalars" if not shape or shape[-1] % LANES else "lanes"


def _branches(w: Writer, e: Node, t: TileType, form: str | None) -> Tile:
    """Either side in a block of its own, joined part by part."""
    test = condition(w, as_dim(e.operands[0]))
    if isinstance(test, bool):
        return evaluate(w, e.operands[1 if test else 2], t, form)
    shape = values.extents(t)
    form = form or ("scalars" if not shape or shape[-1] % LANES else "lanes")
    names = [w.b.fresh(p) for p in ("then", "else", "joined")]
    landing = w.b.landing()
    w.b.branch_if(test, names[0], names[1])
    got: list[tuple[Tile, str]] = []
    for label, x in zip(names, e.operands[1:]):
        w.b.start(label)
        with w.scope(landing):
            got.append((evaluate(w, x, t, form), w.b.block))
        w.b.branch(names[2])
    w.b.start(names[2])
    kind = values.part_type(t, form)
    (yes, yes_block), (no, no_block) = got
    parts = {k: w.b.value(f"phi {kind} [ {x}, %{yes_block} ], [ {no.parts[k]}, %{no_block} ]") for k, x in yes.parts.items()}
    return Tile(t, form, parts)
