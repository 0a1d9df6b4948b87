"""Vector math for generated CPU code: `FUNCTIONS` says what there is and how exact, `emit` writes the code.

Subnormals, signed zeros, infinities and NaN are right everywhere; nothing is called outside the module, except `fma` in
f64 `fmod`, `remainder` and `floor_divide` on targets without that instruction.
"""

from tcomp.codegen.llvm.vecmath.table import FUNCTIONS, VectorFunction, emit, page

__all__ = ["FUNCTIONS", "VectorFunction", "emit", "page"]
