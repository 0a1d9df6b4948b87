"""The rules of the e-graph, by family. `RULES` holds all of them, each name once."""

from tcomp.passes.egraph.rule import IndexRule
from tcomp.passes.rules.convolution import CONVOLUTION
from tcomp.passes.rules.exponentials import EXPONENTIALS
from tcomp.passes.rules.linear import LINEAR
from tcomp.passes.rules.movement import MOVEMENT
from tcomp.passes.rules.pieces import PIECES
from tcomp.passes.rules.pointwise import POINTWISE
from tcomp.passes.rules.proofs import PROOFS
from tcomp.passes.rules.reductions import REDUCTIONS

FAMILIES: dict[str, tuple[IndexRule, ...]] = {
    "linear algebra": LINEAR,
    "movement": MOVEMENT,
    "pointwise": POINTWISE,
    "exponentials": EXPONENTIALS,
    "reductions": REDUCTIONS,
    "convolution": CONVOLUTION,
    "concatenation": PIECES,
    "proofs": PROOFS,
}
# These move what is known at compile time into the product that they follow: fewer operations of every call, and no others.
FOLDING = frozenset(["flatten_weights", "flatten_scalars", "distribute_weights"])
RULES: tuple[IndexRule, ...] = tuple(rule for family in FAMILIES.values() for rule in family)
assert len({r.name for r in RULES}) == len(RULES) and FOLDING.issubset(r.name for r in RULES)
