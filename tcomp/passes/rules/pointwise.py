"""Rules of units and reciprocals."""

from tcomp.passes.egraph.rule import IndexRule

POINTWISE: tuple[IndexRule, ...] = (
    IndexRule("single_factor", "ein({}, {f})", "f", fp="bitwise", simplifies=True),
    IndexRule("single_term", "add({f})", "f", fp="bitwise", simplifies=True),
    IndexRule("unit", "ein(B, {1.0, *R})", "ein(B, {*R})", ("filled(R)",), fp="bitwise", simplifies=True),
    IndexRule("inverse_of_product", "inv(ein({}, {*N}))", "ein({}, {inv(t) for t in N})", ("short(4, N)",)),
    IndexRule("inverse_twice", "inv(inv(a))", "a"),
)
