"""Text of tile expressions, statements and kernels.

A statement is one line, and the lines of its body indented by two. Expressions are inline; one that is used twice in a
statement, or that would make a line long, becomes a line `%name = expression` before it: a name for the reader, not a `Let`.

A window is written `x[i : 14, j : 32]` (start : extent for each tile axis in order; `:` alone for a whole axis), and where it
is not of that form by its positions and extents, `x[j + $1, i + $0 | 14, 32]`. `valid n` after an extent and `else v` before
the bracket closes are its mask and what lies outside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, assert_never

from tcomp.ir import index
from tcomp.ir import tile as t
from tcomp.ir.dtype import DType, f32, i64
from tcomp.ir.index import INDEX, as_dim, show, show_bound
from tcomp.ir.literals import show_float
from tcomp.ir.names import show_name
from tcomp.ir.node import Dim, Node, walk
from tcomp.ir.stmts import Alloc, By, Call, Carry, Check, For, Grid, GridAxis, If, Kernel, Let, Stmt, Store
from tcomp.ir.types import Buffer

LONG = 100  # characters of an expression that is given a line of its own
INFIX = {"add": ("+", 1), "sub": ("-", 1), "mul": ("*", 2), "div": ("/", 2)}
_LEAVES = ("full", "ref", "position")
_TIGHT = 3  # the precedence of calls, names and numbers


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a dump and the statement, node or buffer that it writes."""

    text: str
    owner: Any = None


def show_symbol(n: Node) -> str:
    """A symbol where it is declared: its name, and its bounds and multiple where they are not the default."""
    return show_name(n["name"]) + show_range(n, index.symbol(n["name"]))


def show_range(n: Node, implied: Node) -> str:
    """` [lo, hi] % multiple` where it differs from what is implied."""
    if n is implied:
        return ""
    text = f" [{show_bound(n['lo'])}, {show_bound(n['hi'])}]"
    return text if n["multiple"] == 1 else f"{text} % {n['multiple']}"


def show_buffer(b: Buffer) -> str:
    """A buffer where it is declared: `bp : f32[60, 64] @scratch order(1, 0, 1%32) pad 8`."""
    text = f"{show_name(b.name)} : {b.dtype}[{', '.join(map(show, b.shape))}]"
    text += "" if b.space == "global" else f" @{b.space}"
    if b.order is not None:
        text += f" order({', '.join(f'{a}%{block}' if block else str(a) for a, block in b.order)})"
    return f"{text} pad {b.pad}" if b.pad else text


# --- windows -------------------------------------------------------------------------------------------


def show_window(w: t.Window, other: str | None = None) -> str:
    """A window, in its ordinary form where it has one."""
    inside = _ordinary(w)
    if inside is None:
        extents = ", ".join(show(e) + _show_valid(v) for e, v in zip(w.extents, w.valid))
        inside = f"{', '.join(map(show, w.positions))} | {extents}"
    outside = "" if other is None else f" else {other}"
    return f"{show_name(w.buffer.name)}[{inside}{outside}]"


def _show_valid(count: Dim | None) -> str:
    return "" if count is None else f" valid {show(count)}"


def _ordinary(w: t.Window) -> str | None:
    """`start : extent` for each tile axis in order, each on a buffer axis of its own; None for another window."""
    placed = place_axes(w)
    if placed is None:
        return None
    pieces = []
    for p, size, k in zip(w.positions, w.buffer.shape, placed):
        if k is None:
            pieces.append(show(p))
            continue
        start, extent = index.sub(p, t.axis(k, w.extents[k])), w.extents[k]
        whole = start == 0 and extent == size and w.valid[k] is None
        pieces.append(":" if whole else f"{show(start)} : {show(extent)}{_show_valid(w.valid[k])}")
    return ", ".join(pieces)


def place_axes(w: t.Window) -> list[int | None] | None:
    """For each buffer axis the tile axis that runs along it with stride 1; None where the window has another form."""
    placed: list[int | None] = [None] * len(w.positions)
    at = 0
    for k, extent in enumerate(w.extents):
        mine = t.axis(k, extent)
        while at < len(w.positions) and not _runs_along(w.positions[at], mine):
            at += 1
        if at == len(w.positions):
            return None
        placed[at] = k
        at += 1
    starts = (p if k is None else index.sub(p, t.axis(k, w.extents[k])) for p, k in zip(w.positions, placed))
    return None if any(map(t.is_axis, index.symbols(starts))) else placed


