"""`.tcomp` files: they come back whole, constants mapped; whatever is altered, cut or hostile is refused."""

import hashlib
import json
import os
import platform
import tracemalloc
import zipfile
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
import safetensors
from programs import N, artifact

import tcomp
from tcomp.errors import Error
from tcomp.ir import dtype as dt
from tcomp.ir.artifact import Artifact, CodeObject, Constant, Port
from tcomp.ir.stmts import Launch, Main
from tcomp.ir.types import Buffer
from tcomp.runtime import safetensors_file
from tcomp.runtime.artifact import read, write
from tcomp.runtime.executable import link

V = np.arange(50) * 3


@pytest.fixture(scope="module")
def whole() -> Artifact:
    """out = x + w, and constants of all kinds beside."""
    x, w, out = (Buffer(name, dt.i64, (N,)) for name in ("x", "w", "out"))
    main = Main((x,), (out,), (w,), (N,), (Launch("add", ("x", "w", "out"), (N,), 0),))
    made = artifact(main, {"w": V}, texts={"tile": "kernel @add\n", "llvm": "; é\n"})
    others = {
        "scalar": np.float32(2.5), "half": np.arange(7).astype(ml_dtypes.bfloat16), "empty": np.zeros((0, 3), np.uint16),
        "flags": np.array([True, False]), "a/b:0 ü": np.arange(6, dtype=np.int8).reshape(2, 3), "nan": np.array([np.nan, -0.0]),
    }  # fmt: skip
    extra = tuple(Constant(name, np.asarray(data)) for name, data in others.items())
    report = {"ops": [["add", "native"]], "ms": 1.5}
    return replace(made, constants=made.constants + extra, report=report, defaults=(("x", "a/b:0 ü"),), flops=7)


@pytest.fixture
def path(whole, tmp_path):
    write(whole, tmp_path / "m.tcomp")
    return tmp_path / "m.tcomp"


def refused(path, **options) -> Error:
    with pytest.raises(Error, match="TC0701") as caught:
        read(path, **options)
    return caught.value


def test_what_was_written_is_read(whole, path):
    back = read(path)
    assert back.manifest() == whole.manifest() and back.texts == whole.texts and back.objects == whole.objects
    for a, b in zip(whole.constants, back.constants):
        assert a.name == b.name and a.data.dtype == b.data.dtype and a.data.shape == b.data.shape
        assert a.data.tobytes() == b.data.tobytes()
        assert b.data.ctypes.data % 64 == 0 and not b.data.flags.writeable


def test_a_file_runs(path):
    exe = link(read(path))
    np.testing.assert_array_equal(exe(V), V * 2)
    exe.save(path)  # over the file that it is mapped from
    np.testing.assert_array_equal(exe(V), V * 2)
    np.testing.assert_array_equal(link(read(path))(V), V * 2)


def test_a_file_is_compiled_again_from_its_text(tmp_path):
    path = tmp_path / "m.tcomp"
    weights = np.arange(40, dtype=np.float32)  # too many for the text: they come from the file's constants
    tcomp.compile(lambda x: x * 2 + weights, tcomp.spec("f32[n, 40]")).save(path)
    write(replace(read(path), objects=()), path)
    with pytest.raises(Error, match="TC0702"):
        tcomp.load(path)
    x = np.ones((3, 40), np.float32)
    np.testing.assert_array_equal(tcomp.load(path, native=False)(x), x * 2 + weights)


def test_text_that_is_not_the_programs_is_not_compiled(tmp_path):
    path = tmp_path / "m.tcomp"
    tcomp.compile(lambda x: x * 2 + x.sum(), tcomp.spec("f32[40]")).save(path)
    whole = read(path)
    write(replace(whole, inputs=(Port("x", "f32", (4,)),)), path)  # the code would read past the end of what a caller gives
    with pytest.raises(Error, match=r"TC0701.*another program"):
        tcomp.load(path, native=False)
    lie = whole.texts["tile"].replace("x : f32[40]", "x : f32[4]")
    assert lie != whole.texts["tile"]
    write(replace(whole, texts={**whole.texts, "tile": lie}), path)
    with pytest.raises(Error, match="TC0302"):
        tcomp.load(path, native=False)


def test_no_code_for_this_machine(whole, tmp_path):
    write(replace(whole, objects=(CodeObject("cpu:other", ("other",), whole.objects[0].data),)), tmp_path / "m.tcomp")
    with pytest.raises(Error, match=r"TC0702(.|\n)*native=False"):
        link(read(tmp_path / "m.tcomp"))


def test_equal_artifacts_are_equal_files(whole, path, tmp_path):
    write(whole, tmp_path / "again.tcomp")
    assert path.read_bytes() == (tmp_path / "again.tcomp").read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["again.tcomp", "m.tcomp"]


