"""An ONNX model from a file: its ports, a call by name, faults of a call, and what became of its operations."""

from pathlib import Path

import numpy as np

import tcomp

model = tcomp.compile(Path(__file__).parent / "models" / "digits.onnx")
for port in (*model.inputs, *model.outputs):
    print(f"{port.name}: {port.dtype} {port.shape}")

images = np.zeros((2, 1, 8, 8), np.float32)
logits = model.run({"images": images})["logits"]
print(logits.shape, logits.dtype)

# What does not fit is refused with a message, and the model is as good as before.
for wrong in (images[:, :, :7], images.astype(str), None):
    try:
        model.run({"images": wrong} if wrong is not None else {})
    except tcomp.Error as error:
        print(error)
np.testing.assert_array_equal(model.run({"images": images})["logits"], logits)

print(model.report())
