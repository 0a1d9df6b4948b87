"""Forks wait for work that must not be cut in two, and children can do that work themselves."""

import os
import threading
import time

import numpy as np
import pytest
from frontend_support import Interpreted, same

from tcomp import forks
from tcomp.frontend.jit import Jit, Options
from tcomp.ir import node

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


def in_child(work):
    """Whether `work` was true in a child, within 20 seconds."""
    child = os.fork()
    if child == 0:
        os._exit(0 if work() else 1)
    for _ in range(400):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status == 0
        time.sleep(0.05)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return False


def slow_compiler(begun, seconds=0.3):
    def compile(func, options):
        begun.set()
        time.sleep(seconds)
        return Interpreted(func, options)

    return compile


def test_a_fork_waits_for_what_another_thread_compiles():
    begun = threading.Event()
    f = Jit(lambda x: x + 1, Options(), compiler=slow_compiler(begun))
    thread = threading.Thread(target=f, args=(np.ones(2),))
    thread.start()
    begun.wait()
    assert in_child(lambda: same(f(np.ones(2)), np.full(2, 2.0)) and same(f(np.ones(3)), np.full(3, 2.0)))
    thread.join()


def test_a_thread_that_compiles_may_fork():
    with forks.whole(), forks.whole():
        assert in_child(lambda: list(forks._depths.values()) == [2])
    assert not forks._depths


def test_patience_ends(monkeypatch):
    monkeypatch.setattr(forks, "PATIENCE", 0.1)
    begun = threading.Event()
    f = Jit(lambda x: x + 1, Options(), compiler=slow_compiler(begun, 2.0))
    thread = threading.Thread(target=f, args=(np.ones(2),))
    thread.start()
    begun.wait()
    assert in_child(lambda: not forks._depths)
    assert thread.is_alive()
    thread.join()


def test_a_child_may_make_nodes_whoever_held_the_lock():
    held, release = threading.Event(), threading.Event()

    def hold():
        with node._lock:
            held.set()
            release.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        assert in_child(lambda: node.node("test_forks", attrs=(("k", 1),))["k"] == 1)
    finally:
        release.set()
        thread.join()
