"""ai.onnx.ml: encoders of categories that are numbers. Strings and maps are refused."""

from __future__ import annotations

from typing import Any

import numpy as np

from tcomp.frontend.onnx import build
from tcomp.frontend.onnx.build import scalar
from tcomp.frontend.onnx.containers import Maps
from tcomp.frontend.onnx.ops_math import position
from tcomp.frontend.onnx.registry import ML, Context, operator
from tcomp.ir import dtype as dt
from tcomp.ir.graph import broadcast, cast, reshape
from tcomp.ir.node import Node
from tcomp.ir.ops import apply, constant


def _hits(x: Node, keys: np.ndarray) -> Node:
    """[*x, keys]: whether each element is each key; NaN is NaN."""
    shape = (*x.type.shape, len(keys))
    wide = broadcast(x, shape, tuple(range(x.type.rank)))
    found = apply("eq", wide, broadcast(constant(keys), shape, (x.type.rank,)))
    if keys.dtype.kind == "f" and np.isnan(keys).any():
        both = apply("and", apply("isnan", wide), broadcast(constant(np.isnan(keys)), shape, (x.type.rank,)))
        found = apply("or", found, both)
    return found


def _position(hits: Node, missing: int) -> Node:
    """The last key that is hit, `missing` where there is none."""
    axis = hits.type.rank - 1
    best = apply("argreduce", cast(hits, dt.i32), monoid="max", axis=axis, last=True, dtype=dt.i64)
    some = apply("reduce", cast(hits, dt.i32), monoid="max", axes=(axis,))
    return apply("where", apply("gt", some, scalar(0, some)), best, scalar(missing, best))


@operator("OneHotEncoder", domain=ML)
def one_hot_encoder(c: Context, x: Node) -> Node:
    """[*x, categories] of f32; a category that is not known gives zeros, or fails the call (`zeros` = 0)."""
    if c.strings("cats_strings", ()):
        raise c.unsupported("categories that are strings", "encode them as integers before the model")
    keys = np.array(c.integers("cats_int64s"), np.int64)
    hits = _hits(cast(x, dt.i64), keys)
    if c.integer("zeros", 1):
        return cast(hits, dt.f32)
    known = apply("gather", constant(np.arange(len(keys))), _position(hits, len(keys)), axis=0)  # fails where there is none
    shape, last = hits.type.shape, hits.type.rank - 1
    return cast(apply("eq", broadcast(known, shape, tuple(range(last))), position(shape, last)), dt.f32)


def _table(c: Context, what: str) -> np.ndarray:
    """The keys or values of a LabelEncoder, whichever attribute holds them."""
    if c.has(f"{what}_strings"):
        raise c.unsupported(f"{what} that are strings", "encode them as integers before the model")
    for name, read, dtype in (("int64s", c.integers, np.int64), ("floats", c.reals, np.float32)):
        if c.has(f"{what}_{name}"):
            return np.array(read(f"{what}_{name}"), dtype)
    return np.asarray(c.tensor(f"{what}_tensor")).reshape(-1)


def _default(c: Context, values: np.ndarray) -> Any:
    if c.has("default_tensor"):
        return np.asarray(c.tensor("default_tensor")).reshape(-1)[0]
    return c.integer("default_int64", -1) if values.dtype.kind in "iu" else c.real("default_float", -0.0)


@operator("LabelEncoder", domain=ML)
def string_encoder(c: Context, x: Node) -> Node:
    raise c.unsupported("classes that are strings (before opset 2)", "encode them as integers before the model")


@operator("LabelEncoder", domain=ML, since=2)
def label_encoder(c: Context, x: Node) -> Node:
    """Keys to values; of equal keys the last one counts."""
    keys, values = _table(c, "keys"), _table(c, "values")
    if len(keys) != len(values) or not len(keys):
        raise c.broken(f"{len(keys)} keys, {len(values)} values", "equally many")
    if dt.from_numpy(keys.dtype) != x.type.dtype:
        raise c.broken(f"keys of {keys.dtype} for {x.type}", "keys of the operand's dtype")
    table = np.append(values, np.array([_default(c, values)], values.dtype))
    return apply("gather", constant(table), _position(_hits(x, keys), len(keys)), axis=0)


def _refused(reason: str, hint: str) -> Any:
    def row(c: Context, *xs: Any) -> Node:
        raise c.unsupported(reason, hint)

    return row


@operator("ZipMap", domain=ML)
def zip_map(c: Context, x: Node) -> Maps:
    """A map from class labels to the numbers of each row; one row is a row of its own."""
    if c.has("classlabels_strings"):
        raise c.unsupported("class labels that are strings", "convert the model with the option zipmap=False")
    labels = np.array(c.integers("classlabels_int64s"), np.int64)
    if x.type.rank not in (1, 2) or build.unify(x.type.shape[-1], len(labels)) != len(labels):
        raise c.broken(f"an operand of type {x.type}, {len(labels)} labels", "a label for each column")
    return Maps(constant(labels), reshape(x, (1, *x.type.shape)) if x.type.rank == 1 else x)


operator("CastMap", "DictVectorizer", domain=ML)(_refused("its operand is a map", "give the model's features as tensors"))
operator("CategoryMapper", domain=ML)(_refused("categories that are strings", "encode them as integers before the model"))
