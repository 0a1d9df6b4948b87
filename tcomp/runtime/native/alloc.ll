; The allocator of outputs, arenas and dynamic buffers: freed blocks are kept by size class and given out again, because
; fresh memory costs a page fault per page on first touch. Thread-safe: one spin lock per class.
;
; Classes: 64, 128, 192, 256, then four per doubling (320, 384, 448, 512, 640, ...) up to 2^46. A block is a header and,
; 64-byte aligned behind it, the payload. Below 64 KiB the header is one line and the C library provides the block; from
; there on the header is a page of its own mapping, so that the payload is page aligned, and from 2 MiB on the mapping is
; aligned to 2 MiB and offered to the kernel for huge pages.
;
; header (the 16 bytes before the payload): class, next block of the free list.

@lists = internal global [160 x [8 x i64]] zeroinitializer, align 64  ; of each class: lock, first free block
@retained = internal global [8 x i64] zeroinitializer, align 64       ; bytes on the free lists
@mapped = internal global [8 x i64] zeroinitializer, align 64         ; bytes held from the system, retained or in use
@cap = internal global i64 1073741824                                 ; what may be retained

declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @munmap(ptr, i64)
declare i32 @madvise(ptr, i64, i32)
declare i64 @llvm.umax.i64(i64, i64)
declare i64 @llvm.ctlz.i64(i64, i1)

; `bytes` (0 counts as 1) of memory, 64-byte aligned, page aligned from 64 KiB on; null where there is none.
define ptr @tc_alloc(i64 %bytes) nounwind {
  %absurd = icmp ugt i64 %bytes, 70368744177664
  br i1 %absurd, label %none, label %look

look:
  %class = call i64 @class_of(i64 %bytes)
  %kept = call ptr @pop(i64 %class)
  %empty = icmp eq ptr %kept, null
  br i1 %empty, label %fresh, label %recycled

recycled:
  ret ptr %kept

fresh:
  %new = call ptr @obtain(i64 %class)
  %short = icmp eq ptr %new, null
  br i1 %short, label %tighten, label %done

done:
  ret ptr %new

tighten:
  call void @tc_trim(i64 0)
  %last = call ptr @obtain(i64 %class)
  ret ptr %last

none:
  ret ptr null
}

; Give a block of tc_alloc back; null is ignored. Over the cap, blocks retained before make room, the largest first: a new
; working set replaces an old one.
define void @tc_free(ptr %payload) nounwind {
  %nothing = icmp eq ptr %payload, null
  br i1 %nothing, label %out, label %account

account:
  %header = getelementptr i64, ptr %payload, i64 -2
  %class = load i64, ptr %header, align 8
  %size = call i64 @class_size(i64 %class)
  %before = atomicrmw add ptr @retained, i64 %size monotonic, align 8
  %after = add i64 %before, %size
  %cap = load atomic i64, ptr @cap monotonic, align 8
  %over = icmp ugt i64 %after, %cap
  br i1 %over, label %make_room, label %keep

make_room:
  call void @tc_trim(i64 %cap)
  %now = load atomic i64, ptr @retained monotonic, align 8
  %still = icmp ugt i64 %now, %cap
  br i1 %still, label %drop, label %keep

drop:
  %was = atomicrmw sub ptr @retained, i64 %size monotonic, align 8
  call void @release(ptr %payload)
  br label %out

keep:
  call void @push(ptr %payload, i64 %class)
  br label %out

out:
  ret void
}

; What may be retained from now on.
define void @tc_set_cap(i64 %bytes) nounwind {
  store atomic i64 %bytes, ptr @cap monotonic, align 8
  ret void
}

; Bytes on the free lists, and bytes held from the system.
define i64 @tc_retained() nounwind {
  %bytes = load atomic i64, ptr @retained monotonic, align 8
  ret i64 %bytes
}

define i64 @tc_mapped() nounwind {
  %bytes = load atomic i64, ptr @mapped monotonic, align 8
  ret i64 %bytes
}

