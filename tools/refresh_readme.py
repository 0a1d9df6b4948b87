"""Run the commands that README shows, and put what they print below them.

    python tools/refresh_readme.py

A block of README that starts with `$ tcomp ...` gets what the command prints on this machine; long lines and long tables are
cut (`...`).
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"```text\n\$ tcomp (.*)\n(?:.*\n)*?```")
WIDTH, ROWS = 128, 6  # of a line; of a table, beyond which it is cut


def refreshed(match: re.Match[str]) -> str:
    """The block with the command's output."""
    command = [sys.executable, "-m", "tcomp", *shlex.split(match[1])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return f"```text\n$ tcomp {match[1]}\n{shortened(done.stdout)}```"


def shortened(text: str) -> str:
    """Parts of more than a few rows cut in the middle, long lines at the end."""
    parts = [cut(part.splitlines()) for part in text.strip().split("\n\n")]
    return "\n\n".join("\n".join(map(narrow, part)) for part in parts) + "\n"


def narrow(line: str) -> str:
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 4]} ..."


def cut(lines: list[str]) -> list[str]:
    is_table = len(lines) > ROWS + 4 and "  " in lines[-1].strip() and not lines[-1].startswith(" ")
    return [*lines[: ROWS + 3], "...", lines[-1]] if is_table else lines


def main() -> None:
    page = ROOT / "README.md"
    page.write_text(BLOCK.sub(refreshed, page.read_text()))


if __name__ == "__main__":
    main()
