"""Random small GRAPH functions, inputs for them, and the check that a pass kept their meaning.

Values are small integers, exact in every dtype used, so that sums in any order agree. Shapes hold symbols `n` and `m` beside
sizes 0, 1, 2 and 3.
"""

import random

import numpy as np

from tcomp.errors import Error
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.graph import Func, broadcast, cast, full, reshape, transpose
from tcomp.ir.interp.graph import run
from tcomp.ir.loc import Loc, Locs
from tcomp.ir.module import Module
from tcomp.ir.node import Node
from tcomp.ir.ops import apply, constant, item, parameter

N, M = index.symbol("n"), index.symbol("m")
SIZED = parameter("sizes", dt.f32, (N, M))  # binds the symbols, whatever else there is
DTYPES = (dt.f32, dt.f32, dt.f32, dt.f16, dt.bf16, dt.i32, dt.i8, dt.u8, dt.u32, dt.i64, dt.bool_)


def module_of(*results: Node, params: tuple[Node, ...] | None = None) -> Module:
    """A module whose function has these results; every node gets a place of its own."""
    func = Func("f", (), results, tuple(f"r{k}" for k in range(len(results))))
    nodes = func.nodes()
    if params is None:
        params = (SIZED, *(n for n in nodes if n.op == "parameter" and n is not SIZED))
    locs = Locs()
    for k, n in enumerate(nodes):
        locs.add(n, Loc("user.py", k + 1))
    return Module("graph", "f", Func("f", params, results, func.result_names, locs))


def values_for(p: Node, sizes: dict[str, int], rng: np.random.Generator) -> np.ndarray:
    shape = [index.evaluate(d, sizes) for d in p.type.shape]
    if p.type.dtype == dt.bool_:
        return rng.integers(0, 2, shape) > 0
    return rng.integers(0 if p.type.dtype.kind == "uint" else -3, 4, shape).astype(dt.to_numpy(p.type.dtype))


def results(module: Module, *arrays: np.ndarray) -> list[np.ndarray]:
    """The results of a module of `module_of` on these arrays."""
    return run(module.func, [np.zeros((1, 1), np.float32), *arrays])


def same(a: np.ndarray, b: np.ndarray, bitwise: bool = False) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    x, y = (v.astype(np.float64) if v.dtype.kind not in "biu" else v for v in (a, b))
    if x.dtype == np.float64 and bitwise and not np.array_equal(np.signbit(x[x == 0]), np.signbit(y[y == 0])):
        return False
    return bool(np.array_equal(x, y, equal_nan=x.dtype == np.float64))


def check_same(before: Module, after: Module, sizes: dict[str, int], seed: int = 0, bitwise: bool = False) -> None:
    """Both functions give the same results on one set of inputs (or the same error)."""
    assert after.func.params == before.func.params and after.func.result_names == before.func.result_names
    assert [r.type for r in after.func.results] == [r.type for r in before.func.results]
    rng = np.random.default_rng(seed)
    inputs = [values_for(p, sizes, rng) for p in before.func.params]
    for k, (a, b) in enumerate(zip(run(before.func, inputs), run(after.func, inputs))):
        assert same(a, b, bitwise), f"result {k} at {sizes}:\n{a}\nbecame\n{b}"


SIZES = tuple({"n": n, "m": m} for n, m in ((2, 3), (1, 2), (0, 3), (3, 1), (1, 1)))


def random_module(seed: int, steps: int = 12, families: str = "pmrc") -> Module:
    """A random function. families: p(ointwise), m(ovement), t(ransposes), r(eductions), c(ontractions);
    one named twice comes twice as often."""
    rng = random.Random(seed)
    pool = [SIZED, *(_leaf(rng, k) for k in range(3))]
    params = tuple(p for p in pool if p.op == "parameter")
    makers = [maker for f in families for maker in _MAKERS[f]]
    made = 0
    while made < steps:
        try:
            new = rng.choice(makers)(rng, pool)
        except (Error, ValueError):  # operands that do not fit, an axis of a scalar
            continue
        if new is None or not fits(new):
            continue
        pool.append(new)
        made += 1
    return module_of(*dict.fromkeys([pool[-1], rng.choice(pool[4:]), rng.choice(pool[4:])]), params=params)


def fits(n: Node) -> bool:
    return n.type.rank <= 5 and all(not isinstance(d, int) or 0 <= d <= 36 for d in n.type.shape)


