"""Ensembles of decision trees as tables, and the walk through them: all rows and trees together, a loop over the levels.

Nodes of all trees are numbered through; a leaf is its own child, so that a walk of the deepest tree's depth ends at leaves. A set
membership is a chain of equality tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tcomp.frontend.onnx import build, regions
from tcomp.frontend.onnx.registry import Context
from tcomp.ir import dtype as dt
from tcomp.ir.graph import broadcast, full
from tcomp.ir.node import Node
from tcomp.ir.ops import MONOIDS, apply, constant

COMPARISONS = ("le", "lt", "ge", "gt", "eq", "ne")
MAX_DEPTH = 1000  # of a tree; deeper ones are cycles or damaged files
MAX_WEIGHTS = 1 << 28  # of a table of leaves and targets


@dataclass(frozen=True, slots=True)
class Trees:
    """One entry for each node, but for `roots` (one for each tree) and `weights` [nodes, targets], zero (or the identity of the
    aggregation) where a node gives a target nothing."""

    features: np.ndarray
    modes: np.ndarray  # of indices into COMPARISONS; -1 for leaves
    splits: np.ndarray
    yes: np.ndarray
    no: np.ndarray
    missing: np.ndarray  # whether NaN follows `yes`
    roots: np.ndarray
    weights: np.ndarray

    def depth(self, c: Context) -> int:
        """The longest way from a root to a leaf; TC0203 where there is none (children in a cycle, or that are not there)."""
        places = np.concatenate([self.roots, self.yes, self.no])
        if not len(self.roots) or places.min() < 0 or places.max() >= len(self.modes):
            raise c.broken(f"{len(self.roots)} roots and children among {len(self.modes)} nodes", "roots and children that exist")
        level, depth = self.roots, 0
        while (inner := level[self.modes[level] >= 0]).size:
            level, depth = np.unique(np.concatenate([self.yes[inner], self.no[inner]])), depth + 1
            if depth > MAX_DEPTH:
                raise c.broken(f"trees of more than {MAX_DEPTH} levels", "trees without cycles")
        return depth


def leaf_weights(
    c: Context, aggregate: str, count: int, targets: int, at: np.ndarray, ids: Sequence[int], values: np.ndarray
) -> np.ndarray:
    """The table of weights [nodes, targets]: several for one node and target are combined."""
    if targets < 1 or any(not 0 <= i < targets for i in ids) or count * targets > MAX_WEIGHTS:
        raise c.broken(f"weights of {count} nodes for {targets} targets, ids {sorted(set(ids))[:8]}", "targets that exist")
    monoid = MONOIDS[monoid_of(aggregate)]
    identity = 0 if monoid.name == "add" else np.inf if monoid.name == "min" else -np.inf
    table = np.full((count, targets), identity, values.dtype)
    monoid.ufunc.at(table, (at, np.asarray(ids, np.int64)), values)
    return table


def monoid_of(aggregate: str) -> str:
    return "add" if aggregate in ("SUM", "AVERAGE") else aggregate.lower()


def without_members(t: Trees, sets: dict[int, np.ndarray]) -> Trees:
    """Nodes that test membership in a set become chains: equal to the first goes to `yes`, otherwise to the next test."""
    columns = {name: list(getattr(t, name)) for name in ("features", "modes", "splits", "yes", "no", "missing", "weights")}
    eq = COMPARISONS.index("eq")
    for node, members in sets.items():
        columns["modes"][node], columns["splits"][node] = eq, members[0]
        at = node
        for v in members[1:]:
            new = len(columns["modes"])
            for name, column in columns.items():
                column.append(column[node] if name != "no" else t.no[node])
            columns["splits"][new] = v
            columns["no"][at], at = new, new
    return replace(t, **{name: np.array(column, getattr(t, name).dtype) for name, column in columns.items()})


def walked(c: Context, t: Trees, x: Node) -> Node:
    """[batch, trees] of i32: the leaf that each row of x reaches in each tree."""
    shape = (x.type.shape[0], len(t.roots))
    width, least, most = x.type.shape[1], int(t.features.min()), int(t.features.max())
    if least < 0 or (isinstance(width, int) and most >= width):
        raise c.broken(f"features {least} to {most} of rows of {width}", "features that exist")
    at = broadcast(constant(t.roots.astype(np.int32)), shape, (1,))
    depth = t.depth(c)
    if not depth:
        return at
    return regions.loop(c, (at,), depth, lambda level, state: (_next(t, x, state[0]),))[0]


def _next(t: Trees, x: Node, at: Node) -> Node:
    """The child that each row goes to from each node; a leaf stays."""
    value = apply("gather_elements", x, _looked_up(t.features.astype(np.int32), at), axis=1)
    yes, no = (_looked_up(side.astype(np.int32), at) for side in (t.yes, t.no))
    return apply("where", _holds(t, value, at), yes, no)


def _looked_up(table: np.ndarray, at: Node) -> Node:
    """table[at]; a table of one value is that value."""
    if (table == table[0]).all():
        return full(table[0].item(), _dtype(table), at.type.shape)
    return apply("gather", constant(table), at, axis=0)


def _dtype(table: np.ndarray) -> dt.DType:
    found = dt.from_numpy(table.dtype)
    assert found is not None
    return found


def _holds(t: Trees, value: Node, at: Node) -> Node:
    """Whether the node's comparison holds, for the modes that occur."""
    split = _looked_up(t.splits, at)
    modes = sorted(set(t.modes[t.modes >= 0].tolist()))
    holds = apply(COMPARISONS[modes[0]], value, split)
    if len(modes) > 1:
        mode = _looked_up(t.modes.astype(np.int32), at)
        for m in modes[1:]:
            holds = apply("where", build.with_scalar("eq", mode, m), apply(COMPARISONS[m], value, split), holds)
    if t.missing.any():
        lost = apply("and", apply("isnan", value), _looked_up(t.missing, at))
        holds = apply("or", holds, lost)
    return holds


def aggregated(t: Trees, leaves: Node, aggregate: str) -> Node:
    """[batch, targets]: the weights of all leaves of a row, combined; 0 where no tree gives a target anything."""
    monoid, targets = monoid_of(aggregate), t.weights.shape[1]
    table = constant(t.weights if targets > 1 else t.weights[:, 0])
    found = apply("gather", table, leaves, axis=0)
    total = build.reduce(found, monoid, (1,), keep=targets == 1)
    if aggregate == "AVERAGE":
        return build.with_scalar("div", total, len(t.roots))
    if monoid == "add":
        return total
    nothing = np.inf if monoid == "min" else -np.inf
    return apply("where", build.with_scalar("eq", total, nothing), build.scalar(0, total), total)
