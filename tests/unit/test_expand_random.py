"""Random runs of column statements, with any dependences between them, mean the same in all three forms."""

import random

import pytest
from forms import agree
from sample_kernels import Alloc, Buffer, By, Grid, GridAxis, Kernel, Let, Store, ax, f32, ix, t

from tcomp.ir.types import TileType

M, N = ix.symbol("m", 0, None), ix.symbol("n", 0, 200)
SIZES = [{"m": 2, "n": n} for n in (0, 1, 2, 16, 17, 63, 64, 65, 150)]


class Run:
    """A run in the making: the lanes and scalars that a next statement may use, and the statements so far."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.columns = self.rng.choice([1, 5, 16, 40, 64, 70, 130, N, N, N])
        self.r = ix.symbol("r", 0, None)
        self.x, self.y, self.w = (Buffer(b, f32, (M, self.columns)) for b in "xyw")
        self.z, self.scalars = Buffer("z", f32, (self.columns,)), Buffer("s", f32, (M,))
        self.own = Buffer("own", f32, (208,), "stack")
        self.lanes = [self.row(self.x), self.row(self.z)]
        self.values = [t.full(1.5, f32), t.load(self.scalars, (self.r,))]
        self.body = [Alloc(self.own), Store(t.load(self.scalars, (self.r,)), t.full(0.5, f32))]

    def row(self, buffer):
        lane = ax(0, self.columns)
        return t.load(buffer, (self.r, lane) if buffer.rank == 2 else (lane,), (self.columns,))

    def lane(self):
        e = self.rng.choice(self.lanes)
        for _ in range(self.rng.randint(0, 2)):
            e = t.pointwise(self.rng.choice(["add", "sub", "mul", "max"]), e, self.rng.choice(self.lanes + self.values))
        return e

    def by(self):
        return By((self.rng.choice([16, 32, 64]),))

    def let(self, name, value):
        self.body.append(Let(name, value))
        self.values.append(t.ref(name, TileType(f32)))

    def step(self, k):
        match self.rng.choice(["reduce", "reduce", "scalar", "element", "tile", "store", "store"]):
            case "reduce":
                self.let(f"v{k}", t.reduce(self.rng.choice(["add", "max", "min"]), self.lane()))
            case "scalar":
                pair = t.pointwise("add", self.rng.choice(self.values), self.rng.choice(self.values))
                self.let(f"v{k}", t.pointwise("mul", pair, t.full(0.25, f32)))
            case "element":
                value = t.pointwise("mul", t.reduce("max", self.lane()), self.rng.choice(self.values))
                self.body.append(Store(t.load(self.scalars, (self.r,)), value))
            case "tile":
                self.body.append(Let(f"e{k}", self.lane(), self.rng.choice(["stack", "scratch"]), self.by()))
                self.lanes.append(t.ref(f"e{k}", TileType(f32, (self.columns,))))
            case "store":
                self.store(self.row(self.rng.choice([self.y, self.w, self.own])), self.lane())

    def store(self, window, value):
        self.body.append(Store(window, value, self.by()))
        if window not in self.lanes:
            self.lanes.append(window)

    def kernel(self):
        for k in range(self.rng.randint(2, 9)):
            self.step(k)
        for b in (self.y, self.w):
            if self.row(b) not in self.lanes:
                self.store(self.row(b), t.full(0.0, f32))
        symbols = (M,) if isinstance(self.columns, int) else (M, N)
        grid = Grid((GridAxis(self.r, M, 1),), tuple(self.body))
        return Kernel("run", (self.x, self.z), (self.y, self.w, self.scalars), symbols, (grid,))


@pytest.mark.parametrize("seed", range(60))
def test_random_run(seed):
    kernel = Run(seed).kernel()
    agree(kernel, SIZES if N in kernel.symbols else SIZES[:1])
