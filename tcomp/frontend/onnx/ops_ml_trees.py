"""ai.onnx.ml: TreeEnsembleRegressor, TreeEnsembleClassifier (one list of nodes, leaves among them) and TreeEnsemble (opset 5)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tcomp.frontend.onnx.build import along, pick, take, with_scalar
from tcomp.frontend.onnx.ml_scores import (
    TRANSFORMS,
    best_label,
    both_classes,
    either_label,
    labels_of,
    rows,
    transform_of,
    transformed,
)
from tcomp.frontend.onnx.ml_trees import COMPARISONS, Trees, aggregated, leaf_weights, walked, without_members
from tcomp.frontend.onnx.registry import ML, Context, operator
from tcomp.ir import dtype as dt
from tcomp.ir.graph import cast
from tcomp.ir.node import Node
from tcomp.ir.ops import apply, constant

_MODES = {"BRANCH_LEQ": 0, "BRANCH_LT": 1, "BRANCH_GTE": 2, "BRANCH_GT": 3, "BRANCH_EQ": 4, "BRANCH_NEQ": 5, "LEAF": -1}
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")  # in the order of TreeEnsemble's numbers
MEMBER = len(COMPARISONS)  # TreeEnsemble's number of BRANCH_MEMBER


def _numbers(c: Context, name: str) -> np.ndarray:
    """The attribute `name` as f32, or `name`_as_tensor with its own dtype."""
    wide = c.tensor(f"{name}_as_tensor", None)
    return np.asarray(wide).reshape(-1) if wide is not None else np.array(c.reals(name, ()), np.float32)


def _work(x: Node, *tables: np.ndarray) -> Any:
    """The precision of comparisons and sums: f64 if the features or the model are."""
    wide = x.type.dtype == dt.f64 or any(t.dtype == np.float64 for t in tables)
    return np.dtype(np.float64 if wide else np.float32)


def _trees(c: Context, kind: str, targets: int, aggregate: str, work: Any) -> Trees:
    """The tables of an ensemble given as one list of nodes; kind: `target` or `class`, the prefix of its weights."""
    names = ("nodeids", "treeids", "featureids", "truenodeids", "falsenodeids")
    node, tree, feature, yes, no = (np.array(c.integers(f"nodes_{n}"), np.int64) for n in names)
    splits, modes = _numbers(c, "nodes_values").astype(work), c.strings("nodes_modes")
    unknown = set(modes) - set(_MODES)
    if unknown or len({len(node), len(tree), len(feature), len(yes), len(no), len(splits), len(modes)}) != 1 or not len(node):
        raise c.broken(f"nodes_* of {len(node)} nodes, {len(splits)} values, modes {sorted(set(modes))}", "one entry for each")
    place = {key: k for k, key in enumerate(zip(tree.tolist(), node.tolist()))}
    if len(place) != len(node):
        raise c.broken("two nodes of one id in a tree", "each id once")
    mode = np.array([_MODES[m] for m in modes], np.int64)
    own = np.arange(len(node))
    yes, no = (
        np.array([place[t, n] if m >= 0 else k for k, t, n, m in zip(own, tree.tolist(), side.tolist(), mode)], np.int64)
        for side in (yes, no)
    )
    roots = np.flatnonzero(np.concatenate([[True], tree[1:] != tree[:-1]]))
    lost = np.array((*c.integers("nodes_missing_value_tracks_true", ()), *[0] * len(node))[: len(node)], np.bool_)
    weights, ids = _numbers(c, f"{kind}_weights").astype(work), c.integers(f"{kind}_ids", ())
    keys = list(zip(c.integers(f"{kind}_treeids", ()), c.integers(f"{kind}_nodeids", ())))
    if not len(weights) == len(ids) == len(keys):
        raise c.broken(f"{len(weights)} {kind}_weights, {len(ids)} {kind}_ids", "equally many")
    table = leaf_weights(c, aggregate, len(node), targets, np.array([place[k] for k in keys], np.int64), ids, weights)
    inner = mode >= 0
    return Trees(np.where(inner, feature, 0), mode, splits, yes, no, lost & inner, roots, table)


def _with_base(c: Context, scores: Node, base: np.ndarray) -> Node:
    if not len(base):
        return scores
    targets = scores.type.shape[1]
    if len(base) not in (1, targets):
        raise c.broken(f"{len(base)} base_values of {targets} scores", "one, or one for each")
    full = constant(np.resize(base, targets).astype(dt.to_numpy(scores.type.dtype)))
    return apply("add", scores, along(full, 1, scores.type.shape))


def _aggregate_of(c: Context) -> str:
    found: str = c.string("aggregate_function", "SUM")
    if found not in _AGGREGATES:
        raise c.broken(f"aggregate_function {found!r}", f"one of {', '.join(_AGGREGATES)}")
    return found


@operator("TreeEnsembleRegressor", domain=ML)
def tree_ensemble_regressor(c: Context, x: Node) -> Node:
    aggregate, targets, base = _aggregate_of(c), c.integer("n_targets", 1), _numbers(c, "base_values")
    work = _work(x, _numbers(c, "nodes_values"), _numbers(c, "target_weights"), base)
    trees, x = _trees(c, "target", targets, aggregate, work), rows(c, x, dt.from_numpy(work) or dt.f32)
    scores = aggregated(trees, walked(c, trees, x), aggregate)
    return cast(transformed(_with_base(c, scores, base), transform_of(c)), dt.f32)


@operator("TreeEnsembleClassifier", domain=ML)
def tree_ensemble_classifier(c: Context, x: Node) -> tuple[Node, Node]:
    """(labels, scores). Two classes whose weights are all of one class: that is the positive class's score; it is the only score
    if the weights name class 0."""
    labels, base, how = labels_of(c, "classlabels_int64s"), _numbers(c, "base_values"), transform_of(c)
    weights, ids = _numbers(c, "class_weights"), sorted(set(c.integers("class_ids", ())))
    work = _work(x, _numbers(c, "nodes_values"), weights, base)
    trees, x = _trees(c, "class", len(labels), "SUM", work), rows(c, x, dt.from_numpy(work) or dt.f32)
    scores = aggregated(trees, walked(c, trees, x), "SUM")
    positive = bool((weights >= 0).all())
    if len(labels) == 2 and ids == [0] and len(base) < 2:
        score = _with_base(c, take(scores, 1, 0, 1), base)
        return _positive(score, labels, positive), cast(both_classes(c, score, how, positive), dt.f32)
    scores = _with_base(c, scores, base)
    if len(labels) == 2 and ids == [1]:
        return _positive(take(scores, 1, 1, 1), labels, positive), cast(transformed(scores, how), dt.f32)
    ranked = _ranked(scores, ids) if not len(base) else scores
    return best_label(ranked, labels), cast(transformed(scores, how), dt.f32)


def _ranked(scores: Node, ids: list[int]) -> Node:
    """Scores in which classes that no leaf votes for come last."""
    absent = np.array([k not in ids for k in range(int(scores.type.shape[1]))])
    if not absent.any():
        return scores
    lowest = np.where(absent, -np.inf, 0).astype(dt.to_numpy(scores.type.dtype))
    return apply("add", scores, along(constant(lowest), 1, scores.type.shape))


def _positive(score: Node, labels: np.ndarray, probability: bool) -> Node:
    """The label of the positive class's score: weights that are all positive make a probability, others a decision value."""
    return either_label(with_scalar("gt", pick(score, 1, 0), 0.5 if probability else 0), labels)


