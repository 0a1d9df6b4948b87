"""`Call`: runtime routines, written as internal functions of the module.

`sort` and `top_k` order one line (all else fixed) at a time, stable, NaN as larger than all else: few positions and copies of
their keys by a bottom-up merge sort, many by their bytes (`radix.py`). `top_k` of long lines gathers those that come before the
last of the k best so far, and sorts whenever twice as many are together. Their memory is the heap's: without it the block ends
with TC0606's status.
"""

from __future__ import annotations

from tcomp.codegen.llvm import loops
from tcomp.codegen.llvm.address import access, address, text
from tcomp.codegen.llvm.builder import FunctionBuilder
from tcomp.codegen.llvm.convert import MEMORY, Elements, from_memory
from tcomp.codegen.llvm.radix import radix_text
from tcomp.codegen.llvm.writer import REGISTER, Writer
from tcomp.ir import index
from tcomp.ir.artifact import STATUS_CODES
from tcomp.ir.dtype import DType
from tcomp.ir.node import Node
from tcomp.ir.stmts import Call

_NO_MEMORY = next(k for k, code in STATUS_CODES.items() if code == "TC0606") << 32
_DESCENDING = {"sort": ("descending", False), "top_k": ("largest", True)}


def call(w: Writer, s: Call) -> None:
    """Order every line of the input along the axis; what the outputs have room for is written."""
    flag, default = _DESCENDING[s.routine]
    attrs = dict(s.attrs)
    source = s.inputs[0]
    dtype: DType = w.window(source).buffer.dtype
    rank = w.window(source).rank
    axis = int(attrs.get("axis", -1)) % rank
    name = _routine(w, s.routine, dtype, bool(attrs.get(flag, default)))
    windows = (source, *s.outputs)
    starts = [address(w, access(w, n).buffer, access(w, n).base) for n in windows]
    _lines(w, windows, axis, [a for a in range(rank) if a != axis], starts, name)


def _lines(w: Writer, windows: tuple[Node, ...], axis: int, rest: list[int], pointers: list[str], name: str) -> None:
    """Loops over the other axes, then one call for the line that starts at `pointers`."""
    if not rest:
        _line(w, windows, axis, pointers, name)
        return
    extent = w.window(windows[0]).extents[rest[0]]

    def body(counter: str, _: list[str]) -> list[str]:
        moved = [_step(w, p, n, rest[0], counter) for p, n in zip(pointers, windows)]
        _lines(w, windows, axis, rest[1:], moved, name)
        return []

    loops.counted(w, "0", text(w, extent), 1, [], body, certain=False)


def _step(w: Writer, pointer: str, n: Node, axis: int, counter: str) -> str:
    offset = w.b.value(f"mul i64 {counter}, {_stride(w, n, axis)}")
    return w.b.value(f"getelementptr i8, ptr {pointer}, i64 {offset}")


def _stride(w: Writer, n: Node, axis: int) -> str:
    """The bytes between neighbours along a tile axis."""
    a = access(w, n)
    assert not a.bent, f"{a.buffer.name}: a routine on a window that is no plain part of its buffer"
    return text(w, index.mul(a.strides[axis], a.buffer.dtype.bytes))


def _line(w: Writer, windows: tuple[Node, ...], axis: int, pointers: list[str], name: str) -> None:
    count, kept = (text(w, w.window(n).extents[axis]) for n in windows[:2])
    places = ", ".join(f"ptr {p}, i64 {_stride(w, n, axis)}" for p, n in zip(pointers, windows))
    status = w.b.value(f"call i64 {name}({places}, i64 {count}, i64 {kept})")
    failed, ok = w.b.fresh("failed"), w.b.fresh("ok")
    w.b.branch_if(w.b.value(f"icmp ne i64 {status}, 0"), failed, ok)
    w.b.start(failed)
    w.b.effect(f"ret i64 {status}")
    w.b.start(ok)


# --- the sorter of one line ----------------------------------------------------------------------------


