"""Executables: every kind of input a caller may bring, what is refused and how it is said, faults, threads, forks."""

import multiprocessing
import sys
import threading
import types
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from programs import N, artifact

from tcomp.errors import Error
from tcomp.ir import dtype as dt
from tcomp.ir import index as ix
from tcomp.ir.artifact import CodeObject, Constant, Port
from tcomp.ir.stmts import Launch, Main, Reserve
from tcomp.ir.types import Buffer
from tcomp.runtime import arrays, guards
from tcomp.runtime.executable import Executable, code_for_this_machine, link


@pytest.fixture(scope="module")
def exe() -> Executable:
    """out = x + y, more = x + 1, for vectors."""
    x, y, out, more = (Buffer(name, dt.i64, (N,)) for name in ("x", "y", "out", "more"))
    body = (Launch("add", ("x", "y", "out"), (N,), 0), Launch("inc", ("x", "more"), (N,), 1))
    return link(artifact(Main((x, y), (out, more), (), (N,), body)), assembly=lambda text: f"asm of {len(text)}")


@pytest.fixture(scope="module")
def static() -> Executable:
    """out = w - k of the default w, or of what is given, for six elements in two rows; a short call."""
    x, w, out, t = (Buffer(name, dt.i64, (2, 3)) for name in ("x", "w", "out", "t"))
    body = (Reserve(t), Launch("add", ("x", "w", "t"), (6,), 0), Launch("one", ("t", "out"), (6,), 1))
    plain = artifact(Main((x, w), (out,), (), (), body), flops=12)
    value = Constant("w.default", np.full((2, 3), 10))
    return link(replace(plain, constants=(value,), defaults=(("w", value.name),)))


def code_of(call) -> Error:
    with pytest.raises(Error) as caught:
        call()
    return caught.value


V = np.arange(12, dtype=np.int64) * 100


def test_results_by_position_and_by_name(exe):
    out, more = exe(V, V * 2)
    np.testing.assert_array_equal(out, V * 3)
    np.testing.assert_array_equal(more, V + 1)
    results = exe.run({"y": V * 2, "x": V})
    assert list(results) == ["out", "more"]
    np.testing.assert_array_equal(results["out"], V * 3)


def unaligned(a: np.ndarray) -> np.ndarray:
    raw = np.zeros(a.nbytes + 1, np.uint8)
    raw[1:] = np.frombuffer(a.tobytes(), np.uint8)
    return raw[1:].view(a.dtype)


def frozen(a: np.ndarray) -> np.ndarray:
    a = a.copy()
    a.flags.writeable = False
    return a


class Subclass(np.ndarray):
    pass


class Wrapped:
    def __init__(self, a):
        self.a = a

    def __array__(self, dtype=None, copy=None):
        return self.a


class Shared:
    def __init__(self, a):
        self.a = a

    def __dlpack__(self, **options):
        return self.a.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.a.__dlpack_device__()


FORMS = {
    "strided": lambda a: np.repeat(a, 2)[::2],
    "reversed": lambda a: a[::-1].copy()[::-1],
    "column": lambda a: np.stack([a, a], 1)[:, 0],
    "unaligned": unaligned,
    "frozen": frozen,
    "big endian": lambda a: a.astype(">i8"),
    "subclass": lambda a: a.view(Subclass),
    "list": lambda a: a.tolist(),
    "tuple": lambda a: tuple(a),
    "small list": lambda a: [int(v) for v in a],
    "__array__": Wrapped,
    "__dlpack__": Shared,
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_input(exe, form):
    given = FORMS[form](V)
    before = np.array(given.a if hasattr(given, "a") else given)
    out, _ = exe(given, V)
    np.testing.assert_array_equal(out, V * 2)
    np.testing.assert_array_equal(np.array(given.a if hasattr(given, "a") else given), before)


def test_broadcast_input(exe):
    np.testing.assert_array_equal(exe(np.broadcast_to(np.int64(7), 5), np.zeros(5, np.int64))[0], np.full(5, 7))


def test_what_fits_is_not_copied():
    for value in (V, frozen(V), V.view(Subclass), Wrapped(V), Shared(V)):
        taken = arrays.take(Port("x", "i64", (12,)), value)
        assert np.shares_memory(taken, value if isinstance(value, np.ndarray) else value.a)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("f32", 0.5), ("f32", 3), ("f32", [1, 2.5]), ("i8", 100), ("u8", 255), ("bf16", 1.0), ("bool", True),
     ("f16", [float("inf")]),     ("f64", 1 << 53), ("f32", float("nan")), ("u64", (1 << 64) - 1), ("f32", []),
     ("i64", []), ("f32", np.float32(0.1))],
)  # fmt: skip
def test_numbers_that_fit(dtype, value):
    port = Port("x", dtype, ())
    taken = arrays.take(port, value)
    np.testing.assert_array_equal(taken.astype(np.float64), np.asarray(value, np.float64))
    assert taken.shape == np.shape(value) and arrays.dtype_name(taken.dtype) == dtype


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("f32", 0.1), ("i32", 1.0), ("i8", 128), ("u8", -1), ("i64", 1 << 63), ("f64", (1 << 53) + 1), ("bool", 1), ("i32", True),
     ("f16", 1e6), ("i64", "text"), ("f64", 1j), ("i64", [[1], [2, 3]]), ("f64", None), ("f32", {"a": 1}), ("f32", np.float64(1)),
     ("i32", np.zeros(3, np.int64)), ("f32", np.zeros(3, np.int32)), ("i64", 1 << 70), ("f64", (1 << 63) - 1),
     ("f64", np.ma.masked_equal([1.0, 2.0], 2.0))],
)  # fmt: skip
def test_numbers_and_arrays_that_do_not_fit(dtype, value):
    error = code_of(lambda: arrays.take(Port("speed", dtype, ()), value))
    assert error.code == "TC0602" and "`speed`" in error.found and error.expected == dtype


