"""The vector math library: bounds over the whole range, special values, all widths, with and without FMA and AVX-512."""

import ctypes
import importlib.util
import sys
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest
from vecmath_reference import REFERENCE, SAME_TYPE, Long, pairs, special_values, sweep, ulps

from tcomp.codegen.llvm import vecmath
from tcomp.codegen.llvm.builder import FunctionBuilder, ModuleBuilder, vector
from tcomp.codegen.llvm.compile import assembly, compile_text, host, named
from tcomp.codegen.llvm.vecmath import coefficients
from tcomp.runtime import loader

HOST = frozenset(name for name, has in llvm.get_host_cpu_features().items() if has)
V3 = frozenset({"sse4.1", "avx", "avx2", "fma"})
TARGETS = {"host": HOST, "x86-64-v3": V3, "x86-64": frozenset()}
NEEDS = {"host": frozenset(), "x86-64-v3": V3, "x86-64": frozenset({"sse2"})}
TYPES = {"float": np.float32, "double": np.float64}
COUNT = {"host": 20000, "x86-64-v3": 4000, "x86-64": 4000}
LANES = {"host": 512, "x86-64-v3": 256, "x86-64": 128}  # bits
# An element, its NumPy type, a target.
EVERYWHERE = [(e, t) for t in TARGETS for e in TYPES]


def function_text(name, element, lanes, features):
    """`f(out, n, in...)`: out = name(in...), `lanes` at a time; n is a multiple of them."""
    module = ModuleBuilder()
    b = FunctionBuilder(module)
    kind, align = vector(element, lanes), np.dtype(TYPES[element]).itemsize
    operands = range(vecmath.FUNCTIONS[name].arity)
    counter = b.alloca(8)
    b.effect(f"store i64 0, ptr {counter}")
    b.branch("loop")
    b.start("loop")
    i = b.value(f"load i64, ptr {counter}")
    places = [b.value(f"getelementptr {element}, ptr %in{k}, i64 {i}") for k in operands]
    arguments = tuple(b.value(f"load {kind}, ptr {p}, align {align}") for p in places)
    result = vecmath.emit(b, name, element, lanes, arguments, features)
    place = b.value(f"getelementptr {element}, ptr %out, i64 {i}")
    b.effect(f"store {kind} {result}, ptr {place}, align {align}")
    following = b.value(f"add i64 {i}, {lanes}")
    b.effect(f"store i64 {following}, ptr {counter}")
    b.branch_if(b.value(f"icmp ult i64 {following}, %n"), "loop", "end")
    b.start("end")
    b.effect("ret void")
    inputs = "".join(f", ptr %in{k}" for k in operands)
    module.add(f"define void @f(ptr %out, i64 %n{inputs}) {{\n{b.body()}\n}}")
    return module.text()


@cache
def compiled(name, element, lanes, target):
    """A Python function of arrays."""
    if not NEEDS[target] <= HOST:
        pytest.skip(f"this machine does not run {target}")
    cpu = host() if target == "host" else named(target)
    library = loader.load(compile_text(function_text(name, element, lanes, TARGETS[target]), cpu), ("f",))
    arity, dtype = vecmath.FUNCTIONS[name].arity, TYPES[element]
    native = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, *[ctypes.c_void_p] * arity)(library["f"])

    def call(*arrays):
        count = arrays[0].size
        padded = [np.concatenate([a, np.ones(-count % lanes, dtype)]) for a in arrays]
        out = np.empty_like(padded[0])
        native(out.ctypes.data, out.size, *(p.ctypes.data for p in padded))
        assert library.addresses  # the code stays mapped as long as this closure lives
        return out[:count]

    return call


def lanes_of(element, target):
    return LANES[target] // (8 * np.dtype(TYPES[element]).itemsize)


def bound(name, element):
    row = vecmath.FUNCTIONS[name]
    return row.bound_f32 if element == "float" else row.bound_f64