def test_the_members_are_plain_formats(whole, path):
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        names = ["manifest.json", "objects/0.o", "texts/tile.tc", "texts/llvm.tc", "constants.safetensors"]
        assert archive.namelist() == names
        known = [c for c in whole.constants if c.data.dtype != ml_dtypes.bfloat16]
        archive.extract("constants.safetensors", path.parent)
    with safetensors.safe_open(path.parent / "constants.safetensors", framework="numpy") as tensors:
        for c in known:
            np.testing.assert_array_equal(tensors.get_tensor(c.name), c.data)


def test_a_failed_write_leaves_the_old_file(whole, path):
    before = path.read_bytes()
    with pytest.raises(AssertionError):
        write(replace(whole, constants=(Constant("w", np.zeros(3, np.complex64)),)), path)
    assert path.read_bytes() == before and os.listdir(path.parent) == ["m.tcomp"]


@pytest.mark.parametrize(("where", "kind"), [("", IsADirectoryError), ("no/folder.tcomp", FileNotFoundError)])
def test_a_place_that_cannot_be_written_is_named(whole, tmp_path, where, kind):
    with pytest.raises(kind) as e:
        write(whole, tmp_path / where)
    assert e.value.filename == str(tmp_path / where) and list(tmp_path.iterdir()) == []


def test_every_altered_byte_is_seen_or_means_nothing(whole, path):
    data = path.read_bytes()
    digest = whole.digest()
    rng = np.random.default_rng(0)
    places = [*range(0, 120), *rng.integers(0, len(data), 400).tolist(), *range(len(data) - 150, len(data))]
    refusals = 0
    for at in places:
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :])
        try:
            assert read(path).digest() == digest
        except Error as error:
            assert error.code == "TC0701"
            refusals += 1
    assert refusals > len(places) / 2


