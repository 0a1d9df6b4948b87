"""Compile here, run elsewhere: a `.tcomp` file holds code, constants and text, and needs neither the model nor ONNX."""

import tempfile
from pathlib import Path

import numpy as np

import tcomp

MODELS = Path(__file__).parent / "models"
images = np.load(MODELS / "digits_test.npz")["images"]
compiled = tcomp.compile(MODELS / "digits.onnx")

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "digits.tcomp"
    compiled.save(path)
    print(f"{path.name}: {path.stat().st_size // 1024} KiB")
    expected = compiled.run({"images": images})["logits"]
    loaded = tcomp.load(path)
    np.testing.assert_array_equal(loaded.run({"images": images})["logits"], expected)
    print("the loaded program gives the same bits")

    # Native code in a file is to be trusted like any library. What is not trusted can be compiled again from its text.
    safe = tcomp.load(path, native=False)
    np.testing.assert_allclose(safe.run({"images": images})["logits"], expected, rtol=1e-4, atol=1e-4)

    # A file that was altered is refused.
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    try:
        tcomp.load(path)
    except tcomp.Error as error:
        print(error)
