"""The main job: a trained ONNX model becomes native code, and classifies digits that it has never seen.

`models/train_digits.py` has trained it. Prints the accuracy and the speed, beside onnxruntime's where that is installed.
"""

import importlib.util
import statistics
import time
from pathlib import Path

import numpy as np

import tcomp

MODELS = Path(__file__).parent / "models"
CALLS = 200


def images_per_second(call, images):
    """The median over many calls, after a few that are not counted."""
    seconds = []
    for _ in range(CALLS):
        start = time.perf_counter()
        call(images)
        seconds.append(time.perf_counter() - start)
    return len(images) / statistics.median(seconds[CALLS // 10 :])


def onnxruntime_call(path):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.force_spinning_stop", "1")  # its threads leave tcomp's in peace
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda images: session.run(None, {"images": images})[0]


def main():
    start = time.perf_counter()
    model = tcomp.compile(MODELS / "digits.onnx")
    print(f"compiled in {time.perf_counter() - start:.2f} s: {model}")

    test = np.load(MODELS / "digits_test.npz")
    images, labels = test["images"], test["labels"]
    guesses = model.run({"images": images})["logits"].argmax(axis=1)
    accuracy = np.mean(guesses == labels)
    print(f"accuracy: {accuracy:.2%} of {len(labels)} images that training never saw")
    assert accuracy > 0.97

    print(f"speed: {images_per_second(model, images):,.0f} images/s in batches of {len(images)}", end="")
    print(f", {images_per_second(model, images[:1]):,.0f} one at a time")
    if importlib.util.find_spec("onnxruntime"):
        peer = onnxruntime_call(MODELS / "digits.onnx")
        print(f"onnxruntime: {images_per_second(peer, images):,.0f} and {images_per_second(peer, images[:1]):,.0f}")


if __name__ == "__main__":
    main()
