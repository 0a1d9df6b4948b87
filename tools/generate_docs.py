"""Write the pages of docs/ that are made from tables: errors.md, knobs.md, numpy.md, onnx.md, ops.md, passes.md.

    python tools/generate_docs.py            write them
    python tools/generate_docs.py --check    exit code 1 where one is not up to date
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

import numpy_page  # noqa: E402
import onnx_page  # noqa: E402

from tcomp import driver  # noqa: E402
from tcomp.errors import CODES  # noqa: E402
from tcomp.ir.machine import INTRINSICS  # noqa: E402
from tcomp.ir.ops import OPS, OpDef  # noqa: E402
from tcomp.knobs import KNOBS  # noqa: E402

RANGES = {
    "00": "Everywhere",
    "01": "Tracing functions",
    "02": "Reading ONNX models",
    "03": "Text and legality of modules",
    "04": "Passes",
    "05": "Schedule and code generation",
    "06": "Calls",
    "07": "Artifacts and caches",
    "08": "Command line",
}
ERRORS_HEAD = """# Errors

Every error is a `tcomp.Error`: a code, what was found, what was expected, the place in the user's source (with a caret) or in
the ONNX graph, and a hint. `error.code`, `.found`, `.expected`, `.place` and `.hint` hold the parts. Tracebacks leave out
tcomp's own frames unless `TCOMP_DEBUG=1`.

"""
KNOBS_HEAD = """# Knobs

Environment variables, read when they are needed; a value that does not fit is TC0002.

"""
OPS_HEAD = """# Operations

Every operation of GRAPH, from the table in `tcomp/ir/ops/`. The pointwise ones are operations on tiles too. *Facts* hold for
every dtype, those in brackets for integers and booleans only (`test`: the result is a bool; `costly`: it takes many instructions,
and is not computed twice). What values mean: [lang.md](lang.md).

"""
INTRINSICS_HEAD = """
## Intrinsics

What products of tiles are built from, per machine; see `tcomp/ir/machine.py`.

"""
PASSES_HEAD = """# Passes

In the order of first use (`tcomp/driver.py`). A pass has one name for its function, its file and its dump.
`TCOMP_DUMP=folder` writes the text after each; `tcomp opt FILE --passes a,b` takes up a dump.

"""
KINDS = {
    "source": "Sources",
    "pointwise": "Pointwise",
    "movement": "Movement",
    "reduction": "Reductions",
    "contraction": "Contractions",
    "indexing": "Indexing",
    "control": "Control",
}


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def errors() -> str:
    """docs/errors.md."""
    parts = []
    for prefix, codes in groupby(CODES, key=lambda code: code[2:4]):
        parts.append(f"## {RANGES[prefix]}\n\n" + table(("code", "what it means"), [(f"`{c}`", CODES[c]) for c in codes]))
    return ERRORS_HEAD + "\n".join(parts)


def knobs() -> str:
    """docs/knobs.md."""
    rows = [(f"`{k.name}`", "unset" if k.default is None else f"`{int(k.default)}`", k.doc) for k in map(typed, KNOBS)]
    return KNOBS_HEAD + table(("variable", "default", "what it does"), rows)


def typed(knob: Any) -> Any:
    """A knob whose default `int` can show; there is no other kind yet."""
    assert knob.default is None or isinstance(knob.default, int), knob
    return knob


def ops() -> str:
    """docs/ops.md."""
    parts = []
    for kind, title in KINDS.items():
        rows = [op_row(r) for r in OPS.values() if r.kind == kind]
        if rows:
            parts.append(f"## {title}\n\n" + table(("operation", "operands", "attributes", "meaning", "facts"), rows))
    found = INTRINSICS.values()
    rows = [(f"`{r.name}`", "x".join(map(str, r.atom)), f"{r.a} {r.b} -> {r.c}", r.a_from, r.feature or "any") for r in found]
    return OPS_HEAD + "\n".join(parts) + INTRINSICS_HEAD + table(("name", "atom m, n, k", "types", "a from", "needs"), rows)


def op_row(row: OpDef) -> tuple[str, ...]:
    facts = [*sorted(row.facts), *(f"[{f}]" for f in sorted(row.integer_facts))]
    attributes = ", ".join(f"`{a}`" for a in row.attrs)
    return f"`{row.name}`", "any" if row.arity is None else str(row.arity), attributes, row.doc, ", ".join(facts)


def passes() -> str:
    """docs/passes.md."""
    order = f"The pipeline: {', '.join(f'`{name}`' for name in driver.PIPELINE)}.\n\n"
    return PASSES_HEAD + order + "\n".join(map(pass_section, dict.fromkeys([*driver.PIPELINE, *driver.PASSES])))


def pass_section(name: str) -> str:
    """What the file of a pass says about it."""
    function = underlying(driver.PASSES[name])
    module = inspect.getmodule(function)
    file = Path(inspect.getsourcefile(function) or "").relative_to(ROOT)
    text = inspect.cleandoc((module.__doc__ if module else None) or function.__doc__ or "")
    return f"## {name}\n\n`{file}`\n\n{text}\n"


def underlying(function: Callable[..., Any]) -> Callable[..., Any]:
    return function.func if isinstance(function, functools.partial) else function


def onnx() -> str:
    """docs/onnx.md."""
    return onnx_page.page(table)


def numpy() -> str:
    """docs/numpy.md."""
    return numpy_page.page()


PAGES: dict[str, Callable[[], str]] = {f"{make.__name__}.md": make for make in (errors, knobs, numpy, onnx, ops, passes)}


def main() -> int:
    stale = []
    for name, make in PAGES.items():
        path, text = ROOT / "docs" / name, make()
        if path.exists() and path.read_text() == text:
            continue
        stale.append(name)
        if "--check" not in sys.argv:
            path.write_text(text)
    if stale:
        print(f"{'out of date (run tools/generate_docs.py)' if '--check' in sys.argv else 'written'}: {', '.join(stale)}")
    return int(bool(stale) and "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
