"""Index terms and rules in egglog's own text.

Multisets cannot be matched, so their elements are tables: `mem(M, f)` one row for each element, `rest(M, f)` and `rest2(M, f, g)`
what is left without them. A primitive's result must never be a table's key in a query (egglog would scan the cross product), and
`multiset-pick` and `multiset-remove` panic where there is nothing to take: each is behind a row of `demanded` or `mem`.
Analyses: `fi` and `fim`, free indices of a term and of a bag (a superset of the true ones, met by intersection); `cv`, a
constant's value; `isw`, known at compile time; `bounded`, proven to be at most 0. One window has one dtype, and an index one
size.
Beside each constructor stands a table of the same columns, `by_ein` beside `ein`, that holds the rules which first made the term
out of the text, directly and before: a number with a bit for each rule. Rules join those of what they match and pass them on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import assert_never

from tcomp.passes.egraph.pattern import Bag, Braces, Combined, Each, Free, Number, Op, Part, Prime, Var, sorts, walk
from tcomp.passes.egraph.rule import Condition, IndexRule
from tcomp.passes.egraph.terms import Row

LARGEST_RANK = 8
SORTS = {"E": "E", "Bag": "Bag", "Names": "Names", "Name": "String", "Int": "i64", "Axes": "Axes"}
ANALYSES = ("fi", "isw", "bounded", "given")
MOST_RULES = 62  # bits of a number
_COLUMNS = {
    **dict.fromkeys(("leaf", "wt"), "String Axes"),
    "const": "f64",
    "ein": "Names Bag",
    "add": "Bag",
    "un": "String E",
    "bin": "String E E",
    "tri": "String E E E",
    "rmax": "String E",
    "ren": "String String E",
    "win": "String String String i64 i64 E",
    "cat": "String Axes E Axes E",
    "part": "String i64 Axes E",
}
CONSTRUCTORS = tuple(_COLUMNS)

_DECLARATIONS = """
(sort E) (sort Names (Set String)) (sort Axes (Vec String)) (sort Bag (MultiSet E))
(sort Each (UnstableFn (E) E)) (sort Index (UnstableFn (Bag E) i64))
(function fi (E) Names :merge (set-intersect old new)) (function fim (Bag) Names :merge (set-intersect old new))
(function mem (Bag E) i64 :merge old) (function rest (Bag E) Bag :merge old) (function rest2 (Bag E E) Bag :merge old)
(function cv (E) f64 :merge old)
(relation demanded (Bag)) (relation nonempty (Bag)) (relation chain (Bag E Bag)) (relation allw (Bag))
(relation isw (E)) (relation bounded (E)) (relation given (E)) (relation base (String))
(ruleset analysis) (ruleset simplify)
"""

_ANALYSIS = """
(= x (wt n v)) => (isw x)
(= x (const w)) => (set (fi x) (set-empty)) (isw x) (set (cv x) w)
(= x (ein B M)) => (unstable-multiset-fill-index M (unstable-fn "mem")) (demanded M)
(= x (add M)) => (unstable-multiset-fill-index M (unstable-fn "mem")) (demanded M)
(= k (mem M f)) => (set (rest M f) (multiset-remove M f)) (demanded (multiset-remove M f))
(= k (mem M f)) (= l (mem M g)) (!= f g) => (set (rest2 M f g) (multiset-remove (multiset-remove M f) g))
(demanded M) (>= (multiset-length M) 1) => (nonempty M)
(nonempty M) => (demanded (multiset-remove M (multiset-pick M))) (chain M (multiset-pick M) (multiset-remove M (multiset-pick M)))
(demanded M) (= (multiset-length M) 0) => (set (fim M) (set-empty)) (allw M)
(chain M f N) (= s (fi f)) (= t (fim N)) => (set (fim M) (set-union s t))
(chain M f N) (isw f) (allw N) => (allw M)
(= x (ein B M)) (allw M) => (isw x)
(= x (add M)) (allw M) => (isw x)
(= x (un n a)) (isw a) => (isw x)
(= x (ren i j a)) (isw a) => (isw x)
(= x (part i k v a)) (isw a) => (isw x)
(= x (ein B M)) (= s (fim M)) => (set (fi x) (set-diff s B))
(= x (add M)) (= s (fim M)) => (set (fi x) s)
(= x (un n a)) (= s (fi a)) => (set (fi x) s)
(= x (bin n a b)) (= s (fi a)) (= t (fi b)) => (set (fi x) (set-union s t))
(= x (tri n a b c)) (= s (fi a)) (= t (fi b)) (= u (fi c)) => (set (fi x) (set-union s (set-union t u)))
(= x (rmax i a)) (= s (fi a)) => (set (fi x) (set-remove s i))
(= x (ren i j a)) (= s (fi a)) (set-contains s i) => (set (fi x) (set-insert (set-remove s i) j))
(= x (win h p r k d a)) (= s (fi a)) (set-contains s h) => (set (fi x) (set-insert (set-insert (set-remove s h) p) r))
(= x (add M)) (= (multiset-length M) 2) (= k (mem M a)) (= l (mem M y)) (= y (ein B N)) (= (set-length B) 0) \
(= (multiset-length N) 2) (= k (mem N g)) (= g (const -1.0)) (= l (mem N f)) (= f (rmax i a)) => (bounded x)
"""

_CONSTANTS = """
(= x (ein B M)) (= k (mem M f)) (= l (mem M g)) (!= f g) (= v (cv f)) (= w (cv g)) (= R (rest2 M f g)) (= u (by_ein B M)) \
=> (union x (ein B (multiset-insert R (const (* v w))))) (set (by_ein B (multiset-insert R (const (* v w)))) u) \
(set (by_const (* v w)) u)
"""


def prelude(rules: Mapping[IndexRule, int], rank: int = LARGEST_RANK) -> str:
    """The program that declares terms, analyses and rules; each rule that does not simplify has a ruleset of its own name.

    rules: with the bit of each; rank: the largest of an operand. egglog takes about 0.2 ms for each rule, whatever it is.
    """
    constructors = [f"(constructor {c} ({s}) E) (function by_{c} ({s}) i64 :merge old)" for c, s in _COLUMNS.items()]
    lines = [_DECLARATIONS, *constructors, *_rules_of(_ANALYSIS, "analysis"), *_rules_of(_CONSTANTS, "simplify")]
    lines += _leaf_rules(rank)
    for rule, bit in rules.items():
        lines.append(spell_rule(rule, 1 << bit))
    return "\n".join(lines)


def _rules_of(text: str, ruleset: str) -> list[str]:
    lines = [line.split("=>") for line in text.strip().splitlines()]
    return [f"(rule ({facts}) ({actions}) :ruleset {ruleset})" for facts, actions in lines]


def _leaf_rules(most: int) -> list[str]:
    """Free indices of operands of each rank up to `most`; names in the place of others, one at a time: one may stand twice."""
    out = []
    for maker in ("leaf", "wt"):
        for rank in range(most + 1):
            names = " ".join(f"(vec-get v {k})" for k in range(rank))
            free = f"(set-of {names})" if rank else "(set-empty)"
            out.append(f"(rule ((= x ({maker} n v)) (= (vec-length v) {rank})) ((set (fi x) {free})) :ruleset analysis)")
        for k in range(most):
            facts = f"(= x (ren i j y)) (= y ({maker} n v)) (> (vec-length v) {k}) (= (vec-get v {k}) i) (!= i j)"
            moved = f"n (vec-set v {k} j)"
            made = f"(set (by_{maker} {moved}) w) (set (by_ren i j ({maker} {moved})) w)"
            out.append(f"(rule ({facts} (= w (by_ren i j y))) ((union x (ren i j ({maker} {moved}))) {made}) :ruleset simplify)")
    return out


# --- rules -----------------------------------------------------------------------------------------------


def spell_rule(rule: IndexRule, bit: int = 0) -> str:
    """One rule, after the helpers that its `for` parts need. bit: what stands for the rule beside the terms that it makes."""
    body = _Body()
    body.match(rule.left, "x")
    for c in rule.conditions:
        body.require(c)
    kinds = {**body.sorts, **sorts(rule.left)}
    by = str(bit)
    for made in body.made:
        by = f"(| {by} {made})"
    result = _Result(rule.name, kinds, {part: body.names(part) for part in walk(rule.right) if isinstance(part, Free)}, by)
    right = result.spell(rule.right)
    ruleset = "simplify" if rule.simplifies else rule.name
    head = [] if rule.simplifies else [f"(ruleset {rule.name})"]
    facts, actions = " ".join(body.facts), " ".join([f"(union x {right})", *result.made])
    return "\n".join([*head, *result.helpers, f'(rule ({facts}) ({actions}) :ruleset {ruleset} :name "{rule.name}")'])


class _Body:
    """Collects the facts of a left side and its conditions. made: variables that hold what made the terms it matches."""

    def __init__(self) -> None:
        self.facts: list[str] = []
        self.made: list[str] = []
        self.sorts: dict[str, str] = {}
        self._count = 0

    def fresh(self, letter: str) -> str:
        self._count += 1
        return f"{letter}{self._count}"

    def match(self, p: Part, var: str) -> None:
        """`var` is of the form `p`."""
        match p:
            case Number():
                self.facts.append(f"(= {var} (const {p.value!r}))")
            case Op():
                args = [self.argument(a) for a in p.args]
                after = [later for _, later in args]
                row = f"{_name(p.op)} {' '.join(name for name, _ in args)}"
                self.made.append(self.fresh("w"))
                self.facts += [f"(= {var} ({row}))", f"(= {self.made[-1]} (by_{row}))"]
                for later in after:
                    self.facts += later[0]
                    for part, name in later[1]:
                        self.match(part, name)
            case _:
                raise ValueError(f"not on a left side: {p}")

    def argument(self, p: Part) -> tuple[str, tuple[list[str], list[tuple[Part, str]]]]:
        """A variable for an operand; facts about it and patterns that it must match."""
        match p:
            case Var():
                return (f'"{p.name[1:-1]}"' if p.name.startswith("'") else p.name), ([], [])
            case Braces() if not p.names:
                empty = self.fresh("b")
                return empty, ([f"(= (set-length {empty}) 0)"], [])
            case Bag():
                return self.bag(p)
        inner = self.fresh("e")
        return inner, ([], [(p, inner)])

    def bag(self, p: Bag) -> tuple[str, tuple[list[str], list[tuple[Part, str]]]]:
        """Elements by `mem`, what is left by `rest`."""
        if not p.items:
            return p.splices[0], ([], [])
        m = self.fresh("m")
        names = [i.name if isinstance(i, Var) else self.fresh("f") for i in p.items]
        facts = [f"(= {self.fresh('k')} (mem {m} {n}))" for n in names]
        if len(names) == 2:
            facts.append(f"(!= {names[0]} {names[1]})")
        if p.splices:
            table = "rest" if len(names) == 1 else "rest2"
            facts.append(f"(= {p.splices[0]} ({table} {m} {' '.join(names)}))")
        else:
            facts.append(f"(= (multiset-length {m}) {len(names)})")
        return m, (facts, [(i, n) for i, n in zip(p.items, names) if not isinstance(i, Var)])

    def require(self, c: Condition) -> None:
        """The facts of a condition: egglog's meaning of the vocabulary of `rule.CONDITIONS`."""
        a = [a if isinstance(a, int) else self.names(a) for a in c.args]
        match c.name:
            case "disjoint":
                fact = f"(= (set-length (set-intersect {a[0]} {a[1]})) 0)"
            case "some":
                fact = f"(> (set-length {a[0]}) 0)"
            case "none":
                fact = f"(= (set-length {a[0]}) 0)"
            case "absent":
                fact = f"(set-not-contains {a[1]} {a[0]})"
            case "present":
                fact = f"(set-contains {a[1]} {a[0]})"
            case "other":
                fact = f"(!= {a[0]} {a[1]})"
            case "filled":
                fact = f"(>= (multiset-length {a[0]}) 1)"
            case "short":
                total = f"(multiset-length {a[1]})"
                for more in a[2:]:
                    total = f"(+ {total} (multiset-length {more}))"
                fact = f"(<= {total} {a[0]})"
            case "named":
                self.sorts[str(a[0])] = "Name"
                fact = f"(base {a[0]})"
            case "weight":
                fact = f"(isw {a[0]})"
            case "weights":
                fact = f"(allw {a[0]})"
            case "known":
                self.sorts.update(sorts(c.args[0]) if not isinstance(c.args[0], int) else {})
                fact = ""
            case "positive":
                value = self.fresh("w")
                fact = f"(= {value} (cv {a[0]})) (> {value} 0.0)"
            case _:
                raise ValueError(c.name)
        if fact:
            self.facts.append(fact)

    def names(self, p: Part) -> str:
        """A condition's argument as egglog text; what it needs to know goes to the facts."""
        match p:
            case Var():
                return p.name
            case Free():
                s = self.fresh("s")
                self.facts.append(f"(= {s} ({'fim' if p.of == 'Bag' else 'fi'} {p.var}))")
                return s
            case Combined():
                return _combined(p.kind, self.names(p.left), self.names(p.right))
            case Prime():
                return f'(+ {p.name} "\'")'
            case Op():
                known = self.fresh("e")
                self.match(p, known)
                return known
        raise ValueError(f"not an argument of a condition: {p}")


