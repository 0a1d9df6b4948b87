"""The runtime's own native code: thread pool, claiming, allocator, call object, as LLVM text in the files beside this.

`start` compiles and loads it once per process. The compiler is injected (and may cache), since the runtime does not
know code generation. Compiled programs refer to the functions in `FOR_PROGRAMS` by name.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
import sysconfig
import threading
from collections.abc import Callable
from importlib import resources
from typing import Any

from tcomp import knobs
from tcomp.errors import Error
from tcomp.runtime import loader

MACHINES = ("x86_64", "aarch64")
FOR_PROGRAMS = ("tc_alloc", "tc_free", "tc_claim", "tc_done", "tc_wait", "tc_current", "tc_run")
_FOR_PYTHON = (
    "tc_set_threads", "tc_after_fork", "tc_trim", "tc_set_cap", "tc_retained", "tc_mapped", "tc_forget_lists",
)  # fmt: skip

_lock = threading.Lock()
_addresses: dict[str, int] = {}
_compile: list[Callable[[str], bytes]] = []


def text(*files: str) -> str:
    """The module made of these files; what several of them declare is declared once."""
    folder = resources.files(__name__)
    lines = "\n".join(folder.joinpath(f"{name}.ll").read_text() for name in files).splitlines()
    declared = dict.fromkeys(line for line in lines if line.startswith("declare "))
    return "\n".join([*declared, *(line for line in lines if not line.startswith("declare "))]) + "\n"


def core(machine: str | None = None) -> str:
    """The module of pool, claiming and allocator for a machine (this one, `x86_64` or `aarch64`), under Linux.

    Raises TC0702 where there is none.
    """
    name = machine or (platform.machine() if sys.platform == "linux" else sys.platform)
    if name not in MACHINES:
        raise Error("TC0702", f"there is no native runtime for {name}", "Linux on x86-64 or aarch64")
    return text(f"machine_{name}", "claim", "pool", "alloc")


def start(compile: Callable[[str], bytes]) -> None:
    """Compile (LLVM text to an object for this machine), load and set up the runtime; does nothing the second time.

    The knobs TCOMP_NUM_THREADS and TCOMP_CACHE_BYTES are read here. TC0702 in a free-threaded Python: nothing was tried there.
    """
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise Error("TC0702", "this Python is a free-threaded build", "a build of CPython with the GIL")
    with _lock:
        if _addresses:
            return
        library = loader.load(compile(core()), FOR_PROGRAMS + _FOR_PYTHON)
        library.keep()
        loader.provide({name: library[name] for name in FOR_PROGRAMS})
        _compile.append(compile)
        _addresses.update(library.addresses)
        function("tc_set_threads", None, ctypes.c_int64)(threads())
        function("tc_set_cap", None, ctypes.c_int64)(knobs.CACHE_BYTES.read())
        for name in ("tc_after_fork", "tc_forget_lists"):
            os.register_at_fork(after_in_child=function(name, None))


def threads() -> int:
    """How many threads a call may use: TCOMP_NUM_THREADS, or the CPUs that this process may run on."""
    return int(knobs.NUM_THREADS.read()) or len(os.sched_getaffinity(0))


def address(name: str) -> int:
    """Where a function of the runtime is."""
    assert _addresses, "tcomp.runtime.native.start comes first"
    return _addresses[name]


def function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    """A function of the runtime as a ctypes function, which lets go of the GIL."""
    return ctypes.CFUNCTYPE(result, *arguments)(address(name))


def extend(file: str, exports: tuple[str, ...]) -> loader.Library:
    """Compile and load one more file of the runtime, for ever."""
    assert _compile, "tcomp.runtime.native.start comes first"
    library = loader.load(_compile[0](text(file)), exports)
    library.keep()
    return library
