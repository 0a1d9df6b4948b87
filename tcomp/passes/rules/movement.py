"""Rules of substitution: an index's new name moves to the operands, past sums that do not bind it."""

from tcomp.passes.egraph.rule import IndexRule

MOVEMENT: tuple[IndexRule, ...] = (
    IndexRule("rename_nothing", "ren(i, j, a)", "a", ("absent(i, free(a))",), fp="bitwise", simplifies=True),
    IndexRule(
        "rename_ein",
        "ren(i, j, ein(B, {*M}))",
        "ein(B, {ren(i, j, t) for t in M})",
        ("absent(i, B)", "absent(j, B)"),
        fp="bitwise",
        simplifies=True,
    ),
    IndexRule("rename_add", "ren(i, j, add({*M}))", "add({ren(i, j, t) for t in M})", fp="bitwise", simplifies=True),
    IndexRule("rename_un", "ren(i, j, un(n, a))", "un(n, ren(i, j, a))", fp="bitwise", simplifies=True),
    IndexRule(
        "rename_max",
        "ren(i, j, max(n, a))",
        "max(n, ren(i, j, a))",
        ("other(n, i)", "other(n, j)"),
        fp="bitwise",
        simplifies=True,
    ),
)
