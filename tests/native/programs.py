"""Planned programs over hand-written kernels, for tests of main and of the runtime around it. Elements are i64.

`inc`: out[k] = in[k] + 1, a block per element; fails with TC0604 (node 0) where in[k] is 13. `add`: out[k] = a[k] + b[k], in
blocks of 3. `rev`: two phases over a workspace: ws[k] = 2 in[k], then out[k] = ws[n - 1 - k]. `one`: a single block, through
scratch: out[k] = in[k] - k.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tcomp.codegen.llvm.builder import ModuleBuilder
from tcomp.codegen.llvm.compile import compile_text, host
from tcomp.codegen.llvm.main import emit_main
from tcomp.ir import dtype as dt
from tcomp.ir import index as ix
from tcomp.ir.artifact import Artifact, CodeObject, Constant, Port
from tcomp.ir.machine import Machine
from tcomp.ir.module import Module
from tcomp.ir.stmts import Grid, GridAxis, Kernel, Main
from tcomp.ir.types import Buffer
from tcomp.passes.memory_plan import memory_plan

MACHINE = Machine("host", "", frozenset(), "neon" if host().triple.startswith("aarch64") else "sse", 1)
N = ix.symbol("n")

TEXT = """
define internal i64 @t.at(ptr %table, i64 %k) {
  %p = getelementptr i64, ptr %table, i64 %k
  %v = load i64, ptr %p
  ret i64 %v
}
define internal ptr @t.place(ptr %args, i64 %slot, i64 %k) {
  %p = getelementptr ptr, ptr %args, i64 %slot
  %b = load ptr, ptr %p
  %q = getelementptr i64, ptr %b, i64 %k
  ret ptr %q
}
define internal i64 @inc.0(ptr %args, i64 %block, ptr %scratch) {
  %p = call ptr @t.place(ptr %args, i64 0, i64 %block)
  %q = call ptr @t.place(ptr %args, i64 1, i64 %block)
  %v = load i64, ptr %p
  %bad = icmp eq i64 %v, 13
  br i1 %bad, label %fail, label %good
fail:
  ret i64 4294967296
good:
  %w = add i64 %v, 1
  store i64 %w, ptr %q
  ret i64 0
}
define internal i64 @add.0(ptr %args, i64 %block, ptr %scratch) {
entry:
  %n = call i64 @t.at(ptr %args, i64 3)
  %first = mul i64 %block, 3
  %past = add i64 %first, 3
  %end = call i64 @llvm.smin.i64(i64 %past, i64 %n)
  br label %look
look:
  %k = phi i64 [ %first, %entry ], [ %next, %one ]
  %on = icmp slt i64 %k, %end
  br i1 %on, label %one, label %out
one:
  %p = call ptr @t.place(ptr %args, i64 0, i64 %k)
  %q = call ptr @t.place(ptr %args, i64 1, i64 %k)
  %r = call ptr @t.place(ptr %args, i64 2, i64 %k)
  %v = load i64, ptr %p
  %w = load i64, ptr %q
  %s = add i64 %v, %w
  store i64 %s, ptr %r
  %next = add i64 %k, 1
  br label %look
out:
  ret i64 0
}
define internal i64 @rev.0(ptr %args, i64 %block, ptr %scratch) {
  %p = call ptr @t.place(ptr %args, i64 0, i64 %block)
  %q = call ptr @t.place(ptr %args, i64 2, i64 %block)
  %v = load i64, ptr %p
  %w = shl i64 %v, 1
  store i64 %w, ptr %q
  ret i64 0
}
define internal i64 @rev.1(ptr %args, i64 %block, ptr %scratch) {
  %n = call i64 @t.at(ptr %args, i64 3)
  %top = sub i64 %n, 1
  %k = sub i64 %top, %block
  %p = call ptr @t.place(ptr %args, i64 2, i64 %k)
  %q = call ptr @t.place(ptr %args, i64 1, i64 %block)
  %v = load i64, ptr %p
  store i64 %v, ptr %q
  ret i64 0
}
define internal i64 @one.0(ptr %args, i64 %block, ptr %scratch) {
entry:
  %n = call i64 @t.at(ptr %args, i64 2)
  br label %look
look:
  %k = phi i64 [ 0, %entry ], [ %next, %one ]
  %on = icmp slt i64 %k, %n
  br i1 %on, label %one, label %out
one:
  %p = call ptr @t.place(ptr %args, i64 0, i64 %k)
  %q = call ptr @t.place(ptr %args, i64 1, i64 %k)
  %v = load i64, ptr %p
  %s = sub i64 %v, %k
  %m = urem i64 %k, 1000
  %z = getelementptr i64, ptr %scratch, i64 %m
  store i64 %s, ptr %z
  %t = load i64, ptr %z
  store i64 %t, ptr %q
  %next = add i64 %k, 1
  br label %look
out:
  ret i64 0
}
"""


@dataclass(frozen=True)
class Code:
    phases: tuple[str, ...]
    scratch: int = 0


CODES = {"inc": Code(("inc.0",)), "add": Code(("add.0",)), "rev": Code(("rev.0", "rev.1")), "one": Code(("one.0",), 8000)}
MEANING = {
    "inc": lambda a: a + 1,
    "add": lambda a, b: a + b,
    "rev": lambda a: 2 * a[::-1],
    "one": lambda a: a - np.arange(len(a)),
}


def _kernel(name: str, inputs: int, steps: tuple[int, ...], workspace: bool = False) -> Kernel:
    n = ix.symbol("k")
    i = [Buffer(f"i{k}", dt.i64, (n,)) for k in range(inputs)]
    phases = tuple(Grid((GridAxis(ix.symbol("b"), n if step else 1, step or 1),), ()) for step in steps)
    ws = (Buffer("ws", dt.i64, (n,), "ws"),) if workspace else ()
    return Kernel(name, tuple(i), (Buffer("o", dt.i64, (n,)),), (n,), phases, ws)


KERNELS = (_kernel("inc", 1, (1,)), _kernel("add", 2, (3,)), _kernel("rev", 1, (1, 1), True), _kernel("one", 1, (0,)))


def artifact(main: Main, constants: dict[str, np.ndarray] | None = None, **fields) -> Artifact:
    """`main` planned and compiled."""
    planned = memory_plan(Module("reg", "test", kernels=KERNELS, main=main, nodes=("node zero",)))
    builder = ModuleBuilder()
    builder.declare("i64 @llvm.smin.i64(i64, i64)")
    builder.add(TEXT)
    code = emit_main(builder, planned, CODES, "tcomp_test", MACHINE)
    text = builder.text()
    facts = {
        "name": "test",
        "entry": code.entry,
        "inputs": tuple(port(b) for b in main.inputs),
        "outputs": tuple(port(b) for b in main.outputs),
        "symbols": tuple(s["name"] for s in main.symbols),
        "counters": code.counters,
        "objects": (CodeObject("cpu:host:test", (), compile_text(text, host())),),
        "constants": tuple(Constant(b.name, (constants or {})[b.name]) for b in main.constants),
        "texts": {"llvm": text},
        "report": {"kernels": 4},
        "nodes": code.nodes,
    }
    return Artifact(**(facts | fields))


def port(buffer: Buffer) -> Port:
    return Port(buffer.name, buffer.dtype.name, tuple(d if isinstance(d, int) else ix.show(d) for d in buffer.shape))
