"""Canonical contractions: `dot` of [M, K] by [K, N] or [B, M, K] by [B, K, N], `conv` of one group; of f32, f64, i32 or i64."""

from __future__ import annotations

from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.dtype import DType
from tcomp.ir.graph import broadcast, cast, full, reshape, transpose
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import apply
from tcomp.ir.ops.reduction import Axes, free_axes

FEW_GROUPS = 4  # so many groups become convolutions of their own; more become a batch of products

_WORKING = {dt.bool_: dt.i32, dt.f16: dt.f32, dt.bf16: dt.f32, dt.i8: dt.i32, dt.i16: dt.i32, dt.u8: dt.i32, dt.u16: dt.i32}
_SIGNED = {dt.u32: dt.i32, dt.u64: dt.i64}


def _widened(x: Node) -> Node:
    """`x` in the dtype its products are summed in: 16-bit floats in f32, integers signed and of 32 bits or more."""
    t = x.type.dtype
    return apply("bitcast", x, dtype=_SIGNED[t]) if t in _SIGNED else cast(x, _WORKING.get(t, t))


def _narrowed(x: Node, dtype: DType) -> Node:
    """The inverse of `_widened` on a result: rounded once, wrapped, or whether it is not 0."""
    return apply("bitcast", x, dtype=dtype) if dtype in _SIGNED else cast(x, dtype)


# --- dot -------------------------------------------------------------------------------------------


def dot(a: Node, b: Node, batch: Axes, contract: Axes) -> Node:
    """The canonical form of a general `dot`."""
    if a.type.dtype != b.type.dtype:
        a, b = cast(a, dt.i32), cast(b, dt.i32)
    shape = apply("dot", a, b, batch=batch, contract=contract).type.shape
    inner = [a.type.shape[i] for i in contract[0]]
    if 0 in shape or 0 in inner:
        return full(0, a.type.dtype, shape)
    if index.product(inner) == 1:
        return _outer(a, b, batch, contract, shape)
    b, batch, contract = _shared_batch(a, b, batch, contract)
    contract = _inner_order(a, b, batch, contract)
    left, right = free_axes(a.type.rank, batch[0], contract[0]), free_axes(b.type.rank, batch[1], contract[1])
    lead = _one([a.type.shape[i] for i in batch[0]])
    lead = () if lead == (1,) else lead
    x = _gathered(a, (batch[0], left, contract[0]), lead)
    y = _gathered(b, (batch[1], contract[1], right), lead)
    out = batched_dot(x, y) if lead else apply("dot", _widened(x), _widened(y), batch=((), ()), contract=((1,), (0,)))
    return reshape(_narrowed(out, a.type.dtype), shape)


def batched_dot(x: Node, y: Node) -> Node:
    """[B, M, K] by [B, K, N], in the working dtype."""
    return apply("dot", _widened(x), _widened(y), batch=((0,), (0,)), contract=((2,), (1,)))


def _one(dims: list[Dim]) -> tuple[Dim, ...]:
    return (index.product(dims),)


def _gathered(x: Node, parts: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]], lead: tuple[Dim, ...]) -> Node:
    """`x` with each of the three parts of its axes as one axis; the first is `lead`, none where it is known to be 1."""
    rows, columns = (_one([x.type.shape[a] for a in p]) for p in parts[1:])
    return reshape(transpose(x, parts[0] + parts[1] + parts[2]), lead + rows + columns)


def _outer(a: Node, b: Node, batch: Axes, contract: Axes, shape: tuple[Dim, ...]) -> Node:
    """A contraction over one element: a product for each element of the result."""
    n = len(batch[0])
    x, y = _plain(a, batch[0], contract[0]), _plain(b, batch[1], contract[1])
    x = broadcast(x, shape, tuple(range(x.type.rank)))
    y = broadcast(y, shape, (*range(n), *range(len(shape) - (y.type.rank - n), len(shape))))
    return apply("and" if a.type.dtype.kind == "bool" else "mul", x, y)


def _plain(x: Node, batch: tuple[int, ...], contract: tuple[int, ...]) -> Node:
    """`x` with its batch axes first and without its contracted axes, whose sizes are 1."""
    order = batch + free_axes(x.type.rank, batch, contract)
    return reshape(transpose(x, order + contract), [x.type.shape[a] for a in order])