def _runs_along(position: Dim, axis: Dim) -> bool:
    """Whether the tile axis may be written on this buffer axis (one of extent 1: where no other runs)."""
    atoms = index.terms(position)[0]
    return atoms.get(axis) == 1 if isinstance(axis, Node) else not any(map(t.is_axis, index.symbols([position])))


# --- expressions ---------------------------------------------------------------------------------------


class Expressions:
    """Writes the expressions of one kernel: texts inline, long and shared ones as lines of their own with fresh names."""

    def __init__(self) -> None:
        self.fresh = 0

    def write(self, roots: Iterable[Node]) -> tuple[list[str], list[str]]:
        """(lines that must come before, the text of each root)."""
        roots = tuple(roots)
        uses = Counter(o for n in walk(roots) for o in n.operands if o.type is not INDEX)
        before: list[str] = []
        texts: dict[Node, tuple[str, int]] = {}
        for n in walk(roots):
            if n.type is INDEX:
                continue
            texts[n] = text, _ = show_expression(n, texts)
            named = (uses[n] > 1 and n.op not in _LEAVES) or (len(text) > LONG and n not in roots)
            if named:
                texts[n] = f"%v{self.fresh}", _TIGHT
                self.fresh += 1
                before.append(f"{texts[n][0]} = {text}")
        return before, [texts[r][0] for r in roots]


def show_expression(n: Node, texts: dict[Node, tuple[str, int]]) -> tuple[str, int]:
    """(text, precedence) of one node from those of its operands."""
    if n.op in INFIX and len(n.attrs) == 0:
        return _show_infix(n, texts)
    inner = [texts[o][0] for o in n.operands if o.type is not INDEX]
    writer = _WRITERS.get(n.op)
    if writer is not None:
        return writer(n, inner), _TIGHT
    attrs = [f"{k} = {v}" for k, v in n.attrs]
    return f"{n.op}({', '.join([*inner, *attrs])})", _TIGHT


def _show_infix(n: Node, texts: dict[Node, tuple[str, int]]) -> tuple[str, int]:
    sign, level = INFIX[n.op]
    (left, a), (right, b) = (texts[o] for o in n.operands)
    left = left if a >= level else f"({left})"
    right = right if b > level else f"({right})"
    return f"{left} {sign} {right}", level


def show_full(value: float | int | bool, dtype: DType) -> str:
    """A scalar constant: bare for f32, i64 and bool, else `bf16(0.5)`."""
    if dtype.kind == "bool":
        return str(value).lower()
    text = show_float(float(value)) if dtype.is_float else str(value)
    return text if dtype in (f32, i64) else f"{dtype}({text})"


def _show_position(n: Node) -> str:
    return f"position({n.type}, {show(as_dim(n.operands[0]))})"


_WRITERS: dict[str, Callable[[Node, list[str]], str]] = {
    "load": lambda n, x: show_window(t.window(n), x[0] if x else None),
    "full": lambda n, x: show_full(n["value"].value, n["dtype"]),
    "ref": lambda n, x: show_name(n["name"]),
    "position": lambda n, x: _show_position(n),
    "expand": lambda n, x: f"expand({x[0]}, {n['axis']})",
    "reduce": lambda n, x: f"reduce {n['monoid']}({x[0]}) axis {n['axis']}",
    "valid": lambda n, x: f"valid({x[0]}, {show(as_dim(n.operands[1]))}, {x[1]})",
    "dot": lambda n, x: f"dot({x[0]}, {x[1]}, {x[2]}) @{n['intrinsic']} unroll {n['unroll']}",
    "when": lambda n, x: f"when({show(as_dim(n.operands[0]))}, {x[0]}, {x[1]})",
    "fold": lambda n, x: f"fold {n['monoid']}({x[0]}) to {n['to']}",
    "scan": lambda n, x: f"scan {n['monoid']}({x[0]})",
    "last": lambda n, x: f"last({x[0]})",
}


# --- statements ----------------------------------------------------------------------------------------


def show_by(by: By | None) -> str:
    """`  by 14x32 ji tail masked spill pad 0.0`; nothing for None."""
    if by is None:
        return ""
    text = "  by " + "x".join(map(str, by.tile))
    text += "" if by.order == "ij" else f" {by.order}"
    text += "" if by.tail == "binary" else f" tail {by.tail}"
    text += " spill" if by.spill else ""
    return text if by.pad is None else f"{text} pad {show_float(by.pad)}"


def _show_space(space: str) -> str:
    """`  @stack`, `  @in:x`; nothing for registers."""
    kind, _, over = space.partition(":")
    return "" if space == "reg" else f"  @{kind}" + (f":{show_name(over)}" if over else "")


