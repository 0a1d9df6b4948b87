"""The order of many keys: a radix sort of positions and their keys, byte by byte from the lowest, stable.

Keys become unsigned integers of the same order: signs are turned, negative floats as a whole; both zeros are one number, NaN is
the largest, and for a descending order all bits are turned. A byte that all keys share costs a count.
"""

from __future__ import annotations

from tcomp.codegen.llvm.builder import FunctionBuilder
from tcomp.codegen.llvm.convert import MEMORY
from tcomp.ir.dtype import DType

_EXPONENTS = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F800000, "f64": 0x7FF0000000000000}  # the bits of infinity


def radix_text(b: FunctionBuilder, name: str, dtype: DType, descending: bool) -> str:
    """(keys, their stride, positions, room for as many, for keys of both, their number of at least 1) -> where the positions are
    in order: one of the two."""
    kind = f"i{8 * dtype.bytes}"
    b.module.declare("void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
    counts = b.alloca(256 * 8)
    b.branch("begin")
    b.start("begin")
    b.effect(f"%spare.second = getelementptr {kind}, ptr %spare, i64 %n")
    b.branch("copy")
    _copy(b, dtype, kind, descending)
    _passes(b, kind, counts)
    b.start("write")
    b.effect("ret ptr %from")
    places = "ptr %keys, i64 %step, ptr %first, ptr %second, ptr %spare, i64 %n"
    return f"define internal ptr @{name}({places}) nounwind noinline {{\n{b.body()}\n}}"


def _copy(b: FunctionBuilder, dtype: DType, kind: str, descending: bool) -> None:
    """The keys of %first as unsigned integers in the first half of %spare."""
    b.start("copy")
    b.effect("%k = phi i64 [ 0, %begin ], [ %k.next, %copy ]")
    position = b.value(f"load i64, ptr {b.value('getelementptr i64, ptr %first, i64 %k')}")
    source = b.value(f"getelementptr i8, ptr %keys, i64 {b.value(f'mul i64 {position}, %step')}")
    element = MEMORY[dtype.name]
    key = b.value(f"load {element}, ptr {source}, align {dtype.bytes}")
    if element != kind:
        key = b.value(f"bitcast {element} {key} to {kind}")
    key = _ordered(b, dtype, kind, key)
    if descending:
        key = b.value(f"xor {kind} {key}, -1")
    b.effect(f"store {kind} {key}, ptr {_at(b, kind, '%spare', '%k')}, align {dtype.bytes}")
    b.effect("%k.next = add i64 %k, 1")
    b.branch_if(b.value("icmp slt i64 %k.next, %n"), "copy", "copied")
    b.start("copied")
    b.branch("pass")


def _ordered(b: FunctionBuilder, dtype: DType, kind: str, key: str) -> str:
    """The bits of a key as an unsigned integer of the same order."""
    sign = 1 << (8 * dtype.bytes - 1)
    if not dtype.is_float:
        return b.value(f"xor {kind} {key}, {sign}") if dtype.kind == "int" else key
    size = b.value(f"and {kind} {key}, {sign - 1}")
    key = b.value(f"select i1 {b.value(f'icmp eq {kind} {size}, 0')}, {kind} 0, {kind} {key}")
    turned = b.value(f"ashr {kind} {key}, {8 * dtype.bytes - 1}")
    flipped = b.value(f"xor {kind} {key}, {b.value(f'or {kind} {turned}, {sign}')}")
    nan = b.value(f"icmp ugt {kind} {size}, {_EXPONENTS[dtype.name]}")
    return b.value(f"select i1 {nan}, {kind} -1, {kind} {flipped}")


def _at(b: FunctionBuilder, kind: str, base: str, k: str) -> str:
    return b.value(f"getelementptr {kind}, ptr {base}, i64 {k}")


def _passes(b: FunctionBuilder, kind: str, counts: str) -> None:
    """One byte in a pass: where each of its values begins, then every entry to its place. The result is in %from."""
    b.start("pass")
    b.effect("%shift = phi i64 [ 0, %copied ], [ %shift.next, %passed ]")
    for name, first, second in (("", "%first", "%second"), (".keys", "%spare", "%spare.second")):
        b.effect(f"%from{name} = phi ptr [ {first}, %copied ], [ %from{name}.next, %passed ]")
        b.effect(f"%to{name} = phi ptr [ {second}, %copied ], [ %to{name}.next, %passed ]")
    b.branch_if(b.value(f"icmp ult i64 %shift, {kind[1:]}"), "clear", "write")
    b.start("clear")
    b.effect(f"call void @llvm.memset.p0.i64(ptr {counts}, i8 0, i64 {256 * 8}, i1 false)")
    b.branch("count")
    b.start("count")
    b.effect("%c = phi i64 [ 0, %clear ], [ %c.next, %count ]")
    slot = _slot(b, kind, counts, "%c")[0]
    count = b.value(f"load i64, ptr {slot}")
    b.effect(f"store i64 {b.value(f'add i64 {count}, 1')}, ptr {slot}")
    b.effect("%c.next = add i64 %c, 1")
    b.branch_if(b.value("icmp slt i64 %c.next, %n"), "count", "counted")
    b.start("counted")
    most = b.value(f"load i64, ptr {_slot(b, kind, counts, '0')[0]}")
    b.branch_if(b.value(f"icmp eq i64 {most}, %n"), "same", "sum")
    b.start("same")
    b.branch("passed")
    _sum(b, counts)
    _place(b, kind, counts)
    b.start("passed")
    for name in ("", ".keys"):
        b.effect(f"%from{name}.next = phi ptr [ %from{name}, %same ], [ %to{name}, %placed ]")
        b.effect(f"%to{name}.next = phi ptr [ %to{name}, %same ], [ %from{name}, %placed ]")
    b.effect("%shift.next = add i64 %shift, 8")
    b.branch("pass")


def _slot(b: FunctionBuilder, kind: str, counts: str, k: str) -> tuple[str, str]:
    """(the counter of entry k's byte, its key)."""
    key = b.value(f"load {kind}, ptr {_at(b, kind, '%from.keys', k)}, align {int(kind[1:]) // 8}")
    amount = "%shift" if kind == "i64" else b.value(f"trunc i64 %shift to {kind}")
    byte = b.value(f"and {kind} {b.value(f'lshr {kind} {key}, {amount}')}, 255")
    wide = byte if kind == "i64" else b.value(f"zext {kind} {byte} to i64")
    return _at(b, "i64", counts, wide), key


def _sum(b: FunctionBuilder, counts: str) -> None:
    """Counts become beginnings."""
    b.start("sum")
    b.effect("%d = phi i64 [ 0, %counted ], [ %d.next, %sum ]")
    b.effect("%total = phi i64 [ 0, %counted ], [ %total.next, %sum ]")
    slot = _at(b, "i64", counts, "%d")
    b.effect(f"%total.next = add i64 %total, {b.value(f'load i64, ptr {slot}')}")
    b.effect(f"store i64 %total, ptr {slot}")
    b.effect("%d.next = add i64 %d, 1")
    b.branch_if(b.value("icmp ult i64 %d.next, 256"), "sum", "place")


def _place(b: FunctionBuilder, kind: str, counts: str) -> None:
    """Every entry to the next place of its byte."""
    b.start("place")
    b.effect("%p = phi i64 [ 0, %sum ], [ %p.next, %place ]")
    slot, key = _slot(b, kind, counts, "%p")
    target = b.value(f"load i64, ptr {slot}")
    b.effect(f"store i64 {b.value(f'add i64 {target}, 1')}, ptr {slot}")
    b.effect(f"store {kind} {key}, ptr {_at(b, kind, '%to.keys', target)}, align {int(kind[1:]) // 8}")
    position = b.value(f"load i64, ptr {_at(b, 'i64', '%from', '%p')}")
    b.effect(f"store i64 {position}, ptr {_at(b, 'i64', '%to', target)}")
    b.effect("%p.next = add i64 %p, 1")
    b.branch_if(b.value("icmp slt i64 %p.next, %n"), "place", "placed")
    b.start("placed")
    b.branch("passed")
