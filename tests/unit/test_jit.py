"""jit: signatures, specialising and symbolic programs, static arguments, containers, threads, inlining, lowering."""

import copy
import dataclasses
import pickle
import threading
from collections import OrderedDict, namedtuple

import ml_dtypes
import numpy as np
import pytest
from frontend_support import Interpreted, interpreter, same

import tcomp.numpy as tnp
from tcomp.errors import Error
from tcomp.frontend import pytree
from tcomp.frontend.jit import jit
from tcomp.frontend.signature import fits, generalised
from tcomp.frontend.spec import spec
from tcomp.ir import index


@pytest.fixture
def compiler():
    with interpreter() as c:
        yield c


def ones(*shape, dtype=np.float32):
    return np.ones(shape, dtype)


def test_a_signature_is_compiled_once(compiler):
    f = jit(lambda x, y: x + y)
    for _ in range(3):
        assert same(f(ones(2, 3), ones(3)), ones(2, 3) * 2)
    assert len(compiler.made) == 1
    f(ones(2, 3, dtype=np.float64), ones(3))
    assert len(compiler.made) == 2


def test_known_flat_arrays_go_straight_to_the_executable(compiler, monkeypatch):
    f = jit(lambda x: (x, x + 1))
    f(ones(3))
    monkeypatch.setattr(f, "_dispatch", None)
    first, second = f(ones(3))
    assert same(second, first + 1)


def test_scalars_and_arrays_of_rank_0_are_different_signatures(compiler):
    f = jit(lambda x, a: x * a)
    assert f(ones(3), 2.0).dtype == np.float32
    assert f(ones(3), np.array(2.0)).dtype == np.float64
    assert f(ones(3), 2.0).dtype == np.float32
    assert f(ones(3), 2).dtype == np.float32
    assert len(compiler.made) == 3


def test_four_signatures_are_specialised_then_one_program_is_symbolic(compiler):
    f = jit(lambda x, y: (x @ y, x.sum()))
    sizes = (2, 3, 5, 8, 9, 11, 0, 1)
    for n in sizes:
        x, y = np.arange(4.0 * n).reshape(4, n), np.arange(2.0 * n).reshape(n, 2)
        got, total = f(x, y)
        assert same(got, x @ y, 1e-9)
        assert same(total, x.sum(), 1e-9)
    assert len(compiler.made) == 5
    symbolic = compiler.made[-1]
    assert [str(p.type) for p in symbolic.func.params] == ["f64[4, n0]", "f64[n0, 2]"]
    assert "symbolic" in symbolic.options.note
    assert f.programs() == [
        *(f"[4, {n}], [{n}, 2]: specialised, signature {k} of 4" for k, n in enumerate(sizes[:4], 1)),
        "[4, n0], [n0, 2]: symbolic",
    ]


def test_symbols_that_meet_are_equal_or_1(compiler):
    """Sizes that varied apart from each other: the program for all of them broadcasts as each call says."""
    f = jit(lambda x, y: x * y + x)
    for n, m in ((2, 2), (3, 1), (1, 4), (5, 5), (6, 1), (1, 7), (8, 8), (0, 1), (1, 1)):
        x, y = np.arange(3.0 * n).reshape(n, 3), np.arange(3.0 * m).reshape(m, 3) + 1
        assert same(f(x, y), x * y + x)
    assert len(compiler.made) == 5


def test_a_symbol_stands_for_sizes_that_always_agreed(compiler):
    f = jit(lambda x, y: (x * 2, y * 2))
    for n in range(1, 6):
        f(ones(n), ones(n))
    assert len(compiler.made) == 5
    f(ones(3), ones(4))
    assert len(compiler.made) == 6
    assert [str(p.type) for p in compiler.made[-1].func.params] == ["f32[n0]", "f32[n1]"]
    f(ones(30), ones(40))
    assert len(compiler.made) == 6


