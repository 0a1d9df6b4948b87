"""Tile expressions: the values of TILE, PLACED and REG, as nodes of type `TileType`; and small builders for them.

| op | operands; attrs | meaning |
|---|---|---|
| `load` | positions, extents, valid counts, else; buffer, rank, masked, has_else | a window of a buffer, see below |
| `full` | ; value, dtype | a scalar constant |
| `ref` | ; name | a value named by `Let`, or carried by a loop |
| `position` | index, extents; dtype, rank | an index expression as a scalar or tile (over the tile axes) |
| a pointwise op | tiles | element by element; operands are scalars or of one rank, axes of extent 1 repeat |
| `expand` | x; axis | `x[:, None]`: a new axis of extent 1 |
| `reduce` | x; monoid, axis | the axis vanishes; a partial axis needs the identity beyond its extent (`valid`) |
| `valid` | x, n, pad | elements from n on along the last axis become the scalar `pad` |
| `dot` | a[m, k], b[k, n], acc; intrinsic, unroll | acc + a b, over k by the intrinsic's atoms; acc: a tile or scalar |
| `when` | cond, x, y | a uniform branch: cond is an index expression, 0 or not |
| `fold` | x; monoid, to | REG: lane-wise partial reduction of the last axis to `to` lanes |
| `scan` | x; monoid | REG: inclusive prefix along the lanes of one vector |
| `last` | x | REG: the last element along the lanes |

**A window.** A load names, for each axis of the buffer, a position: an index expression over loop variables, symbols and the
*tile axes* `$0`, `$1`, ... (`axis(k, extent)`), which run over the load's extents. So `x[i + $0, j + $1]` is the ordinary
window, printed `x[i : 14, j : 32]`; a transposed window swaps the tile axes; a stride is a coefficient; a broadcast leaves one
out; the overlapping windows of a convolution add two in one position. A position may `read` an element of an integer buffer:
that is a gather. Composing movements is substitution into positions. A window never copies.

`valid[k] = n` says that only n elements exist along tile axis k: those beyond are not touched and read as zero. `else v`
gives v wherever a position falls outside the buffer (padding in place); without it every position is inside.
The window of a `Store` is the same node, without else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tcomp.ir import index
from tcomp.ir.dtype import DType, bool_
from tcomp.ir.index import INDEX, as_dim, as_node
from tcomp.ir.node import Dim, Node, node, with_operands
from tcomp.ir.ops import OPS
from tcomp.ir.types import Buffer, TileType


def axis(k: int, extent: Dim) -> Dim:
    """Tile axis k of a window of that extent, for use in positions; of extent 1 it is 0."""
    if extent == 1:
        return 0
    hi = index.bounds(extent)[1]
    return index.symbol(f"${k}", 0, None if hi is None else max(0, hi - 1))


def is_axis(n: Node) -> bool:
    """Whether a symbol is a tile axis."""
    return n.op == "sym" and str(n["name"]).startswith("$")


def axis_number(n: Node) -> int:
    """The number of a tile axis."""
    return int(n["name"][1:])


@dataclass(frozen=True, slots=True)
class Window:
    """The parts of a `load`. `valid[k]` is None where the whole extent exists."""

    buffer: Buffer
    positions: tuple[Dim, ...]
    extents: tuple[Dim, ...]
    valid: tuple[Dim | None, ...]
    other: Node | None = None

    @property
    def rank(self) -> int:
        return len(self.extents)


def load(
    buffer: Buffer,
    positions: tuple[Dim, ...],
    extents: tuple[Dim, ...] = (),
    valid: tuple[Dim | None, ...] | None = None,
    other: Node | None = None,
) -> Node:
    """A window of `buffer`; `positions` are written over `axis(k, extents[k])`."""
    valid = valid if valid is not None else (None,) * len(extents)
    assert len(positions) == buffer.rank and len(valid) == len(extents), (buffer, positions, extents)
    masked = tuple(v is not None for v in valid)
    operands = [*positions, *extents, *(v for v in valid if v is not None)]
    nodes = [as_node(o) for o in operands] + ([other] if other is not None else [])
    attrs = (("buffer", buffer), ("rank", len(extents)), ("masked", masked), ("has_else", other is not None))
    return node("load", nodes, attrs, TileType(buffer.dtype, tuple(extents)))


def window(n: Node) -> Window:
    """The parts of a load."""
    buffer, rank, masked = n["buffer"], n["rank"], n["masked"]
    dims = [as_dim(o) if o.type is INDEX else o for o in n.operands]
    at = buffer.rank + rank
    counts = iter(dims[at : at + sum(masked)])
    valid = tuple(next(counts) if m else None for m in masked)
    other = n.operands[-1] if n["has_else"] else None
    return Window(buffer, tuple(dims[: buffer.rank]), tuple(dims[buffer.rank : at]), valid, other)


def load_of(w: Window) -> Node:
    """The load with these parts."""
    return load(w.buffer, w.positions, w.extents, w.valid, w.other)


def whole(buffer: Buffer) -> Node:
    """The window of all of a buffer."""
    return load(buffer, tuple(axis(k, d) for k, d in enumerate(buffer.shape)), buffer.shape)


def full(value: float | int | bool, dtype: DType) -> Node:
    """A scalar constant."""
    kept = float(value) if dtype.is_float else bool(value) if dtype.kind == "bool" else int(value)
    return node("full", (), (("value", Exact(kept)), ("dtype", dtype)), TileType(dtype))


class Exact:
    """A number compared by its bits: -0.0 is not 0.0, and NaN is itself."""

    __slots__ = ("value",)

    def __init__(self, value: float | int | bool) -> None:
        self.value = value

    def _key(self) -> tuple[type, str]:
        return type(self.value), self.value.hex() if isinstance(self.value, float) else str(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Exact) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return repr(self.value)


def ref(name: str, type: TileType) -> Node:
    """A value that a `Let` or a loop names."""
    return node("ref", (), (("name", name),), type)


def position(x: Dim, dtype: DType, extents: tuple[Dim, ...] = ()) -> Node:
    """The value of an index expression over loop variables and the axes of a tile of these extents."""
    operands = [as_node(x), *map(as_node, extents)]
    return node("position", operands, (("dtype", dtype), ("rank", len(extents))), TileType(dtype, extents))


def common_shape(shapes: list[tuple[Dim, ...]]) -> tuple[Dim, ...]:
    """The shape of a pointwise result: scalars fit all; axes of extent 1 repeat."""
    tiles = [s for s in shapes if s]
    if not tiles:
        return ()
    assert all(len(s) == len(tiles[0]) for s in tiles), f"tiles of different ranks: {tiles}"
    return tuple(next((d for d in column if d != 1), 1) for column in zip(*tiles))


def pointwise(op: str, *args: Node, **attrs: Any) -> Node:
    """A pointwise operation of the op table on tiles or scalars."""
    shape = common_shape([a.type.shape for a in args])
    assert op in OPS, op
    dtype = bool_ if "test" in OPS[op].facts else attrs.get("dtype", args[-1].type.dtype)
    return node(op, args, tuple(attrs.items()), TileType(dtype, shape))


def cast(x: Node, dtype: DType) -> Node:
    """`x` in another dtype; itself where it has it."""
    return x if x.type.dtype == dtype else pointwise("cast", x, dtype=dtype)


def expand(x: Node, axis: int) -> Node:
    """`x` with a new axis of extent 1 at `axis`."""
    shape = x.type.shape
    return node("expand", (x,), (("axis", axis),), TileType(x.type.dtype, (*shape[:axis], 1, *shape[axis:])))


def reduce(monoid: str, x: Node, axis: int = -1) -> Node:
    """`x` combined along one axis, which vanishes."""
    axis %= x.type.rank
    shape = x.type.shape[:axis] + x.type.shape[axis + 1 :]
    return node("reduce", (x,), (("monoid", monoid), ("axis", axis)), TileType(x.type.dtype, shape))


def valid(x: Node, n: Dim, pad: Node) -> Node:
    """`x` whose elements from n on, along the last axis, are `pad`."""
    return node("valid", (x, as_node(n), pad), (), x.type)


def dot(a: Node, b: Node, acc: Node, intrinsic: str, unroll: int = 4) -> Node:
    """acc + a b, by an intrinsic; `unroll`: steps of k that are written out."""
    shape = (a.type.shape[0], b.type.shape[1])
    return node("dot", (a, b, acc), (("intrinsic", intrinsic), ("unroll", unroll)), TileType(acc.type.dtype, shape))


def when(cond: Dim, x: Node, y: Node) -> Node:
    """x where the uniform condition holds, else y; decided at once where it is known."""
    if isinstance(cond, int):
        return x if cond else y
    return node("when", (cond, x, y), (), TileType(x.type.dtype, common_shape([x.type.shape, y.type.shape])))


def fold(monoid: str, x: Node, to: int) -> Node:
    """The last axis of `x` combined lane by lane to `to` lanes."""
    return node("fold", (x,), (("monoid", monoid), ("to", to)), TileType(x.type.dtype, (*x.type.shape[:-1], to)))


def scan(monoid: str, x: Node) -> Node:
    """Running combinations along the lanes of `x`."""
    return node("scan", (x,), (("monoid", monoid),), x.type)


def last(x: Node) -> Node:
    """The last element of `x` along its lanes."""
    return node("last", (x,), (), TileType(x.type.dtype, x.type.shape[:-1]))


def nodes(e: Node) -> Iterator[Node]:
    """The tile values of an expression, each once, operands before users (its index expressions left out)."""
    seen: set[Node] = set()
    stack = [(e, False)]
    while stack:
        n, ready = stack.pop()
        if ready:
            yield n
        elif n not in seen:
            seen.add(n)
            stack.append((n, True))
            stack.extend((o, False) for o in reversed(n.operands) if o.type is not INDEX and o not in seen)


def map_children(e: Node, f: Callable[[Node], Node]) -> Node:
    """`e` with its tile operands (not index expressions) replaced by `f` of them; shapes are inferred again."""
    new = tuple(o if o.type is INDEX else f(o) for o in e.operands)
    return e if new == e.operands else retype(e, new)


def replace(e: Node, change: Callable[[Node], Node | None]) -> Node:
    """`e` with `change(n)` in place of each node where that is a node; where it is None the operands are searched.

    What several nodes share is visited once: an expression is a graph, and has exponentially many paths.
    """
    done: dict[Node, Node] = {}

    def new(n: Node) -> Node:
        found = done.get(n)
        if found is None:
            changed = change(n)
            found = done[n] = map_children(n, new) if changed is None else changed
        return found

    return new(e)


def retype(e: Node, operands: tuple[Node, ...]) -> Node:
    """The expression of e's op over other operands, its type inferred again."""
    match e.op:
        case "load" | "full" | "ref" | "position":
            return with_operands(e, operands)
        case "expand":
            return expand(operands[0], e["axis"])
        case "reduce":
            return reduce(e["monoid"], operands[0], e["axis"])
        case "valid":
            return valid(operands[0], as_dim(operands[1]), operands[2])
        case "dot":
            return dot(operands[0], operands[1], operands[2], e["intrinsic"], e["unroll"])
        case "when":
            return when(as_dim(operands[0]), operands[1], operands[2])
        case "fold":
            return fold(e["monoid"], operands[0], e["to"])
        case "scan":
            return scan(e["monoid"], operands[0])
        case "last":
            return last(operands[0])
    return pointwise(e.op, *operands, **dict(e.attrs))


