"""TfIdfVectorizer on integers: how often each n-gram of a pool occurs in a sequence, with gaps between its tokens too."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tcomp.frontend.onnx import build
from tcomp.frontend.onnx.build import with_scalar
from tcomp.frontend.onnx.registry import Context, operator
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.graph import broadcast, cast, full, reshape
from tcomp.ir.node import Node
from tcomp.ir.ops import apply, constant


@dataclass(frozen=True, slots=True)
class Grams:
    """The n-grams of one length: their tokens [number, length], the place of each in the result, and its weight."""

    tokens: np.ndarray
    columns: np.ndarray
    weights: np.ndarray


def _pool(c: Context) -> tuple[list[Grams], int]:
    """The n-grams of the lengths that are asked for, and the size of the result."""
    if c.has("pool_strings"):
        raise c.unsupported("n-grams of strings")
    pool, starts = np.array(c.integers("pool_int64s"), np.int64), c.integers("ngram_counts")
    columns = np.array(c.integers("ngram_indexes"), np.int64)
    weights = np.array(c.reals("weights", (1.0,) * len(columns)), np.float32)
    ends = (*starts[1:], len(pool))
    sizes = [e - b for b, e in zip(starts, ends)]
    numbers = [size // n for n, size in enumerate(sizes, 1)]
    whole = all(size >= 0 and size % n == 0 for n, size in enumerate(sizes, 1))
    if not whole or sum(numbers) != len(columns) or len(weights) != len(columns) or min(columns, default=-1) < 0:
        raise c.broken(
            f"{len(pool)} tokens, n-grams from {list(starts)}, {len(columns)} places, {len(weights)} weights", "equal numbers"
        )
    found, first = [], 0
    for n, (begin, number) in enumerate(zip(starts, numbers), 1):
        span = slice(first, first + number)
        if c.integer("min_gram_length") <= n <= c.integer("max_gram_length") and number:
            found.append(Grams(pool[begin : begin + n * number].reshape(number, n), columns[span], weights[span]))
        first += number
    return found, int(columns.max()) + 1


def _counts(x: Node, grams: Grams, gap: int) -> Node:
    """[rows, number] of f32: how often each n-gram occurs with its tokens `gap` places apart."""
    rows, length = x.type.shape
    number, n = grams.tokens.shape
    places = index.maximum(index.sub(length, gap * (n - 1)), 0)
    shape = (rows, places, number)
    same = full(True, dt.bool_, shape)
    for k in range(n):
        start = 0 if places == 0 else gap * k  # nothing is read past the end
        token = broadcast(build.take(x, 1, start, places), shape, (0, 1))
        wanted = broadcast(constant(np.ascontiguousarray(grams.tokens[:, k])), shape, (2,))
        same = apply("and", same, apply("eq", token, wanted))
    return apply("reduce", cast(same, dt.f32), monoid="add", axes=(1,))


@operator("TfIdfVectorizer", since=9)
def tf_idf_vectorizer(c: Context, x: Node) -> Node:
    """Weights belong to n-grams, not to places in the result."""
    mode, skips = c.string("mode"), c.integer("max_skip_count")
    if mode not in ("TF", "IDF", "TFIDF") or x.type.rank not in (1, 2) or skips < 0:
        raise c.broken(
            f"mode {mode!r}, {skips} skips, an operand of type {x.type}", "TF, IDF or TFIDF, and a sequence or rows of them"
        )
    pool, size = _pool(c)
    flat = cast(reshape(x, (1, *x.type.shape)) if x.type.rank == 1 else x, dt.i64)
    rows = flat.type.shape[0]
    total = full(0, dt.f32, (rows, size))
    for grams in pool:
        gaps = range(1, 2 if grams.tokens.shape[1] == 1 else skips + 2)
        counts = _counts(flat, grams, 1)
        for gap in gaps[1:]:
            counts = apply("add", counts, _counts(flat, grams, gap))
        if mode == "IDF":
            counts = with_scalar("min", counts, 1)
        if mode != "TF":
            counts = apply("mul", counts, broadcast(constant(grams.weights), counts.type.shape, (1,)))
        at = broadcast(constant(grams.columns), counts.type.shape, (1,))
        total = apply("scatter_elements", total, at, counts, axis=1, monoid="add")
    return reshape(total, (*x.type.shape[:-1], size))
