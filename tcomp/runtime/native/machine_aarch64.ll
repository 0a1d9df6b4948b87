; What differs between machines: how a spinning thread rests, the number of the futex call, the state of the FPU.

declare void @llvm.aarch64.hint(i32)
declare void @llvm.aarch64.set.fpcr(i64)

@futex = internal constant i64 98
@gettid = internal constant i64 178

define internal void @rest() nounwind {
  call void @llvm.aarch64.hint(i32 1)
  ret void
}

; Round to nearest, subnormals kept, no traps: threads inherit their creator's state, which may be anything.
define internal void @default_floats() nounwind {
  call void @llvm.aarch64.set.fpcr(i64 0)
  ret void
}
