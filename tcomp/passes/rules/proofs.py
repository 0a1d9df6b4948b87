"""Rules that never pay but connect: with them, two forms of one value meet where the pass would only keep the better.

They make many e-nodes, so `saturate` leaves them out; equalities are derived with them.
"""

from tcomp.passes.egraph.rule import IndexRule
from tcomp.passes.rules.linear import MOST_FACTORS

PROOFS: tuple[IndexRule, ...] = (
    IndexRule(
        "absorb",
        "ein({}, {ein(C, N), *R})",
        "ein(C, {*R, *N})",
        ("some(C)", "disjoint(free(R), C)", f"short({MOST_FACTORS}, R, N)"),
    ),
    IndexRule(
        "factor_out_any", "ein(B, {f, *R})", "ein({}, {f, ein(B, {*R})})", ("some(B)", "filled(R)", "disjoint(free(f), B)")
    ),
    IndexRule(
        "distribute_any",
        "ein(B, {add({*N}), *R})",
        "add({ein(B, {t, *R}) for t in N})",
        ("short(3, N)", "short(3, R)"),
    ),
)
