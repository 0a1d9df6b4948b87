"""The memory plan: whatever order the launches run in that `after` allows, they compute what they would in sequence."""

import random
from itertools import pairwise

import numpy as np
import pytest

from tcomp.ir import dtype as dt
from tcomp.ir import index as ix
from tcomp.ir import layout
from tcomp.ir.module import Module
from tcomp.ir.stmts import Alias, Allocate, Bind, Grid, Kernel, Launch, Main, Repeat, Reserve
from tcomp.ir.types import Buffer
from tcomp.passes.memory_plan import ALIGNMENT, best_fit, memory_plan
from tcomp.passes.order import root_names

N, M = ix.symbol("n", 0), ix.symbol("m", 1)
SHAPES = [
    (1000,), (37,), (64, 64), (3, 5), (1,), (0,),
    (N,), (N, 64), (N, 2048), (N + 1, 64), (N + 3, 2048), (N, M), (M, 4, 16), (2 * N + 1, 300), (ix.ceildiv(N, 2), 16), (7 * M,),
]  # fmt: skip


def kernel(name: str, inputs: int, outputs: int, workspace: tuple[Buffer, ...] = (), symbols=()) -> Kernel:
    inner = [tuple(Buffer(f"{side}{k}", dt.u8, (1,)) for k in range(n)) for side, n in (("i", inputs), ("o", outputs))]
    return Kernel(name, *inner, symbols, (Grid((), ()),), workspace)


def module(main: Main, kernels) -> Module:
    return Module("reg", "test", kernels=tuple(kernels), main=main)


class Random:
    """A random program: launches over reserved buffers, aliases of them, inputs, constants and outputs."""

    def __init__(self, seed: int, static: bool = False):
        self.rng = random.Random(seed)
        self.shapes = SHAPES[:6] if static else SHAPES
        self.kernels, self.body, self.reserved = [], [], []
        self.inputs = (Buffer("x", dt.u8, (50,)), Buffer("y", dt.u8, (N,)))
        self.constants = (Buffer("w", dt.u8, (9,)),)
        self.readable = [b.name for b in (*self.inputs, *self.constants)]
        for number in self.rng.sample(range(1000), self.rng.randint(1, 25)):
            self.launch(number)
        self.outputs = tuple(self.output(k) for k in range(self.rng.randint(1, 3)))
        self.main = Main(self.inputs, self.outputs, self.constants, (N, M), tuple(self.body))

    def reserve(self) -> str:
        buffer = Buffer(f"t{len(self.reserved)}", dt.u8, self.rng.choice(self.shapes))
        self.reserved.append(buffer)
        self.body.append(Reserve(buffer))
        return buffer.name

    def launch(self, number: int) -> None:
        reads = self.rng.sample(self.readable, min(len(self.readable), self.rng.randint(0, 3)))
        writes = [self.reserve() for _ in range(self.rng.randint(1, 2))]
        workspace = (Buffer("ws", dt.u8, (self.rng.choice([N, 100]),), "ws"),) if self.rng.random() < 0.3 else ()
        self.kernels.append(kernel(f"k{number}", len(reads), len(writes), workspace, (N,)))
        self.body.append(Launch(f"k{number}", (*reads, *writes), (M,), number))
        self.readable += writes
        if self.rng.random() < 0.4:
            source = self.rng.choice(self.readable[3:])
            self.body.append(Alias(Buffer(f"a{number}", dt.u8, (1,)), source))
            self.readable.append(f"a{number}")

    def output(self, k: int) -> Buffer:
        """Written by a launch, or where it may be, an alias of a reserved buffer."""
        out = Buffer(f"out{k}", dt.u8, self.rng.choice(self.shapes))
        if self.reserved and self.rng.random() < 0.6:
            source = self.reserved.pop(self.rng.randrange(len(self.reserved)))
            out = Buffer(out.name, dt.u8, source.shape)
            self.body.append(Alias(out, source.name))
            return out
        name = self.rng.choice(self.readable)
        self.kernels.append(kernel(f"last{k}", 1, 1))
        self.body.append(Launch(f"last{k}", (name, out.name), (), 2000 + k))
        return out