def substitute(e: Node, values: Mapping[Node, Dim]) -> Node:
    """`e` with symbols replaced in all its index expressions; the tile axes of its windows follow their extents."""

    def swap(d: Dim) -> Dim:
        return index.substitute(d, values)

    done: dict[Node, Node] = {}

    def inner(x: Node) -> Node:
        found = done.get(x)
        if found is None:
            found = done[x] = swapped(x)
        return found

    def swapped(x: Node) -> Node:
        match x.op:
            case "load":
                w = window(x)
                other = None if w.other is None else inner(w.other)
                counts = tuple(None if v is None else swap(v) for v in w.valid)
                extents = tuple(map(swap, w.extents))
                axes = _moved_axes(w.extents, extents, (None,) * w.rank)
                positions = tuple(index.substitute(p, {**values, **axes}) for p in w.positions)
                return load(w.buffer, positions, extents, counts, other)
            case "position":
                extents = tuple(map(swap, x.type.shape))
                axes = _moved_axes(x.type.shape, extents, (None,) * len(extents))
                return position(index.substitute(as_dim(x.operands[0]), {**values, **axes}), x["dtype"], extents)
        new = tuple(as_node(swap(as_dim(o))) if o.type is INDEX else inner(o) for o in x.operands)
        return x if new == x.operands else retype(x, new)

    return inner(e)


