"""Rules of sums of products: associativity, distribution and common factors, in one place for any number of factors."""

from tcomp.passes.egraph.rule import IndexRule

MOST_FACTORS = 6

LINEAR: tuple[IndexRule, ...] = (
    # A sum of products inside a product is one sum of products: associativity, scale folding, matrix chains, absorption.
    IndexRule(
        "flatten",
        "ein(B, {ein(C, N), *R})",
        "ein(B | C, {*R, *N})",
        ("disjoint(free(R), C)", "disjoint(B, C)", f"short({MOST_FACTORS}, R, N)"),
    ),
    # The same where the inner sum's index means something else outside: it gets another name.
    IndexRule(
        "flatten_renamed",
        "ein(B, {ein(C, N), *R})",
        "ein(B, {ein((C - {i}) | {prime(i)}, {ren(i, prime(i), t) for t in N}), *R})",
        ("named(i)", "present(i, C)", "present(i, free(R) | B)", "absent(prime(i), free(N) | C)"),
    ),
    IndexRule(
        "factor_out",
        "ein(B, {f, *R})",
        "ein({}, {f, ein(B, {*R})})",
        ("some(B)", "filled(R)", "disjoint(free(f), B)"),
    ),
    # A factor that has none of the index k: the sum over k of the others is its own value.
    IndexRule(
        "distribute",
        "ein(B, {add({*N}), *R})",
        "add({ein(B, {t, *R}) for t in N})",
        ("short(3, N)", "short(3, R)"),
    ),
    IndexRule(
        "common_factor",
        "add({ein(B, {f, *P}), ein(C, {f, *Q}), *R})",
        "add({ein(B & C, {f, add({ein(B - C, {*P}), ein(C - B, {*Q})})}), *R})",
        ("disjoint(B - C, free(f))", "disjoint(C - B, free(f))", "filled(P)", "filled(Q)"),
    ),
    IndexRule("flatten_add", "add({add({*N}), *R})", "add({*N, *R})", ("short(6, N, R)",)),
)
