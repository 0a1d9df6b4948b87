"""`tcomp bench`: how long a call takes, beside other runtimes on the same inputs.

Systems are timed in short bursts that take turns, so that what else the machine does meets all of them; before each burst
there is a pause in which the others' threads go to sleep, and a call that is not counted.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from tcomp.cli.console import print_json, print_table, progress, show_seconds
from tcomp.cli.model import Size, compile_options, input_options, make_inputs, open_model, tensors_of
from tcomp.cli.peers import PEERS, installed, peer_call

if TYPE_CHECKING:
    import numpy as np

BURSTS = 10
PAUSE = 0.01  # seconds in which idle threads stop spinning

_EPILOG = """\b
Examples:
  tcomp bench model.onnx                                      beside onnxruntime, if it is installed
  tcomp bench model.onnx --against onnxruntime,openvino --dim batch=8
  tcomp bench model.onnx --against "" --seconds 5 --json      tcomp alone"""


def parse_peers(context: click.Context, parameter: click.Parameter, text: str | None) -> list[str]:
    """Names of peers; without the option, onnxruntime where it is installed."""
    if text is None:
        return ["onnxruntime"] if installed("onnxruntime") else []
    names = [n.strip() for n in text.split(",") if n.strip()]
    for name in names:
        if name not in PEERS:
            raise click.BadParameter(f"`{name}` is not one of {', '.join(PEERS)}")
    return names


@click.command("bench", epilog=_EPILOG, short_help="Time a model beside other runtimes.")
@click.argument("model", type=click.Path(exists=True, dir_okay=False))
@click.option("--against", "peers", metavar="NAMES", callback=parse_peers, help=f"{', '.join(PEERS)}; the first if installed.")
@click.option("--seconds", type=click.FloatRange(0.01), default=1.0, show_default=True, help="Of calls, for each system.")
@click.option("--json", "as_json", is_flag=True, help="Report as JSON.")
@input_options
@compile_options
def bench(
    model: str,
    peers: list[str],
    seconds: float,
    as_json: bool,
    sources: Mapping[str, str],
    seed: int,
    dims: Mapping[str, Size],
    threads: int | None,
    **options: Any,
) -> None:
    """Time MODEL (.onnx, or .tcomp alone) beside other runtimes; their results are compared with tcomp's too."""
    if peers and model.endswith(".tcomp"):
        peers = []
    count = threads or len(os.sched_getaffinity(0))
    program = open_model(model, dims=dims, threads=threads, **options)
    defaults = frozenset(name for name, _ in program.artifact.defaults)
    inputs = make_inputs(program.inputs, sources, dims, seed, defaults)
    names = [p.name for p in program.outputs]

    def own(values: Mapping[str, Any]) -> list[Any]:
        results = program.run(values)
        return [results[n] for n in names]

    def told(results: list[Any]) -> list[np.ndarray]:
        return list(tensors_of(dict(zip(names, results, strict=True))).values())

    systems = {"tcomp": own, **{name: peer_call(name, model, count) for name in peers}}
    expected = told(own(inputs))
    gaps = {name: largest_gap(told(call(inputs)), expected) for name, call in systems.items() if name != "tcomp"}
    times = race({name: partial(call, inputs) for name, call in systems.items()}, seconds)
    report([row(name, times, gaps) for name in systems], count, tensors_of(inputs), as_json)


def race(calls: Mapping[str, Callable[[], object]], seconds: float) -> dict[str, list[float]]:
    """Seconds of each call, in bursts that take turns."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    with progress("timing", BURSTS * len(calls)) as advance:
        for _ in range(BURSTS):
            for name, call in calls.items():
                time.sleep(PAUSE)
                call()
                times[name] += burst(call, seconds / BURSTS)
                advance()
    return times


def burst(call: Callable[[], object], seconds: float) -> list[float]:
    """Times of calls made for about so long, one at least."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while True:
        started = time.perf_counter()
        call()
        now = time.perf_counter()
        times.append(now - started)
        if now >= end:
            return times


def largest_gap(results: list[np.ndarray], expected: list[np.ndarray]) -> float:
    """The largest difference over the largest magnitude, of all outputs; infinite where shapes or NaNs differ."""
    import numpy as np

    worst = 0.0
    for mine, peer in zip(expected, results, strict=True):
        if mine.shape != peer.shape:
            return float("inf")
        a, b = mine.astype(np.float64), np.asarray(peer, np.float64)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        if not np.all(same | (np.isfinite(a) & np.isfinite(b))):
            return float("inf")
        scale = float(np.max(np.abs(b), where=np.isfinite(b), initial=0.0)) or 1.0
        worst = max(worst, float(np.max(np.abs(np.where(same, 0, a) - np.where(same, 0, b)), initial=0.0)) / scale)
    return worst


def row(name: str, times: Mapping[str, list[float]], gaps: Mapping[str, float]) -> dict[str, Any]:
    """What is reported of one system. ratio: its median over tcomp's; gap: how far its results are from tcomp's."""
    median = statistics.median(times[name])
    return {
        "system": name,
        "median_s": median,
        "min_s": min(times[name]),
        "calls": len(times[name]),
        "ratio": median / statistics.median(times["tcomp"]),
        "gap": gaps.get(name),
    }


def report(rows: list[dict[str, Any]], threads: int, inputs: Mapping[str, np.ndarray], as_json: bool) -> None:
    if as_json:
        print_json({"threads": threads, "inputs": {n: list(a.shape) for n, a in inputs.items()}, "systems": rows})
        return
    click.echo(f"{threads} threads; {', '.join(f'{n} {list(a.shape)}' for n, a in inputs.items())}\n")
    shown = [
        (
            r["system"],
            show_seconds(r["median_s"]),
            show_seconds(r["min_s"]),
            r["calls"],
            f"{r['ratio']:.2f}x",
            "" if r["gap"] is None else f"{r['gap']:.1e}",
        )
        for r in rows
    ]
    columns = ("system", "median", "fastest", "calls", "of tcomp's", "difference")
    print_table(columns, shown, columns[1:5])
