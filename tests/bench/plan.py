"""What tcomp plans beside the best known algorithm: operations, bytes moved and peak memory of programs written as mathematics.

    python tests/bench/plan.py [--only a,b] [--scale 1.0]

Nothing runs: the figures are those of `exe.report()`. The best known algorithm's are formulas, each with a line on where it
is from. Bytes moved count operands, results and values between passes once for each pass that reads or writes them; peak bytes
are those of operands, results and what is alive between passes. What a thread keeps in its cache counts in neither. Exits with 1
where a figure is more than 1.1 times the formula's.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import tcomp
import tcomp.numpy as xp

MOST = 1.1


@dataclass(frozen=True)
class Best:
    """The best known algorithm's figures: operations; elements of f32 moved; those alive at once between passes."""

    flops: float
    moved: float
    between: float
    why: str


@dataclass(frozen=True)
class Workload:
    """f: the mathematics; specs: its operands at a scale; best: the formula's figures for their shapes."""

    f: Callable[..., Any]
    specs: Callable[[float], list[str]]
    best: Callable[..., Best]


@dataclass(frozen=True)
class Row:
    """tcomp's figure beside the best known one's; peak: bytes of operands, results and of everything between."""

    what: str
    mine: float
    best: float

    @property
    def ratio(self) -> float:
        return self.mine / self.best


def size(n: int, scale: float) -> int:
    return max(8, round(n * scale / 8) * 8)


def f32(*shape: int) -> str:
    return f"f32[{', '.join(map(str, shape))}]"


def softmax(s):
    p = xp.exp(s - xp.max(s, axis=-1, keepdims=True))
    return p / xp.sum(p, axis=-1, keepdims=True)


