"""`tcomp.numpy`: the Python array API standard's names, einsum and common NumPy extras, traced or at once."""

from tcomp.frontend.numpy_api import *  # noqa: F403
from tcomp.frontend.numpy_api import __all__  # noqa: F401
