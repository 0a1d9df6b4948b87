"""Models are many, and most are compiled for one call."""

import pytest


@pytest.fixture(autouse=True)
def _compiled_fast(fast_code):
    """Code of the fast tier."""
