"""place keeps the meaning of tile values, carries and rows, and puts them where it says."""

import numpy as np
import pytest
import sample_kernels as k
from forms import agree, all_statements
from sample_kernels import Alloc, Buffer, By, Carry, For, Grid, GridAxis, Kernel, Let, Store, ax, f32, ix, t

from tcomp.errors import Error
from tcomp.ir.module import Module
from tcomp.ir.types import TileType
from tcomp.passes.place import place, place_kernel

M, N, K = (ix.symbol(s, 0, None) for s in "mnk")
ZERO, LOWEST = t.full(0.0, f32), t.full(float("-inf"), f32)


def tile(name, *shape):
    return t.ref(name, TileType(f32, shape))


def allocated(kernel):
    return {st.buffer.name: st.buffer for st in all_statements(place_kernel(kernel)) if isinstance(st, Alloc)}


@pytest.mark.parametrize("m", [1, 14, 16, 63, 64, 65, 200])
def test_softmax_with_a_row_on_the_stack(m):
    agree(k.softmax_kernel(), [{"n": 3, "m": m}])
    (row,) = allocated(k.softmax_kernel()).values()
    assert (row.name, row.shape, row.space) == ("e", (4096,), "stack")


def test_sample_kernels():
    for f, sizes in (
        (k.map_kernel, [{"n": n} for n in (0, 1, 9)]),
        (k.two_phase_kernel, [{"n": n} for n in (0, 1, 40)]),
        (k.convolution_kernel, [{}]),
    ):
        agree(f(), sizes)


def attention(n, d, rows=32, columns=48, over="in:s", qk=(8, 32), pv=(6, 32), exact_rows=False):
    """Flash attention for one head, all tiles on the stack (TILE): o = softmax(q k^T) v."""
    q, kk, v, o = (Buffer(x, f32, (n, d)) for x in ("q", "k", "v", "o"))
    i, j = ix.symbol("i", 0, None, rows), ix.symbol("j", 0, None, columns)
    r = rows if exact_rows else ix.minimum(rows, ix.sub(n, i))
    c = ix.minimum(columns, ix.sub(n, j))
    keys = t.load(kk, (j + ax(1, c), ax(0, d)), (d, c))
    m, total, acc, s, m1, p = tile("m", r), tile("l", r), tile("acc", r, d), tile("s", r, c), tile("m1", r), tile("p", r, c)
    decay = t.pointwise("exp", t.pointwise("sub", m, m1))
    body = (
        Let("s", t.dot(tile("q1", r, d), tile("k1", d, c), ZERO, "fma512_f32"), "stack", By(qk, "ji")),
        Let("m1", t.pointwise("max", m, t.reduce("max", s, 1)), "stack"),
        Let("decay", decay, "inline"),
        Let("p", t.pointwise("exp", t.pointwise("sub", s, t.expand(m1, 1))), over, By((64,))),
    )
    fade = tile("decay", r)
    yields = (
        m1,
        t.pointwise("add", t.pointwise("mul", total, fade), t.reduce("add", p, 1)),
        t.dot(p, t.load(v, (j + ax(0, c), ax(1, d)), (c, d)), t.pointwise("mul", acc, t.expand(fade, 1)), "fma512_f32"),
    )
    carry = (
        Carry("m", "m2", TileType(f32, (r,)), LOWEST, "stack"),
        Carry("l", "l2", TileType(f32, (r,)), ZERO, "stack"),
        Carry("acc", "acc2", TileType(f32, (r, d)), ZERO, "stack", By(pv)),
    )
    loop = For(j, 0, n, columns, (Let("k1", keys, "scratch", By((16, 16))), *body), carry, yields)
    query = t.load(q, (i + ax(0, r), ax(1, d)), (r, d))
    out = t.pointwise("div", tile("acc2", r, d), t.expand(tile("l2", r), 1))
    whole = (Let("q1", query, "stack", By((64,))), loop, Store(t.load(o, (i + ax(0, r), ax(1, d)), (r, d)), out, By((64,))))
    return Kernel("attention", (q, kk, v), (o,), () if isinstance(n, int) else (n,), (Grid((GridAxis(i, n, rows),), whole),))


@pytest.mark.parametrize("over", ["in:s", "stack"])
def test_attention_of_any_length(over):
    agree(attention(N, 16, over=over), [{"n": n} for n in (0, 1, 2, 31, 33, 48, 100)])


@pytest.mark.parametrize("n", [1, 17, 32, 50])
def test_attention_of_static_length(n):
    agree(attention(n, 20))


