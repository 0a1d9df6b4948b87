; The call object: what `f(x, y)` runs when f is a compiled program. One generic function, driven by a descriptor that
; Python packs (tcomp/runtime/callobject.py names its slots); inputs that do not fit what the program was compiled for,
; and calls that fail, answer NotImplemented, whereupon Python takes the slow path and finds the error.
;
; Offsets into Python and NumPy objects are those of 64-bit CPython with a GIL and NumPy 2; tcomp/runtime/cpython.py
; compares them with live objects before this text is compiled.

; Set by Python: NotImplemented, numpy.ndarray, PyArray_NewFromDescr, PyArray_SetBaseObject, the type tcomp.Buffer.
@tc_environment = global [5 x ptr] zeroinitializer

; Types and the method, as PyType_FromSpec and PyCFunction_NewEx read them. tcomp.Buffer owns a block of the allocator;
; tcomp.Program carries a descriptor's address where Python can set it.
@buffer_name = internal constant [13 x i8] c"tcomp.Buffer\00"
@buffer_slots = internal global [2 x { i32, ptr }] [{ i32, ptr } { i32 52, ptr @buffer_dealloc }, { i32, ptr } zeroinitializer]
@tc_buffer_spec = global { ptr, i32, i32, i32, ptr } { ptr @buffer_name, i32 24, i32 0, i32 128, ptr @buffer_slots }

@program_name = internal constant [14 x i8] c"tcomp.Program\00"
@program_field = internal constant [8 x i8] c"address\00"
@program_members = internal global [2 x { ptr, i32, i64, i32, ptr }] [{ ptr, i32, i64, i32, ptr } { ptr @program_field, i32 17, i64 16, i32 0, ptr null }, { ptr, i32, i64, i32, ptr } zeroinitializer]
@program_slots = internal global [2 x { i32, ptr }] [{ i32, ptr } { i32 72, ptr @program_members }, { i32, ptr } zeroinitializer]
@tc_program_spec = global { ptr, i32, i32, i32, ptr } { ptr @program_name, i32 24, i32 0, i32 1024, ptr @program_slots }

@method_name = internal constant [5 x i8] c"call\00"
@tc_method = global { ptr, ptr, i32, ptr } { ptr @method_name, ptr @call, i32 128, ptr null }

declare ptr @tc_alloc(i64)
declare void @tc_free(ptr)
declare void @tc_run(ptr, ptr, i64)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare ptr @_PyObject_New(ptr)
declare void @PyObject_Free(ptr)
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @memcpy(ptr, ptr, i64)
declare ptr @memset(ptr, i32, i64)
declare { i64, i1 } @llvm.umul.with.overflow.i64(i64, i64)

; METH_FASTCALL: program(self, arguments, count). Descriptors of variants are tried in turn; all have as many inputs.
define internal ptr @call(ptr %self, ptr %arguments, i64 %count) nounwind {
entry:
  %place = getelementptr i8, ptr %self, i64 16
  %first = load ptr, ptr %place, align 8
  %inputs = call i64 @slot(ptr %first, i64 3)
  %as_many = icmp eq i64 %count, %inputs
  br i1 %as_many, label %frame, label %refuse

frame:
  %slots = call i64 @slot(ptr %first, i64 13)
  %f = alloca i64, i64 %slots, align 64
  %s = getelementptr i64, ptr %f, i64 11
  br label %look

look:
  %d = phi ptr [ %first, %frame ], [ %following, %other ]
  %symbols = call i64 @slot(ptr %d, i64 5)
  %planned = call i64 @slot(ptr %d, i64 12)
  %sizes = getelementptr i64, ptr %s, i64 %symbols
  %in = getelementptr i64, ptr %sizes, i64 %planned
  %out = getelementptr i64, ptr %in, i64 %inputs
  %dims = getelementptr i64, ptr %sizes, i64 2
  %fit = call i1 @take_inputs(ptr %d, ptr %arguments, ptr %in, ptr %s)
  br i1 %fit, label %plan, label %other

other:
  %following = call ptr @pointer(ptr %d, i64 14)
  %none_left = icmp eq ptr %following, null
  br i1 %none_left, label %refuse, label %look

plan:
  %known = call i1 @plan(ptr %d, ptr %s, ptr %sizes)
  br i1 %known, label %reserve, label %other

reserve:
  %space = call ptr @fill_frame(ptr %d, ptr %f, ptr %sizes)
  %short = icmp eq ptr %space, null
  br i1 %short, label %refuse, label %allocate

allocate:
  call void @store_tables(ptr %f, ptr %s, ptr %in, ptr %out, ptr %dims)
  %enough = call i1 @allocate_outputs(ptr %d, ptr %dims, ptr %out)
  br i1 %enough, label %run, label %undo

run:
  call void @run(ptr %d, ptr %f)
  call void @free_kept(ptr %f)
  %status = load i64, ptr %f, align 8
  %good = icmp eq i64 %status, 0
  br i1 %good, label %check, label %undo

check:
  %whole = call i1 @all_present(ptr %d, ptr %out)
  br i1 %whole, label %give, label %undo

give:
  call void @tc_free(ptr %space)
  %result = call ptr @collect(ptr %d, ptr %dims, ptr %out)
  ret ptr %result

undo:
  call void @tc_free(ptr %space)
  call void @drop_outputs(ptr %d, ptr %out, i64 0)
  br label %refuse

refuse:
  %no = load ptr, ptr @tc_environment, align 8
  call void @Py_IncRef(ptr %no)
  ret ptr %no
}