class _Body:
    """The lines of one kernel."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.expressions = Expressions()

    def add(self, depth: int, text: str, owner: Any) -> None:
        self.lines.append(Line("  " * depth + text, owner))

    def texts(self, depth: int, owner: Any, *roots: Node) -> list[str]:
        """The texts of expressions, after the lines that they need."""
        before, texts = self.expressions.write(roots)
        for line in before:
            self.add(depth, line, owner)
        return texts

    def block(self, body: tuple[Stmt, ...], depth: int) -> None:
        for s in body:
            self.statement(s, depth)

    def statement(self, s: Stmt, depth: int) -> None:
        match s:
            case Let():
                (value,) = self.texts(depth, s, s.value)
                self.add(depth, f"{show_name(s.name)} = {value}{_show_space(s.space)}{show_by(s.by)}", s)
            case Alloc():
                self.add(depth, f"alloc {show_buffer(s.buffer)}", s)
            case Store():
                self.store(s, depth)
            case For():
                self.loop(s, depth)
            case If():
                self.branch(s, depth)
            case Check():
                self.add(depth, f"check {show(s.cond)} code {s.code} node {s.node}", s)
            case Call():
                self.call(s, depth)
            case _:
                assert_never(s)

    def store(self, s: Store, depth: int) -> None:
        window, value = self.texts(depth, s, s.window, s.value)
        atomic = "" if s.combine is None else f"  atomic {s.combine}"
        self.add(depth, f"store {window} = {value}{show_by(s.by)}{atomic}", s)

    def loop(self, s: For, depth: int) -> None:
        inits = self.texts(depth, s, *(c.init for c in s.carry))
        by = "" if s.step == 1 else f" by {s.step}"
        name = show_name(s.var["name"]) + show_range(s.var, index.loop_symbol(s.var["name"], s.lo, s.hi, s.step))
        self.add(depth, f"for {name} in {show(s.lo)}..{show(s.hi)}{by}", s)
        for c, init in zip(s.carry, inits):
            self.carry(c, init, depth + 1)
        self.block(s.body, depth + 1)
        if s.yields:
            self.add(depth + 1, f"yield {', '.join(self.texts(depth + 1, s.yields, *s.yields))}", s.yields)

    def carry(self, c: Carry, init: str, depth: int) -> None:
        names = f"{show_name(c.name)} -> {show_name(c.result)}"
        self.add(depth, f"carry {names} : {c.type} = {init}{_show_space(c.space)}{show_by(c.by)}", c)

    def branch(self, s: If, depth: int) -> None:
        self.add(depth, f"if {show(s.cond)}", s)
        self.block(s.body, depth + 1)
        if s.orelse:
            self.add(depth, "else", s)
            self.block(s.orelse, depth + 1)

    def call(self, s: Call, depth: int) -> None:
        texts = self.texts(depth, s, *s.outputs, *s.inputs)
        outputs, inputs = ", ".join(texts[: len(s.outputs)]), ", ".join(texts[len(s.outputs) :])
        attrs = ", ".join(f"{show_name(k)} = {show_attr(v)}" for k, v in s.attrs)
        self.add(depth, f"call {show_name(s.routine)} ({outputs}) = ({inputs})" + (f" {{{attrs}}}" if attrs else ""), s)


def show_attr(value: int | str | bool) -> str:
    """An attribute of a routine."""
    return str(value).lower() if isinstance(value, bool) else str(value) if isinstance(value, int) else show_name(value)


def _show_axis(a: GridAxis) -> str:
    name = show_name(a.var["name"]) + show_range(a.var, index.loop_symbol(a.var["name"], 0, a.extent, a.step))
    return f"{name} in {show(a.extent)}" + ("" if a.step == 1 else f" by {a.step}")


def _phase(body: _Body, g: Grid) -> None:
    body.add(1, f"grid ({', '.join(map(_show_axis, g.axes))})", g)
    body.block(g.body, 2)


def kernel_lines(kernel: Kernel) -> list[Line]:
    """The lines of a kernel."""
    body = _Body()
    inputs, outputs = (", ".join(map(show_buffer, bs)) for bs in (kernel.inputs, kernel.outputs))
    symbols = f" symbols({', '.join(map(show_symbol, kernel.symbols))})" if kernel.symbols else ""
    body.add(0, f"kernel @{show_name(kernel.name)}{symbols} ({inputs}) -> ({outputs})", kernel)
    for b in kernel.workspace:
        body.add(1, f"workspace {show_buffer(b)}", b)
    for g in kernel.phases:
        _phase(body, g)
    return body.lines
