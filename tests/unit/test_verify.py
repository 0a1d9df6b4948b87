"""Every rule of legality can be broken, and the fault is marked inside the printed IR."""

from dataclasses import replace

import numpy as np
import pytest
import sample_kernels as k
from sample_kernels import ZERO, Buffer, By, Carry, Check, For, Grid, GridAxis, If, Kernel, Launch, Let, N, Store, f32, ix, t

from tcomp.errors import Error
from tcomp.ir import dtype as dt
from tcomp.ir import graph as g
from tcomp.ir.module import Module
from tcomp.ir.node import node
from tcomp.ir.ops import apply, parameter
from tcomp.ir.stmts import Alias, Alloc, Call, Main, Reserve
from tcomp.ir.types import TensorType, TileType
from tcomp.ir.verify import verify

X, Y = Buffer("x", f32, (10,)), Buffer("y", f32, (10,))
OUT = t.whole(Y)
OWN = Buffer("own", f32, (10,), "stack")
I = ix.symbol("i", 0, 9)  # noqa: E741
SCALAR, TEN, SIXTEEN = TileType(f32), TileType(f32, (10,)), TileType(f32, (16,))


def window(buffer, start=0, extent=10, valid=None, other=None):
    return t.load(buffer, (start + t.axis(0, extent),), (extent,), (valid,), other)


def kernel(*body, **parts):
    """A kernel of one block."""
    made = Kernel("k", (X,), (Y,), (), (Grid((), body),))
    return replace(made, **parts)


FILL = Store(OUT, ZERO)


@pytest.mark.parametrize("stage, make", [(stage, f) for stage, fs in k.KERNELS.items() for f in fs])
def test_legal_kernels(stage, make):
    verify(Module(stage, "m", None, (make(),)))


def test_legal_main():
    verify(k.two_step_module())


LEGAL = {
    "an access in a loop without iterations": (For(I, 0, 0, 1, (Store(OUT, window(X, 5)),)), FILL),
    "a sum of masked lanes is a sum with zeros": (FILL, Let("a", t.reduce("add", window(X, 0, 16, 10)))),
    "the identity past the end": (
        FILL,
        Let("a", t.reduce("max", t.valid(window(X, 0, 16, 10), 10, k.LOWEST))),
    ),
    "memory that an earlier iteration wrote": (
        Alloc(OWN),
        For(I, 0, 2, 1, (Store(OUT, t.when(ix.less(0, I), t.whole(OWN), ZERO)), Store(t.whole(OWN), ZERO))),
    ),
    "own memory rounded up to its block": (
        Alloc(replace(OWN, order=((0, 0), (0, 16)))),
        Store(window(replace(OWN, order=((0, 0), (0, 16))), 0, 16), ZERO),
        FILL,
    ),
    "outside with an else": (Store(OUT, window(X, 5, 10, None, ZERO)),),
}


@pytest.mark.parametrize("name", LEGAL)
def test_legal(name):
    verify(Module("tile", "m", None, (kernel(*LEGAL[name]),)))


def carried(carry, yields, *body):
    return For(I, 0, 10, 1, body, carry, yields)


