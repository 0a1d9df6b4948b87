"""What a report says about sizes: which dimensions stay symbolic, which became what, why and where; variants; what must hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tcomp.cli.console import print_heading, print_table

Section = tuple[str, tuple[str, ...], tuple[tuple[str, ...], ...]]  # title, columns, rows

_TABLES = (
    ("Dimensions", ("dimension", "is", "because", "where"), "dimensions"),
    ("Variants, in the order in which a call tries them", ("variant", "for sizes", "what"), "variants"),
    ("Small sizes of promised ranges", ("for sizes", "estimated gain", "so"), "buckets"),
    ("What the sizes of a call must satisfy", ("condition", "asked by"), "requires"),
)


def account_of(report: Mapping[str, Any]) -> tuple[Section, ...]:
    """The tables about sizes that have rows."""
    found = ((title, columns, tuple(tuple(map(str, row)) for row in report.get(key, ()))) for title, columns, key in _TABLES)
    return tuple(section for section in found if section[2])


def print_account(sections: tuple[Section, ...]) -> None:
    """The tables on the terminal."""
    for title, columns, rows in sections:
        print_heading(title)
        print_table(columns, rows)
