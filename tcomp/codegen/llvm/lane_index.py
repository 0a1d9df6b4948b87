"""Index expressions that differ from lane to lane, as vectors: offsets of gathers, positions, bounds tests.

They are computed in 32 bits where the bounds of every part prove that it fits, else in 64.
"""

from __future__ import annotations

from dataclasses import dataclass

from tcomp.codegen.llvm import memory
from tcomp.codegen.llvm.address import LANE, extension, has_lane, level_of, value
from tcomp.codegen.llvm.writer import Writer
from tcomp.ir import index, layout
from tcomp.ir.index import as_dim, as_node
from tcomp.ir.machine import LANES
from tcomp.ir.node import Dim, Node, walk
from tcomp.ir.types import Buffer


def element_for(*xs: Dim) -> str:
    """The narrowest LLVM type that holds these expressions and everything inside them."""
    return "i32" if all(_fits(index.bounds(n)) for n in walk(map(as_node, xs))) else "i64"


def _fits(bounds: index.Bounds) -> bool:
    low, high = bounds
    return low is not None and high is not None and low >= -(2**31) and high < 2**31


def offsets(w: Writer, x: Dim, mask: str | None = None) -> memory.Offsets:
    """`x` (bytes, over LANE) as offsets of a gather or scatter; buffers are read in the lanes of the mask alone."""
    element = element_for(x)
    return memory.Offsets(element, values(w, x, element, mask))


def values(w: Writer, x: Dim, element: str, mask: str | None = None) -> str:
    """`x` over LANE as a vector of that LLVM type."""
    return _Lanes(w, element, mask).value(x)


@dataclass(frozen=True, slots=True)
class _Lanes:
    """Where vectors of one type are written; see `values`."""

    w: Writer
    element: str
    mask: str | None

    @property
    def kind(self) -> str:
        return f"<{LANES} x {self.element}>"

    def value(self, x: Dim) -> str:
        if not has_lane(x):
            return self.uniform(x)
        assert isinstance(x, Node)
        if x is LANE:
            return self.scaled(1)
        return str(self.w.memo(("lanes", x, self.element, self.mask, self.w.stamp(x)), lambda: self._compute(x)))

    def uniform(self, x: Dim) -> str:
        """One value in all lanes."""
        known, level = value(self.w, x), level_of(self.w, x)
        if isinstance(known, int):
            return f"splat ({self.element} {self.wrapped(known)})"
        if self.element == "i32":
            known = self.w.pure(level, f"trunc i64 {known} to i32")
        return self.w.splat(self.element, known, level=level)

    def wrapped(self, x: int) -> int:
        half = 1 << (31 if self.element == "i32" else 63)
        return (x + half) % (2 * half) - half

    def scaled(self, k: int) -> str:
        """The lanes' numbers times k."""
        return f"<{', '.join(f'{self.element} {self.wrapped(k * lane)}' for lane in range(LANES))}>"

    def code(self, instruction: str) -> str:
        return self.w.b.value(instruction)

    def _compute(self, x: Node) -> str:
        if x.op == "affine":
            return self._sum(x)
        if x.op == "read":
            return self._read(x)
        parts = [self.value(as_dim(o)) for o in x.operands]
        if x.op in ("floordiv", "mod"):
            return self._division(x, *parts)
        result = parts[0]
        for p in parts[1:]:
            result = self._binary(x.op, result, p)
        return result

    def _sum(self, x: Node) -> str:
        """The uniform part as one scalar, then lane by lane."""
        uniform: Dim = x["constant"]
        bent: list[tuple[Node, int]] = []
        for atom, k in zip(x.operands, x["coefficients"]):
            if has_lane(atom):
                bent.append((atom, k))
            else:
                uniform = index.add(uniform, index.mul(atom, k))
        total = "" if uniform == 0 else self.uniform(uniform)
        for atom, k in bent:
            part = self.scaled(k) if atom is LANE else self.value(atom)
            if atom is not LANE and k != 1:
                part = self.code(f"mul {self.kind} {part}, splat ({self.element} {self.wrapped(k)})")
            total = part if not total else self.code(f"add {self.kind} {total}, {part}")
        return total

    def _read(self, x: Node) -> str:
        buffer: Buffer = x["buffer"]
        place = layout.offset(buffer, tuple(as_dim(o) for o in x.operands))
        at = offsets(self.w, index.mul(place, buffer.dtype.bytes), self.mask)
        stored = f"i{buffer.dtype.bits}"
        found = memory.gather(self.w, stored, self.w.pointer(buffer.name), at, self.mask)
        if stored == self.element:
            return found
        narrower = buffer.dtype.bits > int(self.element[1:])
        return self.code(f"{'trunc' if narrower else extension(buffer)} <{LANES} x {stored}> {found} to {self.kind}")

    def _binary(self, op: str, a: str, b: str) -> str:
        match op:
            case "mul":
                return self.code(f"mul {self.kind} {a}, {b}")
            case "min" | "max":
                return self._extremum(op, a, b)
        test = self.code(f"icmp {'eq' if op == 'eq' else 'slt'} {self.kind} {a}, {b}")
        return self.code(f"zext <{LANES} x i1> {test} to {self.kind}")

    def _extremum(self, op: str, a: str, b: str) -> str:
        return self.w.call(self.kind, f"@llvm.s{op}.v{LANES}{self.element}", f"{self.kind} {a}", f"{self.kind} {b}")

    def _division(self, x: Node, a: str, b: str) -> str:
        """Rounded down. A divisor that is not known counts as 1 where it is 0."""
        if index.constant(as_dim(x.operands[1])) is None:
            b = self._extremum("max", b, f"splat ({self.element} 1)")
        low = index.bounds(as_dim(x.operands[0]))[0]
        if low is not None and low >= 0:
            return self.code(f"{'udiv' if x.op == 'floordiv' else 'urem'} {self.kind} {a}, {b}")
        rest = self.code(f"srem {self.kind} {a}, {b}")
        below = self.code(f"icmp slt {self.kind} {rest}, zeroinitializer")
        if x.op == "mod":
            moved = self.code(f"add {self.kind} {rest}, {b}")
            return self.code(f"select <{LANES} x i1> {below}, {self.kind} {moved}, {self.kind} {rest}")
        quotient = self.code(f"sdiv {self.kind} {a}, {b}")
        borrow = self.code(f"sext <{LANES} x i1> {below} to {self.kind}")
        return self.code(f"add {self.kind} {quotient}, {borrow}")
