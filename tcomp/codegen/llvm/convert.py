"""Conversions: between elements in memory and in registers, rounding to the 16-bit floats, and the `cast` operation.

In memory a bool is a byte and a 16-bit float its bits; in registers they are an i1, and a float that the 16 bits can represent
(so a chain of operations widens once). Nothing here needs a library call: without conversion instructions f16 goes by integer
arithmetic. Float to integer is defined everywhere as x86-64's 64-bit conversion does it, then wrapped.
"""

from __future__ import annotations

from dataclasses import dataclass

from tcomp.codegen.llvm.builder import FunctionBuilder, ModuleBuilder, mangle, splat, vector
from tcomp.codegen.llvm.writer import REGISTER
from tcomp.ir.dtype import DType

F16_FEATURES = frozenset({"f16c", "avx512f", "neon"})  # with any of them f32 <-> f16 is an instruction
MEMORY = {**REGISTER, "bool": "i8", "f16": "i16", "bf16": "i16"}


@dataclass(frozen=True, slots=True)
class Elements:
    """Where instructions on `lanes` elements go: every method appends one and gives its SSA name."""

    b: FunctionBuilder
    lanes: int
    features: frozenset[str] = frozenset()

    def kind(self, element: str) -> str:
        return vector(element, self.lanes)

    def const(self, element: str, value: float | int) -> str:
        return splat(element, self.lanes, value)

    def binary(self, op: str, element: str, x: str, y: str | int | float) -> str:
        right = y if isinstance(y, str) else self.const(element, y)
        return self.b.value(f"{op} {self.kind(element)} {x}, {right}")

    def compare(self, op: str, element: str, x: str, y: str | int | float) -> str:
        """`op` with its instruction: `icmp eq`, `fcmp olt`."""
        return self.binary(op, element, x, y)

    def select(self, element: str, mask: str, x: str | int | float, y: str | int | float) -> str:
        first, second = (v if isinstance(v, str) else self.const(element, v) for v in (x, y))
        kind = self.kind(element)
        return self.b.value(f"select {self.kind('i1')} {mask}, {kind} {first}, {kind} {second}")

    def cast(self, op: str, source: str, x: str, target: str) -> str:
        return x if source == target else self.b.value(f"{op} {self.kind(source)} {x} to {self.kind(target)}")

    def intrinsic(self, name: str, element: str, *arguments: str) -> str:
        kind = self.kind(element)
        return self.b.call(kind, f"@llvm.{name}.{mangle(element, self.lanes)}", *(f"{kind} {a}" for a in arguments))

    def absolute(self, element: str, x: str) -> str:
        return self.intrinsic("fabs", element, x)


# --- 16-bit floats -------------------------------------------------------------------------------------


def rounded(e: Elements, dtype: DType, x: str) -> str:
    """The float `x` rounded to what a 16-bit `dtype` can represent."""
    if dtype.name == "bf16":
        return e.cast("bitcast", "i32", _bf16_bits(e, x), "float")
    if e.features & F16_FEATURES:
        return e.cast("fpext", "half", e.cast("fptrunc", "float", x, "half"), "float")
    return f16_to_float(e, float_to_f16(e, x))


def _bf16_bits(e: Elements, x: str) -> str:
    """The bits of `x` rounded to the upper 16, the lower ones zero; NaN stays NaN."""
    bits = e.cast("bitcast", "float", x, "i32")
    odd = e.binary("and", "i32", e.binary("lshr", "i32", bits, 16), 1)
    moved = e.binary("add", "i32", e.binary("add", "i32", bits, 0x7FFF), odd)
    quiet = e.binary("or", "i32", bits, 0x400000)
    chosen = e.select("i32", e.compare("fcmp uno", "float", x, x), quiet, moved)
    return e.binary("and", "i32", chosen, -0x10000)


def float_to_f16(e: Elements, x: str) -> str:
    """The f16 bits (i16) of the nearest f16."""
    if e.features & F16_FEATURES:
        return e.cast("bitcast", "half", e.cast("fptrunc", "float", x, "half"), "i16")
    kind = e.kind("float")
    name = e.b.module.helper(f"f16_from_{mangle('float', e.lanes)}", lambda: _f16_from_float(e.b.module, e.lanes))
    return e.b.value(f"call {e.kind('i16')} {name}({kind} {x})")


