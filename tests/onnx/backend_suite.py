"""The official ONNX backend suite (onnx.backend.test), run through compiled native code.

A test is named as in the suite, without the device: `node/test_add`. What tcomp refuses at compile time as not supported is a
skip with the reason, never a pass.
"""

import unittest
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
from onnx.backend.base import Backend, BackendRep
from onnx.backend.test import BackendTest

import tcomp
from tcomp.runtime.executable import Executable

LISTED = Path(__file__).with_name("expected_pass.txt")
LEFT_OUT = Path(__file__).with_name("left_out.txt")
NOT_SUPPORTED = ("TC0202", "TC0501")
KINDS = {
    "OnnxBackendNodeModelTest": "node",
    "OnnxBackendSimpleModelTest": "simple",
    "OnnxBackendRealModelTest": "real",
    "OnnxBackendPyTorchConvertedModelTest": "pytorch-converted",
    "OnnxBackendPyTorchOperatorModelTest": "pytorch-operator",
}


class Compiled(BackendRep):
    """A model as the suite calls it: by position; optional inputs that are left out are None."""

    def __init__(self, executable: Executable) -> None:
        self.executable = executable

    def run(self, inputs, **kwargs):
        pairs = list(zip(self.executable.inputs, inputs))
        given = {p.name: x if " of " in p.dtype else np.asarray(x) for p, x in pairs if x is not None or "optional" in p.dtype}
        results = self.executable.run(given)
        return [results[port.name] for port in self.executable.outputs]


class TcompBackend(Backend):
    @classmethod
    def prepare(cls, model, device="CPU", **kwargs):
        try:
            return Compiled(tcomp.compile(model.SerializeToString(), use_cache=False))
        except tcomp.Error as e:
            if e.code in NOT_SUPPORTED:
                raise unittest.SkipTest(str(e)) from None
            raise

    @classmethod
    def supports_device(cls, device):
        return device == "CPU"


class Suite(BackendTest):
    """The suite, which by itself cannot compare lists with scalars in them: it asks for the length of each element."""

    @classmethod
    def assert_similar_outputs(cls, ref_outputs, outputs, rtol, atol, model_dir=None):
        if isinstance(outputs, np.ndarray) and not outputs.ndim:
            ref_outputs, outputs = [ref_outputs], [outputs]
        super().assert_similar_outputs(ref_outputs, outputs, rtol, atol, model_dir)


@cache
def suite() -> dict[str, Callable[[], None]]:
    """Every test that runs a model, by name."""
    with warnings.catch_warnings():  # the suite computes its expected results when it is loaded, overflow and all
        warnings.simplefilter("ignore")
        cases = Suite(TcompBackend, __name__).test_cases
    found = {}
    for title, case in cases.items():
        for method in (m for m in dir(case) if m.startswith("test_") and m.endswith("_cpu")):
            found[f"{KINDS[title]}/{method.removesuffix('_cpu')}"] = getattr(case(method), method)
    return found


def listed() -> list[str]:
    """The tests that have to pass."""
    return LISTED.read_text().split()


def left_out() -> dict[str, str]:
    """All other tests, and why each does not pass."""
    return dict(line.split("\t") for line in LEFT_OUT.read_text().splitlines())
