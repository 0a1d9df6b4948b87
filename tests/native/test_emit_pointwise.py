"""Every pointwise row of the op table, for every dtype that it allows, on special values, against its NumPy reference."""

import itertools

import numpy as np
import pytest
from reg import COMPUTED, HOST, MACHINES, Native, kernel, window

from tcomp.codegen.llvm import spelling, vecmath
from tcomp.errors import Error
from tcomp.ir import dtype as dt
from tcomp.ir import index, tile
from tcomp.ir.dtype import to_numpy
from tcomp.ir.ops import OPS
from tcomp.ir.stmts import For, Store
from tcomp.ir.types import Buffer, TensorType

POINTWISE = [row for row in OPS.values() if row.kind == "pointwise"]
N = index.symbol("n", 0, 1 << 20, 16)
CONVERSIONS = ("cast", "bitcast")
# Functions of the vector math library that are not exact, each held to its bounds by its own tests; all else is exact here.
INEXACT = {n for n, f in vecmath.FUNCTIONS.items() if f.bound_f32 > 0}
ULPS = 5  # between two results that are both off by up to 2.5


def allowed(row, dtype):
    """Whether the row takes operands of this dtype."""
    t = TensorType(dtype, (4,))
    operands = [t] * (row.arity or 1)
    if row.name == "where":
        operands[0] = TensorType(dt.bool_, (4,))
    try:
        row.infer(*operands)
    except Error:
        return False
    return True


CASES = [(row.name, t) for row in POINTWISE if row.name not in CONVERSIONS for t in COMPUTED if allowed(row, t)]


@pytest.mark.parametrize("row", POINTWISE, ids=lambda r: r.name)
def test_the_table_is_total(row):
    if row.name in CONVERSIONS:
        return
    for t in COMPUTED:
        assert (t.kind in spelling.TABLE[row.name]) == allowed(row, t), t


def test_nothing_is_spelled_that_is_no_operation():
    assert set(spelling.TABLE) | set(CONVERSIONS) == {row.name for row in POINTWISE}


