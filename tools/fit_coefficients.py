"""Fits the polynomials of tcomp's vector math library and writes them as `vecmath/coefficients.py`.

    python tools/fit_coefficients.py > tcomp/codegen/llvm/vecmath/coefficients.py

Each row of `FITS` is a function to approximate, an interval, and a weight that turns the polynomial's error into the
relative error of the final result. The fit is Remez' exchange on a fixed Chebyshev grid in 60-digit decimals. For f32
each coefficient is rounded and the later ones are fitted again, so that rounding costs no accuracy.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, getcontext
from math import cos, pi

getcontext().prec = 60
Function = Callable[[Decimal], Decimal]
ONE, TWO = Decimal(1), Decimal(2)
LN2 = TWO.ln()
PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899")
GRID = 640


def series(first: Decimal, ratio: Callable[[int], Decimal]) -> Decimal:
    """The sum of terms, term k+1 being term k times `ratio(k)`."""
    term, total, k = first, first, 0
    while abs(term) > Decimal("1e-62"):
        term *= ratio(k)
        total += term
        k += 1
    return total


def erf_over_x(x: Decimal) -> Decimal:
    """erf(x)/x."""
    return 2 / PI.sqrt() * (-x * x).exp() * series(ONE, lambda k: 2 * x * x / (2 * k + 3))


def erfc(x: Decimal) -> Decimal:
    """The complement, by its continued fraction where the difference would lose digits."""
    if x < 3:
        return 1 - x * erf_over_x(x)
    tail = x
    for k in range(int(4000 / (x * x)) + 60, 0, -1):
        tail = x + Decimal(k) / 2 / tail
    return (-x * x).exp() / PI.sqrt() / tail


def sin_tail(z: Decimal) -> Decimal:
    """(sin x / x - 1) / z with z = x^2."""
    return series(Decimal(-1) / 6, lambda k: -z / ((2 * k + 4) * (2 * k + 5)))


def cos_tail(z: Decimal) -> Decimal:
    """(cos x - 1 + z/2) / z^2 with z = x^2."""
    return series(ONE / 24, lambda k: -z / ((2 * k + 5) * (2 * k + 6)))


def atan_tail(z: Decimal) -> Decimal:
    """(atan x / x - 1) / z with z = x^2."""
    return series(Decimal(-1) / 3, lambda k: -z * (2 * k + 3) / (2 * k + 5))


def atanh_tail(z: Decimal) -> Decimal:
    """2 (atanh s / s - 1) / z with z = s^2."""
    return series(TWO / 3, lambda k: z * (2 * k + 3) / (2 * k + 5))


def atanh_tail2(z: Decimal) -> Decimal:
    """2 (atanh s / s - 1 - z/3) / z^2 with z = s^2."""
    return series(TWO / 5, lambda k: z * (2 * k + 5) / (2 * k + 7))


def asin_tail(z: Decimal) -> Decimal:
    """(asin x / x - 1) / z with z = x^2."""
    return series(ONE / 6, lambda k: z * (2 * k + 3) * (2 * k + 3) / ((2 * k + 4) * (2 * k + 5)))


def exp_tail(r: Decimal) -> Decimal:
    """(e^r - 1 - r) / r^2."""
    return series(ONE / 2, lambda k: r / (k + 3))


def exp2_tail(r: Decimal) -> Decimal:
    """(2^r - 1) / r."""
    return LN2 * series(ONE, lambda k: r * LN2 / (k + 2))


def log_tail(f: Decimal) -> Decimal:
    """(log(1+f) - f + f^2/2) / f^3."""
    if abs(f) < Decimal("0.01"):
        return sum(((-f) ** k / (k + 3) for k in range(40)), Decimal(0))
    return ((1 + f).ln() - f + f * f / 2) / f**3


def tanh_tail(z: Decimal) -> Decimal:
    """(tanh x / x - 1) / z with z = x^2, for z >= 1e-8."""
    x = z.sqrt()
    e = (2 * x).exp()
    return ((e - 1) / (e + 1) / x - 1) / z


def erfcx_x(t: Decimal) -> Decimal:
    """exp(x^2) erfc(x) (1 + 2x) with t = (x - 4) / (x + 4)."""
    x = 4 * (1 + t) / (1 - t)
    return (x * x).exp() * erfc(x) * (1 + 2 * x)


def log_erfc(t: Decimal) -> Decimal:
    """-log(erfc(t)) / t."""
    return -erfc(t).ln() / t


@dataclass(frozen=True, slots=True)
class Fit:
    """One polynomial: its degree per element type (None: not needed), its interval, and the weight of its error."""

    name: str
    function: Function
    low: str
    high: str
    weight: Function
    single: int | None
    double: int | None


HALF_LN2 = "0.3467"
QUARTER_PI_SQUARED = "0.6172"
FITS = (
    Fit("EXP", exp_tail, f"-{HALF_LN2}", HALF_LN2, lambda r: r * r / abs(r.exp() - 1), 5, 9),
    Fit("EXP_SHORT", exp_tail, f"-{HALF_LN2}", HALF_LN2, lambda r: r * r / r.exp(), 4, None),
    Fit("EXP2", exp2_tail, "-0.5", "0.5", lambda r: abs(r) / (r * LN2).exp(), 5, 10),
    Fit("EXP2_FOR_SINGLE", exp2_tail, "-0.5", "0.5", lambda r: abs(r) / (r * LN2).exp(), None, 6),
    Fit("LOG", log_tail, "-0.29297", "0.41424", lambda f: abs(f**3 / (1 + f).ln()), 7, None),
    Fit("ATANH", atanh_tail, "0", "0.02945", lambda z: z, None, 6),
    Fit("ATANH_FOR_SINGLE", atanh_tail, "0", "0.02945", lambda z: z, None, 4),
    Fit("ATANH_LONG", atanh_tail2, "0", "0.02945", lambda z: z * z, None, 6),
    Fit("SIN", sin_tail, "0", QUARTER_PI_SQUARED, lambda z: z, 2, 5),
    Fit("COS", cos_tail, "0", QUARTER_PI_SQUARED, lambda z: z * z, 2, 5),
    Fit("ATAN", atan_tail, "0", "0.17158", lambda z: z, 4, 10),
    Fit("ASIN", asin_tail, "0", "0.25", lambda z: z, 4, 12),
    Fit("TANH", tanh_tail, "0.000001", "0.073", lambda z: z, 2, None),
    Fit("ERF", lambda z: erf_over_x(z.sqrt()) - 1, "0", "1", lambda z: ONE, None, 12),
    Fit("ERF_SMALL", lambda z: erf_over_x(z.sqrt()) - 1, "0", "0.86", lambda z: ONE, 5, None),
    Fit("ERF_LARGE", log_erfc, "0.92", "3.95", lambda t: t * erfc(t), 6, None),
    Fit("ERFCX", erfcx_x, "-0.68", "0.78", lambda t: ONE, None, 20),
)


def solve(rows: list[list[Decimal]]) -> list[Decimal]:
    """Gaussian elimination with pivoting of an augmented square system."""
    n = len(rows)
    for i in range(n):
        pivot = max(range(i, n), key=lambda r: abs(rows[r][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for j in range(i + 1, n):
            factor = rows[j][i] / rows[i][i]
            rows[j] = [a - factor * b for a, b in zip(rows[j], rows[i])]
    answer = [Decimal(0)] * n
    for i in reversed(range(n)):
        known = sum((rows[i][j] * answer[j] for j in range(i + 1, n)), Decimal(0))
        answer[i] = (rows[i][n] - known) / rows[i][i]
    return answer


def evaluate(coefficients: list[Decimal], x: Decimal) -> Decimal:
    """Horner's scheme."""
    total = Decimal(0)
    for c in reversed(coefficients):
        total = total * x + c
    return total


