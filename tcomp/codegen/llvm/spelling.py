"""The total table of pointwise spellings: every pointwise row of the op table, for every dtype that it allows.

A spelling takes register values (see `convert`) and gives one. Its table key is the kind of its operands: `float`, `int`,
`uint`, `bool`. 16-bit floats are computed as floats and rounded once; the operations in `EXACT` have no need of it. Integer
arithmetic wraps and never traps.
"""

from __future__ import annotations

from collections.abc import Callable

from tcomp.codegen.llvm import vecmath
from tcomp.codegen.llvm.builder import FunctionBuilder, mangle
from tcomp.codegen.llvm.convert import Elements, bitcast, cast, rounded
from tcomp.codegen.llvm.writer import REGISTER
from tcomp.ir.dtype import DType
from tcomp.ir.ops import OPS

Spelling = Callable[[Elements, DType, list[str]], str]
EXACT = frozenset({"neg", "abs", "sign", "floor", "ceil", "trunc", "round", "max", "min", "where", "rem"})


def spell(e: Elements, op: str, dtypes: list[DType], arguments: list[str], to: DType | None = None) -> str:
    """The value of pointwise `op` on `arguments` of these dtypes; `to`: the target of `cast` and `bitcast`."""
    operand = dtypes[-1]  # of `where`: of the branches
    if op == "cast":
        return cast(e, operand, to or operand, arguments[0])
    if op == "bitcast":
        return bitcast(e, operand, to or operand, arguments[0])
    found = TABLE[op][operand.kind](e, operand, arguments)
    if operand.is_float and operand.bits == 16 and op not in EXACT and "test" not in OPS[op].facts:
        return rounded(e, operand, found)
    return found


def element(t: DType) -> str:
    return REGISTER[t.name]


def _instruction(op: str) -> Spelling:
    return lambda e, t, a: e.binary(op, element(t), a[0], a[1])


def _math(name: str) -> Spelling:
    return lambda e, t, a: vecmath.emit(e.b, name, element(t), e.lanes, tuple(a), e.features)


def _compare(op: str) -> Spelling:
    return lambda e, t, a: e.compare(op, element(t), a[0], a[1])


def _intrinsic(name: str) -> Spelling:
    return lambda e, t, a: e.intrinsic(name, element(t), *a)


# --- signs, complements and predicates -----------------------------------------------------------------


def _float_neg(e: Elements, t: DType, a: list[str]) -> str:
    return e.b.value(f"fneg {e.kind(element(t))} {a[0]}")


def _integer_neg(e: Elements, t: DType, a: list[str]) -> str:
    return e.binary("sub", element(t), e.const(element(t), 0), a[0])


def _integer_abs(e: Elements, t: DType, a: list[str]) -> str:
    below = e.compare("icmp slt", element(t), a[0], 0)
    return e.select(element(t), below, _integer_neg(e, t, a), a[0])


def _float_sign(e: Elements, t: DType, a: list[str]) -> str:
    kept = e.compare("fcmp ueq", element(t), a[0], 0.0)
    one = e.intrinsic("copysign", element(t), e.const(element(t), 1.0), a[0])
    return e.select(element(t), kept, a[0], one)


def _integer_sign(e: Elements, t: DType, a: list[str]) -> str:
    above = e.cast("zext", "i1", e.compare("icmp sgt", element(t), a[0], 0), element(t))
    return e.select(element(t), e.compare("icmp slt", element(t), a[0], 0), -1, above)


def _unsigned_sign(e: Elements, t: DType, a: list[str]) -> str:
    return e.cast("zext", "i1", e.compare("icmp ne", element(t), a[0], 0), element(t))


def _not(e: Elements, t: DType, a: list[str]) -> str:
    return e.binary("xor", element(t), a[0], 1 if t.kind == "bool" else -1)


def _isnan(e: Elements, t: DType, a: list[str]) -> str:
    return e.compare("fcmp uno", element(t), a[0], a[0])


def _against_infinity(op: str) -> Spelling:
    return lambda e, t, a: e.compare(op, element(t), e.absolute(element(t), a[0]), float("inf"))


def _where(e: Elements, t: DType, a: list[str]) -> str:
    return e.select(element(t), a[0], a[1], a[2])


def _same(e: Elements, t: DType, a: list[str]) -> str:
    return a[0]


# --- integer division ----------------------------------------------------------------------------------


