"""Kernels beside NumPy (and PyTorch, where it is installed): interleaved, best of several rounds.

    python tests/bench/kernels.py [--seconds 1.0] [NAME ...]

A ratio above 1 means that tcomp is ahead. Run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import tcomp

RNG = np.random.default_rng(0)


def array(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def softmax(xp: Any, x: Any) -> Any:
    e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)


def layer_norm(xp: Any, x: Any, g: Any, b: Any) -> Any:
    d = x - xp.mean(x, axis=-1, keepdims=True)
    return d / xp.sqrt(xp.mean(d * d, axis=-1, keepdims=True) + 1e-5) * g + b


def gelu(xp: Any, x: Any) -> Any:
    return 0.5 * x * (1.0 + xp.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def mlp(xp: Any, x: Any, w: Any, b: Any, v: Any, c: Any) -> Any:
    return gelu(xp, x @ w + b) @ v + c


@dataclass(frozen=True)
class Kernel:
    name: str
    function: Callable[..., Any]
    arguments: tuple[np.ndarray, ...]


KERNELS = (
    Kernel("product 1024^3", lambda xp, a, b: a @ b, (array(1024, 1024), array(1024, 1024))),
    Kernel("product 997x1013x1021", lambda xp, a, b: a @ b, (array(997, 1013), array(1013, 1021))),
    Kernel("product 16x2048x8192", lambda xp, a, b: a @ b, (array(16, 2048), array(2048, 8192))),
    Kernel("2048 products 24^3", lambda xp, a, b: a @ b, (array(2048, 24, 24), array(2048, 24, 24))),
    Kernel("MLP 512x768x3072, gelu", mlp, (array(512, 768), array(768, 3072), array(3072), array(3072, 768), array(768))),
    Kernel("softmax 8192x1024", softmax, (array(8192, 1024),)),
    Kernel("layer norm 8192x1024", layer_norm, (array(8192, 1024), array(1024), array(1024))),
    Kernel("gelu 4096x4096", gelu, (array(4096, 4096),)),
    Kernel("sort 200000", lambda xp, x: xp.sort(x), (array(200000),)),
    Kernel("sort 10000x100", lambda xp, x: xp.sort(x, -1), (array(10000, 100),)),
    Kernel("argsort 64x4096, stable", lambda xp, x: xp.argsort(x, stable=True), (array(64, 4096),)),
)


def peers(k: Kernel) -> dict[str, Callable[[], Any]]:
    """The same work on every system at hand."""
    jitted = tcomp.jit(lambda *a: k.function(np, *a))
    found: dict[str, Callable[[], Any]] = {
        "numpy": lambda: k.function(np, *k.arguments),
        "tcomp": lambda: jitted(*k.arguments),
    }
    if importlib.util.find_spec("torch"):
        found["torch"] = torch_call(k)
    return found


def torch_call(k: Kernel) -> Callable[[], Any]:
    import torch

    tensors = [torch.from_numpy(a) for a in k.arguments]
    names = {"max": torch.amax, "mean": torch.mean, "sum": torch.sum, "exp": torch.exp, "sqrt": torch.sqrt, "tanh": torch.tanh,
             "sort": lambda x, dim=-1: torch.sort(x, dim).values, "argsort": torch.argsort}  # fmt: skip
    xp = type("xp", (), {n: staticmethod(f) for n, f in names.items()})
    return lambda: k.function(xp, *tensors)


def race(calls: dict[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """Best time of each, in turns of a few calls, so that what else happens on the machine meets all alike.

    Before a turn all pools go to sleep (some spin long after a call); its first call is not timed.
    """
    best = dict.fromkeys(calls, float("inf"))
    end = time.perf_counter() + seconds * len(calls)
    while time.perf_counter() < end:
        for name, call in calls.items():
            time.sleep(0.03)
            call()
            for _ in range(4):
                start = time.perf_counter()
                call()
                best[name] = min(best[name], time.perf_counter() - start)
    return best


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*")
    p.add_argument("--seconds", type=float, default=1.0)
    a = p.parse_args()
    for k in KERNELS:
        if a.names and not any(n in k.name for n in a.names):
            continue
        best = race(peers(k), a.seconds)
        others = [f"{n} {t * 1e3:8.3f} ms ({t / best['tcomp']:.2f}x)" for n, t in best.items() if n != "tcomp"]
        print(f"{k.name:24s} tcomp {best['tcomp'] * 1e3:8.3f} ms   " + "   ".join(others), flush=True)


if __name__ == "__main__":
    main()
