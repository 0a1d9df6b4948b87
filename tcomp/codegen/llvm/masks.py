"""Which elements of a window exist: vectors of i1 for lanes, an i1 for one element; None where all do.

A prefix of the lanes comes from its count as the bits of an integer. Bounds of windows with `else` are tested where the index
expressions' own bounds do not prove them.
"""

from __future__ import annotations

from tcomp.codegen.llvm import lane_index
from tcomp.codegen.llvm.address import LANE, condition, has_lane, level_of, value
from tcomp.codegen.llvm.memory import MASK
from tcomp.codegen.llvm.writer import Key, Writer
from tcomp.ir import index
from tcomp.ir.machine import LANES
from tcomp.ir.node import Dim, Node, walk
from tcomp.ir.tile import Window, axis_number, is_axis

Mask = str | None
FULL = (1 << LANES) - 1


def constant_mask(bits: int) -> Mask:
    if bits == FULL:
        return None
    return f"<{', '.join(f'i1 {bits >> k & 1}' for k in range(LANES))}>" if bits else "zeroinitializer"


def both(w: Writer, a: Mask, b: Mask) -> Mask:
    if a is None or b is None:
        return b if a is None else a
    return w.pure(w.level, f"and {MASK} {a}, {b}")


def prefix(w: Writer, count: Dim, first: int) -> Mask:
    """Lanes `first + lane < count`."""
    left: Dim | None = w.fact(("left", count, first), lambda: (_left(count, first),))[0]
    if left is None:
        return None
    known = value(w, left)
    if isinstance(known, int):
        return constant_mask((1 << known) - 1)
    level = level_of(w, left)
    narrow = w.pure(level, f"trunc i64 {known} to i32")
    bits = w.pure(level, f"add i32 {w.pure(level, f'shl i32 1, {narrow}')}, -1")
    whole = w.pure(level, f"trunc i32 {bits} to i{LANES}")
    return w.pure(level, f"bitcast i{LANES} {whole} to {MASK}")


def _left(count: Dim, first: int) -> Dim | None:
    """How many lanes from `first` on are below `count`, 0 to LANES; None where surely all are."""
    left = index.sub(count, first)
    low = index.bounds(left)[0]
    if low is not None and low >= LANES:
        return None
    return index.minimum(index.maximum(left, 0), LANES)


def uniform(w: Writer, test: bool | str) -> Mask:
    """All lanes or none."""
    if isinstance(test, bool):
        return None if test else "zeroinitializer"
    return w.pure(w.level, f"select i1 {test}, {MASK} splat (i1 true), {MASK} zeroinitializer")


def existing(w: Writer, win: Window, key: Key) -> Mask:
    """The lanes of a vector that `valid` says exist."""
    mask: Mask = None
    for k, count in enumerate(win.valid):
        if count is None:
            continue
        if k == win.rank - 1:
            mask = both(w, mask, prefix(w, count, key[-1] * LANES))
        else:
            mask = both(w, mask, uniform(w, condition(w, index.less(key[k], count))))
    return mask


def exists(w: Writer, win: Window, at: Key) -> bool | str:
    """Whether `valid` says that one element exists."""
    tests = [condition(w, index.less(p, n)) for p, n in zip(at, win.valid) if n is not None]
    return conjunction(w, tests)


def conjunction(w: Writer, tests: list[bool | str]) -> bool | str:
    open_tests = [t for t in tests if not isinstance(t, bool)]
    if any(t is False for t in tests):
        return False
    if not open_tests:
        return True
    result = open_tests[0]
    for t in open_tests[1:]:
        result = w.pure(w.level, f"and i1 {result}, {t}")
    return result


def at_key(x: Dim, at: Key, lanes: int | None) -> Dim:
    """`x` over tile axes at a position; axis `lanes` runs over LANE from there."""
    if isinstance(x, int):
        return x
    values: dict[Node, Dim] = {}
    for n in walk([x]):
        if n.op == "sym" and is_axis(n):
            k = axis_number(n)
            values[n] = index.add(at[k], LANE) if k == lanes else at[k]
    return index.substitute(x, values)


def _open_bounds(win: Window, at: Key, lanes: int | None) -> list[tuple[Dim, Dim]]:
    """Pairs a < b that must hold for the position to be inside the buffer, as far as they are not certain."""
    pairs: list[tuple[Dim, Dim]] = []
    for p, n in zip(win.positions, win.buffer.shape):
        here = at_key(p, at, lanes)
        for a, b in ((-1, here), (here, n)):
            if index.less(a, b) != 1:
                pairs.append((a, b))
    return pairs


def inside(w: Writer, win: Window, key: Key) -> Mask:
    """The lanes whose positions are inside the buffer."""
    last = win.rank - 1
    there, mask = existing(w, win, key), None
    for a, b in _open_bounds(win, (*key[:-1], key[-1] * LANES), last):
        if has_lane(a) or has_lane(b):
            element = lane_index.element_for(a, b)
            x, y = (lane_index.values(w, d, element, there) for d in (a, b))
            mask = both(w, mask, w.b.value(f"icmp slt <{LANES} x {element}> {x}, {y}"))
        else:
            mask = both(w, mask, uniform(w, condition(w, index.less(a, b))))
    return mask


def is_inside(w: Writer, win: Window, at: Key) -> bool | str:
    """Whether one element's position is inside the buffer."""
    return conjunction(w, [condition(w, index.less(a, b)) for a, b in _open_bounds(win, at, None)])
