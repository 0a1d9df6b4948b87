"""The disk cache: entries come back or are absent, whoever writes, dies, corrupts, competes or runs out of room."""

import hashlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

from tcomp.ir.artifact import Artifact, CodeObject, Constant, Port
from tcomp.runtime import cache as cache_module
from tcomp.runtime.cache import Cache, artifact_for, code_for, compiler_fingerprint, default_folder, key, user_cache


def artifact(tag: int, size: int = 1000) -> Artifact:
    port = Port("x", "f32", (size,))
    constant = Constant("w", np.full(size, tag, np.float32))
    return Artifact(f"program{tag}", "tcomp_p", (port,), (port,), (), 2, (CodeObject("cpu:host", (), b"\x7fELF" + bytes(96)),),
                    (constant,), {"tile": f"kernel {tag}\n"}, {})  # fmt: skip


@pytest.fixture
def cache(tmp_path) -> Cache:
    return Cache(tmp_path / "cache")


def files(cache: Cache, kind: str) -> list[Path]:
    return sorted(cache._folders[kind].iterdir())


def test_what_was_put_comes_back(cache, tmp_path):
    assert cache.artifact(key("a")) is None and cache.code(key("a")) is None
    cache.put_artifact(key("a"), artifact(1))
    cache.put_code(key("a"), b"code" * 100)
    again = Cache(tmp_path / "cache")
    assert again.artifact(key("a")).manifest() == artifact(1).manifest()
    assert again.code(key("a")) == b"code" * 100
    assert again.artifact(key("b")) is None


def test_keys_depend_on_every_part_and_where_it_ends():
    keys = [key("a", "bc"), key("ab", "c"), key("abc"), key(b"abc", ""), key("", "abc"), key()]
    assert len(set(keys)) == len(keys)
    assert key("a", "bc") == key(b"a", b"bc")


def test_keys_depend_on_the_compiler(monkeypatch, tmp_path):
    package = tmp_path / "tcomp"
    (package / "runtime").mkdir(parents=True)
    (package / "a.py").write_text("1")
    monkeypatch.setattr(cache_module, "__file__", str(package / "runtime" / "cache.py"))
    prints = []
    for change in (lambda: None, lambda: (package / "a.py").write_text("22"), lambda: (package / "b.ll").touch()):
        change()
        compiler_fingerprint.cache_clear()
        prints.append(compiler_fingerprint())
    compiler_fingerprint.cache_clear()
    assert len(set(prints)) == 3


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "junk"])
@pytest.mark.parametrize("kind", ["artifacts", "code"])
def test_a_broken_entry_is_absent_and_replaced(cache, kind, damage):
    put, get = (cache.put_artifact, cache.artifact) if kind == "artifacts" else (cache.put_code, cache.code)
    value = artifact(1) if kind == "artifacts" else b"code" * 500
    put(key("a"), value)
    (path,) = files(cache, kind)
    data = path.read_bytes()
    middle = len(data) // 2
    flipped = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
    path.write_bytes({"flip": flipped, "cut": data[:-7], "empty": b"", "junk": b"x" * 99}[damage])
    assert get(key("a")) is None
    assert not path.exists()
    put(key("a"), value)
    assert get(key("a")) is not None


def test_an_entry_of_another_key_is_absent(cache):
    for tag, name in enumerate("ab"):
        cache.put_artifact(key(name), artifact(tag))
        cache.put_code(key(name), name.encode() * 100)
    for kind in ("artifacts", "code"):
        one, other = files(cache, kind)
        one.write_bytes(other.read_bytes())
    assert [cache.artifact(key(name)) is None for name in "ab"].count(True) == 1
    assert [cache.code(key(name)) is None for name in "ab"].count(True) == 1


def nothing_to_read(path: Path, instead: str) -> None:
    path.unlink()
    match instead:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "dangling link":
            path.symlink_to(path.with_name("nowhere"))


