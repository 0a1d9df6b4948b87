"""Rules of maxima: what does not depend on the index comes out."""

from tcomp.passes.egraph.rule import IndexRule

REDUCTIONS: tuple[IndexRule, ...] = (
    IndexRule(
        "max_of_sum",
        "max(i, add({a, *R}))",
        "add({a, max(i, add({*R}))})",
        ("filled(R)", "absent(i, free(a))"),
    ),
    IndexRule(
        "max_of_scaled",
        "max(i, ein({}, {c, *R}))",
        "ein({}, {c, max(i, ein({}, {*R}))})",
        ("filled(R)", "positive(c)"),
    ),
    IndexRule("max_swap", "max(i, max(j, a))", "max(j, max(i, a))", fp="bitwise"),
)