def test_a_function_that_needs_its_sizes_stays_specialised(compiler):
    f = jit(lambda x: sum(x[k] for k in range(x.shape[0])))
    for n in range(1, 8):
        assert same(f(np.arange(n)), np.arange(n).sum())
    assert len(compiler.made) == 7
    assert "TC0101" in f.programs()[-1]


def test_declared_dimensions_never_specialise(compiler):
    for dynamic in ({"x": {0: "n"}, "y": {0: "n"}}, {"x": "f32[n, 3]", "y": "f32[n]"}):
        f = jit(lambda x, y: x + y[:, None], dynamic=dynamic)
        before = len(compiler.made)
        for n in (4, 1, 0, 7):
            assert same(f(ones(n, 3), ones(n)), ones(n, 3) * 2)
        assert len(compiler.made) == before + 1
        with pytest.raises(Error, match="TC0601"):
            f(ones(4, 3), ones(5))


@pytest.mark.parametrize(
    ("dynamic", "code"),
    [({"z": {0: "n"}}, "TC0105"), ({"x": {2: "n"}}, "TC0104"), ({"x": "f64[n, 3]"}, "TC0601"), ({"x": "f32[n"}, "TC0105")],
)
def test_wrong_declarations_are_refused(compiler, dynamic, code):
    with pytest.raises(Error) as e:
        jit(lambda x: x, dynamic=dynamic)(ones(2, 3))
    assert e.value.code == code


def test_static_arguments(compiler):
    @jit(static_argnames=("axis", "power"))
    def f(x, axis, power=2):
        if power > 2:
            return tnp.sum(x**power, axis=axis)
        return tnp.sum(x, axis=axis)

    x = np.arange(6.0).reshape(2, 3)
    assert same(f(x, 0), x.sum(0))
    assert same(f(x, axis=1), x.sum(1))
    assert same(f(x, 1, power=3), (x**3).sum(1))
    assert same(f(x, [0, 1]), x.sum())
    assert same(f(axis=1, x=x), x.sum(1))
    assert len(compiler.made) == 4
    with pytest.raises(Error, match=r"TC0105.*axes"):
        jit(lambda x: x, static_argnames="axes")


def test_text_and_dtypes_are_static_by_themselves(compiler):
    f = jit(lambda x, mode, dtype: tnp.astype(x, dtype) if mode == "cast" else x)
    assert f(ones(2), "cast", np.int32).dtype == np.int32
    assert f(ones(2), "keep", np.int32).dtype == np.float32
    with pytest.raises(Error, match=r"(?s)TC0105.*static_argnames"):
        f(ones(2), object(), np.int32)


Pair = namedtuple("Pair", "left right")


@dataclasses.dataclass
class Layer:
    w: object
    b: object


def test_containers_of_arguments_and_results(compiler):
    @jit
    def f(layers, extra=None):
        x = layers["first"].w @ layers["second"][0].left + layers["first"].b
        return {"y": x, "all": [x, (x * 2, None)], "pair": Pair(x, 1.0), "layer": Layer(x, x), "ordered": OrderedDict(a=x)}

    layers = {"first": Layer(ones(2, 2), ones(2)), "second": [Pair(ones(2, 2), None)]}
    for _ in range(2):
        got = f(layers)
    assert list(got) == ["y", "all", "pair", "layer", "ordered"]
    assert same(got["all"][1][0], got["y"] * 2)
    assert got["all"][1][1] is None
    assert isinstance(got["pair"], Pair)
    assert isinstance(got["layer"], Layer)
    assert type(got["ordered"]) is OrderedDict
    assert len(compiler.made) == 1
    names = [p["name"] for p in compiler.made[0].func.params]
    assert names == ["layers_first_w", "layers_first_b", "layers_second_0_left"]
    assert "pair_right" in compiler.made[0].func.result_names


