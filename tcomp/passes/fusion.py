"""Fusion: which operations of a GRAPH share a kernel.

Takes a canonical GRAPH function; gives its kernels-to-be, `Group`s in an order in which they can run. Movements and sources are
never computed by themselves: whoever reads them composes their index maps. A group is

* `map`: pointwise operations over one domain;
* `row`: reductions over the last axis of one domain, whatever is pointwise before, between and after them (softmax, norms);
* `column`: reductions over other axes, with what is pointwise before and after;
* `dot`, `conv`: one contraction and the pointwise operations on its result; weights of a `dot` are dequantised as it takes them;
* `cascade`: dependent reductions over one axis, with the products before and after them (found by `passes/cascade`);
* one operation by itself: concat, scan, sort, top_k, scatter_elements, scatter_nd, cond, loop.

A value that several groups read is an output of its group, unless it is so cheap that each reader computes it again.
A chain of pointwise operations is cut into strata of `DEEPEST`; a group's pointwise members are of one stratum.
Merging never makes a cycle between groups: a merge is refused where a path leads out of the pair and back in.

Where a movement cannot be composed into its reader (padding before a convolution, a result of the function) it is computed as
a map of its own: `roots`. So is what is under a reshape to sizes that only a call tells: of memory it is an alias.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from tcomp.ir.graph import Func
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import OPS, having
from tcomp.ir.types import TensorType, TupleType
from tcomp.passes.cascade.cascade import Cascade
from tcomp.passes.cascade.elements import is_pointwise
from tcomp.passes.regroup import is_exact, real_dims

MOVEMENTS = frozenset({"broadcast", "reshape", "transpose", "slice", "pad", "window", "stretch"})
VIRTUAL = MOVEMENTS | {"constant", "iota", "dimension", "parameter", "item"}
GATHERS = frozenset(["gather", "gather_elements", "gather_nd"])
CONTROL = frozenset(["cond", "loop"])
ALONE = CONTROL | {"concat", "scan", "sort", "top_k", "scatter_elements", "scatter_nd"}
_TAKE_MEMORY = frozenset(["dot", "conv", "sort", "top_k", "scan"]) | CONTROL | GATHERS  # their operands are computed before
COSTLY = having("costly")
DEEPEST = 64  # pointwise operations in a row in one kernel: expressions are walked by recursion, and text nests like them
CHEAP_OPERATIONS = 3  # a value of at most so many cheap operations is computed again by each reader


@dataclass(frozen=True, slots=True)
class Group:
    """One kernel-to-be. anchors: its reductions or contraction, operands before users; outputs: what others read."""

    kind: str
    members: tuple[Node, ...]
    anchors: tuple[Node, ...]
    outputs: tuple[Node, ...]
    cascade: Cascade | None = None


@dataclass(slots=True)
class _Cluster:
    """A group in the making. domain: the shape its pointwise members run over; anchor_key: what all its anchors share.

    strata: those of its pointwise members.
    """

    kind: str
    members: set[Node]
    domain: tuple[Dim, ...]
    anchors: list[Node]
    anchor_key: tuple[object, ...] = ()
    cascade: Cascade | None = None
    strata: frozenset[int] = frozenset()


def fuse(func: Func, cascades: Iterable[Cascade] = ()) -> tuple[Group, ...]:
    """The groups of `func`, in an order in which each reads only what earlier ones wrote; `cascades` are groups already."""
    return _Fusion(func, cascades).run()


def roots(func: Func) -> set[Node]:
    """The movements that are computed into memory: results, and operands whose reader cannot compose them."""
    found = {r for r in func.results if r.op in VIRTUAL and r.op not in ("item", "parameter", "constant")}
    for n in func.nodes():
        for k, o in enumerate(n.operands):
            if o.op in VIRTUAL and not _composes(n, k, o):
                found.add(o)
    return found


def is_alias(n: Node) -> bool:
    """Whether `n` is a reshape that regroups axes whose sizes only a call tells: of memory it costs nothing, composed it would
    divide by sizes for every element."""
    if n.op != "reshape" or is_exact(n):
        return False
    old, new = real_dims(n.operands[0].type.shape), real_dims(n.type.shape)
    return len(old) != len(new) or sum(a != b for a, b in zip(old, new)) > 1


def _composes(reader: Node, k: int, o: Node) -> bool:
    """Whether operand `k` of `reader` may be read through the movements of `o`."""
    if is_alias(reader):
        return o.op not in MOVEMENTS or o.op == "reshape"
    moves = []
    while o.op in VIRTUAL and o.operands and o.op != "item":
        moves.append(o.op)
        o = o.operands[0]
    if o.op in ("iota", "dimension"):
        return OPS[reader.op].kind in ("pointwise", "movement", "reduction") or reader.op == "concat"
    if reader.op == "dot":
        views = [m for m in moves if m != "reshape"]
        return k == 1 or (
            set(views) <= {"transpose", "slice", "broadcast"} and moves == views + ["reshape"] * (len(moves) - len(views))
        )
    if k == 1 and reader.op in ("gather_nd", "scatter_nd"):
        return not moves  # the last axis of memory tells which coordinate to prove in range
    if k == 1 and reader.op in ("gather", "gather_elements"):
        return set(moves) <= {"broadcast", "transpose", "reshape"}  # these leave out no position, which would be proven too
    if reader.op in ("conv", "scan", "sort", "top_k", *CONTROL) or reader.op.startswith("scatter"):
        return set(moves) <= {"reshape"}
    return True


def _reads_alias(o: Node) -> bool:
    """Whether such a reshape is among the movements of `o`."""
    while o.op in MOVEMENTS and not is_alias(o):
        o = o.operands[0]
    return o.op in MOVEMENTS


class _Fusion:
    """The state of one run: clusters by node, and who reads whom."""

    def __init__(self, func: Func, cascades: Iterable[Cascade]) -> None:
        self.cascades = {n: c for c in cascades for n in c.members}
        self.roots = {n for n in roots(func) if n not in self.cascades}
        self.nodes = [n for n in func.nodes() if n.op not in VIRTUAL or n in self.roots]
        self.order = {n: k for k, n in enumerate(self.nodes)}
        self.readers: dict[Node, list[tuple[Node, Node]]] = {n: [] for n in self.nodes}  # (reader, operand as it reads it)
        for n in self.nodes:
            for o in n.operands:
                for base in self._bases(o):
                    if base in self.readers:
                        self.readers[base].append((n, o))
        self.results = {b for r in func.results for b in self._bases(r)}
        self.stratum = self._strata()
        self.packed: set[Node] = set()  # what a product computes as it takes its second operand
        self.inlined = self._find_inlined()
        self.cluster = {n: self._single(n) for n in self.nodes if n not in self.inlined and n not in self.cascades}
        self.cluster |= self._cascade_clusters()

    def run(self) -> tuple[Group, ...]:
        for n in self.nodes:
            for o in n.operands if n in self.cluster else ():
                self._try_edge(n, o)
        self._merge_siblings()
        return self._finish()

    def _bases(self, o: Node) -> Iterable[Node]:
        """The values that operand `o` reads through movements (a pad reads its value too)."""
        stack = [o]
        while stack:
            n = stack.pop()
            if n.op in VIRTUAL and n.operands and n not in self.roots:
                stack.extend(n.operands)
            else:
                yield n

    def _strata(self) -> dict[Node, int]:
        """Which stretch of its chain a pointwise value belongs to: a chain starts anew at what is not pointwise."""
        depth: dict[Node, int] = {}
        for n in filter(is_pointwise, self.nodes):
            depth[n] = 1 + max((depth.get(b, 0) for o in n.operands for b in self._bases(o)), default=0)
        return {n: d // DEEPEST for n, d in depth.items()}

    def _ends_stratum(self, n: Node) -> bool:
        """Whether `n` is read by pointwise values of a later stratum."""
        return any(self.stratum.get(r, self.stratum[n]) != self.stratum[n] for r, _ in self.readers[n])

    # -- what each reader computes again ---------------------------------------------------------

    def _find_inlined(self) -> set[Node]:
        """Pointwise values that are cheap, or read once through a movement that does not repeat them."""
        inlined: set[Node] = set()
        work: dict[Node, int] = {}
        epilogues: set[Node] = set()
        for n in self.nodes:
            if not is_pointwise(n):
                work[n] = 0
                continue
            below = [work.get(b, 0) for o in n.operands for b in self._bases(o) if is_pointwise(b)]
            work[n] = sum(below) + (100 if n.op in COSTLY else 1)
            if any(b.op in ("dot", "conv", "reduce") or b in epilogues for o in n.operands for b in self._bases(o)):
                epilogues.add(n)  # computed where its operand is still in registers
        for n in reversed(self.nodes):
            if not is_pointwise(n) or n in self.results or n in epilogues or n in self.cascades or self._ends_stratum(n):
                continue
            if work[n] < 100 and self._feeds_packing(n):
                self.packed.add(n)
                inlined.add(n)
            elif self._may_inline(n, work[n]):
                inlined.add(n)
        return inlined

    def _feeds_packing(self, n: Node) -> bool:
        """Whether `n` is only part of a second operand of floating-point products that takes more memory than what it is computed
        from: dequantised weights."""
        for reader, operand in self.readers[n]:
            if reader in self.packed:
                continue
            second = reader.op == "dot" and operand is reader.operands[1] and reader.type.dtype.is_float
            if not second or reader in self.cascades or n in self._bases(reader.operands[0]) or not self._grows(n):
                return False
        return True

    def _grows(self, n: Node) -> bool:
        """Whether what `n` is computed from is known to be smaller by half."""
        total, seen, stack = 0, {n}, [n]
        while stack:
            for base in (b for o in stack.pop().operands for b in self._bases(o) if b not in seen):
                seen.add(base)
                if is_pointwise(base):
                    stack.append(base)
                else:
                    total += _bytes(base)
        return 0 < 2 * total <= _bytes(n)

    def _may_inline(self, n: Node, work: int) -> bool:
        readers = self.readers[n]
        if any(r.op in _TAKE_MEMORY or r.op.startswith("scatter") for r, _ in readers):
            return False
        if any(_reads_alias(o) for _, o in readers):
            return False
        aligned = all(_aligned(n, r, o) for r, o in readers)
        if aligned and len(readers) >= 1:
            return False  # joins its readers' group as a member instead, and is computed once
        if work <= CHEAP_OPERATIONS:
            return True
        return len(readers) == 1 and not _repeats(readers[0][1]) and readers[0][0].op != "reduce"

    def _cascade_clusters(self) -> dict[Node, _Cluster]:
        """One cluster for each cascade, which nothing joins."""
        made: dict[Cascade, _Cluster] = {}
        for n in self.nodes:
            c = self.cascades.get(n)
            if c is None:
                continue
            if c not in made:
                made[c] = _Cluster("cascade", set(), c.domain, [s.node for s in c.stages], (), c)
            made[c].members.add(n)
        return {n: made[c] for n, c in self.cascades.items() if n in self.order}

    # -- merging ---------------------------------------------------------------------------------

    def _single(self, n: Node) -> _Cluster:
        if n.op in ALONE:
            return _Cluster(n.op, {n}, () if isinstance(n.type, TupleType) else n.type.shape, [n])
        if n.op in ("dot", "conv"):
            return _Cluster(n.op, {n}, n.type.shape, [n], (n,))
        if n.op == "reduce":
            x = n.operands[0].type.shape
            last = n["axes"] == (len(x) - 1,)
            key = ("row", x) if last else ("column", x, n["axes"])
            return _Cluster(str(key[0]), {n}, x if last else n.type.shape, [n], key)
        strata = frozenset([self.stratum[n]] if n in self.stratum else [])
        return _Cluster("map", {n}, n.type.shape, [], strata=strata)  # pointwise, a gather, or a movement computed into memory

    def _try_edge(self, reader: Node, operand: Node) -> None:
        for base in self._bases(operand):
            if base not in self.cluster:
                continue
            p, c = self.cluster[base], self.cluster[reader]
            if p is not c and self._fits(p, c, reader) and self._edges_aligned(p, c) and self._convex(p, c):
                self._merge(p, c)

    def _fits(self, p: _Cluster, c: _Cluster, reader: Node) -> bool:
        """Whether producer cluster `p` and consumer cluster `c` can be one kernel."""
        kinds = {p.kind, c.kind}
        if len(p.strata | c.strata) > 1:
            return False
        if kinds == {"map"}:
            return p.domain == c.domain
        if kinds & ALONE or "cascade" in kinds:
            return False
        if "row" in kinds and kinds <= {"row", "map"}:
            return _row_fits(p, c)
        if c.kind == "map" and p.kind in ("dot", "conv", "column"):
            return p.domain == c.domain
        if p.kind == "map" and c.kind == "column":
            return p.domain == reader.operands[0].type.shape and len(p.members) < 40 and self._only_feeds(p, reader)
        return False

    def _only_feeds(self, p: _Cluster, reader: Node) -> bool:
        """Whether nothing but `reader` needs the values of `p`: a kernel over fewer axes cannot store them."""
        allowed = {*p.members, reader}
        return all(n not in self.results and all(r in allowed for r, _ in self.readers[n]) for n in p.members)

    def _edges_aligned(self, p: _Cluster, c: _Cluster) -> bool:
        """Whether all that `c` reads of `p` it reads at the element it computes itself."""
        pairs = ((n, r, o) for n in p.members for r, o in self.readers[n] if r in c.members)
        return all(_aligned(n, r, o) for n, r, o in pairs)

    def _convex(self, a: _Cluster, b: _Cluster) -> bool:
        """No path from `a` to `b` through anything else (which the merged group would both feed and read)."""
        top = max(self.order[n] for n in b.members)
        stack = [r for n in a.members for r, _ in self.readers[n]]
        seen: set[Node] = set()
        while stack:
            n = stack.pop()
            if n in seen or n in a.members or n in b.members:
                continue
            c = self.cluster.get(n)
            unit = c.members if c is not None else {n}
            seen |= unit
            if min(self.order[m] for m in unit) > top:
                continue
            after = [r for m in unit for r, _ in self.readers[m]]
            if any(r in b.members for r in after):
                return False
            stack.extend(after)
        return True

    def _merge(self, p: _Cluster, c: _Cluster) -> None:
        strong, weak = (c, p) if p.kind == "map" else (p, c)
        if strong.kind == "map" or strong.kind == weak.kind:
            strong = p
            weak = c
        strong.members |= weak.members
        strong.strata |= weak.strata
        strong.anchors = sorted({*strong.anchors, *weak.anchors}, key=self.order.__getitem__)
        if strong.kind == "row" and weak.kind == "row":
            strong.domain = max(strong.domain, weak.domain, key=len)
        for n in weak.members:
            self.cluster[n] = strong

    def _merge_siblings(self) -> None:
        """Reductions of one operand over the same axes share a pass."""
        by_operand: dict[tuple[Node, object], _Cluster] = {}
        for n in self.nodes:
            if n.op != "reduce" or n not in self.cluster or n in self.cascades:
                continue
            mine, key = self.cluster[n], (n.operands[0], n["axes"])
            other = by_operand.setdefault(key, mine)
            if other is mine or other.anchor_key != mine.anchor_key or len(other.strata | mine.strata) > 1:
                continue
            if self._convex(other, mine) and self._convex(mine, other):
                self._merge(other, mine)

    # -- the result ------------------------------------------------------------------------------

    def _finish(self) -> tuple[Group, ...]:
        clusters = {id(c): c for c in self.cluster.values()}
        groups = {k: self._group(c) for k, c in clusters.items()}
        return tuple(groups[k] for k in self._topological(clusters))

    def _group(self, c: _Cluster) -> Group:
        members = tuple(sorted(c.members, key=self.order.__getitem__))
        outputs = tuple(n for n in members if n in self.results or self._read_outside(n, c, set()))
        return Group(c.kind, members, tuple(c.anchors), outputs, c.cascade)

    def _read_outside(self, n: Node, c: _Cluster, seen: set[Node]) -> bool:
        """Whether another group reads `n`, directly or through values it computes again."""
        for r, _ in self.readers[n]:
            if r in seen:
                continue
            seen.add(r)
            mine = self.cluster.get(r)
            if (mine is None and self._read_outside(r, c, seen)) or (mine is not None and mine is not c):
                return True
        return False

    def _topological(self, clusters: dict[int, _Cluster]) -> list[int]:
        """Cluster keys, each after those it reads from; ties by the order of the program."""
        needs: dict[int, set[int]] = {k: set() for k in clusters}
        for k, c in clusters.items():
            for n in c.members:
                needs[k] |= self._sources(n) - {k}
        done: list[int] = []
        ready: set[int] = set()
        waiting = sorted(clusters, key=lambda k: max(self.order[n] for n in clusters[k].members))
        while waiting:
            k = next(k for k in waiting if needs[k] <= ready)
            waiting.remove(k)
            ready.add(k)
            done.append(k)
        return done

    def _sources(self, n: Node) -> set[int]:
        """The clusters that `n` reads, through movements and through what it computes again."""
        found: set[int] = set()
        stack, seen = list(n.operands), set()
        while stack:
            o = stack.pop()
            if o in seen:
                continue
            seen.add(o)
            c = self.cluster.get(o)
            if c is not None:
                found.add(id(c))
            else:
                stack.extend(o.operands)
        return found


def _bytes(n: Node) -> int:
    """The bytes of a value, 0 where its size is not known."""
    known = [d for d in n.type.shape if isinstance(d, int)] if isinstance(n.type, TensorType) else []
    return math.prod(known) * n.type.dtype.bytes if len(known) == n.type.rank else 0


def _aligned(base: Node, reader: Node, operand: Node) -> bool:
    """Whether `reader` reads `base` at the element it computes itself: directly, or a row's value for all its columns."""
    if not is_pointwise(reader) and reader.op != "reduce":
        return False
    if operand is base:
        return reader.op == "reduce" or base.type.shape == reader.type.shape
    return operand.op == "broadcast" and operand.operands[0] is base and _is_row_broadcast(operand)


def _is_row_broadcast(n: Node) -> bool:
    """Whether a broadcast repeats each row's value along a new last axis."""
    rank = len(n.type.shape)
    return bool(n["axes"] == tuple(range(rank - 1)) and n.operands[0].type.shape == n.type.shape[:-1])


def _repeats(o: Node) -> bool:
    """Whether reading through the movements of `o` reads some element more than once."""
    while o.op in VIRTUAL and o.operands:
        if o.op in ("broadcast", "window", "stretch"):
            return True
        o = o.operands[0]
    return False


def _row_fits(p: _Cluster, c: _Cluster) -> bool:
    """Rows with rows of the same domain; a map over the domain, or over its rows."""
    if p.kind == c.kind == "row":
        return p.anchor_key == c.anchor_key
    row, other = (p, c) if p.kind == "row" else (c, p)
    full = row.anchors[0].operands[0].type.shape
    return other.domain in (full, full[:-1])
