"""The allocator from Python: blocks by address, and what it holds."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

from tcomp.runtime import native


def alloc(size: int) -> int:
    """The address of `size` bytes, 64-byte aligned, not cleared; 0 where there is no memory."""
    return _function("tc_alloc", ctypes.c_void_p, ctypes.c_int64)(size) or 0


def free(address: int) -> None:
    """Give a block back; 0 is ignored."""
    _function("tc_free", None, ctypes.c_void_p)(address)


def trim(retain: int = 0) -> None:
    """Give blocks that nobody uses back to the system until at most `retain` bytes of them are kept."""
    _function("tc_trim", None, ctypes.c_int64)(retain)


def set_cap(size: int) -> None:
    """How many bytes of freed blocks may be kept from now on."""
    _function("tc_set_cap", None, ctypes.c_int64)(size)


def retained() -> int:
    """Bytes of freed blocks that are kept."""
    return int(_function("tc_retained", ctypes.c_int64)())


def held() -> int:
    """Bytes held from the system: in use or kept."""
    return int(_function("tc_mapped", ctypes.c_int64)())


@cache
def _function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    return native.function(name, result, *arguments)
