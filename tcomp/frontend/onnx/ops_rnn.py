"""RNN, GRU and LSTM: loops over the steps, of what depends on the state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tcomp.frontend.onnx import build, regions
from tcomp.frontend.onnx.build import scalar, with_scalar
from tcomp.frontend.onnx.ops_activation import softplus_of
from tcomp.frontend.onnx.ops_linear import dot
from tcomp.frontend.onnx.registry import Context, operator
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.graph import broadcast, cast, full, reshape, transpose
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import apply

Function = Callable[[Node], Node]
Product = Callable[[Node], Node]  # by weights that are no plain matrix


def _activation(name: str, alpha: float | None, beta: float | None) -> Function | None:
    """An activation by its name in the operators' attributes."""

    def line(x: Node, a: float, b: float) -> Node:
        return with_scalar("add", with_scalar("mul", x, a), b)

    def below(x: Node, y: Node) -> Node:
        return apply("where", with_scalar("lt", x, 0), y, x)

    a = {"leakyrelu": 0.01, "hardsigmoid": 0.2}.get(name.lower(), 1.0) if alpha is None else alpha
    b = {"hardsigmoid": 0.5, "affine": 0.0}.get(name.lower(), 1.0) if beta is None else beta
    table: dict[str, Function] = {
        "sigmoid": lambda x: apply("sigmoid", x),
        "tanh": lambda x: apply("tanh", x),
        "relu": lambda x: with_scalar("max", x, 0),
        "affine": lambda x: line(x, a, b),
        "leakyrelu": lambda x: below(x, with_scalar("mul", x, a)),
        "thresholdedrelu": lambda x: apply("where", with_scalar("ge", x, a), x, scalar(0, x)),
        "scaledtanh": lambda x: with_scalar("mul", apply("tanh", with_scalar("mul", x, b)), a),
        "hardsigmoid": lambda x: with_scalar("max", with_scalar("min", line(x, a, b), 1), 0),
        "elu": lambda x: below(x, with_scalar("mul", apply("expm1", x), a)),
        "softsign": lambda x: apply("div", x, with_scalar("add", apply("abs", x), 1)),
        "softplus": softplus_of,
    }
    return table.get(name.lower())


@dataclass(frozen=True, slots=True)
class Direction:
    """The weights of one direction, and its activations. w: [gates*h, in]; r: [gates*h, h]; products of their own where such are
    given. bias: [gates*h], of w, and of r where it can be added to the same sum; late: what is left of that of r (GRU: [h])."""

    w: Node
    r: Node
    bias: Node
    late: Node | None
    peephole: tuple[Node, ...]
    f: tuple[Function, ...]
    hidden: int
    products: tuple[Product, Product] | None = None

    def by_w(self, x: Node) -> Node:
        return _times(x, self.w) if self.products is None else self.products[0](x)

    def by_r(self, x: Node) -> Node:
        return _times(x, self.r) if self.products is None else self.products[1](x)


State = tuple[Node, ...]
Cell = Callable[[Context, Direction, Node, State], State]


def _directions(
    c: Context, gates: int, w: Node, r: Node, b: Node | None, p: Node | None, defaults: Sequence[str]
) -> list[Direction]:
    """The weights of each direction, apart; gates in the operator's order."""
    wanted = 2 if c.string("direction", "forward") == "bidirectional" else 1
    if c.has("hidden_size"):
        hidden = c.integer("hidden_size")
        w = build.relabel(w, (wanted, gates * hidden, w.type.shape[2]))
        r = build.relabel(r, (wanted, gates * hidden, hidden))
        b, p = (v if v is None else build.relabel(v, (wanted, n * hidden)) for v, n in ((b, 2 * gates), (p, 3)))
    count, rows = w.type.shape[0], w.type.shape[1]
    hidden = c.integer("hidden_size", index.floordiv(rows, gates))
    if not isinstance(count, int) or rows != gates * hidden or count != wanted:
        raise c.broken(f"weights of type {w.type} for hidden_size {hidden}", f"{gates} gates for each direction")
    functions, n = _functions(c, tuple(defaults) * count), len(defaults)
    if len(functions) != n * count:
        raise c.broken(f"{len(functions)} activations", f"{n * count}")
    zero = full(0, w.type.dtype, (rows,))
    found = []
    for k in range(count):
        wb, rb = (zero if b is None else _part(build.pick(b, 0, k), j * rows, rows) for j in (0, 1))
        peephole = () if p is None else tuple(_part(build.pick(p, 0, k), j * hidden, hidden) for j in range(3))
        bias, late = _biases(c, wb, rb, hidden)
        by_w, by_r = (build.pick(v, 0, k) for v in (w, r))
        found.append(Direction(by_w, by_r, bias, late, peephole, tuple(functions[k * n : k * n + n]), hidden))
    return found