class Memory:
    """The bytes of every buffer of a planned main, for given symbols; the arena is one array."""

    def __init__(self, planned: Module, sizes: dict[str, int]):
        main = planned.main
        self.kernels = {k.name: k for k in planned.kernels}
        self.arena = np.zeros(ix.evaluate(main.arena, sizes), np.uint8)
        own = {}
        for b in (*main.inputs, *main.constants, *main.outputs):
            own[b.name] = np.full(ix.evaluate(layout.size(b), sizes), len(own) + 1, np.uint8)
        for s in main.body:
            if isinstance(s, Reserve):
                at, size = ix.evaluate(s.offset, sizes), ix.evaluate(layout.size(s.buffer), sizes)
                assert at % ALIGNMENT == 0 and (size == 0 or at + size <= len(self.arena))
                own[s.buffer.name] = self.arena[at : at + size]
        self.views = {name: own[root] for name, root in root_names(main).items()}

    def parts(self, launch: Launch) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
        k = self.kernels[launch.kernel]
        views = [self.views[a] for a in launch.arguments]
        n = len(k.inputs)
        return views[:n], views[n:], [self.views[launch.workspace(w)] for w in k.workspace]

    def begin(self, launch: Launch) -> list[bytes]:
        reads, writes, workspace = self.parts(launch)
        for view in (*writes, *workspace):
            view[:] = launch.number % 251
        return [view.tobytes() for view in reads]

    def end(self, launch: Launch, seen: list[bytes]) -> None:
        reads, writes, workspace = self.parts(launch)
        assert [view.tobytes() for view in reads] == seen, "an input changed during the launch"
        assert all((view == launch.number % 251).all() for view in (*writes, *workspace)), "an output was overwritten"
        value = sum(b * (k + 3) for k, data in enumerate(seen) for b in (len(data), *data[:2], *data[-2:]))
        for view in writes:
            view[:] = (value * 31 + launch.number) % 251


def in_any_order(planned: Module, sizes: dict[str, int], rng: random.Random) -> Memory:
    memory = Memory(planned, sizes)
    waiting = [s for s in planned.main.body if isinstance(s, Launch)]
    running, done = [], set()
    while waiting or running:
        ready = [s for s in waiting if set(s.after) <= done]
        if ready and (not running or rng.random() < 0.6):
            launch = rng.choice(ready)
            waiting.remove(launch)
            running.append((launch, memory.begin(launch)))
        else:
            launch, seen = running.pop(rng.randrange(len(running)))
            memory.end(launch, seen)
            done.add(launch.number)
    return memory