_LINE = "ptr %keys, i64 %step, ptr %values, i64 %value.step, ptr %places, i64 %place.step, i64 %n, i64 %kept"
_FEW = 64  # positions are sorted together at least
_MANY = {1: 16, 2: 16, 4: 24, 8: 80}  # keys of so many bytes are sorted by their bytes: where that is sooner than merging them


def _routine(w: Writer, routine: str, dtype: DType, descending: bool) -> str:
    """The name of the function (keys, their stride, values, stride, positions, stride, number of keys, number kept) -> status."""
    end = f"{dtype}_{'down' if descending else 'up'}"
    order = w.b.module.helper(f"order_{end}", lambda: _order_text(w, f"order_{end}", dtype, descending))
    sort = w.b.module.helper(f"sort_{end}", lambda: _sort_text(w, f"sort_{end}", dtype, order))
    if routine == "sort":
        return sort
    return w.b.module.helper(f"select_{end}", lambda: _select_text(w, f"select_{end}", dtype, descending, (order, sort)))


def _sort_text(w: Writer, name: str, dtype: DType, order: str) -> str:
    b = FunctionBuilder(w.b.module)
    _allocate(b, "%n", dtype)
    _number_positions(b)
    b.start("numbered")
    b.effect(f"%from = call ptr {order}(ptr %keys, i64 %step, ptr %first, ptr %second, ptr %spare, i64 %n)")
    _write_line(b, MEMORY[dtype.name], dtype.bytes)
    return f"define internal i64 @{name}({_LINE}) nounwind noinline {{\n{b.body()}\n}}"


def _order_text(w: Writer, name: str, dtype: DType, descending: bool) -> str:
    """(keys, stride, positions, room for as many, for keys of both, their number of at least 1) -> where they are in order: one
    of the two."""
    b = FunctionBuilder(w.b.module)
    radix = w.b.module.helper(
        f"radix_{name}", lambda: radix_text(FunctionBuilder(w.b.module), f"radix_{name}", dtype, descending)
    )
    b.branch_if(b.value(f"icmp slt i64 %n, {_MANY[dtype.bytes]}"), "few", "many")
    b.start("many")
    b.effect(f"%ordered = tail call ptr {radix}(ptr %keys, i64 %step, ptr %first, ptr %second, ptr %spare, i64 %n)")
    b.effect("ret ptr %ordered")
    b.start("few")
    _copy_keys(b, dtype)
    _merge_passes(b, Elements(b, 1, w.features), dtype, descending)
    b.start("write")
    b.effect("ret ptr %from")
    places = "ptr %keys, i64 %step, ptr %first, ptr %second, ptr %spare, i64 %n"
    return f"define internal ptr @{name}({places}) nounwind noinline {{\n{b.body()}\n}}"


def _select_text(w: Writer, name: str, dtype: DType, descending: bool, functions: tuple[str, str]) -> str:
    """Positions whose key comes before the last of the best so far are put behind these; %room of them are sorted and cut."""
    b, (order, sort) = FunctionBuilder(w.b.module), functions
    e, element = Elements(b, 1, w.features), REGISTER[dtype.name]
    b.module.declare("i64 @llvm.smax.i64(i64, i64)")
    b.effect(f"%room = call i64 @llvm.smax.i64(i64 {b.value('shl i64 %kept, 1')}, i64 {_FEW})")
    b.branch_if(b.value("icmp sge i64 %room, %n"), "short", "long")
    b.start("short")
    b.effect(f"%status = tail call i64 {sort}({_LINE})")
    b.effect("ret i64 %status")
    b.start("long")
    _allocate(b, "%room", dtype)
    b.start("number")
    start = _key(b, e, dtype, "0")
    b.branch("scan")
    _scan(b, e, dtype, descending, element, start)
    b.start("full.room")
    b.effect(f"%sorted = call ptr {order}(ptr %keys, i64 %step, ptr %here, ptr %there, ptr %spare, i64 %room)")
    b.effect(f"%other = select i1 {b.value('icmp eq ptr %sorted, %here')}, ptr %there, ptr %here")
    last = b.value(f"getelementptr i64, ptr %sorted, i64 {b.value('sub i64 %kept, 1')}")
    b.effect(f"%limit.new = freeze {element} {_key(b, e, dtype, b.value(f'load i64, ptr {last}'))}")
    b.branch("next")
    _next(b, element)
    b.start("scanned")
    b.effect(f"%from = call ptr {order}(ptr %keys, i64 %step, ptr %here.next, ptr %there.next, ptr %spare, i64 %count.next)")
    _write_line(b, MEMORY[dtype.name], dtype.bytes)
    return f"define internal i64 @{name}({_LINE}) nounwind noinline {{\n{b.body()}\n}}"


