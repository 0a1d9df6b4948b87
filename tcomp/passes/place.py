"""place: TILE -> PLACED. Tile values become buffers in the space that each names; row statements share row loops.

* A `Let` of space `stack` or `scratch` is stored into a buffer of its name. `inline` is substituted. `in:x` is written over
  the buffer of x where x is dead after it and is read at the element written only; else it takes a buffer of its own there.
* A carried tile lives in one buffer: its init is stored before the loop, its yields at the end of the body. It is updated in
  place iff its yield reads it at the element written only, else through a second buffer and a copy back. Yields are ordered
  so that none reads a carry already overwritten; a circle is broken by a second buffer too.
* Scalars and register tiles (space `reg`) stay values.

Buffers are allocated at the top of the phase, as wide as the extents' upper bounds, the last axis rounded up to the register
tile. Where the number of rows is known only at run time a buffer on the stack is filled with zeros first: rows past the extent
are computed on when rows are rounded up, and must not be rubbish (subnormal rubbish is slow).
"""

from __future__ import annotations

from dataclasses import replace

from tcomp.errors import Error
from tcomp.ir import index
from tcomp.ir import tile as t
from tcomp.ir.machine import LANES
from tcomp.ir.module import Module
from tcomp.ir.node import Dim, Node
from tcomp.ir.stmts import Alloc, By, Call, Carry, For, Grid, If, Kernel, Let, Stmt, Store, deep, expressions
from tcomp.ir.types import Buffer, TileType
from tcomp.passes.names import Names
from tcomp.passes.rows import ROWS, share_rows
from tcomp.passes.tiles import buffers_read, has, index_buffers, names_read, swap

MOVED = ("reduce", "expand", "scan", "last", "fold")  # their operand is not read at the element they give


def place(module: Module) -> Module:
    """The module with all tile values in buffers. Raises TC0401 unless it is at stage TILE, TC0302 for what has no place."""
    module.require("tile", "`place`")
    return replace(module, stage="placed", kernels=tuple(map(place_kernel, module.kernels)))


def place_kernel(kernel: Kernel) -> Kernel:
    """The kernel with its tile values in buffers."""
    names = Names(kernel)
    return replace(kernel, phases=tuple(_phase(g, names) for g in kernel.phases))


def _phase(grid: Grid, names: Names) -> Grid:
    placer = _Placer(names)
    body = placer.block(grid.body, ())
    return replace(grid, body=share_rows((*map(Alloc, placer.buffers), *placer.fills, *body), names))


