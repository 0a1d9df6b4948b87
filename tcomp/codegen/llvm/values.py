"""Register values of tile expressions: one vector through the whole expression, each remembered as long as its scope lasts.

`vector(w, e, key)` gives LANES elements, `element(w, e, at)` one; both work for every expression whatever its form, broadcasting
axes of extent 1. A tile's own form is `scalars` where its last extent is no multiple of LANES or its elements come one by one
out of reductions, else `lanes`.
"""

from __future__ import annotations

from collections.abc import Callable

from tcomp.codegen.llvm import lane_index, lanes, loads, masks, spelling
from tcomp.codegen.llvm.address import condition, has_lane, text
from tcomp.codegen.llvm.builder import literal
from tcomp.codegen.llvm.convert import Elements, cast, rounded
from tcomp.codegen.llvm.memory import MASK
from tcomp.codegen.llvm.writer import REGISTER, Key, Writer, register_type
from tcomp.ir import index
from tcomp.ir.dtype import ALL, DType, i64, to_numpy
from tcomp.ir.index import INDEX, as_dim
from tcomp.ir.machine import LANES
from tcomp.ir.node import Node
from tcomp.ir.ops import MONOIDS
from tcomp.ir.types import TileType


def constant(dtype: DType, value: float | int) -> str:
    """The literal of one register element."""
    if dtype.is_float:
        value = float(to_numpy(dtype).type(value))
    return literal(REGISTER[dtype.name], value)


def extents(t: TileType) -> tuple[int, ...]:
    """The static extents of a register tile."""
    shape = tuple(d for d in t.shape if isinstance(d, int))
    assert len(shape) == len(t.shape), f"a register tile of {t}: its extents are not static"
    return shape


def operand_key(e: Node, key: Key) -> Key:
    """Where an operand is read for a result at `key`: scalars anywhere, axes of extent 1 at 0."""
    shape = e.type.shape
    assert not shape or len(shape) == len(key), f"a tile of {e.type} in an expression of rank {len(key)}"
    return tuple(0 if d == 1 else k for d, k in zip(shape, key))


def uniform(e: Node) -> bool:
    """Whether all lanes of a vector of `e` are equal, whatever the rows."""
    return not e.type.shape or e.type.shape[-1] == 1


# --- vectors -------------------------------------------------------------------------------------------


def vector(w: Writer, e: Node, key: Key) -> str:
    """Vector `key[-1]` of rows `key[:-1]` of `e` (or of what `e` broadcasts to)."""
    key = operand_key(e, key)
    if uniform(e):
        return splat_of(w, e, key)
    if e.op == "ref":
        return _from_registers(w, e, key)
    return str(w.memo((e, key, w.stamp(e)), lambda: _vector(w, e, key)))


def splat_of(w: Writer, e: Node, at: Key) -> str:
    """One element in every lane, repeated where the element itself is known from."""
    x = element(w, e, at)
    level = w.level if e.op != "ref" else _level_of_register(w, e["name"])
    return w.splat(REGISTER[e.type.dtype.name], x, level=level)


def _level_of_register(w: Writer, name: str) -> int:
    return min(w.level, w.register_levels.get(name, w.level))


def _from_registers(w: Writer, e: Node, key: Key) -> str:
    tile = w.registers[e["name"]]
    if tile.form == "lanes":
        return tile.parts[key]
    return str(w.memo((e, "vector", key), lambda: _assembled(w, e, key)))


def _assembled(w: Writer, e: Node, key: Key) -> str:
    """A vector of elements that are known one by one."""
    kind = register_type(e.type.dtype)
    part = register_type(e.type.dtype, 1)
    x = "poison"
    for lane in range(LANES):
        x = w.b.value(f"insertelement {kind} {x}, {part} {element(w, e, (*key[:-1], key[-1] * LANES + lane))}, i64 {lane}")
    return x