def in_sequence(program: Module, planned: Module, sizes: dict[str, int]) -> dict[str, bytes]:
    """The outputs when every buffer has memory of its own."""
    at, body = 0, []
    for s in planned.main.body:
        if isinstance(s, Reserve):
            s = Reserve(s.buffer, at)
            at += -(-ix.evaluate(layout.size(s.buffer), sizes) // 64) * 64
        body.append(s)
    main = planned.main
    alone = module(Main(main.inputs, main.outputs, main.constants, main.symbols, tuple(body), at), planned.kernels)
    memory = Memory(alone, sizes)
    for s in body:
        if isinstance(s, Launch):
            memory.end(s, memory.begin(s))
    return {b.name: memory.views[b.name].tobytes() for b in main.outputs}


@pytest.mark.parametrize("seed", range(150))
def test_random_programs_in_every_order_that_after_allows(seed):
    program = Random(seed)
    source = module(program.main, program.kernels)
    planned = memory_plan(source)
    rng = random.Random(seed)
    for sizes in ({"n": 0, "m": 1}, {"n": 7, "m": 3}, {"n": rng.randint(1, 90), "m": rng.randint(1, 40)}):
        memory = in_any_order(planned, sizes, rng)
        expected = in_sequence(source, planned, sizes)
        assert {name: memory.views[name].tobytes() for name in expected} == expected
    assert memory_plan(planned).main == planned.main


@pytest.mark.parametrize("seed", range(20))
def test_memory_is_used_again(seed):
    rng = random.Random(seed)
    items = [(k, k + rng.randint(1, 4), rng.randint(1, 100) * 64) for k in range(60)]
    starts, height = best_fit(items)
    alive = max(sum(size for first, last, size in items if first <= k <= last) for k in range(70))
    assert alive <= height <= 1.35 * alive
    for i, (f, z, size) in enumerate(items):
        for j, (g, y, other) in enumerate(items[:i]):
            assert z < g or y < f or starts[i] + size <= starts[j] or starts[j] + other <= starts[i]


def chain(shape, length: int = 6) -> Module:
    """x -> t0 -> t1 -> ... -> out, each launch reading the one before."""
    names = [f"t{k}" for k in range(length)]
    body = [Reserve(Buffer(name, dt.f32, shape)) for name in names]
    flow = ["x", *names, "out"]
    body += [Launch("k", (a, b), (), k) for k, (a, b) in enumerate(pairwise(flow))]
    x, out = Buffer("x", dt.f32, shape), Buffer("out", dt.f32, shape)
    return module(Main((x,), (out,), (), (N,), tuple(body)), [kernel("k", 1, 1)])


@pytest.mark.parametrize(
    ("shape", "two"), [((1024,), 8192), ((N, 64), N * 512), ((N, 10), 80 * ix.round_up(N, 64)), ((N, 257), N * 2176)]
)
def test_a_chain_needs_two_buffers(shape, two):
    planned = memory_plan(chain(shape))
    assert planned.main.arena == two
    assert [s.after for s in planned.main.body if isinstance(s, Launch)] == [(), *((k,) for k in range(6))]


def test_sizes_that_differ_by_a_constant_share_memory():
    a, b = (Buffer(name, dt.f32, (rows, 64)) for name, rows in (("a", N), ("b", N + 1)))
    c = Buffer("c", dt.f32, (N, 64))
    x, out = Buffer("x", dt.f32, (1,)), Buffer("out", dt.f32, (1,))
    flow = ["x", "a", "b", "c", "out"]
    launches = [Launch("k", pair, (), k) for k, pair in enumerate(pairwise(flow))]
    main = Main((x,), (out,), (), (N,), (Reserve(a), Reserve(b), Reserve(c), *launches))
    assert memory_plan(module(main, [kernel("k", 1, 1)])).main.arena == (N + 1) * 512


def test_independent_launches_do_not_wait():
    buffers = [Buffer(name, dt.f32, (16,)) for name in ("x", "a", "b", "out")]
    body = (Reserve(buffers[1]), Reserve(buffers[2]), Launch("k", ("x", "a"), (), 5), Launch("k", ("x", "b"), (), 3),
            Launch("j", ("a", "b", "out"), (), 8))  # fmt: skip
    planned = memory_plan(module(Main(buffers[:1], buffers[3:], (), (), body), [kernel("k", 1, 1), kernel("j", 2, 1)]))
    assert [s.after for s in planned.main.body if isinstance(s, Launch)] == [(), (), (5, 3)]


def test_memory_that_is_used_again_is_waited_for():
    """b takes over a's place: its launch waits for both readers of a."""
    names = ["x", "a", "b", "o1", "o2", "o3"]
    x, a, b, *outs = (Buffer(name, dt.f32, (16,)) for name in names)
    flow = [("x", "a"), ("a", "o1"), ("a", "o2"), ("x", "b"), ("b", "o3")]
    body = (Reserve(a), Reserve(b), *(Launch("k", pair, (), k) for k, pair in enumerate(flow)))
    planned = memory_plan(module(Main((x,), tuple(outs), (), (), body), [kernel("k", 1, 1)]))
    assert planned.main.arena == 64
    assert [s.after for s in planned.main.body if isinstance(s, Launch)] == [(), (0,), (0,), (1, 2), (3,)]


def test_an_output_that_is_an_alias_takes_the_buffers_place():
    x, t, u, y = (Buffer(name, dt.f32, (16,)) for name in "xtuy")
    body = (Reserve(t), Launch("k", ("x", "t"), (), 0), Alias(u, "t"), Alias(y, "u"), Launch("k", ("u", "z"), (), 1))
    z = Buffer("z", dt.f32, (16,))
    main = memory_plan(module(Main((x,), (y, z), (), (), body), [kernel("k", 1, 1)])).main
    assert main.arena == 0
    assert {root_names(main)[name] for name in "tuy"} == {"y"}
    assert not any(isinstance(s, Alias) and s.buffer.name == "y" for s in main.body)


@pytest.mark.parametrize("source", ["x", "w", "z"])
def test_an_output_that_is_foreign_memory_needs_a_copy(source):
    x, w, y, z = (Buffer(name, dt.f32, (16,)) for name in "xwyz")
    body = (Launch("k", ("x", "z"), (), 0), Alias(y, source))
    with pytest.raises(AssertionError, match="needs a launch that copies"):
        memory_plan(module(Main((x,), (z, y), (w,), (), body), [kernel("k", 1, 1)]))


def test_workspace_takes_the_launchs_symbols():
    work = Buffer("partial", dt.f32, (N, 16), "ws", order=((1, 0), (0, 0), (1, 8)))
    x, out = Buffer("x", dt.f32, (1,)), Buffer("out", dt.f32, (1,))
    main = Main((x,), (out,), (), (M,), (Launch("k", ("x", "out"), (2 * M,), 4),))
    planned = memory_plan(module(main, [kernel("k", 1, 1, (work,), (N,))])).main
    (reserve,) = [s for s in planned.body if isinstance(s, Reserve)]
    assert reserve.buffer == Buffer("k.partial.4", dt.f32, (2 * M, 16), "ws", order=work.order)
    assert planned.arena == 128 * M and reserve.offset == 0


def test_workspaces_whose_size_is_data_are_allocated_once_outside_of_loops():
    works = tuple(Buffer(f"w{k}", dt.f32, (N, 16), "ws") for k in (0, 1))
    size, x, out = Buffer("size", dt.i64, (1,)), Buffer("x", dt.f32, (1,)), Buffer("out", dt.f32, (1,))
    turn = ix.symbol("t", 0, 3)
    loop = Repeat(turn, 4, None, (Launch("k", ("x", "out"), (M,), 2),), 1)
    main = Main((x, size), (out,), (), (), (Bind(M, "size", 0, 0), loop), sizes=(M,))
    planned = memory_plan(module(main, [kernel("k", 1, 1, works, (N,))])).main
    assert [type(s) for s in planned.body] == [Bind, Allocate, Allocate, Repeat]
    assert [type(s) for s in planned.body[-1].body] == [Launch]
    first, second = planned.body[1:3]
    assert {first.buffer.name, second.buffer.name} == {"k.w0.2", "k.w1.2"} and first.number != second.number