class _Placer:
    """Places one phase. env: what stands for each placed or inlined name."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.env: dict[str, Node] = {}
        self.buffers: list[Buffer] = []
        self.fills: list[Stmt] = []

    def put(self, e: Node) -> Node:
        """`e` with placed names read from their buffers."""
        if not self.env:
            return e
        return swap(e, {n: self.env[n["name"]] for n in t.nodes(e) if n.op == "ref" and n["name"] in self.env})

    def block(self, body: tuple[Stmt, ...], yields: tuple[Node, ...]) -> list[Stmt]:
        """The statements of one body; `yields`: what the loop around it reads at its end."""
        out: list[Stmt] = []
        here: set[str] = set()
        for at, st in enumerate(body):
            match st:
                case Let():
                    here.add(st.name)
                    self._let(st, here, (body[at + 1 :], yields), out)
                case For():
                    here.update(c.result for c in st.carry)
                    self._for(st, out)
                case If():
                    out.append(replace(st, body=tuple(self.block(st.body, ())), orelse=tuple(self.block(st.orelse, ()))))
                case Store():
                    out.append(replace(st, window=self.put(st.window), value=self.put(st.value)))
                case Call():
                    outputs, inputs = tuple(map(self.put, st.outputs)), tuple(map(self.put, st.inputs))
                    out.append(replace(st, outputs=outputs, inputs=inputs))
                case _:
                    out.append(st)
        return out

    def _let(self, st: Let, here: set[str], rest: tuple[tuple[Stmt, ...], tuple[Node, ...]], out: list[Stmt]) -> None:
        value = self.put(st.value)
        if st.space == "inline":
            self.env[st.name] = value
            return
        if st.space == "reg" or not value.type.shape:
            out.append(Let(st.name, value))
            return
        window = None
        space = st.space
        if space.startswith("in:"):
            over = self._placed(space[3:], st.name)
            window = self._over(space[3:], over, value) if space[3:] in here and not _alive(space[3:], rest) else None
            space = over["buffer"].space
        if window is None:
            window = t.load(*self._buffer(st.name, value.type, space, st.by))
        self.env[st.name] = window
        out.append(_store(window, value, st.by))

    def _placed(self, over: str, name: str) -> Node:
        """The window of the tile that another is to be written over."""
        window = self.env.get(over)
        if window is None or window.op != "load" or window["buffer"] not in self.buffers:
            raise Error("TC0302", f"{name} in:{over}", "the name of an earlier tile in space stack or scratch")
        return window

    def _over(self, over: str, window: Node, value: Node) -> Node | None:
        """The window of x for a value to be written over it, or None where that would read what is overwritten."""
        fits = window["buffer"].dtype == value.type.dtype and window.type.shape == value.type.shape
        aliases = (n for k, n in self.env.items() if k != over and n.op != "load" and window["buffer"].name in buffers_read(n))
        return window if fits and not reads_elsewhere(value, window) and not any(aliases) else None

    def _buffer(self, name: str, type: TileType, space: str, by: By | None) -> tuple[Buffer, tuple[Dim, ...], tuple[Dim, ...]]:
        """A new buffer for a tile of this type: it, and the positions and extents of the tile in it."""
        if type.rank > 2:
            raise Error("TC0302", f"the tile {name} of type {type}", "tiles of at most two axes")
        unit = by.tile[-1] if by is not None and by.tile else LANES
        shape = [_upper(name, d) for d in type.shape]
        shape[-1] = -(-shape[-1] // unit) * unit
        buffer = Buffer(name, type.dtype, tuple(shape), space)
        self.buffers.append(buffer)
        if space == "stack" and (type.rank == 2 or by is None) and isinstance(type.shape[0], Node):
            zero = t.full(0.0 if type.dtype.is_float else 0, type.dtype)
            self.fills.append(Store(t.whole(buffer), zero, By((1, LANES * 4) if type.rank == 2 else (LANES,))))
        return buffer, tuple(t.axis(k, d) for k, d in enumerate(type.shape)), type.shape

    def _for(self, st: For, out: list[Stmt]) -> None:
        """A loop: its tiles carried in buffers, the rest in registers."""
        tiles = [c for c in st.carry if c.space != "reg" and c.type.shape]
        kept = [c for c in st.carry if c not in tiles]
        inits = [self.put(c.init) for c in st.carry]
        for c, init in zip(st.carry, inits):
            if c in tiles:
                window = t.load(*self._buffer(c.name, c.type, c.space, c.by))
                self.env[c.name] = self.env[c.result] = window
                out.append(_store(window, init, _single_rows(c.by, init)))
        body = self.block(st.body, st.yields)
        values = {c.name: self.put(y) for c, y in zip(st.carry, st.yields)}
        carry = tuple(replace(c, init=i, space="reg", by=None) for c, i in zip(st.carry, inits) if c in kept)
        yields = self._register_yields(kept, values, {self.env[c.name]["buffer"].name for c in tiles}, body)
        body += self._update(tiles, values)
        out.append(replace(st, body=tuple(body), carry=carry, yields=tuple(yields)))

    def _register_yields(self, kept: list[Carry], values: dict[str, Node], changed: set[str], out: list[Stmt]) -> list[Node]:
        """The yields that stay values; those that read a carried buffer are taken before it changes."""
        yields = []
        for c in kept:
            value = values[c.name]
            if changed & buffers_read(value):
                name = self.names.fresh(c.name)
                out.append(Let(name, value))
                value = t.ref(name, value.type)
            yields.append(value)
        return yields

    def _update(self, tiles: list[Carry], values: dict[str, Node]) -> list[Stmt]:
        """Stores of the carried tiles' yields, in an order in which none reads what another has overwritten."""
        copied = [c for c in tiles if reads_elsewhere(values[c.name], self.env[c.name])]
        waiting = [c for c in tiles if c not in copied]
        reads = {c.name: buffers_read(values[c.name]) for c in tiles}

        def readers(c: Carry) -> int:
            return sum(c.name in reads[o.name] for o in waiting if o is not c)

        order: list[Carry] = []
        while waiting:
            free = next((c for c in waiting if not readers(c)), None)
            chosen = free or max(waiting, key=lambda c: readers(c) * len(reads[c.name]))  # the knot of a circle
            (copied if free is None else order).append(chosen)
            waiting.remove(chosen)
        out: list[Stmt] = []
        back: list[Stmt] = []
        for c in copied:
            twin = t.load(*self._buffer(self.names.fresh(c.name), c.type, c.space, c.by))
            out.append(_store(twin, values[c.name], c.by))
            back.append(_store(self.env[c.name], twin, c.by))
        return out + [_store(self.env[c.name], values[c.name], c.by) for c in order] + back


def _upper(name: str, d: Dim) -> int:
    hi = index.bounds(d)[1]
    if hi is None:
        raise Error("TC0302", f"the tile {name} of extent {index.show(d)}", "an extent with an upper bound")
    return hi


def _store(window: Node, value: Node, by: By | None) -> Store:
    """The store of a tile value, cut as it says, else row by row."""
    if by is None:
        by = ROWS if window.type.rank == 1 else By((4 * LANES,))
    if has(value, "dot") and len(by.tile) != 2:
        raise Error("TC0302", f"the product in {window['buffer'].name} without a register tile", "`by R x C`")
    return Store(window, value, by)


def _single_rows(by: By | None, init: Node) -> By | None:
    """How the init of a carried tile is cut, whose yield is cut by `by`: a fill or a copy needs no tiles of many rows."""
    return by if by is None or len(by.tile) < 2 or has(init, "dot") else replace(by, tile=(1, by.tile[1]))


def _alive(name: str, rest: tuple[tuple[Stmt, ...], tuple[Node, ...]]) -> bool:
    """Whether `name` is read after a statement: in the rest of its body, or by the yields of the loop around it."""
    return any(name in names_read(e) for e in (*rest[1], *(e for st in deep(rest[0]) for e in expressions(st))))


def reads_elsewhere(e: Node, window: Node) -> bool:
    """Whether `e`, stored to `window`, reads the window's buffer at other elements than the one being written."""
    buffer = window["buffer"].name
    stack, seen = [(e, False)], set()
    while stack:
        n, moved = stack.pop()
        if (n, moved) in seen:
            continue
        seen.add((n, moved))
        if n.op == "load" and n["buffer"].name == buffer and (moved or n is not window):
            return True
        for k, o in enumerate(n.operands):
            if o.type is index.INDEX:
                if any(b.name == buffer for b in index_buffers(o)):
                    return True
            else:
                stack.append((o, moved or n.op in MOVED or (n.op == "dot" and k < 2)))
    return False