WRONG_AXIS = t.load(X, (ix.symbol("$0", 0, 3),), (10,))
ILLEGAL = {
    "a name twice": ((Let("a", ZERO), Let("a", ZERO), FILL), "the name `a` is bound twice"),
    "a value out of scope": ((If(ix.equal(N, 0), (Let("a", ZERO),)), Store(OUT, t.ref("a", SCALAR))), "`a` names no value here"),
    "a value of another type": ((Let("a", ZERO), Store(OUT, t.ref("a", TEN))), "`a` is of type f32, not f32[10]"),
    "no such buffer": ((Store(OUT, t.whole(OWN)),), "`own` is no buffer here"),
    "another buffer of the name": ((Store(OUT, window(Buffer("x", f32, (11,)))),), "another buffer named `x`"),
    "no such symbol": ((Store(OUT, t.position(I, f32)),), "the symbol `i` is not declared here"),
    "a symbol with other bounds": (
        (For(I, 0, 10, 1, (Store(OUT, t.position(ix.symbol("i", 0, 5), f32)),)),),
        "the symbol `i` with other bounds",
    ),
    "a tile axis with other bounds": ((Store(OUT, WRONG_AXIS),), "the tile axis $0"),
    "past the end": ((Store(OUT, window(X, 1)),), "`x` has 10 elements along axis 0; positions 1 to 10 is outside"),
    "before the start": ((Store(OUT, window(X, -1)),), "outside"),
    "past the end of own memory": ((Alloc(OWN), Store(window(OWN, 0, 11), ZERO), FILL), "`own` has 10 elements"),
    "an input written": ((Store(t.whole(X), ZERO), FILL), "`x` is an input"),
    "read before written": ((Alloc(OWN), Store(OUT, t.whole(OWN))), "`own` is read before it is written"),
    "an output never written": ((Let("a", ZERO),), "the output `y` is never written"),
    "another dtype": ((Store(OUT, t.full(1, dt.i64)),), "a value of i64 stored into `y`, of f32"),
    "another extent": ((Store(OUT, window(X, 0, 9)),), "a value of type f32[9] stored into a window of f32[10]"),
    "ranks that differ": ((Store(OUT, t.expand(window(X), 1)),), "stored into a window"),
    "a mixed pointwise operation": (
        (Store(OUT, node("add", (ZERO, t.full(1, dt.i64)), (), SCALAR)),),
        "`add` of f32 and i64",
    ),
    "a type that does not follow": ((Store(OUT, node("neg", (window(X),), (), SCALAR)),), "its operands give f32[10]"),
    "a movement of GRAPH": ((Store(OUT, node("reshape", (window(X),), (), TEN)),), "no operation on tiles"),
    "no identity past the end": (
        (FILL, Let("a", t.reduce("max", window(X, 0, 16, 10)))),
        "with 0.0 past its end; `valid` must give -inf",
    ),
    "another identity past the end": (
        (FILL, Let("a", t.reduce("add", t.pointwise("exp", window(X, 0, 16, 10))))),
        "with 1.0 past its end",
    ),
    "what is carried past the end": (
        (
            carried((Carry("a", "b", SIXTEEN, k.LOWEST),), (t.pointwise("max", t.ref("a", SIXTEEN), window(X, 0, 16, 10)),)),
            FILL,
            Let("m", t.reduce("max", t.ref("b", SIXTEEN))),
        ),
        "what is not known past its end",
    ),
    "a yield too few": ((carried((Carry("a", "b", SCALAR, ZERO),), ()), FILL), "0 yields for 1 carried values"),
    "a yield of another type": (
        (carried((Carry("a", "b", SCALAR, ZERO),), (window(X),)), FILL),
        "a yield of type f32[10] for `a`, of type f32",
    ),
    "a start of another type": ((carried((Carry("a", "b", SCALAR, window(X)),), (ZERO,)), FILL), "starts as f32[10]"),
    "values that the bounds deny": ((For(I, 0, 11, 1, (FILL,)),), "`i` takes values from 0 to 10 by 1"),
    "a step that the multiple denies": ((For(ix.symbol("j", 0, None, 4), 0, 8, 2, (FILL,)),), "which its bounds deny"),
    "a space that no block allocates": ((Alloc(replace(OWN, space="ws")), FILL), "memory in space ws"),
    "memory without capacity": ((Alloc(replace(OWN, shape=(N,))), FILL), "has no capacity"),
    "an order that forgets an axis": ((Alloc(replace(OWN, shape=(4, 4), order=((0, 0),))), FILL), "does not name each"),
    "an unknown routine": ((Call("frob", (OUT,), (t.whole(X),)),), "`frob` is no runtime routine"),
    "an unknown status": ((Check(0, 9, 0), FILL), "the status code 9"),
    "an unknown monoid": ((Store(OUT, ZERO, None, "avg"),), "`avg` is no monoid"),
    "over a value that is not": ((Let("a", window(X), "in:b"), FILL), "a value over `b`"),
    "a register tile without rows": ((Store(OUT, ZERO, By((0,))),), "a register tile of (0,)"),
    "a product that does not fit": (
        (Let("a", node("dot", (ZERO, ZERO, ZERO), (("intrinsic", "x"), ("unroll", 1)), SCALAR)), FILL),
        "a product of ranks 0 and 0",
    ),
    "an index of floats": ((Store(OUT, t.load(X, (ix.read(X, (0,)),))),), "an index read from `x`, of f32"),
}


def refuse(module, message, code="TC0302"):
    with pytest.raises(Error) as caught:
        verify(module)
    assert caught.value.code == code and message in str(caught.value), str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", ILLEGAL)
def test_illegal(name):
    body, message = ILLEGAL[name]
    refuse(Module("tile", "m", None, (kernel(*body, symbols=(N,)),)), message)


SQUARE = Buffer("s", f32, (16, 16))
PRODUCT = t.dot(t.whole(SQUARE), t.whole(SQUARE), ZERO, "fma512_f32")


def reg(value, *shape):
    """A kernel that stores `value` into s2 (16 x 16 unless it has another shape) from s."""
    out = Buffer("s2", f32, shape or (16, 16))
    return Kernel("k", (SQUARE,), (out,), (N,), (Grid((), (Store(t.whole(out), value),)),))