def _f16_from_float(module: ModuleBuilder, lanes: int) -> str:
    """Rounding by integer arithmetic; subnormals by adding a float whose unit is theirs (F. Giesen's method)."""
    e = Elements(FunctionBuilder(module), lanes)
    bits = e.cast("bitcast", "float", "%x", "i32")
    sign = e.binary("and", "i32", bits, -(2**31))
    size = e.binary("xor", "i32", bits, sign)
    odd = e.binary("and", "i32", e.binary("lshr", "i32", size, 13), 1)
    normal = e.binary("add", "i32", e.binary("add", "i32", size, ((15 - 127) << 23) + 0xFFF), odd)
    normal = e.binary("lshr", "i32", normal, 13)
    magic = ((127 - 15) + (23 - 10) + 1) << 23
    shifted = e.binary("fadd", "float", e.cast("bitcast", "i32", size, "float"), 0.5)
    assert magic == 0x3F000000  # 0.5
    small = e.binary("sub", "i32", e.cast("bitcast", "float", shifted, "i32"), magic)
    kept = e.select("i32", e.compare("icmp ult", "i32", size, 113 << 23), small, normal)
    payload = e.binary("or", "i32", e.binary("and", "i32", e.binary("lshr", "i32", size, 13), 0x3FF), 0x7E00)
    special = e.select("i32", e.compare("icmp ugt", "i32", size, 255 << 23), payload, 0x7C00)
    kept = e.select("i32", e.compare("icmp uge", "i32", size, (127 + 16) << 23), special, kept)
    whole = e.binary("or", "i32", kept, e.binary("lshr", "i32", sign, 16))
    e.b.effect(f"ret {e.kind('i16')} {e.cast('trunc', 'i32', whole, 'i16')}")
    name = f"f16_from_{mangle('float', lanes)}"
    return f"define internal {e.kind('i16')} @{name}({e.kind('float')} %x) nounwind {{\n{e.b.body()}\n}}"


def f16_to_float(e: Elements, bits: str) -> str:
    """The float of f16 bits (i16)."""
    if e.features & F16_FEATURES:
        return e.cast("fpext", "half", e.cast("bitcast", "i16", bits, "half"), "float")
    name = e.b.module.helper(f"f16_to_{mangle('float', e.lanes)}", lambda: _f16_to_float(e.b.module, e.lanes))
    return e.b.value(f"call {e.kind('float')} {name}({e.kind('i16')} {bits})")


def _f16_to_float(module: ModuleBuilder, lanes: int) -> str:
    """The exponent moved; subnormals normalised by subtracting a float of their unit."""
    e = Elements(FunctionBuilder(module), lanes)
    wide = e.cast("zext", "i16", "%x", "i32")
    size = e.binary("shl", "i32", e.binary("and", "i32", wide, 0x7FFF), 13)
    exponent = e.binary("and", "i32", size, 0x7C00 << 13)
    normal = e.binary("add", "i32", size, (127 - 15) << 23)
    special = e.binary("add", "i32", normal, (128 - 16) << 23)
    raised = e.cast("bitcast", "i32", e.binary("add", "i32", normal, 1 << 23), "float")
    small = e.cast("bitcast", "float", e.binary("fsub", "float", raised, 2.0**-14), "i32")
    kept = e.select("i32", e.compare("icmp eq", "i32", exponent, 0x7C00 << 13), special, normal)
    kept = e.select("i32", e.compare("icmp eq", "i32", exponent, 0), small, kept)
    sign = e.binary("shl", "i32", e.binary("and", "i32", wide, 0x8000), 16)
    e.b.effect(f"ret {e.kind('float')} {e.cast('bitcast', 'i32', e.binary('or', 'i32', kept, sign), 'float')}")
    name = f"f16_to_{mangle('float', lanes)}"
    return f"define internal {e.kind('float')} @{name}({e.kind('i16')} %x) nounwind {{\n{e.b.body()}\n}}"


# --- memory --------------------------------------------------------------------------------------------