def test_attention_is_placed_in_place():
    kernel = attention(N, 16)
    names = set(allocated(kernel))
    assert names == {"q1", "k1", "s", "m1", "m", "l", "acc"}, "p lives over s, decay nowhere, no carry is copied"
    inner = next(st for st in all_statements(place_kernel(kernel)) if isinstance(st, For) and st.var["name"] == "j")
    assert [type(st).__name__ for st in inner.body] == ["Store", "Store", "For", "Store", "Store"] and not inner.carry
    row = inner.body[2]
    assert [st.name for st in row.body if isinstance(st, Let)], "what is stored for a row stays in a register"


def test_yields_are_ordered_by_what_they_read():
    """acc reads m and l, which are written by their own yields: it comes first."""
    kernel = attention(N, 16)
    inner = next(st for st in all_statements(place_kernel(kernel)) if isinstance(st, For) and st.var["name"] == "j")
    written = [st.window["buffer"].name for st in all_statements_of(inner) if isinstance(st, Store)]
    assert written.index("acc") < written.index("m") and written.index("l") < written.index("m")


def all_statements_of(st):
    return all_statements(Kernel("", (), (), (), (Grid((), (st,)),)))


def loop_kernel(shape, carried, body, yields, by=None, steps=3):
    """A loop that carries tiles of one shape from x on, added up into y."""
    x, y = Buffer("x", f32, shape), Buffer("y", f32, shape)
    carry = tuple(
        Carry(c, c + "2", TileType(f32, shape), t.pointwise("add", t.whole(x), t.full(float(i), f32)), "stack", by)
        for i, c in enumerate(carried)
    )
    loop = For(ix.symbol("s", 0, steps - 1), 0, steps, 1, body, carry, yields)
    total = tile(carried[0] + "2", *shape)
    for c in carried[1:]:
        total = t.pointwise("sub", t.pointwise("mul", total, t.full(2.0, f32)), tile(c + "2", *shape))
    out = Store(t.whole(y), total, By((64,)) if len(shape) == 1 else By((1, 64)))
    return Kernel("loop", (x,), (y,), (), (Grid((), (loop, out)),))


@pytest.mark.parametrize("shape", [(20,), (64,), (5, 20)])
def test_a_circle_of_carries_is_broken_by_a_second_buffer(shape):
    by = By((64,)) if len(shape) == 1 else None
    a, b, c = (tile(x, *shape) for x in "abc")
    kernel = loop_kernel(shape, "abc", (), (b, c, t.pointwise("add", a, b)), by)
    agree(kernel)
    assert len(allocated(kernel)) == 4


def test_a_carry_read_elsewhere_is_double_buffered():
    """acc = acc acc: the product reads all of what it would overwrite."""
    acc = tile("a", 16, 16)
    kernel = loop_kernel(
        (16, 16), "a", (), (t.dot(acc, t.pointwise("mul", acc, t.full(0.1, f32)), acc, "fma512_f32"),), By((8, 16))
    )
    assert len(allocated(kernel)) == 2
    placed = place_kernel(kernel)
    last = next(st for st in all_statements(placed) if isinstance(st, For)).body[-1]
    assert last.value.op == "load", "the copy back is in the text"


def test_register_carries_that_read_a_buffer_are_taken_before_it_changes():
    x, y = Buffer("x", f32, (20,)), Buffer("y", f32, ())
    a = tile("a", 20)
    carry = (
        Carry("a", "a2", TileType(f32, (20,)), t.whole(x), "stack", By((64,))),
        Carry("total", "total2", TileType(f32), ZERO),
    )
    yields = (t.pointwise("mul", a, t.full(2.0, f32)), t.pointwise("add", t.ref("total", TileType(f32)), t.reduce("add", a)))
    loop = For(ix.symbol("s", 0, 2), 0, 3, 1, (), carry, yields)
    kernel = Kernel("sum", (x,), (y,), (), (Grid((), (loop, Store(t.load(y, ()), t.ref("total2", TileType(f32))))),))
    agree(kernel)


def two_tiles(value, then, shape=(4, 20), space="in:a"):
    """a = 2 x; b = value, in a's place if that is right; y = then."""
    x, y = Buffer("x", f32, shape), Buffer("y", f32, shape)
    body = (
        Let("a", t.pointwise("mul", t.whole(x), t.full(2.0, f32)), "stack", By((64,))),
        Let("b", value, space, By((64,))),
        Store(t.whole(y), then, By((64,))),
    )
    return Kernel("two", (x,), (y,), (), (Grid((), body),))


A, B = tile("a", 4, 20), tile("b", 4, 20)


