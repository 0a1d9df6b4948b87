"""`tcomp compile`: an ONNX model becomes one `.tcomp` file, or the text of one of its stages."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from tcomp.cli.account import account_of, print_account
from tcomp.cli.algebra import algebra_of, measured_gain, predicted_gain, without_algebra
from tcomp.cli.console import cannot_write, print_heading, print_json, print_table, show_bytes, show_seconds, write_file
from tcomp.cli.model import Size, compile_options, input_options, make_inputs, open_artifact

if TYPE_CHECKING:
    from tcomp.ir.artifact import Artifact

_MEMORY = ("call", "arena", "scratch", "constants", "code")
MEASURED = 2.0  # seconds of calls, with algebra and without
LEVELS = ("graph", "tile", "placed", "reg", "llvm", "asm")

_EPILOG = """\b
Examples:
  tcomp compile model.onnx -o model.tcomp
  tcomp compile model.onnx -o model.tcomp --dim batch=8 --target cpu:x86-64-v3
  tcomp compile model.onnx -o model.tcomp --dim batch=1..64 --report
  tcomp compile model.onnx --report --measure    what algebra gains, as predicted and as measured
  tcomp compile model.onnx --emit tile           print the kernels
  tcomp compile model.onnx --emit asm=model.s    write the assembly"""


def parse_emit(context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> list[tuple[str, str]]:
    """`LEVEL` and `LEVEL=FILE` as (level, file); no file is standard output."""
    pairs = []
    for text in texts:
        level, _, file = text.partition("=")
        if level not in LEVELS:
            raise click.BadParameter(f"`{level}` is not one of {', '.join(LEVELS)}")
        pairs.append((level, file))
    return pairs


@click.command("compile", epilog=_EPILOG, short_help="Compile a model into one .tcomp file.")
@click.argument("model", type=click.Path(exists=True, dir_okay=False))
@click.option("-o", "--output", metavar="OUT.tcomp", help="The artifact to write.")
@click.option("--emit", multiple=True, metavar="LEVEL[=FILE]", callback=parse_emit, help=f"Text to read: {', '.join(LEVELS)}.")
@click.option("--report", is_flag=True, help="Say what became of sizes and of algebra, and what memory a call takes.")
@click.option("--measure", is_flag=True, help="With --report: compile without algebra too, and time both on the inputs.")
@click.option("--json", "as_json", is_flag=True, help="Report as JSON.")
@input_options
@compile_options
def compile_command(
    model: str,
    output: str | None,
    emit: list[tuple[str, str]],
    report: bool,
    measure: bool,
    as_json: bool,
    sources: Mapping[str, str],
    seed: int,
    target: str,
    dims: Mapping[str, Size],
    precision: str,
    threads: int | None,
    no_cache: bool,
) -> None:
    """Compile MODEL (.onnx) into native code.

    The artifact holds the code, the constants and the readable text; running it needs neither the model nor ONNX.
    """
    if measure and not report:
        raise click.UsageError("--measure adds to --report")
    if output is None and not emit and not report:
        raise click.UsageError("nothing to write: give -o OUT.tcomp, --emit LEVEL, or --report")
    started = time.perf_counter()
    artifact = open_artifact(model, target, dims, precision, threads, no_cache)
    seconds = time.perf_counter() - started
    for level, file in emit:
        if file:
            write_file(file, text_of(artifact, level, target))
        else:
            click.echo(text_of(artifact, level, target), nl=False)
    if output is not None:
        save(artifact, output)
    gain = None
    if measure:
        with without_algebra():
            plain = open_artifact(model, target, dims, precision, threads, no_cache)
        gain = measured_gain(artifact, plain, partial(make_inputs, sources=sources, dims=dims, seed=seed), MEASURED)
    if as_json:
        told = {"report": artifact.report, "algebra": gains(artifact, gain)} if report else {}
        print_json({"model": model, "output": output, "bytes": output and os.path.getsize(output), "compile_s": seconds, **told})
        return
    if report:
        print_report(artifact, gain)
    if output is not None:
        click.echo(f"{output}: {show_bytes(os.path.getsize(output))}, compiled in {show_seconds(seconds)}", err=bool(emit))


def gains(artifact: Artifact, gain: float | None) -> dict[str, float | None]:
    """What algebra gains: time without it over time with it."""
    windows: Any = artifact.report.get("algebra", ())
    return {"predicted": predicted_gain(windows), "measured": gain}


def print_report(artifact: Artifact, gain: float | None) -> None:
    """What became of sizes and algebra, and memory: in bytes, or as expressions over the dimensions."""
    print_account((*algebra_of(artifact.report), *account_of(artifact.report)))
    if gain is not None:
        print_heading("Algebra: time without it over time with it")
        print_table(("what", "value"), [(what, f"{value:.3f}x") for what, value in gains(artifact, gain).items()])
    print_heading("Memory, bytes")
    sizes: Any = artifact.report["bytes"]
    print_table(("what", "bytes"), [(what, sizes[what]) for what in _MEMORY if what in sizes])


def text_of(artifact: Artifact, level: str, target: str) -> str:
    """The text of a stage; assembly is that of the target."""
    if level != "asm":
        return artifact.texts[level]
    from tcomp.codegen.llvm.compile import assembly
    from tcomp.codegen.llvm.machines import machine_for

    return assembly(artifact.texts["llvm"], machine_for(target)[1])


def save(artifact: Artifact, path: str) -> None:
    """Write the `.tcomp` file. TC0801 where the path cannot be written."""
    from tcomp.runtime.artifact import write

    try:
        write(artifact, path)
    except OSError as error:
        raise cannot_write(path, error) from None