WindowOf = tuple[Dim, Dim, Dim | None]  # start, extent, valid
Narrowing = tuple[WindowOf | None, ...]


def restrict(e: Node, narrow: Narrowing, done: dict[tuple[Node, Narrowing], Node] | None = None) -> Node:
    """`e` narrowed along each of its axes to (start, extent, valid), or left whole (None): the narrowing is pushed into windows.

    A `ref` cannot be narrowed. Of a `dot`, rows narrow the first operand, columns the second, both the accumulator.
    done: what was narrowed already; several calls may share it.
    """
    if all(w is None for w in narrow) or not e.type.shape:
        return e
    narrow = tuple(None if d == 1 and w is not None and w[1] != 1 else w for d, w in zip(e.type.shape, narrow))
    done = {} if done is None else done
    found = done.get((e, narrow))
    if found is None:
        found = done[e, narrow] = _restrict(e, narrow, done)
    return found


def _restrict(e: Node, narrow: Narrowing, done: dict[tuple[Node, Narrowing], Node]) -> Node:
    match e.op:
        case "load":
            return _restrict_load(e, narrow)
        case "position":
            return _restrict_position(e, narrow)
        case "ref":
            same = all(w is None or (w[0] == 0 and w[1] == d) for w, d in zip(narrow, e.type.shape))
            assert same, f"the register value {e['name']} cannot be narrowed"
            return e
        case "expand":
            k = e["axis"]
            return expand(restrict(e.operands[0], narrow[:k] + narrow[k + 1 :], done), k)
        case "reduce":
            k = e["axis"]
            return reduce(e["monoid"], restrict(e.operands[0], (*narrow[:k], None, *narrow[k:]), done), k)
        case "dot":
            a, b, acc = e.operands
            a, b = restrict(a, (narrow[0], None), done), restrict(b, (None, narrow[1]), done)
            return retype(e, (a, b, restrict(acc, narrow, done)))
        case "valid":
            return _restrict_valid(e, narrow)
    return map_children(e, lambda o: restrict(o, narrow, done))


