"""Which machine a target is: LLVM's CPU and features, this host's caches, the family of intrinsics."""

from __future__ import annotations

import os
import platform
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm

from tcomp.codegen.llvm.compile import CpuTarget, host, named
from tcomp.errors import Error
from tcomp.ir.machine import Machine, family_of

_V2 = frozenset({"sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "cx16"})
_V3 = _V2 | {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"}
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
NAMED: dict[str, frozenset[str]] = {
    "x86-64": frozenset(),
    "x86-64-v3": frozenset(_V3),
    "x86-64-v4": frozenset(_V4),
    "aarch64": frozenset({"neon"}),
}
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


@cache
def machine_for(target: str) -> tuple[Machine, CpuTarget]:
    """The machine and LLVM target of `cpu`, `cpu:host` or `cpu:NAME` (a key of `NAMED`). Raises TC0502 for another."""
    kind, _, name = target.partition(":")
    if kind != "cpu" or name not in ("", "host", *NAMED):
        raise Error("TC0502", f"the target `{target}`", f"cpu, {', '.join(f'cpu:{n}' for n in NAMED)}")
    if name in ("", "host"):
        features = frozenset(f for f, present in llvm.get_host_cpu_features().items() if present)
        arch = "aarch64" if platform.machine() in ("aarch64", "arm64") else "x86_64"
        features |= {"neon"} if arch == "aarch64" else frozenset()
        l1, l2, l3 = _host_caches()
        cores = len(os.sched_getaffinity(0))
        return Machine("host", llvm.get_host_cpu_name(), features, family_of(features, arch), cores, l1, l2, l3), host()
    features = NAMED[name]
    family = family_of(features, "aarch64" if name == "aarch64" else "x86_64")
    return Machine(name, name, features, family, 2), named(name)


def _host_caches() -> tuple[int, int, int]:
    """Bytes of the data caches of levels 1 to 3; usual sizes where the system does not tell."""
    sizes = {1: 32 << 10, 2: 1 << 20, 3: 16 << 20}
    for entry in sorted(_CACHES.glob("index*")) if _CACHES.is_dir() else []:
        try:
            if (entry / "type").read_text().strip() == "Instruction":
                continue
            level, text = int((entry / "level").read_text()), (entry / "size").read_text().strip()
        except (OSError, ValueError):
            continue
        sizes[level] = int(text.rstrip("KM")) << (20 if text.endswith("M") else 10)
    return sizes[1], sizes[2], sizes[3]
