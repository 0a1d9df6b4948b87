"""Products: MatMul, Gemm, Einsum, and the integer products."""

from __future__ import annotations

from tcomp.frontend.onnx import build
from tcomp.frontend.onnx.build import unify
from tcomp.frontend.onnx.ops_math import position
from tcomp.frontend.onnx.registry import Context, operator
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.graph import broadcast, cast, full, reshape, transpose
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import apply

Pairs = tuple[tuple[int, ...], tuple[int, ...]]


def dot(a: Node, b: Node, batch: Pairs, contract: Pairs) -> Node:
    """The `dot` of operands whose paired sizes are brought to one expression."""
    sa, sb = list(a.type.shape), list(b.type.shape)
    for i, j in (*zip(*batch), *zip(*contract)):
        sa[i] = sb[j] = unify(sa[i], sb[j])
    return apply("dot", reshape(a, sa), reshape(b, sb), batch=batch, contract=contract)


def matmul_of(a: Node, b: Node) -> Node:
    """NumPy's matmul."""
    if a.type.rank == 1:
        out = matmul_of(reshape(a, (1, *a.type.shape)), b)
        drop = out.type.rank - (1 if b.type.rank == 1 else 2)
        return reshape(out, (*out.type.shape[:drop], *out.type.shape[drop + 1 :]))
    if b.type.rank == 1:
        return dot(a, b, ((), ()), ((a.type.rank - 1,), (0,)))
    if all(d == 1 for d in b.type.shape[:-2]) and a.type.rank >= b.type.rank:
        return dot(a, reshape(b, b.type.shape[-2:]), ((), ()), ((a.type.rank - 1,), (0,)))
    lead = build.broadcast_shapes(a.type.shape[:-2], b.type.shape[:-2])
    n = len(lead)
    a, b = (build.spread(x, (*lead, *x.type.shape[-2:])) for x in (a, b))
    both = (tuple(range(n)), tuple(range(n)))
    return dot(a, b, both, ((n + 1,), (n,)))


@operator("MatMul")
def matmul(c: Context, a: Node, b: Node) -> Node:
    if not a.type.rank or not b.type.rank:
        raise c.broken(f"operands of types {a.type} and {b.type}", "rank 1 or more")
    return matmul_of(a, b)


@operator("Gemm")
def gemm(c: Context, a: Node, b: Node, bias: Node | None = None) -> Node:
    if a.type.rank != 2 or b.type.rank != 2:
        raise c.broken(f"operands of types {a.type} and {b.type}", "matrices")
    inner = ((0,) if c.integer("transA", 0) else (1,), (1,) if c.integer("transB", 0) else (0,))
    out = _scaled(dot(a, b, ((), ()), inner), c.real("alpha", 1.0))
    beta = c.real("beta", 1.0)
    if bias is None or beta == 0:
        return out
    return apply("add", out, build.spread(_scaled(bias, beta), out.type.shape))


def _scaled(x: Node, factor: float) -> Node:
    if factor == 1:
        return x
    if x.type.dtype.is_float:
        return build.with_scalar("mul", x, factor)
    return cast(build.with_scalar("mul", cast(x, dt.f64), factor), x.type.dtype)


@operator("Einsum", since=12)
def einsum(c: Context, *xs: Node) -> Node:
    """Operands from left to right: labels that are not needed any more are summed by each `dot`."""
    inputs, output = _labels(c, xs)
    terms = [_diagonal(x, labels) for x, labels in zip(xs, inputs)]
    sizes: dict[str, Dim] = {}
    for x, labels in terms:
        for d, label in zip(x.type.shape, labels):
            sizes[label] = build.broadcast_shapes((sizes.get(label, 1),), (d,))[0]
    terms = [(build.widened(x, tuple(sizes[label] for label in labels)), labels) for x, labels in terms]
    total, have = terms[0]
    total, have = _summed(total, have, set(output).union(*(labels for _, labels in terms[1:])))
    for k, (x, labels) in enumerate(terms[1:], 1):
        needed = set(output).union(*(later for _, later in terms[k + 1 :]))
        total, have = _contract(total, have, x, labels, needed)
    total, have = _summed(total, have, set(output))
    if any(label not in have for label in output) or len(set(output)) != len(output):
        raise c.broken(f"equation {c.string('equation')!r}", "results named once, each in an operand")
    total = transpose(total, [have.index(label) for label in output])
    return build.spread(total, tuple(sizes[label] for label in output))


