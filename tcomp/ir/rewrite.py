"""Rules as data: what an operation may be replaced by, in text that every reader of rules understands.

    DOUBLE = Rule("double_negation", "neg(neg(x))", "x")
    TWICE = Rule("transpose_twice", "transpose(transpose(x, perm = p), perm = q)", "transpose(x, perm = compose(p, q))")
    ZERO = Rule("add_zero", "add(x, 0)", "x", where=("integer(x)",))

The sides are patterns (see `pattern.py`); `where` names predicates of `PREDICATES` on what the left side binds; `fp` says what a
rule does to floats. A rule must keep the type: one that does not is a fault of the compiler. `passes/normal.py` applies them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tcomp.ir.lexer import Cursor, rows
from tcomp.ir.node import Node
from tcomp.ir.ops import apply
from tcomp.ir.pattern import Bindings, Call, Make, build, match, pattern, variables
from tcomp.ir.types import TensorType

FP_CLASSES = ("bitwise", "reassociates", "changes range")

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

    def at(self, n: Node, make: Make = apply) -> Node | None:
        """What stands for `n`, its operations made by `make`, or None where the rule does not apply."""
        found = next((b for b in match(pattern(self.lhs), n, {}) if self.holds(b)), None)
        if found is None or not isinstance(n.type, TensorType):
            return None
        new = build(pattern(self.rhs), found, n.type, make)
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
