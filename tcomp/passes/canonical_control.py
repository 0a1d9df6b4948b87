"""Rules of `canonicalise` for control flow that is decided: a branch under a known condition, a loop without turns."""

from __future__ import annotations

from tcomp.ir.graph import full
from tcomp.ir.node import Node, rewrite
from tcomp.ir.region import Region
from tcomp.passes.normal import Normaliser, Rules


def known_branch(n: Node, m: Normaliser) -> Node | None:
    """A result of the side that a constant picks, computed in place."""
    source = n.operands[0]
    if source.op != "cond" or source.operands[0].op != "constant":
        return None
    region: Region = source["then"] if source.operands[0]["value"].array.reshape(())[()] else source["orelse"]
    if region.sizes or "gives" in dict(source.attrs):
        return None  # whoever binds the sizes would have to know of those inside
    values = dict(zip(region.params, source.operands[1:], strict=True))
    (result,) = rewrite([region.results[n["index"]]], lambda old, operands: values.get(old) or m.change(old, operands))
    return result


def no_turns(n: Node, m: Normaliser) -> Node | None:
    """What a loop without turns began with; nothing collected."""
    source = n.operands[0]
    if source.op != "loop" or source["extent"] != 0 or "gives" in dict(source.attrs):
        return None
    k: int = n["index"]
    if k < source["carried"]:
        return source.operands[k]
    return m.normal(full(0, n.type.dtype, n.type.shape))


CONTROL_RULES: Rules = {"item": (known_branch, no_turns)}
