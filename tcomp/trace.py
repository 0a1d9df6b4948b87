"""Events of the compiler: passes that ran, rules that fired, choices that were made. Without a listener an event costs nothing.

    with trace.listening(lambda kind, data: print(kind, data)):
        trace.event("rule", name="double_negation")

Listeners hear the events of all threads, each in the thread where it happens; they may come and go at any time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Listener = Callable[[str, dict[str, Any]], None]

_lock = threading.Lock()
_listeners: tuple[Listener, ...] = ()  # replaced as a whole, so that an event reads it without the lock


def event(kind: str, **data: Any) -> None:
    """Tell all listeners that something of this kind happened."""
    for listener in _listeners:
        listener(kind, data)


def add_listener(listener: Listener) -> None:
    """Call `listener(kind, data)` for every event from now on."""
    global _listeners
    with _lock:
        _listeners = (*_listeners, listener)


def remove_listener(listener: Listener) -> None:
    """Take back one `add_listener` of the same object. ValueError where there was none."""
    global _listeners
    with _lock:
        left = list(_listeners)
        left.remove(listener)
        _listeners = tuple(left)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """A listener for the duration of a block."""
    add_listener(listener)
    try:
        yield
    finally:
        remove_listener(listener)
