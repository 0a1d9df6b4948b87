"""What tcomp costs around a kernel: import, first calls, a call on small arrays, loading a compiled model.

    python tests/bench/overhead.py [MODEL.onnx]

Each figure is the best of several new processes (start-up) or of many calls. Without a model the digit classifier of
examples/models is loaded.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

DIGITS = Path(__file__).parents[2] / "examples" / "models" / "digits.onnx"

IMPORT = "import time; t = time.perf_counter(); import tcomp; print(time.perf_counter() - t)"
FIRST = """
import time, numpy as np, tcomp
f = tcomp.jit(lambda x: np.exp(x - np.max(x, axis=-1, keepdims=True)))
x = np.ones((8, 8), np.float32)
t = time.perf_counter(); f(x); print(time.perf_counter() - t)
"""
CALL = """
import time, numpy as np, tcomp
f = tcomp.jit(lambda a, b: a + b * 2)
a = np.ones((8, 8), np.float32)
best = 9.0
for _ in range(20):
    t = time.perf_counter()
    for _ in range(10000): f(a, a)
    best = min(best, (time.perf_counter() - t) / 10000)
print(best)
"""
LOAD = """
import sys, time, numpy as np, tcomp
t = time.perf_counter()
exe = tcomp.compile(sys.argv[1])
exe.run({p.name: np.zeros([d if isinstance(d, int) else 1 for d in p.shape], np.float32) for p in exe.inputs})
print(time.perf_counter() - t)
"""


def seconds(program: str, cache: str, *arguments: str) -> float:
    """What the program prints, run by a new interpreter."""
    env = {**os.environ, "TCOMP_CACHE_DIR": cache}
    done = subprocess.run([sys.executable, "-c", program, *arguments], env=env, capture_output=True, text=True, check=True)
    return float(done.stdout)


def best(program: str, cache: str, *arguments: str, runs: int = 5) -> float:
    return min(seconds(program, cache, *arguments) for _ in range(runs))


def main() -> None:
    model = sys.argv[1] if len(sys.argv) > 1 else str(DIGITS)
    with tempfile.TemporaryDirectory() as cache:
        cold = []
        for k in range(3):
            cold.append(seconds(FIRST, f"{cache}/{k}"))
        print(f"import tcomp                               {best(IMPORT, cache) * 1e3:8.1f} ms")
        print(f"first call of a small function, cold       {min(cold) * 1e3:8.1f} ms")
        seconds(FIRST, cache)
        print(f"first call of a small function, cached     {best(FIRST, cache) * 1e3:8.1f} ms")
        print(f"a call on 8x8 arrays, kernel included      {best(CALL, cache) * 1e6:8.2f} us")
        name = Path(model).name
        print(f"compile and first run, cold                {seconds(LOAD, cache, model) * 1e3:8.1f} ms  {name}")
        print(f"load and first run, cached                 {best(LOAD, cache, model) * 1e3:8.1f} ms  {name}")


if __name__ == "__main__":
    main()
