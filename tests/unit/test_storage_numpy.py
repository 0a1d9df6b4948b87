"""Storage types through the NumPy front end, and block-scaled arrays."""

import ml_dtypes
import numpy as np
import pytest

import tcomp
import tcomp.numpy as tnp

F4, E4M3, E5M2, E8M0 = (
    np.dtype(getattr(ml_dtypes, n)) for n in ("float4_e2m1fn", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu")
)
CASES = [("mxfp4", F4, E8M0, 32), ("mxfp8", E4M3, E8M0, 32), ("mxfp8", E5M2, E8M0, 32), ("nvfp4", F4, E4M3, 16)]


def random(dtype, *shape, seed=0):
    """All finite values of a small dtype."""
    codes = np.arange(16 if dtype == F4 else 256, dtype=np.uint8).view(dtype)
    wide = codes.astype(np.float32)
    near = np.isfinite(wide) & (np.abs(wide) < 2.0**60)
    return np.random.default_rng(seed).choice(codes[near], shape)


@pytest.mark.parametrize("name, values, scales, block", CASES)
def test_blocks(name, values, scales, block):
    v, s = random(values, 3, 4 * block), random(scales, 3, 4, seed=1)
    want = v.astype(np.float64) * np.repeat(s.astype(np.float64), block, -1)
    assert values.type in vars(tnp).values() and scales.type in vars(tnp).values()
    got = tnp.block_dequantise(v, s, format=name)
    assert got.dtype == np.float32 and np.array_equal(got, want.astype(np.float32))
    got = tnp.block_dequantise(v, s, format=name, tensor_scale=np.float32(0.3))
    assert np.array_equal(got, want.astype(np.float32) * np.float32(0.3))


def test_products_with_blocks_store_no_weights():
    v, s, x = random(F4, 48, 64), np.full((48, 2), 0.5, np.float32).astype(E8M0), np.ones((4, 64), np.float32)

    @tcomp.jit
    def f(x, v, s):
        return x @ tnp.block_dequantise(v, s, format="mxfp4").T

    assert f.lower(x, v, s).text("tile").count("\nkernel @") == 1
    assert np.array_equal(f(x, v, s), x @ (v.astype(np.float32) * np.float32(0.5)).T)


@pytest.mark.parametrize(
    "arguments, code",
    [
        (((8, 64), (8, 2), "mxfp5"), "TC0105"),
        (((8, 64), (8, 2), "mxfp8"), "TC0103"),
        (((8, 64), (8, 3), "mxfp4"), "TC0102"),
        (((64,), (), "mxfp4"), "TC0102"),
    ],
)
def test_what_is_no_block_is_refused(arguments, code):
    shape, scales, name = arguments
    with pytest.raises(tcomp.Error) as fault:
        tnp.block_dequantise(np.zeros(shape, F4), np.ones(scales, np.float32).astype(E8M0), format=name)
    assert fault.value.code == code


@pytest.mark.parametrize("dtype", [F4, E4M3, np.dtype(ml_dtypes.int4)], ids=str)
def test_arithmetic_is_refused_and_conversion_is_not(dtype):
    x = np.arange(6).astype(dtype)
    double = tcomp.jit(lambda x: x + x)
    with pytest.raises(tcomp.Error) as fault:
        double(x)
    assert fault.value.code == "TC0103"
    assert np.array_equal(tcomp.jit(lambda x: x.astype(np.float32) + 1)(x), x.astype(np.float32) + 1)
    narrow = tcomp.jit(lambda x: (x * 2).astype(dtype))(np.arange(6, dtype=np.float32))
    assert narrow.dtype == dtype and np.array_equal(narrow.view(np.uint8), (np.arange(6) * 2).astype(dtype).view(np.uint8))
    assert np.array_equal(tcomp.jit(lambda x: x.reshape(2, 3).T)(x).view(np.uint8), x.reshape(2, 3).T.copy().view(np.uint8))


@pytest.mark.parametrize("dtype", [F4, E4M3, np.dtype(ml_dtypes.int4), np.dtype(ml_dtypes.uint2)], ids=str)
def test_there_are_no_promotions(dtype):
    x, single, whole = np.ones(4).astype(dtype), np.ones(4, np.float32), np.ones(4, np.int32)
    for f in (
        lambda: tnp.add(x, single), lambda: tnp.add(x, whole), lambda: tnp.multiply(x, 2), lambda: tnp.equal(x, x),
        lambda: tnp.matmul(x, x), lambda: tnp.concat([x, single]),
        lambda: tnp.sqrt(x), lambda: tnp.sum(x), lambda: tnp.max(x), lambda: tnp.sort(x),
    ):  # fmt: skip
        with pytest.raises(tcomp.Error) as fault:
            f()
        assert fault.value.code == "TC0103"
    assert tnp.concat([x, x]).dtype == tnp.flip(x).dtype == tnp.where(single > 0, x, x).dtype == dtype