class _Result:
    """Spells a right side. Each `for` part becomes a constructor of one term over what it needs, and a rule that expands it.

    free: variables of the left side that hold free indices. by: what made the right side; made: actions that say so of each term.
    """

    def __init__(self, rule: str, kinds: dict[str, str], free: dict[Free, str], by: str) -> None:
        self.rule, self.kinds, self.free, self.by = rule, kinds, free, by
        self.helpers: list[str] = []
        self.made: list[str] = []

    def spell(self, p: Part) -> str:
        match p:
            case Var():
                return f'"{p.name[1:-1]}"' if p.name.startswith("'") else p.name
            case Number():
                return self.term(f"const {p.value!r}")
            case Op():
                return self.term(f"{_name(p.op)} {' '.join(map(self.spell, p.args))}")
            case Bag():
                return self.bag(p)
            case Combined():
                return _combined(p.kind, self.spell(p.left), self.spell(p.right))
            case Braces():
                return f"(set-of {' '.join(map(self.spell, p.names))})" if p.names else "(set-empty)"
            case Prime():
                return f'(+ {p.name} "\'")'
            case Free():
                return self.free[p]
        assert_never(p)

    def term(self, row: str) -> str:
        self.made.append(f"(set (by_{row}) {self.by})")
        return f"({row})"

    def bag(self, p: Bag) -> str:
        bags = [*p.splices, *map(self.each, p.each)]
        if p.items:
            bags.append(f"(multiset-of {' '.join(map(self.spell, p.items))})")
        out = bags[0]
        for more in bags[1:]:
            out = f"(multiset-sum {out} {more})"
        return out

    def each(self, e: Each) -> str:
        used = {n: s for n, s in sorts(e.body).items() if n != e.var}
        name = f"each_{self.rule}_{len(self.helpers) // 2}"
        inner = _Result(self.rule, self.kinds, self.free, "by")
        body = inner.spell(e.body)
        kinds = " ".join(SORTS[s] for s in used.values())
        fact, actions = f"(= x ({name} by {' '.join(used)} {e.var}))", " ".join([f"(union x {body})", *inner.made])
        self.helpers.append(f"(constructor {name} (i64 {kinds} E) E)")
        self.helpers.append(f"(rule ({fact}) ({actions}) :ruleset simplify)")
        return f'(unstable-multiset-map (unstable-fn "{name}" {self.by} {" ".join(used)}) {e.over})'