def _biases(c: Context, wb: Node, rb: Node, hidden: Dim) -> tuple[Node, Node | None]:
    """The bias that is added before the loop, and the one that a GRU adds before it resets."""
    if not c.integer("linear_before_reset", 0):
        return apply("add", wb, rb), None
    rows = rb.type.shape[0]
    early = index.sub(rows, hidden)
    zero = full(0, rb.type.dtype, (hidden,))
    return apply("add", wb, build.concat([_part(rb, 0, early), zero], 0)), _part(rb, early, hidden)


def _functions(c: Context, defaults: tuple[str, ...]) -> list[Function]:
    """The activations, each taking its alpha and beta, where it has them, from the lists."""
    alphas, betas = list(c.reals("activation_alpha", ())), list(c.reals("activation_beta", ()))
    functions = []
    for name in c.strings("activations", defaults):
        takes_alpha = name.lower() in ("affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu")
        takes_beta = name.lower() in ("affine", "scaledtanh", "hardsigmoid")
        f = _activation(name, alphas.pop(0) if takes_alpha and alphas else None, betas.pop(0) if takes_beta and betas else None)
        if f is None:
            raise c.unsupported(f"activation {name!r}")
        functions.append(f)
    return functions


def _part(x: Node, start: Dim, size: Dim) -> Node:
    """Part of the last axis."""
    return build.take(x, x.type.rank - 1, start, size)


def _times(x: Node, w: Node) -> Node:
    """x by the transposed matrix w."""
    return dot(x, w, ((), ()), ((x.type.rank - 1,), (1,)))


def _plus(x: Node, bias: Node) -> Node:
    return apply("add", x, build.spread(bias, x.type.shape))


def _clipped(c: Context, x: Node) -> Node:
    limit = c.real("clip", 0.0)
    return with_scalar("max", with_scalar("min", x, limit), -limit) if limit else x


def _recurrent(
    c: Context, cell: Cell, directions: list[Direction], x: Node, lengths: Node | None, start: Sequence[Node | None]
) -> tuple[Node, ...]:
    """(y, last state...) of the cell run over x in every direction."""
    batch_first = bool(c.integer("layout", 0))
    if batch_first:
        x = transpose(x, (1, 0, 2))
        start = [s if s is None else transpose(s, (1, 0, 2)) for s in start]
    steps, batch = x.type.shape[:2]
    if lengths is not None:
        lengths = build.relabel(lengths, (batch,))
    lines, last = [], []
    for k, d in enumerate(directions):
        zero = full(0, x.type.dtype, (batch, d.hidden))
        state = tuple(zero if s is None else build.relabel(build.pick(s, 0, k), zero.type.shape) for s in start)
        backwards = c.string("direction", "forward") == "reverse" or k == 1
        line, state = _run(c, cell, d, x, lengths, state, backwards)
        lines.append(line)
        last.append(state)
    y = build.concat([reshape(v, (steps, 1, *v.type.shape[1:])) for v in lines], 1)
    ends = [build.concat([reshape(s[j], (1, *s[j].type.shape)) for s in last], 0) for j in range(len(start))]
    if batch_first:
        y, ends = transpose(y, (2, 0, 1, 3)), [transpose(e, (1, 0, 2)) for e in ends]
    return (y, *ends)


def _run(
    c: Context, cell: Cell, d: Direction, x: Node, lengths: Node | None, state: State, backwards: bool
) -> tuple[Node, State]:
    """All outputs of one direction as [steps, batch, hidden], and the last state. What needs no state is one product of all
    steps."""
    inputs = _plus(d.by_w(x), d.bias)
    steps = x.type.shape[0]

    def turn(step: Node, state: State) -> State:
        at = index.sub(index.sub(steps, 1), step) if backwards else step
        new = cell(c, d, build.pick(inputs, 0, at), state)
        shown = new[0]
        if lengths is not None:
            place = broadcast(build.dimension(at, dt.i64), lengths.type.shape, ())
            on = broadcast(apply("gt", cast(lengths, dt.i64), place), shown.type.shape, (0,))
            new = tuple(apply("where", on, n, o) for n, o in zip(new, state))
            shown = apply("where", on, shown, scalar(0, shown))
        return (*new, shown)

    *last, line = regions.loop(c, state, steps, turn)
    return (build.flip(line, (0,)) if backwards else line), tuple(last)