def extrema(errors: list[Decimal], count: int) -> list[int]:
    """The grid indices of `count` extrema of alternating sign: runs of one sign give one each, weak ends are dropped."""
    runs: list[int] = []
    for i, e in enumerate(errors):
        if runs and (errors[runs[-1]] > 0) == (e > 0):
            runs[-1] = i if abs(e) > abs(errors[runs[-1]]) else runs[-1]
        else:
            runs.append(i)
    while len(runs) > count:
        runs.pop(0 if abs(errors[runs[0]]) < abs(errors[runs[-1]]) else -1)
    return runs


def remez(xs: list[Decimal], ys: list[Decimal], ws: list[Decimal], degree: int) -> tuple[list[Decimal], Decimal]:
    """The polynomial that is best on the grid, and its largest weighted error."""
    count = degree + 2
    nodes = [round((i + 0.5) * (len(xs) - 1) / count) for i in range(count)]
    best: tuple[list[Decimal], Decimal] | None = None
    for _ in range(12):
        rows = [[xs[n] ** k for k in range(degree + 1)] + [(-1) ** i / ws[n], ys[n]] for i, n in enumerate(nodes)]
        coefficients = solve(rows)[:-1]
        errors = [(evaluate(coefficients, x) - y) * w for x, y, w in zip(xs, ys, ws)]
        worst = max(map(abs, errors))
        if best is None or worst < best[1]:
            best = coefficients, worst
        nodes = extrema(errors, count)
        if len(nodes) < count:
            break
    assert best is not None
    return best


