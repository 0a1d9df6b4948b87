"""`canonicalise`: one way to write what means the same, and nothing between operations that could share a kernel.

Takes and gives a GRAPH, of the same meaning bit for bit. It changes no sum, product or convolution and no order of floating-point
operations.
* Movements compose and vanish where they move nothing; padding, slices and concatenations likewise.
* What is repeated is computed before it is repeated; axes of size 1 are no operand's of a broadcast; `iota` has one axis.
* Reshapes move towards the results, past pointwise operations, reductions and broadcasts.
* Pointwise identities that hold for all values, and lossless casts, go. Equal values are one node anyway, unused ones are gone.

    m = reduce max x[n, c] axes (1);  k = reshape m [n, 1];  y = x - broadcast(k, [n, c], axes (0, 1))
    ->  m = reduce max x[n, c] axes (1);  y = x - broadcast(m, [n, c], axes (0))

A reshape that its symbols do not prove (the model asserts it) stays where it is.

It ends, because a rule's answer is smaller in this order: elements computed by pointwise operations; the number of operations;
broadcasts, then reshapes, by their distance to the results; elements that transposes and slices move; axes of operands.
"""

from __future__ import annotations

from tcomp.ir.module import Module
from tcomp.passes.canonical_control import CONTROL_RULES
from tcomp.passes.canonical_domain import after_reshape, before_repeating, reduce_after_reshape, reduce_of_units
from tcomp.passes.canonical_movement import MOVEMENT_RULES
from tcomp.passes.canonical_pointwise import POINTWISE_RULES
from tcomp.passes.normal import Normaliser, joined
from tcomp.passes.rebuild import rebuilt

CANONICAL_RULES = joined(
    MOVEMENT_RULES,
    POINTWISE_RULES,
    CONTROL_RULES,
    {"pointwise": (before_repeating, after_reshape), "reduce": (reduce_of_units, reduce_after_reshape)},
)


def canonicalise(module: Module) -> Module:
    """`module` in normal form."""
    return rebuilt(module, Normaliser(CANONICAL_RULES).change)
