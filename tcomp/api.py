"""What users call: `compile`, `load`, and the compiler behind `jit`, with the disk cache in front of the pipeline.

A program found in the cache is linked and called without importing the pipeline, the frontends' file formats or LLVM's
code generator: imports stand inside the functions that need them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tcomp import forks, knobs
from tcomp.errors import Error
from tcomp.frontend.jit import Options
from tcomp.runtime import cache, executable, native
from tcomp.runtime.containers import fitted
from tcomp.runtime.executable import Executable

if TYPE_CHECKING:
    from tcomp.ir.artifact import Artifact
    from tcomp.ir.graph import Func
    from tcomp.ir.module import Module
    from tcomp.ir.types import Sizes

_ZIP = b"PK\x03\x04"  # how an archive begins, `.tcomp` files among them
_KNOWN = {"precision": (None, "f32"), "fp": (None, "bitwise"), "device": (None,), "tune": (None, False)}  # values of options
_EXTERNAL = b"location"  # the key under which an ONNX file names the files of its external data


@forks.whole()
def compile(
    source: Any,
    *specs: Any,
    target: str = "cpu",
    dims: Sizes | None = None,
    precision: str | None = None,
    fp: str | None = None,
    use_cache: bool = True,
) -> Executable:
    """The executable of an ONNX model (path, bytes or ModelProto) or of a function with the specs of its arguments.

    dims: of a model's symbolic dimensions, by name: the size, or (least, most) or a range, which every call must keep to, or
    None: any size. target: `cpu`, or a named one such as `cpu:x86-64-v3`; a program for another machine can be saved and shown,
    and a call raises TC0702. precision: of products, `f32` so far. fp: `bitwise` keeps the order of the text, where by default
    sums and products may be rewritten. use_cache: look for the program on disk, and keep it there. Raises `Error`.
    """
    artifact = artifact_of(source, specs, dims, Options(target=target, precision=precision, fp=fp), use_cache)
    return link(artifact, elsewhere=True)


@forks.whole()
def artifact_of(source: Any, specs: tuple[Any, ...], dims: Sizes | None, options: Options, use_cache: bool = True) -> Artifact:
    """What `compile` links: code for the options' target, which need not be this machine."""
    check_options(options)
    if not isinstance(dims, Mapping | None):
        raise Error("TC0105", f"dims of type {type(dims).__name__}", "sizes by name: `dims={\"batch\": 8}`")
    known = None if callable(source) else _bytes_of(source)
    if known is None or not use_cache:
        return Compiler(use_cache).artifact(_func_of(source, specs, dims), options)
    sizes = repr(sorted((dims or {}).items()))
    key = cache.key("onnx", known, sizes, _describe(options))
    return cache.artifact_for(key, lambda: _built(_func_of(source, specs, dims), options))


@forks.whole()
def load(path: str | os.PathLike[str], native: bool = True) -> Executable:
    """The program in a `.tcomp` file. native=False compiles it again from its text: nothing in the file is run.

    Raises TC0701 where the file is not intact, TC0702 where it has no code for this machine.
    """
    from tcomp.runtime import artifact as artifact_file

    found = artifact_file.read(Path(path))
    if native:
        return link(found)
    from tcomp.driver import recompiled

    return link(recompiled(found))


class Compiler:
    """What `jit` compiles with: the pipeline, behind the disk cache."""

    def __init__(self, use_cache: bool = True) -> None:
        self._use_cache = use_cache

    def __call__(self, func: Func, options: Options) -> Executable:
        return link(self.artifact(func, options), elsewhere=True)

    def artifact(self, func: Func, options: Options) -> Artifact:
        """The compiled program, not linked yet."""
        check_options(options)
        if not self._use_cache or cache.user_cache() is None:
            return _built(func, options)
        key = cache.key("graph", _graph_text(func), _describe(options))
        return cache.artifact_for(key, lambda: _built(func, options))

    def lower_func(self, func: Func, options: Options) -> Stages:
        from tcomp.driver import stages_of

        check_options(options)
        return Stages(func, stages_of(func, options), options)


