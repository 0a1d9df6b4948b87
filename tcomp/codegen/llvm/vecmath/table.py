"""The functions of the vector math library, one row each, and `emit`, the way in.

A row's bounds are in units in the last place over the whole range and are tested. Long functions are emitted once per
module as an internal helper and called; short ones are emitted in place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tcomp.codegen.llvm.builder import FunctionBuilder, mangle
from tcomp.codegen.llvm.vecmath import error_function, exponential, inverse, logarithm, power, rounding, trigonometric
from tcomp.codegen.llvm.vecmath.values import USED_FEATURES, Math, Value


@dataclass(frozen=True, slots=True)
class VectorFunction:
    """A row: `function(m, *arguments)` emits the body; bounds in ulp; `source` says where the algorithm comes from."""

    name: str
    function: Callable[..., Value]
    arity: int
    bound_f32: float
    bound_f64: float
    source: str
    inline: bool = True


CODY = "Cody and Waite's reduction, minimax polynomial"
FDLIBM_LOG = "f32: polynomial in f (Cephes' form); f64: fdlibm e_log.c's form"
TRIGONOMETRY = "Cody and Waite's or Payne and Hanek's reduction, polynomials in the form of fdlibm's kernels"
EXACT = "exact, as IEEE 754 or NumPy defines it"

_ROWS = (
    VectorFunction("exp", exponential.exp, 1, 1.25, 1.5, CODY),
    VectorFunction("exp2", exponential.exp2, 1, 1.25, 1.5, "round to n, minimax polynomial of 2^r"),
    VectorFunction("expm1", exponential.expm1, 1, 2.0, 2.5, CODY + ", recombined without early overflow"),
    VectorFunction("tanh", exponential.tanh, 1, 2.0, 3.0, "E / (E + 2), E = expm1(2|x|)"),
    VectorFunction("sigmoid", exponential.sigmoid, 1, 2.5, 2.5, "1 / (1 + e^-|x|), times e^-|x| below 0"),
    VectorFunction("sinh", exponential.sinh, 1, 4.0, 4.0, "from expm1 and the scaled exp", inline=False),
    VectorFunction("cosh", exponential.cosh, 1, 4.0, 4.0, "from the scaled exp and its reciprocal"),
    VectorFunction("log", logarithm.log, 1, 2.0, 2.0, FDLIBM_LOG),
    VectorFunction("log2", logarithm.log2, 1, 2.0, 2.0, FDLIBM_LOG + ", product in two pieces", inline=False),
    VectorFunction("log10", logarithm.log10, 1, 2.0, 2.5, FDLIBM_LOG + ", product in two pieces", inline=False),
    VectorFunction("log1p", logarithm.log1p, 1, 2.0, 2.0, "log of the rounded sum plus error / sum", inline=False),
    VectorFunction("asinh", logarithm.asinh, 1, 4.0, 4.0, "fdlibm s_asinh.c's formula over log1p", inline=False),
    VectorFunction("acosh", logarithm.acosh, 1, 4.0, 4.0, "fdlibm e_acosh.c's formula over log1p", inline=False),
    VectorFunction("atanh", logarithm.atanh, 1, 4.0, 4.0, "log1p(2a / (1 - a)) / 2", inline=False),
    VectorFunction(
        "erf",
        error_function.erf,
        1,
        2.5,
        2.5,
        "f32: N. Juffa's split, or 32 looked-up polynomials (AVX-512); f64: Schonfelder's erfcx",
    ),
    VectorFunction("erfc", error_function.erfc, 1, 1.0, 4.0, "Schonfelder's erfcx, f32 through f64", inline=False),
    VectorFunction("sin", trigonometric.sin, 1, 2.0, 2.0, TRIGONOMETRY, inline=False),
    VectorFunction("cos", trigonometric.cos, 1, 2.0, 2.0, TRIGONOMETRY, inline=False),
    VectorFunction("tan", trigonometric.tan, 1, 4.0, 4.0, TRIGONOMETRY + ", quotient of both", inline=False),
    VectorFunction("asin", inverse.asin, 1, 4.0, 4.0, "fdlibm e_asin.c's reduction, minimax polynomial"),
    VectorFunction("acos", inverse.acos, 1, 4.0, 4.0, "fdlibm e_acos.c's reduction, minimax polynomial"),
    VectorFunction("atan", inverse.atan, 1, 2.0, 2.0, "reduction at tan(pi/8) and tan(3pi/8), minimax polynomial"),
    VectorFunction("atan2", inverse.atan2, 2, 4.0, 4.0, "atan of the smaller quotient", inline=False),
    VectorFunction("pow", power.pow, 2, 1.0, 2.0, "e^(y log x); f32 in f64; f64 log in pairs, fdlibm e_pow.c", inline=False),
    VectorFunction("cbrt", power.cbrt, 1, 1.0, 2.0, "Halley's and Newton's iterations", inline=False),
    VectorFunction("sqrt", rounding.sqrt, 1, 0.5, 0.5, "the instruction"),
    VectorFunction("rsqrt", rounding.rsqrt, 1, 1.5, 1.5, "1 / sqrt(x)"),
    VectorFunction("floor", rounding.floor, 1, 0.0, 0.0, EXACT),
    VectorFunction("ceil", rounding.ceil, 1, 0.0, 0.0, EXACT),
    VectorFunction("trunc", rounding.trunc, 1, 0.0, 0.0, EXACT),
    VectorFunction("roundeven", rounding.roundeven, 1, 0.0, 0.0, EXACT),
    VectorFunction("maximum", rounding.maximum, 2, 0.0, 0.0, EXACT),
    VectorFunction("minimum", rounding.minimum, 2, 0.0, 0.0, EXACT),
    VectorFunction("sign", rounding.sign, 1, 0.0, 0.0, EXACT),
    VectorFunction("copysign", rounding.copysign, 2, 0.0, 0.0, EXACT),
    VectorFunction("fmod", rounding.fmod, 2, 0.0, 0.0, "long division by exact steps", inline=False),
    VectorFunction("remainder", rounding.remainder, 2, 0.0, 0.0, EXACT + ", over fmod", inline=False),
    VectorFunction("floor_divide", rounding.floor_divide, 2, 0.0, 0.0, EXACT + ", over fmod", inline=False),
)
FUNCTIONS: dict[str, VectorFunction] = {row.name: row for row in _ROWS}


def emit(
    b: FunctionBuilder,
    name: str,
    element: str,
    lanes: int,
    arguments: tuple[str, ...],
    features: frozenset[str] = frozenset(),
) -> str:
    """Emit function `name` of `lanes` values of LLVM type `element` ("float" or "double"); returns the SSA name.

    `arguments` are SSA names or literals of that type. `features` are LLVM's names of what the target surely has
    ("fma", "sse4.1", "avx512f", "avx512vl"; "neon" stands for aarch64): without them the code runs anywhere.
    """
    row = FUNCTIONS[name]
    assert len(arguments) == row.arity, f"{name} takes {row.arity} arguments"
    m = Math(b, element, lanes, features & USED_FEATURES)
    if row.inline:
        return row.function(m, *map(m.wrap, arguments)).name
    kind = m.type_of(element)
    helper = b.module.helper(_helper_name(row, m), lambda: _helper(row, m))
    return b.value(f"call {kind} {helper}({', '.join(f'{kind} {a}' for a in arguments)})")


def _helper_name(row: VectorFunction, m: Math) -> str:
    tag = "_".join(sorted(m.features)).replace(".", "")
    return f"vecmath_{row.name}_{mangle(m.element, m.lanes)}{'_' + tag if tag else ''}"


def _helper(row: VectorFunction, m: Math) -> str:
    """The text of the out-of-line definition."""
    b = FunctionBuilder(m.b.module)
    inner = Math(b, m.element, m.lanes, m.features)
    names = [f"%x{i}" for i in range(row.arity)]
    result = row.function(inner, *map(inner.wrap, names))
    kind = m.type_of(m.element)
    b.effect(f"ret {kind} {result.name}")
    parameters = ", ".join(f"{kind} {n}" for n in names)
    return f"define internal {kind} @{_helper_name(row, m)}({parameters}) nounwind {{\n{b.body()}\n}}"


def page() -> str:
    """The text of `docs/vecmath.md`."""
    lines = [
        "# Vector math",
        "",
        "The functions that generated CPU code computes itself, in f32 and f64, at any vector width. Largest error in ulp",
        "(units in the last place; 0.5 is correct rounding, 0 is exact by definition) over the whole range, subnormals",
        "included; signed zeros, infinities and NaN as in C99. f16 and bf16 are computed in f32. The coefficients are",
        "written by `tools/fit_coefficients.py`, this page by `vecmath.page()`.",
        "",
        "| function | f32 ulp | f64 ulp | form | algorithm |",
        "|---|---|---|---|---|",
    ]
    for row in FUNCTIONS.values():
        form = "inline" if row.inline else "helper"
        source = row.source.replace("|", "\\|")
        lines.append(f"| `{row.name}` | {row.bound_f32:g} | {row.bound_f64:g} | {form} | {source} |")
    return "\n".join(lines) + "\n"
