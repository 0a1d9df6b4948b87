"""`layout`: transposes meet and cancel.

Takes and gives a GRAPH of the same meaning, brought to the normal form of `canonicalise`. Convolutions are channels-last; models
that are not wrap them in transposes, which this pass moves towards the results, past pointwise operations, reductions, scans,
concatenations, padding, slices, windows and gathers, until they meet their inverse, an operation that needs the order, or the
results. Products take operands in any order of axes, so transposes of their operands are absorbed.

Where operands come in different orders, the order of most bytes is kept, and the others are transposed to it. Where a value is
needed in both orders, work on it is not transposed once more (`untransposing.py`). Should the sum of bytes that are transposed
grow all the same (it can where an order is kept that nobody needs), the program is left as it was.

    y = transpose(conv(..), (0, 3, 1, 2));  z = transpose(relu(y + b[:, None, None]), (0, 2, 3, 1));  conv(z, ..)
    ->  z = relu(conv(..) + b);  conv(z, ..)
"""

from __future__ import annotations

from tcomp.ir import index
from tcomp.ir.module import Module
from tcomp.ir.node import Node
from tcomp.ir.region import deep_walk
from tcomp.passes.canonicalise import CANONICAL_RULES, canonicalise
from tcomp.passes.normal import Normaliser, joined
from tcomp.passes.rebuild import rebuilt
from tcomp.passes.transposing import TRANSPOSING_RULES, after_transpose
from tcomp.passes.untransposing import untransposed

LAYOUT_RULES = joined(CANONICAL_RULES, TRANSPOSING_RULES, {"pointwise": (after_transpose,)})


def layout(module: Module) -> Module:
    """`module` with as few bytes transposed as sinking transposes gives."""
    before = canonicalise(module)
    after = rebuilt(before, Normaliser(LAYOUT_RULES).change)
    plain = Normaliser(CANONICAL_RULES)
    return min((after, untransposed(after, plain), untransposed(before, plain)), key=transposed_bytes)


def transposed_bytes(module: Module) -> int:
    """How many bytes of computed values and parameters the program transposes."""
    nodes = deep_walk(module.graph("`layout`").results)
    return sum(_size(n) for n in nodes if n.op == "transpose" and n.operands[0].op != "constant")


def _size(n: Node) -> int:
    total = n.type.dtype.bytes
    for d in n.type.shape:
        total *= index.likely(d)
    return int(total)
