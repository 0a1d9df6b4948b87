"""`tcomp.einsum`: the public function, traced or at once; `numpy_api/contraction.py` holds what it does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tcomp.frontend.numpy_api import NAMES

einsum: Callable[..., Any] = NAMES["einsum"]
