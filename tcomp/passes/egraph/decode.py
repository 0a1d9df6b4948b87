"""`Decoder`: index terms back into operations of a GRAPH, with explicit axes.

A term of the text as written becomes the node that it came from, whatever it was made of then. Others are written anew: `ein`
of one factor is a `reduce`, of two a `dot` (a `conv` where one is a window), or a pointwise product; factors `inv(y)` become
divisions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tcomp.ir import index
from tcomp.ir.dtype import DType
from tcomp.ir.graph import broadcast, full, reshape, transpose
from tcomp.ir.node import Dim, Node, with_operands
from tcomp.ir.ops import apply
from tcomp.passes.egraph.axes import Inexpressible
from tcomp.passes.egraph.encode import Encoded
from tcomp.passes.egraph.terms import Row, Terms


@dataclass(frozen=True, slots=True)
class Value:
    """A node whose axes are these index names, one for each."""

    node: Node
    names: tuple[str, ...]


@dataclass(slots=True)
class Decoder:
    """Makes nodes of rows. terms: the window's rows, then the answer's; outside: what stands for the window's leaves now.

    equal: rows of the window that have the value of rows of the answer. origins: of nodes that were made, the node as written.
    """

    window: Encoded
    terms: Terms
    outside: Mapping[Node, Node]
    dtype: DType
    equal: Mapping[int, int] = field(default_factory=dict)
    origins: dict[Node, Node] = field(default_factory=dict)
    order: dict[str, int] = field(default_factory=dict)  # of index names: axes are put this way round where it is free
    _values: dict[int, Value] = field(default_factory=dict)
    _sources: dict[int, Node] = field(default_factory=dict)  # the node of each row as written
    _kept: dict[Node, Node] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for n, row in self.window.rows.items():
            self._sources.setdefault(row, n)

    def root(self, n: Node, row: int) -> Node:
        """The node that stands for `n`, whose value is now made by `row`."""
        if row == self.window.rows[n]:
            return self.kept(n)
        names = [name for axis in self.window.axes[n] for name in axis]
        self.order = {name: k for k, name in enumerate(names)}
        self._values.clear()
        return reshape(self.aligned(self.value(row), names), n.type.shape)

    def kept(self, n: Node) -> Node:
        """`n` as it was written, over what stands for the window's leaves."""
        stack = [n]
        while stack:
            top = stack[-1]
            if top in self.outside:
                self._kept[top] = self.outside[top]
            missing = [o for o in top.operands if o not in self._kept] if top not in self._kept else []
            if missing:
                stack += missing
                continue
            stack.pop()
            if top not in self._kept:
                self._kept[top] = with_operands(top, tuple(self._kept[o] for o in top.operands))
                self.origins[self._kept[top]] = top
        return self._kept[n]

    def value(self, row: int) -> Value:
        """The value of a row."""
        stack = [row]
        while stack:
            r = stack[-1]
            needed = () if r in self._sources else self.terms.rows[r][2]
            missing = [k for k in needed if k not in self._values] if r not in self._values else []
            if missing:
                stack += missing
                continue
            stack.pop()
            if r not in self._values:
                self._values[r] = self._made(r)
                origin = self._sources.get(self.equal.get(r, -1))
                if origin is not None:
                    self.origins.setdefault(self._values[r].node, origin)
        return self._values[row]

    def _made(self, r: int) -> Value:
        if r in self._sources and self.terms.rows[r][0] != "const":
            return self._source(self._sources[r])
        op, attrs, kids = self.terms.rows[r]
        return _MAKERS[op](self, (op, attrs, kids), [self._values[k] for k in kids])

    def _source(self, n: Node) -> Value:
        """A node as written, each atom an axis of its own."""
        names = tuple(name for axis in self.window.axes[n] for name in axis)
        return Value(reshape(self.kept(n), map(self.dim, names)), names)

    def dim(self, name: str) -> Dim:
        """The dimension of an index name: primed and spare ones have that of their plain one."""
        if name in self.window.dims:
            return self.window.dims[name]
        if name in self.terms.sizes and name.startswith("g"):
            return self.terms.sizes[name]
        return self.window.dims[name.lstrip("s").rstrip("'")]

    # --- axes ---

    def aligned(self, x: Value, names: Sequence[str]) -> Node:
        """`x` with exactly these axes: what it lacks is repeated; what it has beside them it does not depend on."""
        for extra in [n for n in x.names if n not in names]:
            x = self._first(x, extra)
        have = [n for n in names if n in x.names]
        node = transpose(x.node, (x.names.index(n) for n in have))
        return broadcast(node, tuple(map(self.dim, names)), tuple(k for k, n in enumerate(names) if n in x.names))

    def _first(self, x: Value, name: str) -> Value:
        """`x` at position 0 of an axis along which it is constant."""
        at, shape = x.names.index(name), x.node.type.shape
        sizes = tuple(1 if k == at else d for k, d in enumerate(shape))
        node = apply("slice", x.node, start=(0,) * len(shape), shape=sizes, step=(1,) * len(shape))
        rest = (*x.names[:at], *x.names[at + 1 :])
        return Value(reshape(node, map(self.dim, rest)), rest)

    def sorted(self, names: set[str]) -> list[str]:
        """Names in the order in which the result has them; others by their number."""
        return sorted(names, key=lambda n: (self.order.get(n, len(self.order)), len(n), n))

    def pointwise(self, op: str, values: Sequence[Value]) -> Value:
        """An operation on values, over all their indices."""
        all_names = {n for v in values for n in v.names}
        widest = max(values, key=lambda v: len(v.names))
        names = list(widest.names) if set(widest.names) == all_names else self.sorted(all_names)
        return Value(apply(op, *(self.aligned(v, names) for v in values)), tuple(names))

    def scalar(self, value: float) -> Value:
        return Value(full(value, self.dtype), ())

    def reduced(self, monoid: str, x: Value, over: set[str]) -> Value:
        axes = tuple(k for k, n in enumerate(x.names) if n in over)
        if not axes:
            return x
        return Value(apply("reduce", x.node, monoid=monoid, axes=axes), tuple(n for n in x.names if n not in over))

    def row_of(self, r: int) -> Row:
        return self.terms.rows[r]


