"""Machines as rows of facts: caches, registers, vector widths, and the intrinsics that products are built from.

An `Intrinsic` row has four readers: the schedule (does this dot fit, how large may its register tile be), the code
generator (spelling, by name), the interpreter (meaning) and the docs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tcomp.ir.dtype import DType, f32, f64, i32, i64, u8, u32

LANES = 16  # elements of a register vector in all stages; the code generator legalises to what the machine has


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """c[m, n] += a[m, k] . b[k, n] for one atom.

    a_from: `splat` (one element of a row, broadcast), `lanes` (vectors along k, summed across lanes at the end: both operands
    contiguous along k) or `words` (atom[2] bytes of a row at once, broadcast; those of b lie packed in words of 32 bits, the
    first in the lowest bits; a of u8 meets signed parts of b, a of i8 unsigned ones). registers: of the machine's vector file;
    per_vector: registers that LANES elements of c take. feature: what the machine must have ('' for any).
    """

    name: str
    atom: tuple[int, int, int]
    a: DType
    b: DType
    c: DType
    a_from: str
    registers: int
    per_vector: int
    feature: str = ""
    fused: bool = True  # multiply and add round once

    def fits(self, rows: int, columns: int) -> bool:
        """Whether a register tile of c leaves room for the operands: m*nv + nv + 1 <= registers - 1."""
        nv = -(-columns // LANES) * self.per_vector
        return rows * nv + nv + 1 <= self.registers - 1


def _family(name: str, registers: int, bits: int, feature: str, fused: bool) -> tuple[Intrinsic, ...]:
    """The rows of one instruction set: products of each dtype with its own accumulator, splat and lanes forms."""
    rows = []
    for t in (f32, f64, i32, i64):
        per = LANES * t.bits // bits
        rows.append(Intrinsic(f"{name}_{t}", (1, LANES, 1), t, t, t, "splat", registers, per, feature, fused and t.is_float))
        rows.append(Intrinsic(f"{name}_{t}_k", (1, 1, LANES), t, t, t, "lanes", registers, per, feature, fused and t.is_float))
    return tuple(rows)


def _words(name: str, k: int, registers: int, bits: int, feature: str) -> Intrinsic:
    """A row for products of bytes in words of k: of four by one instruction, of two after widening them to 16 bits."""
    return Intrinsic(name, (1, LANES, k), u8, u32, i32, "words", registers, LANES * 32 // bits, feature, False)


WORDS = (  # the first that a machine has the feature for is taken
    _words("vnni512", 4, 32, 512, "avx512vnni"),
    _words("vnni256", 4, 16, 256, "avxvnni"),
    _words("madd512", 2, 32, 512, "avx512bw"),
    _words("madd256", 2, 16, 256, "avx2"),
)

INTRINSICS: dict[str, Intrinsic] = {
    r.name: r
    for r in (
        *WORDS,
        *_family("fma512", 32, 512, "avx512f", True),
        *_family("fma256", 16, 256, "fma", True),
        *_family("neon", 32, 128, "neon", True),
        *_family("sse", 16, 128, "", False),
    )
}


@dataclass(frozen=True, slots=True)
class Machine:
    """A CPU: LLVM's name and features, bytes of its caches (per core; l3 shared), cores, and its family of intrinsics."""

    name: str
    cpu: str
    features: frozenset[str]
    family: str
    cores: int
    l1: int = 32 << 10
    l2: int = 1 << 20
    l3: int = 16 << 20

    def intrinsic(self, dtype: DType, form: str = "splat") -> Intrinsic:
        """The row for products of `dtype` (f32, f64, i32 or i64)."""
        return INTRINSICS[f"{self.family}_{dtype}" + ("_k" if form == "lanes" else "")]

    def words(self) -> Intrinsic | None:
        """The row for products of bytes, where there is one."""
        return next((row for row in WORDS if row.feature in self.features), None)


def parts(words: np.ndarray, k: int, dtype: DType) -> np.ndarray:
    """[K, N] of [K / k, N] words of 32 bits, k parts in each, which are signed where the first operand's `dtype` is not."""
    width = 32 // k
    found = words[:, None, :] >> (np.arange(k, dtype=np.uint32) * width)[None, :, None] & np.uint32(2**width - 1)
    low = found.reshape(-1, words.shape[1]).astype(np.int32)
    return np.where(low >= 2 ** (width - 1), low - 2**width, low) if dtype == u8 or k == 2 else low


def family_of(features: frozenset[str], arch: str) -> str:
    """The widest family that these LLVM features allow."""
    if arch == "aarch64":
        return "neon"
    if "avx512f" in features:
        return "fma512"
    return "fma256" if "fma" in features and "avx2" in features else "sse"