def _scan(b: FunctionBuilder, e: Elements, dtype: DType, descending: bool, element: str, start: str) -> None:
    """One position: %count of them are in %here; %limit is the key to come before, once %cut."""
    b.start("scan")
    b.effect("%k = phi i64 [ 0, %number ], [ %k.next, %next ]")
    b.effect("%count = phi i64 [ 0, %number ], [ %count.next, %next ]")
    b.effect("%cut = phi i1 [ false, %number ], [ %cut.next, %next ]")
    b.effect(f"%limit = phi {element} [ {start}, %number ], [ %limit.next, %next ]")
    b.effect("%here = phi ptr [ %first, %number ], [ %here.next, %next ]")
    b.effect("%there = phi ptr [ %second, %number ], [ %there.next, %next ]")
    before = _before(b, e, dtype, _key(b, e, dtype, "%k"), "%limit", descending)
    b.branch_if(b.value(f"or i1 {b.value('xor i1 %cut, true')}, {before}"), "take", "skip")
    b.start("skip")
    b.branch("next")
    b.start("take")
    b.effect(f"store i64 %k, ptr {b.value('getelementptr i64, ptr %here, i64 %count')}")
    b.effect("%more = add i64 %count, 1")
    b.branch_if(b.value("icmp eq i64 %more, %room"), "full.room", "taken")
    b.start("taken")
    b.branch("next")


def _next(b: FunctionBuilder, element: str) -> None:
    b.start("next")
    b.effect("%count.next = phi i64 [ %count, %skip ], [ %more, %taken ], [ %kept, %full.room ]")
    b.effect("%cut.next = phi i1 [ %cut, %skip ], [ %cut, %taken ], [ true, %full.room ]")
    b.effect(f"%limit.next = phi {element} [ %limit, %skip ], [ %limit, %taken ], [ %limit.new, %full.room ]")
    b.effect("%here.next = phi ptr [ %here, %skip ], [ %here, %taken ], [ %sorted, %full.room ]")
    b.effect("%there.next = phi ptr [ %there, %skip ], [ %there, %taken ], [ %other, %full.room ]")
    b.effect("%k.next = add i64 %k, 1")
    b.branch_if(b.value("icmp slt i64 %k.next, %n"), "scan", "scanned")


def _allocate(b: FunctionBuilder, count: str, dtype: DType) -> None:
    """Two arrays of so many positions, %first and %second, and %spare, room for the keys of both."""
    b.branch_if(b.value("icmp slt i64 %kept, 1"), "nothing", "some")
    b.start("nothing")
    b.effect("ret i64 0")
    b.start("some")
    bytes_needed = b.value(f"mul i64 {count}, {2 * (8 + dtype.bytes)}")
    b.module.declare("ptr @malloc(i64)")
    b.module.declare("void @free(ptr)")
    b.effect(f"%first = call ptr @malloc(i64 {bytes_needed})")
    b.branch_if(b.value("icmp eq ptr %first, null"), "full", "ready")
    b.start("full")
    b.effect(f"ret i64 {_NO_MEMORY}")
    b.start("ready")
    b.effect(f"%second = getelementptr i64, ptr %first, i64 {count}")
    b.effect(f"%spare = getelementptr i64, ptr %second, i64 {count}")
    b.branch("number")


