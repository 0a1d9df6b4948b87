"""Which axes a Resize changes, and from what to what. Scales, sizes and the region of interest may be known while importing or be
data: then results have sizes that are data too, and a scale is a scalar of the program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from tcomp.frontend.onnx import build
from tcomp.frontend.onnx.build import scalar, with_scalar
from tcomp.frontend.onnx.data_numbers import Number, numbers
from tcomp.frontend.onnx.registry import Context
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.graph import cast
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import apply

Sizes: TypeAlias = Sequence[tuple[int, Dim]]  # axes and what they have


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis to be resized: sizes before and after, the scale (None: the sizes' quotient), the region of interest. `open`: only
    data says whether anything changes."""

    axis: int
    size: Dim
    result: Dim
    scale: Number | None
    open: bool = False
    start: Number = 0.0
    end: Number = 1.0

    @property
    def unchanged(self) -> bool:
        return self.size == self.result and self.scale in (1, None)


@dataclass(frozen=True, slots=True)
class Options:
    """The attributes of a Resize."""

    mode: str
    transform: str
    nearest: str
    cubic: float
    exclude: bool
    antialias: bool
    outside: float | None  # the value of what lies outside the region of interest


def by_scales(c: Context, axes: Sizes, scales: Node) -> list[Axis]:
    given = numbers(c, scales, "the list of scales")
    if len(given) != len(axes) or not all(isinstance(s, Node) or 0 < s < 2**31 for s in given):
        raise c.broken(f"scales {list(map(str, given))} for {len(axes)} axes", "a positive one for each")
    return [Axis(a, d, scaled(c, d, s), s, isinstance(s, Node)) for (a, d), s in zip(axes, given)]


def scaled(c: Context, d: Dim, scale: Number) -> Dim:
    """floor(d * scale)."""
    if isinstance(scale, Node):
        exact = apply("mul", cast(build.dimension(d, dt.i64), scale.type.dtype), scale)
        return _positive_scale(c, scale, apply("floor", exact))
    if isinstance(d, int):
        return int(np.floor(np.float32(d) * np.float32(scale)))
    ratio = Fraction(scale).limit_denominator(1024)
    if np.float32(float(ratio)) != np.float32(scale):
        ratio = Fraction(scale)  # else the scale is the rounded form of a small fraction, as 1/3 is
    return index.floordiv(index.mul(d, ratio.numerator), ratio.denominator)


def _positive_scale(c: Context, scale: Node, count: Node) -> Dim:
    """`count` as a size; the call fails where the scale is not a positive number."""
    good = apply("and", with_scalar("gt", scale, 0), with_scalar("lt", scale, 2.0**31))
    whole = cast(count, dt.i64)
    return c.size(apply("where", good, whole, scalar(-1, whole)), "the list of scales")


def by_sizes(c: Context, axes: Sizes, sizes: Node) -> list[Axis]:
    wanted = c.sizes(sizes, "the list of sizes")
    if len(wanted) != len(axes):
        raise c.broken(f"{len(wanted)} sizes for {len(axes)} axes", "one for each")
    policy = c.string("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return [Axis(a, d, e, None, c.facts.dims(sizes) is None) for (a, d), e in zip(axes, wanted)]
    known = [(d, e) for (_, d), e in zip(axes, wanted) if isinstance(d, int) and isinstance(e, int)]
    if len(known) == len(axes):
        return _one_known_scale(c, [a for a, _ in axes], known, policy)
    return _one_scale(c, axes, wanted, policy)


def _one_known_scale(c: Context, axes: Sequence[int], sizes: Sequence[tuple[int, int]], policy: str) -> list[Axis]:
    """One scale for all axes: the smallest or the largest that the sizes ask for."""
    if not all(v > 0 for pair in sizes for v in pair):
        raise c.broken(f"sizes {[e for _, e in sizes]} of {[d for d, _ in sizes]} in one scale", "positive ones")
    ratios = [float(e) / float(d) for d, e in sizes]
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    return [Axis(a, d, int(np.floor(scale * d + 0.5)), scale) for a, (d, _) in zip(axes, sizes)]


def _one_scale(c: Context, axes: Sizes, wanted: Sequence[Dim], policy: str) -> list[Axis]:
    """The same where a size is a symbol."""
    have = [build.dimension(d, dt.f64) for _, d in axes]
    scale = None
    for d, e in zip(have, wanted):
        ratio = apply("div", build.dimension(e, dt.f64), d)
        scale = ratio if scale is None else apply("min" if policy == "not_larger" else "max", scale, ratio)
    assert scale is not None
    counts = [apply("floor", with_scalar("add", apply("mul", scale, d), 0.5)) for d in have]
    results = [_positive_scale(c, scale, n) for n in counts]
    return [Axis(a, d, n, cast(scale, dt.f32), True) for (a, d), n in zip(axes, results)]


def with_regions(c: Context, work: list[Axis], axes: Sequence[int], roi: Node | None) -> list[Axis]:
    """The axes with their regions: all starts, then all ends, in the order of `axes`."""
    if roi is None:
        raise c.broken("no region of interest", "one for tf_crop_and_resize")
    ends = numbers(c, roi, "the region of interest")
    if len(ends) != 2 * len(axes):
        raise c.broken(f"{len(ends)} numbers for the region of interest", f"{2 * len(axes)}")
    places = [axes.index(w.axis) for w in work]
    return [replace(w, start=ends[k], end=ends[k + len(axes)]) for w, k in zip(work, places)]