@pytest.mark.parametrize("instead", ["folder", "pipe", "dangling link"])
def test_an_entry_that_is_no_file_is_absent(cache, instead):
    cache.put_artifact(key("a"), artifact(1))
    cache.put_code(key("a"), b"code")
    for kind in ("artifacts", "code"):
        nothing_to_read(*files(cache, kind), instead)
    assert cache.artifact(key("a")) is None and cache.code(key("a")) is None


def test_an_entry_that_cannot_be_touched_read_or_removed_is_absent(cache, monkeypatch):
    def refused(*_, **__):
        raise PermissionError("not yours")

    cache.put_artifact(key("a"), artifact(1))
    cache.put_code(key("a"), b"code")
    for path in (*files(cache, "artifacts"), *files(cache, "code")):
        path.write_bytes(b"broken")
    for owner, name in ((Path, "read_bytes"), (Path, "unlink"), (os, "utime")):
        monkeypatch.setattr(owner, name, refused)
        assert cache.artifact(key("a")) is None and cache.code(key("a")) is None


def test_constants_outlive_their_entry(cache):
    cache.put_artifact(key("a"), artifact(7, 100_000))
    found = cache.artifact(key("a"))
    files(cache, "artifacts")[0].unlink()
    assert (found.constants[0].data == 7).all()


def test_what_was_not_used_for_longest_goes_first(tmp_path):
    cache = Cache(tmp_path, limit=10_500)
    for k in range(10):
        cache.put_code(key(str(k)), bytes(1000 - 32))
        os.utime(cache._path("code", key(str(k))), (k, k))
    assert cache.code(key("0")) is not None  # used now
    cache.put_code(key("new"), bytes(1000))
    kept = [k for k in [*map(str, range(10)), "new"] if cache.code(key(k)) is not None]
    assert kept == ["0", "3", "4", "5", "6", "7", "8", "9", "new"]


def test_the_newest_entry_stays_however_large(tmp_path):
    cache = Cache(tmp_path, limit=1000)
    cache.put_code(key("a"), bytes(500))
    cache.put_code(key("b"), bytes(5000))
    assert cache.code(key("a")) is None and len(cache.code(key("b"))) == 5000


def test_every_process_looks_at_the_size(tmp_path):
    for k in range(30):
        Cache(tmp_path, limit=10_000).put_code(key(str(k)), bytes(968))
    assert len(list((tmp_path / "code").iterdir())) <= 10


def test_abandoned_files_go_and_others_stay(cache):
    old, new = (cache._folders["code"] / f".{name}.tmp" for name in ("old", "new"))
    for path, age in ((old, 7200), (new, 10)):
        path.write_bytes(b"x")
        os.utime(path, (time.time() - age,) * 2)
    cache.put_code(key("a"), b"x")
    assert not old.exists() and new.exists()


def test_the_folder_is_private(tmp_path):
    Cache(tmp_path / "a" / "b")
    for path in (tmp_path / "a" / "b", tmp_path / "a" / "b" / "code"):
        assert path.stat().st_mode & 0o777 == 0o700
    (tmp_path / "c").mkdir(mode=0o755)
    Cache(tmp_path / "c")
    assert (tmp_path / "c").stat().st_mode & 0o777 == 0o700


def test_a_folder_that_others_may_write_in_is_refused(tmp_path):
    tmp_path.chmod(0o777)
    with pytest.raises(PermissionError, match="others may write"):
        Cache(tmp_path)


def test_a_folder_of_another_user_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(PermissionError, match="belongs to another user"):
        Cache(tmp_path)