REGISTER = {
    "by": (kernel(Store(window(Y, 0, 10), ZERO, By((16,)))), "`by` at a stage where all is cut"),
    "a space": (kernel(Let("a", ZERO, "stack"), FILL), "a value in space stack"),
    "extents that are not whole vectors": (kernel(Store(OUT, window(X))), "a register value of type f32[10]"),
    "a dynamic extent": (
        kernel(Let("a", t.load(X, (t.axis(0, ix.minimum(N, 8)),), (ix.minimum(N, 8),))), FILL, symbols=(N,)),
        "its extents must be static",
    ),
    "a product inside": (reg(t.pointwise("neg", PRODUCT)), "`dot` inside a value"),
    "a branch inside": (reg(t.pointwise("neg", t.when(ix.less(N, 3), t.whole(SQUARE), ZERO))), "`when` inside a value"),
    "a reduction of rows": (reg(t.reduce("add", t.whole(SQUARE), 0), 16), "a reduction along axis 0"),
    "masked rows": (reg(t.load(SQUARE, (t.axis(0, 16), t.axis(1, 16)), (16, 16), (3, None))), "a mask on an axis"),
}


@pytest.mark.parametrize("name", REGISTER)
def test_register_form(name):
    made, message = REGISTER[name]
    refuse(Module("reg", "m", None, (made,)), message)


def test_register_form_allows_products_and_branches_at_the_root():
    verify(Module("reg", "m", None, (reg(PRODUCT),)))
    verify(Module("reg", "m", None, (reg(t.when(ix.less(N, 3), PRODUCT, t.whole(SQUARE))),)))


def test_the_mark_is_inside_the_text():
    broken = kernel(Let("a", ZERO), Store(OUT, t.ref("b", SCALAR)))
    text = refuse(Module("tile", "m", None, (broken,)), "`b` names no value here")
    shown = [line.removeprefix("  ") for line in text.splitlines()[-3:]]
    assert shown == ["    a = 0.0", "    store y[:] = b", "    ^^^^^^^^^^^^^^ `b` names no value here"]


# --- GRAPH ---------------------------------------------------------------------------------------------

P, Q = parameter("p", f32, (3,)), parameter("q", f32, (4,))


def func(*results, params=(P, Q), names=None):
    names = names or tuple(f"r{i}" for i in range(len(results)))
    return Module("graph", "m", g.Func("f", params, results, names))


