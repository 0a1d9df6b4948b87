"""The disk cache, in two levels: a program's text and options give its whole artifact, a kernel's text gives object code.

    <folder>/artifacts/<key>.tcomp     <folder>/code/<key>.o (sha256 of key and code, then the code)

Keys are hashes of everything that the entry depends on, this compiler's own files included, so an entry never gets stale.
Entries are written aside and renamed into place: readers find nothing or a whole entry, whoever else writes or dies. Each
is verified when read; one that is broken, or was made for another key, is removed and counts as absent. The folder is the
user's alone (0700): code in it is run. When the cache outgrows its limit, the entries that were not used for longest go.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import time
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path

from tcomp import knobs
from tcomp.errors import Error
from tcomp.ir.artifact import Artifact
from tcomp.runtime import artifact as artifact_file

_ABANDONED = 3600.0  # seconds after which a temporary file belongs to nobody
_DIGEST = hashlib.sha256().digest_size


def key(*parts: str | bytes) -> str:
    """The key of what depends on these parts and on the compiler."""
    digest = hashlib.sha256(compiler_fingerprint().encode())
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


@cache
def compiler_fingerprint() -> str:
    """A hash of names, sizes and dates of tcomp's files and of the version of LLVM's binding."""
    import llvmlite

    root = Path(__file__).parent.parent
    facts = [f"llvmlite {llvmlite.__version__}"]
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(files):
            entry = os.stat(os.path.join(folder, name))
            facts.append(f"{os.path.relpath(folder, root)}/{name} {entry.st_size} {entry.st_mtime_ns}")
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()


def default_folder() -> Path:
    """`TCOMP_CACHE_DIR`, or tcomp under the user's cache folder."""
    chosen = knobs.CACHE_DIR.read()
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tcomp"


@cache
def user_cache() -> Cache | None:
    """The cache that the environment asks for; None where it is switched off or its folder is not safe (with a warning)."""
    if not knobs.CACHE.read():
        return None
    limit = knobs.CACHE_LIMIT.read()
    try:
        return Cache(default_folder(), limit)
    except (OSError, RuntimeError) as error:  # RuntimeError: of a user without a home
        warnings.warn(f"compiled programs are not kept: {error}", RuntimeWarning, stacklevel=2)
        return None


def artifact_for(key: str, make: Callable[[], Artifact]) -> Artifact:
    """The artifact of a key from the user's cache, or a new one, which is kept.

    Where dumps or checks are asked for, it is made anew: they come with the making.
    """
    kept = None if knobs.DUMP.read() or knobs.CHECK.read() else user_cache()
    found = kept.artifact(key) if kept is not None else None
    if found is not None:
        return found
    made = make()
    if kept is not None:
        kept.put_artifact(key, made)
    return made


def code_for(key: str, make: Callable[[], bytes]) -> bytes:
    """The object code of a key from the user's cache, or new code, which is kept."""
    kept = user_cache()
    found = kept.code(key) if kept is not None else None
    if found is not None:
        return found
    made = make()
    if kept is not None:
        kept.put_code(key, made)
    return made


class Cache:
    """A cache folder. Raises PermissionError where others could write in it, OSError where it cannot be made."""

    def __init__(self, folder: Path, limit: int = 4 << 30) -> None:
        self._limit = limit
        self._unchecked = limit  # bytes written since the size of the whole was looked at; the first write looks
        self._folders = {name: folder / name for name in ("artifacts", "code")}
        for path in (folder, *self._folders.values()):
            _make_private(path)

    def artifact(self, key: str) -> Artifact | None:
        """The artifact of a key, or None."""
        path = self._path("artifacts", key)
        if not _touch(path):
            return None
        try:
            return artifact_file.read(path, key)
        except Error:
            _remove(path)
            return None

    def put_artifact(self, key: str, artifact: Artifact) -> None:
        """Keep an artifact."""
        path = self._path("artifacts", key)
        self._put(path, lambda: artifact_file.write(artifact, path, key))

    def code(self, key: str) -> bytes | None:
        """The object code of a key, or None."""
        path = self._path("code", key)
        if not _touch(path):
            return None
        try:
            data = path.read_bytes()
        except OSError:
            return None
        if _seal(key, data[_DIGEST:]) == data[:_DIGEST]:
            return data[_DIGEST:]
        _remove(path)
        return None

    def put_code(self, key: str, data: bytes) -> None:
        """Keep object code."""
        path = self._path("code", key)
        self._put(path, lambda: _write_whole(path, _seal(key, data) + data))

    def _path(self, folder: str, key: str) -> Path:
        assert len(key) == 64 and key.isalnum(), f"{key!r} was not made by `key`"
        return self._folders[folder] / f"{key}{'.tcomp' if folder == 'artifacts' else '.o'}"

    def _put(self, path: Path, write: Callable[[], None]) -> None:
        """Write an entry, and make room now and then. A full or read-only disk costs the entry, not the program."""
        try:
            write()
            self._unchecked += path.stat().st_size
            if self._unchecked >= self._limit // 64:
                self._unchecked = 0
                self._make_room()
        except FileNotFoundError:
            return  # another process removed the entry or the folder
        except OSError as error:
            warnings.warn(f"a compiled program was not kept: {error}", RuntimeWarning, stacklevel=3)

    def _make_room(self) -> None:
        """Remove the entries unused for longest until nine tenths of the limit are left, and abandoned temporary files."""
        entries = sorted(entry for folder in self._folders.values() for entry in _entries(folder))
        total = sum(size for _, size, _ in entries)
        goal = self._limit * 9 // 10 if total > self._limit else total
        for used, size, path in entries[:-1]:
            abandoned = path.suffix == ".tmp" and time.time() - used > _ABANDONED
            if total <= goal and not abandoned:
                continue
            if path.suffix != ".tmp" or abandoned:
                _remove(path)
                total -= size


def _seal(key: str, code: bytes) -> bytes:
    return hashlib.sha256(key.encode() + code).digest()


def _make_private(path: Path) -> None:
    """A folder of this user that nobody else may enter. Raises PermissionError where others own it or may write in it."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    facts = path.stat()
    if facts.st_uid != os.geteuid():
        raise PermissionError(f"the folder {path} belongs to another user")
    if facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"others may write in the folder {path}")
    if facts.st_mode & 0o077:
        path.chmod(0o700)


def _touch(path: Path) -> bool:
    """Note that an entry is used now; False where there is none: no file of our own, that is."""
    try:
        os.utime(path, follow_symlinks=False)
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def _remove(path: Path) -> None:
    """Remove a broken entry. Where that is not possible it stays, and counts as absent every time."""
    with contextlib.suppress(OSError):
        path.unlink()


def _write_whole(path: Path, data: bytes) -> None:
    with artifact_file.replacing(path) as file:
        file.write(data)


def _entries(folder: Path) -> list[tuple[float, int, Path]]:
    """Last use, size and path of every file."""
    found = []
    with os.scandir(folder) as files:
        for file in files:
            try:
                facts = file.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            found.append((facts.st_mtime, facts.st_size, Path(file.path)))
    return found
