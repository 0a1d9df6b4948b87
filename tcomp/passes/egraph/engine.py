"""`Engine`: an egglog e-graph of index terms, and `Frozen`, what is in it as plain data.

The program of rules is read once; each window has an e-graph of its own, since egglog's `pop` leaves containers behind that later
ones are mixed up with. Only the worker process imports this: egglog has neither a node limit nor a timeout. `EGraph.freeze` and
`value_to_*` are not egglog's documented interface: its version is pinned.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tcomp.passes.egraph.rule import IndexRule
from tcomp.passes.egraph.spelling import ANALYSES, CONSTRUCTORS, LARGEST_RANK, MOST_RULES, prelude, spell_names, spell_rows
from tcomp.passes.egraph.terms import EMPTY, Names, Row, elements

_USUAL_RANK = 5  # of operands: fewer rules are needed than for all
_RUN = "(run-schedule (saturate (run analysis) (run simplify)))"


@dataclass(frozen=True, slots=True)
class ENode:
    """One way to make the value of a class, from the values of other classes."""

    cls: int
    op: str
    attrs: tuple[Any, ...]
    kids: tuple[int, ...]

    @property
    def key(self) -> tuple[str, tuple[Any, ...], tuple[int, ...]]:
        return self.op, self.attrs, self.kids


@dataclass(slots=True)
class Frozen:
    """An e-graph as data. rows: class of each row of the request.

    given: keys of the e-nodes of the text as written; by: the rules that made the others, directly and before, as bits.
    """

    nodes: list[ENode]
    free: dict[int, Names]
    weights: set[int]
    bounded: set[int]
    exps: set[int]  # classes of exps that the text has
    rows: list[int]
    sizes: dict[str, int]
    given: set[Any] = field(default_factory=set)
    by: dict[Any, int] = field(default_factory=dict)

    def members(self) -> dict[int, list[ENode]]:
        out: dict[int, list[ENode]] = defaultdict(list)
        for n in self.nodes:
            out[n.cls].append(n)
        return out

    def elements(self, cls: int) -> int:
        return elements(self.sizes, self.free.get(cls, EMPTY))


class Engine:
    """Runs rulesets by name on the window that was opened last, and reads sizes and contents."""

    def __init__(self, rules: Sequence[IndexRule]) -> None:
        from egglog.bindings import EGraph

        self.rules = tuple(rules)
        assert len(self.rules) <= MOST_RULES
        self._new = EGraph
        self._programs: dict[tuple[tuple[IndexRule, ...], int], Any] = {}
        self._key: tuple[tuple[IndexRule, ...], int] = (self.rules, 0)
        self._opened: tuple[Sequence[IndexRule] | None, int] = (None, _USUAL_RANK)
        self._window = ""
        self._fresh = False
        self.egraph: Any = None

    def renew(self, rules: Sequence[IndexRule] | None = None, rank: int = _USUAL_RANK) -> None:
        """An e-graph with these rules (by default all) and no terms; nothing to do where there is one."""
        key = (self.rules if rules is None else tuple(rules), rank)
        if self._fresh and key == self._key:
            return
        self.egraph = self._new()
        if key not in self._programs:
            bits = {r: k for k, r in enumerate(self.rules) if r in key[0]}
            self._programs[key] = self.egraph.parse_program(prelude(bits, rank))
        self.egraph.run_program(*self._programs[key])
        self._key, self._fresh = key, True

    def _run(self, program: str) -> list[Any]:
        return list(self.egraph.run_program(*self.egraph.parse_program(program)))

    def open(
        self,
        rows: Sequence[Row],
        sizes: Mapping[str, int],
        equal: Sequence[tuple[int, int]] = (),
        rules: Sequence[IndexRule] | None = None,
    ) -> None:
        """A new window for these rules. Exps in the rows are those of the text as written.

        equal: pairs of a row and one that is equal by associativity, and is not the text's.
        """
        unions = "\n".join(f"(union $t{a} $t{b})" for a, b in equal)
        flatten = sum(1 << k for k, r in enumerate(self.rules) if r.name == "flatten")
        rank = max((len(attrs[1]) for op, attrs, _ in rows if op == "leaf"), default=0)
        self._window = "\n".join((spell_rows(rows, {b: flatten for _, b in equal}), spell_names(sizes), unions))
        self._opened = (rules, _USUAL_RANK if rank <= _USUAL_RANK else LARGEST_RANK)
        self.again()

    def again(self) -> None:
        """The window as it was opened."""
        self.renew(*self._opened)
        self._fresh = False
        self._run(self._window)
        self.settle()

    def settle(self) -> None:
        """Analyses and simplifications to their fixpoint."""
        self._run(_RUN)

    def apply(self, ruleset: str) -> tuple[int, bool]:
        """Run one rule once: how many matches, whether anything changed."""
        (output,) = self._run(f"(run-schedule (run {ruleset}))")
        report = output.report
        return sum(report.num_matches_per_rule.values()), report.updated

    def size(self) -> tuple[int, int]:
        """E-nodes that stand for terms; rows of all tables, in which memory and the time of a step are linear."""
        (output,) = self._run("(print-size)")
        return sum(count for name, count in output.sizes if name in CONSTRUCTORS), sum(count for _, count in output.sizes)

    def freeze(self, rows: Sequence[Row], sizes: dict[str, int]) -> Frozen:
        """The e-graph as data; `rows` are those it was opened with. ValueError where egglog has lost one of them."""
        return _Reader(self.egraph).frozen(rows, sizes)


class _Reader:
    """Reads rows of egglog's tables; classes get small numbers in the order met."""

    def __init__(self, egraph: Any) -> None:
        self.egraph = egraph
        self.numbers: dict[Any, int] = {}
        self.read: dict[tuple[str, Any], Any] = {}

    def frozen(self, rows: Sequence[Row], sizes: dict[str, int]) -> Frozen:
        functions = self.egraph.freeze().functions
        lets = {name[2:]: f.rows[0].output for name, f in functions.items() if f.is_let_binding and name.startswith("$t")}
        out = Frozen([], {}, set(), set(), set(), [self._class(lets[str(k)]) for k in range(len(rows))], dict(sizes))
        for name in CONSTRUCTORS:
            if name not in functions:
                continue
            f = functions[name]
            by = {tuple(r.inputs): r.output for r in functions[f"by_{name}"].rows}
            for r in f.rows:
                values = [self._value(sort, v) for sort, v in zip(f.input_sorts, r.inputs)]
                node = _enode(name, self._class(r.output), values)
                out.nodes.append(node)
                out.by[node.key] = self.egraph.value_to_i64(by[tuple(r.inputs)])
        tables: dict[str, Any] = {name: functions[name].rows if name in functions else () for name in ANALYSES}
        out.free = {self._class(r.inputs[0]): self._value("Names", r.output) for r in tables["fi"]}
        for target, name in ((out.weights, "isw"), (out.bounded, "bounded"), (out.exps, "given")):
            target.update(self._class(r.inputs[0]) for r in tables[name])
        out.given = {key_of(row, out.rows) for row in rows}
        if not out.given <= {n.key for n in out.nodes}:
            raise ValueError("the e-graph does not hold the text")
        return out

    def _class(self, value: Any) -> int:
        return self.numbers.setdefault(value, len(self.numbers))

    def _value(self, sort: str, value: Any) -> Any:
        if sort == "E":
            return self._class(value)
        key = (sort, value)
        if key not in self.read:
            self.read[key] = self._decoded(sort, value)
        return self.read[key]

    def _decoded(self, sort: str, value: Any) -> Any:
        e = self.egraph
        match sort:
            case "i64":
                return e.value_to_i64(value)
            case "f64":
                return e.value_to_f64(value)
            case "String":
                return e.value_to_string(value)
            case "Bag":
                return tuple(sorted(self._class(v) for v in e.value_to_multiset(value)))
            case "Names":
                return frozenset(e.value_to_string(v) for v in e.value_to_set(value))
        return tuple(e.value_to_string(v) for v in e.value_to_vec(value))


