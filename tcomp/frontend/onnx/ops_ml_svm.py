"""ai.onnx.ml: support vector machines. One product (or distance) by every support vector, then sums by coefficients.

Classifiers are pairs of classes: class i against j has a decision value, positive where i wins. Probabilities are Platt's
sigmoids of these values coupled by the second method of Wu, Lin and Weng (2004): the p that minimises the sum over pairs of
(r_ji p_i - r_ij p_j)^2 with sum 1, by libsvm's iteration with libsvm's end, so that results agree with it.
"""

from __future__ import annotations

import itertools

import numpy as np

from tcomp.frontend.onnx import build, regions
from tcomp.frontend.onnx.build import along, scalar, with_scalar
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
from tcomp.frontend.onnx.ops_ml_linear import linear_scores
from tcomp.frontend.onnx.registry import ML, Context, operator
from tcomp.ir import dtype as dt
from tcomp.ir.graph import broadcast, cast, full, reshape, transpose
from tcomp.ir.node import Node
from tcomp.ir.ops import apply, constant

_KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")
_CERTAIN = 1e-7  # pairwise probabilities stay this far from 0 and 1
_ERROR, _STEPS = 0.005, 100  # where libsvm stops coupling them: the error (by the number of classes), and at the latest


def _kernel(c: Context, x: Node, vectors: np.ndarray) -> Node:
    """[batch, vectors]: the kernel function of each row and each support vector."""
    name = c.string("kernel_type", "LINEAR")
    if name not in _KERNELS:
        raise c.broken(f"kernel_type {name!r}", f"one of {', '.join(_KERNELS)}")
    gamma, coef0, degree = (*c.reals("kernel_params", ()), 0.0, 0.0, 0.0)[:3]
    x = features(x, vectors.shape[1])
    if name == "RBF":
        shape = (x.type.shape[0], *vectors.shape)
        d = apply("sub", broadcast(x, shape, (0, 2)), broadcast(constant(vectors), shape, (1, 2)))
        squares = apply("reduce", apply("mul", d, d), monoid="add", axes=(2,))
        return apply("exp", with_scalar("mul", squares, -gamma))
    product = dot(x, constant(np.ascontiguousarray(vectors.T)), ((), ()), ((1,), (0,)))
    if name == "LINEAR":
        return product
    line = with_scalar("add", with_scalar("mul", product, gamma), coef0)
    return apply("tanh", line) if name == "SIGMOID" else _powered(line, degree)


def _powered(x: Node, degree: float) -> Node:
    if degree not in (2, 3):
        return with_scalar("pow", x, degree)
    square = apply("mul", x, x)
    return square if degree == 2 else apply("mul", square, x)