def _restrict_load(e: Node, narrow: Narrowing) -> Node:
    w = window(e)
    extents = tuple(d if n is None else n[1] for d, n in zip(w.extents, narrow))
    moved = _moved_axes(w.extents, extents, narrow)
    counts = tuple(_narrow_count(v, n) for v, n in zip(w.valid, narrow))
    return load(w.buffer, tuple(index.substitute(p, moved) for p in w.positions), extents, counts, w.other)


def _moved_axes(old: tuple[Dim, ...], new: tuple[Dim, ...], narrow: Narrowing) -> dict[Node, Dim]:
    """What each tile axis of the old extents is in terms of those of the narrowed ones."""
    moved: dict[Node, Dim] = {}
    for k, (d, x, n) in enumerate(zip(old, new, narrow)):
        was = axis(k, d)
        if n is not None and isinstance(was, Node):
            moved[was] = index.add(axis(k, x), n[0])
    return moved


def _narrow_count(count: Dim | None, n: WindowOf | None) -> Dim | None:
    """How many elements exist in the narrowed window: what the window asked for, within what there was."""
    if n is None:
        return count
    if count is None:
        return n[2]
    left = index.minimum(n[1], index.maximum(index.sub(count, n[0]), 0))
    return left if n[2] is None else index.minimum(left, n[2])


def _restrict_position(e: Node, narrow: Narrowing) -> Node:
    old = e.type.shape
    extents = tuple(d if n is None else n[1] for d, n in zip(old, narrow))
    moved = _moved_axes(old, extents, narrow)
    return position(index.substitute(as_dim(e.operands[0]), moved), e["dtype"], extents)


def _restrict_valid(e: Node, narrow: Narrowing) -> Node:
    x, n, pad = e.operands
    w = narrow[-1]
    count = as_dim(n) if w is None else index.minimum(w[1], index.maximum(index.sub(as_dim(n), w[0]), 0))
    return valid(restrict(x, narrow), count, pad)
