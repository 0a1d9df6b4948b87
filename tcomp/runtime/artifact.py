"""The `.tcomp` file: one zip archive, nothing compressed, of

    manifest.json            {"format": 2, "digest": sha256 of the manifest, "artifact": Artifact.manifest()}
    objects/<k>.o            native code, one per target
    texts/<stage>.tc         the program's text at each stage
    others/<k>/objects, others/<k>/texts    those of its other variants
    constants.safetensors    on 64-byte boundaries: mapped, not read; what several variants use is there once

Reading trusts nothing: every member is one of these, lies inside the file, is stored as it is and has the hash that the
manifest gives; what does not is TC0701. Nothing is extracted, unpickled or run. Running the native code of a file is
trusting whoever made it, as with any shared library. A file must not change while a program that was read from it lives;
`write` replaces files, it never changes them.
"""

from __future__ import annotations

import errno
import hashlib
import json
import mmap
import os
import re
import secrets
import struct
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from tcomp.errors import Error
from tcomp.ir.artifact import Artifact, CodeObject, Constant, Container, Port
from tcomp.ir.dtype import ALL
from tcomp.runtime import safetensors_file

FORMAT = 2
MOST_VARIANTS = 16
_MANIFEST, _CONSTANTS = "manifest.json", "constants.safetensors"
_MANIFEST_LIMIT = 256 << 20
_LOCAL = struct.Struct("<4s22xHH")  # of a local header: signature, lengths of name and extra field
_BROKEN = (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RuntimeError, struct.error, zipfile.BadZipFile)


def write(artifact: Artifact, path: str | Path, key: str = "") -> None:
    """Write the file at once; see `replacing`. key: what the file is kept for, its comment."""
    with replacing(Path(path)) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.comment = key.encode()
        _write_members(artifact, archive, file)


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A new file that takes the place of `path` at the end: whoever opens `path` finds the old file or the whole new one.

    An OSError names `path`, not the file that is there meanwhile.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:
            yield file
        os.replace(temporary, path)
    except OSError as e:
        raise OSError(e.errno, e.strerror, str(path)) from None
    finally:
        temporary.unlink(missing_ok=True)


def _write_members(artifact: Artifact, archive: zipfile.ZipFile, file: Any) -> None:
    manifest = artifact.manifest()
    whole = {"format": FORMAT, "digest": _digest(manifest), "artifact": manifest}
    archive.writestr(_info(_MANIFEST), json.dumps(whole))
    for number, variant in enumerate((artifact, *artifact.others)):
        for k, code in enumerate(variant.objects):
            archive.writestr(_info(f"{_folder(number)}objects/{k}.o"), code.data)
        for stage, text in variant.texts.items():
            archive.writestr(_info(f"{_folder(number)}texts/{stage}.tc"), text.encode())
    head = _LOCAL.size + len(_CONSTANTS)
    rows = _rows(manifest)
    keys = _keys(rows)
    data = [c.data for variant in (artifact, *artifact.others) for c in variant.constants]
    tensors = {keys[digest]: d for (_, digest), d in zip(rows, data)}
    info = _info(_CONSTANTS)
    info.file_size, pieces = safetensors_file.stream(tensors, file.tell() + head)
    with archive.open(info, "w") as member:
        for piece in pieces:
            member.write(piece)


def _folder(number: int) -> str:
    """Where the members of a variant are."""
    return f"others/{number - 1}/" if number else ""


def _rows(manifest: Any) -> list[tuple[str, str]]:
    """Name and digest of the constants of all variants."""
    return [(_text(name), _text(digest)) for part in (manifest, *manifest["others"]) for name, digest in part["constants"]]


def _keys(rows: Iterable[tuple[str, str]]) -> dict[str, str]:
    """What the file calls each constant, by its digest: the first name that one of its variants has for it."""
    keys: dict[str, str] = {}
    taken: set[str] = set()
    for name, digest in rows:
        if digest in keys:
            continue
        unique = next(n for n in (name, *(f"{name}.{k}" for k in range(len(taken) + 1))) if n not in taken)
        keys[digest] = unique
        taken.add(unique)
    return keys


def _info(name: str) -> zipfile.ZipInfo:
    """A member whose date says nothing: equal artifacts are equal files."""
    return zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))


def read(path: str | Path, key: str | None = None) -> Artifact:
    """The artifact in a file, its hashes verified; constants stay mapped from it. Raises TC0701, also where a key is given
    and the file is kept for another."""
    try:
        with open(path, "rb") as file:
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            members = _members(file, data, key)
    except (OSError, *_BROKEN) as error:
        raise _refusal(path, error) from error
    try:
        return _artifact(members)
    except _BROKEN as error:
        raise _refusal(path, error) from error


def _refusal(path: str | Path, error: Exception) -> Error:
    return Error("TC0701", f"{path} is no artifact: {error or type(error).__name__}", "a file that `save` wrote")


def _members(file: Any, data: memoryview, key: str | None) -> dict[str, memoryview]:
    """The bytes of every member, where they lie in the file."""
    members: dict[str, memoryview] = {}
    with zipfile.ZipFile(file) as archive:
        if key is not None and archive.comment != key.encode():
            raise ValueError("it is kept for another program")
        for info in archive.infolist():
            if info.filename in members:
                raise ValueError(f"there are two members {info.filename}")
            if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1 or info.file_size != info.compress_size:
                raise ValueError(f"the member {info.filename} is compressed or encrypted")
            members[info.filename] = _stored(info, data)
    return members


