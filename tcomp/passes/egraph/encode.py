"""`encode`: a window of a GRAPH as index terms.

Movement disappears: transposes, broadcasts and reshapes only say which index stands where. Products are `ein` of no index, a
quotient is x times `inv` y, a difference x plus -1 times y; `dot`, `conv` and sums are `ein`; every other pointwise operation
keeps its name. Where a sum may turn out to be one of nothing, quotients stay functions of two: the sum is 0 even if y is, which
must then stay inside.

    y = dot x[n, c], w[c, o]; z = y * broadcast g[o]      ->   ein((), ein((c), x_nc, w_co), g_o)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tcomp.ir import index
from tcomp.ir.graph import uniform
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import OPS
from tcomp.ir.ops.reduction import free_axes
from tcomp.passes.egraph.axes import Atom, Axis, Inexpressible, Scopes, align, flat, fresh, regroup
from tcomp.passes.egraph.terms import Terms

HINT = 128  # the size of a symbolic dimension, for costs alone
_MOVEMENT = frozenset(["transpose", "broadcast", "reshape"])


@dataclass(frozen=True, slots=True)
class Encoded:
    """A window's terms. rows: of each node; dims: the dimension of each index name; axes: names of each node's axes."""

    terms: Terms
    rows: dict[Node, int]
    dims: dict[str, Dim]
    axes: dict[Node, list[list[str]]]
    leaves: dict[str, Node]


def encode(nodes: Sequence[Node], leaves: Sequence[Node]) -> Encoded:
    """The terms of `nodes`, operands first, which read `leaves`. Inexpressible, with the node, where one of them has none."""
    return _Encoder(nodes, leaves).encoded()


def hint(d: Dim) -> int:
    """A plausible value of a dimension."""
    if isinstance(d, int):
        return d
    values = {}
    for s in index.symbols([d]):
        low, high = index.bounds(s)
        value = max(HINT, low or 0)
        values[s["name"]] = value if high is None else min(value, high)
    return max(1, index.evaluate(d, values))


def scalar_value(n: Node) -> float | None:
    """The value of a constant of one element, repeated or not."""
    element = uniform(n)
    return None if element is None else float(element[()])


class _Encoder:
    def __init__(self, nodes: Sequence[Node], leaves: Sequence[Node]) -> None:
        self.nodes, self.leaves = nodes, leaves
        self.scopes = Scopes()
        self.axes: dict[Node, list[Axis]] = {}
        self.uses: dict[Node, list[list[tuple[Atom, Atom]]]] = {}
        self.windows: dict[Node, list[tuple[Atom, Atom, Atom]]] = {}  # of a conv: (h, p, r) for each spatial axis
        self.shared: dict[tuple[Atom, Dim, int, int], tuple[Atom, Atom]] = {}  # p and r of equal windows of one axis
        self.terms = Terms()
        self.rows: dict[Node, int] = {}
        self.may_be_empty = False

    def encoded(self) -> Encoded:
        for n in self.leaves:
            self.axes[n] = [fresh(d) for d in n.type.shape]
            self.scopes.add(a for axis in self.axes[n] for a in axis)
        for n in self.nodes:
            try:
                self._infer(n)
            except Inexpressible as reason:
                raise Inexpressible(n, str(reason)) from None
        dims = self._name()
        self.may_be_empty = any((index.bounds(d)[0] or 0) < 1 for d in dims.values() if isinstance(d, Node))
        leaves: dict[str, Node] = {}
        for n in self.leaves:
            value = scalar_value(n)
            if value is not None:
                self.rows[n] = self.terms.const(value)
                continue
            name = f"L{len(leaves)}"
            leaves[name] = n
            self.rows[n] = self.terms.leaf(name, self._names(*self.axes[n]), n.op == "constant")
        for n in self.nodes:
            self.rows[n] = self._emit(n)
        axes = {n: [self._names(a) for a in axes] for n, axes in self.axes.items()}
        return Encoded(self.terms, self.rows, dims, axes, leaves)

    # --- which indices an operation's axes are ---

    def _infer(self, n: Node) -> None:
        self.uses[n] = [[] for _ in n.operands]
        operands = [self.axes[o] for o in n.operands]
        match n.op:
            case "transpose":
                axes = [operands[0][p] for p in n["perm"]]
            case "reshape":
                axes = regroup(operands[0], n.type.shape)
            case "broadcast":
                axes = [fresh(d) for d in n.type.shape]
                for k, a in enumerate(n["axes"]):
                    if n.operands[0].type.shape[k] == n.type.shape[a]:
                        axes[a] = operands[0][k]
            case "reduce":
                axes = [x for a, x in enumerate(operands[0]) if a not in n["axes"]]
            case "dot":
                axes = self._dot(n, *operands)
            case "conv":
                axes = self._conv(n, *operands)
            case _:
                axes = operands[0]
                for k, other in enumerate(operands[1:], 1):
                    for x, y in zip(axes, other):
                        self.uses[n][k] += self.scopes.unify(x, y)
        self.axes[n] = axes
        self.scopes.add(a for axis in axes for a in axis)

    def _dot(self, n: Node, a: list[Axis], b: list[Axis]) -> list[Axis]:
        for mine, yours in (n["batch"], n["contract"]):
            for i, j in zip(mine, yours):
                self.uses[n][1] += self.scopes.unify(a[i], b[j])
        left = [a[i] for i in (*n["batch"][0], *free_axes(len(a), n["batch"][0], n["contract"][0]))]
        right = self._apart(n, a, [b[j] for j in free_axes(len(b), n["batch"][1], n["contract"][1])])
        return left + right

    def _apart(self, n: Node, a: list[Axis], right: list[Axis]) -> list[Axis]:
        """Free axes of the second operand under names that the first does not have."""
        mine = set(flat(x for axis in a for x in axis))
        out: list[Axis] = []
        for axis in right:
            own = []
            for atom in flat(axis):
                other = Atom(atom.size) if atom in mine else atom
                if other is not atom:
                    self.uses[n][1].append((atom, other))
                own.append(other)
            out.append(own)
        self.scopes.add([*(x for axis in a for x in axis), *(x for axis in out for x in axis)])
        return out

    def _conv(self, n: Node, x: list[Axis], w: list[Axis]) -> list[Axis]:
        if n["groups"] != 1:
            raise Inexpressible("groups")
        self.uses[n][1] += self.scopes.unify(x[-1], w[-2])
        self.windows[n] = []
        spatial: list[Axis] = []
        taps: list[Axis] = []
        sizes = zip(x[1:-1], w[:-2], n.operands[1].type.shape, n["strides"], n["dilations"], n.type.shape[1:])
        for axis, window, size, stride, dilation, count in sizes:
            if size == 1 and stride == 1:
                spatial.append(axis)
                continue
            h, r = flat(axis), flat(window)
            if len(h) != 1 or len(r) != 1 or count == 1:
                raise Inexpressible("a window over several axes, or a single one")
            p, tap = self.shared.setdefault((h[0], size, stride, dilation), (Atom(count), Atom(size)))
            self.uses[n][1] += self.scopes.unify([tap], [r[0]])
            self.windows[n].append((h[0], p, tap))
            spatial.append([p])
            taps.append([tap])
        out = self._apart(n, [*x, *spatial, *taps, *w[:-1]], [w[-1]])
        return [x[0], *spatial, *out]

    # --- names ---

    def _name(self) -> dict[str, Dim]:
        """Name all atoms, divided as finely as any substitution needs; the dimension of each name."""
        pairs = [p for n in self.nodes for use in self.uses[n] for p in use]
        count = -1
        while count != (count := sum(len(flat(p)) for p in pairs)):
            for source, target in pairs:
                align([source], [target])
        dims: dict[str, Dim] = {}
        for n in (*self.leaves, *self.nodes):
            extra = [t for use in self.uses.get(n, ()) for _, t in use]
            for a in flat([*(a for axis in self.axes[n] for a in axis), *extra]):
                if not a.name:
                    a.name = f"x{len(dims)}"
                    dims[a.name] = a.size
                    self.terms.sizes[a.name] = hint(a.size)
        for n in (*self.leaves, *self.nodes):
            names = self._names(*self.axes[n])
            if len(set(names)) < len(names):
                raise Inexpressible(n, "a diagonal")
            if any(len(flat([a])) > 1 for window in self.windows.get(n, ()) for a in window):
                raise Inexpressible(n, "a window over an axis that is divided elsewhere")
        return dims

    @staticmethod
    def _names(*axes: Axis) -> list[str]:
        return [a.name for a in flat(a for axis in axes for a in axis)]

    # --- rows ---

    def _use(self, n: Node, k: int) -> int:
        """The row of an operand under the names it has there: all substitutions at once, through spare names where they meet."""
        row = self.rows[n.operands[k]]
        pairs = [(a.name, b.name) for s, t in self.uses[n][k] for a, b in zip(flat([s]), flat([t]))]
        sources = {a for a, _ in pairs}
        later = []
        for a, b in dict.fromkeys(pairs):
            if b in sources:
                spare = f"s{b}"
                self.terms.sizes[spare] = self.terms.sizes[b]
                later.append((spare, b))
                b = spare
            row = self.terms.row("ren", (a, b), (row,))
        for spare, b in later:
            row = self.terms.row("ren", (spare, b), (row,))
        return row

    def _emit(self, n: Node) -> int:
        t, u = self.terms, [self._use(n, k) for k in range(len(n.operands))]
        if n.op in _MOVEMENT:
            return u[0]
        match n.op:
            case "add":
                return t.add(*u)
            case "sub":
                return t.add(u[0], t.neg(u[1]))
            case "mul":
                return t.ein((), *u)
            case "neg":
                return t.neg(u[0])
            case "div" if not self.may_be_empty or scalar_value(n.operands[1]):
                return t.ein((), u[0], self._inverse(n.operands[1], u[1]))
            case "reduce":
                return self._reduce(n, u[0])
            case "dot":
                return t.ein(self._names(*(self.axes[n.operands[0]][i] for i in n["contract"][0])), *u)
            case "conv":
                return self._emit_conv(n, *u)
            case "pow" if scalar_value(n.operands[1]) == 2.0:
                return t.ein((), u[0], u[0])
        return t.row(("un", "bin", "tri")[len(u) - 1], (n.op,), u)

    def _inverse(self, operand: Node, row: int) -> int:
        value = scalar_value(operand)
        return self.terms.const(1.0 / value) if value else self.terms.un("inv", row)

    def _reduce(self, n: Node, x: int) -> int:
        names = self._names(*(self.axes[n.operands[0]][a] for a in n["axes"]))
        if n["monoid"] == "add":
            return self.terms.ein(names, x) if names else x
        for i in names:
            x = self.terms.row("max", (i,), (x,))
        return x

    def _emit_conv(self, n: Node, x: int, w: int) -> int:
        rest = iter(self.windows[n])
        steps = [(s, d) for s, d, k in zip(n["strides"], n["dilations"], n.operands[1].type.shape) if k != 1 or s != 1]
        over = self._names(self.axes[n.operands[0]][-1])
        for (h, p, r), (stride, dilation) in zip(rest, steps):
            h, p, r = flat([h])[0], flat([p])[0], flat([r])[0]
            over.append(r.name)
            x = self.terms.row("win", (h.name, p.name, r.name, stride, dilation), (x,))
        return self.terms.ein(over, x, w)


def is_expressible(n: Node) -> bool:
    """Whether index notation has a word for the operation, whatever its axes."""
    if n.op in _MOVEMENT or n.op == "dot":
        return True
    if n.op == "reduce":
        return n["monoid"] in ("add", "max")
    if n.op == "conv":
        return bool(n["groups"] == 1)
    row = OPS[n.op]
    return row.kind == "pointwise" and not row.attrs and row.arity in (1, 2, 3) and n.op not in ("bitcast", "cast")
