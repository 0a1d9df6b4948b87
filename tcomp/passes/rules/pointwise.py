"""Rules of pointwise functions and units: powers turn sums into products, constants join, reciprocals spread.

An exp that one of them makes may overflow where the text as written does not: it must be proven bounded above to be chosen.
"""

from tcomp.passes.egraph.rule import IndexRule

POINTWISE: tuple[IndexRule, ...] = (
    IndexRule("single_factor", "ein({}, {f})", "f", fp="bitwise", simplifies=True),
    IndexRule("single_term", "add({f})", "f", fp="bitwise", simplifies=True),
    IndexRule("unit", "ein(B, {1.0, *R})", "ein(B, {*R})", ("filled(R)",), fp="bitwise", simplifies=True),
    IndexRule("exp_of_sum", "exp(add({*N}))", "ein({}, {exp(t) for t in N})", ("short(3, N)",)),
    IndexRule("product_of_exps", "ein(B, {exp(a), exp(b), *R})", "ein(B, {exp(add({a, b})), *R})"),
    IndexRule("inverse_of_product", "inv(ein({}, {*N}))", "ein({}, {inv(t) for t in N})", ("short(4, N)",)),
    IndexRule("inverse_of_exp", "inv(exp(a))", "exp(ein({}, {-1.0, a}))"),
    IndexRule("exp_of_negative", "exp(ein({}, {-1.0, a}))", "inv(exp(a))"),
    IndexRule("inverse_twice", "inv(inv(a))", "a"),
    IndexRule(
        "cancel_exp",
        "ein(B, {exp(a), inv(exp(a)), *R})",
        "ein(B, {*R})",
        ("filled(R)",),
    ),
    # A maximum over a summed index may be divided out: sums of exps become safe.
    IndexRule(
        "stabilise",
        "ein(B, {exp(a), *R})",
        "ein(B, {exp(add({a, ein({}, {-1.0, max(i, a)})})), exp(max(i, a)), *R})",
        ("known(max(i, a))", "present(i, B)"),
    ),
)