def _shared_batch(a: Node, b: Node, batch: Axes, contract: Axes) -> tuple[Node, Axes, Axes]:
    """Batch axes along which `b` repeats itself are free axes of `a`, as long as the result keeps its order."""
    while batch[0] and (small := _unrepeated(b, batch[1][-1])) is not None:
        i, j = batch[0][-1], batch[1][-1]
        free = free_axes(a.type.rank, batch[0], contract[0])
        if free and i > free[0]:
            break
        b = small
        batch = (batch[0][:-1], _renumbered(batch[1][:-1], j))
        contract = (contract[0], _renumbered(contract[1], j))
    return b, batch, contract


def _renumbered(axes: tuple[int, ...], gone: int) -> tuple[int, ...]:
    return tuple(a - (a > gone) for a in axes)


def _unrepeated(x: Node, axis: int) -> Node | None:
    """`x` without an axis along which it is one value repeated; None where that is not known."""
    if x.op != "broadcast":
        return None
    small, axes = x.operands[0], x["axes"]
    if axis in axes:
        k = axes.index(axis)
        if small.type.shape[k] != 1 or x.type.shape[axis] == 1:
            return None
        small = reshape(small, (*small.type.shape[:k], *small.type.shape[k + 1 :]))
        axes = (*axes[:k], *axes[k + 1 :])
    shape = (*x.type.shape[:axis], *x.type.shape[axis + 1 :])
    return broadcast(small, shape, _renumbered(axes, axis))


def _inner_order(a: Node, b: Node, batch: Axes, contract: Axes) -> Axes:
    """The contracted pairs in the order of either operand's axes: the one that moves less of what is not constant."""
    pairs = list(zip(*contract))
    orders = [sorted(pairs), sorted(pairs, key=lambda p: p[1])]
    best = min(orders, key=lambda o: _moved(a, b, batch, o))
    return tuple(i for i, _ in best), tuple(j for _, j in best)


def _moved(a: Node, b: Node, batch: Axes, pairs: list[tuple[int, int]]) -> int:
    """How many operands that are computed need a transpose."""
    ka, kb = tuple(p[0] for p in pairs), tuple(p[1] for p in pairs)
    pa = batch[0] + free_axes(a.type.rank, batch[0], ka) + ka
    pb = batch[1] + kb + free_axes(b.type.rank, batch[1], kb)
    return sum(_is_moved(x, p) and not _is_constant(x) for x, p in ((a, pa), (b, pb)))


def _is_moved(x: Node, perm: tuple[int, ...]) -> bool:
    real = [p for p in perm if x.type.shape[p] != 1]
    return real != sorted(real)


def _is_constant(x: Node) -> bool:
    while x.op in ("transpose", "reshape", "cast"):
        x = x.operands[0]
    return x.op == "constant"


# --- conv ------------------------------------------------------------------------------------------


def conv(x: Node, w: Node, strides: tuple[int, ...], dilations: tuple[int, ...], groups: int) -> Node:
    """The canonical form of a `conv`: itself for one group or one channel each way per group (a `dot` where there is one window),
    else what its groups are."""
    if x.type.dtype != w.type.dtype:
        x, w = cast(x, dt.i32), cast(w, dt.i32)
    dtype = x.type.dtype
    shape = apply("conv", x, w, strides=strides, dilations=dilations, groups=groups).type.shape
    if 0 in shape or 0 in w.type.shape:
        return full(0, dtype, shape)
    if groups == 1 and _is_whole(x, w, dilations):
        return _as_product(x, w)
    flat = [k for k, (d, size) in enumerate(zip(x.type.shape[1:-1], w.type.shape)) if d == 1 and size == 1]
    if flat and len(strides) > 1:
        return _without_axis(x, w, strides, dilations, groups, flat[0])
    x, w = _widened(x), _widened(w)
    known = all(isinstance(d, int) for d in w.type.shape)
    if known and (groups == 1 or (w.type.shape[-2] == 1 and w.type.shape[-1] == groups)):
        out = apply("conv", x, w, strides=strides, dilations=dilations, groups=groups)
    elif w.type.shape[-2] == 1:
        out = _depthwise(x, w, strides, dilations, groups)
    elif known and groups <= FEW_GROUPS:
        out = _separate_groups(x, w, strides, dilations, groups)
    else:
        out = _grouped_dot(x, w, strides, dilations, groups)
    return _narrowed(out, dtype)


