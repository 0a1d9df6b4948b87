"""What README says a saved artifact needs: NumPy, llvmlite and ml-dtypes, and nothing else; and what an import may bring in."""

import subprocess
import sys
from pathlib import Path

import numpy as np

import tcomp

MODELS = Path(__file__).parents[1] / "examples" / "models"
NEEDED = {"numpy", "llvmlite", "ml_dtypes"}
PROGRAM = """
import sys
from importlib.metadata import packages_distributions

needed, path, images, out = set(sys.argv[1].split(",")), *sys.argv[2:]
foreign = set(packages_distributions()) - needed - {"tcomp"} - set(sys.builtin_module_names)

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in foreign:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import numpy as np
import tcomp

model = tcomp.load(path)
np.save(out, model.run({"images": np.load(images)})["logits"])
"""


def test_an_artifact_runs_with_three_packages(tmp_path):
    images = np.load(MODELS / "digits_test.npz")["images"][:5]
    model = tcomp.compile(MODELS / "digits.onnx")
    model.save(tmp_path / "digits.tcomp")
    np.save(tmp_path / "images.npy", images)
    files = [str(tmp_path / name) for name in ("digits.tcomp", "images.npy", "logits.npy")]
    done = subprocess.run([sys.executable, "-c", PROGRAM, ",".join(NEEDED), *files], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(files[2]), model.run({"images": images})["logits"])


def test_the_program_above_sees_what_is_missing(tmp_path):
    done = subprocess.run([sys.executable, "-c", PROGRAM, "numpy", "a", "b", "c"], capture_output=True, text=True, cwd=tmp_path)
    assert "No module named 'ml_dtypes'" in done.stderr or "No module named 'llvmlite'" in done.stderr
