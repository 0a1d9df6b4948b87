"""The thread pool from Python: how many threads, and one call of `main` on them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

from tcomp.runtime import native


def set_threads(count: int) -> None:
    """Let calls use up to `count` threads from now on, the caller among them. Threads are started when first needed."""
    _function("tc_set_threads", ctypes.c_int64)(count)


def run(entry: int, frame: int, threads: int) -> None:
    """`entry(frame, t)` on up to `threads` threads without the GIL; alone where the pool is taken by another call.

    entry, frame: addresses. Slot 1 of the frame receives the number of threads that may walk.
    """
    _function("tc_run", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(entry, frame, threads)


@cache
def _function(name: str, *arguments: Any) -> Callable[..., None]:
    return native.function(name, None, *arguments)
