"""The namespace behind `tcomp.numpy`: every registered function, dtypes and constants.

A function traces inside a trace and runs at once outside one (see `tcomp.frontend.eager`).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tcomp.frontend import indexing_syntax as _indexing  # noqa: F401 - registers x[...]
from tcomp.frontend.eager import dual
from tcomp.frontend.numpy_api import blocks, composed, creation, elementwise, products, reductions, selection  # noqa: F401
from tcomp.frontend.numpy_api import contraction as _contraction  # noqa: F401
from tcomp.frontend.numpy_api import linalg as _linalg  # noqa: F401
from tcomp.frontend.numpy_api.inspection import CONSTANTS, DTYPES, QUESTIONS
from tcomp.frontend.registry import LINALG, PUBLIC

__array_api_version__ = "2024.12"


def _namespace() -> dict[str, Any]:
    """All public names."""
    functions = {name: dual(p) for name, p in PUBLIC.items()}
    inside = SimpleNamespace(**{name: dual(p) for name, p in LINALG.items()})
    return {**functions, **QUESTIONS, **DTYPES, **CONSTANTS, "linalg": inside}


NAMES: dict[str, Any] = _namespace()
globals().update(NAMES)
__all__ = sorted([*NAMES, "__array_api_version__"])
