"""ai.onnx.ml: linear models and what prepares their features (scaling, normalising, imputing, joining). Scores are f32."""

from __future__ import annotations

import numpy as np

from tcomp.frontend.onnx import build
from tcomp.frontend.onnx.build import along, normal_positions, pick, with_scalar
from tcomp.frontend.onnx.ml_scores import (
    best_label,
    both_classes,
    either_label,
    features,
    labels_of,
    matrix,
    rows,
    transform_of,
    transformed,
)
from tcomp.frontend.onnx.ops_linear import dot
from tcomp.frontend.onnx.registry import ML, Context, operator
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.graph import cast, reduce_keep, reshape
from tcomp.ir.node import Node
from tcomp.ir.ops import apply, constant


def linear_scores(c: Context, x: Node, weights: np.ndarray, intercepts: np.ndarray) -> Node:
    """[batch, targets]: x by each row of `weights`, plus an intercept for each target."""
    x = features(x, weights.shape[1])
    out = dot(x, constant(np.ascontiguousarray(weights.T)), ((), ()), ((1,), (0,)))
    return apply("add", out, along(constant(intercepts), 1, out.type.shape))


def _weights(c: Context, targets: int) -> np.ndarray:
    flat = c.reals("coefficients")
    if targets < 1 or len(flat) % targets:
        raise c.broken(f"{len(flat)} coefficients of {targets} targets", "equally many for each")
    return matrix(c, "coefficients", targets, len(flat) // targets)


@operator("LinearRegressor", domain=ML)
def linear_regressor(c: Context, x: Node) -> Node:
    weights = _weights(c, c.integer("targets", 1))
    intercepts = np.array(c.reals("intercepts", (0.0,) * len(weights)), np.float32)
    return transformed(linear_scores(c, rows(c, x), weights, intercepts), transform_of(c))


@operator("LinearClassifier", domain=ML)
def linear_classifier(c: Context, x: Node) -> tuple[Node, Node]:
    """(labels, scores). One score for two classes is the positive class's."""
    labels, how = labels_of(c, "classlabels_ints"), transform_of(c)
    intercepts = np.array(c.reals("intercepts", (0.0,) * len(labels)), np.float32)
    scores = linear_scores(c, rows(c, x), _weights(c, len(intercepts)), intercepts)
    if len(intercepts) == 1:
        pair = labels if len(labels) == 2 else np.array([0, 1])
        label = either_label(with_scalar("gt", pick(scores, 1, 0), 0), pair)
        return label, both_classes(c, scores, how, probability=True) if len(labels) == 2 else transformed(scores, how)
    if len(labels) != len(intercepts):
        raise c.broken(f"{len(labels)} labels of {len(intercepts)} scores", "one for each")
    return best_label(scores, labels), transformed(scores, how)


@operator("Scaler", domain=ML)
def scaler(c: Context, x: Node) -> Node:
    """(x - offset) * scale, each one number or one for each feature."""
    wide = cast(x, dt.f32)
    for name, op, neutral in (("offset", "sub", 0.0), ("scale", "mul", 1.0)):
        values = np.array(c.reals(name, (neutral,)), np.float32)
        wide = apply(op, wide, build.spread(constant(values), wide.type.shape))
    return wide


@operator("Normalizer", domain=ML)
def normalizer(c: Context, x: Node) -> Node:
    """Each row by its maximum, its sum of sizes, or its length; rows where that is zero stay."""
    norm, wide = c.string("norm", "MAX"), cast(x, dt.f32)
    if wide.type.rank not in (1, 2) or norm not in ("MAX", "L1", "L2"):
        raise c.broken(f"norm {norm!r} of {x.type}", "MAX, L1 or L2 of [batch, features]")
    axes = (wide.type.rank - 1,)
    if norm == "MAX":
        by = reduce_keep(wide, "max", axes)
    elif norm == "L1":
        by = reduce_keep(apply("abs", wide), "add", axes)
    else:
        by = apply("sqrt", reduce_keep(apply("mul", wide, wide), "add", axes))
    return apply("where", with_scalar("eq", by, 0), wide, apply("div", wide, by))


@operator("Binarizer", domain=ML)
def binarizer(c: Context, x: Node) -> Node:
    return cast(with_scalar("gt", x, c.real("threshold", 0.0)), x.type.dtype)


@operator("Imputer", domain=ML)
def imputer(c: Context, x: Node) -> Node:
    """Elements equal to one value (NaN included) replaced by another, or by one for each feature."""
    if x.type.dtype.is_float:
        old, new = c.real("replaced_value_float", 0.0), c.reals("imputed_value_floats")
        hit = apply("isnan", x) if np.isnan(old) else with_scalar("eq", x, old)
    else:
        old, new = c.integer("replaced_value_int64", 0), c.integers("imputed_value_int64s")
        hit = with_scalar("eq", x, old)
    values = constant(np.array(new, dt.to_numpy(x.type.dtype)))
    return apply("where", hit, build.spread(values, x.type.shape), x)


@operator("ArrayFeatureExtractor", domain=ML)
def array_feature_extractor(c: Context, x: Node, positions: Node) -> Node:
    """Columns of x; of a vector, one row of elements."""
    count = index.product(positions.type.shape)
    wide = x if x.type.rank > 1 else reshape(x, (1, index.product(x.type.shape)))
    flat = normal_positions(reshape(positions, (count,)), wide.type.shape[-1])
    return apply("gather", wide, flat, axis=wide.type.rank - 1)


@operator("FeatureVectorizer", domain=ML)
def feature_vectorizer(c: Context, *xs: Node) -> Node:
    """[batch, columns] of all operands side by side, as f32."""
    parts = [rows(c, x) for x in xs]
    sizes = c.integers("inputdimensions", ())
    if sizes and len(sizes) != len(parts):
        raise c.broken(f"{len(sizes)} inputdimensions of {len(parts)} operands", "one for each")
    parts = [features(x, n) for x, n in zip(parts, sizes)] if sizes else parts
    batch = parts[0].type.shape[0]
    for p in parts:
        batch = build.unify(batch, p.type.shape[0])
    return build.concat([build.relabel(p, (batch, p.type.shape[1])) for p in parts], 1)