def _stored(info: zipfile.ZipInfo, data: memoryview) -> memoryview:
    signature, name, extra = _LOCAL.unpack_from(data, info.header_offset)
    start = info.header_offset + _LOCAL.size + name + extra
    end = start + info.file_size
    if signature != b"PK\3\4" or end > len(data):
        raise ValueError(f"the member {info.filename} is not in the file")
    return data[start:end]


def _artifact(members: dict[str, memoryview]) -> Artifact:
    """The artifact of a file's members, complete and as its manifest says."""
    head = members.pop(_MANIFEST)
    if len(head) > _MANIFEST_LIMIT:
        raise ValueError("the manifest is too large")
    whole = json.loads(bytes(head))
    if whole["format"] != FORMAT:
        raise ValueError(f"it is of format {whole['format']}, not {FORMAT}")
    manifest = whole["artifact"]
    artifact = _assembled(manifest, members)
    if members:
        raise ValueError(f"nobody knows its member {next(iter(members))}")
    found = artifact.manifest()
    for part in found:
        if _canonical(found[part]) != _canonical(manifest[part]):
            raise ValueError(f"its {part} are not what the manifest says")
    if _digest(found) != whole["digest"]:
        raise ValueError("its manifest was altered")
    return artifact


def _canonical(data: object) -> str:
    return json.dumps(data, sort_keys=True)


def _digest(manifest: object) -> str:
    return hashlib.sha256(_canonical(manifest).encode()).hexdigest()


def _container(row: Any, ports: Iterable[str]) -> Container:
    side, name, kind, parts = row
    if side not in ("input", "output") or not set(parts) <= set(ports):
        raise ValueError("a sequence or optional that is made of nothing known")
    return Container(side, _text(name), _text(kind), tuple(map(_text, parts)))


def _assembled(manifest: Any, members: dict[str, memoryview]) -> Artifact:
    """The artifact and its variants from their parts, which are taken out of `members`; hashes are not looked at yet."""
    whole = [manifest, *manifest["others"]]
    if len(whole) > MOST_VARIANTS or any(part["others"] for part in whole[1:]):
        raise ValueError("its variants are too many, or have variants themselves")
    tensors = safetensors_file.read(members.pop(_CONSTANTS))
    keys = _keys(_rows(manifest))
    first, *others = (_variant(part, members, _folder(k), keys, tensors) for k, part in enumerate(whole))
    shared = [[(p.name, p.dtype, len(p.shape)) for p in found.inputs] for found in (first, *others)]
    if any(ports != shared[0] for ports in shared):
        raise ValueError("its variants differ in their inputs")
    return replace(first, others=tuple(others), lead=min(_count(manifest["lead"]), len(others)))


def _variant(
    manifest: Any, members: dict[str, memoryview], folder: str, keys: Mapping[str, str], tensors: Mapping[str, Any]
) -> Artifact:
    codes = enumerate(manifest["objects"])
    constants = tuple(Constant(_text(name), tensors[keys[digest]]) for name, digest in manifest["constants"])
    inputs, outputs = (tuple(map(_port, manifest[side])) for side in ("inputs", "outputs"))
    return Artifact(
        name=_text(manifest["name"]),
        entry=_entry(manifest["entry"]),
        inputs=inputs,
        outputs=outputs,
        symbols=tuple(map(_text, manifest["symbols"])),
        counters=_count(manifest["counters"]),
        objects=tuple(
            CodeObject(_text(t), tuple(map(_text, f)), bytes(members.pop(f"{folder}objects/{k}.o"))) for k, (t, f, _) in codes
        ),
        constants=constants,
        texts={stage: str(members.pop(f"{folder}texts/{stage}.tc"), "utf-8") for stage in manifest["texts"]},
        report=dict(manifest["report"]),
        nodes=tuple(map(_text, manifest["nodes"])),
        defaults=_defaults(manifest["defaults"], {p.name for p in inputs}, {c.name for c in constants}),
        flops=_count(manifest["flops"]),
        containers=tuple(_container(row, {p.name for p in (*inputs, *outputs)}) for row in manifest["containers"]),
    )


def _port(data: Any) -> Port:
    name, dtype, shape = data
    if dtype not in ALL:
        raise ValueError(f"the port {name} has an unknown dtype")
    return Port(_text(name), dtype, tuple(d if isinstance(d, str) else _count(d) for d in shape))


def _defaults(data: Any, inputs: set[str], constants: set[str]) -> tuple[tuple[str, str], ...]:
    pairs = tuple((_text(a), _text(b)) for a, b in data)
    if not all(a in inputs and b in constants for a, b in pairs):
        raise ValueError("a default belongs to no input or has no value")
    return pairs


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text")
    return value


def _entry(value: Any) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_]{1,200}", _text(value)):
        raise ValueError(f"{value!r} is no name of a function")
    return str(value)


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise ValueError(f"{value!r} is no count")
    return value