GRAPHS = {
    "a type": (func(node("neg", (P,), (), TensorType(f32, (4,)))), "declared f32[4], inferred f32[3]"),
    "operands": (func(node("add", (P, Q), (), P.type)), "`add` of [3] and [4]"),
    "arity": (func(node("add", (P,), (), P.type)), "`add` of 1 operands; it takes 2"),
    "an operation": (func(node("frob", (P,), (), P.type)), "`frob` is no operation"),
    "an attribute": (func(node("neg", (P,), (("axis", 0),), P.type)), "no attribute `axis`"),
    "an attribute that is missing": (func(node("transpose", (P,), (), P.type)), "do not fit `transpose`"),
    "a parameter": (func(apply("neg", P), params=(Q,)), "the parameter `p` is not declared"),
    "two parameters": (func(P, params=(P, parameter("p", f32, (4,)))), "two parameters have one name"),
    "results": (func(P, Q, names=("a", "a")), "one name of its own"),
    "symbols": (
        func(params=(parameter("a", f32, (N,)), parameter("b", f32, (ix.symbol("n", 1),)))),
        "the symbol `n` has different bounds",
    ),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs(name):
    module, message = GRAPHS[name]
    refuse(module, message)


def test_the_mark_in_a_graph():
    wrong = node("neg", (P,), (), TensorType(f32, (4,)))
    assert "\n    %neg : f32[4] = neg %p\n    ^^^^" in refuse(func(wrong), "declared")


# --- main ----------------------------------------------------------------------------------------------

GIVEN, RESULT = Buffer("x", f32, (N, 100)), Buffer("y", f32, (N, 100))
A, B = Buffer("a", f32, (N, 100)), Buffer("b", f32, (N, 100))


def main(*body, arena=0, **parts):
    made = Main((GIVEN,), (RESULT,), (), (N,), body, arena)
    return Module("tile", "m", None, (k.map_kernel(),), replace(made, **parts))


def double(number, source, target, *after):
    return Launch("double", (source, target), (N,), number, after)


SIZE = N * 400
MAINS = {
    "no kernel": (main(Launch("frob", ("x", "y"), (N,), 0)), "there is no kernel `frob`"),
    "no buffer": (main(double(0, "z", "y")), "`z` is no buffer"),
    "arguments": (main(Launch("double", ("x",), (N,), 0)), "1 arguments for the 2 buffers"),
    "symbols": (main(Launch("double", ("x", "y"), (), 0)), "0 values for the 1 symbols"),
    "an undeclared symbol": (main(Launch("double", ("x", "y"), (k.M,), 0)), "the symbol `m` is not declared"),
    "dtype": (main(double(0, "x", "y"), outputs=(replace(RESULT, dtype=dt.i64),)), "`y` for `y`: i64"),
    "shape": (main(double(0, "x", "y"), inputs=(replace(GIVEN, shape=(N, 99)),)), "shape [n, 99] for [n, 100]"),
    "order": (main(Reserve(replace(A, order=((1, 0), (0, 0)))), double(0, "x", "a"), double(1, "a", "y")), "another order"),
    "a number twice": (main(double(0, "x", "y"), double(0, "x", "y")), "a second launch 0"),
    "waiting for nothing": (main(double(0, "x", "y", 7)), "it waits for launch 7"),
    "unwritten memory": (main(Reserve(A), double(0, "a", "y")), "`a` is read before it is written"),
    "an output": (main(), "the output `y` is never written"),
    "an input": (main(double(0, "x", "x"), double(1, "x", "y")), "it writes `x`, which is an input"),
    "in place": (main(Reserve(A), double(0, "x", "a"), double(1, "a", "a"), double(2, "a", "y")), "the same buffer"),
    "an alias of other size": (main(Alias(Buffer("z", f32, (N + 1, 100)), "x"), double(0, "x", "y")), "the same elements"),
    "an alias of nothing": (main(Alias(Buffer("z", f32, (N, 3)), "w"), double(0, "x", "y")), "`w` is no buffer"),
    "a buffer twice": (main(Reserve(A), Reserve(A), double(0, "x", "y")), "a second buffer named `a`"),
    "a constant": (main(double(0, "x", "y"), constants=(Buffer("w", f32, (3,)),)), "no constant `w`"),
    "not waiting for a value": (
        main(Reserve(A, 0), double(0, "x", "a"), double(1, "a", "y"), arena=SIZE),
        "it does not wait for launch 0: both use `a`",
    ),
    "not waiting for memory": (
        main(Reserve(A, 0), Reserve(B, 0), double(0, "x", "a"), double(1, "x", "b"), double(2, "b", "y", 1), arena=SIZE),
        "it does not wait for launch 0: `a` and `b`: bytes 0 to 400 of the arena at n = 1",
    ),
    "memory used again too soon": (
        main(
            Reserve(A, 0),
            Reserve(B, SIZE - 64),
            double(0, "x", "a"),
            double(1, "x", "b", 0),
            double(2, "a", "y", 1),
            arena=SIZE * 2,
        ),
        "after its memory was used again",
    ),
    "operands that share bytes": (
        main(Reserve(A, 0), Reserve(B, 8), double(0, "x", "a"), double(1, "a", "b", 0), double(2, "b", "y", 1), arena=SIZE * 2),
        "it writes `b` and uses `a`: bytes 8 to 400",
    ),
}


@pytest.mark.parametrize("name", MAINS)
def test_mains(name):
    module, message = MAINS[name]
    refuse(module, message)


def test_memory_used_again_in_order():
    steps = (double(0, "x", "a"), double(1, "a", "b", 0), double(2, "b", "c", 1), double(3, "c", "y", 2))
    c = Buffer("c", f32, (N, 100))
    verify(main(Reserve(A, 0), Reserve(B, SIZE), Reserve(c, 0), *steps, arena=SIZE * 2))


def test_launches_wait_through_others():
    steps = (double(0, "x", "a"), double(1, "a", "b", 0), Launch("double", ("b", "y"), (N,), 2, (1,)))
    verify(main(Reserve(A, 0), Reserve(B, SIZE), *steps, arena=SIZE * 2))


def test_a_constant_of_another_shape():
    module = main(double(0, "x", "y"), constants=(Buffer("w", f32, (3,)),))
    refuse(replace(module, constants={"w": np.zeros(4, np.float32)}), "the constant `w` is of shape (4,)")


def test_two_kernels_of_one_name():
    refuse(Module("tile", "m", None, (k.map_kernel(), k.map_kernel())), "several kernels are named `double`")


def test_an_unknown_stage():
    refuse(Module("loops", "m"), "an unknown stage")


def test_grid_axes_are_checked():
    made = Kernel("k", (), (Y,), (N,), (Grid((GridAxis(I, N, 0),), (FILL,)),))
    refuse(Module("tile", "m", None, (made,)), "a step that is not positive")
