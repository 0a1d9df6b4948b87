"""Einstein summation: any spelling NumPy takes, as a sequence of pairwise contractions in an order found by opt_einsum.

Every step works on operands whose axes carry labels, each label once. A label of one operand alone is summed at once; a pair
becomes one `dot`, or a product where nothing is contracted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tcomp.errors import Error
from tcomp.frontend.numpy_api.manipulation import common_operands
from tcomp.frontend.numpy_api.selection import diagonal_node
from tcomp.frontend.registry import public
from tcomp.frontend.tracer import Traced
from tcomp.ir import index
from tcomp.ir.graph import reshape, transpose
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import apply

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True)
class Labelled:
    """An operand whose axis k is named labels[k]."""

    node: Node
    labels: tuple[str, ...]

    def without(self, labels: Iterable[str]) -> tuple[str, ...]:
        gone = set(labels)
        return tuple(c for c in self.labels if c not in gone)

    def axes(self, labels: Iterable[str]) -> tuple[int, ...]:
        return tuple(self.labels.index(c) for c in labels)


def canonical(*args: Any, **options: Any) -> tuple[Any, ...]:
    """(subscripts, *operands) of either form: text first, or arrays each followed by its list of labels."""
    if not args or isinstance(args[0], str):
        return args
    pairs = list(zip(args[::2], args[1::2]))
    text = ",".join(_spell(labels) for _, labels in pairs)
    text += f"->{_spell(args[-1])}" if len(args) % 2 else ""
    return (text, *(x for x, _ in pairs))


def _spell(labels: Sequence[Any]) -> str:
    return "".join("..." if k is Ellipsis else _LETTERS[int(k)] for k in labels)


@public("operands", canonical=canonical)
def einsum(subscripts: Any, /, *operands: Any, optimize: Any = True, dtype: Any = None, **options: Any) -> Traced:
    """Sums of products named by labels: `einsum("ij,jk->ik", a, b)`. Ellipsis, repeated labels and the implicit form work."""
    subscripts, *operands = canonical(subscripts, *operands)  # type: ignore[assignment]
    if options.keys() - {"order", "casting"}:
        raise Error("TC0105", f"einsum with {', '.join(options)}", "optimize and dtype")
    listed, target = common_operands(operands, dtype)
    nodes = [o.as_node(target) for o in listed]
    inputs, output = parse(subscripts, [n.type.rank for n in nodes])
    terms = [_once(Labelled(n, i)) for n, i in zip(nodes, inputs)]
    terms = _equal_sizes(terms, output)
    return Traced(_contract(terms, output))


def parse(subscripts: str, ranks: list[int]) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """Labels of each operand and of the result; the axes of an Ellipsis are named `.0`, `.1`, ... from the last."""
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    parts = left.split(",")
    if len(parts) != len(ranks):
        raise Error("TC0105", f"einsum `{subscripts}` of {len(ranks)} operands", f"{len(parts)} operands")
    inputs = [_labels(p, rank, subscripts) for p, rank in zip(parts, ranks)]
    spread = sorted({c for labels in inputs for c in labels if c[0] == "."}, key=lambda c: -int(c[1:]))
    counts = Counter(c for labels in inputs for c in labels)
    if not arrow:
        return inputs, (*spread, *sorted(c for c, k in counts.items() if k == 1 and c[0] != "."))
    output = tuple(_result_labels(right, spread))
    if len(set(output)) != len(output) or any(c not in counts for c in output):
        raise Error("TC0105", f"einsum `{subscripts}`", "in the result, labels of the operands, each once")
    return inputs, output


def _labels(part: str, rank: int, subscripts: str) -> tuple[str, ...]:
    before, dots, after = part.partition("...")
    named = len(before) + len(after)
    if not all(c in _LETTERS for c in before + after) or rank < named or (rank > named and not dots):
        raise Error(
            "TC0105", f"einsum `{subscripts}`, whose `{part}` stands for rank {rank}", "one letter for each axis, or `...`"
        )
    return (*before, *(f".{k}" for k in range(rank - named - 1, -1, -1)), *after)


def _result_labels(right: str, spread: list[str]) -> list[str]:
    before, dots, after = right.partition("...")
    if not all(c in _LETTERS for c in before + after) or (spread and not dots):
        raise Error("TC0105", f"einsum result `{right}`", "letters, and `...` where the operands have it")
    return [*before, *spread, *after]


def _once(x: Labelled) -> Labelled:
    """Diagonals in place of repeated labels."""
    while repeated := next((c for c, k in Counter(x.labels).items() if k > 1), None):
        first = x.labels.index(repeated)
        second = x.labels.index(repeated, first + 1)
        if x.node.type.shape[first] != x.node.type.shape[second]:
            raise Error("TC0102", f"einsum label `{repeated}` twice in {x.node.type}", "equal sizes")
        rest = [a for a in range(x.node.type.rank) if a not in (first, second)]
        node = diagonal_node(transpose(x.node, (*rest, first, second)))
        x = Labelled(node, (*(x.labels[a] for a in rest), repeated))
    return x


def _equal_sizes(terms: list[Labelled], output: tuple[str, ...]) -> list[Labelled]:
    """Axes of size 1 that meet larger ones vanish: they broadcast. TC0102 where sizes differ otherwise."""
    sizes: dict[str, Dim] = {}
    for t in terms:
        for c, d in zip(t.labels, t.node.type.shape):
            known = sizes.setdefault(c, d)
            if known == 1:
                sizes[c] = d
            elif d not in (1, known):
                found = f"einsum label `{c}` of sizes {index.show(known)} and {index.show(d)}"
                raise Error("TC0102", found, "equal sizes, or 1")
    return [_squeezed(t, sizes) for t in terms]


def _squeezed(t: Labelled, sizes: dict[str, Dim]) -> Labelled:
    kept = [a for a, (c, d) in enumerate(zip(t.labels, t.node.type.shape)) if d == sizes[c]]
    node = reshape(t.node, tuple(t.node.type.shape[a] for a in kept))
    return Labelled(node, tuple(t.labels[a] for a in kept))


def _contract(terms: list[Labelled], output: tuple[str, ...]) -> Node:
    """Pairs, in the order that costs least, until one operand is left."""
    for pair in _path(terms, output):
        chosen = [terms[k] for k in pair]
        terms = [t for k, t in enumerate(terms) if k not in pair]
        needed = {*output, *(c for t in terms for c in t.labels)}
        merged = chosen[0]
        for other in chosen[1:]:
            merged = _pair(merged, other, needed)
        terms.append(merged)
    last = _summed(terms[0], set(output))
    return transpose(last.node, last.axes(output))


def _path(terms: list[Labelled], output: tuple[str, ...]) -> list[tuple[int, ...]]:
    """Which operands to join at each step; positions count in the list of what is left, results go to its end."""
    if len(terms) <= 2:
        return [(0, 1)] if len(terms) == 2 else []
    import opt_einsum

    names = {c: _symbol(k) for k, c in enumerate(dict.fromkeys(c for t in terms for c in t.labels))}
    text = ",".join("".join(names[c] for c in t.labels) for t in terms) + "->" + "".join(names[c] for c in output)
    sizes = [tuple(map(index.likely, t.node.type.shape)) for t in terms]
    path, _ = opt_einsum.contract_path(text, *sizes, shapes=True, optimize="dp" if len(terms) < 12 else "auto")
    return [tuple(p) for p in path]


def _symbol(k: int) -> str:
    return _LETTERS[k] if k < len(_LETTERS) else chr(0x100 + k)


def _summed(x: Labelled, needed: set[str]) -> Labelled:
    """x summed over labels that nothing needs."""
    gone = [c for c in x.labels if c not in needed]
    if not gone:
        return x
    monoid = "or" if x.node.type.dtype.kind == "bool" else "add"
    return Labelled(apply("reduce", x.node, monoid=monoid, axes=tuple(sorted(x.axes(gone)))), x.without(gone))


def _pair(a: Labelled, b: Labelled, needed: set[str]) -> Labelled:
    """The product of two operands, summed over what nothing else needs."""
    a = _summed(a, needed | set(b.labels))
    b = _summed(b, needed | set(a.labels))
    shared = [c for c in a.labels if c in b.labels]
    contracted = [c for c in shared if c not in needed]
    if not contracted:
        return _product(a, b)
    batch = [c for c in shared if c in needed]
    node = apply("dot", a.node, b.node, batch=(a.axes(batch), b.axes(batch)), contract=(a.axes(contracted), b.axes(contracted)))
    return Labelled(node, (*batch, *a.without(shared), *b.without(shared)))


def _product(a: Labelled, b: Labelled) -> Labelled:
    """The elementwise product over the union of the labels."""
    labels = (*a.labels, *b.without(a.labels))
    size = {**dict(zip(b.labels, b.node.type.shape)), **dict(zip(a.labels, a.node.type.shape))}
    shape = tuple(size[c] for c in labels)
    op = "and" if a.node.type.dtype.kind == "bool" else "mul"
    return Labelled(apply(op, _spread(a, labels, shape), _spread(b, labels, shape)), labels)


def _spread(x: Labelled, labels: tuple[str, ...], shape: tuple[Dim, ...]) -> Node:
    order = [c for c in labels if c in x.labels]
    node = transpose(x.node, x.axes(order))
    places = tuple(labels.index(c) for c in order)
    return node if places == tuple(range(len(labels))) else apply("broadcast", node, shape=shape, axes=places)
