"""Dependent reductions as people write them: over tcomp's arrays, or over NumPy's (`n`)."""

import tcomp.numpy as xp


def softmax(x, n=xp):
    e = n.exp(x - n.max(x, axis=-1, keepdims=True))
    return e / n.sum(e, axis=-1, keepdims=True)


def variance(x, n=xp):
    d = x - n.mean(x, axis=-1, keepdims=True)
    return n.mean(d * d, axis=-1)


def entropy(x, n=xp):
    s = x - n.max(x, axis=-1, keepdims=True)
    e = n.exp(s)
    return n.log(n.sum(e, axis=-1)) - n.sum(e * s, axis=-1) / n.sum(e, axis=-1)


def maxsim(q, docs, n=xp):
    return n.sum(n.max(n.einsum("qd,nkd->nqk", q, docs), axis=-1), axis=-1)


def sampled(h, w, noise, n=xp):
    return n.argmax(n.matmul(h, w) + noise, axis=-1)