def test_wrong_dtype_says_which_input(exe):
    error = code_of(lambda: exe(V, V.astype(np.float32)))
    assert (error.code, error.found, error.expected) == ("TC0602", "input `y` is dtype f32", "i64")


@pytest.mark.parametrize(
    ("x", "y", "found", "expected"),
    [
        (V, V[:5], "input `y` has shape (5,)", "(n,): axis 0 is n = 12, as axis 0 of `x` says"),
        (V.reshape(3, 4), V, "input `x` has shape (3, 4)", "(n,): rank 1"),
        (np.int64(3), V, "input `x` has shape ()", "(n,): rank 1"),
    ],
)
def test_wrong_shape_says_who_disagrees(exe, x, y, found, expected):
    error = code_of(lambda: exe(x, y))
    assert (error.code, error.found, error.expected) == ("TC0601", found, expected)


def test_static_shape(static):
    error = code_of(lambda: static(np.zeros((2, 4), np.int64)))
    assert (error.code, error.expected) == ("TC0601", "(2, 3): axis 1 is 3")


def test_dimensions_that_are_expressions():
    ports = (Port("x", "f32", ("batch-size", "n")), Port("y", "f32", ("2*batch-size + 1", "(n // 2)", "min(n, batch-size)")))
    symbols = ("batch-size", "n")
    assert guards.check_shapes(ports, [(3, 9), (7, 4, 3)], symbols) == {"batch-size": 3, "n": 9}
    error = code_of(lambda: guards.check_shapes(ports, [(3, 9), (8, 4, 3)], symbols))
    assert error.expected.endswith("axis 0 is 2*batch-size + 1 = 7, where batch-size = 3 by axis 0 of `x`")


def test_expressions_read_back():
    a, b = ix.symbol("a"), ix.symbol("b.x")
    for d in (
        a + 2 * b - 3,
        ix.floordiv(a - 7, 4),
        ix.mod(a, b),
        ix.minimum(a, b + 1),
        ix.maximum(a, b),
        ix.equal(a, b),
        -a,
        a * b,
    ):
        for values in ({"a": 5, "b.x": 3}, {"a": 2, "b.x": 2}):
            assert guards.evaluate(ix.show(d), values) == ix.evaluate(d, values)


def test_missing_unknown_and_extra_inputs(exe):
    missing = code_of(lambda: exe.run({"x": V}))
    assert (missing.code, missing.found) == ("TC0603", "missing `y`")
    unknown = code_of(lambda: exe.run({"x": V, "yy": V}))
    assert (unknown.code, unknown.found, unknown.hint) == ("TC0603", "there is no input `yy`", "did you mean `y`?")
    for values in ((), (V,), (V, V, V)):
        assert code_of(lambda values=values: exe(*values)).code == "TC0603"


def test_defaults_may_be_left_out(static):
    x = np.arange(6).reshape(2, 3) * 50 + 20
    k = np.arange(6).reshape(2, 3)
    np.testing.assert_array_equal(static(x), x + 10 - k)
    np.testing.assert_array_equal(static.run({"x": x})["out"], x + 10 - k)
    np.testing.assert_array_equal(static.run({"x": x, "w": x})["out"], 2 * x - k)
    assert static.specs[0].threads == 1 and not static.specs[0].release_gil and static.specs[0].sizes is not None


def test_the_native_call_declines_what_does_not_fit(exe):
    np.testing.assert_array_equal(exe.call_flat(V, V)[0], 2 * V)
    for values in ((V,), (V[::2], V), (V, V[:3]), (V.tolist(), V), (V * 0 + 13, V)):
        assert exe.call_flat(*values) is NotImplemented


def test_a_fault_is_told_and_the_next_call_is_like_any_other(exe):
    for _ in range(3):
        error = code_of(lambda: exe(np.full(40, 13), np.zeros(40, np.int64)))
        assert (error.code, error.place) == ("TC0604", "node zero")
        np.testing.assert_array_equal(exe(V, V)[0], 2 * V)


def test_sizes_that_the_program_refuses():
    n = ix.symbol("n", 0, 8)
    main = Main((Buffer("x", dt.i64, (n,)),), (Buffer("out", dt.i64, (n,)),), (), (n,), (Launch("inc", ("x", "out"), (n,), 0),))
    bounded = link(artifact(main))
    assert bounded(np.zeros(8, np.int64)).tolist() == [1] * 8
    error = code_of(lambda: bounded(np.zeros(9, np.int64)))
    assert (error.code, error.place) == ("TC0605", "the size n must be at most 8")