def _combined(kind: str, a: str, b: str) -> str:
    name = {"|": "set-union", "&": "set-intersect", "-": "set-diff"}[kind]
    return f"({name} {a} {b})"


def _name(op: str) -> str:
    return "rmax" if op == "max" else op


# --- terms -----------------------------------------------------------------------------------------------


def spell_rows(rows: Sequence[Row], by: Mapping[int, int]) -> str:
    """Definitions `$t0`, `$t1`, ... of the rows, and which exps the text has. by: what made those that it does not have."""
    lines = []
    for k, row in enumerate(rows):
        term = _spell_row(row)
        given = f" (given $t{k})" if row[:2] == ("un", ("exp",)) else ""
        lines.append(f"(let $t{k} ({term})) (set (by_{term}) {by.get(k, 0)}){given}")
    return "\n".join(lines)


def spell_names(names: Iterable[str]) -> str:
    return "\n".join(f'(base "{n}")' for n in names if "'" not in n)


def _spell_row(row: Row) -> str:
    """A row as a constructor and its operands."""
    op, attrs, kids = row
    k = [f"$t{kid}" for kid in kids]
    match op:
        case "leaf":
            return f'{"wt" if attrs[2] else "leaf"} "{attrs[0]}" {_axes(attrs[1])}'
        case "const":
            return f"const {attrs[0]!r}"
        case "ein":
            names = " ".join(f'"{n}"' for n in attrs[0])
            return f"ein {f'(set-of {names})' if names else '(set-empty)'} (multiset-of {' '.join(k)})"
        case "add":
            return f"add (multiset-of {' '.join(k)})"
        case "cat":
            return f'cat "{attrs[0]}" {_axes(attrs[1])} {k[0]} {_axes(attrs[2])} {k[1]}'
        case "part":
            return f'part "{attrs[0]}" {attrs[1]} {_axes(attrs[2])} {k[0]}'
    words = " ".join(f'"{a}"' if isinstance(a, str) else str(a) for a in attrs)
    return f"{_name(op)} {words} {' '.join(k)}"


def _axes(names: Sequence[str]) -> str:
    return f"(vec-of {' '.join(f'{chr(34)}{n}{chr(34)}' for n in names)})" if names else "(vec-empty)"