def _enode(name: str, cls: int, v: list[Any]) -> ENode:
    match name:
        case "leaf" | "wt":
            return ENode(cls, "leaf", (v[0], v[1], name == "wt"), ())
        case "const":
            return ENode(cls, "const", (v[0],), ())
        case "ein":
            return ENode(cls, "ein", (tuple(sorted(v[0])),), v[1])
        case "add":
            return ENode(cls, "add", (), v[0])
        case "un":
            return ENode(cls, "un", (v[0],), (v[1],))
        case "bin" | "tri":
            return ENode(cls, name, (v[0],), tuple(v[1:]))
        case "cat":
            return ENode(cls, "cat", (v[0], v[1], v[3]), (v[2], v[4]))
    return ENode(cls, "max" if name == "rmax" else name, tuple(v[:-1]), (v[-1],))


def key_of(row: Row, classes: Sequence[int]) -> Any:
    """The key of the e-node of a row of the request; classes: of its rows."""
    op, attrs, kids = row
    of = tuple(classes[k] for k in kids)
    return op, attrs, tuple(sorted(of)) if op in ("ein", "add") else of


def rules_named(rules: Iterable[IndexRule], names: Iterable[str]) -> tuple[IndexRule, ...]:
    """The rules of these names, in their own order."""
    wanted = set(names)
    return tuple(r for r in rules if r.name in wanted)
