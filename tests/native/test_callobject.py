"""The call object: results, guards, faults, references and memory, natively and by ctypes."""

import gc
import subprocess
import sys
import threading
import time

import ml_dtypes
import numpy as np
import pytest

from tcomp.ir.artifact import Port
from tcomp.runtime import callobject, cpython, memory
from tcomp.runtime.callobject import OUT_OF_MEMORY, CallSpec, bind, build, call, choose

# `add`: out0 = a + b in chunks of 64, and out1 = a - b where there is a second output; fills its arena and scratch.
# `keep_positive`: one output of the elements of a above 0, allocated by main. `fault`: status 1 << 32 | 5 if a[0] > 9.
PROGRAMS = """
declare i64 @tc_claim(ptr, i64, i64)
declare void @tc_done(ptr, i64)
declare void @tc_wait(ptr, i64, ptr)
declare ptr @tc_alloc(i64)
declare ptr @memset(ptr, i32, i64)

define i64 @add_plan(ptr %symbols, ptr %out) {
  %n = load i64, ptr %symbols
  %scratch = getelementptr i64, ptr %out, i64 1
  %first = getelementptr i64, ptr %out, i64 2
  store i64 100, ptr %out
  store i64 64, ptr %scratch
  store i64 %n, ptr %first
  %odd = icmp eq i64 %n, 13
  %status = select i1 %odd, i64 8589934592, i64 0
  ret i64 %status
}

define i64 @keep_positive_plan(ptr %symbols, ptr %out) {
  %scratch = getelementptr i64, ptr %out, i64 1
  %first = getelementptr i64, ptr %out, i64 2
  store i64 0, ptr %out
  store i64 0, ptr %scratch
  store i64 -1, ptr %first
  ret i64 0
}

define ptr @at(ptr %table, i64 %i) {
  %p = getelementptr ptr, ptr %table, i64 %i
  %v = load ptr, ptr %p
  ret ptr %v
}

define void @COMBINE(ptr %frame, i64 %t, i64 %outputs) {
entry:
  %arena = call ptr @at(ptr %frame, i64 2)
  %scratches = call ptr @at(ptr %frame, i64 3)
  %mine = mul i64 %t, 64
  %scratch = getelementptr i8, ptr %scratches, i64 %mine
  %z = call ptr @memset(ptr %scratch, i32 255, i64 64)
  %c = call ptr @at(ptr %frame, i64 5)
  %d = getelementptr i8, ptr %c, i64 64
  %in = call ptr @at(ptr %frame, i64 7)
  %out = call ptr @at(ptr %frame, i64 8)
  %dims = call ptr @at(ptr %frame, i64 9)
  %n = load i64, ptr %dims
  %a = call ptr @at(ptr %in, i64 0)
  %b = call ptr @at(ptr %in, i64 1)
  %o = call ptr @at(ptr %out, i64 0)
  %two = icmp eq i64 %outputs, 2
  %second = getelementptr ptr, ptr %out, i64 1
  %which = select i1 %two, ptr %second, ptr %out
  %o2 = load ptr, ptr %which
  %up = add i64 %n, 63
  %chunks = sdiv i64 %up, 64
  br label %next
next:
  %k = call i64 @tc_claim(ptr %c, i64 0, i64 %chunks)
  %more = icmp sge i64 %k, 0
  br i1 %more, label %chunk, label %wait
chunk:
  %y = call ptr @memset(ptr %arena, i32 255, i64 100)
  %from = mul i64 %k, 64
  %end = add i64 %from, 64
  %to = call i64 @llvm.smin.i64(i64 %end, i64 %n)
  br label %loop
loop:
  %i = phi i64 [%from, %chunk], [%i1, %loop]
  %pa = getelementptr float, ptr %a, i64 %i
  %pb = getelementptr float, ptr %b, i64 %i
  %po = getelementptr float, ptr %o, i64 %i
  %pq = getelementptr float, ptr %o2, i64 %i
  %va = load float, ptr %pa
  %vb = load float, ptr %pb
  %s = fadd float %va, %vb
  %m = fsub float %va, %vb
  store float %m, ptr %pq
  store float %s, ptr %po
  %i1 = add i64 %i, 1
  %on = icmp slt i64 %i1, %to
  br i1 %on, label %loop, label %done
done:
  call void @tc_done(ptr %d, i64 1)
  br label %next
wait:
  call void @tc_wait(ptr %d, i64 %chunks, ptr %frame)
  ret void
}
declare i64 @llvm.smin.i64(i64, i64)

define void @add(ptr %frame, i64 %t) {
  call void @COMBINE(ptr %frame, i64 %t, i64 1)
  ret void
}

define void @both(ptr %frame, i64 %t) {
  call void @COMBINE(ptr %frame, i64 %t, i64 2)
  ret void
}

define void @keep_positive(ptr %frame, i64 %t) {
entry:
  %c = call ptr @at(ptr %frame, i64 5)
  %k = call i64 @tc_claim(ptr %c, i64 0, i64 1)
  %mine = icmp eq i64 %k, 0
  br i1 %mine, label %work, label %end
work:
  %symbols = call ptr @at(ptr %frame, i64 6)
  %n = load i64, ptr %symbols
  %in = call ptr @at(ptr %frame, i64 7)
  %out = call ptr @at(ptr %frame, i64 8)
  %dims = call ptr @at(ptr %frame, i64 9)
  %a = load ptr, ptr %in
  %bytes = mul i64 %n, 4
  %o = call ptr @tc_alloc(i64 %bytes)
  store ptr %o, ptr %out
  br label %head
head:
  %i = phi i64 [0, %work], [%i1, %tail]
  %count = phi i64 [0, %work], [%count1, %tail]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %tail, label %finish
tail:
  %pa = getelementptr float, ptr %a, i64 %i
  %va = load float, ptr %pa
  %positive = fcmp ogt float %va, 0.0
  %po = getelementptr float, ptr %o, i64 %count
  store float %va, ptr %po
  %inc = zext i1 %positive to i64
  %count1 = add i64 %count, %inc
  %i1 = add i64 %i, 1
  br label %head
finish:
  store i64 %count, ptr %dims
  br label %end
end:
  ret void
}

define void @fault(ptr %frame, i64 %t) {
  %in = call ptr @at(ptr %frame, i64 7)
  %a = load ptr, ptr %in
  %v = load float, ptr %a
  %big = fcmp ogt float %v, 9.0
  br i1 %big, label %bad, label %good
bad:
  %x = cmpxchg ptr %frame, i64 0, i64 4294967301 monotonic monotonic
  ret void
good:
  call void @add(ptr %frame, i64 %t)
  ret void
}

define void @nothing(ptr %frame, i64 %t) {
  ret void
}
"""
ENTRIES = ("add", "both", "keep_positive", "fault", "nothing", "add_plan", "keep_positive_plan")


