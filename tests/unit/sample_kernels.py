"""Kernels of each stage, written by hand, for the tests of the interpreter, the text and the verifier."""

from tcomp.ir import dtype as dt
from tcomp.ir import index as ix
from tcomp.ir import tile as t
from tcomp.ir.module import Module
from tcomp.ir.stmts import (
    Alias,
    Alloc,
    Assert,
    By,
    Call,
    Carry,
    Check,
    For,
    Grid,
    GridAxis,
    If,
    Kernel,
    Launch,
    Let,
    Main,
    Reserve,
    Store,
)
from tcomp.ir.types import Buffer, TileType

f32, i64 = dt.f32, dt.i64
N = ix.symbol("n", 0, None)
M = ix.symbol("m", 1, 4096)
ZERO = t.full(0.0, f32)
LOWEST = t.full(float("-inf"), f32)


def ax(k, extent):
    return t.axis(k, extent)


def map_kernel():
    """y = relu(x) * 2, row by row (TILE)."""
    x, y = Buffer("x", f32, (N, 100)), Buffer("y", f32, (N, 100))
    i, r = ix.symbol("i", 0, None, 8), ix.symbol("r", 0, None)
    value = t.pointwise("mul", t.pointwise("max", t.load(x, (r, ax(0, 100)), (100,)), ZERO), t.full(2.0, f32))
    row = Store(t.load(y, (r, ax(0, 100)), (100,)), value, By((64,)))
    loop = For(r, i, ix.minimum(i + 8, N), 1, (row,))
    return Kernel("double", (x,), (y,), (N,), (Grid((GridAxis(i, N, 8),), (loop,)),))


def softmax_kernel():
    """Rows of softmax, of a dynamic width (TILE)."""
    x, y = Buffer("x", f32, (N, M)), Buffer("y", f32, (N, M))
    r = ix.symbol("r", 0, None)
    row = t.load(x, (r, ax(0, M)), (M,))
    e = t.ref("e", TileType(f32, (M,)))
    body = (
        Let("top", t.reduce("max", row)),
        Let("e", t.pointwise("exp", t.pointwise("sub", row, t.ref("top", TileType(f32)))), "stack", By((64,))),
        Let("total", t.reduce("add", e)),
        Store(t.load(y, (r, ax(0, M)), (M,)), t.pointwise("div", e, t.ref("total", TileType(f32))), By((64,))),
    )
    return Kernel("softmax", (x,), (y,), (N, M), (Grid((GridAxis(r, N, 1),), body),))


def gemm_kernel(intrinsic="fma512_f32"):
    """c = relu(a b), split along k, b packed into panels, the epilogue in the last step (PLACED)."""
    k, n = 100, 70
    a, b, c = Buffer("a", f32, (N, k)), Buffer("b", f32, (k, n)), Buffer("c", f32, (N, n))
    j, s = ix.symbol("j", 0, 64, 64), ix.symbol("s", 0, 60, 60)
    nc, kc = ix.minimum(64, ix.sub(n, j)), ix.minimum(60, ix.sub(k, s))
    bp = Buffer("bp", f32, (kc, nc), "scratch", ((1, 0), (0, 0), (1, 32)))
    pack = Store(
        t.load(bp, (ax(0, kc), ax(1, nc)), (kc, nc)), t.load(b, (s + ax(0, kc), j + ax(1, nc)), (kc, nc)), By((1, 32), "ji")
    )
    window = t.load(c, (ax(0, N), j + ax(1, nc)), (N, nc))
    acc = t.when(ix.less(0, s), window, ZERO)
    product = t.dot(t.load(a, (ax(0, N), s + ax(1, kc)), (N, kc)), t.whole(bp), acc, intrinsic)
    last = ix.less(k - 1, s + 60)
    write = Store(window, t.when(last, t.pointwise("max", product, ZERO), product), By((14, 32), "ij", "binary", True))
    loop = For(s, 0, k, 60, (Alloc(bp), pack, write))
    return Kernel("gemm", (a, b), (c,), (N,), (Grid((GridAxis(j, n, 64),), (loop,)),))


def column_sum_kernel():
    """y[j] = sum over k of x[k, j], 64 columns in registers at a time (REG)."""
    x, y = Buffer("x", f32, (M, N)), Buffer("y", f32, (N,))
    j, k = ix.symbol("j", 0, None, 64), ix.symbol("k", 0, 4095)
    left = ix.sub(N, j)
    tile = TileType(f32, (64,))
    step = t.pointwise("add", t.ref("acc", tile), t.load(x, (k, j + ax(0, 64)), (64,), (left,)))
    loop = For(k, 0, M, 1, (), (Carry("acc", "total", tile, ZERO),), (step,))
    write = Store(t.load(y, (j + ax(0, 64),), (64,), (left,)), t.ref("total", tile))
    return Kernel("column_sum", (x,), (y,), (M, N), (Grid((GridAxis(j, N, 64),), (loop, write)),))


