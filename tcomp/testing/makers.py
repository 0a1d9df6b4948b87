"""One operation on top of those so far: a small function for each kind, chosen at random by `generate`.

A maker may build what does not fit: it raises `Error`, or gives None, and another is tried.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from tcomp.errors import Error
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.dtype import DType
from tcomp.ir.graph import broadcast, cast, full, reshape, transpose
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import MONOIDS, OPS, OpDef, apply, item

INTEGERS: tuple[DType, ...] = (dt.i8, dt.i16, dt.i32, dt.i64, dt.u8, dt.u16, dt.u32, dt.u64)
DTYPES: tuple[DType, ...] = (dt.bool_, *INTEGERS, dt.f16, dt.bf16, dt.f32, dt.f64)  # what is computed in
POINTWISE = tuple(row for row in OPS.values() if row.kind == "pointwise" and row.name not in ("cast", "bitcast"))
ARITHMETIC = tuple(
    OPS[name] for name in ("add", "sub", "mul", "max", "min", "neg", "abs", "not", "and", "or", "lt", "eq", "where")
)


@dataclass(slots=True)
class Pool:
    """The values so far, and the symbols that new dimensions may use."""

    rng: random.Random
    nodes: list[Node]
    symbols: tuple[Node, ...]

    def pick(self) -> Node:
        """A value, rather a late one."""
        return self.rng.choice(self.nodes[-4:] if self.rng.random() < 0.6 else self.nodes)

    def tensor(self) -> Node:
        """A value of rank 1 or more."""
        return self.rng.choice([n for n in self.nodes if n.type.rank])

    def partner(self, x: Node) -> Node:
        """Another operand of x's type: a value of its shape (cast), a smaller one broadcast, or a number."""
        equal = [p for p in self.nodes if p.type.shape == x.type.shape]
        if self.rng.random() < 0.5:
            return cast(self.rng.choice(equal or [x]), x.type.dtype)
        small = self.pick()
        for _ in range(4):
            axes = tuple(sorted(self.rng.sample(range(x.type.rank), min(small.type.rank, x.type.rank))))
            if len(axes) == small.type.rank and all(d in (1, x.type.shape[a]) for d, a in zip(small.type.shape, axes)):
                return broadcast(cast(small, x.type.dtype), x.type.shape, axes)
        return full(self.rng.choice((0, 1, 2, 3)), x.type.dtype, x.type.shape)

    def dimension(self) -> Dim:
        return self.rng.choice((*self.symbols, 1, 2, 3, 5))

    def axis(self, x: Node) -> int:
        return self.rng.randrange(x.type.rank)


Maker = Callable[[random.Random, Pool], Node | None]


def _pointwise(rng: random.Random, pool: Pool) -> Node:
    return _one_of(POINTWISE, rng, pool)


def _arithmetic(rng: random.Random, pool: Pool) -> Node:
    """What programs are mostly made of."""
    return _one_of(ARITHMETIC, rng, pool)


def _one_of(rows: tuple[OpDef, ...], rng: random.Random, pool: Pool) -> Node:
    x = pool.pick()
    row = rng.choice([row for row in rows if _takes(row, x)])
    assert row.arity is not None
    operands = [x, *(pool.partner(x) for _ in range(row.arity - 1))]
    if row.name == "where":
        operands = [cast(operands[2], dt.bool_), *operands[:2]]
    elif rng.random() < 0.3:
        operands.reverse()
    return apply(row.name, *operands)


def _takes(row: OpDef, x: Node) -> bool:
    """Whether a pointwise operation is for values of x's dtype."""
    try:
        row.infer(*[x.type] * (row.arity or 1))
    except Error:
        return row.name == "where"
    return True


def _cast(rng: random.Random, pool: Pool) -> Node:
    return apply("cast", pool.pick(), dtype=rng.choice(DTYPES))


def _bitcast(rng: random.Random, pool: Pool) -> Node:
    x = pool.pick()
    return apply("bitcast", x, dtype=rng.choice([t for t in DTYPES if t.bits == x.type.dtype.bits]))


def _transpose(rng: random.Random, pool: Pool) -> Node:
    x = pool.tensor()
    return transpose(x, rng.sample(range(x.type.rank), x.type.rank))


