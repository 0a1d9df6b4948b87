; The thread pool: one set of workers for the process, lent to one call at a time.
;
; A call opens the gate, walks `main` itself, and closes the gate when it is through: by then every chunk is claimed. A
; worker enters only while the gate is open, so one that sleeps or was descheduled is never waited for and never sees
; the frame of a finished call; those that did enter are waited for, and they leave soon. A call that finds the pool
; taken (nested, or from another thread) runs alone.
;
; gate: epoch << 32 | open << 31 | places << 16 | taken. Workers sleep on the epoch, the upper half (little endian).

@gate = internal global [8 x i64] zeroinitializer, align 64
@left = internal global [8 x i64] zeroinitializer, align 64      ; workers that entered this epoch and left again
@sleepers = internal global [8 x i64] zeroinitializer, align 64
@busy = internal global [16 x i32] zeroinitializer, align 64
@job = internal global { ptr, ptr } zeroinitializer, align 64    ; entry and frame; stable while somebody is inside
@wanted = internal global i64 1                                  ; threads in all, the caller among them
@started = internal global i64 1                                 ; those that exist; changed by the holder of busy
@ids = internal global [8 x i32] zeroinitializer, align 64        ; the system's numbers of the first workers
@named = internal global i64 0                                   ; workers that have put theirs there
@spin = internal global i64 60000                                ; nanoseconds a worker spins before it sleeps

declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_attr_init(ptr)
declare i32 @pthread_attr_setstacksize(ptr, i64)
declare i32 @pthread_attr_setdetachstate(ptr, i32)
declare i32 @pthread_attr_destroy(ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sigfillset(ptr)
declare i32 @sigdelset(ptr, i32)
declare i32 @clock_gettime(i32, ptr)
declare i64 @syscall(i64, ...)
declare i32 @sched_getcpu()
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @sched_setaffinity(i32, i64, ptr)
declare i64 @llvm.vector.reduce.or.v16i64(<16 x i64>)
declare i64 @llvm.smin.i64(i64, i64)

; entry(frame, t) on up to `threads` threads, t from 0 (the caller). Slot 1 of the frame says how many may walk.
define void @tc_run(ptr %entry, ptr %frame, i64 %threads) nounwind {
begin:
  %slot = getelementptr i64, ptr %frame, i64 1
  %single = icmp slt i64 %threads, 2
  br i1 %single, label %alone, label %take

take:
  %swap = cmpxchg ptr @busy, i32 0, i32 1 acquire monotonic, align 4
  %mine = extractvalue { i32, i1 } %swap, 1
  br i1 %mine, label %count, label %alone

count:
  %have = call i64 @muster(i64 %threads)
  %others = sub i64 %have, 1
  %enough = icmp sgt i64 %others, 0
  br i1 %enough, label %together, label %unmanned

unmanned:
  store atomic i32 0, ptr @busy release, align 4
  br label %alone

alone:
  store i64 1, ptr %slot, align 8
  call void %entry(ptr %frame, i64 0)
  ret void

together:
  store i64 %have, ptr %slot, align 8
  call void @open_gate(ptr %entry, ptr %frame, i64 %others)
  call void %entry(ptr %frame, i64 0)
  call void @close_gate()
  store atomic i32 0, ptr @busy release, align 4
  ret void
}

; How many threads the pool may run from now on, the caller among them. More are started when a call wants them.
define void @tc_set_threads(i64 %n) nounwind {
  store atomic i64 %n, ptr @wanted monotonic, align 8
  ret void
}

; In the child of a fork: its only thread is the caller, whatever the parent was doing.
define void @tc_after_fork() nounwind {
  store atomic i64 1, ptr @started monotonic, align 8
  store atomic i64 0, ptr @sleepers monotonic, align 8
  store atomic i64 0, ptr @named monotonic, align 8
  store <8 x i32> zeroinitializer, ptr @ids, align 32
  store atomic i64 0, ptr @gate monotonic, align 8
  store atomic i32 0, ptr @busy release, align 4
  ret void
}

define internal void @open_gate(ptr %entry, ptr %frame, i64 %others) nounwind {
  store ptr %entry, ptr @job, align 8
  store ptr %frame, ptr getelementptr ({ ptr, ptr }, ptr @job, i64 0, i32 1), align 8
  store atomic i64 0, ptr @left monotonic, align 8
  %old = load atomic i64, ptr @gate monotonic, align 8
  %epoch = and i64 %old, -4294967296
  %next = add i64 %epoch, 4294967296
  %places = shl i64 %others, 16
  %room = or i64 %next, %places
  %word = or i64 %room, 2147483648
  %was = atomicrmw xchg ptr @gate, i64 %word seq_cst, align 8
  %asleep = load atomic i64, ptr @sleepers seq_cst, align 8
  %some = icmp ne i64 %asleep, 0
  br i1 %some, label %wake, label %out

wake:
  call void @steer()
  %number = load i64, ptr @futex, align 8
  %half = getelementptr i8, ptr @gate, i64 4
  %count = trunc i64 %others to i32
  %r = call i64 (i64, ...) @syscall(i64 %number, ptr %half, i32 129, i32 %count, ptr null, ptr null, i32 0)
  br label %out

out:
  ret void
}

; Keeps the workers of a small pool off the caller's CPU: a sleeper is often woken where its waker runs, and would wait there for
; the balancer, longer than most calls take. What the process may use stays what it is; a large pool finds idle CPUs by itself.
define internal void @steer() nounwind {
entry:
  %mask = alloca [16 x i64], align 64
  store <16 x i64> zeroinitializer, ptr %mask, align 64
  %started = load atomic i64, ptr @started monotonic, align 8
  %few = icmp sle i64 %started, 8
  br i1 %few, label %ask, label %out

ask:
  %failed = call i32 @sched_getaffinity(i32 0, i64 128, ptr %mask)
  %cpu = call i32 @sched_getcpu()
  %known = icmp ult i32 %cpu, 1024
  %told = icmp sge i32 %failed, 0
  %both = and i1 %known, %told
  br i1 %both, label %leave, label %out

leave:
  %at = lshr i32 %cpu, 6
  %bit = and i32 %cpu, 63
  %wide = zext i32 %bit to i64
  %one = shl i64 1, %wide
  %others = xor i64 %one, -1
  %place = getelementptr i64, ptr %mask, i32 %at
  %before = load i64, ptr %place, align 8
  %after = and i64 %before, %others
  store i64 %after, ptr %place, align 8
  %all = load <16 x i64>, ptr %mask, align 64
  %any = call i64 @llvm.vector.reduce.or.v16i64(<16 x i64> %all)
  %room = icmp ne i64 %any, 0
  br i1 %room, label %look, label %out

look:
  %k = phi i64 [ 0, %leave ], [ %k1, %next ]
  %more = icmp slt i64 %k, 8
  br i1 %more, label %one_worker, label %out

one_worker:
  %slot = getelementptr i32, ptr @ids, i64 %k
  %id = load atomic i32, ptr %slot monotonic, align 4
  %there = icmp ne i32 %id, 0
  br i1 %there, label %move, label %next

move:
  %r = call i32 @sched_setaffinity(i32 %id, i64 128, ptr %mask)
  br label %next

next:
  %k1 = add i64 %k, 1
  br label %look

out:
  ret void
}

; A worker puts its system number where `steer` finds it.
define internal void @name_worker() nounwind {
entry:
  %number = load i64, ptr @gettid, align 8
  %id = call i64 (i64, ...) @syscall(i64 %number)
  %narrow = trunc i64 %id to i32
  %k = atomicrmw add ptr @named, i64 1 monotonic, align 8
  %fits = icmp ult i64 %k, 8
  br i1 %fits, label %put, label %out

put:
  %slot = getelementptr i32, ptr @ids, i64 %k
  store atomic i32 %narrow, ptr %slot monotonic, align 4
  br label %out

out:
  ret void
}

define internal void @close_gate() nounwind {
entry:
  %word = atomicrmw and ptr @gate, i64 -2147483649 acq_rel, align 8
  %entered = and i64 %word, 65535
  br label %look

look:
  %turns = phi i64 [ 0, %entry ], [ %turns1, %again ]
  %left = load atomic i64, ptr @left acquire, align 8
  %all = icmp eq i64 %left, %entered
  br i1 %all, label %out, label %again

again:
  %turns1 = add i64 %turns, 1
  call void @idle(i64 %turns)
  br label %look

out:
  ret void
}

; The number of threads a call that asks for `threads` gets; starts those that are missing. Needs busy.
define internal i64 @muster(i64 %threads) nounwind {
  %wanted = load atomic i64, ptr @wanted monotonic, align 8
  %asked = call i64 @llvm.smin.i64(i64 %threads, i64 %wanted)
  %n = call i64 @llvm.smin.i64(i64 %asked, i64 16384)
  %have = load atomic i64, ptr @started monotonic, align 8
  %short = icmp slt i64 %have, %n
  br i1 %short, label %start, label %out

start:
  call void @start_workers(i64 %n)
  br label %out

out:
  %now = load atomic i64, ptr @started monotonic, align 8
  %got = call i64 @llvm.smin.i64(i64 %now, i64 %n)
  ret i64 %got
}

; Detached threads with stacks of 8 MiB that take no signals but those of their own faults. Fewer where the system refuses.
define internal void @start_workers(i64 %n) nounwind {
entry:
  %thread = alloca i64, align 8
  %attributes = alloca [128 x i8], align 16
  %all = alloca [128 x i8], align 16
  %before = alloca [128 x i8], align 16
  %r1 = call i32 @sigfillset(ptr %all)
  %s1 = call i32 @sigdelset(ptr %all, i32 4)  ; SIGILL
  %s2 = call i32 @sigdelset(ptr %all, i32 5)  ; SIGTRAP
  %s3 = call i32 @sigdelset(ptr %all, i32 6)  ; SIGABRT
  %s4 = call i32 @sigdelset(ptr %all, i32 7)  ; SIGBUS
  %s5 = call i32 @sigdelset(ptr %all, i32 8)  ; SIGFPE
  %s6 = call i32 @sigdelset(ptr %all, i32 11) ; SIGSEGV
  %r2 = call i32 @pthread_sigmask(i32 2, ptr %all, ptr %before)
  %r3 = call i32 @pthread_attr_init(ptr %attributes)
  %r4 = call i32 @pthread_attr_setstacksize(ptr %attributes, i64 8388608)
  %r5 = call i32 @pthread_attr_setdetachstate(ptr %attributes, i32 1)
  %word = load atomic i64, ptr @gate monotonic, align 8
  %epoch = and i64 %word, -4294967296
  %argument = inttoptr i64 %epoch to ptr
  br label %look

look:
  %have = load atomic i64, ptr @started monotonic, align 8
  %more = icmp slt i64 %have, %n
  br i1 %more, label %create, label %out

create:
  %failed = call i32 @pthread_create(ptr %thread, ptr %attributes, ptr @worker, ptr %argument)
  %refused = icmp ne i32 %failed, 0
  br i1 %refused, label %out, label %count

count:
  %now = add i64 %have, 1
  store atomic i64 %now, ptr @started monotonic, align 8
  br label %look

out:
  %r6 = call i32 @pthread_attr_destroy(ptr %attributes)
  %r7 = call i32 @pthread_sigmask(i32 2, ptr %before, ptr null)
  ret void
}

; A worker's life. The argument is the last epoch it need not look at.
define internal ptr @worker(ptr %argument) nounwind {
entry:
  %first = ptrtoint ptr %argument to i64
  call void @default_floats()
  call void @name_worker()
  br label %wait

wait:
  %seen = phi i64 [ %first, %entry ], [ %missed, %outside ], [ %served, %inside ]
  %word = call i64 @next_call(i64 %seen)
  br label %door

door:
  %now = phi i64 [ %word, %wait ], [ %found, %enter ]
  %shut = and i64 %now, 2147483648
  %open = icmp ne i64 %shut, 0
  %taken = and i64 %now, 65535
  %upper = lshr i64 %now, 16
  %places = and i64 %upper, 32767
  %room = icmp ult i64 %taken, %places
  %may = and i1 %open, %room
  br i1 %may, label %enter, label %outside

outside:
  %missed = and i64 %now, -4294967296
  br label %wait

enter:
  %claim = add i64 %now, 1
  %swap = cmpxchg ptr @gate, i64 %now, i64 %claim acq_rel acquire, align 8
  %found = extractvalue { i64, i1 } %swap, 0
  %in = extractvalue { i64, i1 } %swap, 1
  br i1 %in, label %inside, label %door

inside:
  %served = and i64 %now, -4294967296
  %me = add i64 %taken, 1
  %work = load ptr, ptr @job, align 8
  %frame = load ptr, ptr getelementptr ({ ptr, ptr }, ptr @job, i64 0, i32 1), align 8
  call void %work(ptr %frame, i64 %me)
  %gone = atomicrmw add ptr @left, i64 1 release, align 8
  br label %wait
}

; The gate's word once its epoch is not `seen`: spin for a while, then sleep on the epoch.
define internal i64 @next_call(i64 %seen) nounwind {
entry:
  %patience = load i64, ptr @spin, align 8
  br label %begin

begin:
  %start = call i64 @now()
  br label %look

look:
  %turns = phi i64 [ 0, %begin ], [ 0, %clock ], [ %turns1, %pause ]
  %word = load atomic i64, ptr @gate acquire, align 8
  %epoch = and i64 %word, -4294967296
  %same = icmp eq i64 %epoch, %seen
  br i1 %same, label %pause, label %out

pause:
  call void @rest()
  %turns1 = add i64 %turns, 1
  %on = icmp ult i64 %turns1, 64
  br i1 %on, label %look, label %clock

clock:
  %time = call i64 @now()
  %spent = sub i64 %time, %start
  %spinning = icmp slt i64 %spent, %patience
  br i1 %spinning, label %look, label %sleep

sleep:
  %upper = lshr i64 %seen, 32
  %expected = trunc i64 %upper to i32
  %number = load i64, ptr @futex, align 8
  %half = getelementptr i8, ptr @gate, i64 4
  %more = atomicrmw add ptr @sleepers, i64 1 seq_cst, align 8
  %r = call i64 (i64, ...) @syscall(i64 %number, ptr %half, i32 128, i32 %expected, ptr null, ptr null, i32 0)
  %less = atomicrmw sub ptr @sleepers, i64 1 seq_cst, align 8
  br label %begin

out:
  ret i64 %word
}

; The monotonic clock in nanoseconds.
define internal i64 @now() nounwind {
  %time = alloca { i64, i64 }, align 8
  %r = call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time, align 8
  %second = getelementptr i64, ptr %time, i64 1
  %fraction = load i64, ptr %second, align 8
  %whole = mul i64 %seconds, 1000000000
  %sum = add i64 %whole, %fraction
  ret i64 %sum
}
