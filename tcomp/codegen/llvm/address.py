"""Index expressions and addresses as SSA values.

A window's element offset is split into a base, a stride for each tile axis and a *bent* part (an axis under `//`, `%`, `min` or
a gather). Constant parts of an address are one displacement; the rest is one `getelementptr` for each level that its symbols
come from, so that what a loop does not change stays outside it. Pointers may be formed outside a buffer (masked or untaken
accesses), hence no `inbounds`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tcomp.codegen.llvm.writer import Index, Key, Writer
from tcomp.ir import index, layout
from tcomp.ir.index import as_dim, as_node
from tcomp.ir.machine import LANES
from tcomp.ir.node import Dim, Node, walk
from tcomp.ir.tile import Window, axis_number, is_axis
from tcomp.ir.types import Buffer

LANE = index.symbol("lane of a vector", 0, LANES - 1)  # stands for a lane in expressions over the last tile axis


# --- scalar index expressions --------------------------------------------------------------------------


def value(w: Writer, x: Dim) -> Index:
    """The value of an index expression, computed at the outermost level possible."""
    return _leveled(w, x)[0]


def text(w: Writer, x: Dim) -> str:
    """The value as an i64 operand."""
    return str(value(w, x))


def level_of(w: Writer, x: Dim) -> int:
    """The level that the value is known from."""
    return _leveled(w, x)[1]


def _leveled(w: Writer, x: Dim) -> tuple[Index, int]:
    if isinstance(x, int):
        return x, 0
    if x.op == "sym":
        return w.symbols[x]
    # An index as it was checked and as it is used (with bounds) are two nodes for one element.
    key = ("index", (x["buffer"], x.operands) if x.op == "read" else x, w.stamp(x))
    found: tuple[Index, int] | None = w.find(key)
    if found is None:
        found = _sum(w, x) if x.op == "affine" else _read(w, x) if x.op == "read" else _atom(w, x)
        w.remember(key, found, found[1])
    return found


def _sum(w: Writer, x: Node) -> tuple[Index, int]:
    """Terms of outer levels first: their partial sums stay outside."""
    known = x["constant"]
    parts: list[tuple[int, str, int]] = []
    for atom, k in zip(x.operands, x["coefficients"]):
        v, level = _leveled(w, atom)
        if isinstance(v, int):
            known += k * v
        else:
            parts.append((level, v, k))
    total, at = "", 0
    for level, v, k in sorted(parts, key=lambda p: p[0]):
        scaled = v if k == 1 else w.pure(level, f"mul i64 {v}, {k}")
        at = max(at, level)
        total = scaled if not total else w.pure(at, f"add i64 {total}, {scaled}")
    if not total:
        return known, max((_leveled(w, o)[1] for o in x.operands), default=0)
    return (total if known == 0 else w.pure(at, f"add i64 {total}, {known}")), at


def _atom(w: Writer, x: Node) -> tuple[Index, int]:
    got = [_leveled(w, as_dim(o)) for o in x.operands]
    level = max(at for _, at in got)
    values = [v for v, _ in got]
    if all(isinstance(v, int) for v in values):
        folded = index.rebuild(x, [v for v in values if isinstance(v, int)])
        return index.constant(folded) or 0, level
    result = values[0]
    for i, v in enumerate(values[1:], 1):
        result = _binary(w, x, result, v, level) if i == 1 else w.pure(level, f"mul i64 {result}, {v}")
    return result, level


def _binary(w: Writer, x: Node, a: Index, b: Index, level: int) -> str:
    match x.op:
        case "mul":
            return w.pure(level, f"mul i64 {a}, {b}")
        case "min" | "max":
            name = f"@llvm.s{x.op}.i64"
            w.b.module.declare(f"i64 {name}(i64, i64)")
            return w.pure(level, f"call i64 {name}(i64 {a}, i64 {b})")
        case "eq" | "lt":
            test = w.pure(level, f"icmp {'eq' if x.op == 'eq' else 'slt'} i64 {a}, {b}")
            return w.pure(level, f"zext i1 {test} to i64")
    return _division(w, x, a, b, level)


def _division(w: Writer, x: Node, a: Index, b: Index, level: int) -> str:
    """Rounded down. A symbolic divisor counts as 1 where it is 0 (code that never matters may run ahead of its loop)."""
    if isinstance(b, int) and b & (b - 1) == 0:
        if x.op == "floordiv":
            return w.pure(level, f"ashr i64 {a}, {b.bit_length() - 1}")
        return w.pure(level, f"and i64 {a}, {b - 1}")
    if isinstance(b, str):
        w.b.module.declare("i64 @llvm.smax.i64(i64, i64)")
        b = w.pure(level, f"call i64 @llvm.smax.i64(i64 {b}, i64 1)")
    low = index.bounds(as_dim(x.operands[0]))[0]
    if low is not None and low >= 0:
        return w.pure(level, f"{'udiv' if x.op == 'floordiv' else 'urem'} i64 {a}, {b}")
    rest = w.pure(level, f"srem i64 {a}, {b}")
    below = w.pure(level, f"icmp slt i64 {rest}, 0")
    if x.op == "mod":
        moved = w.pure(level, f"add i64 {rest}, {b}")
        return w.pure(level, f"select i1 {below}, i64 {moved}, i64 {rest}")
    quotient = w.pure(level, f"sdiv i64 {a}, {b}")
    borrow = w.pure(level, f"sext i1 {below} to i64")
    return w.pure(level, f"add i64 {quotient}, {borrow}")


def _read(w: Writer, x: Node) -> tuple[Index, int]:
    """An element of an integer buffer, read where it is first needed: what guards it must have run."""
    buffer: Buffer = x["buffer"]
    pointer = address(w, buffer, layout.offset(buffer, tuple(as_dim(o) for o in x.operands)))
    loaded = w.b.value(f"load i{buffer.dtype.bits}, ptr {pointer}, align {buffer.dtype.bytes}")
    if buffer.dtype.bits < 64:
        loaded = w.b.value(f"{extension(buffer)} i{buffer.dtype.bits} {loaded} to i64")
    return loaded, w.level


def extension(buffer: Buffer) -> str:
    return "sext" if buffer.dtype.kind == "int" else "zext"


def condition(w: Writer, x: Dim) -> bool | str:
    """Whether `x` is not 0: known, or an i1."""
    if isinstance(x, Node) and x.op in ("eq", "lt"):
        (a, la), (b, lb) = (_leveled(w, as_dim(o)) for o in x.operands)
        if not (isinstance(a, int) and isinstance(b, int)):
            return w.pure(max(la, lb), f"icmp {'eq' if x.op == 'eq' else 'slt'} i64 {a}, {b}")
    v, level = _leveled(w, x)
    return bool(v) if isinstance(v, int) else w.pure(level, f"icmp ne i64 {v}, 0")


def has_lane(x: Dim) -> bool:
    return isinstance(x, Node) and any(n is LANE for n in walk([x]))


# --- windows -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Access:
    """Where the elements of a window are, counted in elements from the buffer's start.

    offset: over the tile axes. base: its part without any. strides: of each tile axis, where it occurs linearly. bent: the axes
    that also occur in other ways. axes: the symbols that stand for them.
    """

    buffer: Buffer
    offset: Dim
    base: Dim
    strides: tuple[Dim, ...]
    bent: frozenset[int]
    axes: dict[int, Node]


def access(w: Writer, load: Node) -> Access:
    """The access of a `load` node."""
    found: Access = w.fact(("access", load), lambda: _analyse(w.window(load)))
    return found


def _analyse(win: Window) -> Access:
    offset = _joined(layout.offset(win.buffer, win.positions))
    axes = {axis_number(n): n for n in walk([as_node(offset)]) if n.op == "sym" and is_axis(n)}
    base, strides, bent = split(offset, {n: k for k, n in axes.items()}, win.rank)
    return Access(win.buffer, offset, base, strides, bent, axes)


def split(offset: Dim, axes: dict[Node, int], rank: int) -> tuple[Dim, tuple[Dim, ...], frozenset[int]]:
    """(what holds no axis, the linear stride of each axis, axes that occur in other ways)."""
    parts, constant = index.terms(offset)
    base: Dim = constant
    strides: list[Dim] = [0] * rank
    bent: set[int] = set()
    for atom, k in parts.items():
        inside = [axes[n] for n in walk([atom]) if n in axes]
        if not inside:
            base = index.add(base, index.mul(atom, k))
        elif atom in axes:
            strides[axes[atom]] = index.add(strides[axes[atom]], k)
        elif (stride := _product_stride(atom, axes)) is not None:
            strides[inside[0]] = index.add(strides[inside[0]], index.mul(stride, k))
        else:
            bent.update(inside)
    return base, tuple(strides), frozenset(bent)


def _product_stride(atom: Node, axes: dict[Node, int]) -> Dim | None:
    """The factor of an axis in axis * (what holds none), else None."""
    if atom.op != "mul":
        return None
    others = [f for f in atom.operands if f not in axes]
    if len(others) != len(atom.operands) - 1 or any(n in axes for n in walk(others)):
        return None
    return index.product(others)


def _joined(offset: Dim) -> Dim:
    """`offset` with c * (x // c) + x % c read as x: the inverse of what merging two axes does."""
    parts, constant = index.terms(offset)
    for atom, k in list(parts.items()):
        if atom.op != "mod" or parts.get(atom) != k:
            continue
        x, c = (as_dim(o) for o in atom.operands)
        quotient = index.floordiv(x, c)
        whole, rest = index.terms(index.mul(quotient, index.mul(c, k)))
        if whole and all(parts.get(a) == v for a, v in whole.items()):
            cleaned = {a: v for a, v in parts.items() if a is not atom and a not in whole}
            return _joined(index.add(index.affine(cleaned, constant - rest), index.mul(x, k)))
    return offset


def address(w: Writer, buffer: Buffer, base: Dim, steps: tuple[tuple[Dim, int], ...] = ()) -> str:
    """The address of element `base + sum(stride * count)` of a buffer."""
    size = buffer.dtype.bytes
    moving, known = w.fact(("parts", base), lambda: _parts(base))
    pointer, level = _based(w, buffer, moving)  # the displacement stays beside its use: it costs nothing there
    constant = known * size
    for stride, count in steps:
        if isinstance(stride, int):
            constant += stride * count * size
        elif count:
            step, at = _leveled(w, index.mul(stride, count * size))
            level = max(level, at)
            pointer = w.pure(level, f"getelementptr i8, ptr {pointer}, i64 {step}")
    return pointer if constant == 0 else w.pure(w.level, f"getelementptr i8, ptr {pointer}, i64 {constant}")


def _parts(x: Dim) -> tuple[Dim, int]:
    """The part of `x` that varies, and its constant."""
    parts, known = index.terms(x)
    return index.affine(parts, 0), known


def _based(w: Writer, buffer: Buffer, base: Dim) -> tuple[str, int]:
    """The address at a base without constant part, and its level: one step for each level."""
    key = ("base", buffer, base, w.stamp(as_node(base)))
    found: tuple[str, int] | None = w.find(key)
    if found is not None:
        return found
    by_level: dict[int, Dim] = {}
    for atom, k in index.terms(base)[0].items():
        level = _leveled(w, atom)[1]
        by_level[level] = index.add(by_level.get(level, 0), index.mul(atom, k * buffer.dtype.bytes))
    pointer, at = w.pointer(buffer.name), 0
    for level in sorted(by_level):
        step = value(w, by_level[level])
        at = max(at, level)
        if step != 0:
            pointer = w.pure(at, f"getelementptr i8, ptr {pointer}, i64 {step}")
    w.remember(key, (pointer, at), at)
    return pointer, at


@dataclass(frozen=True, slots=True)
class Lanes:
    """One vector of a window: the address of lane 0 and the stride between lanes in elements, or bent: `offset` over LANE."""

    pointer: str
    stride: Dim
    offset: Dim | None = None


def lanes_of(w: Writer, a: Access, key: Key) -> Lanes:
    """Vector `key[-1]` of the rows `key[:-1]`."""
    last = len(key) - 1
    first = (*key[:-1], key[-1] * LANES)
    if not a.bent:
        return Lanes(address(w, a.buffer, a.base, tuple(zip(a.strides, first))), a.strides[last])
    moved = _at(a, first, last)
    base, strides, bent = split(moved, {LANE: 0}, 1)
    if bent:
        return Lanes(w.pointer(a.buffer.name), 1, moved)
    return Lanes(address(w, a.buffer, base), strides[0])


def _at(a: Access, at: Key, lanes: int | None) -> Dim:
    """The offset at a position; along axis `lanes` over LANE from there."""
    values: dict[Node, Dim] = {}
    for k, n in a.axes.items():
        values[n] = index.add(at[k], LANE) if k == lanes else at[k]
    return _joined(index.substitute(a.offset, values))


def element_offset(a: Access, at: Key) -> Dim:
    """The offset of one element of a window, in elements."""
    if a.bent:
        return _at(a, at, None)
    total = a.base
    for stride, k in zip(a.strides, at):
        total = index.add(total, index.mul(stride, k))
    return total


def element_address(w: Writer, a: Access, at: Key) -> str:
    """The address of one element of a window."""
    if not a.bent:
        return address(w, a.buffer, a.base, tuple(zip(a.strides, at)))
    return address(w, a.buffer, _at(a, at, None))


def row_lanes(w: Writer, a: Access, at: Key, axis: int) -> Lanes:
    """LANES elements along another tile axis than the last, from position `at`."""
    if axis not in a.bent:
        return Lanes(element_address(w, a, at), a.strides[axis])
    moved = _at(a, at, axis)
    base, strides, bent = split(moved, {LANE: 0}, 1)
    return Lanes(w.pointer(a.buffer.name), 1, moved) if bent else Lanes(address(w, a.buffer, base), strides[0])
