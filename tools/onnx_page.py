"""The page docs/onnx.md: every operator of ONNX and of onnxruntime's domain, from which opset on, and what is refused.

Refusals are read from the source: what the row of an operator, and the functions that it names, pass to `unsupported`, and what
they require to be constant.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import onnx.defs

from tcomp.frontend.onnx import importer, registry, schemas

PACKAGE = importer.__name__.rpartition(".")[0]
GENERAL = (f"{PACKAGE}.registry", f"{PACKAGE}.facts", f"{PACKAGE}.regions")  # what they refuse is on the page's head
TITLES = {"": "The default domain", registry.ML: registry.ML, registry.MICROSOFT: registry.MICROSOFT}
WHY = {  # operators that no row will come for
    "strings": ("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit"),
    "images: decoders of files are no part of a tensor compiler": ("ImageDecoder",),
    "training": ("Adagrad", "Adam", "Gradient", "Momentum"),
}
HEAD = """# ONNX

Models of opset 1 to {newest} of the default domain, with `ai.onnx.ml` and with what exporters and quantisers emit of
`com.microsoft`. The text of an operator at the model's opset decides what it means, for `com.microsoft` onnxruntime's document.

Sizes, positions and axes may be data, unless the table says otherwise. What is refused is so at compile time (TC0202), with the
node's place and the reason; everywhere: strings, complex numbers, sparse initializers. An operator that is *inlined* is replaced
by the function body that ONNX gives for it: what its body needs decides what is refused.

"""


Body = ast.FunctionDef | ast.Lambda


@dataclass(frozen=True, slots=True)
class Source:
    """A module of the frontend: its functions, those inside others too, and what its names are."""

    functions: dict[str, ast.FunctionDef] = field(default_factory=dict)  # of the module itself, by name
    lines: dict[int, Body] = field(default_factory=dict)  # all, by their first line
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)  # name -> module and name there


@cache
def source(module: str) -> Source:
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    found = Source()
    for n in ast.walk(tree):
        if isinstance(n, ast.FunctionDef):
            found.lines[min([n.lineno, *(d.lineno for d in n.decorator_list)])] = n
        elif isinstance(n, ast.Lambda):
            found.lines[n.lineno] = n
        elif isinstance(n, ast.ImportFrom) and n.module and n.module.startswith(PACKAGE):
            found.imports.update({a.asname or a.name: (n.module, a.name) for a in n.names})
    found.functions.update({n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)})
    return found


def resolve(module: str, n: ast.expr) -> tuple[str, str] | None:
    """The module and name of the frontend's function that an expression names."""
    known = source(module)
    if isinstance(n, ast.Name):
        at = (module, n.id) if n.id in known.functions else known.imports.get(n.id)
    elif isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id in known.imports:
        package, name = known.imports[n.value.id]
        at = (f"{package}.{name}", n.attr)
    else:
        return None
    if at is None or at[0] in GENERAL or at[0] not in sys.modules or at[1] not in source(at[0]).functions:
        return None
    return at


def words(n: ast.expr) -> str:
    """A string as it stands in the source; what is put in is three dots."""
    if isinstance(n, ast.Constant):
        return str(n.value)
    if isinstance(n, ast.JoinedStr):
        return "".join(words(v) if isinstance(v, ast.Constant) else "…" for v in n.values)
    return "…"


def own_reasons(n: ast.AST) -> Iterator[str]:
    """What a function refuses by itself."""
    for call in ast.walk(n):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        if call.func.attr == "unsupported" and call.args:
            yield words(call.args[0])
        elif call.func.attr in ("require_constant", "dims") and len(call.args) > 1:
            yield f"{words(call.args[1])} that is data"


def reasons(f: Callable[..., Any]) -> list[str]:
    """What the row of an operator may refuse, with all that it calls."""
    inside = [cell.cell_contents for cell in f.__closure__ or ()]  # a row that a function has made names others by its closure
    functions = [g for g in (f, *inside) if inspect.isfunction(g) and g.__module__.startswith(PACKAGE)]
    stack: list[tuple[str, Body]] = [(g.__module__, source(g.__module__).lines[g.__code__.co_firstlineno]) for g in functions]
    seen: set[tuple[str, int]] = set()
    named = dict(zip(f.__code__.co_freevars, inside))
    found: dict[str, None] = {named["reason"]: None} if "reason" in named else {}
    while stack:
        module, n = stack.pop()
        if (module, n.lineno) in seen:
            continue
        seen.add((module, n.lineno))
        found.update(dict.fromkeys(own_reasons(n)))
        calls = (resolve(module, e) for e in ast.walk(n) if isinstance(e, ast.Name | ast.Attribute))
        stack += [(at[0], source(at[0]).functions[at[1]]) for at in calls if at is not None]
    return sorted(r for r in found if r.strip("… "))


@cache
def versions(domain: str) -> dict[str, list[Any]]:
    """The schemas of every operator of a domain, oldest first."""
    found: dict[str, list[Any]] = {}
    for s in onnx.defs.get_all_schemas_with_history():
        if s.domain == domain:
            found.setdefault(s.name, []).append(s)
    return {name: sorted(rows, key=lambda s: s.since_version) for name, rows in found.items()}


def opsets(rows: list[int], known: list[Any]) -> str:
    """From which opset on, and up to which."""
    first = max(min(rows, default=1), known[0].since_version if known else 1)
    last = known[-1] if known else None
    return f"{first} to {last.since_version - 1}" if last is not None and last.deprecated else f"{first}"


def line(domain: str, name: str) -> tuple[str, str, str] | None:
    """The operator's row of the table; None where tcomp has no meaning for it."""
    rows, known = registry.rows(name, domain), versions(domain).get(name, [])
    if not rows:
        inlined = any(s.has_function or s.has_context_dependent_function for s in known)
        return (f"`{name}`", opsets([], known), "*inlined*") if inlined else None
    refused = dict.fromkeys(r for _, f in rows for r in reasons(f))
    return f"`{name}`", opsets([since for since, _ in rows], known), "; ".join(refused)


def page(table: Callable[[Iterable[str], Iterable[Iterable[str]]], str]) -> str:
    """docs/onnx.md."""
    parts = [HEAD.format(newest=schemas.newest()[""])]
    for domain, title in TITLES.items():
        names = sorted({*versions(domain), *registry.names(domain)})
        lines = [found for name in names if (found := line(domain, name)) is not None]
        parts.append(f"## {title}\n\n" + table(("operator", "from opset", "refused"), lines) + "\n")
    missing = [(f"`{name}`", why) for why, names in WHY.items() for name in names]
    parts.append("## Operators that are refused\n\n" + table(("operator", "why"), missing))
    return "".join(parts)


def unexplained() -> list[str]:
    """Operators of ONNX that have neither a row, nor a body, nor a reason."""
    explained = {name for names in WHY.values() for name in names}
    domains = ("", registry.ML, "ai.onnx.preview", "ai.onnx.preview.training")
    return [f"{d}:{n}" for d in domains for n in versions(d) if line(d, n) is None and n not in explained]