@pytest.fixture(scope="module")
def code(load):
    return load(PROGRAMS, ENTRIES)


def ports(*shapes, dtype="f32"):
    return tuple(Port(f"p{k}", dtype, shape) for k, shape in enumerate(shapes))


def static(code, entry="add", n=1000, results=1, **changes):
    sizes = (100, 64, *[n] * results)
    fields = dict(
        entry=code[entry], plan=0, constants=0, inputs=ports((n,), (n,)), outputs=ports(*[(n,)] * results), symbols=(),
        counters=2, sizes=sizes, threads=4, release_gil=True, keep=code,
    )  # fmt: skip
    return CallSpec(**(fields | changes))


def symbolic(code):
    return static(code, plan=code["add_plan"], inputs=ports(("n",), ("n",)), outputs=ports(("n",)), symbols=("n",), sizes=None)


def dependent(code):
    return static(
        code, plan=code["keep_positive_plan"], entry="keep_positive", inputs=ports(("n",)), outputs=ports(("?",)),
        symbols=("n",), sizes=None,
    )  # fmt: skip


@pytest.fixture(params=["native", "ctypes"])
def make(request, monkeypatch):
    """`build`, by the native call object and by its replacement."""
    if request.param == "ctypes":
        monkeypatch.setattr(callobject, "available", lambda: False)
    else:
        assert cpython.refusal() is None
    return build


