"""`Normaliser`: nodes brought to a normal form as they are made, by rules that look at a node and its operands.

A rule is `rule(n, m) -> Node | None`: `n` has normal operands; the answer is built with `m` and so is normal, or None where the
rule does not apply. Since every node is normal when its users are made, one walk over a function reaches the fixpoint. What a
pattern can say is data (`ir/rewrite.py`) and becomes such a rule by `by_root`; what needs to count axes is a function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tcomp import trace
from tcomp.errors import Error
from tcomp.ir import rewrite
from tcomp.ir.dtype import DType
from tcomp.ir.graph import attributes
from tcomp.ir.node import Dim, Node, with_operands
from tcomp.ir.ops import OPS, apply

RuleFunction = Callable[[Node, "Normaliser"], "Node | None"]
Rules = Mapping[str, Sequence[RuleFunction]]  # by operation; those under "pointwise" are for every pointwise one, after its own
_ANCHORS = frozenset(["dot", "conv", "reduce"])


@dataclass(slots=True)
class Normaliser:
    """Makes normal nodes.

    anchored: values computed where a product, convolution or reduction leaves its results: pointwise work on them is fused there.
    """

    rules: Rules
    anchored: set[Node] = field(default_factory=set)
    _done: dict[Node, Node] = field(default_factory=dict)

    def normal(self, n: Node) -> Node:
        """The normal form of `n`, whose operands are normal."""
        found = self._done.get(n)
        if found is None:
            found = self._done[n] = self._apply_rules(n)
        return found

    def _apply_rules(self, n: Node) -> Node:
        pointwise = OPS[n.op].kind == "pointwise"
        for rule in (*self.rules.get(n.op, ()), *(self.rules.get("pointwise", ()) if pointwise else ())):
            new = rule(n, self)
            if new is not None:
                return new
        if n.op in _ANCHORS or (pointwise and any(o in self.anchored for o in n.operands)):
            self.anchored.add(n)
        return n

    def change(self, old: Node, operands: tuple[Node, ...]) -> Node:
        """What stands for `old` over normal operands. TC0001 where the rules for it do not come to an end."""
        try:
            return self.normal(with_operands(old, operands))
        except RecursionError:
            raise Error("TC0001", f"rules for `{old.op}` that do not come to an end") from None

    def make(self, op: str, *operands: Node, **attrs: object) -> Node:
        return self.normal(apply(op, *operands, **attrs))

    def like(self, n: Node, operands: Iterable[Node]) -> Node:
        """The operation of `n` on other operands, of any types that fit."""
        return self.normal(apply(n.op, *operands, **attributes(n)))

    def reshape(self, x: Node, shape: Iterable[Dim]) -> Node:
        shape = tuple(shape)
        return x if x.type.shape == shape else self.make("reshape", x, shape=shape)

    def transpose(self, x: Node, perm: Iterable[int]) -> Node:
        return self.make("transpose", x, perm=tuple(perm))

    def broadcast(self, x: Node, shape: Iterable[Dim], axes: Iterable[int]) -> Node:
        return self.make("broadcast", x, shape=tuple(shape), axes=tuple(axes))

    def cast(self, x: Node, dtype: DType) -> Node:
        return x if x.type.dtype == dtype else self.make("cast", x, dtype=dtype)

    def full(self, value: Node, shape: tuple[Dim, ...]) -> Node:
        """The scalar `value` (rank 0) everywhere in `shape`."""
        return self.broadcast(value, shape, ())


def by_root(rules: Iterable[rewrite.Rule]) -> dict[str, tuple[RuleFunction, ...]]:
    """Rules that are data, by the operation at the top of their left sides."""
    found: dict[str, tuple[RuleFunction, ...]] = {}
    for rule in rules:
        found[rule.root] = (*found.get(rule.root, ()), _of_data(rule))
    return found


def _of_data(rule: rewrite.Rule) -> RuleFunction:
    def apply_rule(n: Node, m: Normaliser) -> Node | None:
        new = rule.at(n, m.make)
        if new is not None:
            trace.event("rule", name=rule.name, before=n, after=new)
        return new

    return apply_rule


def joined(*tables: Rules) -> dict[str, tuple[RuleFunction, ...]]:
    """Several tables as one: of each operation the rules of the first table, then those of the next."""
    found: dict[str, tuple[RuleFunction, ...]] = {}
    for table in tables:
        for op, rules in table.items():
            found[op] = (*found.get(op, ()), *rules)
    return found
