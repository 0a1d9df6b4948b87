"""Index expressions: canonical form, bounds and divisibility agree with plain integers."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tcomp.ir import index as ix

N = ix.symbol("n", 0, 40)
BLOCK = ix.symbol("i", 0, 96, multiple=16)
K = ix.symbol("k", 0, 15)
SYMBOLS = {"n": range(0, 41, 5), "i": range(0, 97, 16), "k": (0, 1, 7, 15)}


def test_equal_forms_are_one_node():
    assert (N + 3) * 2 - N is N + 6
    assert N * (N + 1) is N * N + N
    assert N - N == 0
    assert ix.floordiv(BLOCK + K, 16) is ix.floordiv(BLOCK, 16)
    assert ix.mod(BLOCK + K, 16) is K
    assert ix.mod(BLOCK * 3, 16) == 0
    assert ix.minimum(N, 64) is N
    assert ix.floordiv(N * K, N) is K
    assert ix.less(K, 16) == 1


def test_bounds():
    assert ix.bounds(BLOCK + 2 * K - 5) == (-5, 121)
    assert ix.bounds(ix.minimum(32, N - 8)) == (-8, 32)
    assert ix.bounds(ix.symbol("m") * 2) == (0, None)
    assert ix.multiple_of(2 * BLOCK + 8) == 8


def expressions() -> st.SearchStrategy:
    leaves = st.one_of(st.sampled_from([N, BLOCK, K]), st.integers(-9, 9))
    positive = st.integers(1, 20)

    def grow(inner):
        pair = st.tuples(inner, inner)
        return st.one_of(
            pair.map(lambda p: ix.add(*p)),
            pair.map(lambda p: ix.sub(*p)),
            pair.map(lambda p: ix.mul(*p)),
            pair.map(lambda p: ix.minimum(*p)),
            pair.map(lambda p: ix.maximum(*p)),
            pair.map(lambda p: ix.equal(*p)),
            st.tuples(inner, positive).map(lambda p: ix.floordiv(*p)),
            st.tuples(inner, positive).map(lambda p: ix.mod(*p)),
        )

    return st.recursive(leaves, grow, max_leaves=8)


def values():
    return (dict(zip(SYMBOLS, v)) for v in itertools.product(*SYMBOLS.values()))


@settings(max_examples=150, deadline=None)
@given(expressions(), expressions(), st.integers(1, 20))
def test_arithmetic_agrees_with_integers(a, b, d):
    made = {"add": ix.add(a, b), "mul": ix.mul(a, b), "div": ix.floordiv(a, d), "mod": ix.mod(a, d), "min": ix.minimum(a, b)}
    for v in itertools.islice(values(), 0, None, 7):
        x, y = ix.evaluate(a, v), ix.evaluate(b, v)
        want = {"add": x + y, "mul": x * y, "div": x // d, "mod": x % d, "min": min(x, y)}
        for name, e in made.items():
            got = ix.evaluate(e, v)
            assert got == want[name], (name, ix.show(a), ix.show(b), v)
            lo, hi = ix.bounds(e)
            assert (lo is None or lo <= got) and (hi is None or got <= hi), (name, ix.show(e), v)
            assert ix.multiple_of(e) == 0 or got % ix.multiple_of(e) == 0


@settings(max_examples=80, deadline=None)
@given(expressions())
def test_substitution(e):
    swapped = ix.substitute(e, {N: ix.add(K, 3), K: 2})
    for k, i in itertools.product(SYMBOLS["k"], SYMBOLS["i"]):
        assert ix.evaluate(swapped, {"k": k, "i": i}) == ix.evaluate(e, {"n": k + 3, "k": 2, "i": i})


@pytest.mark.parametrize("n", [0, 1, 7, 33])
def test_symbolic_divisor(n):
    m = ix.symbol("m", 1, 9)
    e = ix.floordiv(ix.mul(N, m) + m, m)
    assert e is N + 1
    for v in range(1, 10):
        assert ix.evaluate(ix.mod(N, m), {"n": n, "m": v}) == n % v


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_the_size_of_a_broadcast(count):
    """Sizes that are equal or 1 give what NumPy's rule says, 0 too; where one cannot be 1 it is that one."""
    symbols = [ix.symbol(f"s{k}") for k in range(count)]
    size = ix.broadcast(*symbols)
    assert ix.broadcast(*reversed(symbols)) is size and (count > 1 or size is symbols[0])
    for n in (0, 1, 2, 7):
        for sizes in itertools.product((1, n), repeat=count):
            want = n if n in sizes else 1
            assert ix.evaluate(size, {f"s{k}": d for k, d in enumerate(sizes)}) == want
    assert ix.bounds(size)[0] == 0
    large = ix.symbol("large", 2, 9)
    assert ix.broadcast(*symbols, large) is large and ix.broadcast(*symbols, 5) == 5 and ix.broadcast(1, *symbols) is size
