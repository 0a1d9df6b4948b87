"""Functions in every module that `main` calls: taking and running blocks, waiting, units that one thread runs alone.

Counters are lines of the frame: blocks taken, and on the next line blocks done. Those of units inside control statements never
go back: a unit that runs again takes blocks from `base` on, where it stopped before. Nobody counts beyond the end there, so
that `main.current` can tell whether a later turn has begun.
"""

from __future__ import annotations

from tcomp.codegen.llvm.builder import ModuleBuilder
from tcomp.ir.machine import Machine


def allocating(module: ModuleBuilder) -> None:
    """Add `main.allocate`, which calls the runtime, and `main.grow`."""
    module.declare("ptr @tc_alloc(i64)")
    module.declare("i64 @llvm.smax.i64(i64, i64)")
    module.helper("main.allocate", lambda: _ALLOCATE)
    module.helper("main.grow", lambda: _GROW)


def helpers(module: ModuleBuilder, machine: Machine) -> None:
    """Add `main.phase`, which takes and runs blocks, and `main.wait`; both give true where the call is to end."""
    rest = "llvm.aarch64.hint(i32 1)" if machine.family == "neon" else "llvm.x86.sse2.pause()"
    module.declare(f"void @{rest.replace('i32 1', 'i32')}")
    module.declare("i32 @sched_yield()")
    module.declare("i32 @clock_gettime(i32, ptr)")
    module.helper("main.now", lambda: _NOW)
    module.helper("main.phase", lambda: _PHASE)
    module.helper("main.wait", lambda: _WAIT.replace("REST", f"call void @{rest}"))
    module.helper("main.range", lambda: _RANGE)
    module.helper("main.turn", lambda: _TURN)
    module.helper("main.unit", lambda: _UNIT)
    module.helper("main.end", lambda: _END)
    module.helper("main.current", lambda: _CURRENT)
    module.helper("main.refuse", lambda: _REFUSE)


_PHASE = """
; Run the blocks of a phase: all of them where this thread is alone, else those that it gets, several at a time. line: the
; counter of blocks taken; the next line counts blocks done. Where the frame says 0 threads, the one that walks puts the
; nanoseconds that the phase took into the counter, which it does not need.
define internal i1 @main.phase(ptr %run, ptr %arguments, i64 %blocks, ptr %line, ptr %frame, ptr %scratch) nounwind {
entry:
  %slot = getelementptr i64, ptr %frame, i64 1
  %threads = load i64, ptr %slot, align 8
  %alone = icmp slt i64 %threads, 2
  br i1 %alone, label %solo, label %look

solo:
  %timed = icmp eq i64 %threads, 0
  br i1 %timed, label %start, label %range

start:
  %began = call i64 @main.now()
  br label %range

look:
  %taken = load atomic i64, ptr %line monotonic, align 8
  %left = icmp slt i64 %taken, %blocks
  br i1 %left, label %share, label %good

share:
  %parts = shl i64 %threads, 3
  %part = udiv i64 %blocks, %parts
  %some = icmp ne i64 %part, 0
  %size = select i1 %some, i64 %part, i64 1
  br label %take

take:
  %ran = phi i64 [ 0, %share ], [ %ran1, %finished ]
  %step = phi i64 [ %size, %share ], [ %same, %finished ]
  %mine = atomicrmw add ptr %line, i64 %step monotonic, align 8
  %got = icmp slt i64 %mine, %blocks
  br i1 %got, label %clip, label %publish

clip:
  %upto = add i64 %mine, %step
  %over = icmp sgt i64 %upto, %blocks
  %last = select i1 %over, i64 %blocks, i64 %upto
  br label %range

range:
  %first = phi i64 [ 0, %solo ], [ 0, %start ], [ %mine, %clip ]
  %end = phi i64 [ %blocks, %solo ], [ %blocks, %start ], [ %last, %clip ]
  %before = phi i64 [ 0, %solo ], [ 0, %start ], [ %ran, %clip ]
  %same = phi i64 [ 0, %solo ], [ 0, %start ], [ %step, %clip ]
  %since = phi i64 [ -1, %solo ], [ %began, %start ], [ -1, %clip ]
  %fault = call i1 @main.range(ptr %run, ptr %arguments, i64 %first, i64 %end, ptr %frame, ptr %scratch)
  br i1 %fault, label %fail, label %finished

finished:
  %count = sub i64 %end, %first
  %ran1 = add i64 %before, %count
  br i1 %alone, label %note, label %take

note:
  %noted = icmp sge i64 %since, 0
  br i1 %noted, label %stop, label %good

stop:
  %now = call i64 @main.now()
  %spent = sub i64 %now, %since
  store i64 %spent, ptr %line, align 8
  br label %good

publish:
  call void @main.tell(ptr %line, i64 %ran)
  br label %good

good:
  ret i1 false

fail:
  ret i1 true
}"""