def test_results_of_one_and_of_none(compiler):
    assert isinstance(jit(lambda x: (x,))(ones(2)), tuple)
    assert jit(lambda x: [])(ones(2)) == []
    f = jit(lambda x: [x + 1])
    f(ones(2))
    assert same(f(ones(2))[0], ones(2) * 2)


def test_keywords_and_defaults(compiler):
    @jit
    def f(x, /, y, *rest, scale=2.0, **more):
        return x * scale + y + sum(rest) + more.get("z", 0)

    assert same(f(ones(2), ones(2)), ones(2) * 3)
    assert same(f(ones(2), ones(2), ones(2), ones(2), scale=3.0, z=ones(2)), ones(2) * 7)
    with pytest.raises(TypeError, match="missing"):
        f(ones(2))


def test_jit_inside_jit_is_inlined(compiler):
    inner = jit(lambda x: x * 2)
    inner(ones(2))
    outer = jit(lambda x: inner(x) + inner(x))
    assert same(outer(ones(2)), ones(2) * 4)
    assert len(compiler.made) == 2
    assert [n.op for n in compiler.made[1].func.nodes()].count("mul") == 1


def test_methods_have_programs_of_their_instance(compiler):
    class Model:
        def __init__(self, w):
            self.w = w

        @jit
        def apply(self, x):
            "doc"
            return x * self.w

    a, b = Model(2.0), Model(3.0)
    assert same(a.apply(ones(2)), ones(2) * 2)
    assert same(b.apply(ones(2)), ones(2) * 3)
    assert same(a.apply(ones(2)), ones(2) * 2)
    assert a.apply is a.apply
    assert Model.apply.__doc__ == "doc"


class Doubling:
    def __init__(self, w=2.0):
        self.w = w

    @jit
    def apply(self, x):
        return x * self.w

    @classmethod
    @jit
    def made_by(cls, x):
        return x * (2 if cls is Doubling else 3)


class Further(Doubling):
    @jit
    def apply(self, x):
        return super().apply(x) + 1


def test_a_method_may_call_the_one_that_it_overrides(compiler):
    further = Further()
    assert same(further.apply(ones(2)), ones(2) * 3)
    assert same(Doubling.apply.__get__(further)(ones(2)), ones(2) * 2)
    assert same(further.apply(ones(2)), ones(2) * 3)


def test_class_methods_have_programs_of_their_class(compiler):
    for _ in range(2):
        assert same(Doubling.made_by(ones(2)), ones(2) * 2)
        assert same(Further.made_by(ones(2)), ones(2) * 3)
    assert len(compiler.made) == 2


def test_objects_with_jitted_methods_can_be_copied_and_pickled(compiler):
    first = Doubling()
    first.apply(ones(2))
    for other in (copy.copy(first), copy.deepcopy(first), pickle.loads(pickle.dumps(first))):
        other.w = 5.0
        assert same(other.apply(ones(2)), ones(2) * 5)
        assert same(first.apply(ones(2)), ones(2) * 2)
    assert len(compiler.made) == 4


def test_an_object_that_can_keep_nothing_is_told(compiler):
    class Slotted:
        __slots__ = ()

        @jit
        def apply(self, x):
            return x

    with pytest.raises(Error, match=r"(?s)TC0105.*a jitted method of a Slotted"):
        Slotted().apply(ones(2))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.float32(0.0), np.float32(-0.0)),
        (0.0, -0.0),
        (complex(0.0, 0.0), complex(0.0, -0.0)),
        (frozenset([True]), frozenset([1])),
        ({1: 2}, {True: 2}),
        (slice(1, 2), slice(True, 2)),
        (np.zeros(1, "i4,f4"), np.zeros(1, "f4,i4")),
        (np.zeros(1, ml_dtypes.float8_e4m3fn), np.zeros(1, ml_dtypes.float8_e5m2)),
        ([1, (2,)], [1, [2]]),
    ],
)
def test_static_values_that_are_equal_and_yet_differ(compiler, one, other):
    f = jit(lambda x, k: x + 1, static_argnames="k")
    for value in (one, other, one, other):
        f(ones(2), value)
    assert len(compiler.made) == 2


