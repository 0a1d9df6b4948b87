"""Kernels, strides, dilations and padding of convolutions and pooling, from an operator's attributes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tcomp.frontend.onnx.registry import Context
from tcomp.ir import index
from tcomp.ir.node import Dim


@dataclass(frozen=True, slots=True)
class Window:
    """One entry for each spatial axis. Widths of padding may be symbolic (`auto_pad` of a symbolic size). `number`: how many
    windows there are where the padding is made for that, in the shortest form."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    low: tuple[Dim, ...]
    high: tuple[Dim, ...]
    number: tuple[Dim, ...] | None = None

    @property
    def spans(self) -> tuple[int, ...]:
        """How far each window reaches."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations))


def window_of(c: Context, space: Sequence[Dim], kernel: Sequence[Dim], auto_pad: str = "") -> Window:
    """The window that the attributes of `c` describe over dimensions `space`; `auto_pad` stands for the attribute if given."""
    r = len(space)
    sizes = [k for k in kernel if isinstance(k, int) and k > 0]
    if len(sizes) != r or len(kernel) != r:
        raise c.broken(f"kernel {list(map(index.show, kernel))} over {r} axes", "a positive size for each")
    strides, dilations = c.integers("strides", (1,) * r), c.integers("dilations", (1,) * r)
    if len(strides) != r or len(dilations) != r or min((*strides, *dilations), default=1) < 1:
        raise c.broken(f"strides {strides} and dilations {dilations} over {r} axes", "a positive one for each")
    plain = Window(tuple(sizes), strides, dilations, (0,) * r, (0,) * r)
    auto = auto_pad or c.string("auto_pad", "NOTSET")
    low, high = _padding(c, plain, space, auto)
    number = tuple(index.ceildiv(d, s) for d, s in zip(space, strides)) if auto.startswith("SAME") else None
    return Window(plain.kernel, strides, dilations, low, high, number)


def _padding(c: Context, w: Window, space: Sequence[Dim], auto: str) -> tuple[tuple[Dim, ...], tuple[Dim, ...]]:
    r = len(space)
    if auto == "NOTSET":
        pads = c.integers("pads", (0,) * 2 * r)
        if len(pads) != 2 * r or min(pads, default=0) < 0:
            raise c.broken(f"pads {pads} over {r} axes", "two for each, not negative")
        return pads[:r], pads[r:]
    if auto == "VALID":
        return (0,) * r, (0,) * r
    if auto not in ("SAME_UPPER", "SAME_LOWER"):
        raise c.broken(f"auto_pad {auto!r}", "NOTSET, VALID, SAME_UPPER or SAME_LOWER")
    small, large = [], []
    for d, s, span in zip(space, w.strides, w.spans):
        total = _same(d, s, span)
        half = index.floordiv(total, 2)
        small.append(half)
        large.append(index.sub(total, half))
    upper = auto == "SAME_UPPER"
    return tuple(small if upper else large), tuple(large if upper else small)


def _same(d: Dim, stride: int, span: int) -> Dim:
    """The padding with which there are ceil(d / stride) windows."""
    if span == 1:
        return 0
    total = index.sub(index.add(index.mul(index.ceildiv(d, stride), stride), span - stride), d)
    return total if span >= stride else index.maximum(0, total)


def counts_past(w: Window, space: Sequence[Dim]) -> tuple[Dim, ...]:
    """How many windows there are along each axis where one that starts inside the data may reach past the padding.

    That is the smaller of ceil((d + low + high - span) / stride) + 1 and floor((d + low - 1) / stride) + 1: both are floors of
    d and a constant over the stride, so the smaller constant decides.
    """
    found = []
    for d, s, span, a, b in zip(space, w.strides, w.spans, w.low, w.high):
        past = index.minimum(0, index.add(b, s - span))
        found.append(index.add(index.floordiv(index.add(index.add(index.add(d, a), past), -1), s), 1))
    return tuple(found)
