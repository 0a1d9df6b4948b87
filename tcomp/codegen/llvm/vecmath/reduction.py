"""Reduction of trigonometric arguments: x = n pi/2 + r, |r| <= pi/4, exact enough for every finite x.

Arguments up to a limit are reduced in vectors by pi/2 in three pieces (Cody and Waite; in f64 with the rest kept as a
pair, after fdlibm's e_rem_pio2.c). If a lane is larger, all lanes go one by one through Payne and Hanek's method: x is
multiplied with those 192 bits of 2/pi that decide the product modulo 4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache

from tcomp.codegen.llvm.builder import FunctionBuilder
from tcomp.codegen.llvm.vecmath.rounding import any_lane
from tcomp.codegen.llvm.vecmath.values import Math, Value

# pi/2 in pieces: three floats (for FMA); two doubles of 33 bits and the rest, whose products with n < 2^20 are exact.
PIECES_SINGLE = (float.fromhex("0x1.921fb6p+0"), float.fromhex("-0x1.777a5cp-25"), float.fromhex("-0x1.ee59dap-50"))
PIECES_DOUBLE = (
    float.fromhex("0x1.921fb544p+0"),
    float.fromhex("0x1.0b4611a6p-34"),
    float.fromhex("0x1.3198a2e037073p-69"),
)
PI_HALF_LOW = float.fromhex("0x1.1a62633145c07p-54")
FAST_LIMIT = {"float": 1.0e5, "double": 1.6e6}
TABLE_BITS = 1280  # bits of 2/pi, and 64 zeros before the binary point


@dataclass(frozen=True, slots=True)
class Reduced:
    """r as a head and a tail (None in f32), and n as an integer of the element's width, right modulo 4."""

    head: Value
    tail: Value | None
    quadrant: Value


def reduce_half_pi(m: Math, x: Value) -> Reduced:
    """The reduction of every lane; infinities and NaN give NaN."""
    fast = _fast(m, x)
    b = m.b
    slow, done = b.fresh("large"), b.fresh("reduced")
    beyond = any_lane(m, m.abs(x) > FAST_LIMIT[m.element])
    before = b.block
    b.branch_if(beyond, slow, done)
    b.start(slow)
    large = _slow(m, x)
    after = b.block
    b.branch(done)
    b.start(done)
    pairs = [(fast.head, large.head), (fast.tail, large.tail), (fast.quadrant, large.quadrant)]
    head, tail, quadrant = (None if f is None or s is None else _phi(m, f, before, s, after) for f, s in pairs)
    assert head is not None and quadrant is not None
    return Reduced(head, tail, quadrant)


def _phi(m: Math, first: Value, first_block: str, second: Value, second_block: str) -> Value:
    kind = m.type_of(first.element)
    return m.value(first.element, f"phi {kind} [ {first.name}, %{first_block} ], [ {second.name}, %{second_block} ]")


def _fast(m: Math, x: Value) -> Reduced:
    if not m.single:
        return _fast_double(m, x)
    if m.has_fma:
        shifted, n = m.round_scaled(x, 2 / math.pi)
        r = x
        for piece in PIECES_SINGLE:
            r = m.fma(n, -piece, r)
        return Reduced(r, None, m.bits(shifted))
    wide = m.widened()
    reduced = _fast_double(wide, m.cast("fpext", x, "double"))
    return Reduced(m.cast("fptrunc", reduced.head, "float"), None, m.cast("trunc", reduced.quadrant, "i32"))


def _fast_double(m: Math, x: Value) -> Reduced:
    shifted, n = m.round_scaled(x, 2 / math.pi)
    first, second, third = PIECES_DOUBLE
    head, tail = m.two_sum(x - n * first, n * -second)
    head, tail = m.two_sum(head, tail - n * third)
    return Reduced(head, tail, m.bits(shifted))


def _slow(m: Math, x: Value) -> Reduced:
    """Every lane through the scalar routine, in a loop (one lane: a call)."""
    helper = m.b.module.helper("vecmath_reduce_large", lambda: _reduce_large(m))
    wide = m.cast("fpext", x, "double") if m.single else x
    heads, tails, quadrants = _each_lane(m, helper, wide)
    if not m.single:
        return Reduced(heads, tails, quadrants)
    return Reduced(m.cast("fptrunc", heads, "float"), None, m.cast("trunc", quadrants, "i32"))


def _each_lane(m: Math, helper: str, x: Value) -> tuple[Value, Value, Value]:
    result = "{ double, double, i64 }"
    kinds = ("double", "double", "i64")
    if m.lanes == 1:
        triple = m.b.value(f"call {result} {helper}(double {x.name})")
        head, tail, quadrant = (m.value(k, f"extractvalue {result} {triple}, {i}") for i, k in enumerate(kinds))
        return head, tail, quadrant
    b = m.b
    before, loop, done = b.block, b.fresh("lane"), b.fresh("lanes")
    b.branch(loop)
    b.start(loop)
    following = [f"%{b.fresh('next')}" for _ in range(4)]
    types = [m.type_of(k) for k in kinds]
    index = b.value(f"phi i32 [ 0, %{before} ], [ {following[3]}, %{loop} ]")
    held = [b.value(f"phi {t} [ zeroinitializer, %{before} ], [ {f}, %{loop} ]") for t, f in zip(types, following)]
    lane = b.value(f"extractelement {types[0]} {x.name}, i32 {index}")
    triple = b.value(f"call {result} {helper}(double {lane})")
    for i, kind in enumerate(kinds):
        part = b.value(f"extractvalue {result} {triple}, {i}")
        b.effect(f"{following[i]} = insertelement {types[i]} {held[i]}, {kind} {part}, i32 {index}")
    b.effect(f"{following[3]} = add i32 {index}, 1")
    b.branch_if(b.value(f"icmp ult i32 {following[3]}, {m.lanes}"), loop, done)
    b.start(done)
    return Value(m, following[0], "double"), Value(m, following[1], "double"), Value(m, following[2], "i64")