def from_memory(e: Elements, dtype: DType, x: str) -> str:
    """The register form of elements as they stand in memory."""
    match dtype.name:
        case "bool":
            return e.compare("icmp ne", "i8", x, 0)
        case "f16":
            return f16_to_float(e, x)
        case "bf16":
            bits = e.binary("shl", "i32", e.cast("zext", "i16", x, "i32"), 16)
            return e.cast("bitcast", "i32", bits, "float")
    return x


def to_memory(e: Elements, dtype: DType, x: str) -> str:
    """The memory form of register values (of 16-bit floats exact: they are rounded already)."""
    match dtype.name:
        case "bool":
            return e.cast("zext", "i1", x, "i8")
        case "f16":
            return float_to_f16(e, x)
        case "bf16":
            bits = e.binary("lshr", "i32", e.cast("bitcast", "float", x, "i32"), 16)
            return e.cast("trunc", "i32", bits, "i16")
    return x


# --- cast ----------------------------------------------------------------------------------------------


def cast(e: Elements, source: DType, target: DType, x: str) -> str:
    """The `cast` operation of the op table."""
    if source == target:
        return x
    if target.kind == "bool":
        return _to_bool(e, source, x)
    if source.is_float:
        return _float_to_float(e, source, target, x) if target.is_float else _float_to_integer(e, source, target, x)
    if target.is_float:
        return _integer_to_float(e, source, target, x)
    a, b = REGISTER[source.name], REGISTER[target.name]
    if a != "i1" and target.bits <= source.bits:
        return e.cast("trunc", a, x, b)
    return e.cast("sext" if source.kind == "int" else "zext", a, x, b)


def _to_bool(e: Elements, source: DType, x: str) -> str:
    element = REGISTER[source.name]
    return e.compare("fcmp une" if source.is_float else "icmp ne", element, x, 0)


def _integer_to_float(e: Elements, source: DType, target: DType, x: str) -> str:
    element, wide = REGISTER[source.name], REGISTER[target.name]
    if element == "i1":
        return e.select(wide, x, 1.0, 0.0)
    result = e.cast("sitofp" if source.kind == "int" else "uitofp", element, x, wide)
    return rounded(e, target, result) if target.bits == 16 else result


def _float_to_float(e: Elements, source: DType, target: DType, x: str) -> str:
    if target.name == "f64":
        return e.cast("fpext", "float", x, "double")
    if target.name == "f32":
        return e.cast("fptrunc", REGISTER[source.name], x, "float")
    return rounded(e, target, _to_odd(e, x) if source.name == "f64" else x)


def _to_odd(e: Elements, x: str) -> str:
    """f64 to f32, towards zero with the last bit set where inexact: rounding that once more rounds `x` itself once."""
    near = e.cast("fptrunc", "double", x, "float")
    back = e.cast("fpext", "float", near, "double")
    bits = e.cast("bitcast", "float", near, "i32")
    above = e.compare("fcmp ogt", "double", e.absolute("double", back), e.absolute("double", x))
    lower = e.select("i32", above, e.binary("sub", "i32", bits, 1), bits)
    inexact = e.compare("fcmp one", "double", back, x)
    odd = e.select("i32", inexact, e.binary("or", "i32", lower, 1), bits)
    return e.cast("bitcast", "i32", odd, "float")


def _float_to_integer(e: Elements, source: DType, target: DType, x: str) -> str:
    element = REGISTER[source.name]
    if target.name != "u64":
        return e.cast("trunc", "i64", _to_i64(e, element, x), REGISTER[target.name])
    high = e.compare("fcmp oge", element, x, 2.0**63)
    low = _to_i64(e, element, e.select(element, high, e.binary("fsub", element, x, 2.0**63), x))
    return e.select("i64", high, e.binary("xor", "i64", low, -(2**63)), low)


def _to_i64(e: Elements, element: str, x: str) -> str:
    """Truncated; out of range and NaN: the most negative number."""
    inside = e.compare("fcmp olt", element, e.absolute(element, x), 2.0**63)
    converted = e.cast("fptosi", element, e.select(element, inside, x, 0.0), "i64")
    return e.select("i64", inside, converted, -(2**63))


def bitcast(e: Elements, source: DType, target: DType, x: str) -> str:
    """The `bitcast` operation: the bits in memory read as another dtype of the same width."""
    bits = e.cast("bitcast", MEMORY[source.name], to_memory(e, source, x), MEMORY[target.name])
    return from_memory(e, target, bits)
