"""Every numbered example runs, with both sides of every pass run and compared, and ends without an error."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples"
EXAMPLES = sorted(FOLDER.glob("[0-9]*.py"))
SHOWN = {  # what the output must hold
    "00_digits": ("accuracy: 9", "images/s"),
    "01_first": ("float32 (64, 32)", "TC0101", "if x.sum() > 0"),
    "02_einsum": ("attention: (2, 4, 32, 64)",),
    "03_onnx_model": ("TC0601", "TC0602", "TC0603", "(2, 10) float32"),
    "04_symbolic_shapes": ("0 rows: right", "300 rows: right", "batch 8 agrees"),
    "05_stages": ("stage graph", "stage tile", "stage placed", "stage reg", "---- asm"),
    "06_save_load": ("same bits", "TC0701"),
}


def test_every_example_is_known():
    assert [e.stem for e in EXAMPLES] == list(SHOWN)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_example(path, tmp_path):
    environment = {**os.environ, "TCOMP_CHECK": "3", "TCOMP_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    missing = [text for text in SHOWN[path.stem] if text not in done.stdout]
    assert not missing, f"{missing} not in\n{done.stdout}"
