"""Sizes that meet in a broadcast: a program of two symbols beside one of one symbol and one of fixed sizes; ranges.

    TCOMP_NUM_THREADS=1 python tests/bench/variants.py [--seconds 0.3]

Times in microseconds, the shortest call. Run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tcomp


def scaled(x: Any, y: Any) -> Any:
    return np.tanh(x * y) + x


def attention(q: Any, k: Any, v: Any, *mask: Any) -> Any:
    s = q @ np.swapaxes(k, -1, -2) * 0.125 + (mask[0] if mask else 0.0)
    e = np.exp(s - s.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True)) @ v


QKV = ("f32[n, 8, 128, 64]",) * 3
CASES: tuple[tuple[str, Callable[..., Any], tuple[str, ...], int], ...] = (
    ("three rows", lambda x, y: x + y, ("f32[n, 4]", "f32[m, 4]"), 3),
    ("rows", scaled, ("f32[n, 256]", "f32[m, 256]"), 1000),
    ("columns", scaled, ("f32[256, n]", "f32[256, m]"), 1000),
    ("mask", attention, (*QKV, "f32[m, 1, 1, 128]"), 4),
)


def shortest(f: Callable[..., Any], arrays: list[np.ndarray], seconds: float) -> float:
    """The shortest call, in microseconds; short ones in groups."""
    f(*arrays)
    start = time.perf_counter()
    f(*arrays)
    group = max(1, int(2e-5 / max(time.perf_counter() - start, 1e-9)))
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(group):
            f(*arrays)
        best = min(best, (time.perf_counter() - start) / group)
    return best * 1e6


def compiled(f: Callable[..., Any], specs: tuple[str, ...], **sizes: object) -> Any:
    """The program with symbols replaced by sizes or other symbols."""
    texts = [re.sub(r"\b[nm]\b", lambda found: str(sizes[found[0]]), s) for s in specs]
    return tcomp.compile(f, *map(tcomp.spec, texts))


def arrays_for(specs: tuple[str, ...], n: int, m: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = [[{"n": n, "m": m}.get(d) or int(d) for d in s[s.index("[") + 1 : -1].split(", ")] for s in specs]
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def meetings(seconds: float) -> None:
    """One symbol, two, and fixed sizes, where the sizes are equal and where one is 1."""
    print(f"{'case':12} {'n, m':>12} {'one symbol':>12} {'two symbols':>12} {'fixed':>10}")
    for name, f, specs, size in CASES:
        one, two = compiled(f, specs, n="n", m="n"), compiled(f, specs, n="n", m="m")
        for n, m in ((size, size), (size, 1)):
            given = arrays_for(specs, n, m)
            alone = f"{shortest(one, given, seconds):12.2f}" if n == m else " " * 12
            times = [shortest(p, given, seconds) for p in (two, compiled(f, specs, n=n, m=m))]
            print(f"{name:12} {f'{n}, {m}':>12} {alone} {times[0]:12.2f} {times[1]:10.2f}")


def ranges(seconds: float) -> None:
    """Attention over few positions: by the program for all sizes, and with variants for a promised range."""
    print(f"\n{'attention of':12} {'open':>10} {'range':>10}")
    texts = ("f32[8, 12, n, 64]",) * 3
    free, promised = compiled(attention, texts, n="n"), compiled(attention, texts, n="n=1..64")
    for n in (1, 2, 8, 16, 64):
        given = arrays_for(texts, n, 1)
        print(f"{n:12} {shortest(free, given, seconds):10.2f} {shortest(promised, given, seconds):10.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.3)
    seconds = parser.parse_args().seconds
    meetings(seconds)
    ranges(seconds)


if __name__ == "__main__":
    main()