define internal i64 @slot(ptr %table, i64 %i) nounwind {
  %place = getelementptr i64, ptr %table, i64 %i
  %value = load i64, ptr %place, align 8
  ret i64 %value
}

define internal ptr @pointer(ptr %table, i64 %i) nounwind {
  %place = getelementptr ptr, ptr %table, i64 %i
  %value = load ptr, ptr %place, align 8
  ret ptr %value
}

; Check every argument and note its data; false where one does not fit.
define internal i1 @take_inputs(ptr %d, ptr %arguments, ptr %in, ptr %symbols) nounwind {
entry:
  %count = call i64 @slot(ptr %d, i64 3)
  %records = call ptr @pointer(ptr %d, i64 10)
  br label %look

look:
  %i = phi i64 [ 0, %entry ], [ %next, %take ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %check, label %yes

check:
  %record = getelementptr [3 x i64], ptr %records, i64 %i
  %object = call ptr @pointer(ptr %arguments, i64 %i)
  %fits = call i1 @array_fits(ptr %object, ptr %record, ptr %symbols)
  br i1 %fits, label %take, label %no

take:
  %data = call ptr @pointer(ptr %object, i64 2)
  %place = getelementptr ptr, ptr %in, i64 %i
  store ptr %data, ptr %place, align 8
  %next = add i64 %i, 1
  br label %look

yes:
  ret i1 true

no:
  ret i1 false
}

; record: dtype object, rank, address of the dimensions' rules. Exactly numpy.ndarray, C-contiguous, aligned.
define internal i1 @array_fits(ptr %object, ptr %record, ptr %symbols) nounwind {
  %type = call ptr @pointer(ptr %object, i64 1)
  %ndarray = call ptr @pointer(ptr @tc_environment, i64 1)
  %exact = icmp eq ptr %type, %ndarray
  br i1 %exact, label %array, label %no

array:
  %dtype = call ptr @pointer(ptr %object, i64 7)
  %wanted = call ptr @pointer(ptr %record, i64 0)
  %same = icmp eq ptr %dtype, %wanted
  %rank_place = getelementptr i8, ptr %object, i64 24
  %rank = load i32, ptr %rank_place, align 8
  %rank_wanted = call i64 @slot(ptr %record, i64 1)
  %wide = sext i32 %rank to i64
  %ranked = icmp eq i64 %wide, %rank_wanted
  %flags_place = getelementptr i8, ptr %object, i64 64
  %flags = load i32, ptr %flags_place, align 8
  %both = and i32 %flags, 257
  %plain = icmp eq i32 %both, 257
  %a = and i1 %same, %ranked
  %b = and i1 %a, %plain
  br i1 %b, label %shape, label %no

shape:
  %dimensions = call ptr @pointer(ptr %object, i64 4)
  %rules = call ptr @pointer(ptr %record, i64 2)
  %fits = call i1 @shape_fits(ptr %dimensions, ptr %rules, i64 %wide, ptr %symbols)
  ret i1 %fits

no:
  ret i1 false
}

; A rule is a size; or the complement of twice a symbol's number: the symbol is bound; plus 1: it must be equal.
define internal i1 @shape_fits(ptr %dimensions, ptr %rules, i64 %rank, ptr %symbols) nounwind {
entry:
  br label %look

look:
  %i = phi i64 [ 0, %entry ], [ %next, %advance ]
  %more = icmp slt i64 %i, %rank
  br i1 %more, label %check, label %yes

check:
  %size = call i64 @slot(ptr %dimensions, i64 %i)
  %rule = call i64 @slot(ptr %rules, i64 %i)
  %constant = icmp sge i64 %rule, 0
  br i1 %constant, label %compare, label %symbolic

symbolic:
  %code = xor i64 %rule, -1
  %number = lshr i64 %code, 1
  %kind = and i64 %code, 1
  %place = getelementptr i64, ptr %symbols, i64 %number
  %again = icmp eq i64 %kind, 1
  br i1 %again, label %bound, label %bind

bind:
  store i64 %size, ptr %place, align 8
  br label %advance

bound:
  %value = load i64, ptr %place, align 8
  br label %compare

compare:
  %expected = phi i64 [ %rule, %check ], [ %value, %bound ]
  %equal = icmp eq i64 %size, %expected
  br i1 %equal, label %advance, label %no

advance:
  %next = add i64 %i, 1
  br label %look

yes:
  ret i1 true

no:
  ret i1 false
}

; The plan's table: computed from the symbols, or copied where the sizes are static. False where an assertion failed.
define internal i1 @plan(ptr %d, ptr %symbols, ptr %sizes) nounwind {
  %function = call ptr @pointer(ptr %d, i64 1)
  %static = icmp eq ptr %function, null
  br i1 %static, label %copy, label %compute

copy:
  %table = call ptr @pointer(ptr %d, i64 9)
  %slots = call i64 @slot(ptr %d, i64 12)
  %bytes = shl i64 %slots, 3
  %r = call ptr @memcpy(ptr %sizes, ptr %table, i64 %bytes)
  ret i1 true

compute:
  %status = call i64 %function(ptr %symbols, ptr %sizes)
  %good = icmp eq i64 %status, 0
  ret i1 %good
}

; Reserve arena, scratch of every thread and counters in one block and enter them in the frame. The block, or null.
define internal ptr @fill_frame(ptr %d, ptr %f, ptr %sizes) nounwind {
  %arena_size = call i64 @slot(ptr %sizes, i64 0)
  %scratch_size = call i64 @slot(ptr %sizes, i64 1)
  %counters_size = call i64 @slot(ptr %d, i64 6)
  %threads = call i64 @slot(ptr %d, i64 7)
  %scratch_all = mul i64 %scratch_size, %threads
  %arena_up = add i64 %arena_size, 63
  %scratch_at = and i64 %arena_up, -64
  %scratch_end = add i64 %scratch_at, %scratch_all
  %scratch_up = add i64 %scratch_end, 63
  %counters_at = and i64 %scratch_up, -64
  %total = add i64 %counters_at, %counters_size
  %space = call ptr @tc_alloc(i64 %total)
  %none = icmp eq ptr %space, null
  br i1 %none, label %out, label %fill

fill:
  %scratch = getelementptr i8, ptr %space, i64 %scratch_at
  %counters = getelementptr i8, ptr %space, i64 %counters_at
  %r = call ptr @memset(ptr %counters, i32 0, i64 %counters_size)
  %constants = call ptr @pointer(ptr %d, i64 2)
  store i64 0, ptr %f, align 8
  %f2 = getelementptr ptr, ptr %f, i64 2
  store ptr %space, ptr %f2, align 8
  %f3 = getelementptr ptr, ptr %f, i64 3
  store ptr %scratch, ptr %f3, align 8
  %f4 = getelementptr ptr, ptr %f, i64 4
  store ptr %constants, ptr %f4, align 8
  %f5 = getelementptr ptr, ptr %f, i64 5
  store ptr %counters, ptr %f5, align 8
  br label %out

out:
  ret ptr %space
}

define internal void @store_tables(ptr %f, ptr %symbols, ptr %in, ptr %out, ptr %dims) nounwind {
  %f6 = getelementptr ptr, ptr %f, i64 6
  store ptr %symbols, ptr %f6, align 8
  %f7 = getelementptr ptr, ptr %f, i64 7
  store ptr %in, ptr %f7, align 8
  %f8 = getelementptr ptr, ptr %f, i64 8
  store ptr %out, ptr %f8, align 8
  %f9 = getelementptr ptr, ptr %f, i64 9
  store ptr %dims, ptr %f9, align 8
  %f10 = getelementptr ptr, ptr %f, i64 10
  store ptr null, ptr %f10, align 8
  ret void
}

; Free what main allocated for itself.
define internal void @free_kept(ptr %f) nounwind {
entry:
  %first = call ptr @pointer(ptr %f, i64 10)
  br label %look

look:
  %block = phi ptr [ %first, %entry ], [ %next, %drop ]
  %end = icmp eq ptr %block, null
  br i1 %end, label %out, label %drop

drop:
  %next = load ptr, ptr %block, align 8
  call void @tc_free(ptr %block)
  br label %look

out:
  ret void
}

; Buffers of the outputs whose size is known; null for those that main allocates. False where there is no memory: then
; the table is complete all the same, so that it can be dropped.
; record: dtype object, rank, bytes of an element, whether main allocates it.
define internal i1 @allocate_outputs(ptr %d, ptr %dims, ptr %out) nounwind {
entry:
  %count = call i64 @slot(ptr %d, i64 4)
  %records = call ptr @pointer(ptr %d, i64 11)
  br label %look

look:
  %i = phi i64 [ 0, %entry ], [ %next, %store ]
  %at = phi ptr [ %dims, %entry ], [ %after, %store ]
  %good = phi i1 [ true, %entry ], [ %still, %store ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %one, label %out_of_loop

one:
  %record = getelementptr [4 x i64], ptr %records, i64 %i
  %rank = call i64 @slot(ptr %record, i64 1)
  %after = getelementptr i64, ptr %at, i64 %rank
  %later = call i64 @slot(ptr %record, i64 3)
  %now = icmp eq i64 %later, 0
  br i1 %now, label %allocate, label %store

allocate:
  %element = call i64 @slot(ptr %record, i64 2)
  %bytes = call i64 @array_bytes(ptr %at, i64 %rank, i64 %element)
  %block = call ptr @tc_alloc(i64 %bytes)
  %got = icmp ne ptr %block, null
  br label %store

store:
  %data = phi ptr [ null, %one ], [ %block, %allocate ]
  %fine = phi i1 [ true, %one ], [ %got, %allocate ]
  %place = getelementptr ptr, ptr %out, i64 %i
  store ptr %data, ptr %place, align 8
  %still = and i1 %good, %fine
  %next = add i64 %i, 1
  br label %look

out_of_loop:
  ret i1 %good
}

; The product of the dimensions and the element's bytes; all ones, which no allocator has, where it overflows.
define internal i64 @array_bytes(ptr %dims, i64 %rank, i64 %element) nounwind {
entry:
  br label %look

look:
  %i = phi i64 [ 0, %entry ], [ %next, %multiply ]
  %bytes = phi i64 [ %element, %entry ], [ %product, %multiply ]
  %over = phi i1 [ false, %entry ], [ %ever, %multiply ]
  %more = icmp slt i64 %i, %rank
  br i1 %more, label %multiply, label %out

multiply:
  %size = call i64 @slot(ptr %dims, i64 %i)
  %both = call { i64, i1 } @llvm.umul.with.overflow.i64(i64 %bytes, i64 %size)
  %product = extractvalue { i64, i1 } %both, 0
  %overflow = extractvalue { i64, i1 } %both, 1
  %ever = or i1 %over, %overflow
  %next = add i64 %i, 1
  br label %look

out:
  %result = select i1 %over, i64 -1, i64 %bytes
  ret i64 %result
}

; Run main, without the GIL where the descriptor says that it is worth it.
define internal void @run(ptr %d, ptr %f) nounwind {
  %entry = call ptr @pointer(ptr %d, i64 0)
  %threads = call i64 @slot(ptr %d, i64 7)
  %release = call i64 @slot(ptr %d, i64 8)
  %long = icmp ne i64 %release, 0
  br i1 %long, label %without, label %with

without:
  %state = call ptr @PyEval_SaveThread()
  call void @tc_run(ptr %entry, ptr %f, i64 %threads)
  call void @PyEval_RestoreThread(ptr %state)
  ret void

with:
  call void @tc_run(ptr %entry, ptr %f, i64 %threads)
  ret void
}

; Whether every output has a buffer, those that main allocates too.
define internal i1 @all_present(ptr %d, ptr %out) nounwind {
entry:
  %count = call i64 @slot(ptr %d, i64 4)
  br label %look

look:
  %i = phi i64 [ 0, %entry ], [ %next, %one ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %one, label %yes

one:
  %data = call ptr @pointer(ptr %out, i64 %i)
  %there = icmp ne ptr %data, null
  %next = add i64 %i, 1
  br i1 %there, label %look, label %no

yes:
  ret i1 true

no:
  ret i1 false
}

define internal void @drop_outputs(ptr %d, ptr %out, i64 %from) nounwind {
entry:
  %count = call i64 @slot(ptr %d, i64 4)
  br label %look

look:
  %i = phi i64 [ %from, %entry ], [ %next, %one ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %one, label %end

one:
  %data = call ptr @pointer(ptr %out, i64 %i)
  call void @tc_free(ptr %data)
  %next = add i64 %i, 1
  br label %look

end:
  ret void
}

; The result: one array, or a tuple of them. Null, with Python's error set, where an object cannot be made.
define internal ptr @collect(ptr %d, ptr %dims, ptr %out) nounwind {
  %count = call i64 @slot(ptr %d, i64 4)
  %single = icmp eq i64 %count, 1
  br i1 %single, label %one, label %many

one:
  %record = call ptr @pointer(ptr %d, i64 11)
  %data = call ptr @pointer(ptr %out, i64 0)
  %array = call ptr @wrap(ptr %record, ptr %dims, ptr %data)
  ret ptr %array

many:
  %tuple = call ptr @PyTuple_New(i64 %count)
  %none = icmp eq ptr %tuple, null
  br i1 %none, label %drop, label %fill

fill:
  %filled = call ptr @fill_tuple(ptr %d, ptr %dims, ptr %out, ptr %tuple)
  ret ptr %filled

drop:
  call void @drop_outputs(ptr %d, ptr %out, i64 0)
  ret ptr null
}

define internal ptr @fill_tuple(ptr %d, ptr %dims, ptr %out, ptr %tuple) nounwind {
entry:
  %count = call i64 @slot(ptr %d, i64 4)
  %records = call ptr @pointer(ptr %d, i64 11)
  br label %look

look:
  %i = phi i64 [ 0, %entry ], [ %next, %set ]
  %at = phi ptr [ %dims, %entry ], [ %after, %set ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %one, label %full

one:
  %record = getelementptr [4 x i64], ptr %records, i64 %i
  %rank = call i64 @slot(ptr %record, i64 1)
  %after = getelementptr i64, ptr %at, i64 %rank
  %data = call ptr @pointer(ptr %out, i64 %i)
  %array = call ptr @wrap(ptr %record, ptr %at, ptr %data)
  %next = add i64 %i, 1
  %failed = icmp eq ptr %array, null
  br i1 %failed, label %drop, label %set

set:
  %r = call i32 @PyTuple_SetItem(ptr %tuple, i64 %i, ptr %array)
  br label %look

full:
  ret ptr %tuple

drop:
  call void @drop_outputs(ptr %d, ptr %out, i64 %next)
  call void @Py_DecRef(ptr %tuple)
  ret ptr null
}

; An array over a block, which goes back to the allocator when the array and all its views are gone. Takes the block.
define internal ptr @wrap(ptr %record, ptr %dims, ptr %data) nounwind {
  %type = call ptr @pointer(ptr @tc_environment, i64 4)
  %owner = call ptr @_PyObject_New(ptr %type)
  %unowned = icmp eq ptr %owner, null
  br i1 %unowned, label %free, label %owned

owned:
  %field = getelementptr i8, ptr %owner, i64 16
  store ptr %data, ptr %field, align 8
  %dtype = call ptr @pointer(ptr %record, i64 0)
  call void @Py_IncRef(ptr %dtype)
  %rank = call i64 @slot(ptr %record, i64 1)
  %nd = trunc i64 %rank to i32
  %ndarray = call ptr @pointer(ptr @tc_environment, i64 1)
  %new = call ptr @pointer(ptr @tc_environment, i64 2)
  %array = call ptr %new(ptr %ndarray, ptr %dtype, i32 %nd, ptr %dims, ptr null, ptr %data, i32 1281, ptr null)
  %unmade = icmp eq ptr %array, null
  br i1 %unmade, label %release, label %attach

attach:
  %set = call ptr @pointer(ptr @tc_environment, i64 3)
  %failed = call i32 %set(ptr %array, ptr %owner)
  %bad = icmp slt i32 %failed, 0
  br i1 %bad, label %discard, label %done

done:
  ret ptr %array

free:
  call void @tc_free(ptr %data)
  ret ptr null

release:
  call void @Py_DecRef(ptr %owner)
  ret ptr null

discard:
  call void @Py_DecRef(ptr %array)
  ret ptr null
}

; tp_dealloc of tcomp.Buffer, whose instances hold a reference to their type.
define internal void @buffer_dealloc(ptr %self) nounwind {
  %type = call ptr @pointer(ptr %self, i64 1)
  %data = call ptr @pointer(ptr %self, i64 2)
  call void @tc_free(ptr %data)
  call void @PyObject_Free(ptr %self)
  call void @Py_DecRef(ptr %type)
  ret void
}
