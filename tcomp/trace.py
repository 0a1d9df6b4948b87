"""Events of the compiler: passes run, rules fired. Nothing is recorded unless somebody listens."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Listener = Callable[[str, dict[str, Any]], None]

_listeners: list[Listener] = []
_lock = threading.Lock()


def event(kind: str, **data: Any) -> None:
    """Tell every listener that something of `kind` happened."""
    for listener in tuple(_listeners):
        listener(kind, data)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Within the block, `listener(kind, data)` is called for every event of any thread."""
    with _lock:
        _listeners.append(listener)
    try:
        yield
    finally:
        with _lock:
            _listeners.remove(listener)