_NOW = """
; The monotonic clock in nanoseconds.
define internal i64 @main.now() nounwind {
  %time = alloca { i64, i64 }, align 8
  %r = call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time, align 8
  %second = getelementptr i64, ptr %time, i64 1
  %fraction = load i64, ptr %second, align 8
  %whole = mul i64 %seconds, 1000000000
  %sum = add i64 %whole, %fraction
  ret i64 %sum
}"""

_WAIT = """
; Wait until `blocks` blocks are done, or the status word reports a fault. A thread alone has done them itself.
define internal i1 @main.wait(ptr %done, i64 %blocks, ptr %frame) nounwind {
entry:
  %slot = getelementptr i64, ptr %frame, i64 1
  %threads = load i64, ptr %slot, align 8
  %alone = icmp slt i64 %threads, 2
  br i1 %alone, label %good, label %look

look:
  %turns = phi i64 [ 0, %entry ], [ %turns1, %again ]
  %count = load atomic i64, ptr %done acquire, align 8
  %enough = icmp sge i64 %count, %blocks
  br i1 %enough, label %good, label %check

check:
  %status = load atomic i64, ptr %frame monotonic, align 8
  %fault = icmp ne i64 %status, 0
  br i1 %fault, label %fail, label %idle

idle:
  %turns1 = add i64 %turns, 1
  %short = icmp ult i64 %turns, 2000
  br i1 %short, label %spin, label %yield

spin:
  REST
  br label %again

yield:
  %r = call i32 @sched_yield()
  br label %again

again:
  br label %look

good:
  ret i1 false

fail:
  ret i1 true
}"""

_RANGE = """
; Run the blocks of a phase from `first` below `end` here, until one faults, here or in another thread: there may be many to come.
define internal i1 @main.range(ptr %run, ptr %arguments, i64 %first, i64 %end, ptr %frame, ptr %scratch) nounwind {
entry:
  br label %more

more:
  %block = phi i64 [ %first, %entry ], [ %next, %one ]
  %on = icmp slt i64 %block, %end
  br i1 %on, label %look, label %good

look:
  %told = load atomic i64, ptr %frame monotonic, align 8
  %over = icmp ne i64 %told, 0
  br i1 %over, label %leave, label %go

go:
  %status = call i64 %run(ptr %arguments, i64 %block, ptr %scratch)
  %fault = icmp ne i64 %status, 0
  br i1 %fault, label %fail, label %one

one:
  %next = add i64 %block, 1
  br label %more

good:
  ret i1 false

fail:
  %swap = cmpxchg ptr %frame, i64 0, i64 %status monotonic monotonic, align 8
  br label %leave

leave:
  ret i1 true
}

; Tell those who wait on the line after `line` that so many more blocks are done.
define internal void @main.tell(ptr %line, i64 %ran) nounwind {
  %any = icmp ne i64 %ran, 0
  br i1 %any, label %tell, label %out

tell:
  %done = getelementptr i8, ptr %line, i64 64
  %was = atomicrmw add ptr %done, i64 %ran release, align 8
  br label %out

out:
  ret void
}"""

