"""Elementwise operators: arithmetic, comparisons, logic, bits, rounding, casts."""

from __future__ import annotations

import numpy as np

from tcomp.frontend.onnx import build
from tcomp.frontend.onnx.build import aligned, pointwise, scalar, with_scalar
from tcomp.frontend.onnx.containers import Value
from tcomp.frontend.onnx.narrow import converted
from tcomp.frontend.onnx.registry import Context, operator
from tcomp.ir import dtype as dt
from tcomp.ir.dtype import DType
from tcomp.ir.graph import broadcast, cast, reshape
from tcomp.ir.node import Dim, Node
from tcomp.ir.ops import apply

for _onnx, _op in {
    "Abs": "abs", "Neg": "neg", "Floor": "floor", "Ceil": "ceil", "Round": "round", "Sqrt": "sqrt", "Exp": "exp", "Log": "log",
    "Sin": "sin", "Cos": "cos", "Tan": "tan", "Asin": "asin", "Acos": "acos", "Atan": "atan", "Sinh": "sinh", "Cosh": "cosh",
    "Tanh": "tanh", "Asinh": "asinh", "Acosh": "acosh", "Atanh": "atanh", "Erf": "erf", "Sigmoid": "sigmoid", "Sign": "sign",
    "Not": "not", "BitwiseNot": "not", "IsNaN": "isnan",
}.items():  # fmt: skip
    operator(_onnx)(lambda c, x, op=_op: apply(op, x))


@operator("Identity")
def identity(c: Context, x: Value) -> tuple[Value, ...]:
    return (x,)


@operator("Reciprocal")
def reciprocal(c: Context, x: Node) -> Node:
    return apply("div", scalar(1, x), x)


def legacy_operands(c: Context, x: Node, y: Node) -> tuple[Node, Node]:
    """Before opset 7 the second operand broadcasts only if `broadcast` is set, its axes starting at `axis`."""
    if not c.integer("broadcast", 0):
        return (x, y) if y.type.shape == x.type.shape else _broken_shapes(c, x, y)
    start = c.integer("axis", x.type.rank - y.type.rank)
    start = start + x.type.rank if start < 0 else start
    if not 0 <= start <= x.type.rank - y.type.rank:
        raise c.broken(f"axis {start} for operands of ranks {x.type.rank} and {y.type.rank}", "an axis that fits")
    axes = tuple(range(start, start + y.type.rank))
    return x, broadcast(build.relabel(y, tuple(x.type.shape[a] for a in axes)), x.type.shape, axes)


def _broken_shapes(c: Context, x: Node, y: Node) -> tuple[Node, Node]:
    raise c.broken(f"operands of types {x.type} and {y.type}", "equal shapes")


def _binary(name: str, op: str, on_integers: str) -> None:
    """Register an operator of two operands that is one operation of the table for floats and booleans, one for integers."""

    def chosen(x: Node) -> str:
        return on_integers if x.type.dtype.is_integer else op

    @operator(name)
    def legacy(c: Context, x: Node, y: Node) -> Node:
        return apply(chosen(x), *legacy_operands(c, x, y))

    @operator(name, since=7)
    def modern(c: Context, x: Node, y: Node) -> Node:
        return pointwise(chosen(x), x, y)


for _onnx, _op in {
    "Add": "add", "Sub": "sub", "Mul": "mul", "And": "and", "Or": "or", "Xor": "xor", "Equal": "eq", "Greater": "gt",
    "Less": "lt", "GreaterOrEqual": "ge", "LessOrEqual": "le", "BitwiseAnd": "and", "BitwiseOr": "or", "BitwiseXor": "xor",
}.items():  # fmt: skip
    _binary(_onnx, _op, _op)
_binary("Div", "div", "quotient")


@operator("Mod", since=10)
def mod(c: Context, x: Node, y: Node) -> Node:
    if c.integer("fmod", 0):
        return pointwise("rem", x, y)
    if x.type.dtype.is_float and c.opset < 28:
        raise c.broken("floats without fmod=1", "fmod=1")
    return pointwise("mod", x, y)


@operator("Pow")
def legacy_pow(c: Context, x: Node, y: Node) -> Node:
    return apply("pow", *legacy_operands(c, x, y))


