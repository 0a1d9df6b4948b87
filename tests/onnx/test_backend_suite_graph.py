"""The ONNX project's own backend tests through the import and the GRAPH interpreter: right, or refused as not supported."""

import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from backend_suite import left_out
from onnx import numpy_helper

from tcomp.errors import Error
from tcomp.frontend.onnx import load
from tcomp.ir.interp.graph import run

AT_LEAST = {"node": 1600, "pytorch-converted": 82, "pytorch-operator": 35, "simple": 10}
ROUNDED_OTHERWISE = {f"node/test_attention_4d_causal_fp16{kind}" for kind in ("", "_expanded")}  # by one ulp of f16, step by step


def data_sets(case):
    """(inputs, outputs) of a test: in memory, or as files beside its model."""
    if case.data_sets is not None:
        yield from ([[plain(x) for x in side] for side in pair] for pair in case.data_sets)
        return
    for folder in sorted(Path(case.model_dir).glob("test_data_set_*")):
        yield tuple([read(p) for p in sorted(folder.glob(f"{kind}_*.pb"), key=number)] for kind in ("input", "output"))


def plain(x):
    return numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else x


def number(path):
    return int(path.stem.split("_")[1])


def read(path):
    return numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes()))


def outcome(case):
    """pass, refused or fail; lists where sequences or optionals are packed for the call, which test_backend_suite.py makes."""
    model = case.model if case.model is not None else onnx.load(Path(case.model_dir) / "model.onnx")
    try:
        f = load(model.SerializeToString())
        if f.containers:
            return "lists"
        return "pass" if all(agrees(case, model, f, *pair) for pair in data_sets(case)) else "fail"
    except Error as fault:
        return "refused" if fault.code == "TC0202" and "not supported" in str(fault) else "fail"


def agrees(case, model, f, inputs, outputs):
    constants = {t.name for t in model.graph.initializer}
    names = [i.name for i in model.graph.input]
    names = names if len(inputs) == len(names) else [n for n in names if n not in constants]
    feeds = dict(f.defaults) | {n: np.asarray(x) for n, x in zip(names, inputs) if x is not None}
    results = run(f, [feeds[p["name"]] for p in f.params])
    return len(results) == len(outputs) and all(same(g, np.asarray(w), case) for g, w in zip(results, outputs))


def same(got, want, case):
    if got.dtype != want.dtype or got.shape != want.shape:
        return False
    if want.dtype.kind in "biu":
        return np.array_equal(got, want)
    rtol = max(case.rtol, 2**-6) if want.dtype.name == "bfloat16" else case.rtol  # as the suite's own runner
    return np.allclose(got.astype(np.float64), want.astype(np.float64), rtol, case.atol, equal_nan=True)


@pytest.mark.parametrize("kind", AT_LEAST)
def test_no_test_of_the_suite_goes_wrong_and_at_least_so_many_pass(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the suite's own reference computations
        from onnx.backend.test.loader import load_model_tests

        outcomes = {case.name: outcome(case) for case in load_model_tests(kind=kind)}
    assert {f"{kind}/{n}" for n, o in outcomes.items() if o == "fail"} <= left_out().keys() | ROUNDED_OTHERWISE
    assert Counter(outcomes.values())["pass"] >= AT_LEAST[kind]
