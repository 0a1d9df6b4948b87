"""REG kernels through the emitter against the interpreter: loops, carries, masks, branches, memory."""

import numpy as np
import pytest
from reg import MACHINES, Native, check, kernel, window

from tcomp.ir import dtype as dt
from tcomp.ir import index, tile
from tcomp.ir.stmts import Alloc, Carry, Check, For, GridAxis, If, Let, Store
from tcomp.ir.tile import full, pointwise, ref
from tcomp.ir.types import Buffer, TileType

F32 = dt.f32
N = index.symbol("n", 0, 4096)


def loop(name, hi, step=1, lo=0, top=4096):
    return index.symbol(name, 0, top, step)


def chain(n, dtype=F32):
    """y = x * x + x, 64 wide and then masked 16 wide."""
    x, y = Buffer("x", dtype, (n,)), Buffer("y", dtype, (n,))
    main = index.sub(n, index.mod(n, 64))
    i, j = loop("i", main, 64), loop("j", n, 16)

    def body(at, width, valid):
        v = window(x, at, extents=(width,), valid=valid)
        value = pointwise("add", pointwise("mul", v, v), v)
        return Store(window(y, at, extents=(width,), valid=valid), value)

    return kernel(
        [x],
        [y],
        For(i, 0, main, 64, (body(i, 64, None),)),
        For(j, main, n, 16, (body(j, 16, index.sub(n, j)),)),
        symbols=[N] if n is N else [],
        name=f"chain_{index.show(n)}_{dtype}",
    )


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("n", [0, 1, 16, 63, 64, 200])
def test_a_pointwise_loop_of_static_size(n, machine):
    check(chain(n), MACHINES[machine])


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("dtype", list(dt.ALL.values()), ids=str)
def test_a_pointwise_loop_of_any_size(dtype, machine):
    if dtype.kind == "bool":
        pytest.skip("no arithmetic")
    k = chain(N, dtype)
    run = Native(k, MACHINES[machine])
    for n in (0, 1, 15, 16, 17, 64, 129, 1000):
        check(k, symbols={"n": n}, native=run)
