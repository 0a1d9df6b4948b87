"""The thread pool: all work done once, whoever calls, from wherever, in parents and children."""

import ctypes
import multiprocessing
import os
import signal
import threading
import time

import numpy as np
import pytest

from tcomp.errors import Error
from tcomp.runtime import native, pool

# Frame: 0 status, 1 walkers, 2 counter, 3 counter, 4 chunks, 5 output, 6 rounds. Two launches a round; the second reads
# what the first wrote: out[n + i] += 1 + out[n - 1 - i].
MAIN = """
declare i64 @tc_claim(ptr, i64, i64)
declare void @tc_done(ptr, i64)
declare void @tc_wait(ptr, i64, ptr)
declare void @tc_run(ptr, ptr, i64)
declare i32 @usleep(i32)

define i64 @slot(ptr %frame, i64 %i) {
  %p = getelementptr i64, ptr %frame, i64 %i
  %v = load i64, ptr %p
  ret i64 %v
}

define void @main(ptr %frame, i64 %t) {
entry:
  %claimed = call i64 @slot(ptr %frame, i64 2)
  %c = inttoptr i64 %claimed to ptr
  %d = getelementptr i8, ptr %c, i64 64
  %e = getelementptr i8, ptr %c, i64 128
  %n = call i64 @slot(ptr %frame, i64 4)
  %target = call i64 @slot(ptr %frame, i64 5)
  %out = inttoptr i64 %target to ptr
  %second = getelementptr i64, ptr %out, i64 %n
  %rounds = call i64 @slot(ptr %frame, i64 6)
  br label %round
round:
  %r = phi i64 [0, %entry], [%r1, %next]
  %base = mul i64 %r, %n
  %r1 = add i64 %r, 1
  %end = mul i64 %r1, %n
  br label %a
a:
  %i = call i64 @tc_claim(ptr %c, i64 %base, i64 %n)
  %more = icmp sge i64 %i, 0
  br i1 %more, label %one, label %wait
one:
  %p = getelementptr i64, ptr %out, i64 %i
  %v = load i64, ptr %p
  %v1 = add i64 %v, 1
  store i64 %v1, ptr %p
  call void @tc_done(ptr %d, i64 1)
  br label %a
wait:
  call void @tc_wait(ptr %d, i64 %end, ptr %frame)
  br label %b
b:
  %j = call i64 @tc_claim(ptr %e, i64 %base, i64 %n)
  %again = icmp sge i64 %j, 0
  br i1 %again, label %two, label %sync
two:
  %top = sub i64 %n, 1
  %k = sub i64 %top, %j
  %q = getelementptr i64, ptr %out, i64 %k
  %u = load i64, ptr %q
  %u1 = add i64 %u, 1
  %s = getelementptr i64, ptr %second, i64 %j
  %w = load i64, ptr %s
  %w1 = add i64 %w, %u1
  store i64 %w1, ptr %s
  %f = getelementptr i8, ptr %c, i64 192
  call void @tc_done(ptr %f, i64 1)
  br label %b
sync:
  %g = getelementptr i8, ptr %c, i64 192
  call void @tc_wait(ptr %g, i64 %end, ptr %frame)
  br label %next
next:
  %on = icmp slt i64 %r1, %rounds
  br i1 %on, label %round, label %out1
out1:
  ret void
}

; slot 2: counter; slot 5: array of thread numbers' counts; each of slot 4 chunks sleeps a little.
define void @who(ptr %frame, i64 %t) {
entry:
  %claimed = call i64 @slot(ptr %frame, i64 2)
  %c = inttoptr i64 %claimed to ptr
  %n = call i64 @slot(ptr %frame, i64 4)
  %target = call i64 @slot(ptr %frame, i64 5)
  %out = inttoptr i64 %target to ptr
  br label %a
a:
  %i = call i64 @tc_claim(ptr %c, i64 0, i64 %n)
  %more = icmp sge i64 %i, 0
  br i1 %more, label %one, label %end
one:
  %p = getelementptr i64, ptr %out, i64 %t
  %v = load i64, ptr %p
  %v1 = add i64 %v, 1
  store i64 %v1, ptr %p
  %z = call i32 @usleep(i32 2000)
  br label %a
end:
  ret void
}

; Every walker runs the frame in slot 7 as a call of its own; slot 5 counts them.
define void @nested(ptr %frame, i64 %t) {
  %inner = call i64 @slot(ptr %frame, i64 7)
  %table = inttoptr i64 %inner to ptr
  %place = getelementptr ptr, ptr %table, i64 %t
  %in = load ptr, ptr %place
  call void @tc_run(ptr @main, ptr %in, i64 4)
  %target = call i64 @slot(ptr %frame, i64 5)
  %count = inttoptr i64 %target to ptr
  %was = atomicrmw add ptr %count, i64 1 seq_cst
  ret void
}
"""

