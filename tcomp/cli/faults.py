"""Reproducers: what somebody needs to meet a fault of tcomp again, in one JSON file."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tempfile
import traceback
from pathlib import Path

from tcomp.errors import Error


def as_fault(error: Exception) -> Error:
    """`error`, which nothing in tcomp was meant to raise, as TC0001."""
    hint = "report it with the reproducer; TCOMP_DEBUG=1 shows the traceback"
    fault = Error("TC0001", f"{type(error).__name__}: {error}", hint=hint)
    fault.__cause__ = error
    return fault


def write_reproducer(error: Error, arguments: list[str]) -> str:
    """Write the command, the files it names with their digests, the environment and the traceback; returns the file's path."""
    files = {str(Path(a).resolve()): _digest(a) for a in map(_file_of, arguments) if os.path.isfile(a)}
    data = {
        "command": ["tcomp", *arguments],
        "folder": os.getcwd(),
        "files": files,
        "environment": {k: v for k, v in sorted(os.environ.items()) if k.startswith("TCOMP_")},
        "versions": _versions(),
        "python": platform.python_version(),
        "machine": platform.platform(),
        "traceback": traceback.format_exception(error),
    }
    handle, path = tempfile.mkstemp(".json", "tcomp-fault-")
    with os.fdopen(handle, "w") as f:
        json.dump(data, f, indent=1)
    return path


def _file_of(argument: str) -> str:
    """The file in `NAME=FILE`, or the argument itself."""
    return argument if os.path.isfile(argument) else argument.partition("=")[2]


def _digest(path: str) -> str:
    with open(path, "rb") as f:
        return f"sha256:{hashlib.file_digest(f, 'sha256').hexdigest()}"


def _versions() -> dict[str, str]:
    """The versions of tcomp and of what its results depend on."""
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in ("tcomp", "numpy", "llvmlite", "onnx", "ml-dtypes"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found
