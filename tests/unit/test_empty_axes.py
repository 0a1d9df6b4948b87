"""Every operation over an axis without elements: the rules of every stage hold, and the meaning is the same up to code."""

import numpy as np
import pytest

from tcomp.api import Compiler
from tcomp.errors import Error
from tcomp.frontend.jit import Options
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.graph import Func, broadcast, full
from tcomp.ir.interp.graph import run
from tcomp.ir.node import Node
from tcomp.ir.ops import apply, constant, item, parameter

N = index.symbol("n")


def _dot(a, b):
    return apply("dot", a, b, batch=((0,), (0,)), contract=((2,), (1,)))


def _flat_dot(a, b):
    return apply("dot", a, b, batch=((), ()), contract=((1,), (0,)))


def _conv(groups, dilations=(1, 1)):
    return lambda x, w: apply("conv", x, w, strides=(1, 2), dilations=dilations, groups=groups)


def _repeated(small, x):
    return broadcast(small, x.type.shape, tuple(range(x.type.rank - 1)))


def _softmax(x):
    e = apply("exp", apply("sub", x, _repeated(apply("reduce", x, monoid="max", axes=(2,)), x)))
    return apply("div", e, _repeated(apply("reduce", e, monoid="add", axes=(2,)), e))


def _attention(q, k, v):
    return _dot(_softmax(_dot(q, k)), v)


def _reduce(monoid, axes):
    return lambda x: apply("reduce", x, monoid=monoid, axes=axes)


def _reduced_product(x, y):
    return apply("reduce", apply("mul", apply("exp", x), y), monoid="add", axes=(1,))


def _pool(x):
    near = apply("window", x, axes=(1,), sizes=(3,), strides=(2,), dilations=(1,))
    return apply("reduce", near, monoid="max", axes=(3,))


def _scan(axis):
    return lambda x: apply("scan", x, monoid="add", axis=axis, reverse=False, exclusive=True)


def _padded(x):
    return apply("exp", apply("pad", apply("neg", x), full(1, x.type.dtype), low=(0, 1, 0), high=(1, 0, 2)))


def _positions(count, size):
    return apply("mod", apply("iota", shape=(count,), axis=0, dtype=dt.i64), full(size, dt.i64, (count,)))


def _gather(x):
    return apply("exp", apply("gather", x, _positions(3, 2), axis=1))


def _scatter(x, updates):
    return apply("scatter_elements", x, broadcast(_positions(2, 2), updates.type.shape, (2,)), updates, axis=1, monoid="add")


CASES = {
    "dot": (_dot, (2, 3, 4), (2, 4, 5)),
    "flat dot": (_flat_dot, (3, 4), (4, 5)),
    "column": (_flat_dot, (3, 4), (4, 1)),
    "conv": (_conv(1), (2, 7, 6, 4), (3, 2, 4, 5)),
    "dilated conv": (_conv(1, (2, 2)), (2, 7, 6, 4), (3, 2, 4, 5)),
    "single pixels": (_conv(1), (2, 7, 6, 4), (1, 1, 4, 5)),
    "single channel": (_conv(1), (2, 7, 6, 4), (3, 3, 4, 1)),
    "grouped conv": (_conv(2), (2, 7, 6, 4), (3, 2, 2, 4)),
    "many groups": (_conv(6), (2, 7, 6, 12), (3, 2, 2, 6)),
    "depthwise": (_conv(4), (2, 7, 6, 4), (3, 2, 1, 4)),
    "depthwise, two each": (_conv(4), (2, 7, 6, 4), (3, 2, 1, 8)),
    "rows": (_reduce("add", (2,)), (2, 3, 4)),
    "columns": (_reduce("max", (0, 1)), (2, 3, 4)),
    "all": (_reduce("mul", (0, 1, 2)), (2, 3, 4)),
    "first and last": (_reduce("add", (0, 2)), (2, 3, 4)),
    "products of columns": (_reduced_product, (2, 3, 4), (2, 3, 4)),
    "windows": (_pool, (2, 7, 4)),
    "softmax": (_softmax, (2, 3, 4)),
    "attention": (_attention, (2, 3, 4), (2, 4, 5), (2, 5, 4)),
    "scan along": (_scan(2), (2, 3, 4)),
    "scan down": (_scan(1), (2, 3, 4)),
    "sort": (lambda x: item(apply("sort", x, axis=1, descending=False), 1), (2, 3, 4)),
    "top_k": (lambda x: item(apply("top_k", x, k=2, axis=2, largest=True), 0), (2, 3, 4)),
    "argreduce": (lambda x: apply("argreduce", x, monoid="max", axis=1, last=True, dtype=dt.i64), (2, 3, 4)),
    "pad": (_padded, (2, 3, 4)),
    "concat": (lambda x, y: apply("concat", x, y, axis=1), (2, 3, 4), (2, 5, 4)),
    "gather": (_gather, (2, 3, 4)),
    "scatter": (_scatter, (2, 3, 4), (2, 2, 2)),
}
ALSO = [(name, t) for name in ("dot", "conv", "depthwise", "rows", "columns", "attention", "gather") for t in (dt.i32, dt.bf16)]


