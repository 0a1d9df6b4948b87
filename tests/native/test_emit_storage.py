"""Storage types in compiled code: every code read, values rounded, elements moved, padded and chosen."""

import numpy as np
import pytest

from tcomp.api import Compiler
from tcomp.frontend.jit import Options
from tcomp.ir import dtype as dt
from tcomp.ir.graph import Func, broadcast, cast, transpose
from tcomp.ir.interp.graph import run
from tcomp.ir.ops import apply, constant, parameter

STORED = pytest.mark.parametrize("stored", dt.STORED, ids=str)


def agree(func: Func, *arrays: np.ndarray) -> None:
    """Fail unless native code gives the interpreter's bits, but for which NaN it is."""
    got = Compiler(use_cache=False)(func, Options()).run({p["name"]: a for p, a in zip(func.params, arrays)})
    for x, want in zip(got.values(), run(func, list(arrays)), strict=True):
        assert x.dtype == want.dtype and x.shape == want.shape
        same = x.reshape(-1).view(f"u{x.itemsize}") == want.reshape(-1).view(f"u{x.itemsize}")
        if dt.from_numpy(x.dtype).is_float:
            same |= np.isnan(x.astype(np.float64)).reshape(-1) & np.isnan(want.astype(np.float64)).reshape(-1)
        assert same.all(), np.flatnonzero(~same)[:8]


@STORED
def test_conversions(stored):
    codes = np.arange(256, dtype=np.uint8)[: 2**stored.bits].view(dt.to_numpy(stored))
    rng = np.random.default_rng(5)
    reals = (rng.standard_normal(301) * 2.0 ** rng.integers(-12, 12, 301)).astype(np.float32)
    reals[:7] = [0.0, -0.0, np.inf, -np.inf, np.nan, 448, 465]
    x, y = parameter("x", stored, codes.shape), parameter("y", dt.f32, reals.shape)
    wide = tuple(cast(x, t) for t in (dt.f32, dt.f16, dt.i32, dt.bool_))
    narrow = (cast(y, stored), cast(cast(y, dt.f64), stored), cast(cast(y, dt.i16), stored))
    func = Func("f", (x, y), (*wide, *narrow), tuple(f"r{k}" for k in range(7)))
    with np.errstate(all="ignore"):
        agree(func, codes, reals)


@STORED
def test_movement(stored):
    codes = (np.arange(60) * 7 % 2**stored.bits).astype(np.uint8).reshape(5, 12).view(dt.to_numpy(stored))
    x, c = parameter("x", stored, (5, 12)), parameter("c", dt.bool_, (12, 5))
    fill = constant(codes.reshape(-1)[3])
    turned = transpose(x, (1, 0))
    chosen = apply("where", c, turned, broadcast(fill, (12, 5), ()))
    padded = apply("pad", x, fill, low=(1, 2), high=(0, 3))
    joined = apply("concat", x, x, axis=0)
    func = Func("f", (x, c), (turned, chosen, padded, joined, cast(padded, dt.f32)), ("a", "b", "d", "e", "g"))
    agree(func, codes, np.arange(60).reshape(12, 5) % 3 == 0)
