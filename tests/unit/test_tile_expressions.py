"""Windows: narrowing and substitution act on positions, and equal expressions are one node."""

from tcomp.ir import dtype as dt
from tcomp.ir import index as ix
from tcomp.ir import tile as t
from tcomp.ir.types import Buffer

N = ix.symbol("n")
X = Buffer("x", dt.f32, (N, 64))
BLOCK = ix.symbol("i", 0, None, 14)


def test_restrict_moves_positions_and_counts():
    e = t.load(X, (BLOCK + t.axis(0, 14), t.axis(1, 64)), (14, 64), (N - BLOCK, None))
    w = t.window(t.restrict(e, ((2, 4, None), (ix.symbol("j", 0, 63, 16), 16, None))))
    assert w.positions[0] is BLOCK + 2 + t.axis(0, 4)
    assert w.extents == (4, 16) and w.valid[1] is None
    assert w.valid[0] is ix.minimum(4, ix.maximum(N - BLOCK - 2, 0))


def test_restrict_reaches_through_a_dot_and_its_epilogue():
    a, b = t.load(X, (t.axis(0, 14), t.axis(1, 64)), (14, 64)), t.whole(Buffer("w", dt.f32, (64, 32)))
    e = t.pointwise("max", t.dot(a, b, t.full(0.0, dt.f32), "fma512_f32"), t.full(0.0, dt.f32))
    narrow = t.restrict(e, ((7, 7, None), (16, 16, None)))
    assert narrow.type.shape == (7, 16)
    assert narrow.operands[0].operands[0].type.shape == (7, 64)
    assert narrow.operands[0].operands[1].type.shape == (64, 16)


def test_zero_keeps_its_sign_in_identity():
    assert t.full(0.0, dt.f32) is not t.full(-0.0, dt.f32)
    assert t.full(float("nan"), dt.f32) is t.full(float("nan"), dt.f32)


def test_substitute_leaves_tile_axes():
    e = t.load(X, (BLOCK + t.axis(0, 14), 3), (14,))
    assert t.window(t.substitute(e, {BLOCK: 28})).positions == (t.axis(0, 14) + 28, 3)
