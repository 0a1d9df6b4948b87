"""com.microsoft: crops, samples and windows of images."""

from __future__ import annotations

from tcomp.frontend.onnx import build
from tcomp.frontend.onnx.build import with_scalar
from tcomp.frontend.onnx.ops_math import position
from tcomp.frontend.onnx.ops_sample import grid_sample, sampled, taps_around
from tcomp.frontend.onnx.registry import MICROSOFT, Context, operator
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.graph import broadcast, cast, full, reshape, transpose
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import apply

operator("GridSample", domain=MICROSOFT)(grid_sample)


@operator("UnfoldTensor", domain=MICROSOFT)
def unfold_tensor(c: Context, x: Node) -> Node:
    """Windows of `size` along an axis, `step` apart; what is inside a window becomes a last axis."""
    axis, size, step = c.axis(c.integer("dim", -1), x.type.rank), c.integer("size"), c.integer("step", 1)
    if size < 1 or step < 1:
        raise c.broken(f"size {size}, step {step}", "positive ones")
    return apply("window", x, axes=(axis,), sizes=(size,), strides=(step,), dilations=(1,))


@operator("CropAndResize", domain=MICROSOFT)
def crop_and_resize(c: Context, x: Node, boxes: Node, batch: Node, size: Node) -> Node:
    """[boxes, C, *size]: each box (y1, x1, y2, x2; 0 to 1 from the first to the last pixel) sampled from corner to corner."""
    mode, outside = c.string("mode", "bilinear"), c.real("extrapolation_value", 0.0)
    if mode not in ("bilinear", "nearest") or x.type.rank != 4:
        raise c.broken(f"mode {mode!r} of {x.type}", "bilinear or nearest samples of images")
    number, n = boxes.type.shape[0], x.type.shape[0]
    high, wide = c.bounded(c.sizes(size, "the size of the crops"))
    image = apply("gather", x, build.normal_positions(cast(batch, dt.i64), n), axis=0)
    edges = [build.pick(cast(boxes, dt.f32), 1, k) for k in range(4)]
    ys, y_inside = _places(edges[0], edges[2], high, x.type.shape[2])
    xs, x_inside = _places(edges[1], edges[3], wide, x.type.shape[3])
    grid = (number, high, wide)
    flat = (number, index.mul(high, wide))
    points = [reshape(broadcast(v, grid, axes), flat) for v, axes in ((ys, (0, 1)), (xs, (0, 2)))]
    found = _linear(image, points) if mode == "bilinear" else _nearest(image, points)
    inside = apply("and", broadcast(y_inside, grid, (0, 1)), broadcast(x_inside, grid, (0, 2)))
    found = transpose(reshape(found, (*grid, x.type.shape[1])), (0, 3, 1, 2))
    inside = broadcast(inside, found.type.shape, (0, 2, 3))
    return cast(apply("where", inside, found, full(outside, dt.f32, found.type.shape)), x.type.dtype)


def _places(low: Node, high: Node, count: Dim, size: Dim) -> tuple[Node, Node]:
    """([boxes, count] pixels from one edge to the other, or their middle where count is 1; whether they are in the image)."""
    shape = (low.type.shape[0], count)
    last = broadcast(build.dimension(index.sub(size, 1), dt.f32), shape, ())
    a, b = broadcast(low, shape, (0,)), broadcast(high, shape, (0,))
    steps = broadcast(build.dimension(index.maximum(index.sub(count, 1), 1), dt.f32), shape, ())
    step = apply("div", apply("mul", apply("sub", b, a), last), steps)
    line = apply("add", apply("mul", a, last), apply("mul", position(shape, 1, dt.f32), step))
    middle = apply("mul", with_scalar("mul", apply("add", a, b), 0.5), last)
    single = broadcast(build.dimension(index.equal(count, 1), dt.bool_), shape, ())
    at = apply("where", single, middle, line)
    return at, apply("and", with_scalar("ge", at, 0), apply("le", at, last))


def _linear(image: Node, points: list[Node]) -> Node:
    return sampled(image, [taps_around(p, "linear") for p in points], "zeros", True, dt.f32)


def _nearest(image: Node, points: list[Node]) -> Node:
    """Halves up."""
    return sampled(image, [[(apply("floor", with_scalar("add", p, 0.5)), None)] for p in points], "zeros", True, dt.f32)