def _number_positions(b: FunctionBuilder) -> None:
    b.start("number")
    b.effect("%k = phi i64 [ 0, %ready ], [ %k.next, %number ]")
    b.effect(f"store i64 %k, ptr {b.value('getelementptr i64, ptr %first, i64 %k')}")
    b.effect("%k.next = add i64 %k, 1")
    b.branch_if(b.value("icmp slt i64 %k.next, %n"), "number", "numbered")


def _copy_keys(b: FunctionBuilder, dtype: DType) -> None:
    """The keys of %first in their order, in the first half of %spare."""
    element = MEMORY[dtype.name]
    b.branch("begin")
    b.start("begin")
    b.effect(f"%spare.second = getelementptr {element}, ptr %spare, i64 %n")
    b.branch("copy")
    b.start("copy")
    b.effect("%k = phi i64 [ 0, %begin ], [ %k.next, %copy ]")
    position = b.value(f"load i64, ptr {b.value('getelementptr i64, ptr %first, i64 %k')}")
    key = _raw_key(b, dtype, position)
    b.effect(f"store {element} {key}, ptr {_at(b, dtype, '%spare', '%k')}, align {dtype.bytes}")
    b.effect("%k.next = add i64 %k, 1")
    b.branch_if(b.value("icmp slt i64 %k.next, %n"), "copy", "copied")
    b.start("copied")


def _at(b: FunctionBuilder, dtype: DType, base: str, k: str) -> str:
    return b.value(f"getelementptr {MEMORY[dtype.name]}, ptr {base}, i64 {k}")


def _merge_passes(b: FunctionBuilder, e: Elements, dtype: DType, descending: bool) -> None:
    """Runs of %width in %from (their keys in %from.keys) become runs twice as long in %to, until one is left (in %from)."""
    b.branch("pass")
    b.start("pass")
    b.effect("%width = phi i64 [ 1, %copied ], [ %double, %passed ]")
    for kind, first, second in (("", "%first", "%second"), (".keys", "%spare", "%spare.second")):
        b.effect(f"%from{kind} = phi ptr [ {first}, %copied ], [ %to{kind}, %passed ]")
        b.effect(f"%to{kind} = phi ptr [ {second}, %copied ], [ %from{kind}, %passed ]")
    b.effect("%double = shl i64 %width, 1")
    b.branch_if(b.value("icmp slt i64 %width, %n"), "run", "write")
    b.start("run")
    b.effect("%low = phi i64 [ 0, %pass ], [ %low.next, %merged ]")
    b.effect("%low.next = add i64 %low, %double")
    b.module.declare("i64 @llvm.smin.i64(i64, i64)")
    b.effect(f"%middle = call i64 @llvm.smin.i64(i64 {b.value('add i64 %low, %width')}, i64 %n)")
    b.effect("%high = call i64 @llvm.smin.i64(i64 %low.next, i64 %n)")
    b.branch("merge")
    _merge(b, e, dtype, descending)
    b.start("merged")
    b.branch_if(b.value("icmp slt i64 %low.next, %n"), "run", "passed")
    b.start("passed")
    b.branch("pass")


