"""Options of the whole suite."""


def pytest_addoption(parser):
    parser.addoption("--update", action="store_true", help="rewrite the expectations of tests/cases/*.tc with what comes out now")
