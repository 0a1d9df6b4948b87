"""Rules as data, and the greedy driver that applies them to a GRAPH function until none applies any more.

    DOUBLE = Rule("double_negation", "neg(neg(x))", "x", fp="bitwise")
    TWICE = Rule("transpose_twice", "transpose(transpose(x, perm = p), perm = q)", "transpose(x, perm = compose(p, q))")
    ZERO = Rule("add_zero", "add(x, 0)", "x", where=("integer(x)",))

    func, fired = rewrite(func, (DOUBLE, TWICE, ZERO))        # fired: how often each rule did

The sides are text (see `pattern.py`); `where` names predicates of `PREDICATES` on what the left side binds; `fp` says what the
rule does to floats. Rules are tried in order at each node, operands first; what a rule makes is rewritten in turn. A rule must
keep the type: one that does not is a fault of the compiler, as are rules that never come to an end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tcomp import trace
from tcomp.errors import Error
from tcomp.ir.graph import Func
from tcomp.ir.lexer import Cursor, rows
from tcomp.ir.loc import Locs
from tcomp.ir.node import Node, with_operands
from tcomp.ir.pattern import Bindings, Call, build, match, pattern, variables
from tcomp.ir.types import TensorType

FP_CLASSES = ("bitwise", "reassociates", "changes range")
LIMIT = 100_000  # rules that fire in one function

PREDICATES: dict[str, Callable[..., bool]] = {
    "float": lambda x: x.type.dtype.is_float,
    "integer": lambda x: x.type.dtype.is_integer,
    "same_type": lambda x, y: x.type == y.type,
    "same_shape": lambda x, y: x.type.shape == y.type.shape,
    "scalar": lambda x: x.type.shape == (),
    "constant": lambda x: x.op == "constant",
    "ascending": lambda p: tuple(p) == tuple(range(len(p))),
}


@dataclass(frozen=True, slots=True)
class Rule:
    """lhs becomes rhs where all of `where` hold. fp: `bitwise` (same bits), `reassociates` (rounding), `changes range`."""

    name: str
    lhs: str
    rhs: str
    where: tuple[str, ...] = ()
    fp: str = "bitwise"

    def __post_init__(self) -> None:
        """Raise TC0301, or AssertionError, where the rule is not well formed."""
        left, right = pattern(self.lhs), pattern(self.rhs)
        assert isinstance(left, Call), f"{self.name}: the left side must be an operation"
        assert variables(right) <= variables(left), f"{self.name}: the right side needs {variables(right) - variables(left)}"
        assert self.fp in FP_CLASSES, f"{self.name}: {self.fp}"
        for text in self.where:
            name, arguments = predicate(text)
            assert name in PREDICATES, f"{self.name}: no predicate `{name}`"
            assert set(arguments) <= variables(left), f"{self.name}: `{text}` needs what the left side does not bind"

    @property
    def root(self) -> str:
        """The operation at the top of the left side."""
        left = pattern(self.lhs)
        assert isinstance(left, Call)
        return left.op

    def holds(self, found: Bindings) -> bool:
        """Whether all conditions hold of what was bound."""
        calls = map(predicate, self.where)
        return all(PREDICATES[name](*(found[a] for a in arguments)) for name, arguments in calls)

    def at(self, n: Node) -> Node | None:
        """What stands for `n`, or None where the rule does not apply."""
        found = next((b for b in match(pattern(self.lhs), n, {}) if self.holds(b)), None)
        if found is None or not isinstance(n.type, TensorType):
            return None
        new = build(pattern(self.rhs), found, n.type)
        assert new.type == n.type, f"the rule {self.name} made {new.type} of {n.type}"
        return new


def predicate(text: str) -> tuple[str, tuple[str, ...]]:
    """`integer(x)` as its name and arguments."""
    c = Cursor(rows(text, "<rule>")[0])
    name = c.name("a predicate")
    c.expect("(")
    arguments = c.listed(lambda: c.name("a variable"))
    c.end()
    return name, arguments


def rewrite(func: Func, rules: Sequence[Rule], limit: int = LIMIT) -> tuple[Func, Counter[str]]:
    """`func` with the rules applied to a fixpoint, and how often each fired. TC0001 where they fire more often than `limit`."""
    driver = _Driver(rules, limit)
    locs = Locs()
    for n in func.nodes():
        try:
            locs.add(driver.settle(n), *func.locs.of(n))
        except RecursionError:
            raise driver.endless() from None
    return replace(func, results=tuple(map(driver.settle, func.results)), locs=locs), driver.fired


class _Driver:
    """Settles nodes: `done` holds what stands for each."""

    def __init__(self, rules: Sequence[Rule], limit: int) -> None:
        self.limit = limit
        self.done: dict[Node, Node] = {}
        self.fired: Counter[str] = Counter()
        self.by_root: dict[str, list[Rule]] = {}
        for rule in rules:
            self.by_root.setdefault(rule.root, []).append(rule)

    def settle(self, n: Node) -> Node:
        """What stands for `n` once no rule applies to it or to what it is made of."""
        stack = [n]
        while stack:
            missing = [o for o in stack[-1].operands if o not in self.done] if stack[-1] not in self.done else []
            if missing:
                stack.extend(missing)
                continue
            top = stack.pop()
            if top not in self.done:
                self.done[top] = self.settle_root(top)
        return self.done[n]

    def settle_root(self, n: Node) -> Node:
        """The same for a node whose operands are settled."""
        n = with_operands(n, tuple(map(self.settle, n.operands)))
        while n not in self.done:
            new = self.apply(n)
            if new is None:
                self.done[n] = n
            else:
                n = with_operands(new, tuple(map(self.settle, new.operands)))
        return self.done[n]

    def apply(self, n: Node) -> Node | None:
        """What the first rule that applies makes of `n`."""
        for rule in self.by_root.get(n.op, ()):
            new = rule.at(n)
            if new is None or new is n:
                continue
            self.fired[rule.name] += 1
            trace.event("rule", name=rule.name, before=n, after=new)
            if self.fired.total() > self.limit:
                raise self.endless()
            return new
        return None

    def endless(self) -> Error:
        often = ", ".join(f"{name} ({count})" for name, count in self.fired.most_common(3))
        return Error("TC0001", f"rules that do not come to an end; those that fired most: {often}")
