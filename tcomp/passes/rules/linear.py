"""Rules of sums of products: associativity, distribution and common factors, in one place for any number of factors.

The order of contraction is no rule's: it is priced for each sum of products as a whole. A product without a sum takes in a sum of
products only with factors that are known at compile time, or scalars; with others it could only be more work.
"""

from tcomp.passes.egraph.rule import IndexRule

MOST_FACTORS = 6

LINEAR: tuple[IndexRule, ...] = (
    # A product or a sum of products inside a sum of products is one: associativity, matrix chains, absorption.
    IndexRule(
        "flatten",
        "ein(B, {ein(C, N), *R})",
        "ein(B | C, {*R, *N})",
        ("some(B)", "disjoint(free(R), C)", "disjoint(B, C)", f"short({MOST_FACTORS}, R, N)"),
    ),
    IndexRule("flatten_products", "ein({}, {ein({}, N), *R})", "ein({}, {*R, *N})", (f"short({MOST_FACTORS}, R, N)",)),
    IndexRule(
        "flatten_weights",
        "ein({}, {ein(C, N), *R})",
        "ein(C, {*R, *N})",
        ("some(C)", "weights(R)", "disjoint(free(R), C)", f"short({MOST_FACTORS}, R, N)"),
    ),
    IndexRule(
        "flatten_scalars",
        "ein({}, {ein(C, N), *R})",
        "ein(C, {*R, *N})",
        ("some(C)", "none(free(R))", f"short({MOST_FACTORS}, R, N)"),
    ),
    # The same where the inner sum's index means something else outside: it gets another name.
    IndexRule(
        "flatten_renamed",
        "ein(B, {ein(C, N), *R})",
        "ein(B, {ein((C - {i}) | {prime(i)}, {ren(i, prime(i), t) for t in N}), *R})",
        ("some(B)", "named(i)", "present(i, C)", "present(i, free(R) | B)", "absent(prime(i), free(N) | C)"),
    ),
    # What has none of the summed indices leaves a sum that is then known at compile time.
    IndexRule(
        "factor_out",
        "ein(B, {f, *R})",
        "ein({}, {f, ein(B, {*R})})",
        ("some(B)", "filled(R)", "weights(R)", "disjoint(free(f), B)"),
    ),
    # Products of two, squares among them: with more factors every term would still have them all.
    IndexRule(
        "distribute",
        "ein(B, {add({*N}), *R})",
        "add({ein(B, {t, *R}) for t in N})",
        ("some(B)", "short(3, N)", "short(1, R)"),
    ),
    IndexRule(
        "distribute_weights",
        "ein({}, {add({*N}), *R})",
        "add({ein({}, {t, *R}) for t in N})",
        ("weights(R)", "short(3, N)", "short(3, R)"),
    ),
    IndexRule(
        "common_factor",
        "add({ein(B, {f, *P}), ein(C, {f, *Q}), *R})",
        "add({ein(B & C, {f, add({ein(B - C, {*P}), ein(C - B, {*Q})})}), *R})",
        ("some(B & C & free(f))", "disjoint(B - C, free(f))", "disjoint(C - B, free(f))", "filled(P)", "filled(Q)"),
    ),
    IndexRule("flatten_add", "add({add({*N}), *R})", "add({*N, *R})", ("short(6, N, R)",)),
)
