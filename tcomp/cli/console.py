"""What the commands print: JSON for scripts, tables for people, and progress where it takes long."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from tcomp.errors import Error

PATIENCE = 2.0  # seconds before progress is shown


def print_json(data: Any) -> None:
    """One JSON document on standard output."""
    click.echo(json.dumps(data, indent=1))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[str] = ()) -> None:
    """A plain table: columns as wide as they need, those in `right` aligned to the right."""
    texts = [tuple(map(str, row)) for row in rows]
    widths = [max(len(t[k]) for t in [tuple(columns), *texts]) for k in range(len(columns))]
    for row in [tuple(columns), *texts]:
        cells = [t.rjust(w) if c in right else t.ljust(w) for t, w, c in zip(row, widths, columns)]
        click.echo("  ".join(cells).rstrip())


def print_heading(text: str) -> None:
    click.echo(f"\n{text}\n{'-' * len(text)}")


def show_bytes(count: float) -> str:
    """`1536` as `1.5 KiB`."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def show_seconds(seconds: float) -> str:
    """A duration with three digits and its unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}" if seconds / scale < 100 else f"{seconds / scale:.0f} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def write_file(path: str, data: str | bytes) -> None:
    """Write a result. TC0801 where the path cannot be written."""
    try:
        with open(path, "wb") as f:
            f.write(data.encode() if isinstance(data, str) else data)
    except OSError as error:
        raise cannot_write(path, error) from None


def cannot_write(path: str, error: OSError) -> Error:
    return Error("TC0801", f"cannot write {path}: {error.strerror}", "a path that can be written")


@contextmanager
def progress(label: str, total: int | None = None) -> Iterator[Callable[[], None]]:
    """Show on a terminal that `label` is still going on, once it has taken two seconds; the result advances the bar by one."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress

    bar = Progress(console=Console(stderr=True), transient=True)
    task = bar.add_task(label, total=total)
    late = threading.Timer(PATIENCE, bar.start)
    late.daemon = True
    late.start()
    try:
        yield lambda: bar.advance(task)
    finally:
        late.cancel()
        late.join()
        bar.stop()
