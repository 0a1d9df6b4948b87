"""Statements of REG, one by one: named values, memory, stores, loops, branches, checks, calls of routines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from tcomp.codegen.llvm import atomic, loads, loops, routines, tiles, values
from tcomp.codegen.llvm.address import condition, text, value
from tcomp.codegen.llvm.writer import Key, Tile, Writer
from tcomp.ir import index, layout
from tcomp.ir.machine import LANES
from tcomp.ir.node import Node, walk
from tcomp.ir.stmts import Alloc, Call, Check, For, If, Let, Stmt, Store, buffers_written
from tcomp.ir.types import Buffer, TileType

PAGE = 4096


def block(w: Writer, body: tuple[Stmt, ...]) -> None:
    """Write statements in order."""
    for s in body:
        match s:
            case Let():
                w.name(s.name, tiles.evaluate(w, s.value))
            case Alloc():
                _alloc(w, s.buffer)
            case Store():
                _store(w, s)
            case For():
                _for(w, s)
            case If():
                _if(w, s)
            case Check():
                _check(w, s)
            case Call():
                routines.call(w, s)
                for n in s.outputs:
                    w.written(n["buffer"].name)
            case _:
                assert_never(s)


# --- memory --------------------------------------------------------------------------------------------


def _alloc(w: Writer, buffer: Buffer) -> None:
    size = layout.size(buffer)
    assert isinstance(size, int), f"{buffer.name}: an own buffer without static capacity"
    if buffer.space == "stack":
        address = w.b.alloca(max(size, 1))
        w.pointers[buffer.name] = lambda: address
        return
    offset = w.scratch
    align = PAGE if size >= PAGE else 64
    offset = -(-offset // align) * align
    w.scratch = offset + size
    w.pointers[buffer.name] = lambda: w.pure(0, f"getelementptr i8, ptr %scratch, i64 {offset}")


def _store(w: Writer, s: Store) -> None:
    win = w.window(s.window)
    name = win.buffer.name
    target, source = s.window, s.value
    if s.combine is not None:
        atomic.store(w, s)
        w.written(name)
        return
    if s.value.op == "load" and s.value.type.dtype == win.buffer.dtype:
        source = loads.as_bits(w, s.value)
        target = loads.as_bits(w, s.window) if source is not s.value else s.window
    t = TileType(source.type.dtype, win.extents)
    shape = values.extents(t)
    if shape and (source.op in ("dot", "when") or _reads_elsewhere(source, target)):
        tile = tiles.evaluate(w, source, t)
        _write(w, target, tile.form, tile.parts.items())
        return
    form = "scalars" if not shape or shape[-1] % LANES else "lanes"
    _write(w, target, form, ((k, values.read(w, source, k, form)) for k in values.keys_of(shape, form)))


def _write(w: Writer, target: Node, form: str, parts: Iterable[tuple[Key, str]]) -> None:
    """Store part by part; what was stored is then what the same window holds."""
    stored = []
    for key, x in parts:
        if form == "scalars":
            loads.store_element(w, target, key, x)
        elif loads.store_vector(w, target, key, x) is None:
            stored.append((key, x))
    w.written(target["buffer"].name)
    for key, x in stored:
        w.remember((target, key, w.stamp(target)), x)


def _reads_elsewhere(value: Node, target: Node) -> bool:
    """Whether a value reads the buffer it is stored to other than where it is stored: then all of it is read first."""
    buffer = target["buffer"].name
    return any(n.op in ("load", "read") and n["buffer"].name == buffer and n is not target for n in walk([value]))


# --- control -------------------------------------------------------------------------------------------


def _for(w: Writer, s: For) -> None:
    trips = index.sub(s.hi, s.lo)
    low, high = index.bounds(trips)
    initial = [tiles.evaluate(w, c.init, c.type) for c in s.carry]
    if high is not None and high <= 0:
        for c, tile in zip(s.carry, initial):
            w.name(c.result, tile)
        return
    if isinstance(trips, int) and trips <= s.step:
        _once(w, s, initial)
        return
    for name in buffers_written(s.body):
        w.written(name)
    kinds = [(values.part_type(t.type, t.form), x) for t in initial for x in t.parts.values()]

    def body(counter: str, carried: list[str]) -> list[str]:
        w.symbols[s.var] = (counter, w.level)
        for c, tile in zip(s.carry, _unflatten(initial, carried)):
            w.name(c.name, tile)
        block(w, s.body)
        following = [tiles.evaluate(w, y, t.type, t.form) for y, t in zip(s.yields, initial)]
        return [x for t, old in zip(following, initial) for x in (t.parts[k] for k in old.parts)]

    lo, hi = text(w, s.lo), text(w, s.hi)
    result = loops.counted(w, lo, hi, s.step, kinds, body, certain=low is not None and low > 0)
    for c, tile in zip(s.carry, _unflatten(initial, result)):
        w.name(c.result, tile)


def _unflatten(shapes: list[Tile], flat: list[str]) -> list[Tile]:
    """Tiles of the same keys with other parts."""
    rest = iter(flat)
    return [Tile(t.type, t.form, {k: next(rest) for k in t.parts}) for t in shapes]


def _once(w: Writer, s: For, initial: list[Tile]) -> None:
    """A loop that runs exactly once: no loop."""
    w.symbols[s.var] = (value(w, s.lo), w.level)
    for c, tile in zip(s.carry, initial):
        w.name(c.name, tile)
    block(w, s.body)
    results = [tiles.evaluate(w, y, c.type) for c, y in zip(s.carry, s.yields)]
    for c, tile in zip(s.carry, results):
        w.name(c.result, tile)


def _if(w: Writer, s: If) -> None:
    test = condition(w, s.cond)
    if isinstance(test, bool):
        block(w, s.body if test else s.orelse)
        return
    then, other, after = (w.b.fresh(p) for p in ("then", "else", "after"))
    landing = w.b.landing()
    w.b.branch_if(test, then, other if s.orelse else after)
    for label, body in ((then, s.body), (other, s.orelse)):
        if not body:
            continue
        w.b.start(label)
        with w.scope(landing):
            block(w, body)
        w.b.branch(after)
    w.b.start(after)


def _check(w: Writer, s: Check) -> None:
    """The block ends with the status word where the condition fails."""
    test = condition(w, s.cond)
    if test is True:
        return
    ok, failed = w.b.fresh("ok"), w.b.fresh("failed")
    w.b.branch_if("false" if test is False else str(test), ok, failed)
    w.b.start(failed)
    w.b.effect(f"ret i64 {s.code << 32 | s.node}")
    w.b.start(ok)
