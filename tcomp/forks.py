"""Work that a fork must not cut in two. Compiling takes locks (of tcomp, of the import system, of LLVM) and a child forked
while another thread holds one could never compile. So `os.fork` waits until no other thread is inside such work; after
`PATIENCE` it goes ahead all the same, since one thread may be waiting for the other.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE = 60.0  # seconds

_changed = threading.Condition(threading.RLock())
_depths: dict[int, int] = {}  # how many blocks of `whole` each thread is in


@contextmanager
def whole() -> Iterator[None]:
    """Within the block (or the decorated function) no other thread forks."""
    me = threading.get_ident()
    with _changed:
        _depths[me] = _depths.get(me, 0) + 1
    try:
        yield
    finally:
        with _changed:
            _depths[me] -= 1
            if not _depths[me]:
                del _depths[me]
                _changed.notify_all()


def _others() -> set[int]:
    return _depths.keys() - {threading.get_ident()}


def _before() -> None:
    """Wait for the others and hold the lock through the fork: nobody enters meanwhile."""
    _changed.acquire()
    _changed.wait_for(lambda: not _others(), PATIENCE)


def _in_child() -> None:
    for thread in _others():
        del _depths[thread]
    _changed.release()


os.register_at_fork(before=_before, after_in_parent=_changed.release, after_in_child=_in_child)