def row_sum_kernel():
    """y[r] = sum of row r, in one register tile with the identity past the end, rows below 16 wide (REG)."""
    x, y = Buffer("x", f32, (N, 13)), Buffer("y", f32, (N,))
    r = ix.symbol("r", 0, None)
    row = t.valid(t.load(x, (r, ax(0, 16)), (16,), (13,)), 13, t.full(-0.0, f32))
    body = (Let("v", row), Store(t.load(y, (r,)), t.reduce("add", t.ref("v", TileType(f32, (16,))))))
    return Kernel("row_sum", (x,), (y,), (N,), (Grid((GridAxis(r, N, 1),), body),))


def gather_kernel():
    """y[i] = x[index[i]], each index checked (TILE)."""
    x, where, y = Buffer("x", f32, (M, 8)), Buffer("where", i64, (N,)), Buffer("y", f32, (N, 8))
    i = ix.symbol("i", 0, None)
    raw, safe = ix.read(where, (i,)), ix.read(where, (i,), 0, 4095)
    inside = ix.mul(ix.less(-1, raw), ix.less(raw, M))
    body = (Check(inside, 1, 3), Store(t.load(y, (i, ax(0, 8)), (8,)), t.load(x, (safe, ax(0, 8)), (8,)), By((16,))))
    return Kernel("gather", (x, where), (y,), (M, N), (Grid((GridAxis(i, N, 1),), body),))


def convolution_kernel():
    """Padded windows of three along rows, `else 0` outside, and an If on the row (TILE)."""
    x, w, y = Buffer("x", f32, (20, 32)), Buffer("w", f32, (3,)), Buffer("y", f32, (20, 32))
    i, k = ix.symbol("i", 0, 19), ix.symbol("k", 0, 2)
    tile = TileType(f32, (32,))
    part = t.load(x, (i, k - 1 + ax(0, 32)), (32,), None, ZERO)
    step = t.pointwise("add", t.ref("acc", tile), t.pointwise("mul", part, t.load(w, (k,))))
    loop = For(k, 0, 3, 1, (), (Carry("acc", "sum", tile, ZERO),), (step,))
    out = t.load(y, (i, ax(0, 32)), (32,))
    negated = Store(out, t.pointwise("neg", t.ref("sum", tile)), By((64,)))
    body = (loop, If(ix.equal(ix.mod(i, 2), 0), (Store(out, t.ref("sum", tile), By((64,))),), (negated,)))
    return Kernel("convolution", (x, w), (y,), (), (Grid((GridAxis(i, 20, 1),), body),))


def two_phase_kernel():
    """Row sums into the workspace, then y = x - sum of all of them (TILE, two phases)."""
    x, y = Buffer("x", f32, (N, 10)), Buffer("y", f32, (N, 10))
    sums = Buffer("sums", f32, (N,), "ws")
    i, r = ix.symbol("i", 0, None), ix.symbol("r", 0, None)
    first = (Store(t.load(sums, (i,)), t.reduce("add", t.load(x, (i, ax(0, 10)), (10,)))),)
    second = (
        Let("all", t.reduce("add", t.load(sums, (ax(0, N),), (N,)))),
        Store(
            t.load(y, (r, ax(0, 10)), (10,)),
            t.pointwise("sub", t.load(x, (r, ax(0, 10)), (10,)), t.ref("all", TileType(f32))),
            By((16,)),
        ),
    )
    return Kernel("two", (x,), (y,), (N,), (Grid((GridAxis(i, N, 1),), first), Grid((GridAxis(r, N, 1),), second)), (sums,))


def top_kernel():
    """The three largest of a row, and where they are: a runtime routine (TILE)."""
    x, v, p = Buffer("x", f32, (9,)), Buffer("v", f32, (3,)), Buffer("p", i64, (3,))
    call = Call("top_k", (t.whole(v), t.whole(p)), (t.whole(x),), (("axis", 0), ("largest", True)))
    return Kernel("top", (x,), (v, p), (), (Grid((), (call,)),))


KERNELS = {
    "tile": (map_kernel, softmax_kernel, gather_kernel, convolution_kernel, two_phase_kernel, top_kernel),
    "placed": (gemm_kernel,),
    "reg": (column_sum_kernel, row_sum_kernel),
}


def two_step_module():
    """main: softmax of relu(x) * 2 for x[n, 100], through a buffer in the arena (TILE)."""
    x, y = Buffer("x", f32, (N, 100)), Buffer("y", f32, (N, 100))
    flat, between = Buffer("flat", f32, (N * 100,)), Buffer("between", f32, (N, 100))
    body = (
        Assert(ix.less(N, 1 << 20), 0),
        Reserve(flat, 64),
        Alias(between, "flat"),
        Launch("double", ("x", "between"), (N,), 0),
        Launch("softmax", ("between", "y"), (N, 100), 1, (0,)),
    )
    main = Main((x,), (y,), (), (N,), body, N * 400 + 64)
    return Module("tile", "two_step", None, (map_kernel(), softmax_kernel()), main, nodes=("model.py:3",))