@cache
def operands(name, element, count):
    dtype = TYPES[element]
    if vecmath.FUNCTIONS[name].arity == 2:
        return pairs(name, dtype, count)
    return (np.concatenate([special_values(dtype), sweep(dtype, count)]),)


@cache
def expected(name, element, count):
    arrays = operands(name, element, count)
    with np.errstate(all="ignore"):
        if name in SAME_TYPE:
            return SAME_TYPE[name](*arrays).astype(Long)
        return REFERENCE[name](*(a.astype(Long) for a in arrays))


def show(worst, arrays, got, reference):
    return f"at {[a[worst] for a in arrays]}: {got[worst]!r}, expected {reference[worst]!r}"


@pytest.mark.parametrize("name", vecmath.FUNCTIONS)
@pytest.mark.parametrize(("element", "target"), EVERYWHERE)
def test_bound_over_the_whole_range(name, element, target):
    arrays, reference = (f(name, element, COUNT[target]) for f in (operands, expected))
    got = compiled(name, element, lanes_of(element, target), target)(*arrays)
    dtype = TYPES[element]
    with np.errstate(all="ignore"):
        error = ulps(got, reference, dtype)
        rounded = reference.astype(dtype)
    worst = int(np.argmax(error))
    assert error[worst] <= bound(name, element), show(worst, arrays, got, reference)
    if name in ("maximum", "minimum"):
        return  # of two zeros either may come out
    wrong = (got == 0) & (rounded == 0) & (np.signbit(got) != np.signbit(rounded))
    assert not wrong.any(), "sign of zero " + show(int(np.argmax(wrong)), arrays, got, reference)


@pytest.mark.parametrize("name", vecmath.FUNCTIONS)
@pytest.mark.parametrize("element", TYPES)
def test_every_width_gives_the_same_bits(name, element):
    arrays = tuple(a[:3000] for a in operands(name, element, COUNT["x86-64"]))
    first, *others = (compiled(name, element, lanes, "host")(*arrays) for lanes in (1, 2, 4, 8, 16, 32))
    for other in others:
        np.testing.assert_array_equal(first, other)


@pytest.mark.parametrize("name", vecmath.FUNCTIONS)
@pytest.mark.parametrize(("target", "features"), [("x86-64", frozenset()), ("aarch64", frozenset({"neon"}))])
def test_nothing_is_called_outside_the_module(name, target, features):
    for element, lanes in (("float", 4), ("double", 2), ("float", 1)):
        text = assembly(function_text(name, element, lanes, features), named(target))
        undefined = {w.removesuffix("@PLT") for w in called(text)} - set(defined(text))
        on_x86 = {"fma"} if element == "double" and target == "x86-64" and name in SAME_TYPE else set()
        assert undefined == on_x86


def called(text):
    lines = (line.split() for line in text.splitlines())
    return [words[1] for words in lines if len(words) == 2 and words[0] in ("callq", "bl", "jmp", "b")]


def defined(text):
    return [line.split(":")[0] for line in text.splitlines() if line[:1] not in ("", "\t", " ")]