def _reshape(rng: random.Random, pool: Pool) -> Node:
    x = pool.pick()
    shape = list(x.type.shape)
    back = [p.type.shape for p in pool.nodes if index.product(p.type.shape) == index.product(x.type.shape)]
    if back and rng.random() < 0.3:
        return reshape(x, rng.choice(back))
    if len(shape) > 1 and rng.random() < 0.6:
        k = rng.randrange(len(shape) - 1)
        shape[k : k + 2] = [index.mul(shape[k], shape[k + 1])]
    elif rng.random() < 0.5:
        shape.insert(rng.randint(0, len(shape)), 1)
    else:
        shape = [d for d in shape if d != 1]
    return reshape(x, shape)


def _broadcast(rng: random.Random, pool: Pool) -> Node:
    x = pool.pick()
    shape = [d if d != 1 or rng.random() < 0.5 else pool.dimension() for d in x.type.shape]
    axes = list(range(len(shape)))
    if rng.random() < 0.7:
        k = rng.randint(0, len(shape))
        shape.insert(k, pool.dimension())
        axes = [a + (a >= k) for a in axes]
    return broadcast(x, tuple(shape), tuple(axes))


def _slice(rng: random.Random, pool: Pool) -> Node:
    x = pool.tensor()
    start: list[Dim] = []
    shape: list[Dim] = []
    step: list[int] = []
    for d in x.type.shape:
        low, count, stride = _range(rng, d)
        start, shape, step = [*start, low], [*shape, count], [*step, stride]
    return apply("slice", x, start=tuple(start), shape=tuple(shape), step=tuple(step))