def _divide(e: Elements, t: DType, a: list[str]) -> tuple[str, str]:
    """(quotient towards zero, remainder); by zero both are x by 1, and x by -1 wraps.

    Up to 32 bits in f64, exactly: vectors have no integer division.
    """
    x, y = a
    i = element(t)
    signed = t.kind == "int"
    safe = e.select(i, e.compare("icmp eq", i, y, 0), 1, y)
    minus = e.compare("icmp eq", i, y, -1) if signed else ""
    divisor = e.select(i, minus, 1, safe) if signed else safe
    if t.bits == 64:
        quotient = e.binary("sdiv" if signed else "udiv", i, x, divisor)
    else:
        up, down = ("sitofp", "fptosi") if signed else ("uitofp", "fptoui")
        ratio = e.binary("fdiv", "double", e.cast(up, i, x, "double"), e.cast(up, i, divisor, "double"))
        quotient = e.cast("trunc", "i32", e.cast(down, "double", ratio, "i32"), i)
    if signed:
        quotient = e.select(i, minus, e.binary("sub", i, e.const(i, 0), x), quotient)
    return quotient, e.binary("sub", i, x, e.binary("mul", i, quotient, safe))


def _by_zero_is_zero(e: Elements, t: DType, a: list[str], value: str) -> str:
    return e.select(element(t), e.compare("icmp eq", element(t), a[1], 0), 0, value)


def _quotient(e: Elements, t: DType, a: list[str]) -> str:
    return _by_zero_is_zero(e, t, a, _divide(e, t, a)[0])


def _rem(e: Elements, t: DType, a: list[str]) -> str:
    return _by_zero_is_zero(e, t, a, _divide(e, t, a)[1])


def _apart(e: Elements, t: DType, rest: str, divisor: str) -> str:
    """Where a remainder is not zero and of the other sign than the divisor."""
    signs = e.compare("icmp slt", element(t), e.binary("xor", element(t), rest, divisor), 0)
    return e.b.value(f"and {e.kind('i1')} {signs}, {e.compare('icmp ne', element(t), rest, 0)}")


def _floordiv(e: Elements, t: DType, a: list[str]) -> str:
    quotient, rest = _divide(e, t, a)
    if t.kind == "int":
        borrow = e.cast("sext", "i1", _apart(e, t, rest, a[1]), element(t))
        quotient = e.binary("add", element(t), quotient, borrow)
    return _by_zero_is_zero(e, t, a, quotient)


def _mod(e: Elements, t: DType, a: list[str]) -> str:
    rest = _divide(e, t, a)[1]
    if t.kind == "int":
        moved = e.binary("add", element(t), rest, a[1])
        rest = e.select(element(t), _apart(e, t, rest, a[1]), moved, rest)
    return _by_zero_is_zero(e, t, a, rest)


def _pow(e: Elements, t: DType, a: list[str]) -> str:
    """Squaring, out of line. A negative power truncates 1 / x^-y: it is not 0 for x = 1 and -1 alone."""
    i = element(t)
    kind = e.kind(i)
    power = a[1]
    if t.kind == "int":  # (+-1)^y depends on the last bit of y alone, other powers below 0 become x = 0
        negative = e.compare("icmp slt", i, a[1], 0)
        unit = e.compare("icmp eq", i, e.binary("mul", i, a[0], a[0]), 1)
        unit = e.b.value(f"and {e.kind('i1')} {unit}, {_is_unit(e, i, a[0])}")
        base = e.select(i, e.b.value(f"xor {e.kind('i1')} {unit}, {e.const('i1', 1)}"), 0, a[0])
        power = e.select(i, negative, e.binary("or", i, e.binary("and", i, a[1], 1), 2), a[1])
        base = e.select(i, negative, base, a[0])
    else:
        base = a[0]
    name = e.b.module.helper(f"integer_power_{mangle(i, e.lanes)}", lambda: _power_loop(e, i))
    return e.b.value(f"call {kind} {name}({kind} {base}, {kind} {power})")


def _is_unit(e: Elements, i: str, x: str) -> str:
    """Whether x is 1 or -1."""
    return e.compare("icmp ult", i, e.binary("add", i, x, 1), 3)


def _power_loop(outer: Elements, i: str) -> str:
    e = Elements(FunctionBuilder(outer.b.module), outer.lanes)
    kind = e.kind(i)
    e.b.branch("loop")
    e.b.start("loop")
    one = e.const(i, 1)
    for name, first in (("result", one), ("base", "%x"), ("left", "%y")):
        e.b.effect(f"%{name} = phi {kind} [ {first}, %entry ], [ %{name}.next, %loop ]")
    odd = e.compare("icmp ne", i, e.binary("and", i, "%left", 1), 0)
    e.b.effect(f"%result.next = mul {kind} %result, {e.select(i, odd, '%base', 1)}")
    e.b.effect(f"%base.next = mul {kind} %base, %base")
    e.b.effect(f"%left.next = lshr {kind} %left, {one}")
    more = e.compare("icmp ne", i, "%left.next", 0)
    if e.lanes > 1:
        more = e.b.call("i1", f"@llvm.vector.reduce.or.v{e.lanes}i1", f"{e.kind('i1')} {more}")
    e.b.branch_if(more, "loop", "done")
    e.b.start("done")
    e.b.effect(f"ret {kind} %result.next")
    name = f"integer_power_{mangle(i, e.lanes)}"
    return f"define internal {kind} @{name}({kind} %x, {kind} %y) nounwind {{\n{e.b.body()}\n}}"


