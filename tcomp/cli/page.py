"""An explanation as one HTML page that needs no other file and no script."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from tcomp.cli.explain import Explanation

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; color: #1c1e21; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 2.2rem; border-bottom: 1px solid #d0d4d9; padding-bottom: .2rem; }
table { border-collapse: collapse; } td, th { text-align: left; padding: .15rem 1.2rem .15rem 0; vertical-align: top; }
pre { background: #f5f6f8; padding: .7rem 1rem; overflow-x: auto; font: 13px/1.45 ui-monospace, monospace; }
summary { cursor: pointer; font-family: ui-monospace, monospace; padding: .15rem 0; } details details { margin-left: 1.4rem; }
@media (prefers-color-scheme: dark) { body { background: #16181c; color: #dde1e6; } pre { background: #22252b; } }
"""


def page(what: Explanation) -> str:
    """The whole page."""
    ports = f"({', '.join(what.inputs)}) → ({', '.join(what.outputs)})"
    sections = [
        f"<h1>{escape(what.name)}</h1><p><code>{escape(ports)}</code></p>",
        "<h2>How each operation was realised</h2>" + table(("operation", "realised as"), what.realised),
        "<h2>Kernels</h2>" + "".join(kernel_section(name, texts) for name, texts in what.kernels.items()),
        "<h2>The whole program</h2>" + folded("graph", what.graph) + folded("main", what.main),
        *(f"<h2>{escape(title)}</h2>" + table(columns, rows) for title, columns, rows in what.account),
        "<h2>Memory and time</h2>" + table(("what", "value"), what.facts),
    ]
    head = f'<meta charset="utf-8"><title>{escape(what.name)}: tcomp explain</title><style>{_STYLE}</style>'
    return f"<!doctype html>\n<html lang=\"en\"><head>{head}</head><body>\n" + "\n".join(sections) + "\n</body></html>\n"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(c)}</th>" for c in columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(c)}</td>" for c in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def kernel_section(name: str, texts: dict[str, str]) -> str:
    """A kernel, folded, with its stages folded inside."""
    inside = "".join(folded(stage, text) for stage, text in texts.items())
    return f"<details><summary>{escape(name)}</summary>{inside}</details>"


def folded(title: str, text: str) -> str:
    return f"<details><summary>{escape(title)}</summary><pre>{escape(text)}</pre></details>"
