"""Random programs with control flow, nested, over tensors of one shape; and small ones for tests."""

import random

from tcomp.ir import dtype as dt
from tcomp.ir import index as ix
from tcomp.ir.graph import Func, broadcast, full, reshape
from tcomp.ir.node import Node
from tcomp.ir.ops import apply, item, parameter
from tcomp.ir.region import Region, region_parameter
from tcomp.ir.types import TensorType

N = ix.symbol("n")
STATE = TensorType(dt.f32, (6,))
FLAG = TensorType(dt.bool_, ())


class Random:
    """Programs from two vectors and a table of n rows to two vectors and what a loop collects."""

    def __init__(self, seed: int):
        self.rng = random.Random(seed)
        self.loops = 0

    def func(self) -> Func:
        x, y, rows = parameter("x", dt.f32, (6,)), parameter("y", dt.f32, (6,)), parameter("rows", dt.f32, (N, 6))
        values = self.block([x, y], rows, 0)
        collected = self.loop(values[-2:], rows, 0, N)[2]
        return Func("random", (x, y, rows), (values[-1], values[-2], collected), ("a", "b", "c"))

    def block(self, values: list[Node], rows: Node, depth: int) -> list[Node]:
        values = list(values)
        for _ in range(self.rng.randint(2, 4)):
            kind = self.rng.choice(["plain", "plain", "cond", "loop", "while"] if depth < 2 else ["plain"])
            a, b = self.rng.choice(values), self.rng.choice(values)
            if kind == "plain":
                values.append(self.plain(a, b))
            elif kind == "cond":
                values += self.cond(a, b, rows, depth)
            elif kind == "loop":
                values += self.loop([a, b], rows, depth, self.rng.choice([0, 1, 3, N]))[:2]
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
            found = self.block([params[0], params[1]], params[2], depth + 1)
            sides.append(Region(params, (found[-1], found[0])))
        both = apply("cond", self.positive(a), a, b, rows, then=sides[0], orelse=sides[1])
        return [item(both, 0), item(both, 1)]

    def counter(self, extent) -> Node:
        self.loops += 1
        last = None if extent is None else ix.bounds(extent)[1]
        return ix.symbol(f"step{self.loops}", 0, None if last is None else max(0, last - 1))

    def loop(self, start: list[Node], rows: Node, depth: int, extent) -> list[Node]:
        """Carries two vectors, reads a row (where the extent allows), collects the first."""
        t = self.counter(extent)
        a, b, table = (region_parameter(k, v.type) for k, v in enumerate((*start, rows)))
        read = [a, b]
        if extent is N:
            row = apply("slice", table, start=(t, 0), shape=(1, 6), step=(1, 1))
            read.append(reshape(row, (6,)))
        found = self.block(read, table, depth + 1)
        step = broadcast(apply("dimension", dim=t, dtype=dt.f32), (6,), ())
        body = Region((a, b, table), (apply("tanh", apply("sub", found[-1], step)), found[-2], found[-1]))
        node = apply("loop", *start, rows, body=body, carried=2, extent=extent, counter=t, conditional=False)
        return [item(node, k) for k in range(3)]

    def bounded(self, a: Node, b: Node, rows: Node, depth: int) -> list[Node]:
        """Goes on while the sum is positive, for at most four steps."""
        t = self.counter(4)
        go, p, q, table = (region_parameter(k, v) for k, v in enumerate((FLAG, a.type, b.type, rows.type)))
        found = self.block([p, q], table, depth + 1)
        moved = apply("sub", found[-1], full(0.25, dt.f32, (6,)))
        body = Region((go, p, q, table), (self.positive(moved), moved, found[-2]))
        start = (self.positive(a), a, b, rows)
        node = apply("loop", *start, body=body, carried=3, extent=4, counter=t, conditional=True)
        return [item(node, 1), item(node, 2)]
