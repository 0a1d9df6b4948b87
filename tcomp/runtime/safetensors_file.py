"""Constants as a safetensors stream whose tensors lie on 64-byte boundaries, so that a mapped file is used as it is.

The format (https://github.com/huggingface/safetensors): u64 length of a JSON header, the header, the tensors' bytes. It
allows no holes, so padding between tensors is a tensor of its own, `.pad<n>`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tcomp.ir.dtype import ALL, from_numpy, to_numpy

ALIGNMENT = 64
_NAMES = {name: name.upper() for name in ALL}
_DTYPES = {tag: to_numpy(ALL[name]) for name, tag in _NAMES.items()}


def stream(tensors: Mapping[str, np.ndarray], position: int) -> tuple[int, Iterator[memoryview | bytes]]:
    """The length of a stream and its pieces; the first byte will be at `position` of the file."""
    header: dict[str, object] = {}
    pieces: list[np.ndarray | bytes] = []
    at = 0
    for name, data in tensors.items():
        gap = -at % ALIGNMENT
        if gap:
            header[f".pad{len(header)}"] = {"dtype": "U8", "shape": [gap], "data_offsets": [at, at + gap]}
            pieces.append(bytes(gap))
        known = from_numpy(data.dtype)
        assert known is not None and name not in header, name
        at += gap
        header[name] = {"dtype": _NAMES[known.name], "shape": list(data.shape), "data_offsets": [at, at + data.nbytes]}
        pieces.append(data)
        at += data.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(position + 8 + len(text)) % ALIGNMENT)
    start = len(text).to_bytes(8, "little") + text
    return len(start) + at, (piece if isinstance(piece, bytes) else _bytes_of(piece) for piece in (start, *pieces))


def _bytes_of(data: np.ndarray) -> memoryview:
    return np.ascontiguousarray(data).reshape(-1).view(np.uint8).data


def read(data: memoryview) -> dict[str, np.ndarray]:
    """The tensors of a stream, as read-only arrays over its memory. Raises ValueError where it is none."""
    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 or size > len(data) - 8:
        raise ValueError("the header of the constants is cut short")
    header = json.loads(bytes(data[8 : 8 + size]))
    if not isinstance(header, dict):
        raise ValueError("the header of the constants is no object")
    body = data[8 + size :]
    return {name: _tensor(name, facts, body) for name, facts in header.items() if name != "__metadata__"}


def _tensor(name: str, facts: Any, body: memoryview) -> np.ndarray:
    dtype, shape, (start, end) = _DTYPES[facts["dtype"]], facts["shape"], facts["data_offsets"]
    if not all(type(n) is int and n >= 0 for n in (*shape, start, end)) or len(shape) > 64:
        raise ValueError(f"the shape or place of the constant {name} is no list of sizes")
    count = 1
    for extent in shape:
        count *= extent
    if end > len(body) or end - start != count * dtype.itemsize:
        raise ValueError(f"the constant {name} does not lie where its header says")
    return np.frombuffer(body, np.uint8, end - start, start).view(dtype).reshape(shape)
