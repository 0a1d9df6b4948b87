"""What classifiers and regressors of ai.onnx.ml share: rows of features, post transforms of scores, labels of the best class."""

from __future__ import annotations

import math

import numpy as np

from tcomp.frontend.onnx import build
from tcomp.frontend.onnx.build import scalar, with_scalar
from tcomp.frontend.onnx.ops_activation import softmax_of
from tcomp.frontend.onnx.registry import Context
from tcomp.ir import dtype as dt
from tcomp.ir.dtype import DType
from tcomp.ir.graph import cast, full, reduce_keep, reshape
from tcomp.ir.node import Node
from tcomp.ir.ops import apply, constant

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")  # in the order of TreeEnsemble's numbers
_NEARLY_ZERO = 1e-7  # what SOFTMAX_ZERO leaves alone


def rows(c: Context, x: Node, dtype: DType = dt.f32) -> Node:
    """The features as [batch, features] of `dtype`; a vector is one row."""
    if x.type.rank not in (1, 2):
        raise c.broken(f"features of type {x.type}", "[batch, features]")
    return cast(x if x.type.rank == 2 else reshape(x, (1, x.type.shape[0])), dtype)


def features(x: Node, count: int) -> Node:
    """`x` whose rows are known to have `count` features."""
    return build.relabel(x, (x.type.shape[0], build.unify(x.type.shape[1], count)))


def matrix(c: Context, name: str, height: int, width: int) -> np.ndarray:
    """The attribute `name`, [height, width] in row-major order, as f32."""
    flat = np.array(c.reals(name), np.float32)
    if flat.size != height * width or not flat.size:
        raise c.broken(f"{flat.size} `{name}`", f"{height} x {width} of them")
    return flat.reshape(height, width)


def transform_of(c: Context) -> str:
    """The attribute `post_transform`."""
    how: str = c.string("post_transform", "NONE")
    if how not in TRANSFORMS:
        raise c.broken(f"post_transform {how!r}", f"one of {', '.join(TRANSFORMS)}")
    return how


def transformed(scores: Node, how: str) -> Node:
    """Scores [batch, classes] after a post transform."""
    match how:
        case "SOFTMAX":
            return softmax_of(scores, (1,))
        case "LOGISTIC":
            return apply("sigmoid", scores)
        case "SOFTMAX_ZERO":
            return _softmax_zero(scores)
        case "PROBIT":
            return _probit(scores)
    return scores


def _softmax_zero(scores: Node) -> Node:
    """A softmax in which scores of (nearly) zero keep out: they are scaled alone."""
    top = reduce_keep(scores, "max", (1,))
    away = with_scalar("gt", apply("abs", scores), _NEARLY_ZERO)
    e = apply("where", away, apply("exp", apply("sub", scores, top)), scalar(0, scores))
    still = apply("mul", scores, apply("exp", apply("neg", top)))
    return apply("div", apply("where", away, e, still), reduce_keep(e, "add", (1,)))


def _probit(p: Node) -> Node:
    """sqrt(2) * erfinv(2p - 1), by Winitzki's formula with onnxruntime's constants."""
    x = with_scalar("sub", with_scalar("mul", p, 2), 1)
    log = apply("log", apply("mul", apply("sub", scalar(1, x), x), with_scalar("add", x, 1)))
    v = with_scalar("add", with_scalar("mul", log, 0.5), 2 / (3.14159 * 0.147))
    inner = apply("sub", apply("mul", v, v), with_scalar("mul", log, 1 / 0.147))
    size = apply("sqrt", apply("sub", apply("sqrt", inner), v))
    signed = apply("where", with_scalar("lt", x, 0), apply("neg", size), size)
    return with_scalar("mul", signed, math.sqrt(2))


def both_classes(c: Context, score: Node, how: str, probability: bool) -> Node:
    """[batch, 2] from the positive class's score [batch, 1], as onnxruntime does: LOGISTIC gives the sigmoids of -s and s, other
    transforms nothing; then a `probability` (weights that are all positive) gives 1 - s and s, a decision value -s and s."""
    if how == "PROBIT":
        raise c.unsupported("post_transform PROBIT of a single score for two classes")
    if how == "LOGISTIC":
        return build.concat([apply("sigmoid", apply("neg", score)), apply("sigmoid", score)], 1)
    negative = apply("sub", scalar(1, score), score) if probability else apply("neg", score)
    return build.concat([negative, score], 1)


def labels_of(c: Context, name: str) -> np.ndarray:
    """The integer class labels of attribute `name`."""
    if c.strings("classlabels_strings", ()):
        raise c.unsupported("class labels that are strings", "train or convert the model with integer labels")
    return np.array(c.integers(name, ()), np.int64)


def best_label(scores: Node, labels: np.ndarray) -> Node:
    """The label of the first highest score of each row."""
    best = apply("argreduce", scores, monoid="max", axis=1, last=False, dtype=dt.i64)
    if np.array_equal(labels, np.arange(len(labels))):
        return best
    return apply("gather", constant(labels), best, axis=0)


def either_label(positive: Node, labels: np.ndarray) -> Node:
    """labels[1] where a condition [batch] holds, else labels[0]."""
    yes, no = (full(int(v), dt.i64, positive.type.shape) for v in (labels[1], labels[0]))
    return apply("where", positive, yes, no)
