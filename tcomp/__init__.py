"""tcomp: a tensor compiler. NumPy-style functions, einsums and ONNX models become native code; every step is readable."""

from tcomp.api import Compiler as _Compiler
from tcomp.api import compile, load
from tcomp.errors import Error
from tcomp.frontend.einsum import einsum
from tcomp.frontend.jit import jit, set_compiler
from tcomp.frontend.spec import spec

__version__ = "0.1.0"
__all__ = ["Error", "__version__", "compile", "einsum", "jit", "load", "spec"]

set_compiler(_Compiler())