def _vectors(c: Context, count: int) -> np.ndarray:
    flat = c.reals("support_vectors")
    if count < 1 or len(flat) % count:
        raise c.broken(f"{len(flat)} numbers in {count} support vectors", "equally many in each")
    return matrix(c, "support_vectors", count, len(flat) // count)


@operator("SVMRegressor", domain=ML)
def svm_regressor(c: Context, x: Node) -> Node:
    """[batch, 1]: sum of coefficients times kernels, plus rho; of one class: 1 inside, -1 outside."""
    count, x, rho = c.integer("n_supports", 0), rows(c, x), np.array(c.reals("rho")[:1], np.float32)
    if count > 0:
        out = linear_scores(c, _kernel(c, x, _vectors(c, count)), matrix(c, "coefficients", 1, count), rho)
    else:
        out = linear_scores(c, x, matrix(c, "coefficients", 1, len(c.reals("coefficients"))), rho)
    if c.integer("one_class", 0):
        return apply("where", with_scalar("gt", out, 0), scalar(1, out), scalar(-1, out))
    return transformed(out, transform_of(c))


@operator("SVMClassifier", domain=ML)
def svm_classifier(c: Context, x: Node) -> tuple[Node, Node]:
    """(labels, scores): the scores are probabilities if the model has them, else decision values of the pairs."""
    labels, counts, x = labels_of(c, "classlabels_ints"), c.integers("vectors_per_class", ()), rows(c, x)
    if sum(counts) == 0:
        return _linear(c, x, labels)
    if len(counts) != len(labels) or len(labels) < 2:
        raise c.broken(f"{len(labels)} labels, {len(counts)} vectors_per_class", "one for each of two or more classes")
    pairs = list(itertools.combinations(range(len(labels)), 2))
    decisions = _decisions(c, x, counts, pairs)
    label, how = best_label(_votes(decisions, pairs, len(labels)), labels), transform_of(c)
    if c.reals("prob_a", ()):
        return label, transformed(_probabilities(c, decisions, pairs, len(labels)), how)
    if len(labels) == 2:
        return label, both_classes(c, decisions, how, probability=how != "NONE")
    return label, transformed(decisions, how)


def _linear(c: Context, x: Node, labels: np.ndarray) -> tuple[Node, Node]:
    """Without support vectors: one row of coefficients for each class."""
    width = len(c.reals("coefficients")) // max(1, len(labels))
    weights = matrix(c, "coefficients", len(labels), width)
    rho = np.full(len(labels), c.reals("rho")[0], np.float32)
    scores = linear_scores(c, x, weights, rho)
    label = best_label(scores, labels)
    if len(labels) == 2:
        top = apply("reduce", scores, monoid="max", axes=(1,))
        sure = with_scalar("ge", top, 0.5) if (weights >= 0).all() else with_scalar("gt", top, 0)
        label = apply("where", sure, either_label(sure, labels), label)
    return label, transformed(scores, transform_of(c))


def _decisions(c: Context, x: Node, counts: tuple[int, ...], pairs: list[tuple[int, int]]) -> Node:
    """[batch, pairs]: vectors of class i count by row j - 1 of the coefficients, those of class j by row i."""
    total, ends = sum(counts), np.cumsum((0, *counts))
    given = matrix(c, "coefficients", len(counts) - 1, total)
    rho = c.reals("rho")
    if len(rho) < len(pairs):
        raise c.broken(f"{len(rho)} rho of {len(pairs)} pairs of classes", "one for each")
    weights = np.zeros((len(pairs), total), np.float32)
    for row, (i, j) in zip(weights, pairs):
        row[ends[i] : ends[i + 1]] = given[j - 1, ends[i] : ends[i + 1]]
        row[ends[j] : ends[j + 1]] = given[i, ends[j] : ends[j + 1]]
    return linear_scores(c, _kernel(c, x, _vectors(c, total)), weights, np.array(rho[: len(pairs)], np.float32))


def _votes(decisions: Node, pairs: list[tuple[int, int]], classes: int) -> Node:
    """[batch, classes]: how many pairs each class wins."""
    won = cast(with_scalar("gt", decisions, 0), dt.f32)
    winner, loser = np.zeros((2, len(pairs), classes), np.float32)
    for k, (i, j) in enumerate(pairs):
        winner[k, i] = loser[k, j] = 1
    total = dot(won, constant(winner - loser), ((), ()), ((1,), (0,)))
    return apply("add", total, along(constant(loser.sum(0)), 1, total.type.shape))


def _probabilities(c: Context, decisions: Node, pairs: list[tuple[int, int]], classes: int) -> Node:
    """[batch, classes] from Platt's sigmoid of each decision value."""
    a, b = (np.array(c.reals(name)[: len(pairs)], np.float32) for name in ("prob_a", "prob_b"))
    if not len(a) == len(b) == len(pairs):
        raise c.broken(f"{len(a)} prob_a and {len(b)} prob_b of {len(pairs)} pairs of classes", "one for each")
    shape = decisions.type.shape
    line = apply("add", apply("mul", decisions, along(constant(a), 1, shape)), along(constant(b), 1, shape))
    r = cast(apply("sigmoid", apply("neg", line)), dt.f64)
    return cast(_coupled(c, with_scalar("min", with_scalar("max", r, _CERTAIN), 1 - _CERTAIN), pairs, classes), dt.f32)


def _coupled(c: Context, r: Node, pairs: list[tuple[int, int]], n: int) -> Node:
    """[batch, n]: p with sum 1 that minimises p'Qp, from r [batch, pairs], to an error of `_ERROR` / n."""
    q, diagonal = _quadratic(r, pairs, n)
    start = full(1 / n, dt.f64, diagonal.type.shape)

    def turn(step: Node, state: tuple[Node, ...]) -> tuple[Node, Node]:
        p = state[1]
        qp = apply("reduce", apply("mul", q, broadcast(p, q.type.shape, (0, 2))), monoid="add", axes=(2,))
        pqp = apply("reduce", apply("mul", p, qp), monoid="add", axes=(1,))
        away = apply("abs", apply("sub", qp, broadcast(pqp, qp.type.shape, (0,))))
        going = with_scalar("ge", apply("reduce", away, monoid="max", axes=(1,)), _ERROR / n)
        new = apply("where", broadcast(going, p.type.shape, (0,)), _swept(q, diagonal, p, qp, pqp), p)
        return apply("reduce", going, monoid="or", axes=(0,)), new

    return regions.loop(c, (full(True, dt.bool_), start), _STEPS, turn, conditional=True)[1]


def _quadratic(r: Node, pairs: list[tuple[int, int]], n: int) -> tuple[Node, Node]:
    """Q [batch, n, n] and its diagonal [batch, n]: -r_ji r_ij beside it, on it the sum over j of r_ji squared."""
    place, one = np.zeros((len(pairs), n * n)), np.zeros(n * n)
    for k, (i, j) in enumerate(pairs):
        place[k, i * n + j], place[k, j * n + i], one[j * n + i] = 1, -1, 1
    flat = dot(r, constant(place), ((), ()), ((1,), (0,)))
    shape = (r.type.shape[0], n, n)
    every = reshape(apply("add", flat, along(constant(one), 1, flat.type.shape)), shape)
    diagonal = apply("reduce", apply("mul", every, every), monoid="add", axes=(1,))
    beside = apply("neg", apply("mul", every, transpose(every, (0, 2, 1))))
    on = broadcast(constant(np.eye(n, dtype=np.bool_)), shape, (1, 2))
    return apply("where", on, broadcast(diagonal, shape, (0, 2)), beside), diagonal


def _swept(q: Node, diagonal: Node, p: Node, qp: Node, pqp: Node) -> Node:
    """p after one class at a time has taken its best value, the sum kept at 1."""
    shape = p.type.shape
    for i in range(int(shape[1])):
        qi, di = build.pick(qp, 1, i), build.pick(diagonal, 1, i)
        step = apply("div", apply("sub", pqp, qi), di)
        whole = with_scalar("add", step, 1)
        gain = apply("mul", step, apply("add", apply("mul", step, di), with_scalar("mul", qi, 2)))
        pqp = apply("div", apply("div", apply("add", pqp, gain), whole), whole)
        wide_step, wide = broadcast(step, shape, (0,)), broadcast(whole, shape, (0,))
        row = build.pick(q, 1, i)
        qp = apply("div", apply("add", qp, apply("mul", wide_step, row)), wide)
        own = along(constant(np.arange(int(shape[1])) == i), 1, shape)
        p = apply("div", apply("where", own, apply("add", p, wide_step), p), wide)
    return p
