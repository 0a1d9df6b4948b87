"""Native code in this process: object bytes are linked and their symbols get addresses.

One ORC session of LLVM serves the process; every object is a library of its own, so equal names in two objects do not
meet. What an object leaves undefined is looked up among the runtime's own functions (`provide`), then in the process
(libc, libm, Python). A `Library` keeps its code mapped while it lives: whoever holds an address holds the library.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from functools import cache

import llvmlite.binding as llvm

from tcomp.errors import Error

_names = itertools.count()
_lock = threading.Lock()
_provided: dict[str, int] = {}


class Library:
    """Loaded code. `addresses` maps each exported symbol to its address, valid while the library lives."""

    __slots__ = ("_tracker", "addresses")

    def __init__(self, tracker: llvm.orcjit.ResourceTracker, addresses: dict[str, int]) -> None:
        self._tracker, self.addresses = tracker, addresses

    def __getitem__(self, name: str) -> int:
        """The address of `name`."""
        return self.addresses[name]

    def keep(self) -> None:
        """Never unload: for code that may run as long as the process does (threads, destructors of Python objects)."""
        self._tracker.detach()


def load(data: bytes, exports: tuple[str, ...]) -> Library:
    """Link the object `data` into the process and find `exports` in it.

    Raises TC0701 where it is no object for this machine or needs symbols that nobody has.
    """
    builder = llvm.JITLibraryBuilder().add_object_img(data).add_current_process()
    for name in exports:
        builder.export_symbol(name)
    with _lock:
        for name, address in _provided.items():
            builder.import_symbol(name, address)
        try:
            tracker = builder.link(_session(), f"tcomp{next(_names)}")
        except RuntimeError as error:
            raise Error("TC0701", f"native code does not load: {error}", "an object file for this machine") from error
    return Library(tracker, {name: tracker[name] for name in exports})


def provide(symbols: dict[str, int]) -> None:
    """Let objects loaded from now on refer to these names. The addresses must stay valid."""
    with _lock:
        _provided.update(symbols)


@cache
def _session() -> llvm.orcjit.LLJIT:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    _open_support_library()
    machine = llvm.Target.from_default_triple().create_target_machine(reloc="pic", codemodel="default", jit=True)
    session = llvm.create_lljit_compiler(machine, use_jit_link=True)
    session._owned = True  # by the process: code may run until it ends, so nothing disposes of the session
    return session


def _open_support_library() -> bool:
    """Open libgcc for everybody: LLVM calls it to convert f16 and bf16 on CPUs that cannot. True where it is there."""
    try:
        ctypes.CDLL("libgcc_s.so.1", ctypes.RTLD_GLOBAL)
    except OSError:
        return False  # code that needs it then fails to load, with an error that says so
    return True
