"""`tcomp explain`: what became of every operation, the text of every stage, memory and compile time."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from tcomp.cli.account import Section, account_of, print_account
from tcomp.cli.algebra import algebra_of
from tcomp.cli.console import print_heading, print_json, print_table, show_bytes, show_seconds, write_file
from tcomp.cli.model import Size, compile_options, open_artifact
from tcomp.errors import Error

if TYPE_CHECKING:
    from tcomp.ir.artifact import Artifact, Port

STAGES = ("tile", "placed", "reg")  # that hold kernels
_BYTES, _SECONDS, _COUNTS = ("bytes", "arena", "constants", "code"), ("seconds", "_s"), ("flops",)

_EPILOG = """\b
Examples:
  tcomp explain model.onnx                       what became of each operation; a kernel at every stage
  tcomp explain model.onnx --kernel dot          the first kernel with `dot` in its name
  tcomp explain model.tcomp --html report.html   everything, as one page"""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What is known of a program. kernels: text by stage, by kernel; facts: (label, value) as people read them."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    realised: tuple[tuple[str, str], ...]
    kernels: dict[str, dict[str, str]]
    graph: str
    main: str
    account: tuple[Section, ...]
    facts: tuple[tuple[str, str], ...]


@click.command("explain", epilog=_EPILOG, short_help="Show what became of every operation.")
@click.argument("model", type=click.Path(exists=True, dir_okay=False))
@click.option("--kernel", metavar="NAME", help="The kernel to show: its name or a part of it. Default: the longest.")
@click.option("--html", metavar="FILE", help="Write everything as one page that needs nothing else.")
@click.option("--json", "as_json", is_flag=True, help="The report as JSON.")
@compile_options
def explain(model: str, kernel: str | None, html: str | None, as_json: bool, dims: Mapping[str, Size], **options: Any) -> None:
    """Say how each operation of MODEL (.onnx or .tcomp) was realised, and show a kernel at every stage."""
    started = time.perf_counter()
    artifact = open_artifact(model, dims=dims, **options)
    seconds = time.perf_counter() - started
    if as_json:
        print_json(artifact.report)
        return
    what = explanation(artifact, seconds)
    if html is not None:
        from tcomp.cli.page import page

        write_file(html, page(what))
        click.echo(f"{html}: written")
        return
    print_explanation(what, chosen_kernel(what, kernel))


def chosen_kernel(what: Explanation, name: str | None) -> str | None:
    """The kernel of that name, or the first that has it in its name; without one, that with the longest text. TC0801."""
    if name is None:
        return max(what.kernels, key=lambda k: len(what.kernels[k][STAGES[-1]]), default=None)
    found = [k for k in what.kernels if k == name] or [k for k in what.kernels if name in k]
    if not found:
        raise Error("TC0801", f"there is no kernel `{name}`", f"one of {', '.join(what.kernels)}")
    return found[0]


def explanation(artifact: Artifact, seconds: float) -> Explanation:
    """All that a compiled program says about itself, taken apart by kernel. seconds: what it took to compile, or to find."""
    from tcomp.runtime.containers import caller_ports

    texts = {stage: artifact.texts.get(stage, "") for stage in STAGES}
    parts = {stage: kernels_of(text) for stage, text in texts.items()}
    operations: Any = artifact.report.get("operations", ())
    names = dict.fromkeys(name for found in parts.values() for name in found)
    inputs, outputs = caller_ports(artifact)
    return Explanation(
        name=artifact.name,
        inputs=tuple(map(show_port, inputs)),
        outputs=tuple(map(show_port, outputs)),
        realised=(*((str(what), str(how)) for what, how in operations), *map(show_cascade, artifact.report.get("cascades", ()))),
        kernels={name: {stage: found[name] for stage, found in parts.items() if name in found} for name in names},
        graph=artifact.texts.get("graph", ""),
        main=main_of(texts["reg"]),
        account=(*algebra_of(artifact.report), *account_of(artifact.report)),
        facts=(*facts_of(artifact.report), ("compiled or found in", show_seconds(seconds))),
    )


def show_cascade(row: Mapping[str, Any]) -> tuple[str, str]:
    """What became of dependent reductions: in one pass, with which corrections, or why not."""
    what = f"reductions up to {row['at']}"
    if not row["fused"]:
        return what, f"apart: {row['why']}"
    stages = [
        f"{s['by']} of {', '.join(s['accumulators'])}" + (f" by {s['correction']}" if "correction" in s else "")
        for s in row["stages"]
    ]
    return what, f"one pass of {row.get('kernel', 'a kernel')}: {'; '.join(stages)}"


def show_port(port: Port) -> str:
    return f"{port.name}: {port.dtype}[{', '.join(map(str, port.shape))}]"


def blocks_of(text: str) -> list[str]:
    """The parts of a module's text that an empty line separates: its head, each kernel, main."""
    return [block for block in text.split("\n\n") if block.strip()]


def kernels_of(text: str) -> dict[str, str]:
    """The text of each kernel, by name."""
    return {b.split(None, 2)[1].lstrip("@"): b.rstrip("\n") for b in map(str.lstrip, blocks_of(text)) if b.startswith("kernel ")}


def main_of(text: str) -> str:
    return next((b.strip("\n") for b in blocks_of(text) if b.lstrip().startswith("main")), "")


def facts_of(report: Mapping[str, Any], prefix: str = "") -> tuple[tuple[str, str], ...]:
    """The numbers of a report, nested ones by their path, in units that people read."""
    found: list[tuple[str, str]] = []
    for key, value in report.items():
        label = f"{prefix}{key}"
        if isinstance(value, Mapping):
            found += facts_of(value, f"{label} ")
        elif isinstance(value, (int, float, str)) and value != "":
            found.append((label.replace("_", " "), show_fact(label, value)))
    return tuple(found)


def show_fact(label: str, value: float | str) -> str:
    if isinstance(value, str | bool):
        return str(value)
    if label.endswith(_SECONDS) or "seconds" in label:
        return show_seconds(value)
    if any(word in label for word in _BYTES):
        return show_bytes(value)
    return f"{value:,}" if any(word in label for word in _COUNTS) else f"{value:g}"


def print_explanation(what: Explanation, kernel: str | None) -> None:
    """The explanation on the terminal, with one kernel's text."""
    click.echo(f"{what.name} ({', '.join(what.inputs)}) -> ({', '.join(what.outputs)})")
    print_heading("How each operation was realised")
    print_table(("operation", "realised as"), what.realised)
    print_heading("Kernels")
    click.echo("  ".join(what.kernels) or "none")
    if kernel is not None:
        print_stages(kernel, what.kernels[kernel])
    print_account(what.account)
    print_heading("Memory and time")
    print_table(("what", "value"), what.facts)


def print_stages(kernel: str, texts: Mapping[str, str]) -> None:
    """A kernel at every stage; where a stage changed nothing, it says so."""
    before = ("", "")
    for stage, text in texts.items():
        print_heading(f"{kernel} at {stage}")
        click.echo(f"as at {before[0]}" if text == before[1] else text)
        before = (stage, text)