# Rounds of one chunk: v = out[0] += 1. Until v is slot 6, a branch on v: where a bit of its hash is set, another launch
# counts in out[1]. Threads that are behind must notice, else they branch on a later v and count too often.
BRANCHING = """
declare i64 @tc_claim(ptr, i64, i64)
declare void @tc_done(ptr, i64)
declare void @tc_wait(ptr, i64, ptr)
declare i1 @tc_current(ptr, i64)

define void @branching(ptr %frame, i64 %t) {
entry:
  %p2 = getelementptr ptr, ptr %frame, i64 2
  %c = load ptr, ptr %p2
  %d = getelementptr i8, ptr %c, i64 64
  %e = getelementptr i8, ptr %c, i64 128
  %p5 = getelementptr ptr, ptr %frame, i64 5
  %out = load ptr, ptr %p5
  %out1 = getelementptr i64, ptr %out, i64 1
  %p6 = getelementptr i64, ptr %frame, i64 6
  %n = load i64, ptr %p6
  br label %round
round:
  %r = phi i64 [0, %entry], [%r1, %even], [%r1, %again]
  %x = phi i64 [0, %entry], [%x1, %even], [%x2, %again]
  %r1 = add i64 %r, 1
  %i = call i64 @tc_claim(ptr %c, i64 %r, i64 1)
  %mine = icmp eq i64 %i, 0
  br i1 %mine, label %work, label %wait
work:
  %old = load atomic i64, ptr %out monotonic, align 8
  %new = add i64 %old, 1
  store atomic i64 %new, ptr %out monotonic, align 8
  call void @tc_done(ptr %d, i64 1)
  br label %wait
wait:
  call void @tc_wait(ptr %d, i64 %r1, ptr %frame)
  %v = load atomic i64, ptr %out monotonic, align 8
  %current = call i1 @tc_current(ptr %c, i64 %r1)
  br i1 %current, label %go, label %end
go:
  %more = icmp slt i64 %v, %n
  br i1 %more, label %branch, label %end
branch:
  %hash = mul i64 %v, 2654435769
  %bit = lshr i64 %hash, 13
  %one = and i64 %bit, 1
  %odd = icmp eq i64 %one, 1
  br i1 %odd, label %count, label %even
even:
  %x1 = add i64 %x, 0
  br label %round
count:
  %x2 = add i64 %x, 1
  %j = call i64 @tc_claim(ptr %e, i64 %x, i64 1)
  %got = icmp eq i64 %j, 0
  br i1 %got, label %add, label %again
add:
  %was = atomicrmw add ptr %out1, i64 1 monotonic
  br label %again
again:
  br label %round
end:
  ret void
}
"""


@pytest.fixture(scope="module")
def code(load):
    return load(MAIN, ("main", "who", "nested"))


