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

_EPILOG = """\b
Example:
  tcomp doctor          exit code 0 where everything works, 1 where something does not"""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at. ok None: a fact, neither good nor bad."""

    what: str
    found: str
    ok: bool | None = None


def python_build() -> Finding:
    free = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    name = f"{platform.python_implementation()} {platform.python_version()}"
    if free:
        return Finding("Python", f"{name}, free-threaded: not supported", False)
    return Finding("Python", name, platform.python_implementation() == "CPython" and sys.version_info >= (3, 11))


def operating_system() -> Finding:
    supported = sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64")
    return Finding("platform", f"{platform.system()} {platform.machine()}", supported)


def llvm_version() -> Finding:
    import llvmlite
    import llvmlite.binding as llvm

    return Finding("llvmlite", f"{llvmlite.__version__} with LLVM {'.'.join(map(str, llvm.llvm_version_info))}", True)


def processor() -> Finding:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    features = {name for name, present in llvm.get_host_cpu_features().items() if present}
    wanted = ("avx2", "fma", "avx512f", "avx512vnni", "amx-tile", "neon")
    present = " ".join(f for f in wanted if f in features)
    return Finding("processor", f"{llvm.get_host_cpu_name()}: {present or 'no vector extension that tcomp uses'}")


def thread_count() -> Finding:
    from tcomp import knobs

    allowed, asked = len(os.sched_getaffinity(0)), int(knobs.NUM_THREADS.read())
    found = f"{asked} (TCOMP_NUM_THREADS)" if asked else f"{allowed} (all that this process may use)"
    return Finding("threads", found, asked >= 0)


def cache_folder() -> Finding:
    """Whether the disk cache's folder, or what will become its parent, can be written."""
    from tcomp import knobs

    if not knobs.CACHE.read():
        return Finding("cache", "off (TCOMP_CACHE=0)")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = knobs.CACHE_DIR.read() or os.path.join(home, "tcomp")
    existing = folder
    while not os.path.exists(existing):
        existing = os.path.dirname(existing)
    try:
        with tempfile.NamedTemporaryFile(dir=existing):
            return Finding("cache", folder, True)
    except OSError as error:
        return Finding("cache", f"{folder}: {error.strerror}", False)


def small_program() -> Finding:
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
    return Finding("a small program", f"compiled and run in {show_seconds(seconds)}", bool(np.allclose(y, f(x, w), atol=1e-5)))


CHECKS: tuple[Callable[[], Finding], ...] = (
    python_build, operating_system, llvm_version, processor, thread_count, cache_folder, small_program,
)  # fmt: skip


def examine(check: Callable[[], Finding]) -> Finding:
    """The finding of a check; one that raises has failed, and its message is the finding."""
    try:
        return check()
    except Exception as error:
        return Finding(check.__name__.replace("_", " "), f"{type(error).__name__}: {error}", False)


@click.command("doctor", epilog=_EPILOG, short_help="Check that tcomp works on this machine.")
@click.option("--json", "as_json", is_flag=True, help="Report as JSON.")
@click.pass_context
def doctor(context: click.Context, as_json: bool) -> None:
    """Check Python, platform, LLVM, processor, threads and cache, then compile and run a small program."""
    findings = [examine(check) for check in CHECKS]
    if as_json:
        print_json([{"what": f.what, "found": f.found, "ok": f.ok} for f in findings])
    else:
        print_table(("", "check", "found"), [({True: "ok", False: "FAULT", None: ""}[f.ok], f.what, f.found) for f in findings])
    if any(f.ok is False for f in findings):
        context.exit(1)
