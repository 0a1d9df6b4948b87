"""`tcomp doctor`: whether this machine has what tcomp needs, found out by trying."""

from __future__ import annotations

import os
import platform
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass

import click

from tcomp.cli.console import print_json, print_table, show_seconds
from tcomp.errors import Error

_EPILOG = """\b
Example:
  tcomp doctor          exit code 0 where everything works, 1 where something does not"""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at. ok None: a fact, neither good nor bad."""

    what: str
    found: str
    ok: bool | None = None


def python_build() -> tuple[str, bool | None]:
    free = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    name = f"{platform.python_implementation()} {platform.python_version()}"
    if free:
        return f"{name}, free-threaded: not supported", False
    return name, platform.python_implementation() == "CPython" and sys.version_info >= (3, 11)


def operating_system() -> tuple[str, bool | None]:
    supported = sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64")
    return f"{platform.system()} {platform.machine()}", supported


def llvm_version() -> tuple[str, bool | None]:
    import llvmlite
    import llvmlite.binding as llvm

    return f"{llvmlite.__version__} with LLVM {'.'.join(map(str, llvm.llvm_version_info))}", True


def processor() -> tuple[str, bool | None]:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    features = {name for name, present in llvm.get_host_cpu_features().items() if present}
    wanted = ("avx2", "fma", "avx512f", "avx512vnni", "amx-tile", "neon")
    present = " ".join(f for f in wanted if f in features)
    return f"{llvm.get_host_cpu_name()}: {present or 'no vector extension that tcomp uses'}", None


def call_path() -> tuple[str, bool | None]:
    from tcomp.runtime import cpython

    reason = cpython.refusal()
    return (f"through ctypes, slower: {reason}" if reason else "native, without ctypes"), None


def thread_count() -> tuple[str, bool | None]:
    from tcomp import knobs

    allowed, asked = len(os.sched_getaffinity(0)), int(knobs.NUM_THREADS.read())
    found = f"{asked} (TCOMP_NUM_THREADS)" if asked else f"{allowed} (all that this process may use)"
    return found, asked >= 0


def cache_folder() -> tuple[str, bool | None]:
    """Whether the disk cache's folder, or what will become its parent, can be written."""
    from tcomp import knobs

    if not knobs.CACHE.read():
        return "off (TCOMP_CACHE=0)", None
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = knobs.CACHE_DIR.read() or os.path.join(home, "tcomp")
    existing = folder
    while not os.path.exists(existing):
        existing = os.path.dirname(existing)
    try:
        with tempfile.NamedTemporaryFile(dir=existing):
            return folder, True
    except OSError as error:
        return f"{folder}: {error.strerror}", False


def small_program() -> tuple[str, bool | None]:
    """Compile and run a function, and compare."""
    import numpy as np

    import tcomp

    def f(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        result: np.ndarray = np.maximum(x @ w, 0)
        return result

    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((5, 7), np.float32), rng.standard_normal((7, 3), np.float32)
    started = time.perf_counter()
    y = tcomp.jit(f)(x, w)
    seconds = time.perf_counter() - started
    return f"compiled and run in {show_seconds(seconds)}", bool(np.allclose(y, f(x, w), atol=1e-5))


CHECKS: dict[str, Callable[[], tuple[str, bool | None]]] = {
    "Python": python_build,
    "platform": operating_system,
    "LLVM": llvm_version,
    "processor": processor,
    "calls": call_path,
    "threads": thread_count,
    "cache folder": cache_folder,
    "a small program": small_program,
}


def examine(what: str, check: Callable[[], tuple[str, bool | None]]) -> Finding:
    """The finding of a check; one that raises has failed, and its message is the finding."""
    try:
        return Finding(what, *check())
    except Error as error:  # its place is in the command line, not in the user's source
        return Finding(what, str(Error(error.code, error.found, error.expected, hint=error.hint)), False)
    except Exception as error:
        return Finding(what, f"{type(error).__name__}: {error}", False)


@click.command("doctor", epilog=_EPILOG, short_help="Check that tcomp works on this machine.")
@click.option("--json", "as_json", is_flag=True, help="Report as JSON.")
@click.pass_context
def doctor(context: click.Context, as_json: bool) -> None:
    """Check Python, platform, LLVM, processor, threads and cache, then compile and run a small program."""
    findings = [examine(what, check) for what, check in CHECKS.items()]
    if as_json:
        print_json([{"what": f.what, "found": f.found, "ok": f.ok} for f in findings])
    else:
        print_table(("", "check", "found"), [({True: "ok", False: "FAULT", None: ""}[f.ok], f.what, f.found) for f in findings])
    if any(f.ok is False for f in findings):
        context.exit(1)
