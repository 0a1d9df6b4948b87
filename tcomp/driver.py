"""The pipeline: one page of named steps, read top to bottom.

    source -> GRAPH -> passes -> TILE -> PLACED -> REG -> LLVM -> artifact -> executable
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tcomp import knobs, trace
from tcomp.checking import check
from tcomp.codegen.llvm.build import build
from tcomp.codegen.llvm.machines import machine_for
from tcomp.errors import Error
from tcomp.frontend.jit import Options
from tcomp.ir.artifact import Artifact
from tcomp.ir.dump import save_dump
from tcomp.ir.graph import Func
from tcomp.ir.literals import digest
from tcomp.ir.machine import Machine
from tcomp.ir.module import Module
from tcomp.ir.parser import parse
from tcomp.ir.printer import print_module
from tcomp.ir.types import Sizes
from tcomp.ir.verify import verify
from tcomp.passes.byte_products import byte_products
from tcomp.passes.canonicalise import canonicalise
from tcomp.passes.decompose import decompose
from tcomp.passes.expand import expand
from tcomp.passes.extremes import extremes
from tcomp.passes.fold import fold
from tcomp.passes.layout import layout
from tcomp.passes.memory_plan import memory_plan
from tcomp.passes.place import place
from tcomp.passes.quantise import quantise
from tcomp.passes.saturate import begin as begin_algebra
from tcomp.passes.saturate import saturate
from tcomp.passes.vector_products import vector_products
from tcomp.runtime import cache
from tcomp.schedule.lower import lower
from tcomp.schedule.widen import widen

Pass = Callable[[Module], Module]

# Every pass, in the order of the pipeline. `passes_for` binds the machine to those that need it.
PIPELINE: tuple[str, ...] = (
    *("quantise", "fold", "canonicalise", "saturate", "extremes", "layout"),
    *("decompose", "vector_products", "fold", "canonicalise"),
    *("byte_products", "widen", "lower", "place", "expand", "memory_plan"),
)
LARGE = 1 << 16  # bytes of a model that is likely to need the worker of `saturate`, which comes up while the model is read
_MACHINE_FREE: dict[str, Pass] = {
    "decompose": decompose,
    "vector_products": vector_products,
    "canonicalise": canonicalise,
    "fold": fold,
    "layout": layout,
    "place": place,
    "expand": expand,
    "memory_plan": memory_plan,
}


class _Answers:
    """Answers about windows of programs, which are kept like object code: by what they depend on, with a checksum."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def get(self, key: str) -> str | None:
        """The answer kept under a key."""
        if key not in self._known:
            kept = cache.user_cache()
            data = kept.code(cache.key("algebra", key)) if kept is not None else None
            if data is None:
                return None
            self._known[key] = data.decode()
        return self._known[key]

    def __setitem__(self, key: str, answer: str) -> None:
        self._known[key] = answer
        kept = cache.user_cache()
        if kept is not None:
            kept.put_code(cache.key("algebra", key), answer.encode())


_ANSWERS = _Answers()


def passes_for(machine: Machine, fp: str | None = None) -> dict[str, Pass]:
    """Every pass by name, for a machine. fp: the floating-point class asked for; `bitwise` keeps the order of the text."""
    bound: dict[str, Pass] = {
        "quantise": partial(quantise, machine=machine, reassociates=fp != "bitwise"),
        "saturate": partial(saturate, machine=machine, solved=_ANSWERS, reassociates=fp != "bitwise"),
        "extremes": partial(extremes, reassociates=fp != "bitwise"),
        "byte_products": partial(byte_products, machine=machine),
        "widen": partial(widen, machine=machine, reassociates=fp != "bitwise"),
        "lower": partial(lower, machine=machine, reassociates=fp != "bitwise"),
    }
    return {**_MACHINE_FREE, **bound}


PASSES: dict[str, Pass] = passes_for(machine_for("cpu")[0])