inf, nan = np.inf, np.nan
SPECIAL = {
    "exp": [(0, 1), (-0.0, 1), (inf, inf), (-inf, 0), (nan, nan), (1000, inf), (-1000, 0)],
    "exp2": [(0, 1), (3, 8), (-1, 0.5), (inf, inf), (-inf, 0), (nan, nan), (-126, 2.0**-126), (127, 2.0**127)],
    "expm1": [(-0.0, -0.0), (inf, inf), (-inf, -1), (nan, nan), (-1000, -1)],
    "log": [(1, 0), (0, -inf), (-0.0, -inf), (-1, nan), (inf, inf), (-inf, nan), (nan, nan)],
    "log2": [(8, 3), (2.0**-140, -140), (0, -inf), (-1, nan), (inf, inf), (nan, nan)],
    "log10": [(1, 0), (1000, 3), (0, -inf), (-1, nan), (inf, inf), (nan, nan)],
    "log1p": [(-0.0, -0.0), (-1, -inf), (-2, nan), (inf, inf), (nan, nan)],
    "sin": [(-0.0, -0.0), (inf, nan), (-inf, nan), (nan, nan)],
    "cos": [(0, 1), (inf, nan), (nan, nan)],
    "tan": [(-0.0, -0.0), (inf, nan), (nan, nan)],
    "asin": [(-0.0, -0.0), (1.5, nan), (nan, nan)],
    "acos": [(1, 0), (1.5, nan), (-1.5, nan), (nan, nan)],
    "atan": [(-0.0, -0.0), (nan, nan)],
    "sinh": [(-0.0, -0.0), (inf, inf), (-inf, -inf), (nan, nan)],
    "cosh": [(0, 1), (inf, inf), (-inf, inf), (nan, nan)],
    "tanh": [(-0.0, -0.0), (inf, 1), (-inf, -1), (100, 1), (nan, nan)],
    "asinh": [(-0.0, -0.0), (inf, inf), (-inf, -inf), (nan, nan)],
    "acosh": [(1, 0), (0.5, nan), (-3, nan), (inf, inf), (nan, nan)],
    "atanh": [(-0.0, -0.0), (1, inf), (-1, -inf), (1.5, nan), (nan, nan)],
    "erf": [(-0.0, -0.0), (inf, 1), (-inf, -1), (nan, nan)],
    "erfc": [(0, 1), (inf, 0), (-inf, 2), (nan, nan)],
    "sigmoid": [(0, 0.5), (inf, 1), (-inf, 0), (nan, nan)],
    "sqrt": [(-0.0, -0.0), (4, 2), (-1, nan), (inf, inf), (nan, nan)],
    "rsqrt": [(4, 0.5), (0, inf), (-0.0, -inf), (-1, nan), (inf, 0), (nan, nan)],
    "cbrt": [(-0.0, -0.0), (27, 3), (-8, -2), (-inf, -inf), (nan, nan)],
    "floor": [(-0.0, -0.0), (-0.5, -1), (0.5, 0), (-inf, -inf), (nan, nan)],
    "ceil": [(-0.0, -0.0), (-0.5, -0.0), (0.5, 1), (inf, inf), (nan, nan)],
    "trunc": [(-0.0, -0.0), (-0.5, -0.0), (1.75, 1), (inf, inf), (nan, nan)],
    "roundeven": [(-0.0, -0.0), (0.5, 0), (1.5, 2), (2.5, 2), (-0.5, -0.0), (nan, nan)],
    "sign": [(-0.0, 0.0), (-2, -1), (inf, 1), (nan, nan)],
    "maximum": [(1, nan, nan), (nan, 1, nan), (2, 3, 3), (-inf, 1, 1)],
    "minimum": [(1, nan, nan), (nan, 1, nan), (2, 3, 2), (inf, 1, 1)],
    "copysign": [(1, -0.0, -1), (-2, 3, 2), (inf, -1, -inf)],
    "atan2": [(0, 0, 0), (-0.0, 0, -0.0), (1, nan, nan), (nan, 1, nan), (0, inf, 0), (-0.0, inf, -0.0)],
    "pow": [
        (nan, 0, 1), (1, nan, 1), (1, inf, 1), (-1, inf, 1), (-1, -inf, 1), (0, -1, inf), (-0.0, -1, -inf),
        (-0.0, -2, inf), (-0.0, 3, -0.0), (-0.0, 2, 0), (-0.0, 0.5, 0), (-inf, 3, -inf), (-inf, 0.5, inf),
        (-inf, -3, -0.0), (-inf, -0.5, 0), (-8, 1 / 3, nan), (-2, 3, -8), (-2, -2, 0.25), (2, inf, inf),
        (0.5, inf, 0), (2, -inf, 0), (0.5, -inf, inf), (nan, 2, nan), (2, nan, nan), (3, 2, 9), (10, 2, 100),
    ],
    "fmod": [(-0.0, 3, -0.0), (5, inf, 5), (inf, 3, nan), (3, 0, nan), (-5, 3, -2), (nan, 1, nan), (1, nan, nan)],
    "remainder": [(-5, 3, 1), (5, -3, -1), (6, -3, -0.0), (5, 0, nan), (5, inf, 5), (-5, inf, inf)],
    "floor_divide": [(-5, 3, -2), (5, 0, inf), (-5, 0, -inf), (0, 0, nan), (5, inf, 0), (-5, inf, -1), (1, 0.1, 9)],
}  # fmt: skip