Maker = Callable[[Decoder, Row, list[Value]], Value]


def _const(d: Decoder, row: Row, kids: list[Value]) -> Value:
    return d.scalar(row[1][0])


def _leaf(d: Decoder, row: Row, kids: list[Value]) -> Value:
    """An operand under other names than its own."""
    name, names, _ = row[1]
    if len(set(names)) < len(names):
        raise Inexpressible("a diagonal")
    return Value(d._source(d.window.leaves[name]).node, tuple(names))


def _ein(d: Decoder, row: Row, kids: list[Value]) -> Value:
    summed = set(row[1][0])
    if len(kids) == 1:
        return _scaled_by_absent(d, d.reduced("add", kids[0], summed), summed - set(kids[0].names))
    a, b = kids  # the answer has no more
    absent = summed - set(a.names) - set(b.names)
    shared = summed & set(a.names) & set(b.names)
    if not shared:
        out = _product(d, row, d.reduced("add", a, summed), d.reduced("add", b, summed))
        return _scaled_by_absent(d, out, absent)
    found = _conv(d, row, kids, summed) or _conv(d, (row[0], row[1], row[2][::-1]), kids[::-1], summed)
    return _scaled_by_absent(d, found or _dot(d, a, b, summed), absent)


def _scaled_by_absent(d: Decoder, x: Value, absent: set[str]) -> Value:
    """A sum over indices that nothing depends on: times their sizes."""
    size = index.product(map(d.dim, sorted(absent)))
    if size == 1:
        return x
    count = d.scalar(float(size)) if isinstance(size, int) else Value(apply("dimension", dim=size, dtype=d.dtype), ())
    return d.pointwise("mul", [x, count])


def _product(d: Decoder, row: Row, a: Value, b: Value) -> Value:
    """A pointwise product: a division by what is inverted, a negation by -1."""
    for (value, other), number in (((a, b), row[2][1]), ((b, a), row[2][0])):
        op, attrs, kids = d.row_of(number)
        if (op, attrs) == ("const", (-1.0,)):
            return Value(apply("neg", value.node), value.names)
        if (op, attrs) == ("un", ("inv",)) and other is d._values.get(number):
            return d.pointwise("div", [value, d.value(kids[0])])
    first, second = (a, b) if len(a.names) >= len(b.names) else (b, a)
    return d.pointwise("mul", [first, second])


def _dot(d: Decoder, a: Value, b: Value, summed: set[str]) -> Value:
    """A contraction over the summed indices that both have; what only one has is summed before."""
    shared = summed & set(a.names) & set(b.names)
    a, b = d.reduced("add", a, summed - shared), d.reduced("add", b, summed - shared)
    batch = [n for n in d.sorted(set(a.names) & set(b.names)) if n not in shared]
    own = [[n for n in x.names if n not in shared and n not in batch] for x in (a, b)]
    if own[1] and (not own[0] or d.sorted({*own[0], *own[1]})[0] in own[1]):
        a, b, own = b, a, own[::-1]
    over = [n for n in a.names if n in shared]
    pairs = [tuple(tuple(x.names.index(n) for n in which) for x in (a, b)) for which in (batch, over)]
    return Value(apply("dot", a.node, b.node, batch=pairs[0], contract=pairs[1]), (*batch, *own[0], *own[1]))


