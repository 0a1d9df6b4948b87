"""AVX-512's instructions for what the portable spelling needs several for. Each gives None where the target or the width
has no such instruction; wide vectors are taken register by register."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from tcomp.codegen.llvm.builder import literal, vector
from tcomp.codegen.llvm.vecmath.values import Math, Value


def scalef(m: Math, p: Value, n: Value) -> Value | None:
    """`p * 2^n` with one rounding, n integral."""
    width = min(m.lanes * m.format.bits, 512)
    if "avx512f" not in m.features or (width < 512 and ("avx512vl" not in m.features or width < 128)):
        return None
    step = width // m.format.bits
    kind = vector(m.element, step)
    name = f"@llvm.x86.avx512.mask.scalef.{'ps' if m.single else 'pd'}.{width}"
    rounding = ["i32 4"] if width == 512 else []  # 4: the current direction
    rest = (f"{kind} zeroinitializer", f"i{max(step, 8)} -1", *rounding)

    def register(first: str, second: str) -> str:
        return m.b.call(kind, name, f"{kind} {first}", f"{kind} {second}", *rest)

    return _by_register(m, step, register, p, n)


def look_up(m: Math, index: Value, table: tuple[float, ...]) -> Value | None:
    """`table[index mod 32]` of 32 floats, index an i32. At every width, so that the width does not change results."""
    if "avx512f" not in m.features or not m.single:
        return None
    low, high = (_constant(table[i : i + 16]) for i in (0, 16))
    kind, name = "<16 x float>", "@llvm.x86.avx512.vpermi2var.ps.512"

    def register(picks: str) -> str:
        return m.b.call(kind, name, f"{kind} {low}", f"<16 x i32> {picks}", f"{kind} {high}")

    return _by_register(m, 16, register, index)


@cache
def _constant(values: tuple[float, ...]) -> str:
    elements = ", ".join(f"float {literal('float', v)}" for v in values)
    return f"<{elements}>"


def _by_register(m: Math, step: int, make: Callable[..., str], *operands: Value) -> Value:
    """`make` of the operands' parts of `step` lanes, put together again; narrow vectors fill a part of a register."""
    parts = [make(*(_part(m, v, i, step) for v in operands)) for i in range(0, m.lanes, step)]
    if m.lanes < step:
        return m.wrap(_first_lanes(m, parts[0], step))
    while len(parts) > 1:
        parts = [_join(m, a, b, step) for a, b in zip(parts[::2], parts[1::2])]
        step *= 2
    return m.wrap(parts[0])


def _part(m: Math, v: Value, start: int, step: int) -> str:
    """Lanes `start` to `start + step`, those past the end poison."""
    if step == m.lanes:
        return v.name
    kind = m.type_of(v.element)
    if m.lanes == 1:
        return m.b.value(f"insertelement {vector(v.element, step)} poison, {kind} {v.name}, i32 0")
    picks = ", ".join(f"i32 {start + i if start + i < m.lanes else 'poison'}" for i in range(step))
    return m.b.value(f"shufflevector {kind} {v.name}, {kind} poison, <{step} x i32> <{picks}>")


def _first_lanes(m: Math, register: str, step: int) -> str:
    kind = vector(m.element, step)
    if m.lanes == 1:
        return m.b.value(f"extractelement {kind} {register}, i32 0")
    picks = ", ".join(f"i32 {i}" for i in range(m.lanes))
    return m.b.value(f"shufflevector {kind} {register}, {kind} poison, <{m.lanes} x i32> <{picks}>")


def _join(m: Math, low: str, high: str, step: int) -> str:
    kind = vector(m.element, step)
    picks = ", ".join(f"i32 {i}" for i in range(2 * step))
    return m.b.value(f"shufflevector {kind} {low}, {kind} {high}, <{2 * step} x i32> <{picks}>")