def _labels(c: Context, xs: tuple[Node, ...]) -> tuple[list[list[str]], list[str]]:
    """The labels of every operand's axes and of the result's; an ellipsis gets labels that are numbers."""
    equation = c.string("equation").replace(" ", "")
    left, arrow, right = equation.partition("->")
    parts = left.split(",")
    if len(parts) != len(xs):
        raise c.broken(f"equation {equation!r} for {len(xs)} operands", "one term for each")
    inputs = [_term(c, part, x.type.rank) for part, x in zip(parts, xs)]
    rest = sorted({label for labels in inputs for label in labels if label.isdigit()}, key=lambda k: -int(k))
    if arrow:
        return inputs, [label for part in (right.partition("...")) for label in (rest if part == "..." else part)]
    every = [label for labels in inputs for label in labels]
    return inputs, rest + sorted(label for label in set(every) if every.count(label) == 1 and not label.isdigit())


def _term(c: Context, part: str, rank: int) -> list[str]:
    head, dots, tail = part.partition("...")
    hidden = rank - len(head) - len(tail)
    if hidden < 0 or (hidden and not dots) or (head + tail and not (head + tail).isalpha()):
        raise c.broken(f"term {part!r} for an operand of rank {rank}", "one letter for each axis")
    return [*head, *(str(k) for k in reversed(range(hidden))), *tail]


def _diagonal(x: Node, labels: list[str]) -> tuple[Node, list[str]]:
    """`x` with one axis for each label: repeated labels keep the diagonal."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            i = labels.index(label)
            j = labels.index(label, i + 1)
            x = reshape(x, [unify(x.type.shape[i], x.type.shape[j]) if a in (i, j) else d for a, d in enumerate(x.type.shape)])
            shape = x.type.shape
            on = apply("eq", position(shape, i), position(shape, j))
            x = build.reduce(apply("where", on, x, build.scalar(0, x)), "add", (j,), False)
            labels = labels[:j] + labels[j + 1 :]
    return x, labels


def _summed(x: Node, labels: list[str], needed: set[str]) -> tuple[Node, list[str]]:
    axes = tuple(a for a, label in enumerate(labels) if label not in needed)
    return (build.reduce(x, "add", axes, False) if axes else x), [label for label in labels if label in needed]


def _contract(a: Node, la: list[str], b: Node, lb: list[str], needed: set[str]) -> tuple[Node, list[str]]:
    """The product of two terms; size-1 axes of a shared label are dropped where the other term has more."""
    a, la = _summed(a, la, needed | set(lb))
    b, lb = _summed(b, lb, needed | set(la))
    a, la = _without_ones(a, la, b, lb)
    b, lb = _without_ones(b, lb, a, la)
    shared = [label for label in la if label in lb]
    batch = [label for label in shared if label in needed]
    inner = [label for label in shared if label not in needed]
    a, la = _summed(a, la, needed | set(lb))
    b, lb = _summed(b, lb, needed | set(la))
    pairs = [(tuple(map(la.index, ls)), tuple(map(lb.index, ls))) for ls in (batch, inner)]
    out = dot(a, b, pairs[0], pairs[1])
    return out, batch + [label for label in la if label not in shared] + [label for label in lb if label not in shared]


def _without_ones(a: Node, la: list[str], b: Node, lb: list[str]) -> tuple[Node, list[str]]:
    drop = {k for k, label in enumerate(la) if label in lb and a.type.shape[k] == 1 and b.type.shape[lb.index(label)] != 1}
    kept = [k for k in range(len(la)) if k not in drop]
    return reshape(a, [a.type.shape[k] for k in kept]), [la[k] for k in kept]


def shifted(x: Node, zero: Node | None, axis: int) -> Node:
    """`x` as i32, less its zero point: a scalar, a vector along `axis`, or of x's own rank."""
    wide = cast(x, dt.i32)
    if zero is None:
        return wide
    z = cast(zero, dt.i32)
    if index.product(z.type.shape) == 1:
        return apply("sub", wide, broadcast(reshape(z, ()), wide.type.shape, ()))
    z = build.along(z, axis, wide.type.shape) if z.type.rank == 1 else build.spread(z, wide.type.shape)
    return apply("sub", wide, z)


@operator("MatMulInteger", since=10)
def matmul_integer(c: Context, a: Node, b: Node, za: Node | None = None, zb: Node | None = None) -> Node:
    return matmul_of(shifted(a, za, max(a.type.rank - 2, 0)), shifted(b, zb, b.type.rank - 1))


def zeros(x: Node) -> Node:
    return full(0, x.type.dtype, x.type.shape)