_TURN = """
; `main.phase` of a launch inside a control statement: its blocks are the next ones after `base`.
define internal i1 @main.turn(ptr %run, ptr %arguments, i64 %blocks, i64 %base, ptr %line, ptr %frame, ptr %scratch) nounwind {
entry:
  %slot = getelementptr i64, ptr %frame, i64 1
  %threads = load i64, ptr %slot, align 8
  %alone = icmp slt i64 %threads, 2
  br i1 %alone, label %solo, label %share

solo:
  %began = call i64 @main.began(ptr %frame)
  %fault0 = call i1 @main.range(ptr %run, ptr %arguments, i64 0, i64 %blocks, ptr %frame, ptr %scratch)
  call void @main.end(ptr %line, i64 %began, ptr %frame)
  ret i1 %fault0

share:
  %end = add i64 %base, %blocks
  %parts = shl i64 %threads, 3
  %part = udiv i64 %blocks, %parts
  %some = icmp ne i64 %part, 0
  %step = select i1 %some, i64 %part, i64 1
  %first = load atomic i64, ptr %line monotonic, align 8
  br label %look

look:
  %seen = phi i64 [ %first, %share ], [ %found, %take ], [ %upto, %finished ]
  %ran = phi i64 [ 0, %share ], [ %ran, %take ], [ %ran1, %finished ]
  %left = icmp slt i64 %seen, %end
  br i1 %left, label %take, label %publish

take:
  %next0 = add i64 %seen, %step
  %over = icmp sgt i64 %next0, %end
  %upto = select i1 %over, i64 %end, i64 %next0
  %swap = cmpxchg ptr %line, i64 %seen, i64 %upto monotonic monotonic, align 8
  %found = extractvalue { i64, i1 } %swap, 0
  %mine = extractvalue { i64, i1 } %swap, 1
  br i1 %mine, label %claimed, label %look

claimed:
  fence release ; whoever sees what the blocks write sees them taken, too: main.current builds on that
  %from = sub i64 %seen, %base
  %to = sub i64 %upto, %base
  %fault = call i1 @main.range(ptr %run, ptr %arguments, i64 %from, i64 %to, ptr %frame, ptr %scratch)
  br i1 %fault, label %fail, label %finished

finished:
  %count = sub i64 %upto, %seen
  %ran1 = add i64 %ran, %count
  br label %look

publish:
  call void @main.tell(ptr %line, i64 %ran)
  br label %good

good:
  ret i1 false

fail:
  ret i1 true
}"""

_UNIT = """
; Whether this thread is the one that runs a unit alone.
define internal i1 @main.unit(ptr %line, i64 %base, ptr %frame) nounwind {
  %slot = getelementptr i64, ptr %frame, i64 1
  %threads = load i64, ptr %slot, align 8
  %alone = icmp slt i64 %threads, 2
  br i1 %alone, label %mine, label %take

take:
  %next = add i64 %base, 1
  %seen = load atomic i64, ptr %line monotonic, align 8
  %free = icmp eq i64 %seen, %base
  br i1 %free, label %try, label %other

try:
  %swap = cmpxchg ptr %line, i64 %base, i64 %next monotonic monotonic, align 8
  %got = extractvalue { i64, i1 } %swap, 1
  fence release
  ret i1 %got

mine:
  ret i1 true

other:
  ret i1 false
}"""

_END = """
; When something begins: the time, where the frame wants it, else 0.
define internal i64 @main.began(ptr %frame) nounwind {
  %slot = getelementptr i64, ptr %frame, i64 1
  %threads = load i64, ptr %slot, align 8
  %timed = icmp eq i64 %threads, 0
  br i1 %timed, label %ask, label %no

ask:
  %now = call i64 @main.now()
  ret i64 %now

no:
  ret i64 0
}

; A unit that this thread ran alone is done: others are told, or the time it took is added to its line.
define internal void @main.end(ptr %line, i64 %began, ptr %frame) nounwind {
  %slot = getelementptr i64, ptr %frame, i64 1
  %threads = load i64, ptr %slot, align 8
  %shared = icmp sgt i64 %threads, 1
  br i1 %shared, label %tell, label %look

tell:
  call void @main.tell(ptr %line, i64 1)
  ret void

look:
  %timed = icmp eq i64 %threads, 0
  br i1 %timed, label %note, label %out

note:
  %now = call i64 @main.now()
  %spent = sub i64 %now, %began
  %before = load i64, ptr %line, align 8
  %total = add i64 %before, %spent
  store i64 %total, ptr %line, align 8
  br label %out

out:
  ret void
}"""

