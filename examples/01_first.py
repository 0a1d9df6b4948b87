"""A NumPy function becomes native code: `jit` traces it at the first call and compiles it for the shapes it meets."""

import numpy as np

import tcomp


@tcomp.jit
def layer(x, w, b):
    return np.maximum(x @ w + b, 0)


rng = np.random.default_rng(0)
x, w, b = (rng.standard_normal(s).astype(np.float32) for s in ((64, 128), (128, 32), (32,)))
y = layer(x, w, b)
print(type(y).__name__, y.dtype, y.shape)
np.testing.assert_allclose(y, np.maximum(x @ w + b, 0), rtol=1e-4, atol=1e-4)

# Python runs while tracing, on values that are known: loops unroll, and branches on shapes are decided.


@tcomp.jit(static_argnames="rounds")
def smooth(x, rounds):
    for _ in range(rounds):
        x = (x[:-2] + x[1:-1] + x[2:]) / 3 if x.shape[0] > 2 else x
    return x


print(smooth(np.arange(10.0) ** 2, rounds=2))

# A branch on a value cannot be traced: the error shows the line, and says what to do.


@tcomp.jit
def wrong(x):
    if x.sum() > 0:
        return x
    return -x


try:
    wrong(x)
except tcomp.Error as error:
    print(error)
