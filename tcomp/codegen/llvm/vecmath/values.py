"""Vector values with operators, so that the algorithms of this package read as formulas.

`Math` knows the element type, the lane count and the target's features; `Value` is one SSA name with its type. Every
operator appends exactly one instruction and nothing is folded. Comparisons are ordered (false on NaN) unless their
name says otherwise; `==` is left alone, use `eq`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tcomp.codegen.llvm.builder import FunctionBuilder, mangle, splat, vector

# LLVM feature names that bring a fused multiply-add, and rounding to an integral value in one instruction.
FMA_FEATURES = frozenset({"fma", "avx512f", "neon"})
ROUND_FEATURES = frozenset({"sse4.1", "avx", "avx2", "avx512f", "neon"})
# What changes the code that is emitted; other features are left to the code generator.
USED_FEATURES = FMA_FEATURES | ROUND_FEATURES | {"avx512vl"}


@dataclass(frozen=True, slots=True)
class Format:
    """The facts of a floating-point format that the algorithms need."""

    bits: int
    mantissa: int  # stored bits
    bias: int
    magic: float  # 1.5 * 2^mantissa: adding it rounds to an integer, which then stands in the low bits

    @property
    def magic_bits(self) -> int:
        """The bits of `magic`."""
        code = "<f" if self.bits == 32 else "<d"
        return int.from_bytes(struct.pack(code, self.magic), "little")

    @property
    def smallest_normal(self) -> float:
        """The smallest positive normal number."""
        return 2.0 ** (1 - self.bias)


FORMATS = {
    "float": Format(32, 23, 127, 1.5 * 2.0**23),
    "double": Format(64, 52, 1023, 1.5 * 2.0**52),
}


@dataclass(frozen=True, slots=True)
class Value:
    """An SSA name of a vector (or scalar) of `element` type."""

    math: Math
    name: str
    element: str

    @property
    def is_float(self) -> bool:
        """True for float and double, false for integers and masks."""
        return self.element in FORMATS

    def _binary(self, float_op: str, int_op: str, other: Value | float, swapped: bool = False) -> Value:
        right = other.name if isinstance(other, Value) else splat(self.element, self.math.lanes, other)
        left, right = (right, self.name) if swapped else (self.name, right)
        op = float_op if self.is_float else int_op
        return self.math.value(self.element, f"{op} {self.math.type_of(self.element)} {left}, {right}")

    def _compare(self, float_op: str, int_op: str, other: Value | float) -> Value:
        right = other.name if isinstance(other, Value) else splat(self.element, self.math.lanes, other)
        op = f"fcmp {float_op}" if self.is_float else f"icmp {int_op}"
        return self.math.value("i1", f"{op} {self.math.type_of(self.element)} {self.name}, {right}")

    def __add__(self, other: Value | float) -> Value:
        return self._binary("fadd", "add", other)

    def __radd__(self, other: float) -> Value:
        return self._binary("fadd", "add", other, swapped=True)

    def __sub__(self, other: Value | float) -> Value:
        return self._binary("fsub", "sub", other)

    def __rsub__(self, other: float) -> Value:
        return self._binary("fsub", "sub", other, swapped=True)

    def __mul__(self, other: Value | float) -> Value:
        return self._binary("fmul", "mul", other)

    def __rmul__(self, other: float) -> Value:
        return self._binary("fmul", "mul", other, swapped=True)

    def __truediv__(self, other: Value | float) -> Value:
        return self._binary("fdiv", "sdiv", other)

    def __rtruediv__(self, other: float) -> Value:
        return self._binary("fdiv", "sdiv", other, swapped=True)

    def __and__(self, other: Value | int) -> Value:
        return self._binary("and", "and", other)

    def __or__(self, other: Value | int) -> Value:
        return self._binary("or", "or", other)

    def __xor__(self, other: Value | int) -> Value:
        return self._binary("xor", "xor", other)

    def __lshift__(self, other: Value | int) -> Value:
        return self._binary("shl", "shl", other)

    def __rshift__(self, other: Value | int) -> Value:
        """The arithmetic shift."""
        return self._binary("ashr", "ashr", other)

    def logical_shift(self, count: Value | int) -> Value:
        """The shift to the right that fills with zeros."""
        return self._binary("lshr", "lshr", count)

    def __neg__(self) -> Value:
        if not self.is_float:
            return 0 - self
        return self.math.value(self.element, f"fneg {self.math.type_of(self.element)} {self.name}")

    def __invert__(self) -> Value:
        return self ^ (1 if self.element == "i1" else -1)

    def __lt__(self, other: Value | float) -> Value:
        return self._compare("olt", "slt", other)

    def __le__(self, other: Value | float) -> Value:
        return self._compare("ole", "sle", other)

    def __gt__(self, other: Value | float) -> Value:
        return self._compare("ogt", "sgt", other)

    def __ge__(self, other: Value | float) -> Value:
        return self._compare("oge", "sge", other)

    def eq(self, other: Value | float) -> Value:
        """The mask of equal lanes."""
        return self._compare("oeq", "eq", other)

    def ne(self, other: Value | float) -> Value:
        """The mask of lanes that differ; NaN differs from everything."""
        return self._compare("une", "ne", other)

    def not_at_least(self, other: Value | float) -> Value:
        """The mask of lanes that are less, or NaN."""
        return self._compare("ult", "slt", other)

    def is_nan(self) -> Value:
        """The mask of NaN lanes."""
        return self.unordered(self)

    def unordered(self, other: Value) -> Value:
        """The mask of lanes where either is NaN."""
        return self._compare("uno", "ne", other)


@dataclass(frozen=True, slots=True)
class Math:
    """Where instructions go and what they may use: the element type is `float` or `double`, `lanes` a power of two."""

    b: FunctionBuilder
    element: str
    lanes: int
    features: frozenset[str]

    @property
    def format(self) -> Format:
        """The facts of the element type."""
        return FORMATS[self.element]

    @property
    def integer(self) -> str:
        """The integer type as wide as the element."""
        return f"i{self.format.bits}"

    @property
    def single(self) -> bool:
        """True for f32."""
        return self.element == "float"

    @property
    def has_fma(self) -> bool:
        """True where a fused multiply-add is one instruction."""
        return bool(self.features & FMA_FEATURES)

    def type_of(self, element: str) -> str:
        """The LLVM type of one value."""
        return vector(element, self.lanes)

    def pick(self, single: float, double: float) -> float:
        """The constant of the element type."""
        return single if self.single else double

    def widened(self) -> Math:
        """The same lanes in double."""
        return replace(self, element="double")

    def value(self, element: str, instruction: str) -> Value:
        """Append one instruction."""
        return Value(self, self.b.value(instruction), element)

    def wrap(self, name: str) -> Value:
        """An argument as a value."""
        return Value(self, name, self.element)

    def const(self, value: float) -> Value:
        """A float constant in every lane."""
        return Value(self, splat(self.element, self.lanes, value), self.element)

    def int_const(self, value: int) -> Value:
        """An integer constant in every lane."""
        return Value(self, splat(self.integer, self.lanes, value), self.integer)

    def intrinsic(self, name: str, *arguments: Value) -> Value:
        """Call an overloaded LLVM intrinsic such as `fma`; all operands and the result have one type."""
        element = arguments[0].element
        kind = self.type_of(element)
        called = self.b.call(kind, f"@llvm.{name}.{mangle(element, self.lanes)}", *(f"{kind} {a.name}" for a in arguments))
        return Value(self, called, element)

    def cast(self, op: str, value: Value, element: str) -> Value:
        """A conversion instruction: `fpext`, `fptrunc`, `fptosi`, `sitofp`, `bitcast`, `zext`."""
        instruction = f"{op} {self.type_of(value.element)} {value.name} to {self.type_of(element)}"
        return Value(self if element != "double" else self.widened(), self.b.value(instruction), element)

    def bits(self, value: Value) -> Value:
        """A float's bits as an integer."""
        return self.cast("bitcast", value, self.integer)

    def from_bits(self, value: Value) -> Value:
        """The float that an integer's bits stand for."""
        return self.cast("bitcast", value, self.element)

    def select(self, mask: Value, then: Value | float, other: Value | float) -> Value:
        """`then` in the lanes of the mask, else `other`; at least one of them is a value."""
        element = then.element if isinstance(then, Value) else other.element if isinstance(other, Value) else ""
        kind = self.type_of(element)
        first, second = (v.name if isinstance(v, Value) else splat(element, self.lanes, v) for v in (then, other))
        return self.value(element, f"select {self.type_of('i1')} {mask.name}, {kind} {first}, {kind} {second}")

    def abs(self, x: Value) -> Value:
        """The magnitude."""
        return self.intrinsic("fabs", x)

    def sqrt(self, x: Value) -> Value:
        """The correctly rounded square root."""
        return self.intrinsic("sqrt", x)

    def copysign(self, magnitude: Value, sign: Value) -> Value:
        """The magnitude of one with the sign bit of the other."""
        return self.intrinsic("copysign", magnitude, sign)

    def at_most(self, x: Value, bound: float) -> Value:
        """`min(x, bound)`; NaN stays (one instruction on x86)."""
        return self.select(x > bound, bound, x)

    def at_least(self, x: Value, bound: float) -> Value:
        """`max(x, bound)`; NaN stays."""
        return self.select(x < bound, bound, x)

    def mad(self, x: Value, y: Value | float, z: Value | float) -> Value:
        """`x * y + z`, rounded once where that is one instruction, else twice: for uses that bear both."""
        y, z = self._value(y), self._value(z)
        return self.intrinsic("fma", x, y, z) if self.has_fma else x * y + z

    def fma(self, x: Value, y: Value | float, z: Value | float) -> Value:
        """`x * y + z` rounded once, whatever it costs."""
        return self.intrinsic("fma", x, self._value(y), self._value(z))

    def _value(self, value: Value | float) -> Value:
        return value if isinstance(value, Value) else self.const(value)

    def polynomial(self, x: Value, coefficients: Sequence[float]) -> Value:
        """Horner's scheme; coefficients from the constant term up."""
        result = self.const(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            result = self.mad(result, x, coefficient)
        return result

    def two_sum(self, x: Value | float, y: Value) -> tuple[Value, Value]:
        """`x + y` as a rounded sum and its exact error (Knuth)."""
        x = self._value(x)
        total = x + y
        back = total - x
        return total, (x - (total - back)) + (y - back)

    def fast_two_sum(self, x: Value, y: Value) -> tuple[Value, Value]:
        """`x + y` and its error where |x| >= |y| or x is 0 (Dekker)."""
        total = x + y
        return total, y - (total - x)

    def two_product(self, x: Value, y: Value | float) -> tuple[Value, Value]:
        """`x * y` as a rounded product and its error; without FMA by Dekker's splitting, so factors stay below 2^996."""
        y = self._value(y)
        product = x * y
        if self.has_fma:
            return product, self.intrinsic("fma", x, y, -product)
        (xh, xl), (yh, yl) = self._split(x), self._split(y)
        return product, ((xh * yh - product) + xh * yl + xl * yh) + xl * yl

    def _split(self, x: Value) -> tuple[Value, Value]:
        scaled = x * self.pick(2.0**12 + 1, 2.0**27 + 1)
        high = scaled - (scaled - x)
        return high, x - high

    def round_scaled(self, x: Value, factor: float) -> tuple[Value, Value]:
        """`n = round(x * factor)` for |n| < 2^(mantissa-2): (the float that holds n in its low bits, n as a float)."""
        shifted = self.mad(x, factor, self.format.magic)
        return shifted, shifted - self.format.magic

    def power_of_two(self, shifted: Value) -> Value:
        """`2^n` from `round_scaled`'s first result; n within the normal exponents."""
        fmt = self.format
        return self.from_bits((self.bits(shifted) << fmt.mantissa) + (fmt.bias << fmt.mantissa))