def test_static_values_without_a_hash(compiler):
    f = jit(lambda x, k: x * len(k), static_argnames="k")
    for value in ({1, 2}, [1, [2]], np.array([1, None]), {"a": 1, "b": []}):
        assert same(f(ones(2), value), ones(2) * 2)
        f(ones(2), value)
    assert len(compiler.made) == 4


def test_keys_that_are_equal_and_yet_differ(compiler):
    f = jit(lambda d: [x + (1 if k is True else 2) for k, x in d.items()])
    assert same(f({True: ones(2)})[0], ones(2) * 2)
    assert same(f({1: ones(2)})[0], ones(2) * 3)


def test_traced_arrays_can_be_copied(compiler):
    assert same(jit(lambda x: copy.deepcopy({"x": x})["x"] + copy.copy(x))(ones(2)), ones(2) * 2)


def test_arrays_that_are_not_plain(compiler):
    f = jit(lambda x: x + 1)
    base = np.arange(12.0).reshape(3, 4)
    for x in (base[::-1, ::2], base.T, base.astype(">f8"), np.broadcast_to(base[0], (3, 4)), np.float64(3)):
        want = x + 1
        assert same(f(x), np.asarray(want, np.asarray(want).dtype.newbyteorder("=")))


class Foreign:
    """An array of another library, as far as DLPack shows it."""

    def __init__(self, array):
        self.array, self.dtype, self.shape = array, f"other.{array.dtype.name}", array.shape

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __array__(self, *args, **kwargs):
        return self.array


def test_arrays_of_other_libraries_are_passed_on(compiler):
    f = jit(lambda x: x + 1)
    assert same(f(Foreign(ones(3))), ones(3) * 2)
    assert [str(p.type) for p in compiler.made[0].func.params] == ["f32[3]"]


def test_concurrent_first_calls_compile_once(compiler):
    f = jit(lambda x: tnp.exp(x))
    start = threading.Barrier(8)
    results = []

    def work():
        start.wait()
        results.append(f(ones(4)))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(results) == 8
    assert len(compiler.made) == 1


def test_a_trace_does_not_leak_into_other_threads(compiler):
    seen = []

    def fn(x):
        t = threading.Thread(target=lambda: seen.append(tnp.add(ones(2), 1)))
        t.start()
        t.join()
        return x + 1

    jit(fn)(ones(2))
    assert isinstance(seen[0], np.ndarray)


def test_lowering(compiler):
    f = jit(lambda x, w: tnp.maximum(x @ w, 0))
    lowered = f.lower(spec("f32[n, 4]"), ones(4, 3))
    assert lowered.text("graph") == "graph of _lambda_"
    assert [str(p.type) for p in lowered.program.func.params] == ["f32[n, 4]", "f32[4, 3]"]
    execute = lowered.compile()
    assert isinstance(execute, Interpreted)
    assert same(execute(ones(5, 4), ones(4, 3)), ones(5, 3) * 4)


def test_without_a_compiler_the_message_says_so():
    with interpreter():
        pass
    from tcomp.frontend import jit as module

    before = module._compiler
    module.set_compiler(None)
    try:
        with pytest.raises(Error, match="no compiler"):
            jit(lambda x: x)(ones(2))
    finally:
        module.set_compiler(before)


def test_specs():
    s = spec(" float32[batch=1..64, n, 3]")
    assert str(s) == "f32[batch, n, 3]"
    assert index.bounds(s.shape[0]) == (1, 64)
    assert spec("i64[]").shape == ()
    for wrong in ("f32", "f32[-1]", "f99[2]", "f32[n m]", 3, (3, 4)):
        with pytest.raises(Error):
            spec(wrong)