def run_passes(
    module: Module, names: tuple[str, ...], passes: Mapping[str, Pass] = PASSES, first: int = 1, variant: str = ""
) -> Module:
    """`module` after the named passes: verified between them as TCOMP_CHECK says, dumped as TCOMP_DUMP says.

    first: the number of the first pass in the names of dumps, which begin with `variant`.
    """
    for number, name in enumerate(names, first):
        if name not in passes:
            raise Error("TC0401", f"a pass `{name}`", f"one of {', '.join(sorted(passes))}")
        start = time.perf_counter()
        after = passes[name](module)
        trace.event("pass", name=name, seconds=time.perf_counter() - start)
        check(name, module, after)
        _dump(f"{variant}{number:02d}-{name}", after)
        module = after
    return module


def _dump(name: str, module: Module) -> None:
    folder = knobs.DUMP.read()
    if not folder:
        return
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        save_dump(module, Path(folder) / f"{name}.tc")
    except OSError as e:
        raise Error("TC0002", f"TCOMP_DUMP={folder}: {e.strerror}", "a folder that can be written") from None


def stages_of(func: Func, options: Options, variant: str = "") -> dict[str, Module]:
    """`func` at every stage: graph (after its passes), tile, placed and reg. variant: what names of its dumps begin with."""
    machine, _ = machine_for(options.target)
    passes = passes_for(machine, options.fp)
    module = Module("graph", func.name, func, target=options.target)
    modules: dict[str, Module] = {module.stage: module}
    _dump(f"{variant}00-{module.stage}", module)
    for number, name in enumerate(PIPELINE, 1):
        module = run_passes(module, (name,), passes, number, variant)
        modules[module.stage] = module
    return modules


def artifact_of(modules: Mapping[str, Module], options: Options) -> Artifact:
    """The artifact of a lowered program, with the text of its stages."""
    machine, target = machine_for(options.target)
    program = modules["reg"]
    texts = {stage: print_module(m) for stage, m in modules.items()}
    report: dict[str, object] = {
        "target": options.target,
        "note": options.note,
        "operations": [list(r) for r in program.realised],
        "kernels": len(program.kernels),
        "algebra": list(modules["graph"].algebra) if "graph" in modules else [],  # not where made anew from TILE
        "cascades": [dict(c) for c in modules["tile"].cascades],
    }
    return build(program, machine, target, texts, report, modules["tile"])


def recompiled(artifact: Artifact) -> Artifact:
    """The artifact with code made anew for this machine, from the text of its TILE stage, whose rules are checked first; all its
    variants.

    Raises TC0302 where the text breaks them, TC0701 where it is that of a program with other inputs or results.
    """
    module = parse(artifact.texts["tile"], {digest(c.data): c.data for c in artifact.constants})
    verify(module)
    options = Options()
    modules = {module.stage: module}
    for name in PIPELINE[PIPELINE.index("lower") + 1 :]:
        module = run_passes(module, (name,))
        modules[module.stage] = module
    new = artifact_of(modules, options)
    if (new.inputs, new.outputs, new.symbols) != (artifact.inputs, artifact.outputs, artifact.symbols):
        raise Error("TC0701", f"the text of `{artifact.name}` is that of another program", "the manifest's inputs and results")
    others = tuple(map(recompiled, artifact.others))
    return replace(artifact, objects=new.objects, counters=new.counters, texts={**artifact.texts, **new.texts}, others=others)


def func_of(source: Any, specs: tuple[Any, ...] = (), dims: Sizes | None = None) -> Func:
    """The GRAPH function of a model or of a Python function. dims: of the model's dimensions."""
    if callable(source):
        if dims:
            raise Error("TC0105", "dims= for a function", "sizes in the specs of its arguments: `f32[8, 64]`, `f32[n=1..64, 64]`")
        from tcomp.frontend.program import trace as trace_program

        return trace_program(source, specs).func
    from tcomp.frontend.onnx.reader import load

    if _bytes_of(source) >= LARGE:
        begin_algebra()
    return load(source, dims)


def _bytes_of(source: Any) -> int:
    """The size of a model, as far as that is seen without reading it."""
    if isinstance(source, bytes):
        return len(source)
    return os.path.getsize(source) if isinstance(source, str | os.PathLike) and os.path.exists(source) else 0