def _vector(w: Writer, e: Node, key: Key) -> str:
    match e.op:
        case "load":
            other = w.window(e).other
            return loads.load_vector(w, e, key, None if other is None else lambda: vector(w, other, key))
        case "position":
            return _position_vector(w, e, key)
        case "expand":
            return _expanded_vector(w, e, key)
        case "valid":
            return _valid_vector(w, e, key)
        case "when":
            return _branch(w, e, key, vector, register_type(e.type.dtype))
        case "fold":
            return _folded(w, e, key)
        case "scan":
            return _scanned(w, e, key)
        case "reduce":
            return _reduced_vector(w, e, key)
        case "last":
            return _assembled(w, e, key)
    return _pointwise(w, e, [vector(w, o, key) for o in e.operands], LANES)


def _pointwise(w: Writer, e: Node, arguments: list[str], count: int) -> str:
    dtypes = [o.type.dtype for o in e.operands]
    return spelling.spell(loads.elements(w, count), e.op, dtypes, arguments, e.get("dtype"))


def _position_vector(w: Writer, e: Node, key: Key) -> str:
    at = (*key[:-1], key[-1] * LANES)
    x = masks.at_key(as_dim(e.operands[0]), at, len(key) - 1)
    dtype: DType = e["dtype"]
    if not has_lane(x):
        return w.splat(REGISTER[dtype.name], cast(loads.elements(w, 1), i64, dtype, text(w, x)), level=None)
    narrow = lane_index.element_for(x)
    return cast(loads.elements(w), ALL[narrow], dtype, lane_index.values(w, x, narrow))


def _expanded_vector(w: Writer, e: Node, key: Key) -> str:
    axis: int = e["axis"]
    return vector(w, e.operands[0], (*key[:axis], *key[axis + 1 :]))


def _valid_vector(w: Writer, e: Node, key: Key) -> str:
    x, n, pad = e.operands
    count = masks.at_key(as_dim(n), (*key[:-1], key[-1] * LANES), None)
    mask = masks.prefix(w, count, key[-1] * LANES)
    if mask is None:
        return vector(w, x, key)
    kind = register_type(e.type.dtype)
    return w.b.value(f"select {MASK} {mask}, {kind} {vector(w, x, key)}, {kind} {splat_of(w, pad, ())}")


def _branch(w: Writer, e: Node, key: Key, part: Callable[[Writer, Node, Key], str], kind: str) -> str:
    """One vector or element of a uniform branch inside an expression."""
    test = condition(w, as_dim(e.operands[0]))
    if isinstance(test, bool):
        return part(w, e.operands[1 if test else 2], key)
    names = [w.b.fresh(p) for p in ("then", "else", "joined")]
    got = []
    landing = w.b.landing()
    w.b.branch_if(test, names[0], names[1])
    for label, x in zip(names, e.operands[1:]):
        w.b.start(label)
        with w.scope(landing):
            got.append((part(w, x, key), w.b.block))
        w.b.branch(names[2])
    w.b.start(names[2])
    return w.b.value(f"phi {kind} " + ", ".join(f"[ {x}, %{block} ]" for x, block in got))


# --- across lanes --------------------------------------------------------------------------------------


def joiner(w: Writer, monoid: str, dtype: DType) -> lanes.Join:
    """The monoid on registers; 16-bit floats are not rounded on the way."""
    spelled = spelling.TABLE[monoid][dtype.kind]
    return lambda x, y, count: spelled(Elements(w.b, count, w.features), dtype, [x, y])


def finished(w: Writer, dtype: DType, x: str, count: int) -> str:
    """What a reduction gives: 16-bit floats are rounded now."""
    return rounded(loads.elements(w, count), dtype, x) if dtype.is_float and dtype.bits == 16 else x