class Call:
    """A frame with its counters and output."""

    def __init__(self, chunks: int, rounds: int = 1):
        self.chunks, self.rounds = chunks, rounds
        self.counters = np.zeros(64, np.int64)
        self.out = np.zeros(2 * max(chunks, 8), np.int64)
        self.frame = np.zeros(10, np.int64)
        self.frame[[2, 4, 5, 6]] = self.counters.ctypes.data, chunks, self.out.ctypes.data, rounds

    def run(self, entry: int, threads: int = 4) -> None:
        pool.run(entry, self.frame.ctypes.data, threads)

    def check(self) -> None:
        n, r = self.chunks, self.rounds
        assert (self.out[:n] == r).all()
        assert (self.out[n : 2 * n] == r + r * (r + 1) // 2).all()


@pytest.mark.parametrize("threads", [1, 2, 4, 100])
@pytest.mark.parametrize("chunks", [1, 3, 64])
def test_every_chunk_once_and_launches_in_order(code, threads, chunks):
    for _ in range(50):
        call = Call(chunks, rounds=3)
        call.run(code["main"], threads)
        call.check()
        assert 1 <= call.frame[1] <= min(threads, 4)


def test_sleeping_workers_wake_up_and_take_part(code):
    for _ in range(5):
        time.sleep(0.01)  # longer than a worker spins
        call = Call(8)
        call.run(code["who"])
        assert call.out[:4].sum() == 8
        assert call.frame[1] == 4
        if (call.out[:4] > 0).sum() > 1:
            return
    pytest.fail("no worker ever took a chunk")


def test_one_thread_wakes_nobody(code):
    call = Call(4)
    call.run(code["who"], threads=1)
    assert call.out[0] == 4
    assert call.frame[1] == 1


def test_no_more_threads_walk_than_the_call_wants(code):
    for _ in range(30):
        Call(1).run(code["main"])  # all four are awake and spinning
        call = Call(6)
        call.run(code["who"], threads=2)
        assert call.frame[1] == 2
        assert call.out[2:].sum() == 0


def test_threads_that_are_behind_notice(load):
    library = load(BRANCHING, ("branching",))
    n = 20_000
    odd = sum(v * 2654435769 >> 13 & 1 for v in range(1, n))
    for _ in range(20):
        call = Call(1, rounds=n)
        call.run(library["branching"])
        assert call.out[:2].tolist() == [n, odd]


def test_many_python_threads_at_once(code):
    failures = []

    def work():
        try:
            for k in range(300):
                call = Call(1 + k % 9, rounds=2)
                call.run(code["main"])
                call.check()
        except AssertionError as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_nested_calls_run_alone(code):
    for _ in range(100):
        inner = [Call(5) for _ in range(4)]
        outer = Call(1)
        table = np.array([call.frame.ctypes.data for call in inner])
        outer.frame[7] = table.ctypes.data
        outer.run(code["nested"])
        entered = [call for call in inner if call.frame[1]]
        assert len(entered) == outer.out[0] >= 1
        for call in entered:
            assert call.frame[1] == 1
            call.check()


def test_a_late_worker_never_enters_a_finished_call(code):
    # Frames are overwritten the moment a call returns: a worker that came late would claim or count in them.
    for k in range(2000):
        call = Call(2)
        call.run(code["main"])
        call.frame[:] = -1
        call.counters[:] = 1 << 40
        if k % 50 == 0:
            time.sleep(0.0003)
        assert (call.counters == 1 << 40).all()


def test_a_fault_releases_those_who_wait(code):
    call = Call(4)
    call.frame[0] = 7  # the status word: no chunk of the second launch may be waited for
    call.counters[0] = 4  # all claimed, none done
    call.run(code["main"])
    assert call.out[:4].sum() == 0


def _in_child(code, results) -> None:
    call = Call(16, rounds=2)
    call.run(code["main"])
    call.check()
    results.put((int(call.frame[1]), len(os.listdir("/proc/self/task"))))


def test_after_a_fork_the_child_has_a_pool_of_its_own(code):
    Call(4).run(code["main"])
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    child = context.Process(target=_in_child, args=(code, results))
    child.start()
    child.join(10)
    assert child.exitcode == 0
    assert results.get() == (4, 4)
    Call(4).run(code["main"])


def test_a_fork_while_another_thread_is_inside(code):
    stop = threading.Event()

    def busy():
        while not stop.is_set():
            Call(2).run(code["who"])

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        for _ in range(5):
            pid = os.fork()
            if pid == 0:
                call = Call(8)
                call.run(code["main"])
                os._exit(0 if (call.out[:8] == 1).all() else 1)
            assert os.waitpid(pid, 0)[1] == 0
    finally:
        stop.set()
        thread.join()


def test_signals_reach_python_not_the_workers(code):
    Call(4).run(code["main"])
    masks = []
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/status") as status:
            masks += [int(line.split()[1], 16) for line in status if line.startswith("SigBlk")]
    assert sum(mask >> (signal.SIGINT - 1) & 1 for mask in masks) >= 3


def test_the_callers_floating_point_state_is_left_alone(code, load):
    if os.uname().machine != "x86_64":
        pytest.skip("MXCSR is x86's")
    text = """
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
define i32 @get() {
  %p = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %p)
  %v = load i32, ptr %p
  ret i32 %v
}
define void @set(i32 %v) {
  %p = alloca i32
  store i32 %v, ptr %p
  call void @llvm.x86.sse.ldmxcsr(ptr %p)
  ret void
}
"""
    library = load(text, ("get", "set"))
    get, put = ctypes.CFUNCTYPE(ctypes.c_uint32)(library["get"]), ctypes.CFUNCTYPE(None, ctypes.c_uint32)(library["set"])
    before = get()
    put(before | 0x8040)
    try:
        Call(8).run(code["main"])
        assert get() & 0x8040 == 0x8040
    finally:
        put(before)


def test_the_number_of_threads_is_a_knob(monkeypatch):
    monkeypatch.setenv("TCOMP_NUM_THREADS", "3")
    assert native.threads() == 3
    monkeypatch.delenv("TCOMP_NUM_THREADS")
    assert native.threads() == len(os.sched_getaffinity(0))
    monkeypatch.setenv("TCOMP_NUM_THREADS", "many")
    with pytest.raises(Error, match="TC0002"):
        native.threads()
