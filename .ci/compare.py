"""Run a command that prints `NAME ENGINE PASS|...` lines, and compare with the list of names that must pass.

    python compare.py LIST COMMAND...

Everything is shown. Exit code 1 where a listed name did not pass; names that pass without being listed are named, so that the
list can grow.
"""

import subprocess
import sys
from pathlib import Path


def results_of(lines: list[str]) -> dict[str, bool]:
    """Whether each name passed."""
    rows = (line.split() for line in lines if line.startswith("case_"))
    return {row[0]: row[2] == "PASS" for row in rows if len(row) > 2 and row[1] != "skipped"}


def main(listing: str, *command: str) -> bool:
    listed = {line.split("#")[0].strip() for line in Path(listing).read_text().splitlines()} - {""}
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            lines.append(line)
    passed = {name for name, ok in results_of(lines).items() if ok}
    broken, new = sorted(listed - passed), sorted(passed - listed)
    print(f"{len(listed & passed)} of {len(listed)} listed cases pass" + (f"; broken: {', '.join(broken)}" if broken else ""))
    if new:
        print(f"passing but not listed in {Path(listing).name}: {', '.join(new)}")
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