_CURRENT = """
; Asked after a value was read that a unit wrote: whether no later turn of the unit, which may overwrite it, has begun.
define internal i1 @main.current(ptr %line, i64 %end, ptr %frame) nounwind {
  %slot = getelementptr i64, ptr %frame, i64 1
  %threads = load i64, ptr %slot, align 8
  %alone = icmp slt i64 %threads, 2
  fence acquire
  %taken = load atomic i64, ptr %line monotonic, align 8
  %same = icmp eq i64 %taken, %end
  %good = or i1 %alone, %same
  ret i1 %good
}"""

_REFUSE = """
; Report a fault where there is one.
define internal i1 @main.refuse(i1 %wrong, i64 %status, ptr %frame) nounwind {
  br i1 %wrong, label %fail, label %good

fail:
  %swap = cmpxchg ptr %frame, i64 0, i64 %status monotonic monotonic, align 8
  ret i1 true

good:
  ret i1 false
}"""

_ALLOCATE = """
; Memory of `bytes`, about `rough`, its address put into `place`; true where there is none. What is kept until the call ends is
; a list from the frame's slot 10 on, with the link 64 bytes before the memory.
define internal i1 @main.allocate(i64 %bytes, double %rough, ptr %place, i1 %kept, ptr %frame) nounwind {
entry:
  %few = fcmp olt double %rough, 0x42D0000000000000
  br i1 %few, label %ask, label %fail

ask:
  %head = select i1 %kept, i64 64, i64 0
  %total = add i64 %bytes, %head
  %block = call ptr @tc_alloc(i64 %total)
  %none = icmp eq ptr %block, null
  br i1 %none, label %fail, label %found

found:
  %memory = getelementptr i8, ptr %block, i64 %head
  store ptr %memory, ptr %place, align 8
  br i1 %kept, label %link, label %good

link:
  %list = getelementptr i64, ptr %frame, i64 10
  br label %look

look:
  %first = load atomic i64, ptr %list monotonic, align 8
  store i64 %first, ptr %block, align 8
  %address = ptrtoint ptr %block to i64
  %swap = cmpxchg ptr %list, i64 %first, i64 %address release monotonic, align 8
  %mine = extractvalue { i64, i1 } %swap, 1
  br i1 %mine, label %good, label %look

good:
  ret i1 false

fail:
  %was = cmpxchg ptr %frame, i64 0, i64 12884901888 monotonic monotonic, align 8
  ret i1 true
}"""

_GROW = """
; At least `bytes` of memory that is kept until the call ends. `place` holds its address and, in the next slot, how much it is
; (0 at first): what is enough stays, else there is twice as much at least: all that is left behind is less than what is used.
define internal i1 @main.grow(i64 %bytes, double %rough, ptr %place, ptr %frame) nounwind {
entry:
  %amount = getelementptr i64, ptr %place, i64 1
  %have = load i64, ptr %amount, align 8
  %enough = icmp sle i64 %bytes, %have
  %memory = load ptr, ptr %place, align 8
  %there = icmp ne ptr %memory, null
  %stay = and i1 %enough, %there
  br i1 %stay, label %good, label %more

more:
  %double = shl i64 %have, 1
  %wanted = call i64 @llvm.smax.i64(i64 %bytes, i64 %double)
  %fault = call i1 @main.allocate(i64 %wanted, double %rough, ptr %place, i1 true, ptr %frame)
  br i1 %fault, label %fail, label %note

note:
  store i64 %wanted, ptr %amount, align 8
  br label %good

good:
  ret i1 false

fail:
  ret i1 true
}"""
