"""Pointwise identities that hold for all values, bit for bit: signed zeros, infinities and NaN included.

Neutral elements of the monoids are not here: `canonicalise` takes them from the table of monoids.
"""

from __future__ import annotations

from tcomp.ir.ops import OPS
from tcomp.ir.rewrite import Rule

NEUTRAL = (
    Rule("sub_zero", "sub(x, 0)", "x"),
    Rule("div_one", "div(x, 1)", "x"),
    Rule("quotient_one", "quotient(x, 1)", "x"),
    Rule("floordiv_one", "floordiv(x, 1)", "x", ("integer(x)",)),
    Rule("pow_one", "pow(x, 1)", "x"),
    Rule("xor_zero", "xor(x, 0)", "x"),
    Rule("shl_zero", "shl(x, 0)", "x"),
    Rule("shr_zero", "shr(x, 0)", "x"),
    Rule("mul_zero", "mul(x, 0)", "0", ("integer(x)",)),
)

SELF = (
    *(Rule(f"{op}_self", f"{op}(x, x)", "x") for op in ("max", "min", "and", "or")),
    Rule("sub_self", "sub(x, x)", "0", ("integer(x)",)),
    Rule("xor_self", "xor(x, x)", "0"),
    *(Rule(f"{op}_self", f"{op}(x, x)", "1", ("integer(x)",)) for op in ("eq", "le", "ge")),
    Rule("ne_self", "ne(x, x)", "0", ("integer(x)",)),
    *(Rule(f"{op}_self", f"{op}(x, x)", "0") for op in ("lt", "gt")),
)

TWICE = (
    Rule("neg_neg", "neg(neg(x))", "x"),
    Rule("not_not", "not(not(x))", "x"),
    *(
        Rule(f"{r.name}_twice", f"{r.name}({r.name}(x))", f"{r.name}(x)")
        for r in OPS.values()
        if r.arity == 1 and "idempotent" in r.facts
    ),
)

SELECTION = (
    Rule("where_true", "where(1, x, y)", "x"),
    Rule("where_false", "where(0, x, y)", "y"),
    Rule("where_same", "where(c, x, x)", "x"),
    Rule("where_not", "where(not(c), x, y)", "where(c, y, x)"),
)

IDENTITIES: tuple[Rule, ...] = (*NEUTRAL, *SELF, *TWICE, *SELECTION)