def _merge(b: FunctionBuilder, e: Elements, dtype: DType, descending: bool) -> None:
    """One element: the right run's where the left is used up or its key surely comes before."""
    b.start("merge")
    for name, first in (("i", "%low"), ("j", "%middle"), ("o", "%low")):
        b.effect(f"%{name} = phi i64 [ {first}, %run ], [ %{name}.next, %merge ]")
    (left, left_key), (right, right_key) = (_entry(b, dtype, at, end) for at, end in (("%i", "%middle"), ("%j", "%high")))
    before = _before(b, e, dtype, from_memory(e, dtype, right_key), from_memory(e, dtype, left_key), descending)
    used_up = b.value("icmp sge i64 %i, %middle")
    wanted = b.value(f"or i1 {used_up}, {before}")
    take = b.value(f"and i1 {b.value('icmp slt i64 %j, %high')}, {wanted}")
    element, size = MEMORY[dtype.name], dtype.bytes
    for kind, x, y, base, bytes_ in (("i64", right, left, "%to", 8), (element, right_key, left_key, "%to.keys", size)):
        chosen = b.value(f"select i1 {take}, {kind} {x}, {kind} {y}")
        b.effect(f"store {kind} {chosen}, ptr {b.value(f'getelementptr {kind}, ptr {base}, i64 %o')}, align {bytes_}")
    step = b.value(f"zext i1 {take} to i64")
    b.effect(f"%j.next = add i64 %j, {step}")
    b.effect(f"%i.next = add i64 %i, {b.value(f'xor i64 {step}, 1')}")
    b.effect("%o.next = add i64 %o, 1")
    b.branch_if(b.value("icmp slt i64 %o.next, %high"), "merge", "merged")


def _entry(b: FunctionBuilder, dtype: DType, at: str, end: str) -> tuple[str, str]:
    """The position and the key at `at`, or the run's last ones where it is used up."""
    last = b.value(f"sub i64 {end}, 1")
    kept = b.value(f"call i64 @llvm.smin.i64(i64 {at}, i64 {last})")
    position = b.value(f"load i64, ptr {b.value(f'getelementptr i64, ptr %from, i64 {kept}')}")
    return position, b.value(f"load {MEMORY[dtype.name]}, ptr {_at(b, dtype, '%from.keys', kept)}, align {dtype.bytes}")


def _raw_key(b: FunctionBuilder, dtype: DType, position: str) -> str:
    pointer = b.value(f"getelementptr i8, ptr %keys, i64 {b.value(f'mul i64 {position}, %step')}")
    return b.value(f"load {MEMORY[dtype.name]}, ptr {pointer}, align {dtype.bytes}")


def _key(b: FunctionBuilder, e: Elements, dtype: DType, position: str) -> str:
    return from_memory(e, dtype, _raw_key(b, dtype, position))


def _before(b: FunctionBuilder, e: Elements, dtype: DType, x: str, y: str, descending: bool) -> str:
    """Whether key x comes before key y, NaN as the largest."""
    if descending:
        x, y = y, x
    element = REGISTER[dtype.name]
    if not dtype.is_float:
        return e.compare("icmp slt" if dtype.kind == "int" else "icmp ult", element, x, y)
    number = e.compare("fcmp ord", element, x, x)
    above = b.value(f"and i1 {number}, {e.compare('fcmp uno', element, y, y)}")
    return b.value(f"or i1 {e.compare('fcmp olt', element, x, y)}, {above}")


def _write_line(b: FunctionBuilder, element: str, size: int) -> None:
    """The first %kept values and positions."""
    b.branch("write")
    b.start("write")
    b.branch("out")
    b.start("out")
    b.effect("%r = phi i64 [ 0, %write ], [ %r.next, %out ]")
    position = b.value(f"load i64, ptr {b.value('getelementptr i64, ptr %from, i64 %r')}")
    source = b.value(f"getelementptr i8, ptr %keys, i64 {b.value(f'mul i64 {position}, %step')}")
    x = b.value(f"load {element}, ptr {source}, align {size}")
    for kind, value, base, step in ((element, x, "%values", "%value.step"), ("i64", position, "%places", "%place.step")):
        target = b.value(f"getelementptr i8, ptr {base}, i64 {b.value(f'mul i64 %r, {step}')}")
        b.effect(f"store {kind} {value}, ptr {target}, align {size if kind == element else 8}")
    b.effect("%r.next = add i64 %r, 1")
    b.branch_if(b.value("icmp slt i64 %r.next, %kept"), "out", "end")
    b.start("end")
    b.effect("call void @free(ptr %first)")
    b.effect("ret i64 0")