def pair(n, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal(n, np.float32), rng.standard_normal(n, np.float32)


@pytest.mark.parametrize("release_gil", [False, True])
@pytest.mark.parametrize("threads", [1, 4])
def test_static(code, make, threads, release_gil):
    program = make(static(code, threads=threads, release_gil=release_gil))
    a, b = pair(1000)
    result = program(a, b)
    np.testing.assert_array_equal(result, a + b)
    assert result.flags.writeable and result.flags.c_contiguous and result.flags.aligned
    assert type(result) is np.ndarray and result.dtype == np.float32


@pytest.mark.parametrize("n", [0, 1, 64, 65, 5000])
def test_symbolic(code, make, n):
    program = make(symbolic(code))
    a, b = pair(n)
    np.testing.assert_array_equal(program(a, b), a + b)


def test_two_outputs_make_a_tuple(code, make):
    program = make(static(code, "both", results=2))
    a, b = pair(1000)
    results = program(a, b)
    assert type(results) is tuple
    np.testing.assert_array_equal(results[0], a + b)
    np.testing.assert_array_equal(results[1], a - b)


@pytest.mark.parametrize("n", [0, 1, 300])
def test_data_dependent_output(code, make, n):
    a, _ = pair(n)
    np.testing.assert_array_equal(make(dependent(code))(a), a[a > 0])


def unaligned(n):
    return np.zeros(4 * n + 1, np.uint8)[1:].view(np.float32)


class Sub(np.ndarray):
    pass


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        (np.zeros(1000, "f4"),),
        (np.zeros(1000, "f4"),) * 3,
        (np.zeros(1000, "f4"), np.zeros(1000, "f8")),
        (np.zeros(1000, "f4"), np.zeros(1000, "i4")),
        (np.zeros(1000, "f4"), np.zeros(1000, ">f4")),
        (np.zeros(1000, "f4"), np.zeros(999, "f4")),
        (np.zeros(1000, "f4"), np.zeros((1000, 1), "f4")),
        (np.zeros(1000, "f4"), np.zeros((), "f4")),
        (np.zeros(1000, "f4"), np.zeros(1000, "f4")[::-1]),
        (np.zeros(1000, "f4"), np.zeros(2000, "f4")[::2]),
        (np.zeros(1000, "f4"), unaligned(1000)),
        (np.zeros(1000, "f4"), np.zeros(1000, "f4").view(Sub)),
        (np.zeros(1000, "f4"), [0.0] * 1000),
        (np.zeros(1000, "f4"), None),
        (1.0, np.zeros(1000, "f4")),
    ],
)
def test_what_does_not_fit_is_not_implemented(code, make, arguments):
    assert make(static(code))(*arguments) is NotImplemented


def test_a_symbol_must_be_the_same_everywhere(code, make):
    program = make(symbolic(code))
    assert program(np.zeros(5, "f4"), np.zeros(6, "f4")) is NotImplemented
    assert program(np.zeros(5, "f4"), np.zeros(5, "f4")).shape == (5,)


def test_sizes_of_expressions_are_put_behind_the_symbols(code, make):
    spec = static(code, inputs=ports(("n",), ("2*n",), ("2*n",)), symbols=("n",), plan=code["add_plan"], sizes=None)
    assert spec.bound == ("n", "2*n") and bind(spec, [(5,), (10,), (10,)]) == [5, 10]
    assert bind(spec, [(5,), (10,), (11,)]) is None
    assert make(spec)(np.zeros(5, "f4"), np.zeros(10, "f4"), np.zeros(11, "f4")) is NotImplemented