def _leaf(rng: random.Random, k: int) -> Node:
    shape = tuple(rng.choice([N, M, 1, 2, 3, 2, 3] + [0] * (rng.random() < 0.1)) for _ in range(rng.randint(1, 4)))
    dtype = rng.choice(DTYPES)
    if rng.random() < 0.7 or any(isinstance(d, Node) for d in shape):
        return parameter(f"p{k}", dtype, shape)
    return constant(np.random.default_rng(rng.randrange(2**32)).integers(0, 3, shape).astype(dt.to_numpy(dtype)))


def _pick(rng: random.Random, pool: list[Node]) -> Node:
    return rng.choice(pool[-5:] if rng.random() < 0.7 else pool)


def _partner(rng: random.Random, pool: list[Node], x: Node) -> Node:
    """Another operand of x's type: a value of the pool (cast), a scalar, or a smaller value broadcast."""
    equal = [p for p in pool if p.type.shape == x.type.shape]
    if equal and rng.random() < 0.5:
        return cast(rng.choice(equal), x.type.dtype)
    small = rng.choice(pool)
    for _ in range(4):
        axes = tuple(sorted(rng.sample(range(x.type.rank), min(small.type.rank, x.type.rank))))
        if len(axes) == small.type.rank and all(d in (1, x.type.shape[a]) for d, a in zip(small.type.shape, axes)):
            return broadcast(cast(small, x.type.dtype), x.type.shape, axes)
    value = rng.choice([0, 1, 2]) if rng.random() < 0.9 or not x.type.dtype.is_float else -0.0
    return full(value, x.type.dtype, x.type.shape)


def _unary(rng: random.Random, pool: list[Node]) -> Node:
    return apply(rng.choice(["neg", "abs", "sign", "not", "floor"]), _pick(rng, pool))


def _binary(rng: random.Random, pool: list[Node]) -> Node:
    x = _pick(rng, pool)
    pair = [x, _partner(rng, pool, x)]
    if rng.random() < 0.3:
        pair.reverse()
    return apply(rng.choice(["add", "sub", "mul", "max", "min", "and", "or", "xor"]), *pair)


def _select(rng: random.Random, pool: list[Node]) -> Node:
    x = _pick(rng, pool)
    y = _partner(rng, pool, x)
    return apply("where", apply(rng.choice(["lt", "eq", "ge"]), x, y), x, _partner(rng, pool, x))


def _cast(rng: random.Random, pool: list[Node]) -> Node:
    return cast(_pick(rng, pool), rng.choice(DTYPES))


def _transpose(rng: random.Random, pool: list[Node]) -> Node:
    x = _pick(rng, pool)
    return transpose(x, rng.sample(range(x.type.rank), x.type.rank))


def _reshape(rng: random.Random, pool: list[Node]) -> Node:
    x = _pick(rng, pool)
    shape = list(x.type.shape)
    if len(shape) > 1 and rng.random() < 0.5:
        k = rng.randrange(len(shape) - 1)
        shape[k : k + 2] = [index.mul(shape[k], shape[k + 1])]
    elif rng.random() < 0.5:
        shape.insert(rng.randint(0, len(shape)), 1)
    else:
        shape = [d for d in shape if d != 1]
    back = [p.type.shape for p in pool if index.product(p.type.shape) == index.product(x.type.shape)]
    return reshape(x, rng.choice(back) if back and rng.random() < 0.3 else shape)


def _broadcast(rng: random.Random, pool: list[Node]) -> Node:
    x = _pick(rng, pool)
    shape = [d if d != 1 or rng.random() < 0.5 else rng.choice([N, 2, 3]) for d in x.type.shape]
    axes = list(range(len(shape)))
    if rng.random() < 0.7:
        k = rng.randint(0, len(shape))
        shape.insert(k, rng.choice([N, M, 1, 2]))
        axes = [a + (a >= k) for a in axes]
    return broadcast(x, tuple(shape), tuple(axes))


def _slice(rng: random.Random, pool: list[Node]) -> Node:
    x = _pick(rng, pool)
    start, shape, step = [], [], []
    for d in x.type.shape:
        if not isinstance(d, int) or d == 0 or rng.random() < 0.4:
            start, shape, step = [*start, 0], [*shape, d], [*step, 1]
        elif rng.random() < 0.3:
            start, shape, step = [*start, d - 1], [*shape, d], [*step, -1]
        else:
            begin = rng.randrange(d)
            start, shape, step = [*start, begin], [*shape, rng.randint(1, d - begin)], [*step, 1]
    return apply("slice", x, start=tuple(start), shape=tuple(shape), step=tuple(step))