def to_single(value: Decimal) -> Decimal:
    """Rounded to f32."""
    return Decimal(struct.unpack("<f", struct.pack("<f", float(value)))[0])


def fit(row: Fit, degree: int, single: bool) -> tuple[list[float], float]:
    """The rounded coefficients from the constant term up, and the largest weighted error before rounding."""
    low, high = Decimal(row.low), Decimal(row.high)
    xs = [(low + high) / 2 - (high - low) / 2 * Decimal(cos(pi * (i + 0.5) / GRID)) for i in range(GRID)]
    ys = [row.function(x) for x in xs]
    ws = [max(row.weight(x), Decimal("1e-30")) for x in xs]
    coefficients, error = remez(xs, ys, ws, degree)
    if not single:
        return [float(c) for c in coefficients], float(error)
    done: list[float] = []
    for left in range(degree, -1, -1):
        coefficients, _ = remez(xs, ys, ws, left)
        leading = to_single(coefficients[0])
        done.append(float(leading))
        ys = [(y - leading) / x for x, y in zip(xs, ys)]
        ws = [w * abs(x) for x, w in zip(xs, ws)]
    return done, float(error)


def erf_table(degree: int) -> list[list[float]]:
    """Per power of d, the coefficients of erf(x)/x on the 32 intervals around i/8, d = x - i/8."""
    columns = []
    for i in range(32):
        centre, half = Decimal(i) / 8, ONE / 16
        low = Decimal(0) if i == 0 else -half

        def quotient(d: Decimal, centre: Decimal = centre) -> Decimal:
            return erf_over_x(centre + d)

        row = Fit("", quotient, str(low), str(half), lambda d, q=quotient: 1 / q(d), degree, None)
        columns.append(fit(row, degree, single=True)[0])
    return [list(row) for row in zip(*columns)]


def main() -> None:
    """Print the module."""
    print('"""Polynomial coefficients, from the constant term up: written by `tools/fit_coefficients.py`, which says')
    print('what each one approximates. The comment is the largest weighted error of the fit."""\n')
    print("# fmt: off")
    for row in FITS:
        for suffix, degree in (("F32", row.single), ("F64", row.double)):
            if degree is None:
                continue
            coefficients, error = fit(row, degree, suffix == "F32")
            print(f"{row.name}_{suffix} = (  # {error:.1e}")
            for c in coefficients:
                print(f"    {c!r},")
            print(")")
    print("ERF_TABLE_F32 = (")
    for table in erf_table(4):
        print("    (")
        for start in range(0, 32, 4):
            print(f"        {', '.join(map(repr, table[start : start + 4]))},")
        print("    ),")
    print(")")


if __name__ == "__main__":
    main()
