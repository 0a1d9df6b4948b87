"""The two sides of an index rule, as text with the grammar of Python's expressions; and what they denote for given variables.

    ein(B, {ein(C, N), *R})              a sum of products, one factor itself one; R: the other factors
    add({ein(B, {t, *R}) for t in N})    a sum with one term for each t of N
    ein(B | C, {*R, *N})                 names: B | C, B & C, B - C, {i, j}, {}; free(x) are the indices that x (or R) depends on
    win(h, p, r, s, d, x)                names and numbers by position; exp(x) and inv(x) are un("exp", x), un("inv", x)

A variable's sort follows from its place: E (a term), Bag, Names, Name, Int, Axes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, assert_never

from tcomp.passes.egraph.terms import EMPTY, Names, Terms, free_indices

SIGNATURES: dict[str, tuple[str, ...]] = {
    "ein": ("Names", "Bag"),
    "add": ("Bag",),
    "un": ("Name", "E"),
    "exp": ("E",),
    "inv": ("E",),
    "max": ("Name", "E"),
    "ren": ("Name", "Name", "E"),
    "win": ("Name", "Name", "Name", "Int", "Int", "E"),
    "part": ("Name", "Int", "Axes", "E"),
}
_SHORT = ("exp", "inv")


@dataclass(frozen=True, slots=True)
class Var:
    name: str
    sort: str


@dataclass(frozen=True, slots=True)
class Number:
    value: float


@dataclass(frozen=True, slots=True)
class Op:
    op: str
    args: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Each:
    """`body` for every `var` of the bag `over`."""

    body: Part
    var: str
    over: str


@dataclass(frozen=True, slots=True)
class Bag:
    items: tuple[Part, ...]
    splices: tuple[str, ...]
    each: tuple[Each, ...]


@dataclass(frozen=True, slots=True)
class Combined:
    """Names: kind is `|`, `&` or `-`."""

    kind: str
    left: Part
    right: Part


@dataclass(frozen=True, slots=True)
class Braces:
    names: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Free:
    var: str
    of: str  # E or Bag


@dataclass(frozen=True, slots=True)
class Prime:
    name: str


Part = Var | Number | Op | Bag | Combined | Braces | Free | Prime
Values = Mapping[str, Any]  # E: row number; Bag: row numbers; Names: frozenset; Name: str; Int: int; Axes: names


@cache
def parse(text: str, sort: str = "E", bags: frozenset[str] = frozenset()) -> Part:
    """The pattern that `text` writes. bags: names of variables that hold bags, for `free(R)`. ValueError where it is none."""
    return _read(ast.parse(text.strip(), mode="eval").body, sort, bags)


def _read(n: ast.expr, sort: str, bags: frozenset[str]) -> Part:
    if isinstance(n, ast.Name):
        return Var(n.id, sort)
    if isinstance(n, ast.UnaryOp | ast.Constant) and sort == "E":
        return Number(float(ast.literal_eval(n)))
    if isinstance(n, ast.Call) and isinstance(n.func, ast.Name):
        return _read_call(n, n.func.id, bags)
    if isinstance(n, ast.BinOp):
        kind = {ast.BitOr: "|", ast.BitAnd: "&", ast.Sub: "-"}[type(n.op)]
        return Combined(kind, _read(n.left, "Names", bags), _read(n.right, "Names", bags))
    if sort == "Names" and isinstance(n, ast.Set | ast.Dict):
        return Braces(tuple(_read(e, "Name", bags) for e in (n.elts if isinstance(n, ast.Set) else ())))
    if sort == "Bag":
        return _read_bag(n, bags)
    raise ValueError(f"not a pattern of sort {sort}: {ast.unparse(n)}")


def _read_call(n: ast.Call, name: str, bags: frozenset[str]) -> Part:
    if name == "free":
        var = ast.unparse(n.args[0])
        return Free(var, "Bag" if var in bags else "E")
    if name == "prime":
        return Prime(ast.unparse(n.args[0]))
    args = tuple(_read(a, sort, bags) for a, sort in zip(n.args, SIGNATURES[name], strict=True))
    return Op("un", (Var(repr(name), "Name"), *args)) if name in _SHORT else Op(name, args)


def _read_bag(n: ast.expr, bags: frozenset[str]) -> Bag:
    parts = n.elts if isinstance(n, ast.Set) else [n]
    items, splices, each = [], [], []
    for p in parts:
        inner = p.value if isinstance(p, ast.Starred) else p
        if isinstance(inner, ast.SetComp):
            each.append(_read_each(inner, bags))
        elif isinstance(p, ast.Starred):
            splices.append(ast.unparse(inner))
        else:
            items.append(_read(inner, "E", bags))
    return Bag(tuple(items), tuple(splices), tuple(each))


def _read_each(n: ast.SetComp, bags: frozenset[str]) -> Each:
    loop = n.generators[0]
    return Each(_read(n.elt, "E", bags), ast.unparse(loop.target), ast.unparse(loop.iter))


def walk(p: Part) -> Iterator[Part]:
    """`p` and everything in it."""
    yield p
    match p:
        case Op():
            inner: tuple[Part, ...] = p.args
        case Bag():
            inner = (*p.items, *(e.body for e in p.each))
        case Combined():
            inner = (p.left, p.right)
        case Braces():
            inner = p.names
        case _:
            inner = ()
    for part in inner:
        yield from walk(part)


def sorts(p: Part) -> dict[str, str]:
    """Every variable and its sort; variables of `for` are not among them."""
    out: dict[str, str] = {}
    bound = {e.var for b in walk(p) if isinstance(b, Bag) for e in b.each}
    for part in walk(p):
        match part:
            case Var() if not part.name.startswith("'"):
                out[part.name] = part.sort
            case Bag():
                out.update(dict.fromkeys((*part.splices, *(e.over for e in part.each)), "Bag"))
            case Free():
                out.setdefault(part.var, part.of)
            case Prime():
                out.setdefault(part.name, "Name")
    return {name: sort for name, sort in out.items() if name not in bound}


# --- what a pattern denotes ------------------------------------------------------------------------------


def free(t: Terms, row: int) -> Names:
    """The indices that a row of a table depends on."""
    op, attrs, kids = t.rows[row]
    return free_indices(op, attrs, [free(t, k) for k in kids])


def denote(p: Part, v: Values, t: Terms) -> Any:
    """The value of a pattern where its variables have the values `v`: a row that is added to `t`, a bag of rows, names, ..."""
    match p:
        case Var():
            return p.name.strip("'") if p.name.startswith("'") else v[p.name]
        case Number():
            return t.const(p.value)
        case Op():
            return _denote_op(p, [denote(a, v, t) for a in p.args], t)
        case Bag():
            items = [denote(i, v, t) for i in p.items] + [r for s in p.splices for r in v[s]]
            return (*items, *(denote(e.body, {**v, e.var: r}, t) for e in p.each for r in v[e.over]))
        case Combined():
            a, b = denote(p.left, v, t), denote(p.right, v, t)
            return a | b if p.kind == "|" else a & b if p.kind == "&" else a - b
        case Braces():
            return frozenset(denote(n, v, t) for n in p.names)
        case Free():
            rows: tuple[int, ...] = v[p.var] if p.of == "Bag" else (v[p.var],)
            return EMPTY.union(*(free(t, r) for r in rows))
        case Prime():
            return v[p.name] + "'"
    assert_never(p)


def _denote_op(p: Op, args: list[Any], t: Terms) -> int:
    if p.op == "ein":
        return t.ein(args[0], *args[1])
    return t.add(*args[0]) if p.op == "add" else t.row(p.op, tuple(args[:-1]), args[-1:])