def test_variants_are_tried_in_turn(code, make):
    """The first that takes the sizes runs; a plan that refuses is a variant that does not take them."""
    few, many = static(code, n=3), static(code, "both", n=1000, results=2)
    program = make(few, symbolic(code), many)
    a, b = np.ones(3, "f4"), np.ones(1000, "f4")
    assert np.array_equal(program(a, a), a + a)
    assert program(np.ones(5, "f4"), np.ones(5, "f4")).shape == (5,)  # the second, whose plan refuses 13
    assert program(np.ones(13, "f4"), np.ones(13, "f4")) is NotImplemented
    assert len(make(few, many)(b, b)) == 2 and make(few, many)(a, a).shape == (3,)
    assert [choose((few, symbolic(code), many), [(k,), (k,)]) for k in (3, 5, 13)] == [0, 1, 2]


def test_a_fault_ends_the_search(code, make):
    first, second = static(code, "fault", n=100), static(code, n=100)
    a = np.full(100, 10, "f4")
    assert make(first, second)(a, a) is NotImplemented


def test_faults_are_not_implemented_and_have_a_status(code, make):
    spec = static(code, "fault", n=100)
    program = make(spec)
    a, b = np.full(100, 10, "f4"), np.ones(100, "f4")
    assert program(a, b) is NotImplemented
    assert call(spec, [a, b]) == (1 << 32 | 5, [])
    np.testing.assert_array_equal(program(b, b), b + b)


def test_faults_leak_no_memory(code, make):
    program = make(static(code, "fault", n=100))
    a = np.full(100, 10, "f4")
    huge = make(static(code, n=10, results=2, inputs=(), sizes=(0, 0, 10, 1 << 62)))
    for _ in range(5):
        assert program(a, a) is huge() is NotImplemented
    held, kept = memory.held(), memory.retained()
    for _ in range(100):
        assert program(a, a) is huge() is NotImplemented
    assert (memory.held(), memory.retained()) == (held, kept)


def test_a_plan_may_refuse(code, make):
    a = np.zeros(13, "f4")
    assert make(symbolic(code))(a, a) is NotImplemented
    assert call(symbolic(code), [a, a]) == (2 << 32, [])


def test_no_memory(code, make):
    spec = static(code, n=10, sizes=(1 << 50, 0, 10))
    a = np.zeros(10, "f4")
    assert make(spec)(a, a) is NotImplemented
    assert call(spec, [a, a]) == (OUT_OF_MEMORY, [])
    huge = static(code, n=10, results=2, sizes=(0, 0, 10, 1 << 62))
    assert make(huge)(a, a) is NotImplemented
    assert call(huge, [a, a]) == (OUT_OF_MEMORY, [])


def test_an_output_that_main_left_out_is_never_shown(code):
    assert build(static(code, "nothing", inputs=(), outputs=ports(("?",)), sizes=(0, 0, -1)))() is NotImplemented


def test_call_returns_arrays(code):
    a, b = pair(1000)
    status, results = call(static(code, "both", results=2), [a, b])
    assert status == 0
    np.testing.assert_array_equal(results[0], a + b)
    np.testing.assert_array_equal(results[1], a - b)
    assert all(r.flags.writeable and r.dtype == np.float32 for r in results)
    with pytest.raises(ValueError):
        call(static(code), [a])


@pytest.mark.parametrize("dtype", ["bool", "i8", "u8", "i64", "u16", "f16", "bf16", "f64"])
def test_every_dtype_passes_the_guard(code, make, dtype):
    spec = static(code, "nothing", n=3, inputs=ports((3,), dtype=dtype), outputs=ports((3,), dtype=dtype))
    python = {"bool": np.bool_, "bf16": ml_dtypes.bfloat16}.get(dtype)
    array = np.zeros(3, python or f"{dtype[0]}{int(dtype[1:]) // 8}")
    result = make(spec)(array)
    assert result.dtype == array.dtype and result.shape == (3,)


def test_results_are_never_written_again(code, make):
    program = make(static(code))
    inputs = [pair(1000, seed) for seed in range(30)]
    results = [program(a, b) for a, b in inputs]
    results += [program(a, b)[10:20] for a, b in inputs]  # a view alone keeps its block
    gc.collect()
    for k, (a, b) in enumerate(inputs):
        np.testing.assert_array_equal(results[k], a + b)
        np.testing.assert_array_equal(results[30 + k], (a + b)[10:20])


