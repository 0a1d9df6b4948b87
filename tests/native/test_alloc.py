"""The allocator: alignment, recycling, the cap, many threads."""

import ctypes
import multiprocessing
import threading

import numpy as np
import pytest

from tcomp.runtime import memory, pool

SIZES = [0, 1, 63, 64, 65, 256, 257, 1000, 65535, 65536, 65537, (2 << 20) - 1, 2 << 20, (2 << 20) + 1, 9_000_000]


@pytest.fixture(autouse=True)
def clean():
    memory.trim()
    yield
    memory.set_cap(1 << 30)
    memory.trim()
    assert memory.retained() == 0


@pytest.mark.parametrize("size", SIZES)
def test_blocks_are_aligned_and_all_theirs(size):
    blocks = [memory.alloc(size) for _ in range(3)]
    alignment = 4096 if size >= 65536 else 64
    assert all(block and block % alignment == 0 for block in blocks)
    for k, block in enumerate(blocks):
        ctypes.memset(block, k + 1, size)
    for k, block in enumerate(blocks):
        assert ctypes.string_at(block, size) == bytes([k + 1]) * size
        memory.free(block)


@pytest.mark.parametrize("size", SIZES)
def test_a_freed_block_is_given_out_again(size):
    block = memory.alloc(size)
    held = memory.held()
    memory.free(block)
    assert memory.retained() >= size
    assert memory.alloc(size) == block
    assert memory.held() == held
    assert memory.retained() == 0
    memory.free(block)


def test_classes_waste_at_most_a_quarter():
    for size in np.unique(np.logspace(2, 7, 400).astype(int)):
        before = memory.held()
        block = memory.alloc(int(size))
        given = memory.held() - before
        memory.free(block)
        memory.trim()
        assert size <= given <= max(size * 1.25, size + 64)


def test_trim_gives_everything_back():
    before = memory.held()
    for block in [memory.alloc(size) for size in SIZES]:
        memory.free(block)
    assert memory.held() > before
    memory.trim()
    assert memory.held() == before


def test_above_the_cap_memory_goes_back_to_the_system():
    before = memory.held()
    memory.set_cap(3 << 20)
    for block in [memory.alloc(1 << 20) for _ in range(10)]:
        memory.free(block)
    assert memory.retained() == 3 << 20
    assert memory.held() == before + (3 << 20)


def test_a_block_above_the_cap_is_never_kept():
    memory.set_cap(1 << 20)
    before = memory.held()
    memory.free(memory.alloc(4 << 20))
    assert memory.retained() == 0
    assert memory.held() == before


def test_a_new_working_set_replaces_an_old_one():
    memory.set_cap(4 << 20)
    for block in [memory.alloc(1 << 20) for _ in range(4)]:
        memory.free(block)
    block = memory.alloc(4 << 20)
    memory.free(block)
    assert memory.retained() == 4 << 20
    assert memory.alloc(4 << 20) == block
    memory.free(block)


@pytest.mark.parametrize("size", [1 << 46, (1 << 46) + 1, 1 << 62, -1])
def test_what_nobody_has_is_null(size):
    assert memory.alloc(size) == 0


def test_freeing_null_does_nothing():
    memory.free(0)


def test_many_threads_never_share_a_block():
    failures = []

    def work(tag: int):
        rng = np.random.default_rng(tag)
        held: list[tuple[int, int]] = []
        for _ in range(1500):
            size = int(rng.choice([8, 64, 300, 5000, 70000]))
            block = memory.alloc(size)
            ctypes.memset(block, tag, min(size, 64))
            held.append((block, min(size, 64)))
            if len(held) > 8:
                old, length = held.pop(int(rng.integers(len(held))))
                if ctypes.string_at(old, length) != bytes([tag]) * length:
                    failures.append(tag)
                memory.free(old)
        for block, _ in held:
            memory.free(block)

    threads = [threading.Thread(target=work, args=(k + 1,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


STRESS = """
declare ptr @tc_alloc(i64)
declare void @tc_free(ptr)

; Slot 2 counts blocks that somebody else wrote to while they were held.
define void @stress(ptr %frame, i64 %t) {
entry:
  %bad = getelementptr i64, ptr %frame, i64 2
  br label %loop
loop:
  %k = phi i64 [0, %entry], [%k1, %next]
  %a = call ptr @tc_alloc(i64 64)
  %b = call ptr @tc_alloc(i64 64)
  store volatile i64 %t, ptr %a
  store volatile i64 %t, ptr %b
  %x = load volatile i64, ptr %a
  %y = load volatile i64, ptr %b
  %p = icmp ne i64 %x, %t
  %q = icmp ne i64 %y, %t
  %same = icmp eq ptr %a, %b
  %r = or i1 %p, %q
  %s = or i1 %r, %same
  br i1 %s, label %count, label %next
count:
  %was = atomicrmw add ptr %bad, i64 1 seq_cst
  br label %next
next:
  call void @tc_free(ptr %a)
  call void @tc_free(ptr %b)
  %k1 = add i64 %k, 1
  %more = icmp slt i64 %k1, 300000
  br i1 %more, label %loop, label %end
end:
  ret void
}
"""


def test_native_threads_never_share_a_block(load):
    library = load(STRESS, ("stress",))
    before = memory.held() - memory.retained()
    for _ in range(3):
        frame = np.zeros(10, np.int64)
        pool.run(library["stress"], frame.ctypes.data, 4)
        assert frame[2] == 0
    assert memory.held() - memory.retained() == before


def _in_child(block: int, results) -> None:
    fresh = memory.alloc(1000)
    results.put(bool(fresh) and fresh != block)


def test_the_child_of_a_fork_starts_with_empty_lists():
    block = memory.alloc(1000)
    memory.free(block)
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    child = context.Process(target=_in_child, args=(block, results))
    child.start()
    child.join(10)
    assert results.get() is True
