"""Stores that combine with what is there, atomically: a compare-and-swap loop for one element, out of line."""

from __future__ import annotations

from tcomp.codegen.llvm import loads, masks, spelling, values
from tcomp.codegen.llvm.address import access, element_address
from tcomp.codegen.llvm.builder import FunctionBuilder
from tcomp.codegen.llvm.convert import MEMORY, Elements, from_memory, rounded, to_memory
from tcomp.codegen.llvm.writer import Key, Writer, register_type
from tcomp.ir.dtype import DType
from tcomp.ir.stmts import Store


def store(w: Writer, s: Store) -> None:
    """Element by element, in order."""
    win = w.window(s.window)
    dtype = win.buffer.dtype
    assert s.combine is not None
    name = w.b.module.helper(f"combine_{s.combine}_{dtype}", lambda: _helper(w, s.combine or "", dtype))
    kind = register_type(dtype, 1)
    for at in values.keys_of(values.extents(s.window.type), "scalars"):
        x = values.element(w, s.value, at)

        def combine(at: Key = at, x: str = x) -> None:
            pointer = element_address(w, access(w, s.window), at)
            w.b.effect(f"call void {name}(ptr {pointer}, {kind} {x})")

        loads.guarded(w, masks.exists(w, win, at), combine)


def _helper(w: Writer, monoid: str, dtype: DType) -> str:
    b = FunctionBuilder(w.b.module)
    e = Elements(b, 1, w.features)
    raw = MEMORY[dtype.name]
    word = f"i{8 * dtype.bytes}"
    first = b.value(f"load atomic {word}, ptr %p monotonic, align {dtype.bytes}")
    b.branch("again")
    b.start("again")
    b.effect(f"%old = phi {word} [ {first}, %entry ], [ %seen, %again ]")
    before = from_memory(e, dtype, e.cast("bitcast", word, "%old", raw))
    after = spelling.TABLE[monoid][dtype.kind](e, dtype, [before, "%x"])
    if dtype.is_float and dtype.bits == 16:
        after = rounded(e, dtype, after)
    new = e.cast("bitcast", raw, to_memory(e, dtype, after), word)
    pair = b.value(f"cmpxchg ptr %p, {word} %old, {word} {new} monotonic monotonic, align {dtype.bytes}")
    b.effect(f"%seen = extractvalue {{ {word}, i1 }} {pair}, 0")
    b.branch_if(b.value(f"extractvalue {{ {word}, i1 }} {pair}, 1"), "done", "again")
    b.start("done")
    b.effect("ret void")
    head = f"define internal void @combine_{monoid}_{dtype}(ptr %p, {register_type(dtype, 1)} %x) nounwind"
    return f"{head} {{\n{b.body()}\n}}"
