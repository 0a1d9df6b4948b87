"""Rules of windows, which are substitutions: h = stride * p + dilation * r."""

from tcomp.passes.egraph.rule import IndexRule

CONVOLUTION: tuple[IndexRule, ...] = (
    IndexRule("window_of_sum", "win(h, p, r, s, d, add({*N}))", "add({win(h, p, r, s, d, t) for t in N})", fp="bitwise"),
    IndexRule("window_of_constant", "win(h, p, r, s, d, a)", "a", ("absent(h, free(a))",), fp="bitwise", simplifies=True),
    IndexRule(
        "window_of_ein",
        "win(h, p, r, s, d, ein(B, {*N}))",
        "ein(B, {win(h, p, r, s, d, t) for t in N})",
        ("absent(h, B)", "absent(p, B)", "absent(r, B)"),
        fp="bitwise",
    ),
    # A product over channels goes before the window: pooling and 1x1 convolutions change places.
    IndexRule(
        "window_after_product",
        "ein(B, {win(h, p, r, s, d, a), g})",
        "ein(B - free(g), {win(h, p, r, s, d, ein(B & free(g), {a, g}))})",
        ("weight(g)", "some(B & free(g))", "absent(h, free(g) | B)", "absent(p, free(g))", "absent(r, free(g))"),
    ),
)