@pytest.mark.parametrize(
    "value,then,buffers",
    [
        (t.pointwise("exp", A), B, 1),
        (t.pointwise("exp", A), t.pointwise("add", A, B), 2),  # a is still alive
        (t.pointwise("sub", A, t.expand(t.reduce("max", A, 1), 1)), B, 2),  # reads a away from where it writes
    ],
)
def test_in_place_of_a_dead_tile(value, then, buffers):
    kernel = two_tiles(value, then)
    agree(kernel)
    assert len(allocated(kernel)) == buffers


def test_in_place_of_a_tile_that_the_next_trip_reads():
    x, y = Buffer("x", f32, (20,)), Buffer("y", f32, (3, 20))
    s = ix.symbol("s", 0, 2)
    body = (
        Let("b", t.pointwise("add", tile("a", 20), t.position(s, f32)), "in:a", By((64,))),
        Store(t.load(y, (s, ax(0, 20)), (20,)), tile("b", 20), By((64,))),
    )
    first = Let("a", t.whole(x), "stack", By((64,)))
    agree(Kernel("trips", (x,), (y,), (), (Grid((), (first, For(s, 0, 3, 1, body))),)))


def test_neighbours_share_a_row_loop():
    """Row sums, a map that uses them, and a store of another number of rows, which does not join."""
    x, y, z, w = (Buffer(b, f32, s) for b, s in (("x", (M, 40)), ("y", (M, 40)), ("z", (M,)), ("w", (M + 1, 40))))
    i = ix.symbol("i", 0, None, 8)
    r = ix.minimum(8, ix.sub(M, i))
    rows = t.load(x, (i + ax(0, r), ax(1, 40)), (r, 40))
    body = (
        Let("sums", t.reduce("add", rows, 1), "stack"),
        Store(t.load(y, (i + ax(0, r), ax(1, 40)), (r, 40)), t.pointwise("sub", rows, t.expand(tile("sums", r), 1)), By((64,))),
        For(ix.symbol("e", 0, None), 0, r, 1, (Store(t.load(z, (ix.symbol("e", 0, None) + i,)), t.full(1.0, f32)),)),
        Store(t.load(w, (ax(0, 3), ax(1, 40)), (3, 40)), t.full(2.0, f32), By((64,))),
    )
    kernel = Kernel("rows", (x,), (y, z, w), (M,), (Grid((GridAxis(i, M, 8),), body),))
    placed = place_kernel(kernel)
    loops = [st for st in placed.phases[0].body if isinstance(st, For)]
    assert [len(st.body) for st in loops] == [3, 1, 1]
    agree(kernel, [{"m": m} for m in (2, 8, 17)])


def test_rows_that_depend_on_each_other_do_not_share_a_loop():
    """The second store reads the row after the one that the first has just written."""
    x, y, z = Buffer("x", f32, (M, 20)), Buffer("y", f32, (M, 20)), Buffer("z", f32, (M, 20))
    back = t.load(y, (ix.sub(ix.sub(M, 1), ax(0, M)), ax(1, 20)), (M, 20))
    body = (Store(t.whole(y), t.pointwise("neg", t.whole(x)), By((64,))), Store(t.whole(z), back, By((64,))))
    agree(Kernel("flip", (x,), (y, z), (M,), (Grid((), body),)), [{"m": m} for m in (0, 1, 5)])


def test_rows_past_the_extent_are_zero():
    """A tile of rows whose number is known at run time only is filled before it is used."""
    fills = [st for st in place_kernel(attention(N, 16)).phases[0].body if isinstance(st, Store) and st.value.op == "full"]
    assert {st.window["buffer"].name for st in fills} >= {"q1", "s", "acc"}


def test_what_has_no_place_is_refused():
    x = Buffer("x", f32, (N,))
    grid = Grid((), (Let("a", t.whole(x), "stack", By((64,))),))
    with pytest.raises(Error, match="upper bound"):
        place_kernel(Kernel("bad", (x,), (), (N,), (grid,)))
    with pytest.raises(Error, match="in:nothing"):
        place_kernel(Kernel("bad", (x,), (), (N,), (Grid((), (Let("a", t.whole(x), "in:nothing"),)),)))


def test_stage():
    with pytest.raises(Error, match="TC0401"):
        place(Module("placed", "m"))
    assert place(Module("tile", "m", kernels=(k.softmax_kernel(),))).stage == "placed"


def test_outputs_of_attention_are_right():
    rng = np.random.default_rng(0)
    q, kk, v = (rng.standard_normal((50, 16)).astype(np.float32) for _ in range(3))
    (o,) = agree(attention(N, 16), [{"n": 50}], [q, kk, v])
    e = np.exp(q @ kk.T - (q @ kk.T).max(1, keepdims=True))
    assert np.allclose(o, e / e.sum(1, keepdims=True) @ v, atol=1e-4)