def test_every_cut_is_seen(path):
    data = path.read_bytes()
    for size in (0, 1, 21, 22, 100, len(data) // 2, len(data) - 23, len(data) - 1):
        path.write_bytes(data[:size])
        refused(path)


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\5\6" + bytes(18), b"\x7fELF" + bytes(100)])
def test_other_files(tmp_path, content):
    (tmp_path / "x").write_bytes(content)
    refused(tmp_path / "x")
    refused(tmp_path / "nowhere")
    refused(tmp_path)


def rebuilt(path, change, compression=zipfile.ZIP_STORED):
    """The file with its members changed."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def edit(key, value):
    def change(members):
        manifest = json.loads(members["manifest.json"])
        at = manifest
        for part in key[:-1]:
            at = at[part]
        at[key[-1]] = value
        members["manifest.json"] = json.dumps(manifest).encode()

    return change


BAD = {
    "another format": edit(["format"], 3),
    "variants without members": edit(["artifact", "others"], [{}]),
    "a variant that is none": edit(["artifact", "others"], 7),
    "variants tried before it": edit(["artifact", "lead"], 1),
    "path as a stage": edit(["artifact", "texts", "../../evil"], "00"),
    "entry": edit(["artifact", "entry"], "system; rm"),
    "no list": edit(["artifact", "inputs"], 7),
    "dtype": edit(["artifact", "inputs", 0, 1], "f33"),
    "negative dimension": edit(["artifact", "inputs", 0, 2], [-1]),
    "huge counter": edit(["artifact", "counters"], 1 << 80),
    "counter is true": edit(["artifact", "counters"], True),
    "another flops": edit(["artifact", "flops"], 8),
    "unknown default": edit(["artifact", "defaults"], [["x", "nothing"]]),
    "missing constant": edit(["artifact", "constants", 0, 0], "nothing"),
    "hash of an object": edit(["artifact", "objects", 0, 2], "0" * 64),
    "deep": lambda m: m.update({"manifest.json": b"[" * 100_000}),
    "no json": lambda m: m.update({"manifest.json": b"{'a': 1}"}),
    "no manifest": lambda m: m.pop("manifest.json"),
    "no constants": lambda m: m.pop("constants.safetensors"),
    "no object": lambda m: m.pop("objects/0.o"),
    "no text": lambda m: m.pop("texts/tile.tc"),
    "another object": lambda m: m.update({"objects/0.o": m["objects/0.o"] + b"\0"}),
    "another text": lambda m: m.update({"texts/tile.tc": b"kernel @evil\n"}),
    "text is no text": lambda m: m.update({"texts/tile.tc": b"\xff\xff"}),
    "traversal": lambda m: m.update({"../evil": b"x"}),
    "one more member": lambda m: m.update({"objects/1.o": b"x"}),
    "cut constants": lambda m: m.update({"constants.safetensors": m["constants.safetensors"][:-1]}),
    "constants' header": lambda m: m.update({"constants.safetensors": b"\xff" * 8 + m["constants.safetensors"][8:]}),
}


@pytest.mark.parametrize("case", BAD)
def test_hostile_files(path, case):
    rebuilt(path, BAD[case])
    refused(path)
    assert os.listdir(path.parent) == ["m.tcomp"]


def test_members_in_another_frame_are_fine(path, whole):
    rebuilt(path, lambda members: None)
    assert read(path).digest() == whole.digest()


def test_zip_bombs_are_not_unpacked(path):
    rebuilt(path, lambda m: m.update({"texts/tile.tc": bytes(200 << 20)}), zipfile.ZIP_DEFLATED)
    tracemalloc.start()
    try:
        assert "compressed" in refused(path).found
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_members_of_one_name(path):
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("texts/tile.tc", b"kernel @evil\n")
    assert "two members" in refused(path).found


@pytest.mark.parametrize(
    "facts",
    [
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 12]},
        {"dtype": "F32", "shape": [-2, -2], "data_offsets": [0, 16]},
        {"dtype": "F32", "shape": [1 << 62, 4], "data_offsets": [0, 0]},
        {"dtype": "F32", "shape": [4], "data_offsets": [8, 24]},
        {"dtype": "C64", "shape": [2], "data_offsets": [0, 16]},
        {"dtype": "F32", "shape": [True, 4], "data_offsets": [0, 16]},
        {"dtype": "F32", "shape": [4], "data_offsets": [-16, 0]},
        {"shape": [4], "data_offsets": [0, 16]},
        "text",
    ],
)
def test_constants_that_lie(facts):
    text = json.dumps({"x": facts}).encode()
    data = len(text).to_bytes(8, "little") + text + bytes(16)
    with pytest.raises((ValueError, KeyError, TypeError)):
        safetensors_file.read(memoryview(data))


def test_large_constants_are_mapped_not_read(whole, tmp_path):
    big = np.zeros((16 << 20) // 8)
    made = replace(whole, constants=(*whole.constants, Constant("big", big)))
    write(made, tmp_path / "m.tcomp")
    constant = read(tmp_path / "m.tcomp").constants[-1].data
    start, end = constant.ctypes.data, constant.ctypes.data + constant.nbytes
    with open("/proc/self/maps") as maps:
        spans = [line.split(maxsplit=5) for line in maps if "m.tcomp" in line]
    assert any(int(s[0].split("-")[0], 16) <= start and end <= int(s[0].split("-")[1], 16) for s in spans)
    assert link(made)(V).tolist() == (V * 2).tolist()


@pytest.mark.parametrize("target", ["cpu:aarch64", "cpu:x86-64-v4", "cpu:x86-64"])
def test_a_program_for_another_machine_is_shown_and_saved(target, tmp_path):
    """Whether it can be called is asked when it is called."""
    f = tcomp.jit(lambda x, w: np.maximum(x @ w, 0), target=target)
    x, w = np.ones((8, 16), np.float32), np.ones((16, 32), np.float32)
    for exe in (tcomp.compile(f, tcomp.spec("f32[8, 16]"), tcomp.spec("f32[16, 32]"), target=target), f.lower(x, w).compile()):
        assert exe.report()["flops"] > 0 and [p.shape for p in exe.outputs] == [(8, 32)]
        assert {"cpu:aarch64": "fmla", "cpu:x86-64-v4": "%zmm", "cpu:x86-64": "mulps"}[target] in exe.text("asm")
        exe.save(tmp_path / "m.tcomp")
        assert read(tmp_path / "m.tcomp").objects[0].target == target
        if target == ("cpu:aarch64" if platform.machine() == "x86_64" else "cpu:x86-64"):
            with pytest.raises(Error, match="TC0702"):
                exe(x, w)
        elif target == "cpu:x86-64":
            np.testing.assert_array_equal(exe(x, w), x @ w)


def test_a_function_for_another_machine_fails_when_it_is_called():
    other = "cpu:aarch64" if platform.machine() == "x86_64" else "cpu:x86-64"
    with pytest.raises(Error, match="TC0702"):
        tcomp.jit(lambda x: x + 1, target=other)(np.ones(3))


def test_variants_come_back(whole, path):
    """Each with its own code and texts; constants of several are there once."""
    other = replace(whole, texts={"tile": "kernel @other\n"}, symbols=(), flops=9)
    both = replace(whole, others=(other, other), lead=1)
    write(both, path)
    back = read(path)
    assert back.manifest() == both.manifest() and [v.texts for v in back.variants] == [other.texts, whole.texts, other.texts]
    assert {id(c.data) for v in back.variants for c in v.constants} == {id(c.data) for c in back.constants}
    assert path.stat().st_size < 4 * sum(c.data.nbytes for c in whole.constants) + 3 * len(whole.objects[0].data) + 10_000


def nested(manifest):
    manifest["others"][0]["others"] = [dict(manifest["others"][0])]


def renamed(manifest):
    manifest["others"][0]["inputs"][0][0] = "z"


def many(manifest):
    manifest["others"] *= 40


@pytest.mark.parametrize("change", [nested, renamed, many])
def test_variants_that_are_none_of_the_program(whole, path, change):
    """Altered with a digest that fits: the checks do not lean on it."""
    write(replace(whole, others=(replace(whole, others=()),)), path)

    def altered(members):
        manifest = json.loads(members["manifest.json"])
        change(manifest["artifact"])
        manifest["digest"] = hashlib.sha256(json.dumps(manifest["artifact"], sort_keys=True).encode()).hexdigest()
        members["manifest.json"] = json.dumps(manifest).encode()

    rebuilt(path, altered)
    refused(path)