def _folded(w: Writer, e: Node, key: Key) -> str:
    x = e.operands[0]
    step = e["to"] // LANES
    assert e["to"] % LANES == 0, f"a fold to {e['to']} lanes"
    join = joiner(w, e["monoid"], e.type.dtype)
    parts = [vector(w, x, (*key[:-1], v)) for v in range(key[-1], extents(x.type)[-1] // LANES, step)]
    return finished(w, e.type.dtype, lanes.tree(parts, lambda a, b: join(a, b, LANES)), LANES)


def _scanned(w: Writer, e: Node, key: Key) -> str:
    """Prefixes within the vector, joined with the last of the vector before."""
    return finished(w, e.type.dtype, _prefixes(w, e, key), LANES)


def _prefixes(w: Writer, e: Node, key: Key) -> str:
    dtype, monoid = e.type.dtype, e["monoid"]
    join = joiner(w, monoid, dtype)
    identity = f"splat ({REGISTER[dtype.name]} {constant(dtype, MONOIDS[monoid].identity(dtype))})"
    x = lanes.prefixes(w.b, REGISTER[dtype.name], vector(w, e.operands[0], key), identity, join)
    if key[-1] == 0:
        return x
    before = str(w.memo((e, "prefixes", (*key[:-1], key[-1] - 1)), lambda: _prefixes(w, e, (*key[:-1], key[-1] - 1))))
    return join(w.splat(REGISTER[dtype.name], _lane(w, dtype, before, LANES - 1)), x, LANES)


def _lane(w: Writer, dtype: DType, x: str, lane: int, level: int | None = None) -> str:
    return w.pure(w.level if level is None else level, f"extractelement {register_type(dtype)} {x}, i64 {lane}")


def _reduced_vector(w: Writer, e: Node, key: Key) -> str:
    """Along the last axis one element after the other; along rows lane by lane."""
    x, axis = e.operands[0], e["axis"]
    if axis == x.type.rank - 1:
        return _summed_rows(w, e, key) if _sums_together(e) else _assembled(w, e, key)
    join = joiner(w, e["monoid"], e.type.dtype)
    parts = [vector(w, x, (*key[:axis], r, *key[axis:])) for r in range(extents(x.type)[axis])]
    return finished(w, e.type.dtype, lanes.tree(parts, lambda a, b: join(a, b, LANES)), LANES)


def _sums_together(e: Node) -> bool:
    return extents(e.operands[0].type)[-1] % LANES == 0


def _summed_rows(w: Writer, e: Node, key: Key) -> str:
    """LANES rows at once, by one tree of shuffles."""
    dtype = e.type.dtype
    join = joiner(w, e["monoid"], dtype)
    element_type = REGISTER[dtype.name]
    rows = [_joined_row(w, e, (*key[:-1], key[-1] * LANES + r)) for r in range(LANES)]
    quads = [lanes.sum_group(w.b, element_type, rows[q : q + 4], join) for q in range(0, LANES, 4)]
    return finished(w, dtype, lanes.sum_groups(w.b, element_type, quads, join), LANES)


def _joined_row(w: Writer, e: Node, row: Key) -> str:
    """The vectors of a row joined lane by lane."""
    x = e.operands[0]
    join = joiner(w, e["monoid"], e.type.dtype)
    parts = [vector(w, x, (*row, v)) for v in range(extents(x.type)[-1] // LANES)]
    return lanes.tree(parts, lambda a, b: join(a, b, LANES))


# --- elements ------------------------------------------------------------------------------------------


def element(w: Writer, e: Node, at: Key) -> str:
    """One element of `e` (or of what `e` broadcasts to)."""
    at = operand_key(e, at)
    if e.op == "full":
        return constant(e["dtype"], e["value"].value)
    if e.op == "ref":
        return _register_element(w, e, at)
    return str(w.memo((e, "element", at, w.stamp(e)), lambda: _element(w, e, at)))


def _register_element(w: Writer, e: Node, at: Key) -> str:
    tile = w.registers[e["name"]]
    if tile.form == "scalars":
        return tile.parts[at]
    part = tile.parts[(*at[:-1], at[-1] // LANES)]
    return _lane(w, e.type.dtype, part, at[-1] % LANES, _level_of_register(w, e["name"]))


def _element(w: Writer, e: Node, at: Key) -> str:
    match e.op:
        case "load":
            other = w.window(e).other
            return loads.load_element(w, e, at, None if other is None else lambda: element(w, other, at))
        case "position":
            return cast(loads.elements(w, 1), i64, e["dtype"], text(w, masks.at_key(as_dim(e.operands[0]), at, None)))
        case "expand":
            axis: int = e["axis"]
            return element(w, e.operands[0], (*at[:axis], *at[axis + 1 :]))
        case "valid":
            return _valid_element(w, e, at)
        case "when":
            return _branch(w, e, at, element, register_type(e.type.dtype, 1))
        case "fold" | "scan":
            return _lane(w, e.type.dtype, vector(w, e, (*at[:-1], at[-1] // LANES)), at[-1] % LANES)
        case "reduce":
            return _reduced_element(w, e, at)
        case "last":
            x = e.operands[0]
            return element(w, x, (*at, extents(x.type)[-1] - 1))
    return _pointwise(w, e, [element(w, o, at) for o in e.operands], 1)


def _valid_element(w: Writer, e: Node, at: Key) -> str:
    x, n, pad = e.operands
    test = condition(w, index.less(at[-1], masks.at_key(as_dim(n), at, None)))
    if isinstance(test, bool):
        return element(w, x, at) if test else element(w, pad, ())
    kind = register_type(e.type.dtype, 1)
    return w.b.value(f"select i1 {test}, {kind} {element(w, x, at)}, {kind} {element(w, pad, ())}")


def _reduced_element(w: Writer, e: Node, at: Key) -> str:
    x, axis, dtype = e.operands[0], e["axis"], e.type.dtype
    shape = extents(x.type)
    join = joiner(w, e["monoid"], dtype)
    if axis == len(shape) - 1 and shape[-1] % LANES == 0:
        found = lanes.across(w.b, REGISTER[dtype.name], _joined_row(w, e, at), join)
    else:
        parts = [element(w, x, (*at[:axis], r, *at[axis:])) for r in range(shape[axis])]
        found = lanes.tree(parts, lambda a, b: join(a, b, 1))
    return finished(w, dtype, found, 1)


# --- whole tiles ---------------------------------------------------------------------------------------


def form_of(w: Writer, e: Node) -> str:
    """Whether `e` is better held as vectors or element by element."""
    shape = extents(e.type)
    if not shape or shape[-1] % LANES:
        return "scalars"
    return "scalars" if _comes_in_elements(w, e) else "lanes"


def _comes_in_elements(w: Writer, e: Node) -> bool:
    """Whether an operand of the same last axis is known one element at a time."""
    stack, seen = [e], {e}
    while stack:
        n = stack.pop()
        if n.op == "ref":
            found = w.registers[n["name"]].form == "scalars"
        elif n.op == "reduce":
            found = n["axis"] == n.operands[0].type.rank - 1 and not _sums_together(n)
        else:
            found = n.op == "last"
        if found:
            return True
        if n.op not in ("ref", "reduce", "load", "position", "full", "fold", "scan", "expand", "dot", "when"):
            inner = [o for o in n.operands if o.type is not INDEX and not uniform(o) and o not in seen]
            seen.update(inner)
            stack += inner
    return False


def keys_of(shape: tuple[int, ...], form: str) -> list[Key]:
    """The keys of a tile in streaming order."""
    if not shape:
        return [()]
    keys: list[Key] = [()]
    for d in (*shape[:-1], shape[-1] if form == "scalars" else shape[-1] // LANES):
        keys = [(*k, p) for k in keys for p in range(d)]
    return keys


def read(w: Writer, e: Node, key: Key, form: str) -> str:
    """The part of `e` at a key of that form."""
    return vector(w, e, key) if form == "lanes" else element(w, e, key)


def part_type(t: TileType, form: str) -> str:
    return register_type(t.dtype, LANES if form == "lanes" else 1)