@operator("TreeEnsemble", domain=ML, since=5)
def tree_ensemble(c: Context, x: Node) -> Node:
    """Interior nodes and leaves in lists of their own; everything in the precision of x."""
    aggregate, targets = _AGGREGATES[c.integer("aggregate_function", 1)], c.integer("n_targets")
    trees = _from_two_lists(c, targets, aggregate, dt.to_numpy(x.type.dtype))
    scores = aggregated(trees, walked(c, trees, rows(c, x, x.type.dtype)), aggregate)
    return transformed(scores, TRANSFORMS[c.integer("post_transform", 0)])


def _from_two_lists(c: Context, targets: int, aggregate: str, work: Any) -> Trees:
    names = ("featureids", "truenodeids", "falsenodeids", "trueleafs", "falseleafs")
    feature, yes, no, yes_leaf, no_leaf = (np.array(c.integers(f"nodes_{n}"), np.int64) for n in names)
    modes, splits = (np.asarray(c.tensor(f"nodes_{n}")).reshape(-1) for n in ("modes", "splits"))
    weights, ids = np.asarray(c.tensor("leaf_weights")).reshape(-1), c.integers("leaf_targetids")
    n, leaves = len(feature), len(weights)
    if len({n, len(yes), len(no), len(yes_leaf), len(no_leaf), len(modes), len(splits)}) != 1 or len(ids) != leaves:
        raise c.broken(f"nodes_* of {n} nodes, {len(splits)} splits, {leaves} leaves", "one entry for each")
    if (modes > MEMBER).any():
        raise c.broken(f"modes {sorted(set(modes.tolist()))}", f"0 to {MEMBER}")
    own = np.arange(n, n + leaves)
    yes, no = (np.concatenate([np.where(leaf != 0, n + side, side), own]) for side, leaf in ((yes, yes_leaf), (no, no_leaf)))
    lost = np.array((*c.integers("nodes_missing_value_tracks_true", ()), *[0] * n)[:n], np.bool_)
    table = leaf_weights(c, aggregate, n + leaves, targets, own, ids, weights.astype(work))
    columns = [(feature, 0), (modes.astype(np.int64), -1), (splits.astype(work), 0), (lost, False)]
    feature, modes_, splits, lost = (np.append(v, np.full(leaves, fill, v.dtype)) for v, fill in columns)
    trees = Trees(feature, modes_, splits, yes, no, lost, np.array(c.integers("tree_roots"), np.int64), table)
    return without_members(trees, _sets(c, modes, work)) if (modes == MEMBER).any() else trees


def _sets(c: Context, modes: np.ndarray, work: Any) -> dict[int, np.ndarray]:
    """The members that each BRANCH_MEMBER node tests: one run for each, NaN between runs."""
    values = np.asarray(c.tensor("membership_values")).reshape(-1).astype(work)
    ends = np.flatnonzero(np.isnan(values))
    runs = np.split(values, ends)
    runs = [r[1:] if k else r for k, r in enumerate(runs)]
    nodes = np.flatnonzero(modes == MEMBER)
    found = dict(zip(nodes.tolist(), runs))
    if len(found) != len(nodes) or any(not len(r) for r in found.values()):
        raise c.broken(f"{len(runs)} sets of {len(nodes)} BRANCH_MEMBER nodes", "one that is not empty for each")
    return found
