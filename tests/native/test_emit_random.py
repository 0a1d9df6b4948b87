"""Random REG kernels: values remembered, hoisted, forwarded and forgotten at the right places, whatever the nesting."""

import random

import numpy as np
import pytest
from reg import MACHINES, check, kernel, window

from tcomp.ir import dtype as dt
from tcomp.ir import index, tile
from tcomp.ir.node import walk
from tcomp.ir.stmts import Alloc, Carry, For, GridAxis, If, Let, Store
from tcomp.ir.tile import full, pointwise, ref
from tcomp.ir.types import Buffer, TileType

F32 = dt.f32
N = index.symbol("n", 0, 100)
WIDE = 128
SHAPES = ((), (16,), (3, 16))


class Maker:
    """One random kernel. Every buffer is wide enough for any window that is made."""

    def __init__(self, seed):
        self.r = random.Random(seed)
        self.x, self.t = Buffer("x", F32, (8, WIDE)), Buffer("t", F32, (8, WIDE), "stack")
        self.y, self.z = Buffer("y", F32, (8, WIDE)), Buffer("z", F32, (8, WIDE))
        self.rows = Buffer("rows", dt.i32, (8,))
        self.count = 0
        self.block_number = index.symbol("g", 0, 3)
        self.indices = [self.block_number]
        self.named = []
        self.windows = []

    def name(self, prefix):
        self.count += 1
        return f"{prefix}{self.count}"

    def column(self):
        """A position from 0 to 32 along the wide axis."""
        i = self.r.choice(self.indices)
        return self.r.choice([0, 5, i, index.mul(i, 2), index.minimum(i, N), index.mod(i, 3), index.floordiv(index.add(i, N), 8)])

    def row(self):
        """A row below 5."""
        i = index.mod(self.r.choice(self.indices), 4)
        return self.r.choice([0, 3, i, index.read(self.rows, [i], 0, 4), index.minimum(2, i)])

    def lanes(self):
        """How the last tile axis runs along a row of WIDE elements."""
        lane = tile.axis(len(self.shape) - 1, 16)
        return self.r.choice([lane, lane, index.mul(lane, 2), index.sub(20, lane), index.floordiv(lane, 3), 0])

    def place(self, buffer, store=False):
        """A window of the current shape: often one that was there before."""
        visible = {*self.indices, N}
        again = [
            w
            for w, stored in self.windows
            if w["buffer"] is buffer and w.type.shape == self.shape and stored >= store and visible.issuperset(loop_symbols(w))
        ]
        found = self.r.choice(again) if again and self.r.random() < 0.8 else self.new_place(buffer, store)
        self.windows.append((found, store))
        return found

    def new_place(self, buffer, store):
        rows = index.add(self.row(), tile.axis(0, 3)) if len(self.shape) == 2 else self.row()
        if not self.shape:
            return tile.load(buffer, (rows, self.column()))
        lane = tile.axis(len(self.shape) - 1, 16) if store else self.lanes()
        valid = self.r.choice([None, None, 7, N, index.sub(N, self.r.choice(self.indices))])
        return tile.load(buffer, (rows, index.add(self.column(), lane)), self.shape, (*[None] * (len(self.shape) - 1), valid))

    def padded(self):
        """A window that begins outside the buffer."""
        rows = index.add(self.row(), tile.axis(0, 3)) if len(self.shape) == 2 else self.row()
        at = index.sub(index.add(self.column(), tile.axis(len(self.shape) - 1, 16)), 9)
        return tile.load(self.x, (rows, at), self.shape, None, full(0.25, F32))

    def value(self, depth):
        known = [n for n in self.named if n.type.shape in ((), self.shape)]
        kinds = ["load", "stack", "stack", "full"] + ["ref"] * (2 * bool(known))
        if depth:
            kinds += ["binary"] * 4 + ["unary", "where", "cast", "position", "reduce", "when"]
            kinds += ["valid", "padded", "scan", "column"] * (len(self.shape) > 0)
        kind = self.r.choice(kinds)
        return getattr(self, f"make_{kind}")(depth - 1) if kind != "ref" else self.r.choice(known)

    def make_load(self, _):
        return self.place(self.x)

    def make_stack(self, _):
        return self.place(self.t)

    def make_full(self, _):
        return full(self.r.choice([0.5, -1.0, 3.0]), F32)

    def make_binary(self, d):
        return pointwise(self.r.choice(["add", "sub", "mul", "max", "min"]), self.value(d), self.value(d))

    def make_unary(self, d):
        return pointwise(self.r.choice(["neg", "abs", "floor"]), self.value(d))

    def make_where(self, d):
        a, b = self.value(d), self.value(d)
        return pointwise("where", pointwise(self.r.choice(["lt", "ge", "ne"]), a, b), self.value(d), b)

    def make_cast(self, d):
        small = pointwise("min", pointwise("max", self.value(d), full(-100, F32)), full(100, F32))
        return pointwise("cast", pointwise("cast", small, dtype=self.r.choice([dt.i8, dt.i64, dt.bf16, dt.f16])), dtype=F32)

    def make_position(self, _):
        x = self.column()
        for k, e in enumerate(self.shape):
            x = index.add(x, tile.axis(k, e))
        return tile.position(x, F32, self.shape)

    def make_reduce(self, d):
        kept, self.shape = self.shape, (*self.shape[:-1], 16)
        e = tile.reduce(self.r.choice(["max", "min"]), self.broadcast(self.value(d)))
        self.shape = kept
        return tile.expand(e, len(kept) - 1) if len(kept) == 2 else e if e.type.shape == () else full(2, F32)

    def make_column(self, d):
        """A row repeated, or itself."""
        if len(self.shape) < 2:
            return self.value(d)
        kept, self.shape = self.shape, (16,)
        e = tile.expand(self.broadcast(self.value(d)), 0)
        self.shape = kept
        return e

    def make_valid(self, d):
        count = self.r.choice([5, N, index.sub(self.r.choice(self.indices), 1)])
        return tile.valid(self.broadcast(self.value(d)), count, full(-2, F32))

    def make_padded(self, _):
        return self.padded()

    def make_scan(self, d):
        return tile.scan("max", self.broadcast(self.value(d)))

    def make_when(self, d):
        test = self.r.choice([index.less(self.r.choice(self.indices), 2), index.equal(index.mod(N, 2), 0)])
        return tile.when(test, self.broadcast(self.value(d)), self.broadcast(self.value(d)))

    def broadcast(self, e):
        """`e` as a tile of the whole shape."""
        return e if e.type.shape == self.shape else pointwise("add", e, tile.position(0, F32, self.shape))

    def statement(self, depth):
        self.shape = self.r.choice(SHAPES[1:] * 2 + SHAPES[:1])
        kind = self.r.choice(["store", "let", "stack", "stack"] + ["for", "for", "if"] * (depth > 0))
        if kind == "let":
            value = self.broadcast(self.value(3))
            self.named.append(ref(self.name("v"), TileType(F32, self.shape)))
            return [Let(self.named[-1]["name"], value)]
        if kind in ("store", "stack"):
            buffer = self.t if kind == "stack" else self.r.choice([self.y, self.z])
            return [Store(self.place(buffer, True), self.broadcast(self.value(3)))]
        return getattr(self, f"make_{kind}_statement")(depth)

    def block(self, depth, size):
        kept = len(self.named), len(self.indices)
        body = [s for _ in range(size) for s in self.statement(depth)]
        del self.named[kept[0] :]
        del self.indices[kept[1] :]
        return body

    def make_if_statement(self, depth):
        test = self.r.choice([index.less(self.r.choice(self.indices), 1), index.less(40, N)])
        if isinstance(test, int):
            return []
        return [If(test, tuple(self.block(depth - 1, 2)), tuple(self.block(depth - 1, self.r.choice([0, 2]))))]

    def make_for_statement(self, depth):
        shape, hi = self.shape, self.r.choice([1, 3, index.floordiv(N, 16)])
        var = index.symbol(self.name("i"), 0, 8)
        t = TileType(F32, shape)
        init = self.broadcast(self.value(1))
        inside, after = self.name("c"), self.name("c")
        kept = len(self.named), len(self.indices)
        self.indices.append(var)
        self.named.append(ref(inside, t))
        body = [s for _ in range(3) for s in self.statement(depth - 1)]
        self.shape = shape
        following = self.broadcast(pointwise("max", ref(inside, t), self.value(2)))
        del self.named[kept[0] :]
        del self.indices[kept[1] :]
        self.named.append(ref(after, t))
        return [For(var, 0, hi, 1, tuple(body), (Carry(inside, after, t, init),), (following,))]


def loop_symbols(w):
    return [n for n in walk([w]) if n.op == "sym" and not tile.is_axis(n)]


def random_kernel(seed):
    m = Maker(seed)
    clear = [Store(window(m.t, r, c, extents=(16,)), full(0, F32)) for r in range(8) for c in range(0, WIDE, 16)]
    body = m.block(3, 6)
    return kernel(
        [m.x, m.rows], [m.y, m.z], Alloc(m.t), *clear, *body, axes=[GridAxis(m.block_number, 1, 1)], symbols=[N], name=f"r{seed}"
    )


@pytest.mark.parametrize("seed", range(52))
def test_random_kernels(seed):
    k = random_kernel(seed)
    machine = list(MACHINES.values())[seed % 3]
    rows = np.array([4, 0, 2, 1, 3, 3, 0, 1], np.int32)
    for n in (0, 21, 67):
        check(k, machine, arrays={"rows": rows}, symbols={"n": n}, rtol=1e-5)