def test_a_size_that_turns_out_to_vary_takes_no_name_that_is_declared(compiler):
    f = jit(lambda x, y: (x.sum(0), y * 2), dynamic={"x": {0: "n0"}})
    for k in range(1, 8):
        assert f(ones(k + 3, 2), ones(k))[1].shape == (k,)
    assert [str(p.type) for p in compiler.made[-1].func.params] == ["f32[n0, 2]", "f32[n1]"]


def test_generalising_shapes():
    pattern = generalised([((2, 3), (3,)), ((2, 5), (5,)), ((2, 3), (3,))])
    n = index.symbol("n0")
    assert pattern == ((2, n), (n,))
    assert fits(pattern, ((2, 9), (9,)))
    assert not fits(pattern, ((2, 9), (8,)))
    assert not fits(pattern, ((3, 9), (9,)))


def test_containers_without_end_are_refused(compiler):
    itself: list = []
    itself.append(itself)
    deep = np.float32(1)
    for _ in range(3000):
        deep = [deep]
    for x in (itself, {"a": itself}, deep):
        with pytest.raises(Error, match=r"TC0105.*nested"):
            jit(lambda x: x)(x)
        with pytest.raises(Error, match=r"TC0105.*nested"):
            jit(lambda y: x)(np.float32(1))  # noqa: B023
    while isinstance(deep, list):  # no chain of objects that end each other
        deep = deep[0]


def test_pytrees_come_back():
    nest = {"a": [1, (2, None)], "b": Pair(3, {"c": ()}), "d": Layer(4, [5])}
    leaves, tree = pytree.flatten(nest)
    assert leaves == [1, 2, 3, 4, 5]
    assert tree.leaves == 5
    assert pytree.unflatten(tree, iter(leaves)) == nest
    assert hash(tree) == hash(pytree.flatten(nest)[1])
    assert tree != pytree.flatten({**nest, "d": None})[1]
    assert pytree.names(tree, "") == ["a_0", "a_1_0", "b_left", "d_w", "d_b_0"]


@pytest.mark.parametrize("dynamic", [True, "x", ["x"]])
def test_declarations_that_are_no_table_are_refused(dynamic):
    with pytest.raises(Error, match=r"TC0105.*dynamic="):
        jit(lambda x: x, dynamic=dynamic)


def test_what_is_no_function_is_refused():
    with pytest.raises(Error, match="TC0105: jit of an object of type int"):
        jit(3)


def test_errors_name_the_argument(compiler):
    def f(x, rest):
        return x + rest["y"]

    with pytest.raises(TypeError, match="f: missing a required argument: 'rest'"):
        jit(f)(ones(2))
    with pytest.raises(TypeError, match="sum: got an unexpected keyword argument 'axes'"):
        tnp.sum(ones(2), axes=0)
    with pytest.raises(Error, match="TC0103: argument `rest_y`: dtype complex128") as e:
        jit(f)(ones(2), {"y": ones(2, dtype=complex)})
    assert __file__ in e.value.place


def test_what_tcomp_has_not_is_refused_with_the_list(compiler):
    for f in (np.linalg.inv, np.convolve, np.spacing):
        with pytest.raises(Error, match=r"TC0105(?s:.)*docs/numpy\.md"):
            jit(f)(*[ones(3, 3)] * (2 if f is np.convolve else 1))


@pytest.mark.parametrize("f", [np.asarray, lambda x: np.array([x, x]), lambda x: np.c_[x, x], np.vectorize(abs)])
def test_what_asks_for_elements_is_told_how_else(compiler, f):
    with pytest.raises(Error, match=r"TC0101: NumPy asked for the elements(?s:.)*tcomp\.numpy\.asarray"):
        jit(lambda x: f(x))(ones(3))
    assert same(jit(lambda x: tnp.asarray([x, x[::-1]]))(ones(3)), ones(2, 3))
