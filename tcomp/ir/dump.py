"""Dumps: the text of a module in a file, its large constants in a safetensors file of the same name beside it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tcomp.errors import Error
from tcomp.ir.dtype import STORED, bf16, from_numpy, to_numpy
from tcomp.ir.literals import digest
from tcomp.ir.module import Module
from tcomp.ir.parser import parse
from tcomp.ir.printer import large_constants, print_module

# What safetensors does not give to NumPy is stored as its bits.
_AS_BITS: dict[np.dtype, tuple[np.dtype, ...]] = {
    np.dtype(np.uint16): (to_numpy(bf16),),
    np.dtype(np.uint8): tuple(map(to_numpy, STORED)),
}


def save_dump(module: Module, path: Path) -> None:
    """Write the text to `path`, and the constants that it names by digest beside it."""
    path.write_text(print_module(module), encoding="utf-8")
    constants = large_constants(module)
    if constants:
        from safetensors.numpy import save_file

        save_file({k: _plain(a) for k, a in constants.items()}, path.with_suffix(".safetensors"))


def _plain(array: np.ndarray) -> np.ndarray:
    array, dtype = np.ascontiguousarray(array).reshape(array.shape), from_numpy(array.dtype)
    hidden = dtype is not None and (dtype == bf16 or dtype.is_storage)
    return array.view(f"u{array.itemsize}") if hidden else array


def load_dump(path: Path) -> Module:
    """The module of a dump. Raises `Error`: TC0301 where the text does not parse, TC0701 where the constants are damaged."""
    beside = path.with_suffix(".safetensors")
    constants = _read(beside) if beside.exists() else {}
    return parse(path.read_text(encoding="utf-8"), constants, str(path))


def _read(path: Path) -> dict[str, np.ndarray]:
    """The constants by digest, each digest verified."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        found: dict[str, np.ndarray] = load_file(path)
    except (SafetensorError, OSError) as e:
        raise Error("TC0701", f"{path}: {e}", "the constants of the dump") from None
    return {name: _checked(path, name, array) for name, array in found.items()}


def _checked(path: Path, name: str, array: np.ndarray) -> np.ndarray:
    """The constant, as the dtype that its digest was taken with."""
    for candidate in (array, *(array.view(t) for t in _AS_BITS.get(array.dtype, ()))):
        if digest(candidate) == name:
            return candidate
    raise Error("TC0701", f"{path}: the constant {name[:12]} has other bytes than its digest says", "an unaltered file")
