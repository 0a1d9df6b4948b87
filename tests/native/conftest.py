"""The native runtime, compiled for this machine and loaded once."""

from functools import partial

import pytest

from tcomp.codegen.llvm.compile import compile_text, host
from tcomp.runtime import loader, native, pool

THREADS = 4  # more than small machines have: the pool must not need a core per thread


@pytest.fixture(scope="session", autouse=True)
def runtime():
    native.start(partial(compile_text, target=host()))
    pool.set_threads(THREADS)


@pytest.fixture(scope="session")
def load(runtime):
    """load(text, names) gives a library for LLVM text."""
    return lambda text, names: loader.load(compile_text(text, host()), names)
