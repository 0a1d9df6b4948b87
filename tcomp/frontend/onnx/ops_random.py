"""Random numbers: RandomUniform, RandomNormal, their Likes, Multinomial, Dropout, from a generator in the GRAPH's own integers.

Element k of a node's numbers is Threefry-2x32 with 20 rounds of the counter k under a key (Salmon, Moraes, Dror, Shaw: Parallel
Random Numbers: As Easy as 1, 2, 3; SC 2011). The key is the `seed` attribute, or without one a hash of the node's place in the
graph: a program gives the same numbers in every call. In a loop the numbers of every turn are others.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from tcomp.frontend.onnx import build, protos
from tcomp.frontend.onnx.build import scalar, with_scalar
from tcomp.frontend.onnx.facts import FOLD_BYTES
from tcomp.frontend.onnx.ops_math import position, rotated
from tcomp.frontend.onnx.registry import Context, operator
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.dtype import DType
from tcomp.ir.graph import broadcast, cast, full, reshape
from tcomp.ir.node import Node
from tcomp.ir.ops import apply, constant

Words = tuple[Node, Node]  # two tensors of u32
T = TypeVar("T")

_ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
_PARITY = 0x1BD11BDA
_ROUNDS = 20
_SEEDED, _UNSEEDED = 0, 1  # the second word of the key of a node with a seed, the first of one without
_GOLDEN = 0x9E3779B9  # 2^32 by the golden ratio: multiples of it are far from one another


@dataclass(frozen=True, slots=True)
class Arithmetic(Generic[T]):
    """What the generator needs of words: nodes of u32, or arrays where all is known."""

    add: Callable[[T, T], T]
    xor: Callable[[T, T], T]
    rotated: Callable[[T, int], T]
    word: Callable[[int, T], T]  # a number, as many as there are of another


NODES: Arithmetic[Node] = Arithmetic(lambda x, y: apply("add", x, y), lambda x, y: apply("xor", x, y), rotated, scalar)
ARRAYS: Arithmetic[np.ndarray] = Arithmetic(
    np.add, np.bitwise_xor, lambda x, bits: x << np.uint32(bits) | x >> np.uint32(32 - bits), lambda n, _: np.array(n, np.uint32)
)


def threefry(key: tuple[T, T], counter: tuple[T, T], on: Arithmetic[T]) -> tuple[T, T]:
    """Two words for each counter. Key and counters are of one shape."""
    third = on.xor(on.word(_PARITY, key[0]), on.xor(*key))
    keys = (*key, third)
    a, b = (on.add(x, k) for x, k in zip(counter, keys))
    for r in range(_ROUNDS):
        a = on.add(a, b)
        b = on.xor(a, on.rotated(b, _ROTATIONS[r % 8]))
        if r % 4 == 3:
            n = r // 4 + 1
            a = on.add(a, keys[n % 3])
            b = on.add(on.add(b, keys[(n + 1) % 3]), on.word(n, b))
    return a, b


def _key(c: Context) -> Words:
    if c.has("seed"):
        whole = c.attributes["seed"].type == protos.INT
        bits = c.integer("seed") & 0xFFFFFFFF if whole else int(np.float32(c.real("seed")).view(np.uint32))
        first, second = full(bits, dt.u32), full(_SEEDED, dt.u32)
    else:
        first, second = full(_UNSEEDED, dt.u32), full(zlib.crc32(c.place.encode()), dt.u32)
    for turn in c.facts.turns:
        step = cast(build.dimension(turn, dt.i64), dt.u32)
        second = apply("add", with_scalar("mul", second, _GOLDEN), with_scalar("add", step, 1))
    return first, second


def random_words(c: Context, shape: build.Shape, stream: int = 0) -> Words:
    """Two words of random bits for each element. Streams (0 and 1) are independent."""
    total, key = index.product(shape), _key(c)
    first, second = (c.constant(k) for k in key)
    small = total if isinstance(total, int) and 16 * total <= FOLD_BYTES else None
    if small is not None and first is not None and second is not None:  # in one go, without constants of what is between
        place = np.arange(small)
        high = (place >> 32).astype(np.uint32) + np.uint32(stream << 31)
        found = threefry((first, second), (place.astype(np.uint32), high), ARRAYS)
        return reshape(constant(found[0]), shape), reshape(constant(found[1]), shape)
    counter = position((total,), 0)
    above = with_scalar("add", cast(with_scalar("shr", counter, 32), dt.u32), stream << 31)
    wide = [broadcast(k, (total,), ()) for k in key]
    a, b = threefry((wide[0], wide[1]), (cast(counter, dt.u32), above), NODES)
    return reshape(a, shape), reshape(b, shape)


def _fraction(words: Words, t: DType) -> Node:
    """[0, 1): f64 of 53 bits, else f32 of as many bits as a number of type `t` has."""
    a, b = words
    if t == dt.f64:
        high = with_scalar("mul", cast(with_scalar("shr", a, 5), t), 2.0**26)
        return with_scalar("mul", apply("add", high, cast(with_scalar("shr", b, 6), t)), 2.0**-53)
    bits = {dt.f16: 11, dt.bf16: 8}.get(t, 24)
    return with_scalar("mul", cast(with_scalar("shr", a, 32 - bits), dt.f32), 2.0**-bits)


def uniform(c: Context, shape: build.Shape, t: DType) -> Node:
    """[0, 1), in f64 or f32."""
    return _fraction(random_words(c, shape), t)


def _normal(c: Context, shape: build.Shape, t: DType) -> Node:
    """Mean 0, deviation 1, in f64 or f32, by Box and Muller: a radius and an angle."""
    a, b = random_words(c, shape)
    if t == dt.f64:
        first = with_scalar("add", _fraction((a, b), t), 2.0**-54)
        second = _fraction(random_words(c, shape, 1), t)
    else:
        first = with_scalar("mul", with_scalar("add", cast(a, dt.f32), 0.5), 2.0**-32)
        second = with_scalar("mul", cast(b, dt.f32), 2.0**-32)
    radius = apply("sqrt", with_scalar("mul", apply("log", first), -2))
    return apply("mul", radius, apply("cos", with_scalar("mul", second, 2 * math.pi)))


def _uniform_between(c: Context, shape: build.Shape, t: DType) -> Node:
    low, high = c.real("low", 0.0), c.real("high", 1.0)
    return with_scalar("add", with_scalar("mul", uniform(c, shape, t), high - low), low)


def _normal_around(c: Context, shape: build.Shape, t: DType) -> Node:
    return with_scalar("add", with_scalar("mul", _normal(c, shape, t), c.real("scale", 1.0)), c.real("mean", 0.0))


def _distribution(name: str, draw: Callable[[Context, build.Shape, DType], Node]) -> None:
    def drawn(c: Context, shape: build.Shape, t: DType) -> Node:
        if not t.is_float or t.is_storage:
            raise c.broken(f"dtype {t}", "f16, bf16, f32 or f64")
        return cast(draw(c, shape, t), t)

    @operator(name)
    def row(c: Context) -> Node:
        shape = c.integers("shape")
        if any(d < 0 for d in shape):
            raise c.broken(f"shape {list(shape)}", "sizes")
        return drawn(c, c.bounded(shape), c.dtype("dtype", dt.f32))

    @operator(f"{name}Like")
    def like(c: Context, x: Node) -> Node:
        return drawn(c, x.type.shape, c.dtype("dtype", x.type.dtype))


_distribution("RandomUniform", _uniform_between)
_distribution("RandomNormal", _normal_around)


@operator("Multinomial", since=7)
def multinomial(c: Context, x: Node) -> Node:
    """[batch, samples] of classes, from [batch, classes] of logarithms of weights: where the running sum of the weights passes a
    fraction of all."""
    if x.type.rank != 2:
        raise c.broken(f"an operand of type {x.type}", "rank 2")
    batch, classes = x.type.shape
    wide = cast(x, dt.accumulator(x.type.dtype))
    most = broadcast(apply("reduce", wide, monoid="max", axes=(1,)), wide.type.shape, (0,))
    sums = apply("scan", apply("exp", apply("sub", wide, most)), monoid="add", axis=1, exclusive=False, reverse=False)
    shape = (batch, c.integer("sample_size", 1))
    total = broadcast(reshape(build.take(sums, 1, index.sub(classes, 1), 1), (batch,)), shape, (0,))
    at = apply("mul", cast(uniform(c, shape, dt.f32), total.type.dtype), total)
    at = apply("min", at, with_scalar("mul", total, 1 - 2.0**-22))  # below the sum, whichever way the product was rounded
    table = (*shape, classes)
    passed = apply("ge", broadcast(at, table, (0, 1)), broadcast(sums, table, (0, 2)))
    found = apply("reduce", cast(passed, dt.i64), monoid="add", axes=(2,))
    return cast(found, c.dtype("dtype", dt.i32))


@operator("Bernoulli", since=15)
def bernoulli(c: Context, p: Node) -> Node:
    """1 with probability p. (The function body of the onnx package has it the other way round; the text holds.)"""
    fraction = uniform(c, p.type.shape, dt.accumulator(p.type.dtype))
    return cast(apply("lt", fraction, cast(p, fraction.type.dtype)), c.dtype("dtype", p.type.dtype))


@operator("Dropout")
def dropout(c: Context, x: Node, ratio: Node | None = None, training: Node | None = None) -> tuple[Node, ...]:
    """The identity and a mask of ones; in training mode zeros for a share `ratio` of the elements, the others made larger."""
    mask = dt.bool_ if c.opset >= 10 else x.type.dtype
    rate = full(0.5, dt.f32) if ratio is None else reshape(ratio, ())
    on = full(False, dt.bool_) if training is None else reshape(training, ())
    on = apply("and", on, with_scalar("ne", rate, 0))
    if c.constant(on) is not None and not c.constant(on):
        return x, full(1, mask, x.type.shape)
    drawn = uniform(c, x.type.shape, dt.accumulator(x.type.dtype))
    wide = drawn.type.dtype
    off = broadcast(apply("not", on), x.type.shape, ())
    kept = apply("or", off, apply("ge", drawn, broadcast(cast(rate, wide), x.type.shape, ())))
    scale = apply("div", full(1, wide), apply("sub", full(1, wide), cast(rate, wide)))
    larger = cast(apply("mul", cast(x, wide), broadcast(scale, x.type.shape, ())), x.type.dtype)
    return apply("where", kept, apply("where", off, x, larger), build.scalar(0, x)), cast(kept, mask)
