"""Einsums: at once, or as part of a compiled function. The order of contraction is chosen by the sizes."""

import numpy as np

import tcomp
import tcomp.numpy as tnp

rng = np.random.default_rng(0)
a, b, c = (rng.standard_normal(s).astype(np.float32) for s in ((8, 64), (64, 96), (96, 16)))

y = tcomp.einsum("ij,jk,kl->il", a, b, c)
np.testing.assert_allclose(y, a @ b @ c, rtol=1e-3, atol=1e-3)
print("chain:", y.shape)


@tcomp.jit
def attention(q, k, v):
    scores = tnp.einsum("bhid,bhjd->bhij", q, k) / 8
    weights = tnp.exp(scores - tnp.max(scores, axis=-1, keepdims=True))
    return tnp.einsum("bhij,bhjd->bhid", weights / tnp.sum(weights, axis=-1, keepdims=True), v)


q, k, v = (rng.standard_normal((2, 4, 32, 64)).astype(np.float32) for _ in range(3))
out = attention(q, k, v)
scores = np.einsum("bhid,bhjd->bhij", q, k) / 8
weights = np.exp(scores - scores.max(-1, keepdims=True))
expected = np.einsum("bhij,bhjd->bhid", weights / weights.sum(-1, keepdims=True), v)
np.testing.assert_allclose(out, expected, rtol=1e-3, atol=1e-4)
print("attention:", out.shape)