; In the child of a fork: other threads are gone, perhaps while they changed a list, so the lists start empty. What was on
; them is shared with the parent until written, and is not used again.
define void @tc_forget_lists() nounwind {
entry:
  br label %each

each:
  %class = phi i64 [ 0, %entry ], [ %next, %each ]
  %list = getelementptr [8 x i64], ptr @lists, i64 %class
  %place = getelementptr i64, ptr %list, i64 1
  store ptr null, ptr %place, align 8
  store atomic i64 0, ptr %list release, align 8
  %next = add i64 %class, 1
  %more = icmp ult i64 %next, 160
  br i1 %more, label %each, label %out

out:
  store atomic i64 0, ptr @retained monotonic, align 8
  ret void
}

define internal void @lock(ptr %list) nounwind {
entry:
  br label %look

look:
  %turns = phi i64 [ 0, %entry ], [ %turns1, %again ]
  %swap = cmpxchg ptr %list, i64 0, i64 1 acquire monotonic, align 8
  %mine = extractvalue { i64, i1 } %swap, 1
  br i1 %mine, label %out, label %again

again:
  %turns1 = add i64 %turns, 1
  call void @idle(i64 %turns)
  br label %look

out:
  ret void
}

; With r = bytes - 1 and e its highest bit: the two bits below e number the class within the doubling.
define internal i64 @class_of(i64 %bytes) nounwind {
  %least = call i64 @llvm.umax.i64(i64 %bytes, i64 1)
  %r = sub i64 %least, 1
  %tiny = icmp ult i64 %r, 256
  br i1 %tiny, label %lines, label %steps

lines:
  %line = lshr i64 %r, 6
  ret i64 %line

steps:
  %zeros = call i64 @llvm.ctlz.i64(i64 %r, i1 true)
  %e = sub i64 63, %zeros
  %down = sub i64 %e, 2
  %top = lshr i64 %r, %down
  %step = and i64 %top, 3
  %doubling = sub i64 %e, 7
  %base = shl i64 %doubling, 2
  %class = add i64 %base, %step
  ret i64 %class
}

define internal i64 @class_size(i64 %class) nounwind {
  %tiny = icmp ult i64 %class, 4
  br i1 %tiny, label %lines, label %steps

lines:
  %count = add i64 %class, 1
  %small = shl i64 %count, 6
  ret i64 %small

steps:
  %doubling = lshr i64 %class, 2
  %step = and i64 %class, 3
  %quarters = add i64 %step, 5
  %shift = add i64 %doubling, 5
  %size = shl i64 %quarters, %shift
  ret i64 %size
}

; The first free block of a class, or null.
define internal ptr @pop(i64 %class) nounwind {
  %list = getelementptr [8 x i64], ptr @lists, i64 %class
  %place = getelementptr i64, ptr %list, i64 1
  call void @lock(ptr %list)
  %first = load ptr, ptr %place, align 8
  %empty = icmp eq ptr %first, null
  br i1 %empty, label %none, label %take

take:
  %link = getelementptr i64, ptr %first, i64 -1
  %second = load ptr, ptr %link, align 8
  store ptr %second, ptr %place, align 8
  store atomic i64 0, ptr %list release, align 8
  %size = call i64 @class_size(i64 %class)
  %was = atomicrmw sub ptr @retained, i64 %size monotonic, align 8
  ret ptr %first

none:
  store atomic i64 0, ptr %list release, align 8
  ret ptr null
}

; Put a block, already counted as retained, on its free list.
define internal void @push(ptr %payload, i64 %class) nounwind {
  %list = getelementptr [8 x i64], ptr @lists, i64 %class
  %place = getelementptr i64, ptr %list, i64 1
  %link = getelementptr i64, ptr %payload, i64 -1
  call void @lock(ptr %list)
  %first = load ptr, ptr %place, align 8
  store ptr %first, ptr %link, align 8
  store ptr %payload, ptr %place, align 8
  store atomic i64 0, ptr %list release, align 8
  ret void
}

; Release free blocks, the largest classes first, until at most `bytes` are retained.
define void @tc_trim(i64 %bytes) nounwind {
entry:
  br label %look

look:
  %class = phi i64 [ 159, %entry ], [ %class, %drop ], [ %lower, %next ]
  %last = icmp slt i64 %class, 0
  br i1 %last, label %out, label %measure

measure:
  %now = load atomic i64, ptr @retained monotonic, align 8
  %over = icmp ugt i64 %now, %bytes
  br i1 %over, label %take, label %out

take:
  %block = call ptr @pop(i64 %class)
  %empty = icmp eq ptr %block, null
  br i1 %empty, label %next, label %drop

drop:
  call void @release(ptr %block)
  br label %look

next:
  %lower = sub i64 %class, 1
  br label %look

out:
  ret void
}

