"""`tcomp run`: a model on inputs from files, or on random ones."""

from __future__ import annotations

import os
import re
import statistics
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from tcomp.cli.console import cannot_write, print_json, print_table, progress, show_seconds
from tcomp.cli.model import RANDOM, Size, compile_options, input_options, make_inputs, open_model, tensors_of

if TYPE_CHECKING:
    import numpy as np

_EPILOG = """\b
Examples:
  tcomp run model.tcomp                                    on random inputs
  tcomp run model.onnx --input x=photo.npy --output out/   writes out/<name of output>.npy
  tcomp run model.onnx --dim batch=8 --repeat 100          random inputs of batch 8, timed"""


@click.command("run", epilog=_EPILOG, short_help="Run a model on files or random inputs.")
@click.argument("model", type=click.Path(exists=True, dir_okay=False))
@click.option("--output", metavar="DIR", help="Folder for the outputs, one .npy file each.")
@click.option("--repeat", type=click.IntRange(1), default=1, show_default=True, help="Calls; their times are shown.")
@click.option("--json", "as_json", is_flag=True, help="Report as JSON.")
@input_options
@compile_options
def run(
    model: str,
    output: str | None,
    repeat: int,
    as_json: bool,
    sources: Mapping[str, str],
    seed: int,
    dims: Mapping[str, Size],
    **options: Any,
) -> None:
    """Run MODEL (.onnx or .tcomp) and show what comes out.

    Random inputs are standard normal, integers 0 or 1; symbolic dimensions are 1 unless --dim says otherwise.
    """
    program = open_model(model, dims=dims, **options)
    defaults = frozenset(name for name, _ in program.artifact.defaults)
    inputs = make_inputs(program.inputs, sources, dims, seed, defaults)
    found, seconds = timed(program, inputs, repeat)
    inputs, results = tensors_of(inputs), tensors_of(found)
    files = write_arrays(output, results) if output is not None else {}
    given = [{**identify(n, a), "from": sources.get(n, RANDOM)} for n, a in inputs.items()]
    got = [{**describe(n, a), "file": files.get(n)} for n, a in results.items()]
    if as_json:
        times = {"calls": repeat, "median_s": statistics.median(seconds), "min_s": min(seconds)}
        print_json({"inputs": given, "outputs": got, **times})
        return
    print_table(("input", "dtype", "shape", "from"), [tuple(g.values()) for g in given])
    click.echo()
    print_table(("output", "dtype", "shape", "min", "mean", "max"), [tuple(map(show_value, g.values()))[:6] for g in got])
    if files:
        click.echo(f"\nwritten: {', '.join(files.values())}")
    if repeat > 1:
        click.echo(f"\n{repeat} calls: median {show_seconds(statistics.median(seconds))}, fastest {show_seconds(min(seconds))}")


def timed(program: Any, inputs: dict[str, Any], repeat: int) -> tuple[dict[str, Any], list[float]]:
    """The results of the last of `repeat` calls, and how long each took."""
    seconds, results = [], {}
    with progress("running", repeat) as advance:
        for _ in range(repeat):
            started = time.perf_counter()
            results = program.run(inputs)
            seconds.append(time.perf_counter() - started)
            advance()
    return results, seconds


def describe(name: str, array: np.ndarray) -> dict[str, Any]:
    """An output in numbers: NaN if it holds any; None where there is nothing to say (empty)."""
    facts = (float(array.min()), float(array.mean()), float(array.max())) if array.size else (None, None, None)
    return {**identify(name, array), **dict(zip(("min", "mean", "max"), facts))}


def identify(name: str, array: np.ndarray) -> dict[str, Any]:
    return {"name": name, "dtype": array.dtype.name, "shape": list(array.shape)}


def show_value(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else "-" if value is None else str(value)


def write_arrays(folder: str, arrays: Mapping[str, np.ndarray]) -> dict[str, str]:
    """Write each array as `<name>.npy`, names made fit for files; returns the paths by name. TC0801 where that fails."""
    import numpy as np

    paths: dict[str, str] = {}
    try:
        os.makedirs(folder, exist_ok=True)
        for name, array in arrays.items():
            stem = re.sub(r"[^\w.-]", "_", name).lstrip(".") or "output"
            path = os.path.join(folder, f"{stem}.npy")
            path = path if path not in paths.values() else os.path.join(folder, f"{stem}_{len(paths)}.npy")
            np.save(path, array, allow_pickle=False)
            paths[name] = path
    except OSError as error:
        raise cannot_write(folder, error) from None
    return paths