def test_the_environment_chooses(tmp_path, monkeypatch):
    def now():
        user_cache.cache_clear()
        return user_cache()

    monkeypatch.setenv("TCOMP_CACHE_DIR", str(tmp_path / "x"))
    assert now() is not None and (tmp_path / "x" / "code").is_dir()
    monkeypatch.setenv("TCOMP_CACHE", "0")
    assert now() is None
    monkeypatch.setenv("TCOMP_CACHE", "1")
    (tmp_path / "x").chmod(0o777)
    with pytest.warns(RuntimeWarning, match="others may write"):
        assert now() is None
    monkeypatch.delenv("TCOMP_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "tcomp"
    user_cache.cache_clear()


def test_a_user_without_a_home_has_no_cache(monkeypatch):
    def homeless():
        raise RuntimeError("no home directory")

    monkeypatch.delenv("TCOMP_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    user_cache.cache_clear()
    with pytest.warns(RuntimeWarning, match="no home directory"):
        assert user_cache() is None
    user_cache.cache_clear()


def test_what_is_missing_is_made_once(tmp_path, monkeypatch):
    monkeypatch.setenv("TCOMP_CACHE_DIR", str(tmp_path))
    made = []
    for on, calls in (("1", 1), ("1", 1), ("0", 2), ("0", 3)):
        monkeypatch.setenv("TCOMP_CACHE", on)
        user_cache.cache_clear()
        assert artifact_for(key("a"), lambda: made.append("a") or artifact(5)).name == "program5"
        assert code_for(key("c"), lambda: made.append("c") or b"code") == b"code"
        assert made.count("a") == made.count("c") == calls
    user_cache.cache_clear()


def test_a_full_disk_costs_the_entry_not_the_program(cache, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(RuntimeWarning, match="No space left"):
        cache.put_code(key("a"), b"x")
    monkeypatch.undo()
    assert cache.code(key("a")) is None and not files(cache, "code")


def test_a_cache_that_was_removed_meanwhile(cache, tmp_path):
    subprocess.run(["rm", "-r", tmp_path / "cache"], check=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.put_code(key("a"), b"x")
    assert cache.code(key("a")) is None


def _compete(folder: Path, seed: int, results) -> None:
    """Put, get and outgrow the limit; every entry that is found must be right."""
    rng = np.random.default_rng(seed)
    cache, found = Cache(folder, limit=60_000), 0
    for _ in range(120):
        k = int(rng.integers(12))
        name, code = key(str(k)), hashlib.sha256(str(k).encode()).digest() * 100
        if rng.random() < 0.5:
            cache.put_artifact(name, artifact(k))
            cache.put_code(name, code)
        back, data = cache.artifact(name), cache.code(name)
        assert back is None or (back.name == f"program{k}" and (back.constants[0].data == k).all())
        assert data is None or data == code
        found += back is not None
    results.put(found)


def test_processes_compete(tmp_path):
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    children = [context.Process(target=_compete, args=(tmp_path, seed, results)) for seed in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
        assert child.exitcode == 0
    assert sum(results.get() for _ in children) > 100


def _write_forever(folder: Path) -> None:
    cache = Cache(folder, limit=1 << 30)
    while True:
        cache.put_artifact(key("a"), artifact(3, 300_000))


def test_a_killed_writer_leaves_whole_entries(tmp_path):
    context = multiprocessing.get_context("fork")
    cache = Cache(tmp_path)
    cache.put_artifact(key("a"), artifact(3, 300_000))
    for k in range(8):
        child = context.Process(target=_write_forever, args=(tmp_path,))
        child.start()
        time.sleep(0.02 + 0.007 * k)
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        assert (cache.artifact(key("a")).constants[0].data == 3).all()


def test_a_hit_imports_nothing_heavy(tmp_path):
    Cache(tmp_path).put_artifact(key("a"), artifact(1))
    program = (
        "import sys; from pathlib import Path; from tcomp.runtime.cache import Cache, key\n"
        f"assert Cache(Path({str(tmp_path)!r})).artifact(key('a')).name == 'program1'\n"
        "print([m for m in ('onnx', 'networkx', 'opt_einsum', 'rich', 'click', 'scipy') if m in sys.modules])"
    )
    # -P: the tcomp that the tests import, whose fingerprint is in the key, not one that lies where they run
    out = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"