def _pad(rng: random.Random, pool: list[Node]) -> Node | None:
    x = _pick(rng, pool)
    if not x.type.rank:
        return None
    low, high = (tuple(rng.choice([0, 0, 1]) for _ in x.type.shape) for _ in range(2))
    return apply("pad", x, full(rng.choice([0, 1]), x.type.dtype), low=low, high=high)


def _concat(rng: random.Random, pool: list[Node]) -> Node:
    x = _pick(rng, pool)
    axis = rng.randrange(x.type.rank)
    like = [p for p in pool if p.type.dtype == x.type.dtype and p.type.rank == x.type.rank]
    return apply("concat", *rng.choices(like, k=rng.randint(1, 3)), axis=axis)


def _window(rng: random.Random, pool: list[Node]) -> Node | None:
    x = _pick(rng, pool)
    axes = [a for a, d in enumerate(x.type.shape) if isinstance(d, int) and d >= 2]
    if not axes:
        return None
    return apply("window", x, axes=(rng.choice(axes),), sizes=(2,), strides=(rng.choice([1, 2]),), dilations=(1,))


def _iota(rng: random.Random, pool: list[Node]) -> Node:
    x = _pick(rng, pool)
    return apply("iota", shape=x.type.shape, axis=rng.randrange(x.type.rank), dtype=rng.choice([dt.i32, dt.f32]))


def _reduce(rng: random.Random, pool: list[Node]) -> Node:
    x = _pick(rng, pool)
    axes = tuple(a for a in range(x.type.rank) if rng.random() < 0.5)
    return apply("reduce", x, monoid=rng.choice(["add", "max", "min", "mul"]), axes=axes)


def _softmax_like(rng: random.Random, pool: list[Node]) -> Node:
    """A reduction with its axes kept as 1, subtracted from its operand."""
    x = _pick(rng, pool)
    axis = rng.randrange(x.type.rank)
    kept = reshape(apply("reduce", x, monoid="max", axes=(axis,)), [1 if a == axis else d for a, d in enumerate(x.type.shape)])
    return apply("sub", x, broadcast(kept, x.type.shape, tuple(range(x.type.rank))))


def _argreduce(rng: random.Random, pool: list[Node]) -> Node | None:
    x = _pick(rng, pool)
    axes = [a for a, d in enumerate(x.type.shape) if isinstance(d, int)]
    if not axes:
        return None
    monoid, last = rng.choice(["max", "min"]), rng.random() < 0.5
    return apply("argreduce", x, monoid=monoid, axis=rng.choice(axes), last=last, dtype=rng.choice([dt.i64, dt.i32]))


def _scan(rng: random.Random, pool: list[Node]) -> Node:
    x = _pick(rng, pool)
    flags = {"reverse": rng.random() < 0.5, "exclusive": rng.random() < 0.5}
    return apply("scan", x, monoid="add", axis=rng.randrange(x.type.rank), **flags)


def _sort(rng: random.Random, pool: list[Node]) -> Node:
    x = _pick(rng, pool)
    axis = rng.randrange(x.type.rank)
    many = apply("sort", x, axis=axis, descending=rng.random() < 0.5)
    size = x.type.shape[axis]
    if isinstance(size, int) and size and rng.random() < 0.5:
        many = apply("top_k", x, k=rng.randint(1, size), axis=axis, largest=rng.random() < 0.5)
    return item(many, rng.randrange(2))


def _dot(rng: random.Random, pool: list[Node]) -> Node:
    a = _pick(rng, pool)
    b = cast(_pick(rng, pool), a.type.dtype)
    pairs = [(i, j) for i, d in enumerate(a.type.shape) for j, e in enumerate(b.type.shape) if d == e]
    rng.shuffle(pairs)
    batch: list[tuple[int, int]] = []
    inner: list[tuple[int, int]] = []
    for i, j in pairs[:3]:
        if all(i != p and j != q for p, q in batch + inner):
            (batch if rng.random() < 0.4 else inner).append((i, j))
    split = [tuple(tuple(p[k] for p in side) for k in range(2)) for side in (batch, inner)]
    return apply("dot", a, b, batch=split[0], contract=split[1])


_MAKERS = {
    "p": [_unary, _binary, _binary, _binary, _select, _cast],
    "m": [_transpose, _reshape, _reshape, _broadcast, _slice, _pad, _concat, _window, _iota],
    "t": [_transpose],
    "r": [_reduce, _softmax_like, _argreduce, _scan, _sort],
    "c": [_dot],
}
