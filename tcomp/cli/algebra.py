"""What a report says about algebra: what was rewritten, by which rules, at what gain; what was not, and why; how the search went.

Predicted times are those of saturation's own cost of sums and products; `measured_gain` runs a program beside the one that is
compiled with TCOMP_ALGEBRA=0.
"""

from __future__ import annotations

import os
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tcomp.cli.account import Section
from tcomp.cli.bench import PAUSE, burst
from tcomp.cli.console import progress, show_bytes, show_seconds

if TYPE_CHECKING:
    from tcomp.ir.artifact import Artifact

PAIRS = 20
Windows = Sequence[Mapping[str, Any]]
Inputs = Callable[..., Mapping[str, Any]]  # of ports, and names that have a value of their own


def algebra_of(report: Mapping[str, Any]) -> tuple[Section, ...]:
    """The tables about algebra that have rows."""
    windows: Windows = report.get("algebra", ())
    if not windows:
        return ()
    changed = [w for w in windows if w["changed"]]
    sections: list[Section] = [("Algebra: what was searched", ("what", "value"), _search(windows))]
    if changed:
        columns = ("operations", "predicted", "now", "gain", "by rules", "results at")
        sections.insert(0, ("Algebra: what was rewritten", columns, tuple(map(_rewritten, changed))))
    return tuple(sections)


def predicted_gain(windows: Windows) -> float:
    """Predicted time without algebra over that with it, of what was searched."""
    after = sum(w["after"] if w["changed"] else w["before"] for w in windows)
    return float(sum(w["before"] for w in windows) / after) if after else 1.0


def _rewritten(w: Mapping[str, Any]) -> tuple[str, ...]:
    rules = ", ".join(w["rules"]) + (f", {w['merges']} merged" if w["merges"] else "")
    gain = f"{w['before'] / w['after']:.3f}x" if w["after"] else ""
    return str(w["nodes"]), show_seconds(w["before"]), show_seconds(w["after"]), gain, rules, w["at"]


def _search(windows: Windows) -> tuple[tuple[str, str], ...]:
    """Labels and values over all windows."""
    solved = [w for w in windows if w["kept"] != "no answer"]
    chances = [w["chance"] for w in solved if w["chance"] is not None and w["changed"]]
    counts = [w["changed"] for w in windows]
    fresh = [w for w in solved if not w["cached"]]
    rows = [
        ("windows, rewritten", f"{len(windows)}, {sum(counts)}"),
        ("predicted gain", f"{predicted_gain(windows):.3f}x"),
        *((f"as written: {why}", str(n)) for why, n in Counter(_reason(w) for w in windows if not w["changed"]).items()),
        *((f"search ended: {why}", str(n)) for why, n in Counter(w["why"] for w in solved).items()),
        ("found by extraction", ", ".join(f"{how} {n}" for how, n in Counter(w["how"] for w in solved).items())),
        ("saturation", _times([w["saturation"] for w in fresh])),
        ("extraction", _times([w["extraction"] for w in fresh])),
        ("answers known before", str(len(solved) - len(fresh))),
        ("e-nodes, rows, memory at most", ", ".join(_most(solved))),
        ("difference in float64 at most", f"{max((w['error'] or 0.0 for w in solved), default=0.0):.1e}"),
    ]
    if chances:
        rows.append((f"equal in finite fields: {len(chances)}, wrong by chance", f"{max(chances):.1e}"))
    return tuple(rows)


def _reason(w: Mapping[str, Any]) -> str:
    return f"{w['kept']} ({w['why']})" if w["kept"] == "no answer" else str(w["kept"])


def _times(seconds: Sequence[float]) -> str:
    return f"{show_seconds(sum(seconds))}, longest {show_seconds(max(seconds, default=0.0))}"


def _most(windows: Windows) -> tuple[str, str, str]:
    most = {key: max((w[key] for w in windows), default=0) for key in ("enodes", "rows", "memory")}
    return str(most["enodes"]), str(most["rows"]), show_bytes(most["memory"])


# --- measured ---------------------------------------------------------------------------------------------


@contextmanager
def without_algebra() -> Iterator[None]:
    """What is compiled inside stays as written."""
    before = os.environ.get("TCOMP_ALGEBRA")
    os.environ["TCOMP_ALGEBRA"] = "0"
    try:
        yield
    finally:
        if before is None:
            del os.environ["TCOMP_ALGEBRA"]
        else:
            os.environ["TCOMP_ALGEBRA"] = before


def measured_gain(artifact: Artifact, plain: Artifact, inputs_for: Inputs, seconds: float) -> float:
    """The time of a call of `plain` over that of `artifact`; 1 where both are the same code."""
    from tcomp import api

    if artifact.objects == plain.objects:
        return 1.0
    with_, without = api.link(artifact), api.link(plain)
    inputs = inputs_for(with_.inputs, defaults=frozenset(name for name, _ in artifact.defaults))
    return ratio_of(*paired(lambda: with_.run(inputs), lambda: without.run(inputs), seconds))


def paired(first: Callable[[], object], second: Callable[[], object], seconds: float) -> tuple[list[float], list[float]]:
    """The fastest call of each burst, of both in turn; which of a pair goes first changes."""
    times: tuple[list[float], list[float]] = ([], [])
    with progress("timing", PAIRS) as advance:
        for pair in range(PAIRS):
            for which in (0, 1) if pair % 2 else (1, 0):
                call = (first, second)[which]
                time.sleep(PAUSE)
                call()
                times[which].append(min(burst(call, seconds / PAIRS)))
            advance()
    return times


def ratio_of(first: Sequence[float], second: Sequence[float]) -> float:
    """The median over pairs of the second's time over the first's."""
    return statistics.median(b / a for a, b in zip(first, second, strict=True))
