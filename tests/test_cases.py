"""`tests/cases/<pass>.tc`: text in, text out. `pytest tests/test_cases.py --update` rewrites what is expected.

    === a title
    --- pass: place                 one or several, in order; `parse` and `verify` are passes too. Default: the file's name
    module @m stage tile ...        what goes in
    --- expected
    module @m stage placed ...      what comes out, or the error as the user reads it

Text before the first title is for the reader. What goes in and what comes out are verified, unless an error is expected.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tcomp.errors import Error
from tcomp.ir.parser import parse
from tcomp.ir.printer import print_module
from tcomp.ir.verify import verify

FOLDER = Path(__file__).parent / "cases"


@dataclass(frozen=True)
class Case:
    """One case; `given` and `expected` end in a newline."""

    title: str
    passes: tuple[str, ...]
    given: str
    expected: str

    def text(self):
        return f"=== {self.title}\n--- pass: {', '.join(self.passes)}\n{self.given}--- expected\n{self.expected}"


def read_cases(text, name):
    """(what comes before the first case, the cases)"""
    intro, *parts = re.split(r"^=== ", text, flags=re.MULTILINE)
    return intro, [_case(part, name) for part in parts]


def _case(part, name):
    title, _, rest = part.partition("\n")
    given, separator, expected = rest.partition("--- expected\n")
    assert separator, f"{name}: the case `{title}` has no `--- expected`"
    head = re.match(r"--- pass: (.*)\n", given)
    passes = tuple(p.strip() for p in head.group(1).split(",")) if head else (name,)
    return Case(title, passes, given[head.end() :] if head else given, expected.rstrip("\n") + "\n")


def outcome(case):
    """The text that comes out, or the error."""
    try:
        module = parse(case.given, file="case")
        if case.passes[0] not in ("parse", "verify"):
            verify(module)
        for name in case.passes:
            module = pass_named(name)(module)
        return print_module(module)
    except Error as e:
        return e.render() + "\n"


def pass_named(name):
    if name == "parse":
        return lambda module: module
    if name == "verify":
        return verified
    from tcomp.driver import PASSES

    return lambda module: verified(PASSES[name](module))


def verified(module):
    verify(module)
    return module


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.tc")), ids=lambda p: p.stem)
def test_cases(path, request):
    intro, cases = read_cases(path.read_text(), path.stem)
    found = [Case(c.title, c.passes, c.given, outcome(c)) for c in cases]
    if request.config.getoption("--update"):
        path.write_text(intro + "\n".join(c.text() for c in found))
        return
    assert cases, f"{path.name} has no cases"
    for want, have in zip(cases, found):
        assert have.expected == want.expected, f"{path.name}: {want.title}"


def test_there_are_cases():
    assert len(list(FOLDER.glob("*.tc"))) >= 5


def test_a_case_that_differs_is_noticed():
    text = "intro\n=== t\n--- pass: parse\nmodule @m stage tile target cpu\n--- expected\nother\n"
    intro, (case,) = read_cases(text, "parse")
    assert intro == "intro\n" and case.text() == text.removeprefix(intro)
    assert outcome(case) == "module @m stage tile target cpu\n" != case.expected


def test_the_expected_error_is_text():
    _, (case,) = read_cases("=== t\nmodule @m stage graph target cpu\nfrob\n--- expected\n", "verify")
    assert case.passes == ("verify",) and outcome(case).startswith("TC0301: `frob`\n  case:2:1\n")