def test_blocks_are_recycled(code, make):
    program = make(static(code))
    a, b = pair(1000)
    program(a, b)
    held = memory.held()
    for _ in range(50):
        program(a, b)
    assert memory.held() == held


def test_references_are_counted_right(code, make):
    spec = static(code, "both", results=2)
    program = make(spec)
    a, b = pair(1000)
    results = program(a, b)
    dtype = np.dtype(np.float32)
    watched = (a, b, dtype, NotImplemented, np.ndarray, type(results[0].base))
    gc.collect()
    before = [sys.getrefcount(x) for x in watched]
    for _ in range(1000):
        program(a, b)
        program(a)
        program(a, a[::-1])
    after = [sys.getrefcount(x) for x in watched]
    assert max(abs(x - y) for x, y in zip(before, after)) <= 2
    array = build(static(code))(a, b)
    counts = [sys.getrefcount(results[0]), sys.getrefcount(array), sys.getrefcount(array.base)]
    assert counts == [2, 2, 2]  # the holder's and the argument's


def resident() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def test_a_million_calls_leak_nothing(code):
    program = build(static(code, "nothing", n=100, threads=1, release_gil=False))
    a, b = pair(100)
    wrong = np.zeros(100, "f8")
    for _ in range(10_000):
        program(a, b)
    before = resident()
    for _ in range(1_000_000):
        program(a, b)
        program(a, wrong)
    assert resident() - before < 1 << 20


def test_the_callable_keeps_its_program_and_lets_it_go(code, make):
    class Owner:
        alive = True

        def __del__(self):
            Owner.alive = False

    program = make(static(code, keep=Owner()))
    gc.collect()
    assert Owner.alive
    a, b = pair(1000)
    result = program(a, b)
    del program
    gc.collect()
    assert not Owner.alive
    np.testing.assert_array_equal(result, a + b)


def test_calls_at_once_from_many_threads(code, make):
    program = make(static(code))
    failures = []

    def work(seed):
        a, b = pair(1000, seed)
        expected = a + b
        for _ in range(500):
            if not np.array_equal(program(a, b), expected):
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_the_gil_is_let_go(load):
    text = "declare i32 @usleep(i32)\n"
    text += "define void @nap(ptr %f, i64 %t) {\n  %r = call i32 @usleep(i32 200000)\n  ret void\n}\n"
    library = load(text, ("nap",))
    program = build(CallSpec(library["nap"], 0, 0, (), (), (), 0, (0, 0), 1, True, library))
    thread = threading.Thread(target=program)
    longest, last = 0.0, time.perf_counter()
    thread.start()
    while thread.is_alive():
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    thread.join()
    assert longest < 0.1
    assert program() == ()


def test_refusals_are_told(monkeypatch):
    monkeypatch.setattr(cpython, "_NUMPY_ABI", 1)
    assert "binary interface" in cpython.refusal.__wrapped__()
    monkeypatch.undo()
    monkeypatch.setattr(cpython, "_laid_out", lambda array: False)
    assert "layout" in cpython.refusal.__wrapped__()
    monkeypatch.setattr(cpython.sysconfig, "get_config_var", lambda name: 1)
    assert "free-threaded" in cpython.refusal.__wrapped__()


def test_results_outlive_the_interpreters_modules():
    """Arrays and functions that die last, at the interpreter's end, still find their code."""
    script = f"""
import sys; sys.path[:0] = {sys.path!r}
import numpy as np, gc
from functools import partial
from tcomp.codegen.llvm.compile import compile_text, host
from tcomp.ir.artifact import Port
from tcomp.runtime import loader, native
from tcomp.runtime.callobject import CallSpec, build
native.start(partial(compile_text, target=host()))
library = loader.load(compile_text("define void @f(ptr %f, i64 %t) {{\\n  ret void\\n}}\\n", host()), ("f",))
f = build(CallSpec(library["f"], 0, 0, (), (Port("y", "f32", (9,)),), (), 0, (0, 0, 9), 3, True, library))
sys.kept = [f(), f] ; sys.modules["kept"] = sys.kept
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
