; What differs between machines: how a spinning thread rests, the number of the futex call, the state of the FPU.

declare void @llvm.x86.sse2.pause()
declare void @llvm.x86.sse.ldmxcsr(ptr)

@futex = internal constant i64 202
@gettid = internal constant i64 186
@default_mxcsr = internal constant i32 8064

define internal void @rest() nounwind {
  call void @llvm.x86.sse2.pause()
  ret void
}

; Round to nearest, subnormals kept, no traps: threads inherit their creator's state, which may be anything.
define internal void @default_floats() nounwind {
  call void @llvm.x86.sse.ldmxcsr(ptr @default_mxcsr)
  ret void
}
