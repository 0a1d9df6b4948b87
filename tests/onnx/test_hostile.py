"""Damaged model files never end the process; bad inputs give their coded message, and the program works afterwards."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hostile import MODELS, node
from onnx_support import model

import tcomp

VARIANTS = {"network": 120, "movements": 120, "integers": 120, "recurrent": 80, "digits": 80}
HERE = Path(__file__).parent


@pytest.mark.parametrize("name", VARIANTS)
def test_damaged_files_give_an_error_or_a_program_that_runs(name):
    environment = {**os.environ, "TCOMP_FAST": "1", "TCOMP_CACHE": "0"}
    command = [sys.executable, str(HERE / "hostile.py"), name, "0", str(VARIANTS[name])]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    outcomes = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    assert done.returncode == 0, f"variant {done.stdout.split()[-1]} ended the process: {done.stderr[-3000:]}"
    assert len(outcomes) == VARIANTS[name]
    known = ("ran", "TC02", "TC0501", "TC06")
    assert {seed: found for seed, found in outcomes.items() if not found.startswith(known)} == {}
    assert 0 < sum(found == "ran" for found in outcomes.values()) < VARIANTS[name]


def test_enough_variants():
    assert sum(VARIANTS.values()) >= 500 and set(VARIANTS) == set(MODELS)


@pytest.fixture(scope="module")
def program():
    """y = x[i] * 2, the rows of x picked by i."""
    nodes = [node("Gather", ["x", "i"], ["g"], axis=0), node("Add", ["g", "g"], ["y"])]
    ports = {"x": ("float32", ["n", 3]), "i": ("int64", ["k"])}
    return tcomp.compile(model(nodes, ports, ["y"]).SerializeToString(), use_cache=False)


X, WHICH = np.arange(12, dtype=np.float32).reshape(4, 3), np.array([3, -4, 0])


@pytest.mark.parametrize(
    "code, inputs, words",
    [
        ("TC0601", {"x": X[0], "i": WHICH}, "x"),
        ("TC0601", {"x": X[:, :2], "i": WHICH}, "axis 1"),
        ("TC0602", {"x": X.astype(np.complex64), "i": WHICH}, "x"),
        ("TC0602", {"x": X, "i": WHICH + 0.5}, "i"),
        ("TC0602", {"x": np.array([["a"] * 3]), "i": WHICH}, "x"),
        ("TC0603", {"x": X}, "i"),
        ("TC0603", {"x": X, "i": WHICH, "z": X}, "z"),
        ("TC0604", {"x": X, "i": np.array([0, 4])}, "Gather"),
        ("TC0604", {"x": X, "i": np.array([-5])}, "Gather"),
        ("TC0604", {"x": X[:0], "i": np.array([0])}, "Gather"),
    ],
)
def test_bad_inputs_have_a_code_and_do_no_harm(program, code, inputs, words):
    for _ in range(2):
        with pytest.raises(tcomp.Error) as raised:
            program.run(inputs)
        assert raised.value.code == code and words in str(raised.value)
        np.testing.assert_array_equal(program.run({"x": X, "i": WHICH})["y"], X[WHICH] * 2)
