"""One function at every stage: tensor values, kernels of tiles, buffers, registers, LLVM IR, assembly. See docs/lang.md."""

import numpy as np

import tcomp


@tcomp.jit
def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


lowered = softmax.lower(tcomp.spec("f32[n, 100]"))
for stage in ("graph", "tile", "placed", "reg"):
    print(f"---- {stage}")
    print(lowered.text(stage))

program = lowered.compile()
for stage in ("llvm", "asm"):
    lines = program.text(stage).splitlines()
    print(f"---- {stage}: {len(lines)} lines, from the middle")
    print("\n".join(lines[len(lines) // 2 : len(lines) // 2 + 10]))