def _without_axis(x: Node, w: Node, strides: tuple[int, ...], dilations: tuple[int, ...], groups: int, k: int) -> Node:
    """The convolution over the other spatial axes, where axis `k` of them has one element and a window of one."""
    small_x = reshape(x, (*x.type.shape[: k + 1], *x.type.shape[k + 2 :]))
    small_w = reshape(w, (*w.type.shape[:k], *w.type.shape[k + 1 :]))
    out = conv(small_x, small_w, (*strides[:k], *strides[k + 1 :]), (*dilations[:k], *dilations[k + 1 :]), groups)
    return reshape(out, (*out.type.shape[: k + 1], 1, *out.type.shape[k + 1 :]))


def _is_whole(x: Node, w: Node, dilations: tuple[int, ...]) -> bool:
    """Whether the one window covers all of the input."""
    window = w.type.shape[:-2]
    return x.type.shape[1:-1] == window and all(d == 1 or k == 1 for d, k in zip(dilations, window))


def _as_product(x: Node, w: Node) -> Node:
    """[N, inside * C] by [inside * C, O]."""
    depth, columns = index.product(w.type.shape[:-1]), w.type.shape[-1]
    out = dot(reshape(x, (x.type.shape[0], depth)), reshape(w, (depth, columns)), ((), ()), ((1,), (0,)))
    return reshape(out, (x.type.shape[0], *(1 for _ in x.type.shape[1:-1]), columns))


def _windows(x: Node, w: Node, strides: tuple[int, ...], dilations: tuple[int, ...]) -> Node:
    """[N, *windows, C, *inside]."""
    n = len(strides)
    return apply("window", x, axes=tuple(range(1, n + 1)), sizes=w.type.shape[:n], strides=strides, dilations=dilations)


def _depthwise(x: Node, w: Node, strides: tuple[int, ...], dilations: tuple[int, ...], groups: int) -> Node:
    """One input channel for each group and several outputs: products with a window, added up."""
    n = len(strides)
    near = _windows(x, w, strides, dilations)
    near = transpose(near, (*range(n + 1), *range(n + 2, 2 * n + 2), n + 1))
    tail = (groups, index.floordiv(w.type.shape[-1], groups))
    shape = (*near.type.shape[:-1], *tail)
    inside = tuple(range(n + 1, 2 * n + 1))
    kernel = reshape(w, (*w.type.shape[:n], *tail))
    terms = apply(
        "mul",
        broadcast(near, shape, tuple(range(2 * n + 2))),
        broadcast(kernel, shape, (*inside, *range(2 * n + 1, len(shape)))),
    )
    out = apply("reduce", terms, monoid="add", axes=inside)
    return reshape(out, (*near.type.shape[: n + 1], w.type.shape[-1]))


def _separate_groups(x: Node, w: Node, strides: tuple[int, ...], dilations: tuple[int, ...], groups: int) -> Node:
    """A convolution for each group, side by side."""
    each = index.floordiv(w.type.shape[-1], groups)
    parts = [
        apply("conv", _take_last(x, g, w.type.shape[-2]), _take_last(w, g, each), strides=strides, dilations=dilations, groups=1)
        for g in range(groups)
    ]
    return apply("concat", *parts, axis=len(strides) + 1)


def _take_last(x: Node, g: int, size: Dim) -> Node:
    """Part `g` of the last axis in parts of `size`."""
    r = x.type.rank
    start = (*(0,) * (r - 1), index.mul(size, g))
    return apply("slice", x, start=start, shape=(*x.type.shape[:-1], size), step=(1,) * r)


def _grouped_dot(x: Node, w: Node, strides: tuple[int, ...], dilations: tuple[int, ...], groups: int) -> Node:
    """A batch of products, one for each group, of gathered windows [G, N * windows, inside * C/G] by [G, inside * C/G, O/G]."""
    n = len(strides)
    per, each = w.type.shape[-2], index.floordiv(w.type.shape[-1], groups)
    near = _windows(x, w, strides, dilations)
    out_shape, inside = near.type.shape[: n + 1], w.type.shape[:n]
    near = reshape(near, (*out_shape, groups, per, *inside))
    near = transpose(near, (n + 1, *range(n + 1), *range(n + 3, 2 * n + 3), n + 2))
    depth = index.product((*inside, per))
    kernel = reshape(w, (*inside, per, groups, each))
    kernel = transpose(kernel, (n + 1, *range(n + 1), n + 2))
    rows = index.product(out_shape)
    out = batched_dot(reshape(near, (groups, rows, depth)), reshape(kernel, (groups, depth, each)))
    out = transpose(reshape(out, (groups, *out_shape, each)), (*range(1, n + 2), 0, n + 2))
    return reshape(out, (*out_shape, w.type.shape[-1]))
