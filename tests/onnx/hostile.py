"""Damaged variants of small ONNX models, each compiled and called by a process that is watched.

As a program, `python hostile.py NAME FIRST LAST`: variants FIRST to LAST of the model NAME, one line each as it begins and as it
ends: the code of the `tcomp.Error`, `ran`, or what went wrong. A variant that takes too long or too much memory ends the process.
"""

import faulthandler
import math
import random
import resource
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
from onnx import helper
from onnx_support import model, normal

import tcomp
from tcomp.ir.dtype import ALL, to_numpy

SECONDS, MEMORY = 30, 4 << 30
DIGITS = Path(__file__).parents[2] / "examples" / "models" / "digits.onnx"
ELEMENTS = 1 << 20  # inputs of more are not made


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs, outputs, **attributes)


def network() -> bytes:
    nodes = [
        node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        node("MaxPool", ["c"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Reshape", ["p", "s"], ["r"]),
        node("Gemm", ["r", "m"], ["g"], transB=1),
        node("Softmax", ["g"], ["y"]),
    ]
    constants = {"w": normal(2, 1, 3, 3), "s": np.array([0, -1]), "m": normal(3, 8)}
    return model(nodes, {"x": ("float32", ["n", 1, 4, 4])}, ["y"], 13, constants).SerializeToString()


def movements() -> bytes:
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[1, 0]),
        node("Slice", ["t", "a", "b"], ["s"]),
        node("Pad", ["s", "p"], ["q"]),
        node("Concat", ["q", "q"], ["c"], axis=0),
        node("Gather", ["c", "i"], ["g"], axis=0),
        node("Tile", ["g", "k"], ["y"]),
    ]
    constants = {"a": np.array([1]), "b": np.array([3]), "p": np.array([0, 1, 1, 0]), "k": np.array([2, 2])}
    ports = {"x": ("float32", ["n", 4]), "i": ("int64", ["k"])}
    return model(nodes, ports, ["y"], 13, constants).SerializeToString()


def integers() -> bytes:
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("MatMulInteger", ["q", "w", "z"], ["m"]),
        node("Cast", ["m"], ["f"], to=1),
        node("CumSum", ["f", "axis"], ["c"], exclusive=1),
        node("TopK", ["c", "k"], ["v", "i"]),
        node("ScatterElements", ["c", "i", "v"], ["y"], axis=1),
    ]
    constants = {"s": np.float32(0.1), "z": np.uint8(7), "w": np.arange(12, dtype=np.int8).reshape(4, 3),
                 "axis": np.int64(1), "k": np.array([2])}  # fmt: skip
    return model(nodes, {"x": ("float32", ["n", 4])}, ["y"], 13, constants).SerializeToString()


def recurrent() -> bytes:
    nodes = [
        node("LSTM", ["x", "w", "r"], ["h", "last"], hidden_size=3),
        node("LayerNormalization", ["last", "g"], ["y"]),
    ]
    constants = {"w": normal(1, 12, 2), "r": normal(1, 12, 3), "g": normal(3)}
    return model(nodes, {"x": ("float32", [4, "n", 2])}, ["y", "h"], 17, constants).SerializeToString()


MODELS: dict[str, Callable[[], bytes]] = {
    "network": network,
    "movements": movements,
    "integers": integers,
    "recurrent": recurrent,
    "digits": DIGITS.read_bytes,
}


def damaged(data: bytes, seed: str) -> bytes:
    """The bytes cut off somewhere, or with a few bits flipped; of a long file mostly in the ends, where the graph is."""
    rng = random.Random(seed)
    if rng.random() < 0.25:
        return data[: rng.randrange(len(data))]
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        place = rng.randrange(min(len(data), 1500)) * rng.choice((1, 1, -1)) if rng.random() < 0.8 else rng.randrange(len(data))
        out[place] ^= 1 << rng.randrange(8)
    return bytes(out)


def outcome(data: bytes) -> str:
    """What compiling and calling gives: the code of an error, `ran`, or the traceback of anything else."""
    try:
        executable = tcomp.compile(data, use_cache=False)
        for size in (2, 0):
            _call(executable, size)
        return "ran"
    except tcomp.Error as e:
        return e.code if e.code != "TC0001" else f"a fault of tcomp: {' '.join(str(e).split())}"
    except Exception as e:
        at = traceback.extract_tb(e.__traceback__)[-1]
        return f"{type(e).__name__}: {' '.join(str(e).split())[:200]} at {at.filename}:{at.lineno}"


def _call(executable, size: int) -> None:
    """A call with all symbolic dimensions of this size, unless its inputs would be enormous."""
    shapes = [[d if isinstance(d, int) else size for d in port.shape] for port in executable.inputs]
    if all(math.prod(shape) <= ELEMENTS for shape in shapes):
        executable(*(np.zeros(shape, to_numpy(ALL[port.dtype])) for shape, port in zip(shapes, executable.inputs)))


def main(name: str, first: str, last: str) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    data = MODELS[name]()
    for seed in range(int(first), int(last)):
        print(seed, flush=True)
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        print(seed, outcome(damaged(data, f"{name} {seed}")), flush=True)
        faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main(*sys.argv[1:])