; A new block of a class from the system, or null.
define internal ptr @obtain(i64 %class) nounwind {
  %size = call i64 @class_size(i64 %class)
  %large = icmp uge i64 %size, 65536
  br i1 %large, label %pages, label %lines

lines:
  %whole = add i64 %size, 64
  %line = call ptr @aligned_alloc(i64 64, i64 %whole)
  br label %check

pages:
  %length = call i64 @mapping_length(i64 %size)
  %map = call ptr @map(i64 %length)
  br label %check

check:
  %base = phi ptr [ %line, %lines ], [ %map, %pages ]
  %head = phi i64 [ 64, %lines ], [ 4096, %pages ]
  %failed = icmp eq ptr %base, null
  br i1 %failed, label %none, label %found

found:
  %payload = getelementptr i8, ptr %base, i64 %head
  %header = getelementptr i64, ptr %payload, i64 -2
  store i64 %class, ptr %header, align 8
  %was = atomicrmw add ptr @mapped, i64 %size monotonic, align 8
  ret ptr %payload

none:
  ret ptr null
}

; Give a block back to the system.
define internal void @release(ptr %payload) nounwind {
  %header = getelementptr i64, ptr %payload, i64 -2
  %class = load i64, ptr %header, align 8
  %size = call i64 @class_size(i64 %class)
  %was = atomicrmw sub ptr @mapped, i64 %size monotonic, align 8
  %large = icmp uge i64 %size, 65536
  br i1 %large, label %pages, label %lines

lines:
  %line = getelementptr i8, ptr %payload, i64 -64
  call void @free(ptr %line)
  ret void

pages:
  %page = getelementptr i8, ptr %payload, i64 -4096
  %length = call i64 @mapping_length(i64 %size)
  %r = call i32 @munmap(ptr %page, i64 %length)
  ret void
}

; Header page and payload, in whole pages of any size up to 64 KiB.
define internal i64 @mapping_length(i64 %size) nounwind {
  %room = add i64 %size, 69631
  %length = and i64 %room, -65536
  ret i64 %length
}

; `length` bytes of zeroed pages, or null. Large ones start at a multiple of 2 MiB: more is mapped, and the ends cut off.
define internal ptr @map(i64 %length) nounwind {
  %large = icmp uge i64 %length, 2097152
  br i1 %large, label %aligned, label %plain

plain:
  %few = call ptr @pages(i64 %length)
  ret ptr %few

aligned:
  %more = add i64 %length, 2097152
  %base = call ptr @pages(i64 %more)
  %failed = icmp eq ptr %base, null
  br i1 %failed, label %none, label %cut

cut:
  %address = ptrtoint ptr %base to i64
  %up = add i64 %address, 2097151
  %start = and i64 %up, -2097152
  %front = sub i64 %start, %address
  %back = sub i64 2097152, %front
  %first = inttoptr i64 %start to ptr
  %end = getelementptr i8, ptr %first, i64 %length
  call void @unmap(ptr %base, i64 %front)
  call void @unmap(ptr %end, i64 %back)
  %r = call i32 @madvise(ptr %first, i64 %length, i32 14)
  ret ptr %first

none:
  ret ptr null
}

define internal ptr @pages(i64 %length) nounwind {
  %base = call ptr @mmap(ptr null, i64 %length, i32 3, i32 34, i32 -1, i64 0)
  %failed = icmp eq ptr %base, inttoptr (i64 -1 to ptr)
  %result = select i1 %failed, ptr null, ptr %base
  ret ptr %result
}

define internal void @unmap(ptr %start, i64 %length) nounwind {
  %some = icmp ne i64 %length, 0
  br i1 %some, label %cut, label %out

cut:
  %r = call i32 @munmap(ptr %start, i64 %length)
  br label %out

out:
  ret void
}