def test_no_memory():
    m = ix.symbol("m")
    x, y = Buffer("x", dt.i64, (N,)), Buffer("y", dt.i64, (m,))
    t = Buffer("t", dt.i64, (N, m, 1 << 40))
    body = (Reserve(t), Launch("inc", ("x", "t"), (N,), 0), Launch("inc", ("t", "out"), (N,), 1))
    huge = link(artifact(Main((x, y), (Buffer("out", dt.i64, (N,)),), (), (N, m), body)))
    for size in (10, 4000):
        assert code_of(lambda size=size: huge(np.zeros(size, np.int64), np.zeros(size, np.int64))).code == "TC0606"


def test_outputs_are_the_callers(exe):
    first, _ = exe(V, V)
    kept = first.copy()
    for _ in range(20):
        exe(V * 7, V)
    np.testing.assert_array_equal(first, kept)
    first[:] = 0  # and may be written


def test_many_threads(exe):
    good = []

    def work(tag: int) -> None:
        values = [np.full(20 + k % 7, tag * 1000 + k) for k in range(200)]
        good.append(all((exe(x, x)[0] == 2 * x).all() for x in values))

    threads = [threading.Thread(target=work, args=(k + 1,)) for k in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert good == [True] * 5


def _in_child(exe, results) -> None:
    results.put(exe(V, V)[0].tolist())


def test_after_a_fork(exe):
    exe(V, V)
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    child = context.Process(target=_in_child, args=(exe, results))
    child.start()
    child.join(10)
    assert results.get() == (2 * V).tolist()


class Tensor:
    """What PyTorch's tensors have that is used here, over an array."""

    layout = "strided"

    def __init__(self, a, device="cpu", grad=False):
        self.a, self.device, self.grad = a, types.SimpleNamespace(type=device), grad
        self.dtype = "bfloat16" if a.dtype == ml_dtypes.bfloat16 else a.dtype

    def detach(self):
        return Tensor(self.a)

    def resolve_conj(self):
        return self

    def resolve_neg(self):
        return self

    def view(self, dtype):
        return Tensor(self.a.view(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype))

    def numpy(self):
        assert not self.grad and self.dtype != "bfloat16"
        return self.a


@pytest.fixture
def torch(monkeypatch):
    module = types.ModuleType("torch")
    module.Tensor, module.strided, module.bfloat16, module.int16, module.from_numpy = (
        Tensor,
        "strided",
        "bfloat16",
        np.int16,
        Tensor,
    )
    monkeypatch.setitem(sys.modules, "torch", module)


def test_tensors_in_tensors_out(exe, torch):
    out, more = exe(Tensor(V, grad=True), V[::-1].copy()[::-1])
    assert isinstance(out, Tensor) and isinstance(more, Tensor)
    np.testing.assert_array_equal(out.a, 2 * V)
    error = code_of(lambda: exe(V, Tensor(V, device="cuda")))
    assert error.code == "TC0602" and ".cpu()" in error.hint
    half = np.arange(3).astype(ml_dtypes.bfloat16)
    assert np.shares_memory(arrays.take(Port("x", "bf16", (3,)), Tensor(half)), half)
    assert arrays.to_torch(half).dtype == "bfloat16"


def test_text_report_and_repr(exe):
    assert exe.text("llvm").startswith("declare") and exe.text("asm").startswith("asm of")
    error = code_of(lambda: exe.text("tile"))
    assert (error.code, error.expected) == ("TC0105", "one of llvm, asm")
    assert exe.report() == {"kernels": 4} and str(exe.report()) == "kernels: 4"
    assert repr(exe) == "<tcomp.Executable test(x: i64['n'], y: i64['n']) -> (out: i64['n'], more: i64['n'])>"


def test_report_prints_nested_data(exe):
    data = {"ops": [["relu", "native"], ["gelu", "decomposed"]], "bytes": {"arena": 64}, "none": [], "note": ""}
    nested = type(exe.report())(data)
    assert str(nested) == "ops:\n  relu  native\n  gelu  decomposed\nbytes:\n  arena: 64\nnone: []"


def test_the_code_that_fits_best_is_taken(exe):
    (own,) = exe.artifact.objects
    plain = CodeObject("cpu:plain", (), own.data)
    better = CodeObject("cpu:better", ("sse2",) if own.data[18] == 62 else ("neon",), own.data)
    alien = CodeObject("cpu:alien", (), own.data[:18] + b"\x08\x00" + own.data[20:])
    newer = CodeObject("cpu:newer", ("avx4096",), own.data)

    def pick(*objects):
        return code_for_this_machine(replace(exe.artifact, objects=objects)).target

    assert pick(alien, newer, plain, better) == "cpu:better"
    error = code_of(lambda: pick(alien, newer))
    assert error.code == "TC0702" and "avx4096" in error.expected and "native=False" in error.hint
