"""Every TCOMP_* environment variable: typed, documented, read when asked for. `docs/knobs.md` is generated from `KNOBS`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from tcomp.errors import Error


@dataclass(frozen=True, slots=True)
class Knob:
    """One variable: its default (whose type is the knob's type; None: a path that may be unset), what it does, and the
    largest number it takes; none takes less than 0.
    """

    name: str
    default: int | bool | str | None
    doc: str
    most: int = 1 << 62

    def read(self) -> Any:
        """The value now. TC0002 where the text does not fit the type."""
        text = os.environ.get(self.name)
        if text is None or text == "":
            return self.default
        if isinstance(self.default, bool):
            return _parse_bool(self.name, text)
        return _parse_int(self.name, text, self.most) if isinstance(self.default, int) else text


def _parse_bool(name: str, text: str) -> bool:
    if text.lower() not in ("0", "1", "true", "false", "yes", "no"):
        raise Error("TC0002", f"{name}={text}", "0 or 1")
    return text.lower() in ("1", "true", "yes")


def _parse_int(name: str, text: str, most: int) -> int:
    try:
        value = int(text)
    except ValueError:
        raise Error("TC0002", f"{name}={text}", "an integer") from None
    if not 0 <= value <= most:
        raise Error("TC0002", f"{name}={text}", f"a number from 0 to {most}")
    return value


CHECK = Knob(
    "TCOMP_CHECK", 0, "0: ship; 1: verify every stage; 2: and round-trip its text; 3: and run both sides of every pass", 3
)
DUMP = Knob("TCOMP_DUMP", None, "a folder for one numbered, restartable text file after every pass")
DEBUG = Knob("TCOMP_DEBUG", False, "show tracebacks through compiler frames")
NUM_THREADS = Knob("TCOMP_NUM_THREADS", 0, "threads of a call; 0: as many as the process may use", 4096)
CACHE_DIR = Knob("TCOMP_CACHE_DIR", None, "folder of the disk cache; unset: tcomp under the user's cache folder")
CACHE = Knob("TCOMP_CACHE", True, "keep compiled artifacts on disk and use them again")
CACHE_LIMIT = Knob("TCOMP_CACHE_LIMIT", 4 << 30, "bytes the disk cache may take; what was not used for longest goes first")
CACHE_BYTES = Knob("TCOMP_CACHE_BYTES", 1 << 30, "bytes of freed buffers kept for later calls")
ALGEBRA = Knob("TCOMP_ALGEBRA", True, "look for cheaper mathematics by equality saturation; 0: products and sums stay as written")
FAST = Knob("TCOMP_FAST", False, "fast tier of code generation: compiles sooner, runs slower (tests use it)")

KNOBS: tuple[Knob, ...] = (CHECK, DUMP, DEBUG, NUM_THREADS, CACHE_DIR, CACHE, CACHE_LIMIT, CACHE_BYTES, ALGEBRA, FAST)