def _empties(shapes):
    """Shapes in which all axes of one size are empty, known to be or at the call; or one axis alone is."""
    for size in sorted({d for s in shapes for d in s}):
        for zero in (0, N):
            yield [tuple(zero if d == size else d for d in s) for s in shapes]
    for k, shape in enumerate(shapes):
        for a in range(len(shape)):
            yield [(*s[:a], 0, *s[a + 1 :]) if j == k else s for j, s in enumerate(shapes)]


def _programs(name, dtype):
    """The programs of a case, also with the last operand a constant; those whose operands do not fit are none."""
    build, *shapes = CASES[name]
    for made in {str(m): m for m in _empties(shapes)}.values():
        values = [parameter(f"p{k}", dtype, s) for k, s in enumerate(made)]
        given = [values]
        if len(made) > 1 and not any(isinstance(d, Node) for s in made for d in s):
            given.append([*values[:-1], constant(np.ones(made[-1], dt.to_numpy(dtype)))])
        for operands in given:
            try:
                result = build(*operands)
            except Error:
                continue
            params = (parameter("sizes", dt.f32, (N,)), *(v for v in operands if v.op == "parameter"))
            yield Func("f", params, (result,), ("r",))


def _outcome(call, arrays):
    """The result, or None where it refuses these sizes or positions."""
    try:
        with np.errstate(all="ignore"):
            result = call(arrays)
    except Error:
        return None
    return np.asarray(result).astype(np.float64)


@pytest.mark.parametrize(("name", "dtype"), [*((name, dt.f32) for name in CASES), *ALSO])
def test_nothing_to_combine(name, dtype, monkeypatch):
    monkeypatch.setenv("TCOMP_CHECK", "3")
    monkeypatch.setenv("TCOMP_FAST", "1")
    for func in _programs(name, dtype):
        compiled = Compiler(use_cache=False)(func, Options())
        for n in (0, 3):
            shapes = [[index.evaluate(d, {"n": n}) for d in p.type.shape] for p in func.params]
            arrays = [np.ones(s, dt.to_numpy(p.type.dtype)) for s, p in zip(shapes, func.params)]
            want = _outcome(lambda a, f=func: run(f, a)[0], arrays)
            got = _outcome(lambda a, f=compiled: f(*a), arrays)
            about = f"{[str(p.type) for p in func.params]} at n = {n}"
            assert (want is None) == (got is None), about
            if want is not None:
                np.testing.assert_allclose(got, want, rtol=1e-6, err_msg=about)


WIDE = parameter("x", dt.f32, (4, N))
PLACES = full(0, dt.i64, (2, 3))


@pytest.mark.parametrize(
    "result",
    [
        item(apply("top_k", WIDE, k=3, axis=1, largest=True), 0).operands[0],
        apply("gather_elements", WIDE, PLACES, axis=0),
        apply("scatter_elements", WIDE, PLACES, full(1, dt.f32, (2, 3)), axis=0, monoid="add"),
        apply("slice", WIDE, start=(0, 1), shape=(4, 2), step=(1, 1)),
        apply("slice", WIDE, start=(0, 2), shape=(4, 3), step=(1, -1)),
    ],
    ids=lambda n: n.op,
)
def test_what_is_taken_has_to_be_there(result):
    """A size known only at the call must not let a program read or write past the end."""
    values = result if result.op != "top_k" else item(result, 0)
    func = Func("f", (WIDE,), (values,), ("r",))
    compiled = Compiler(use_cache=False)(func, Options())
    assert np.asarray(compiled(np.ones((4, 3), np.float32))).size
    for n in (0, 1, 2):
        arrays = [np.ones((4, n), np.float32)]
        with pytest.raises(Error, match="TC0605"):
            compiled(*arrays)
        with pytest.raises(Error, match="TC0605"):
            run(func, arrays)