def _needed_lengths(c: Context, lengths: Node | None, x: Node) -> Node | None:
    """The lengths, unless all sequences are known to be whole."""
    known = c.constant(lengths)
    steps = x.type.shape[1 if c.integer("layout", 0) else 0]
    return None if known is not None and (known == steps).all() else lengths


def _rnn_cell(c: Context, d: Direction, x: Node, state: State) -> State:
    (h,) = state
    return (d.f[0](_clipped(c, apply("add", x, _times(h, d.r)))),)


@operator("RNN")
def rnn(
    c: Context, x: Node, w: Node, r: Node, b: Node | None = None, lengths: Node | None = None, h: Node | None = None
) -> tuple[Node, ...]:
    return _recurrent(c, _rnn_cell, _directions(c, 1, w, r, b, None, ("Tanh",)), x, _needed_lengths(c, lengths, x), [h])


def _gru_cell(c: Context, d: Direction, x: Node, state: State) -> State:
    (h,), n = state, d.hidden
    gates = _times(h, d.r if d.late is not None else _rows(d.r, 0, 2 * n))
    z, r = (d.f[0](_clipped(c, apply("add", _part(x, k * n, n), _part(gates, k * n, n)))) for k in (0, 1))
    if d.late is not None:
        inner = apply("mul", r, _plus(_part(gates, 2 * n, n), d.late))
    else:
        inner = _times(apply("mul", r, h), _rows(d.r, 2 * n, n))
    new = d.f[1](_clipped(c, apply("add", _part(x, 2 * n, n), inner)))
    return (apply("add", apply("mul", apply("sub", scalar(1, z), z), new), apply("mul", z, h)),)


def _rows(x: Node, start: int, size: int) -> Node:
    return build.take(x, 0, start, size)


@operator("GRU")
def gru(
    c: Context, x: Node, w: Node, r: Node, b: Node | None = None, lengths: Node | None = None, h: Node | None = None
) -> tuple[Node, ...]:
    directions = _directions(c, 3, w, r, b, None, ("Sigmoid", "Tanh"))
    return _recurrent(c, _gru_cell, directions, x, _needed_lengths(c, lengths, x), [h])


def _lstm_cell(c: Context, d: Direction, x: Node, state: State) -> State:
    (h, cell), n = state, d.hidden
    total = apply("add", x, d.by_r(h))
    i, o, f, g = (_part(total, k * n, n) for k in range(4))
    if d.peephole:
        i, f = (apply("add", v, _peep(p, cell)) for v, p in ((i, d.peephole[0]), (f, d.peephole[2])))
    i = d.f[0](_clipped(c, i))
    f = apply("sub", scalar(1, i), i) if c.integer("input_forget", 0) else d.f[0](_clipped(c, f))
    new = apply("add", apply("mul", f, cell), apply("mul", i, d.f[1](_clipped(c, g))))
    if d.peephole:
        o = apply("add", o, _peep(d.peephole[1], new))
    return apply("mul", d.f[0](_clipped(c, o)), d.f[2](new)), new


def _peep(p: Node, cell: Node) -> Node:
    return apply("mul", build.spread(p, cell.type.shape), cell)


@operator("LSTM")
def lstm(
    c: Context, x: Node, w: Node, r: Node, b: Node | None = None, lengths: Node | None = None, h: Node | None = None,
    cell: Node | None = None, p: Node | None = None,
) -> tuple[Node, ...]:  # fmt: skip
    return lstm_of(c, x, w, r, b, lengths, h, cell, p)


def lstm_of(
    c: Context, x: Node, w: Node, r: Node, b: Node | None, lengths: Node | None, h: Node | None, cell: Node | None,
    p: Node | None, products: Callable[[int], tuple[Product, Product]] | None = None,
) -> tuple[Node, ...]:  # fmt: skip
    """products: what stands for the products by w and r of each direction."""
    directions = _directions(c, 4, w, r, b, p, ("Sigmoid", "Tanh", "Tanh"))
    if products is not None:
        directions = [replace(d, products=products(k)) for k, d in enumerate(directions)]
    return _recurrent(c, _lstm_cell, directions, x, _needed_lengths(c, lengths, x), [h, cell])
