"""Prime numbers, which finite fields are made of: what is tested in such a field has no rounding."""

_BASES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)


def is_prime(n: int) -> bool:
    """The test of Miller and Rabin, with bases that decide all n below 3.3e24 and err on none met above."""
    if n < 2 or any(n % p == 0 for p in _BASES):
        return n in _BASES
    d, s = n - 1, 0
    while d % 2 == 0:
        d, s = d // 2, s + 1
    return all(_may_be_prime(pow(a, d, n), s, n) for a in _BASES)


def _may_be_prime(x: int, s: int, n: int) -> bool:
    """Whether x, a power of a base, or one of its s - 1 squares shows nothing against n."""
    return x in (1, n - 1) or any((x := x * x % n) == n - 1 for _ in range(s - 1))
