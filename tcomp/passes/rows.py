"""Row loops: neighbouring stores over the same rows become one loop over single rows.

Two stores may share a loop if what one writes the other touches in the same row only. In a row, a tile of rows x columns is a
row of columns, a tile over rows is a scalar, and a scalar that was just stored is read from its register.
"""

from __future__ import annotations

from dataclasses import replace

from tcomp.errors import Error
from tcomp.ir import index
from tcomp.ir import tile as t
from tcomp.ir.machine import LANES
from tcomp.ir.node import Dim, Node, walk
from tcomp.ir.stmts import By, For, If, Let, Stmt, Store
from tcomp.passes.names import Names, loop_variable
from tcomp.passes.tiles import has, index_buffers, loads, pick, swap

ROWS = By(())  # marks the store of a tile over rows: row by row beside others over these rows, else as columns

Signature = tuple[tuple[int, Dim], ...]  # the positions of an access that depend on the row, by axis of the buffer


def share_rows(body: tuple[Stmt, ...], names: Names) -> tuple[Stmt, ...]:
    """`body` with its stores over rows, in it and in what it nests, in row loops."""
    out: list[Stmt] = []
    at = 0
    while at < len(body):
        st = body[at]
        if isinstance(st, Store) and _over_rows(st):
            rows = _Rows(st, names)
            while at < len(body) and rows.takes(body[at]):
                at += 1
            out += rows.statements()
            continue
        at += 1
        match st:
            case For():
                st = replace(st, body=share_rows(st.body, names))
            case If():
                st = replace(st, body=share_rows(st.body, names), orelse=share_rows(st.orelse, names))
        out.append(st)
    return tuple(out)


def _over_rows(st: Store) -> bool:
    if st.by is None or len(st.by.tile) > 1:
        return False
    return st.window.type.rank == 2 or st.by == ROWS


def _needs_rows(st: Store) -> bool:
    return st.window.type.rank == 2 or any(n.type.rank == 2 for n in t.nodes(st.value))


class _Rows:
    """A run of stores over the same rows, and what each buffer is touched at once its row is picked."""

    def __init__(self, first: Store, names: Names) -> None:
        self.extent: Dim = first.window.type.shape[0]
        self.names = names
        self.stores: list[Store] = []
        self.picked: list[tuple[Node, Node]] = []
        self.written: dict[str, Signature] = {}
        self.touched: dict[str, set[Signature]] = {}
        self.row: Dim = 0 if self.extent == 1 else loop_variable(names.fresh("r"), 0, self.extent, 1)

    def takes(self, st: Stmt) -> bool:
        """Add a statement to the run, if it belongs there."""
        if not (isinstance(st, Store) and _over_rows(st) and st.window.type.shape[0] == self.extent):
            return False
        window, value = pick(st.window, self.row), pick(st.value, self.row)
        if self.extent != 1 and not self._separate(window, value):
            if self.stores:
                return False
            raise Error("TC0302", f"a store over rows of {window['buffer'].name} reads others", "the row written")
        self.stores.append(st)
        self.picked.append((window, value))
        return True

    def _separate(self, window: Node, value: Node) -> bool:
        """Whether rows stay independent with this store; if so it is noted."""
        own = window["buffer"].name
        touched = {name: set(found) for name, found in self.touched.items()}
        for load in (window, *loads(value)):
            touched.setdefault(load["buffer"].name, set()).add(self._signature(load))
        written = {**self.written, own: self._signature(window)}
        if any(not signature or len(touched[name]) > 1 for name, signature in written.items()):
            return False
        if any(b.name in written for e in (window, value) for b in index_buffers(e)):
            return False
        self.touched, self.written = touched, written
        return True

    def _signature(self, load: Node) -> Signature:
        positions = t.window(load).positions
        return tuple((k, p) for k, p in enumerate(positions) if isinstance(p, Node) and any(n is self.row for n in walk([p])))

    def statements(self) -> tuple[Stmt, ...]:
        if not any(map(_needs_rows, self.stores)):
            return tuple(replace(st, by=By((self._vector(),)) if st.by == ROWS else st.by) for st in self.stores)
        out: list[Stmt] = []
        known: dict[Node, Node] = {}
        for st, (window, value) in zip(self.stores, self.picked):
            value = swap(value, known)
            if window.type.rank:
                out.append(replace(st, window=window, value=value))
            else:
                known[window] = self._scalar(window, value, out)
        return (For(self.row, 0, self.extent, 1, tuple(out)),) if isinstance(self.row, Node) else tuple(out)

    def _vector(self) -> int:
        """The register tile of a tile over rows: as wide as there are rows at most, up to four vectors."""
        rows = index.bounds(self.extent)[1] or 4 * LANES
        return min(4 * LANES, -(-rows // LANES) * LANES)

    def _scalar(self, window: Node, value: Node, out: list[Stmt]) -> Node:
        """Store one element, kept in a register for the rest of the row."""
        if value.op not in ("ref", "full"):
            if has(value, "dot"):
                raise Error("TC0302", "a `dot` among statements over rows", "a store of rows x columns with its own `by`")
            name = self.names.fresh(window["buffer"].name)
            out.append(Let(name, value))
            value = t.ref(name, value.type)
        out.append(Store(window, value))
        return value