@pytest.mark.parametrize("name", vecmath.FUNCTIONS)
@pytest.mark.parametrize(("element", "target"), EVERYWHERE)
def test_special_values(name, element, target):
    table = np.array(SPECIAL[name], TYPES[element])
    if name == "floor_divide" and element == "float":
        table = table[:-1]  # 1 / 0.1 in f32 is 9.99.. no longer
    got = compiled(name, element, lanes_of(element, target), target)(*table.T[:-1])
    np.testing.assert_array_equal(got, table.T[-1])
    zeros = table.T[-1] == 0
    np.testing.assert_array_equal(np.signbit(got[zeros]), np.signbit(table.T[-1][zeros]))


@pytest.mark.parametrize("element", TYPES)
def test_arguments_next_to_multiples_of_half_pi(element):
    """The nearest floats to n pi/2, where the reduction must not lose the digits, n up to the ends of the range."""
    dtype, random = TYPES[element], np.random.default_rng(3)
    n = np.unique(np.concatenate([np.arange(1, 3000), 2.0 ** random.uniform(0, np.log2(np.finfo(dtype).max) - 2, 3000)]))
    x = (np.rint(n) * (np.pi / 2)).astype(dtype)
    hardest = 6381956970095103 * 2.0**797 if element == "double" else 16367173 * 2.0**72  # Muller's worst cases
    x = np.concatenate([x, np.array([hardest], dtype)])
    for name in ("sin", "cos", "tan"):
        reference = REFERENCE[name](x.astype(Long))
        got = compiled(name, element, 8, "host")(x)
        error = ulps(got, reference, dtype)
        assert error.max() <= bound(name, element), show(int(np.argmax(error)), (x,), got, reference)


@pytest.mark.parametrize("name", ["erf", "tanh", "sigmoid", "sin", "cos"])
@pytest.mark.parametrize(("element", "target"), EVERYWHERE)
def test_magnitudes_stay_within_one(name, element, target):
    x = np.random.default_rng(5).uniform(-25, 25, 100000).astype(TYPES[element])
    assert np.abs(compiled(name, element, lanes_of(element, target), target)(x)).max() <= 1


def test_a_helper_is_defined_once_and_shared():
    module = ModuleBuilder()
    b = FunctionBuilder(module)
    first = vecmath.emit(b, "sin", "float", 4, ("%x",))
    vecmath.emit(b, "sin", "float", 4, (first,))
    vecmath.emit(b, "cos", "double", 4, ("%y",))
    text = module.text()
    assert text.count("define internal <4 x float> @vecmath_sin_v4f32") == 1
    assert text.count("@vecmath_two_over_pi =") == 1


@pytest.mark.parametrize("name", ["SIN", "EXP", "LOG"])
def test_coefficients_are_what_the_tool_fits(name):
    tool = load_tool("fit_coefficients")
    row = next(f for f in tool.FITS if f.name == name)
    for suffix, degree in (("F32", row.single), ("F64", row.double)):
        if degree is not None:
            fitted, _ = tool.fit(row, degree, suffix == "F32")
            assert tuple(fitted) == getattr(coefficients, f"{name}_{suffix}")


def load_tool(name):
    path = Path(__file__).parents[2] / "tools" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_docs_page_is_up_to_date():
    page = Path(__file__).parents[2] / "docs" / "vecmath.md"
    command = "python -c 'from tcomp.codegen.llvm import vecmath; print(vecmath.page(), end=\"\")' > docs/vecmath.md"
    assert page.read_text() == vecmath.page(), f"run: {command}"
