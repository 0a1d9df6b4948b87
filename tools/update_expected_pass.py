"""Run the ONNX backend suite and add what passes to tests/onnx/expected_pass.txt, which only grows; tests/onnx/left_out.txt gets
the rest, with the reason.

    python tools/update_expected_pass.py [--all] [--match REGEX] [--report FILE]

Without --all only tests that are not listed run. Each runs in a process that may die: a crash is a result like any other. The
report has one line for each test that does not pass: its name, skip, fail or crash, and the reason.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import unittest
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "onnx"))

import backend_suite  # noqa: E402

Result = tuple[str, str, str]  # name, outcome, reason

CATEGORIES = {  # of what is left out on purpose: by the test's name, or by what tcomp says
    r"element type string|n-grams of strings": "strings",
    r"ImageDecoder": "images: decoders of files are no part of a tensor compiler",
    r"\b(Adagrad|Adam|Momentum|Gradient) is not": "training",
    r"^node/test_bernoulli": "random: the expected numbers are those of NumPy's generator",
    r"^node/test_training_dropout": "random: the expected mask is that of NumPy's generator",
}


def run_one(name: str) -> tuple[str, str]:
    """pass, or skip or fail with the reason."""
    try:
        backend_suite.suite()[name]()
    except unittest.SkipTest as e:
        return "skip", " ".join(str(e).split())
    except Exception as e:
        return "fail", f"{type(e).__name__}: {' '.join(str(e).split())[:400]}"
    return "pass", ""


def work() -> None:
    """Run the names on standard input; print each as it begins and as it ends."""
    for name in sys.stdin.read().split():
        print(json.dumps([name]), flush=True)
        print(json.dumps([name, *run_one(name)]), flush=True)


def results(names: list[str]) -> Iterator[Result]:
    """The result of each test, from worker processes; the one in which a worker died is a crash."""
    environment = {**os.environ, "TCOMP_FAST": "1", "PYTHONWARNINGS": "ignore"}
    while names:
        command = [sys.executable, __file__, "--work"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as worker:
            assert worker.stdin is not None and worker.stdout is not None
            worker.stdin.write("\n".join(names))
            worker.stdin.close()
            begun = None
            for line in worker.stdout:
                name, *result = json.loads(line)
                begun = None if result else name
                if result:
                    names = names[1:]
                    yield name, result[0], result[1]
        if begun is None and names:
            raise SystemExit(f"the worker ended with {len(names)} tests left")
        if begun is not None:
            names = names[1:]
            yield begun, "crash", f"exit status {worker.returncode}"


def why(name: str, outcome: str, reason: str) -> str:
    """One line on why a test does not pass."""
    for pattern, category in CATEGORIES.items():
        if re.search(pattern, f"{name} {reason}"):
            return category
    text = re.sub(r"^TC\d+: | (node|input|graph) '.*$| (hint|expected): .*$", "", reason)
    return " ".join(text[:140].split()) if outcome == "skip" else f"{outcome}: {' '.join(text[:100].split())}"


def update_left_out(found: list[Result], passed: set[str]) -> None:
    """Write down why what ran does not pass; drop what passes, and what the suite does not have any more."""
    names = set(backend_suite.suite()) - passed
    old = backend_suite.left_out() if backend_suite.LEFT_OUT.exists() else {}
    reasons = {n: old.get(n, "not run yet") for n in names} | {n: why(n, o, r) for n, o, r in found if o != "pass"}
    backend_suite.LEFT_OUT.write_text("".join(f"{n}\t{reasons[n]}\n" for n in sorted(names)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="run the listed tests too")
    parser.add_argument("--match", default="", help="only tests whose name matches")
    parser.add_argument("--report", type=Path, help="where to write what does not pass, and why")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        return work()
    known = set(backend_suite.listed())
    names = [n for n in sorted(backend_suite.suite()) if re.search(options.match, n) and (options.all or n not in known)]
    found = list(results(names))
    passed = {name for name, outcome, _ in found if outcome == "pass"}
    listed = set(backend_suite.listed()) | passed  # others may have run meanwhile
    backend_suite.LISTED.write_text("\n".join(sorted(listed)) + "\n")
    update_left_out(found, listed)
    if options.report:
        options.report.write_text("".join("\t".join(r) + "\n" for r in found if r[1] != "pass"))
    broken = sorted(name for name, outcome, _ in found if outcome != "pass" and name in known)
    print(dict(Counter(outcome for _, outcome, _ in found)), f"{len(passed - known)} added")
    if broken:
        sys.exit(f"listed, but failing: {' '.join(broken)}")


if __name__ == "__main__":
    main()
