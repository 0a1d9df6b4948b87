; Sharing work inside one call. All threads of a call walk `main` and meet at counters of the frame, each on a cache line
; of its own. A launch in a loop uses its counters again, so they never go back: round r of a launch with n chunks has
; base r * n. What a chunk wrote is published by tc_done and taken by tc_wait.
;
; Threads wait for chunks, not for each other, so one may be rounds behind. It finds everything claimed and done and does
; no harm, except that a value it reads from memory to decide where to go may be a later round's: tc_current tells.

declare i32 @sched_yield()

; The next chunk of this round, in [0, n), or -1 when all are claimed.
define i64 @tc_claim(ptr %counter, i64 %base, i64 %n) nounwind {
entry:
  %end = add i64 %base, %n
  %first = load atomic i64, ptr %counter monotonic, align 8
  br label %look

look:
  %seen = phi i64 [ %first, %entry ], [ %found, %take ]
  %more = icmp slt i64 %seen, %end
  br i1 %more, label %take, label %none

take:
  %next = add i64 %seen, 1
  %swap = cmpxchg ptr %counter, i64 %seen, i64 %next monotonic monotonic, align 8
  %found = extractvalue { i64, i1 } %swap, 0
  %mine = extractvalue { i64, i1 } %swap, 1
  br i1 %mine, label %claimed, label %look

claimed:
  fence release ; whoever sees what the chunk writes sees it claimed, too: tc_current builds on that
  %chunk = sub i64 %seen, %base
  ret i64 %chunk

none:
  ret i64 -1
}

; k chunks are finished, and what they wrote may be read by whoever waits for them.
define void @tc_done(ptr %counter, i64 %k) nounwind {
  %was = atomicrmw add ptr %counter, i64 %k release, align 8
  ret void
}

; Return when `target` chunks are finished, or when the status word reports a fault: then nobody may finish them.
define void @tc_wait(ptr %counter, i64 %target, ptr %status) nounwind {
entry:
  br label %look

look:
  %turns = phi i64 [ 0, %entry ], [ %turns1, %again ]
  %done = load atomic i64, ptr %counter acquire, align 8
  %enough = icmp sge i64 %done, %target
  br i1 %enough, label %out, label %fault

fault:
  %code = load atomic i64, ptr %status monotonic, align 8
  %failed = icmp ne i64 %code, 0
  br i1 %failed, label %out, label %idle

idle:
  %turns1 = add i64 %turns, 1
  call void @idle(i64 %turns)
  br label %again

again:
  br label %look

out:
  ret void
}

; Ask after reading values that a launch wrote and its next round overwrites; `counter` is its claims, `end` = base + n of
; the round that was waited for. True: nobody had begun a later round, so the values are this round's. False: they may
; not be, and this thread is behind: it returns from main, since those ahead of it finish the call.
define i1 @tc_current(ptr %counter, i64 %end) nounwind {
  fence acquire
  %claims = load atomic i64, ptr %counter monotonic, align 8
  %same = icmp eq i64 %claims, %end
  ret i1 %same
}

; One turn of a waiting loop: rest for the first thousands, then let others have the core.
define internal void @idle(i64 %turns) nounwind {
  %short = icmp ult i64 %turns, 2000
  br i1 %short, label %spin, label %yield

spin:
  call void @rest()
  ret void

yield:
  %r = call i32 @sched_yield()
  ret void
}