def _conv(d: Decoder, row: Row, kids: list[Value], summed: set[str]) -> Value | None:
    """The convolution of the first factor, windows of something, with the second; None where it is none."""
    windows, base = [], row[2][0]
    while d.row_of(base)[0] == "win":
        windows.append(d.row_of(base)[1])
        base = d.row_of(base)[2][0]
    w = kids[1]
    inner = {r for _, _, r, _, _ in windows}
    if not windows or not inner <= summed & set(w.names):
        return None
    x = d.value(base)
    outer = {h for h, *_ in windows}
    windows.sort(key=lambda step: x.names.index(step[0]) if step[0] in x.names else -1)
    channels = d.sorted((summed - inner) & set(x.names) & set(w.names))
    batch = [n for n in x.names if n not in outer and n not in channels]
    out = [n for n in w.names if n not in inner and n not in channels]
    if not outer <= set(x.names) or set(batch) & (set(w.names) | summed) or set(out) & summed or summed - inner - set(channels):
        return None
    image = _grouped(d, x, [batch, *([h] for h, *_ in windows), channels])
    weights = _grouped(d, w, [*([r] for _, _, r, _, _ in windows), channels, out])
    attrs = {"strides": tuple(s for *_, s, _ in windows), "dilations": tuple(e for *_, e in windows), "groups": 1}
    names = (*batch, *(p for _, p, *_ in windows), *out)
    return Value(reshape(apply("conv", image, weights, **attrs), map(d.dim, names)), names)


def _grouped(d: Decoder, x: Value, groups: list[list[str]]) -> Node:
    """`x` with an axis for each group of its indices."""
    node = d.aligned(x, [n for g in groups for n in g])
    return reshape(node, (index.product(map(d.dim, g)) for g in groups))


def _add(d: Decoder, row: Row, kids: list[Value]) -> Value:
    """A sum; terms that are -1 times something are subtracted, the others come first."""
    plus, minus = [], []
    for number, value in zip(row[2], kids):
        op, attrs, factors = d.row_of(number)
        negative = [k for k in factors if d.row_of(k) == ("const", (-1.0,), ())]
        if op == "ein" and attrs == ((),) and len(factors) == 2 and len(negative) == 1:
            minus.append(d.value(next(k for k in factors if k not in negative)))
        else:
            plus.append(value)
    if not plus:
        plus = [d.scalar(0.0)]
    out = plus[0]
    for value in plus[1:]:
        out = d.pointwise("add", [out, value])
    for value in minus:
        out = d.pointwise("sub", [out, value])
    return out


def _apply(d: Decoder, row: Row, kids: list[Value]) -> Value:
    op = row[1][0]
    if op == "inv":
        return d.pointwise("div", [Value(full(1.0, d.dtype, kids[0].node.type.shape), kids[0].names), kids[0]])
    return d.pointwise(op, kids)


def _max(d: Decoder, row: Row, kids: list[Value]) -> Value:
    return d.reduced("max", kids[0], {row[1][0]})


def _ren(d: Decoder, row: Row, kids: list[Value]) -> Value:
    i, j = row[1]
    if i in kids[0].names and j in kids[0].names:
        raise Inexpressible("a diagonal")
    return Value(kids[0].node, tuple(j if n == i else n for n in kids[0].names))


def _win(d: Decoder, row: Row, kids: list[Value]) -> Value:
    h, p, r, stride, dilation = row[1]
    (x,) = kids
    if h not in x.names:
        return x
    size = d.dim(r)
    assert isinstance(size, int)
    at = x.names.index(h)
    node = apply("window", x.node, axes=(at,), sizes=(size,), strides=(stride,), dilations=(dilation,))
    return Value(node, (*x.names[:at], p, *x.names[at + 1 :], r))


def _cat(d: Decoder, row: Row, kids: list[Value]) -> Value:
    """Both operands with the joined indices as one last axis."""
    n, *groups = row[1]
    rest = d.sorted({m for k, g in zip(kids, groups) for m in k.names if m not in g})
    parts = [_grouped(d, k, [*([m] for m in rest), list(g)]) for k, g in zip(kids, groups)]
    return Value(apply("concat", *parts, axis=len(rest)), (*rest, n))


def _part(d: Decoder, row: Row, kids: list[Value]) -> Value:
    n, which, group = row[1]
    (x,) = kids
    at, shape = x.names.index(n), x.node.type.shape
    count = index.product(map(d.dim, group))
    start = tuple(index.sub(s, count) if k == at and which else 0 for k, s in enumerate(shape))
    sizes = tuple(count if k == at else s for k, s in enumerate(shape))
    node = apply("slice", x.node, start=start, shape=sizes, step=(1,) * len(shape))
    names = (*x.names[:at], *group, *x.names[at + 1 :])
    return Value(reshape(node, map(d.dim, names)), names)


_MAKERS: dict[str, Maker] = {
    "const": _const,
    "leaf": _leaf,
    "ein": _ein,
    "add": _add,
    "un": _apply,
    "bin": _apply,
    "tri": _apply,
    "max": _max,
    "ren": _ren,
    "win": _win,
    "cat": _cat,
    "part": _part,
}
