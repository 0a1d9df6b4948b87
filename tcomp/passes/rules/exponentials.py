"""Rules of exponentials: sums become products and back, and a maximum makes a sum of exps safe.

An exp that one of them makes may overflow where the text as written does not, so it is chosen only where its argument is proven
to be at most 0. They run where a window has a maximum that could bound an exp which is not bounded as written; elsewhere they
cannot pay.
"""

from tcomp.passes.egraph.rule import IndexRule

EXPONENTIALS: tuple[IndexRule, ...] = (
    IndexRule("exp_of_sum", "exp(add({*N}))", "ein({}, {exp(t) for t in N})", ("short(3, N)",)),
    IndexRule("product_of_exps", "ein(B, {exp(a), exp(b), *R})", "ein(B, {exp(add({a, b})), *R})"),
    IndexRule("inverse_of_exp", "inv(exp(a))", "exp(ein({}, {-1.0, a}))"),
    IndexRule("exp_of_negative", "exp(ein({}, {-1.0, a}))", "inv(exp(a))"),
    IndexRule("cancel_exp", "ein(B, {exp(a), inv(exp(a)), *R})", "ein(B, {*R})", ("filled(R)",)),
    # A maximum over a summed index may be divided out.
    IndexRule(
        "stabilise",
        "ein(B, {exp(a), *R})",
        "ein(B, {exp(add({a, ein({}, {-1.0, max(i, a)})})), exp(max(i, a)), *R})",
        ("known(max(i, a))", "present(i, B)"),
    ),
)
