"""Sizes that are known only at run time: one program for all of them, or one with some sizes fixed."""

from pathlib import Path

import numpy as np

import tcomp


def normalise(x):
    centred = x - np.mean(x, axis=-1, keepdims=True)
    return centred / np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + 1e-5)


any_rows = tcomp.compile(normalise, tcomp.spec("f32[rows, 100]"))
print(any_rows)
for rows in (0, 1, 7, 300):
    x = np.random.default_rng(rows).standard_normal((rows, 100)).astype(np.float32)
    np.testing.assert_allclose(any_rows(x), normalise(x), rtol=1e-4, atol=1e-5)
    print(f"{rows} rows: right")

# Two sizes that meet are equal, or one of them is 1, as each call says; the report tells what was compiled for which.
shifted = tcomp.compile(lambda x, y: normalise(x + y), tcomp.spec("f32[rows, 100]"), tcomp.spec("f32[others, 100]"))
for rows, others in ((5, 5), (5, 1), (1, 5)):
    x, y = (np.random.default_rng(rows).standard_normal((k, 100)).astype(np.float32) for k in (rows, others))
    np.testing.assert_allclose(shifted(x, y), normalise(x + y), rtol=1e-4, atol=1e-5)
print(*(f"variant {number}: {sizes}" for number, sizes, _ in shifted.report()["variants"]), sep="; ")

# The batch of the digit model is symbolic; a fixed one is compiled for that size alone.
path = Path(__file__).parent / "models" / "digits.onnx"
images = np.load(path.with_name("digits_test.npz"))["images"]
whole = tcomp.compile(path).run({"images": images})["logits"]
fixed = tcomp.compile(path, dims={"batch": 8}).run({"images": images[:8]})["logits"]
np.testing.assert_allclose(fixed, whole[:8], rtol=1e-4, atol=1e-4)
print("batch 8 agrees with any batch")
