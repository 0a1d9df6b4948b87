"""References for the vector math tests: NumPy's extended precision, argument sweeps, and distances in ulp."""

import numpy as np

Long = np.longdouble
SQRT_PI = np.sqrt(Long(np.pi) + Long(1.2246467991473532e-16))


def erf(x):
    """The series of positive terms; 1 in extended precision beyond 7."""
    a = np.minimum(np.abs(x), Long(7))
    total, term = np.zeros_like(a), np.ones_like(a)
    for k in range(220):
        total, term = total + term, term * 2 * a * a / (2 * k + 3)
    return np.copysign(2 / SQRT_PI * a * np.exp(-a * a) * total, x)


def erfc(x):
    """The difference where it keeps its digits, else the continued fraction."""
    a = np.maximum(np.abs(x), Long(1.5))
    tail = a
    for k in range(300, 0, -1):
        tail = a + Long(k) / 2 / tail
    upper = np.exp(-a * a) / SQRT_PI / tail
    return np.where(np.abs(x) < 1.5, 1 - erf(x), np.where(x < 0, 2 - upper, upper))


def sigmoid(x):
    e = np.exp(-np.abs(x))
    return np.where(np.isnan(x), x, np.where(x < 0, e, 1) / (1 + e))


REFERENCE = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log10": np.log10,
    "log1p": np.log1p, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "atan2": np.arctan2, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh,
    "acosh": np.arccosh, "atanh": np.arctanh, "erf": erf, "erfc": erfc, "sigmoid": sigmoid, "pow": np.power,
    "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "cbrt": np.cbrt, "floor": np.floor, "ceil": np.ceil,
    "trunc": np.trunc, "roundeven": np.rint, "sign": np.sign, "copysign": np.copysign, "maximum": np.maximum,
    "minimum": np.minimum,
}  # fmt: skip
# Exact by definition and computed in the type itself: these must agree bit by bit.
SAME_TYPE = {"fmod": np.fmod, "remainder": np.remainder, "floor_divide": np.floor_divide}


def special_values(dtype):
    """Every kind of float: zeros, subnormals, the ends of the range, infinities, NaN, small integers and halves."""
    info = np.finfo(dtype)
    positive = [0, info.smallest_subnormal, info.tiny, 0.25, 0.5, 1, 1.5, 2, 2.5, 3, 7, 2.0**24 + 1, 2.0**53, 2.0**70]
    positive += [info.max, np.inf, np.nan, 1 + info.eps, 1 - info.epsneg, np.pi / 2, 88.5, 709.5]
    values = np.array(positive, dtype)
    return np.concatenate([values, -values])


def sweep(dtype, count, seed=0):
    """Finite values of every exponent, then ranges where functions are interesting, then near 1."""
    random = np.random.default_rng(seed)
    size = np.dtype(dtype).itemsize
    bits = random.integers(0, 2 ** (8 * size), count, dtype=np.uint64)
    anything = np.where(np.isfinite(any_bits := bits.astype(f"u{size}").view(dtype)), any_bits, dtype(3))
    parts = [anything]
    parts += [random.uniform(-s, s, count // 4) for s in (1, 2, 5, 10, 30, 100, 750)]
    parts.append(1 + random.normal(size=count // 4) * 10.0 ** random.uniform(-8, 0, count // 4))
    parts.append(random.choice([-1, 1], count // 2) * 10.0 ** random.uniform(-8, 3, count // 2))
    return np.concatenate([p.astype(dtype) for p in parts])


def pairs(name, dtype, count):
    """Two operands: unrelated sweeps, all pairs of special values, and what the function finds hard."""
    random = np.random.default_rng(7)
    x, y = sweep(dtype, count, 1), sweep(dtype, count, 2)
    random.shuffle(y)
    special = np.meshgrid(special_values(dtype), special_values(dtype))
    parts = [(x, y), tuple(s.ravel() for s in special)]
    if name == "pow":
        base = np.concatenate(
            [10.0 ** random.uniform(-37, 37, count), np.abs(1 + random.normal(size=count) * 1e-3) + 1e-9]
        ).astype(dtype)
        top = 88.0 if dtype == np.float32 else 709.0
        exponent = random.uniform(-1.05 * top, top, base.size) / np.where(base == 1, 1, np.log(base.astype(float)))
        parts.append((base, exponent))
        parts.append((random.uniform(-50, 50, count), random.integers(-60, 60, count)))
    else:
        parts.append((random.integers(-50, 50, count) / 8, random.integers(-9, 9, count) / 4))
    return tuple(np.concatenate([p[i] for p in parts]).astype(dtype) for i in range(2))


def ulps(got, reference, dtype):
    """How far `got` is from the extended-precision `reference`, in units of the last place of the latter in `dtype`.
    Infinite where one is NaN and the other not; the largest value counts as near what just overflows."""
    info = np.finfo(dtype)
    rounded = reference.astype(dtype)
    exponent = np.frexp(np.abs(reference))[1] - 1 - info.nmant
    unit = np.ldexp(Long(1), np.maximum(exponent, int(np.log2(info.tiny)) - info.nmant))
    wide = got.astype(Long)
    wide = np.where(np.isinf(got) & np.isfinite(reference), np.copysign(Long(2) ** info.maxexp, wide), wide)
    error = np.abs(wide - reference) / unit
    same = (got == rounded) | (np.isnan(got) & np.isnan(reference))
    return np.where(same & ~np.isfinite(rounded), 0, np.where(np.isnan(error), np.inf, error)).astype(float)