# --- shifts ------------------------------------------------------------------------------


def _within(e: Elements, t: DType, count: str) -> str:
    return e.compare("icmp ult", element(t), count, t.bits)


def _shl(e: Elements, t: DType, a: list[str]) -> str:
    shifted = e.binary("shl", element(t), *a)
    return e.select(element(t), _within(e, t, a[1]), shifted, 0)


def _unsigned_shr(e: Elements, t: DType, a: list[str]) -> str:
    shifted = e.binary("lshr", element(t), *a)
    return e.select(element(t), _within(e, t, a[1]), shifted, 0)


def _signed_shr(e: Elements, t: DType, a: list[str]) -> str:
    count = e.select(element(t), _within(e, t, a[1]), a[1], t.bits - 1)
    return e.binary("ashr", element(t), a[0], count)


def _all(spelling: Spelling) -> dict[str, Spelling]:
    return dict.fromkeys(("float", "int", "uint", "bool"), spelling)


def _numbers(floats: Spelling, signed: Spelling, unsigned: Spelling | None = None) -> dict[str, Spelling]:
    return {"float": floats, "int": signed, "uint": unsigned or signed}


def _integers(signed: Spelling, unsigned: Spelling | None = None) -> dict[str, Spelling]:
    return {"int": signed, "uint": unsigned or signed}


def _ordered(floats: str, signed: str, unsigned: str) -> dict[str, Spelling]:
    return {**_numbers(_compare(floats), _compare(signed), _compare(unsigned)), "bool": _compare(unsigned)}


def _extremum(name: str) -> Spelling:
    """The library's with its operands swapped: it tests its first for NaN, and the second here, the new value of a running
    extremum, is known before the one so far."""
    return lambda e, t, a: vecmath.emit(e.b, name, element(t), e.lanes, (a[1], a[0]), e.features)


_BITS = ("int", "uint", "bool")
_FLOAT_FUNCTIONS = {  # the op table's name: the vector math library's
    **{n: n for n in ("floor", "ceil", "trunc", "sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p")},
    **{n: n for n in ("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh")},
    **{n: n for n in ("erf", "sigmoid")},
    "round": "roundeven",
}

TABLE: dict[str, dict[str, Spelling]] = {
    **{op: {"float": _math(name)} for op, name in _FLOAT_FUNCTIONS.items()},
    "neg": _numbers(_float_neg, _integer_neg),
    "abs": _numbers(lambda e, t, a: e.absolute(element(t), a[0]), _integer_abs, _same),
    "sign": _numbers(_float_sign, _integer_sign, _unsigned_sign),
    "not": dict.fromkeys(_BITS, _not),
    "isnan": {"float": _isnan},
    "isinf": {"float": _against_infinity("fcmp oeq")},
    "isfinite": {"float": _against_infinity("fcmp olt")},
    "add": _numbers(_instruction("fadd"), _instruction("add")),
    "sub": _numbers(_instruction("fsub"), _instruction("sub")),
    "mul": _numbers(_instruction("fmul"), _instruction("mul")),
    "div": {"float": _instruction("fdiv")},
    "floordiv": _numbers(_math("floor_divide"), _floordiv),
    "mod": _numbers(_math("remainder"), _mod),
    "quotient": _integers(_quotient),
    "rem": _numbers(_math("fmod"), _rem),
    "pow": _numbers(_math("pow"), _pow),
    "max": {**_numbers(_extremum("maximum"), _intrinsic("smax"), _intrinsic("umax")), "bool": _instruction("or")},
    "min": {**_numbers(_extremum("minimum"), _intrinsic("smin"), _intrinsic("umin")), "bool": _instruction("and")},
    **{op: dict.fromkeys(_BITS, _instruction(op)) for op in ("and", "or", "xor")},
    "shl": _integers(_shl),
    "shr": _integers(_signed_shr, _unsigned_shr),
    "eq": _ordered("fcmp oeq", "icmp eq", "icmp eq"),
    "ne": _ordered("fcmp une", "icmp ne", "icmp ne"),
    "lt": _ordered("fcmp olt", "icmp slt", "icmp ult"),
    "le": _ordered("fcmp ole", "icmp sle", "icmp ule"),
    "gt": _ordered("fcmp ogt", "icmp sgt", "icmp ugt"),
    "ge": _ordered("fcmp oge", "icmp sge", "icmp uge"),
    "fma": {"float": _intrinsic("fma")},
    "where": _all(_where),
}