def specials(t):
    """Values at which implementations go wrong."""
    if t.kind == "bool":
        return np.array([True, False])
    if t.is_integer:
        info = np.iinfo(to_numpy(t))
        ends = [info.min, info.min + 1, info.max - 1, info.max, info.max // 2]
        small = [-7, -3, -2, -1, 0, 1, 2, 3, 5, 8, 100, t.bits - 1, t.bits, t.bits + 1]
        return np.unique(np.array(ends + small, object).clip(info.min, info.max)).astype(to_numpy(t))
    tiny, big = {"f16": (6e-8, 65504.0), "bf16": (9.2e-41, 3.3895e38), "f32": (1.4e-45, 3.4e38), "f64": (5e-324, 1.7e308)}[t.name]
    values = [0.0, tiny, 3 * tiny, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 7.3, 20.0, 88.5, 1e3, big, np.inf]
    return np.array([s * v for v in values for s in (1, -1)] + [np.nan]).astype(to_numpy(t))


def operands_of(row, t):
    """Every combination of special values, and random ones; a multiple of 16 of them."""
    arity = row.arity
    values = specials(t)
    if arity == 3:
        values = values[:: max(1, len(values) // 8)]
    kinds = [values] * arity
    if row.name == "where":
        kinds[0] = np.array([True, False])
    grid = [np.array(c) for c in zip(*itertools.product(*kinds))]
    grid = [g.astype(k.dtype) for g, k in zip(grid, kinds)]
    return [np.resize(g, -(-len(g) // 16) * 16) for g in grid]


def kernel_of(name, t, out, **attrs):
    row = OPS[name]
    dtypes = [t] * row.arity
    if name == "where":
        dtypes[0] = dt.bool_
    inputs = [Buffer(f"x{k}", d, (N,)) for k, d in enumerate(dtypes)]
    y = Buffer("y", out, (N,))
    i = index.symbol("i", 0, 1 << 20, 16)
    value = tile.pointwise(name, *(window(b, i, extents=(16,)) for b in inputs), **attrs)
    return kernel(inputs, [y], For(i, 0, N, 16, (Store(window(y, i, extents=(16,)), value),)), symbols=[N], name=f"{name}_{t}")


def run(name, t, out, operands, machine, **attrs):
    native = Native(kernel_of(name, t, out, **attrs), machine)
    arrays = {f"x{k}": np.ascontiguousarray(x) for k, x in enumerate(operands)}
    arrays["y"] = np.zeros(len(operands[0]), to_numpy(out))
    assert native(arrays, {"n": len(operands[0])}) == 0
    return arrays["y"]


def unwrapped(name, operands):
    """Where NumPy itself raises: integers to negative powers. The doc says what holds there."""
    keep = np.ones(len(operands[0]), bool)
    if name == "pow" and operands[1].dtype.kind == "i":
        keep = operands[1] >= 0
    return keep


def reference(row, operands):
    with np.errstate(all="ignore"):
        return np.asarray(row.reference(*operands))


MANTISSA = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}


def compare(row, t, got, wanted, operands):
    """Exact operations to the sign of zeros (of max and min either zero may come), others to a few units."""
    assert got.dtype == wanted.dtype
    bad = got != wanted
    if got.dtype.kind not in "biu":
        a, b = got.astype(np.float64), wanted.astype(np.float64)
        with np.errstate(all="ignore"):
            near = np.abs(a - b) <= ULPS * 2.0 ** -MANTISSA[t.name] * np.abs(b) + ULPS * float(specials(t)[2])
        zeros = (a == 0) & (b == 0) & (np.signbit(a) != np.signbit(b)) & (row.name not in ("max", "min"))
        bad = ~((a == b) | (np.isnan(a) & np.isnan(b)) | (near & (row.name in INEXACT))) | zeros
    if bad.any():
        k = int(np.flatnonzero(bad)[0])
        found = f"{got[k]}, not {wanted[k]}; {bad.sum()} of {bad.size} are wrong"
        raise AssertionError(f"{row.name} of {[x[k] for x in operands]} ({t}): {found}")


@pytest.mark.parametrize(("name", "dtype"), CASES, ids=lambda v: str(v))
def test_against_the_reference(name, dtype):
    check_operation(name, dtype, HOST)


WIDELY = {
    *("floordiv", "mod", "quotient", "rem", "pow", "shl", "shr", "abs", "sign"),
    *("max", "min", "round", "lt", "where", "add"),
}
NARROW = ("i8", "u32", "i64", "f16", "bf16", "bool")


@pytest.mark.parametrize("machine", ["x86-64-v3", "x86-64"])
@pytest.mark.parametrize(
    ("name", "dtype"),
    [c for c in CASES if c[0] in WIDELY and c[1].name in NARROW],
    ids=lambda v: str(v),
)
def test_on_older_machines(name, dtype, machine):
    check_operation(name, dtype, MACHINES[machine])


def check_operation(name, dtype, machine):
    row = OPS[name]
    operands = operands_of(row, dtype)
    keep = unwrapped(name, operands)
    operands = [np.resize(x[keep], -(-keep.sum() // 16) * 16) for x in operands]
    wanted = reference(row, operands)
    out = dt.from_numpy(wanted.dtype)
    compare(row, dtype, run(name, dtype, out, operands, machine), wanted, operands)


@pytest.mark.parametrize("machine", MACHINES)
def test_a_power_below_zero_truncates(machine):
    x = np.array([1, -1, -1, 2, -3, 0, 7, 100] * 2, np.int32)
    y = np.array([-5, -4, -3, -1, -2, -1, -(2**31), -(2**31) + 1] * 2, np.int32)
    got = run("pow", dt.i32, dt.i32, [x, y], MACHINES[machine])
    np.testing.assert_array_equal(got, [1, 1, -1, 0, 0, 0, 0, 0] * 2)


# --- conversions ---------------------------------------------------------------------------------------


def once(x, target):
    """`x` converted to a 16-bit float with one rounding; to bf16 from f64 ml_dtypes takes two, and a neighbour may be nearer."""
    if x.dtype != np.float64 or target == np.float16:
        return x.astype(target)
    near = x.astype(target)
    wide = near.astype(np.float64)
    step = near.view(np.int16)
    out = near.copy()
    for d in (-1, 1):
        other = (step + np.int16(d)).view(target)
        o = other.astype(np.float64)
        with np.errstate(all="ignore"):
            closer = np.isfinite(o) & np.isfinite(wide) & (np.abs(o - x) < np.abs(wide - x))
        out[closer] = other[closer]
    return out


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("source", COMPUTED, ids=str)
def test_casts(source, machine):
    x = specials(source)
    if source.is_float:
        edges = [1.00390625 + 2.0**-40, 0.1, 127.5, 128.0, 255.9, 256.0, -129.0, 32768.0]
        far = [2.0**31, 2.0**32 + 0.5, 3e9, 2.0**62, 2.0**63, 2.0**63 * 1.5, 2.0**64, -(2.0**63), 1e30]
        many = 1 + np.random.default_rng(0).random(200)
        with np.errstate(over="ignore"):
            x = np.concatenate([x, np.concatenate([edges, far, many]).astype(x.dtype)])
    x = np.resize(x, -(-len(x) // 16) * 16)
    for target in COMPUTED:
        got = run("cast", source, target, [x], MACHINES[machine], dtype=target)
        with np.errstate(all="ignore"):
            wanted = OPS["cast"].reference(x, dtype=target)
            if target.bits == 16 and target.is_float:
                wanted = once(x, to_numpy(target))
        bad = (got != wanted) & ~((got != got) & (wanted != wanted))
        assert not bad.any(), f"{source} {x[bad][:4]} to {target}: {got[bad][:4]}, not {wanted[bad][:4]}"


@pytest.mark.parametrize("machine", MACHINES)
def test_bitcasts(machine):
    pairs = [(s, t) for s in COMPUTED for t in COMPUTED if s.bits == t.bits and "bool" not in (s.name, t.name)]
    for source, target in pairs:
        x = np.resize(specials(source), 48)
        got = run("bitcast", source, target, [x], MACHINES[machine], dtype=target)
        wanted = x.view(to_numpy(target))
        if source.is_float or target.is_float:  # NaN may be quieted
            keep = ~(np.isnan(x.astype(np.float64)) | np.isnan(wanted.astype(np.float64)))
            got, wanted = got[keep], wanted[keep]
        np.testing.assert_array_equal(got.view(np.uint8), wanted.view(np.uint8), err_msg=f"{source} to {target}")


def test_every_f16_and_bf16_survives_reading_and_writing():
    """All 65536 patterns through registers: widened, negated twice, narrowed; NaN stays NaN."""
    for t in (dt.f16, dt.bf16):
        x = np.arange(65536, dtype=np.uint16).view(to_numpy(t))
        for machine in MACHINES.values():
            got = run("neg", t, t, [run("neg", t, t, [x], machine)], machine)
            keep = ~np.isnan(x.astype(np.float32))
            np.testing.assert_array_equal(got[keep].view(np.uint16), x[keep].view(np.uint16))
            assert np.isnan(got[~keep].astype(np.float32)).all()