@dataclass(frozen=True, slots=True)
class Stages:
    """A program at every stage, on its way to an executable: of its variants the one that is tried first."""

    func: Func
    modules: dict[str, Module]
    options: Options

    def text(self, stage: str) -> str:
        """The text of a stage: graph, tile, placed, reg, or llvm and asm."""
        from tcomp.ir.printer import print_module

        return print_module(self.modules[stage]) if stage in self.modules else self.compile().text(stage)

    @forks.whole()
    def compile(self) -> Executable:
        from tcomp.variants import built

        return link(built(self.func, self.options, self.modules), elsewhere=True)


@forks.whole()
def link(artifact: Artifact, elsewhere: bool = False) -> Executable:
    """The artifact as something that can be called in this process; one for another machine (`elsewhere`) says so when called."""
    native.start(lambda text: cache.code_for(cache.key("runtime", text, _host()), lambda: _code(text)))
    return fitted(executable.link(artifact, lambda text: _assembly(text, artifact), elsewhere))


def check_options(options: Options) -> None:
    """TC0502 for a target, TC0105 for another option that there is no code for."""
    if not options.target.startswith("cpu"):
        raise Error("TC0502", f"the target `{options.target}`", "cpu, or a named CPU such as cpu:x86-64-v3")
    for name, known in _KNOWN.items():
        if (given := getattr(options, name)) not in known:
            expected = " or ".join(f"{name}={v!r}" for v in known if v) or f"no `{name}`"
            raise Error("TC0105", f"{name}={given!r} is not supported", expected)


def _bytes_of(source: Any) -> bytes | None:
    """The bytes that say all about a model; None where they do not (external data, a ModelProto that cannot tell)."""
    if isinstance(source, str | os.PathLike):
        path = os.fspath(source)
        try:
            source = Path(path).read_bytes()
        except OSError as e:
            raise Error("TC0201", f"{path}: {e.strerror}", "a readable ONNX file") from None
        if source.startswith(_ZIP):
            raise Error("TC0201", f"{path} is an archive", "an ONNX file", hint="what `save` wrote is read by tcomp.load")
    if not isinstance(source, bytes) and not hasattr(source, "SerializeToString"):
        raise Error("TC0201", f"a model of type {type(source).__name__}", "a path, bytes, a ModelProto or a function")
    return source if isinstance(source, bytes) and _EXTERNAL not in source else None


def _func_of(source: Any, specs: tuple[Any, ...], dims: Sizes | None) -> Func:
    from tcomp.driver import func_of

    return func_of(source, specs, dims)


def _built(func: Func, options: Options) -> Artifact:
    from tcomp.variants import built

    return built(func, options)


def _graph_text(func: Func) -> str:
    """The text of a program: of all its variants, and what the report will say of them."""
    from tcomp.ir.module import Module
    from tcomp.ir.printer import print_module

    texts = [print_module(Module("graph", f.name, f)) for f in (func, *func.others)]
    return "\n".join((*texts, repr((func.account, func.promised))))


def _describe(options: Options) -> str:
    """All that the code depends on beside the program: the options, a knob, and the machine."""
    chosen = ", ".join(f"{f.name}={getattr(options, f.name)!r}" for f in fields(options))
    return f"{chosen}, algebra={knobs.ALGEBRA.read()}; {_host() if options.target in ('cpu', 'cpu:host') else options.target}"


def _host() -> str:
    """This machine's name and features, as LLVM finds them."""
    import llvmlite.binding as llvm

    return f"{llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"


def _code(text: str) -> bytes:
    from tcomp.codegen.llvm.compile import compile_text, host

    return compile_text(text, host())


def _assembly(text: str, artifact: Artifact) -> str:
    """The assembly of LLVM text, for what the artifact was compiled for."""
    from tcomp.codegen.llvm.compile import assembly
    from tcomp.codegen.llvm.machines import machine_for

    target = artifact.objects[0].target
    return assembly(text, machine_for("cpu" if target.startswith("cpu:host") else target)[1])
