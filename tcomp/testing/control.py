"""Random GRAPH programs with control flow, nested, over vectors of one shape and stacks of these whose height is data.

    func = control_flow(seed)
    arrays = inputs_of(seed, rows=7)

Branches, loops of a known and of an unknown number of turns, values that grow in a loop, results of branches of different sizes:
each inside the others. Results are rounded like those of any order of adding.
"""

from __future__ import annotations

import random

import numpy as np

from tcomp.ir import dtype as dt
from tcomp.ir import index as ix
from tcomp.ir.graph import Func, broadcast, full, reshape
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import apply, item, parameter
from tcomp.ir.region import Region, region_parameter
from tcomp.ir.types import TensorType

N = ix.symbol("n")
STATE = TensorType(dt.f32, (6,))
FLAG = TensorType(dt.bool_, ())
COUNT = TensorType(dt.i64, ())


def control_flow(seed: int) -> Func:
    """The program of this seed: from two vectors and a table of n rows to two vectors and what a loop collects."""
    return _Growing(seed).func()


def inputs_of(seed: int, rows: int) -> list[np.ndarray]:
    """Inputs with so many rows."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(s).astype(np.float32) for s in ((6,), (6,), (rows, 6))]


class _Growing:
    """A program in the making."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.loops = self.symbols = 0
        self.sizes: list[list[tuple[Node, Node]]] = []  # of the function and the regions around, each with its value

    def func(self) -> Func:
        x, y, rows = parameter("x", dt.f32, (6,)), parameter("y", dt.f32, (6,)), parameter("rows", dt.f32, (N, 6))
        self.sizes.append([])
        values = self.block([x, y], rows, 0)
        collected = self.loop(values[-2:], rows, 0, N)[2]
        found = self.sizes.pop()
        names = ("a", "b", "c", *(f"size {s['name']}" for s, _ in found))
        results = (values[-1], values[-2], collected, *(v for _, v in found))
        return Func("random", (x, y, rows), results, names, sizes=tuple(s for s, _ in found))

    def region(self, params: tuple[Node, ...], results: tuple[Node, ...]) -> Region:
        """A region with the sizes that were found since `self.sizes` got a place for them."""
        found = self.sizes.pop()
        return Region(params, (*results, *(v for _, v in found)), tuple(s for s, _ in found))

    def size(self, value: Node | None = None) -> Node:
        """A new symbol; with its value a size of the region that is being made."""
        self.symbols += 1
        symbol = ix.symbol(f"k{self.symbols}", 0)
        if value is not None:
            self.sizes[-1].append((symbol, value))
        return symbol

    def block(self, values: list[Node], rows: Node, depth: int) -> list[Node]:
        values = list(values)
        for _ in range(self.rng.randint(2, 4)):
            kinds = ["plain", "plain", "cond", "loop", "while", "grow", "part"]
            kind = self.rng.choice(kinds if depth < 2 else ["plain"])
            a, b = self.rng.choice(values), self.rng.choice(values)
            if kind == "plain":
                values.append(self.plain(a, b))
            elif kind == "cond":
                values += self.cond(a, b, rows, depth)
            elif kind == "loop":
                values += self.loop([a, b], rows, depth, self.rng.choice([0, 1, 3, N]))[:2]
            elif kind == "grow":
                values.append(self.grow(a, b, rows, depth))
            elif kind == "part":
                values.append(self.part(a, b, rows))
            else:
                values += self.bounded(a, b, rows, depth)
        return values

    def plain(self, a: Node, b: Node) -> Node:
        op = self.rng.choice(["add", "sub", "mul", "max"])
        return apply("tanh", apply(op, a, b))

    def positive(self, a: Node) -> Node:
        return apply("gt", apply("reduce", a, monoid="add", axes=(0,)), full(0.0, dt.f32))

    def cond(self, a: Node, b: Node, rows: Node, depth: int) -> list[Node]:
        params = tuple(region_parameter(k, v.type) for k, v in enumerate((a, b, rows)))
        sides = []
        for _ in range(2):
            self.sizes.append([])
            found = self.block([params[0], params[1]], params[2], depth + 1)
            sides.append(self.region(params, (found[-1], found[0])))
        both = apply("cond", self.positive(a), a, b, rows, then=sides[0], orelse=sides[1])
        return [item(both, 0), item(both, 1)]

    def counter(self, extent: Dim) -> Node:
        self.loops += 1
        last = ix.bounds(extent)[1]
        return ix.symbol(f"step{self.loops}", 0, None if last is None else max(0, last - 1))

    def loop(self, start: list[Node], rows: Node, depth: int, extent: Dim) -> list[Node]:
        """Carries two vectors, reads a row (where the extent allows), collects the first."""
        t = self.counter(extent)
        a, b, table = (region_parameter(k, v.type) for k, v in enumerate((*start, rows)))
        read = [a, b]
        if extent is N:
            row = apply("slice", table, start=(t, 0), shape=(1, 6), step=(1, 1))
            read.append(reshape(row, (6,)))
        self.sizes.append([])
        found = self.block(read, table, depth + 1)
        step = broadcast(apply("dimension", dim=t, dtype=dt.f32), (6,), ())
        body = self.region((a, b, table), (apply("tanh", apply("sub", found[-1], step)), found[-2], found[-1]))
        node = apply("loop", *start, rows, body=body, carried=2, extent=extent, counter=t, conditional=False)
        return [item(node, k) for k in range(3)]

    def bounded(self, a: Node, b: Node, rows: Node, depth: int) -> list[Node]:
        """Goes on while the sum is positive, for at most four steps."""
        t = self.counter(4)
        go, p, q, table = (region_parameter(k, v) for k, v in enumerate((FLAG, a.type, b.type, rows.type)))
        self.sizes.append([])
        found = self.block([p, q], table, depth + 1)
        moved = apply("sub", found[-1], full(0.25, dt.f32, (6,)))
        body = self.region((go, p, q, table), (self.positive(moved), moved, found[-2]))
        start = (self.positive(a), a, b, rows)
        node = apply("loop", *start, body=body, carried=3, extent=4, counter=t, conditional=True)
        return [item(node, 1), item(node, 2)]

    def grow(self, a: Node, b: Node, rows: Node, depth: int) -> Node:
        """A stack of vectors to which every turn adds one, and the last it added; the largest of all."""
        extent = self.rng.choice([0, 1, 3, N])
        t, inside, outside = self.counter(extent), self.size(), self.size()
        stack, height, last, table = (
            region_parameter(k, v) for k, v in enumerate((TensorType(dt.f32, (inside, 6)), COUNT, b.type, rows.type))
        )
        self.sizes.append([(inside, height)])
        found = self.block([last, self.top(stack)], table, depth + 1)
        more = apply("concat", apply("tanh", stack), reshape(found[-1], (1, 6)), axis=0)
        taller = apply("add", height, full(1, dt.i64))
        body = self.region((stack, height, last, table), (more, taller, found[-2]))
        start = (reshape(a, (1, 6)), full(1, dt.i64), b, rows)
        node = apply("loop", *start, body=body, carried=3, extent=extent, counter=t, conditional=False, gives=(outside,))
        self.sizes[-1].append((outside, item(node, 1)))
        return apply("add", self.top(item(node, 0)), item(node, 2))

    def part(self, a: Node, b: Node, rows: Node) -> Node:
        """As many rows as `a` has positive elements (as there are), or all and `b`; the largest of them."""
        params = tuple(region_parameter(k, v.type) for k, v in enumerate((a, b, rows)))
        positive = apply("cast", apply("gt", params[0], full(0.0, dt.f32, (6,))), dtype=dt.i64)
        count = apply("reduce", positive, monoid="add", axes=(0,))
        self.sizes.append([])
        inside = self.size(apply("min", count, apply("dimension", dim=N, dtype=dt.i64)))
        few = apply("slice", params[2], start=(0, 0), shape=(inside, 6), step=(1, 1))
        then = self.region(params, (apply("tanh", few), apply("dimension", dim=inside, dtype=dt.i64)))
        all_ = apply("concat", params[2], reshape(params[1], (1, 6)), axis=0)
        orelse = Region(params, (all_, apply("dimension", dim=ix.add(N, 1), dtype=dt.i64)))
        outside = self.size()
        both = apply("cond", self.positive(b), a, b, rows, then=then, orelse=orelse, gives=(outside,))
        self.sizes[-1].append((outside, item(both, 1)))
        return apply("tanh", self.top(item(both, 0)))

    def top(self, stack: Node) -> Node:
        """The largest of a stack, and of 0."""
        return apply("max", apply("reduce", stack, monoid="max", axes=(0,)), full(0.0, dt.f32, (6,)))