def turned(x):
    return xp.permute_dims(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def attention(q, k, v):
    return softmax(q @ turned(k) / math.sqrt(q.shape[-1])) @ v


def causal(q, k, v):
    i = xp.arange(q.shape[-2])
    s = xp.where(i[:, None] >= i[None, :], q @ turned(k) / math.sqrt(q.shape[-1]), -math.inf)
    return softmax(s) @ v


def latent(q, wk, c, wv):
    k, v = xp.einsum("hdr,nr->hnd", wk, c), xp.einsum("nr,hrd->hnd", c, wv)
    return xp.einsum("hqn,hnd->hqd", softmax(xp.einsum("hqd,hnd->hqn", q, k) / math.sqrt(q.shape[-1])), v)


def nearest(x, c):
    d = x[:, None, :] - c[None, :, :]
    return xp.argmin(xp.sum(d * d, axis=-1), axis=-1)


def radiance(p, freq, plane, w1, w2):
    g = xp.einsum("ndf,dfg->ndg", xp.sin(xp.einsum("nd,df->ndf", p, freq)), plane)
    h = (g[:, 0, :] * g[:, 1, :] * g[:, 2, :]) @ w1
    return xp.where(h > 0, h, 0.01 * h) @ w2


SCORE = 4  # operations on a score of a softmax: the largest, its distance, exp, their sum


def best_attention(q, k, v) -> Best:
    b, h, m, d = q
    n = k[2]
    return Best(
        b * h * m * n * (4 * d + SCORE), 2 * b * h * m * d + 2 * b * k[1] * n * d, 0, "two products; q, k, v, result once"
    )


def best_causal(q, k, v) -> Best:
    b, h, n, d = q
    return Best(b * h * n * (n + 1) / 2 * (4 * d + SCORE), 4 * b * h * n * d, 0, "the lower half of the scores")


def best_latent(q, wk, c, wv) -> Best:
    h, d, r = wk
    n = c[0]
    flops = 4 * h * d * r + h * n * (4 * r + SCORE)
    return Best(
        flops,
        2 * h * d * r + n * r + 2 * h * d + 4 * h * r,
        2 * h * r,
        "absorbed: (q wk) c and (p c) wv; c once, both h x r values",
    )


def best_linear(q, k, v) -> Best:
    h, n, d = q
    return Best(4 * h * n * d * d, 4 * h * n * d + 2 * h * d * d, h * d * d, "q (k' v): the d x d state is written and read")


def best_maxsim(q, docs) -> Best:
    m, d = q
    k, n, _ = docs
    return Best(m * k * n * (2 * d + 1), m * d + k * n * d + 2 * k * m + k, k * m, "one product whose rows are reduced at once")


def best_sampling(h, w, noise) -> Best:
    b, d, v = *h, w[1]
    return Best(b * v * (2 * d + 3), b * d + d * v + b * v + 2 * b, 0, "one pass over w: the sum, the largest, its place")


def best_lora(x, w, a, b) -> Best:
    m, k, n, r = *x, w[1], a[1]
    return Best(
        2 * k * r * n + k * n + 2 * m * k * n,
        k * r + r * n + 3 * k * n + m * k + m * n,
        k * n,
        "x (w + a b), w + a b in one pass",
    )


def best_chain(a, b, c, x) -> Best:
    n = a[0]
    return Best(6 * n * n, 3 * n * n + 6 * n, 2 * n, "a (b (c x)): three products with a vector")


def best_common(a, b, c) -> Best:
    m, k, n = *a, b[1]
    return Best(k * n + 2 * m * k * n, 4 * k * n + m * k + m * n, k * n, "a (b + c)")


def best_parallel(x, *ws) -> Best:
    m, k, n = *x, ws[0][1]
    c = len(ws)
    return Best(2 * m * k * n * c, 3 * c * k * n + m * k + c * m * n, c * k * n, "x [w1 w2 w3]: the factors joined, one product")


def best_radiance(p, freq, plane, w1, w2) -> Best:
    n, (_, f, g), (_, h), o = p[0], plane, w1, w2[1]
    flops = n * (6 * f + 6 * f * g + 2 * g + 2 * g * h + 3 * h + 2 * h * o)
    return Best(flops, n * (3 + o) + sum(map(math.prod, (freq, plane, w1, w2))), 0, "one pass over the points")


def best_nearest(x, c) -> Best:
    n, d, k = *x, c[0]
    return Best(
        n * k * (2 * d + 4) + 2 * k * d, n * d + 2 * k * d + 2 * n, k, "|c|^2 - 2 x c: one product, its rows reduced at once"
    )


WORKLOADS = {
    "attention": Workload(attention, lambda s: [f32(1, 12, size(512, s), 64)] * 3, best_attention),
    "attention_causal": Workload(causal, lambda s: [f32(1, 8, size(2048, s), 64)] * 3, best_causal),
    "gqa_decode": Workload(attention, lambda s: [f32(8, 4, 1, 128), *[f32(8, 1, size(8192, s), 128)] * 2], best_attention),
    "mla_decode": Workload(
        latent, lambda s: [f32(16, 1, 128), f32(16, 128, 512), f32(size(2048, s), 512), f32(16, 512, 128)], best_latent
    ),
    "linear_attention": Workload(lambda q, k, v: q @ turned(k) @ v, lambda s: [f32(8, size(4096, s), 64)] * 3, best_linear),
    "lora": Workload(
        lambda x, w, a, b: x @ w + x @ (a @ b) * 2.0,
        lambda s: [f32(size(1024, s), 1024), f32(1024, 1024), f32(1024, 8), f32(8, 1024)],
        best_lora,
    ),
    "matrix_chain": Workload(
        lambda a, b, c, x: a @ b @ c @ x, lambda s: [*[f32(size(1024, s), size(1024, s))] * 3, f32(size(1024, s), 1)], best_chain
    ),
    "common_factor": Workload(
        lambda a, b, c: a @ b + a @ c, lambda s: [f32(size(512, s), 512), *[f32(512, 512)] * 2], best_common
    ),
    "shared_operand": Workload(
        lambda x, a, b, c: (x @ a, x @ b, x @ c), lambda s: [f32(size(512, s), 512), *[f32(512, 512)] * 3], best_parallel
    ),
    "maxsim": Workload(
        lambda q, docs: xp.sum(xp.max(xp.einsum("qd,nkd->nqk", q, docs), axis=-1), axis=-1),
        lambda s: [f32(32, 128), f32(size(256, s), 256, 128)],
        best_maxsim,
    ),
    "gumbel_sample": Workload(
        lambda h, w, noise: xp.argmax(h @ w + noise, axis=-1),
        lambda s: [f32(16, 1024), f32(1024, size(32000, s)), f32(16, size(32000, s))],
        best_sampling,
    ),
    "radiance_field": Workload(
        radiance, lambda s: [f32(size(65536, s), 3), f32(3, 16), f32(3, 16, 16), f32(16, 64), f32(64, 4)], best_radiance
    ),
    "nearest_centroid": Workload(nearest, lambda s: [f32(size(4096, s), 256), f32(64, 256)], best_nearest),
}


def rows(w: Workload, scale: float = 1.0) -> list[Row]:
    """tcomp's figures for a workload beside the best known ones."""
    exe = tcomp.jit(w.f).lower(*map(tcomp.spec, w.specs(scale))).compile()
    report = exe.report()
    best = w.best(*(x.shape for x in exe.inputs))
    given = sum(_bytes(p.shape, tcomp.spec(f"{p.dtype}[1]").dtype.bytes) for p in (*exe.inputs, *exe.outputs))
    return [
        Row("flops", report["flops"], best.flops),
        Row("moved", report["bytes"]["moved"], 4 * best.moved),
        Row("peak", given + report["bytes"]["arena"], given + 4 * best.between),
    ]


def _bytes(shape: Iterable[int], each: int) -> int:
    return math.prod(shape) * each


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names, separated by commas")
    parser.add_argument("--scale", type=float, default=1.0)
    options = parser.parse_args()
    over = 0
    print(f"{'workload':18}" + "".join(f"{what:>14}{'best':>14}{'ratio':>7}" for what in ("flops", "bytes moved", "peak bytes")))
    for name, w in WORKLOADS.items():
        if options.only and name not in options.only.split(","):
            continue
        found = rows(w, options.scale)
        over += sum(r.ratio > MOST for r in found)
        print(f"{name:18}" + "".join(f"{r.mine:14,.0f}{r.best:14,.0f}{r.ratio:7.2f}" for r in found), flush=True)
    print(f"{over} over {MOST}")
    return int(over > 0)


if __name__ == "__main__":
    sys.exit(main())
