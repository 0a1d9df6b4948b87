"""Bodies of control flow as regions: what they read from outside becomes captures.

A subgraph is imported over parameters with names of its own; afterwards every node that needs none of them is outside: a capture,
computed once. What could fault stays inside, for the body may not run at all. Sizes that are data of the body are sizes of the
region; where a result has one, or a carried value changes its size, the size is a result, too (ADR 14).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from tcomp.errors import Error
from tcomp.frontend.onnx import build
from tcomp.frontend.onnx.registry import Context
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.graph import reshape
from tcomp.ir.node import Dim, Node, walk
from tcomp.ir.ops import apply, item, parameter
from tcomp.ir.ops.control import differing
from tcomp.ir.ops.table import INDEXING, OPS
from tcomp.ir.region import canonical, is_known, own_dims, regions, used_symbols

Found = Sequence[tuple[Node, Node]]  # sizes that are data: values and symbols, in the order in which they are known
Body = Callable[[Node, tuple[Node, ...]], Sequence[Node]]
MOST_TRIES = 16  # to find out which dimensions of carried values change


class Changing(Error):
    """Values that a loop collects have sizes that are known only in a turn: they have to be appended to what is carried."""

    def __init__(self) -> None:
        super().__init__("TC0202", "values collected by a loop whose sizes are known only in a turn are not supported")


def needed_sizes(results: Sequence[Node], sizes: Found, required: Collection[Node]) -> list[tuple[Node, Node]]:
    """Of the sizes those that results need, or that must be bound in any case."""
    found: list[tuple[Node, Node]] = []
    needed = {*used_symbols(results), *required}
    for value, symbol in reversed(sizes):  # a value needs only sizes that were known before it
        if symbol in needed:
            found.insert(0, (value, symbol))
            needed.update(used_symbols([value]))
    return found


# --- branches ------------------------------------------------------------------------------------------


def cond(
    c: Context, pred: Node, then: Sequence[Node], orelse: Sequence[Node], before: frozenset[Node],
    found: Sequence[Found] = ((), ()),
) -> tuple[Node, ...]:  # fmt: skip
    """The values of one side, computed only where `pred` says so. Their types are equal but for dimensions. before: the nodes
    that are computed in any case; found: the sizes that are data of each side."""
    local = {symbol for sizes in found for _, symbol in sizes}
    then, orelse = _made_equal(c, pred, then, orelse, local)
    pairs = differing([x.type for x in then], [x.type for x in orelse], local)
    assert pairs is not None, "sides of different ranks"
    sides = [(*side, *(build.dimension(p[k], dt.i64) for p in pairs)) for k, side in enumerate((then, orelse))]
    needed = [needed_sizes(side, own, c.facts.required & {s for _, s in own}) for side, own in zip(sides, found)]
    roots = [r for side, sizes in zip(sides, needed) for r in (*side, *(v for v, _ in sizes))]
    inside = _inside(roots, lambda n: n not in before, local)
    c.facts.hide(inside)
    captures = _captures(roots, inside)
    one, two = (
        canonical(captures, (*side, *(v for v, _ in sizes)), tuple(s for _, s in sizes)) for side, sizes in zip(sides, needed)
    )
    both = apply("cond", pred, *captures, then=one, orelse=two, **_gives(c, len(pairs)))
    return _given(c, both, len(then), len(then))


def _made_equal(
    c: Context, pred: Node, then: Sequence[Node], orelse: Sequence[Node], local: Collection[Node]
) -> tuple[list[Node], list[Node]]:
    """Both sides with the same dimensions where these are known outside: the size of the side that is taken is data."""
    pairs = differing([x.type for x in then], [x.type for x in orelse]) or ()
    same: dict[tuple[Dim, Dim], Dim] = {}
    for d, e in pairs:
        if set(local).isdisjoint(index.symbols([d, e])):
            sizes = (build.dimension(d, dt.i64), build.dimension(e, dt.i64))
            same[d, e] = c.facts.data_size(apply("where", pred, *sizes))
    one, two = [], []
    for a, b in zip(then, orelse):
        dims = list(zip(a.type.shape, b.type.shape))
        one.append(reshape(a, (same.get(pair, pair[0]) for pair in dims)))
        two.append(reshape(b, (same.get(pair, pair[1]) for pair in dims)))
    return one, two


def _gives(c: Context, count: int) -> dict[str, tuple[Node, ...]]:
    """The attribute that names the sizes which control flow finds."""
    return {"gives": tuple(c.facts.symbol() for _ in range(count))} if count else {}


def _given(c: Context, n: Node, results: int, first: int) -> tuple[Node, ...]:
    """The results of control flow but for the values of the sizes that it gives, which begin at `first` and are noted."""
    gives = dict(n.attrs).get("gives", ())
    for k, symbol in enumerate(gives, first):
        c.facts.sizes[c.facts.settle(item(n, k))] = symbol
    return tuple(item(n, k) for k in range(results + len(gives)) if not first <= k < first + len(gives))


# --- loops ---------------------------------------------------------------------------------------------


Places = tuple[tuple[tuple[int, int], ...], ...]  # carried dimensions that change, (value, axis): those that always are equal


@dataclass(frozen=True, slots=True)
class _Turn:
    """A body on parameters. symbols, sizes: of each group of dimensions that change, and the parameters that are their values."""

    counter: Node
    params: tuple[Node, ...]
    symbols: tuple[Node, ...]
    sizes: tuple[Node, ...]
    results: tuple[Node, ...]


def loop(c: Context, start: Sequence[Node], extent: Dim | None, body: Body, conditional: bool = False) -> tuple[Node, ...]:
    """The last carried values, then what the body collects. body: from the counter, an index symbol, and the carried values to
    the next ones and to what is collected. It is imported again while more carried dimensions turn out to change. Raises
    `Changing`."""
    count, before = len(c.facts.sizes), c.facts.seen()
    places: Places = ()
    for _ in range(MOST_TRIES):
        turn = _imported(c, start, extent, body, places)
        wanted = _changing(start, turn, places)
        if wanted == places:
            return _closed(c, start, extent, turn, places, before, count, conditional)
        c.facts.forget(count)
        places = wanted
    raise c.unsupported("carried values whose sizes change in too many ways")


def _imported(c: Context, start: Sequence[Node], extent: Dim | None, body: Body, places: Places) -> _Turn:
    counter = c.facts.counter(extent)
    symbols = tuple(c.facts.symbol() for _ in places)
    names = {place: symbol for group, symbol in zip(places, symbols) for place in group}
    shapes = [tuple(names.get((k, a), d) for a, d in enumerate(s.type.shape)) for k, s in enumerate(start)]
    params = tuple(parameter(f"{counter['name']}.{k}", s.type.dtype, d) for k, (s, d) in enumerate(zip(start, shapes)))
    sizes = tuple(parameter(f"{counter['name']}.size{k}", dt.i64, ()) for k in range(len(places)))
    for p in (*params, *sizes):
        c.facts.settle(p)  # what is inside of a branch in the body is told by what was there before
    c.facts.sizes.update(zip(sizes, symbols))
    c.facts.turns.append(counter)
    try:
        results = tuple(body(counter, params))
    finally:
        c.facts.turns.pop()
    for s, r in zip(start, results):
        if (r.type.dtype, r.type.rank) != (s.type.dtype, s.type.rank):
            raise c.unsupported(f"a carried value of type {s.type} that becomes {r.type}")
    return _Turn(counter, params, symbols, sizes, results)


def _changing(start: Sequence[Node], turn: _Turn, places: Places) -> Places:
    """Groups of dimensions that change: those of a group begin equal, and end equal where they were in every turn before."""
    group = {place: k for k, g in enumerate(places) for place in g}
    found: dict[tuple[int, Dim], list[tuple[int, int]]] = {}
    for k, (s, p, r) in enumerate(zip(start, turn.params, turn.results)):
        for a, (first, now, then) in enumerate(zip(s.type.shape, p.type.shape, r.type.shape)):
            if (k, a) in group:
                found.setdefault((group[k, a], then), []).append((k, a))
            elif now != then:
                found.setdefault((-1, first), []).append((k, a))
    return tuple(sorted(map(tuple, found.values())))


def _closed(
    c: Context, start: Sequence[Node], extent: Dim | None, turn: _Turn, places: Places, before: frozenset[Node], count: int,
    conditional: bool,
) -> tuple[Node, ...]:  # fmt: skip
    """The loop of a body that was imported."""
    local = {symbol: value for value, symbol in c.facts.forget(count)}
    n, lines = len(start), turn.results[len(start) :]
    own = {turn.counter, *local}
    if any(not own.isdisjoint(index.symbols(x.type.shape)) for x in lines):
        raise Changing()
    firsts = [group[0] for group in places]
    ends = (build.dimension(turn.results[k].type.shape[a], dt.i64) for k, a in firsts)
    results = (*turn.results[:n], *ends, *lines)
    found = needed_sizes(results, [(v, s) for s, v in local.items()], {*turn.symbols, *(c.facts.required & local.keys())})
    roots = (*results, *(v for v, _ in found))
    params = (*turn.params, *turn.sizes)
    inside = _inside(roots, lambda x: x in params or (_may_fault(x) and x not in before), own)
    c.facts.hide(inside)
    captures = _captures(roots, inside | set(params))
    region = canonical((*params, *captures), roots, tuple(s for _, s in found))
    begin = (*start, *(build.dimension(start[k].type.shape[a], dt.i64) for k, a in firsts))
    node = apply(
        "loop", *begin, *captures, body=region, carried=len(begin), extent=extent, counter=turn.counter, conditional=conditional,
        **_gives(c, len(places)),
    )  # fmt: skip
    return _given(c, node, len(turn.results), n)


# --- inside and outside --------------------------------------------------------------------------------


def _inside(results: Iterable[Node], seed: Callable[[Node], bool], symbols: Collection[Node] = ()) -> set[Node]:
    """The nodes that need a seed or one of the symbols."""
    inside: set[Node] = set()
    for n in walk(results):
        if seed(n) or any(o in inside for o in n.operands) or _mentions(n, symbols):
            inside.add(n)
    return inside


def _captures(results: Sequence[Node], inside: set[Node]) -> tuple[Node, ...]:
    """What is read from outside, in order of first use; constants are not, they are put inside."""
    found: dict[Node, None] = {}
    for n in walk(results):
        if n in inside:
            found.update((o, None) for o in n.operands if o not in inside and not is_known(o))
    found.update((r, None) for r in results if r not in inside and not is_known(r))
    return tuple(found)


def _mentions(n: Node, symbols: Collection[Node]) -> bool:
    """Whether the type, an attribute or a region of `n` contains one of the symbols."""
    if any(s in symbols for s in index.symbols(own_dims(n))):
        return True
    return any(_mentions(inner, symbols) for r in regions(n).values() for inner in walk(r.results))


def _may_fault(n: Node) -> bool:
    """Whether computing `n` where the program would not have could raise: positions from data, sizes that may contradict."""
    if n.op == "stretch":
        return bool(n.type.shape != n.operands[0].type.shape)
    if n.op == "reshape":
        return index.product(n.type.shape) != index.product(n.operands[0].type.shape)
    return OPS[n.op].kind == INDEXING and n.op not in ("item", "sort", "top_k") and n.operands[1].op != "constant"


def may_fault(roots: Iterable[Node], before: frozenset[Node]) -> bool:
    """Whether anything new could raise."""
    return any(_may_fault(n) for n in walk(roots) if n not in before)