def _range(rng: random.Random, d: Dim) -> tuple[Dim, Dim, int]:
    """Start, count and step along an axis of size d: all of it, all backwards, or a part of a known size."""
    if rng.random() < 0.4 or d == 0:
        return 0, d, 1
    if rng.random() < 0.4 or not isinstance(d, int):
        return index.sub(d, 1), d, -1
    step = rng.choice((1, 1, 2, 3))
    low = rng.randrange(d)
    return low, rng.randint(0, (d - low + step - 1) // step), step


def _pad(rng: random.Random, pool: Pool) -> Node:
    x = pool.tensor()
    low, high = (tuple(rng.choice((0, 0, 1, 2)) for _ in x.type.shape) for _ in range(2))
    return apply("pad", x, full(rng.choice((0, 1)), x.type.dtype), low=low, high=high)


def _concat(rng: random.Random, pool: Pool) -> Node:
    x = pool.tensor()
    axis = pool.axis(x)
    rest = x.type.shape[:axis] + x.type.shape[axis + 1 :]
    like = [p for p in pool.nodes if p.type.rank == x.type.rank and p.type.shape[:axis] + p.type.shape[axis + 1 :] == rest]
    parts = [cast(p, x.type.dtype) for p in rng.choices(like, k=rng.randint(1, 3))]
    return apply("concat", *parts, axis=axis)


def _window(rng: random.Random, pool: Pool) -> Node | None:
    x = pool.tensor()
    axes = [a for a, d in enumerate(x.type.shape) if isinstance(d, int) and d >= 3]
    if not axes:
        return _stretch(x)
    size, dilation = rng.choice(((2, 1), (3, 1), (2, 2)))
    return apply("window", x, axes=(rng.choice(axes),), sizes=(size,), strides=(rng.choice((1, 2)),), dilations=(dilation,))


def _stretch(x: Node) -> Node | None:
    """`x` with symbolic sizes that turn out 1 repeated."""
    shape = tuple(index.maximum(d, index.mul(index.equal(d, 1), 3)) if isinstance(d, Node) else d for d in x.type.shape)
    return apply("stretch", x, shape=shape) if shape != x.type.shape else None


def _iota(rng: random.Random, pool: Pool) -> Node:
    x = pool.tensor()
    return apply("iota", shape=x.type.shape, axis=pool.axis(x), dtype=rng.choice((dt.i32, dt.i64, dt.f32)))


def _dimension(rng: random.Random, pool: Pool) -> Node:
    return apply("dimension", dim=index.add(rng.choice(pool.tensor().type.shape), rng.choice((0, 1))), dtype=dt.i64)


def _reduce(rng: random.Random, pool: Pool) -> Node:
    x = pool.pick()
    axes = tuple(a for a in range(x.type.rank) if rng.random() < 0.5)
    return apply("reduce", x, monoid=_monoid(rng, x.type.dtype), axes=axes)


def _monoid(rng: random.Random, t: DType) -> str:
    return rng.choice([m for m in MONOIDS if m not in ("and", "or") or not t.is_float])


def _centred(rng: random.Random, pool: Pool) -> Node:
    """A reduction along an axis, subtracted from its operand: what softmax and norms begin with."""
    x = pool.tensor()
    axis = pool.axis(x)
    small = apply("reduce", x, monoid=rng.choice(("add", "max", "min")), axes=(axis,))
    return apply("sub", x, broadcast(small, x.type.shape, tuple(a for a in range(x.type.rank) if a != axis)))


def _argreduce(rng: random.Random, pool: Pool) -> Node | None:
    x = pool.tensor()
    axes = [a for a, d in enumerate(x.type.shape) if isinstance(d, int) and d]
    if not axes:
        return None
    flags = {"monoid": rng.choice(("max", "min")), "last": rng.random() < 0.5}
    return apply("argreduce", x, axis=rng.choice(axes), dtype=rng.choice((dt.i64, dt.i32)), **flags)


def _scan(rng: random.Random, pool: Pool) -> Node:
    x = pool.tensor()
    flags = {"reverse": rng.random() < 0.5, "exclusive": rng.random() < 0.5}
    return apply("scan", x, monoid=rng.choice(("add", "max", "min")), axis=pool.axis(x), **flags)


def _order(rng: random.Random, pool: Pool) -> Node:
    """One of the results of sort or top_k."""
    x = pool.tensor()
    axis = pool.axis(x)
    size = x.type.shape[axis]
    if isinstance(size, int) and rng.random() < 0.5:
        many = apply("top_k", x, k=rng.randint(0, size), axis=axis, largest=rng.random() < 0.5)
    else:
        many = apply("sort", x, axis=axis, descending=rng.random() < 0.5)
    return item(many, rng.randrange(2))


def _dot(rng: random.Random, pool: Pool) -> Node:
    a = pool.pick()
    b = cast(pool.pick(), a.type.dtype)
    pairs = [(i, j) for i, d in enumerate(a.type.shape) for j, e in enumerate(b.type.shape) if d == e]
    rng.shuffle(pairs)
    batch: list[tuple[int, int]] = []
    inner: list[tuple[int, int]] = []
    for i, j in pairs[:3]:
        if all(i != p and j != q for p, q in batch + inner):
            (batch if rng.random() < 0.4 else inner).append((i, j))
    sides = [(tuple(p for p, _ in pairs), tuple(q for _, q in pairs)) for pairs in (batch, inner)]
    return apply("dot", a, b, batch=sides[0], contract=sides[1])


def _conv(rng: random.Random, pool: Pool) -> Node:
    x = pool.tensor()
    if x.type.rank < 2:
        x = reshape(x, (1, *x.type.shape))
    x = reshape(x, (*x.type.shape, 1)) if x.type.rank == 2 else x
    n, channels, groups = x.type.rank - 2, x.type.shape[-1], rng.choice((1, 1, 1, 2, 3))
    inner = index.floordiv(channels, groups)
    window = [rng.choice((1, 2, 3)) if isinstance(d, int) else 1 for d in x.type.shape[1:-1]]  # fits at every size
    shape = (*window, inner, groups * rng.choice((1, 2, 16)))
    w = cast(apply("iota", shape=shape, axis=rng.randrange(n + 2), dtype=dt.i32), x.type.dtype)
    strides, dilations = (tuple(rng.choice((1, 1, 2)) for _ in range(n)) for _ in range(2))
    return apply("conv", x, w, strides=strides, dilations=dilations, groups=groups)


# --- positions that data decides -------------------------------------------------------------------


def _positions(rng: random.Random, pool: Pool, size: Dim, shape: tuple[Dim, ...] | None = None) -> Node:
    """Integers in [0, size), of any shape or of this one; where size is 0 they are out of range."""
    source = pool.pick() if shape is None else broadcast(full(rng.choice((0, 1, 5)), dt.i64), shape, ())
    if shape and rng.random() < 0.7:
        source = apply("iota", shape=shape, axis=rng.randrange(len(shape)), dtype=dt.i64)
    if source.type.dtype.is_float or source.type.dtype.kind == "bool":
        source = apply("iota", shape=source.type.shape or (2,), axis=0, dtype=dt.i64)
    wide = cast(source, dt.i64)
    limit = broadcast(apply("dimension", dim=size, dtype=dt.i64), wide.type.shape, ())
    found = apply("mod", wide, limit)
    return cast(found, rng.choice((dt.i64, dt.i32)))


def _gather(rng: random.Random, pool: Pool) -> Node:
    x = pool.tensor()
    axis = pool.axis(x)
    return apply("gather", x, _positions(rng, pool, x.type.shape[axis]), axis=axis)


def _gather_elements(rng: random.Random, pool: Pool) -> Node:
    x = pool.tensor()
    axis = pool.axis(x)
    shape = tuple(rng.choice((d, 2)) if a == axis else d for a, d in enumerate(x.type.shape))
    return apply("gather_elements", x, _positions(rng, pool, x.type.shape[axis], shape), axis=axis)


def _coordinates(rng: random.Random, pool: Pool, x: Node, lead: tuple[Dim, ...], first: int, depth: int) -> Node:
    """A tensor [*lead, depth] of coordinates along axes first, first + 1, ... of x."""
    parts = [reshape(cast(_positions(rng, pool, x.type.shape[first + k], lead), dt.i64), (*lead, 1)) for k in range(depth)]
    return apply("concat", *parts, axis=len(lead))


def _gather_nd(rng: random.Random, pool: Pool) -> Node:
    x = pool.tensor()
    batch = rng.choice((0, 0, 1)) if x.type.rank > 1 else 0
    lead = (*x.type.shape[:batch], rng.choice((1, 2, 7)))
    depth = rng.randint(1, x.type.rank - batch)
    return apply("gather_nd", x, _coordinates(rng, pool, x, lead, batch, depth), batch=batch)


def _scatter_elements(rng: random.Random, pool: Pool) -> Node:
    x = pool.tensor()
    axis = pool.axis(x)
    shape = tuple(rng.choice((d, 2)) if a == axis else d for a, d in enumerate(x.type.shape))
    where = _positions(rng, pool, x.type.shape[axis], shape)
    updates = _updates(rng, pool, x, shape)
    return apply("scatter_elements", x, where, updates, axis=axis, monoid=_combination(rng, x.type.dtype))


def _scatter_nd(rng: random.Random, pool: Pool) -> Node:
    x = pool.tensor()
    depth = rng.randint(1, x.type.rank)
    lead = (rng.choice((1, 2, 7)),)
    updates = _updates(rng, pool, x, (*lead, *x.type.shape[depth:]))
    return apply("scatter_nd", x, _coordinates(rng, pool, x, lead, 0, depth), updates, monoid=_combination(rng, x.type.dtype))


def _updates(rng: random.Random, pool: Pool, x: Node, shape: tuple[Dim, ...]) -> Node:
    equal = [p for p in pool.nodes if p.type.shape == shape]
    if equal:
        return cast(rng.choice(equal), x.type.dtype)
    return cast(apply("iota", shape=shape, axis=rng.randrange(len(shape)), dtype=dt.i32), x.type.dtype)


def _combination(rng: random.Random, t: DType) -> str | None:
    return rng.choice((None, None, "add", "max", "min")) if t.kind != "bool" else None


FAMILIES: dict[str, tuple[Maker, ...]] = {
    "pointwise": (_arithmetic, _arithmetic, _arithmetic, _arithmetic, _pointwise, _cast),
    "movement": (_transpose, _reshape, _reshape, _broadcast, _slice, _pad, _concat, _window, _iota),
    "transpose": (_transpose,),
    "reduction": (_reduce, _centred, _argreduce, _scan, _order),
    "contraction": (_dot,),
}
MAKERS: tuple[Maker, ...] = (
    *(_pointwise,) * 8,
    *(_cast, _cast, _bitcast, _transpose, _transpose, _reshape, _reshape, _broadcast, _broadcast, _slice, _slice, _pad),
    *(_concat, _concat, _window, _iota, _dimension, _reduce, _reduce, _reduce, _centred, _centred, _argreduce, _scan, _order),
    *(_dot, _dot, _conv, _gather, _gather_elements, _gather_nd, _scatter_elements, _scatter_nd),
)