@cache
def two_over_pi_words() -> tuple[int, ...]:
    """64 zero bits, then the first bits of 2/pi, in 64-bit words (pi by Machin's formula)."""
    guard = TABLE_BITS + 64
    one = 1 << guard

    def arctan_inverse(n: int) -> int:
        total, term, k = 0, one // n, 0
        while term:
            total += (-term if k % 2 else term) // (2 * k + 1)
            term //= n * n
            k += 1
        return total

    pi = 4 * (4 * arctan_inverse(5) - arctan_inverse(239))
    bits = ((2 << 2 * guard) // pi) >> 64
    return tuple(bits >> shift & (2**64 - 1) for shift in range(TABLE_BITS, -1, -64))


def _table(m: Math) -> str:
    """The constant that holds the words."""
    words = ", ".join(f"i64 {w}" for w in two_over_pi_words())
    kind = f"[{TABLE_BITS // 64 + 1} x i64]"
    name = "vecmath_two_over_pi"
    return m.b.module.helper(name, lambda: f"@{name} = internal constant {kind} [{words}], align 64")


def _reduce_large(m: Math) -> str:
    """The scalar routine: double to (head, tail, quadrant), for 2^-10 <= |x|; smaller x is returned as it is."""
    table = _table(m)
    b = FunctionBuilder(m.b.module)
    s = replace(m, b=b, element="double", lanes=1)
    x = s.wrap("%x")
    direct = ~(s.abs(x) >= 2.0**-10)
    bits = s.bits(s.select(direct, 1.0, x))
    exponent = (bits.logical_shift(52) & 0x7FF) - 1075  # |x| = mantissa * 2^exponent
    mantissa = (bits & (2**52 - 1)) | 2**52
    fraction = _product(s, table, mantissa, exponent)
    quadrant, head, tail = _to_quarter(s, fraction)
    negative = x < 0.0
    quadrant = s.select(negative, -quadrant, quadrant)
    head, tail = (s.select(negative, -v, v) for v in (head, tail))
    head, tail = s.select(direct, x, head), s.select(direct, 0.0, tail)
    head = s.select(s.abs(x) < math.inf, head, math.nan)
    quadrant = s.select(direct, 0, quadrant)
    result = "poison"
    for i, v in enumerate((head, tail, quadrant)):
        result = b.value(f"insertvalue {{ double, double, i64 }} {result}, {v.element} {v.name}, {i}")
    b.effect(f"ret {{ double, double, i64 }} {result}")
    return f"define internal {{ double, double, i64 }} @vecmath_reduce_large(double %x) nounwind {{\n{b.body()}\n}}"


def _product(s: Math, table: str, mantissa: Value, exponent: Value) -> Value:
    """mantissa 2^exponent * 2/pi modulo 4 as an i128 of two integer bits and 126 of fraction."""
    # The bit of weight 2^1 in the product is bit exponent - 1 of 2/pi, counted from 1; 64 zeros stand before bit 1.
    first = s.select(exponent < 971, exponent, 971) + 62
    shift = first & 63
    base = s.b.value(f"getelementptr i64, ptr {table}, i64 {first.logical_shift(6).name}")
    words = [_load_word(s, base, i) for i in range(4)]
    w0, w1, w2 = (s.intrinsic("fshl", words[i], words[i + 1], shift) for i in range(3))
    wide = [s.cast("zext", v, "i128") for v in (mantissa, w1, w2)]
    low = wide[0] * wide[2]
    middle = wide[0] * wide[1] + low.logical_shift(64)
    top = s.cast("zext", mantissa * w0, "i128")
    return (top << 64) + middle


def _load_word(s: Math, base: str, index: int) -> Value:
    pointer = s.b.value(f"getelementptr i64, ptr {base}, i64 {index}")
    return s.value("i64", f"load i64, ptr {pointer}, align 8")


def _to_quarter(s: Math, fraction: Value) -> tuple[Value, Value, Value]:
    """The nearest quadrant, and the rest of the turn times pi/2 as head and tail."""
    half = fraction + (1 << 125)
    quadrant = s.cast("trunc", half.logical_shift(126), "i64")
    rest = (fraction << 2) >> 2  # signed: the two bits of the quadrant drop out, rounding included
    negative = rest < 0
    size = s.select(negative, -rest, rest)
    zeros = s.value("i128", f"call i128 @llvm.ctlz.i128(i128 {size.name}, i1 false)")
    s.b.module.declare("i128 @llvm.ctlz.i128(i128, i1)")
    normal = size << zeros
    # 53 bits each: value = (high + low 2^-53) 2^(75 - zeros) in units of 2^-126.
    high = s.cast("sitofp", s.cast("trunc", normal.logical_shift(75), "i64"), "double")
    low = s.cast("sitofp", s.cast("trunc", normal.logical_shift(22), "i64") & (2**53 - 1), "double")
    power = s.from_bits(((75 - 126 + 1023) - s.cast("trunc", zeros, "i64")) << 52)
    high, low = high * power, low * (power * 2.0**-53)
    head, error = s.two_product(high, math.pi / 2)
    tail = error + s.mad(high, PI_HALF_LOW, low * (math.pi / 2))
    head, tail = s.fast_two_sum(head, tail)
    return quadrant, s.select(negative, -head, head), s.select(negative, -tail, tail)