@operator("Pow", since=7)
def power(c: Context, x: Node, y: Node) -> Node:
    """The result has the base's dtype; an integer base to a float power is computed in floats."""
    base, exponent = x.type.dtype, y.type.dtype
    wide = exponent if exponent.is_float and not base.is_float else base
    whole = c.constant(y)
    if whole is not None and whole.size == 1 and float(whole.reshape(())) == 2 and y.type.rank <= x.type.rank:
        return pointwise("mul", x, x)
    return cast(pointwise("pow", cast(x, wide), cast(y, wide)), base)


@operator("BitShift", since=11)
def bit_shift(c: Context, x: Node, y: Node) -> Node:
    direction = c.string("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise c.broken(f"direction {direction!r}", "LEFT or RIGHT")
    return pointwise("shl" if direction == "LEFT" else "shr", x, y)


@operator("IsInf", since=10)
def is_inf(c: Context, x: Node) -> Node:
    found = apply("isinf", x)
    if not c.integer("detect_negative", 1):
        found = apply("and", found, with_scalar("gt", x, 0))
    if not c.integer("detect_positive", 1):
        found = apply("and", found, with_scalar("lt", x, 0))
    return found


@operator("Where", since=9)
def where(c: Context, condition: Node, x: Node, y: Node) -> Node:
    return apply("where", *aligned(condition, x, y))


def _folded(op: str, xs: tuple[Node, ...]) -> Node:
    wide = aligned(*xs)
    total = wide[0]
    for x in wide[1:]:
        total = apply(op, total, x)
    return total


for _onnx, _op in {"Sum": "add", "Max": "max", "Min": "min"}.items():
    operator(_onnx)(lambda c, *xs, op=_op: _folded(op, xs))


@operator("Mean")
def mean(c: Context, *xs: Node) -> Node:
    total = _folded("add", xs)
    return with_scalar("div", total, len(xs))


@operator("Clip")
def clip_attributes(c: Context, x: Node) -> Node:
    info = np.finfo(np.float32)
    low, high = c.real("min", float(info.min)), c.real("max", float(info.max))
    if c.has("min"):
        x = with_scalar("max", x, low)
    return with_scalar("min", x, high) if c.has("max") else x


@operator("Clip", since=11)
def clip(c: Context, x: Node, low: Node | None = None, high: Node | None = None) -> Node:
    for op, bound in (("max", low), ("min", high)):
        if bound is None:
            continue
        if any(d != 1 for d in bound.type.shape):
            raise c.broken(f"a bound of type {bound.type}", "a scalar")
        x = apply(op, x, broadcast(reshape(bound, ()), x.type.shape, ()))
    return x


@operator("Cast")
def cast_to(c: Context, x: Node) -> Node:
    """Before opset 6 the attribute is a name."""
    if c.opset < 6 and c.attributes["to"].type == 3:
        return cast(x, _by_name(c, c.string("to")))
    return converted(c, x, c.dtype("to"))


def _by_name(c: Context, name: str) -> DType:
    names = {"FLOAT": dt.f32, "DOUBLE": dt.f64, "FLOAT16": dt.f16, "BOOL": dt.bool_}
    names |= {f"{'U' * (k == 'u')}INT{b}": dt.ALL[f"{k}{b}"] for k in "iu" for b in (8, 16, 32, 64)}
    if name not in names:
        raise c.unsupported(f"element type {name}")
    return names[name]


@operator("CastLike", since=15)
def cast_like(c: Context, x: Node, like: Node) -> Node:
    return converted(c, x, like.type.dtype)


@operator("BitCast", since=26)
def bit_cast(c: Context, x: Node) -> Node:
    target = c.dtype("to")
    if dt.bool_ in (target, x.type.dtype):
        if target.bits != x.type.dtype.bits:
            raise c.broken(f"{x.type.dtype} as {target}", "dtypes of one width")
        return cast(x, target)  # booleans are bytes 0 or 1
    return x if target == x.type.dtype else apply("bitcast", x, dtype=target)


def position(shape: build.Shape, axis: int, dtype: DType = dt.i64) -> Node:
    """The coordinate along `axis` of every element."""
    return apply("iota", shape=tuple(shape), axis=axis, dtype=dtype)


def steps(count: Dim, start: int, step: int, dtype: DType = dt.i64) -> Node:
    """start, start + step, ... (count of them)."""
    line = position((count,), 0, dtype)
    return with_scalar("add", with_scalar("mul", line, step), start)


def rotated(x: Node, bits: int) -> Node:
    """u32 with its bits moved up so far, the highest around to the lowest."""
    return apply("or", with_scalar("shl", x, bits), with_scalar("shr", x, 32 - bits))
