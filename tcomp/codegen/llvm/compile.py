"""From LLVM text to object bytes and assembly, for the host or a named CPU.

The text is vector code already, so no IR pass runs: it is parsed, verified and given to LLVM's code generator. Loop
strength reduction stays off (the addresses are written as the machine wants them); the option is global to LLVM and
set once. Objects are position independent, so the same bytes load into a process or link into a shared library.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import llvmlite.binding as llvm

from tcomp.errors import Error

_LINUX = {"x86_64": "x86_64-unknown-linux-gnu", "aarch64": "aarch64-unknown-linux-gnu"}
_NAMED = {
    "x86-64": ("x86_64", "x86-64"),
    "x86-64-v3": ("x86_64", "x86-64-v3"),
    "x86-64-v4": ("x86_64", "x86-64-v4"),
    "aarch64": ("aarch64", "generic"),
}


@dataclass(frozen=True, slots=True)
class CpuTarget:
    """What code is generated for, in LLVM's words: CPU model, feature string (`+avx2,-sse4a`), target triple."""

    cpu: str
    features: str
    triple: str


@cache
def host() -> CpuTarget:
    """The CPU that this process runs on, with exactly the features that it has."""
    features = llvm.get_host_cpu_features()
    return CpuTarget(llvm.get_host_cpu_name(), features.flatten(), llvm.get_process_triple())


def named(name: str) -> CpuTarget:
    """A CPU by name: `host`, `x86-64`, `x86-64-v3`, `x86-64-v4` or `aarch64`. Raises TC0502 for any other."""
    if name == "host":
        return host()
    if name not in _NAMED:
        known = ", ".join(["host", *_NAMED])
        raise Error("TC0502", f"unknown CPU `{name}`", f"one of {known}", hint="`host` is this machine's CPU")
    arch, cpu = _NAMED[name]
    triple = llvm.get_process_triple()
    return CpuTarget(cpu, "", triple if triple.startswith(arch) else _LINUX[arch])


def compile_text(text: str, target: CpuTarget, fast: bool = False) -> bytes:
    """The relocatable object of an LLVM module. `fast` compiles two to four times faster into slower code.

    Raises TC0001 where the text is not a valid module: code generation made it, so that is its fault.
    """
    data: bytes = _machine(target, 0 if fast else 1).emit_object(_parse(text, target))
    return data


def assembly(text: str, target: CpuTarget) -> str:
    """The assembly that `compile_text` encodes."""
    text = _machine(target, 1).emit_assembly(_parse(text, target))
    return text


@cache
def _initialise() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.set_option("tcomp", "-disable-lsr")


@cache
def _machine(target: CpuTarget, opt: int) -> llvm.TargetMachine:
    _initialise()
    backend = llvm.Target.from_triple(target.triple)
    return backend.create_target_machine(target.cpu, target.features, opt=opt, reloc="pic", codemodel="default")


def _parse(text: str, target: CpuTarget) -> llvm.ModuleRef:
    try:
        module = llvm.parse_assembly(text)
        module.triple = target.triple
        module.data_layout = str(_machine(target, 1).target_data)
        module.verify()
    except RuntimeError as error:
        raise Error("TC0001", f"LLVM refuses the generated module: {error}") from error
    return module
