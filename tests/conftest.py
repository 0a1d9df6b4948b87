"""What the whole suite shares."""

import pytest


def pytest_addoption(parser):
    parser.addoption("--update", action="store_true", help="rewrite the expectations of tests/cases/*.tc with what comes out now")


@pytest.fixture
def fast_code(monkeypatch):
    """The fast tier of code generation, for tests that ask what is computed and not how."""
    monkeypatch.setenv("TCOMP_FAST", "1")
