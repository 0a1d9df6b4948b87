"""The documentation tells the truth: its programs parse, its generated pages are up to date, its links lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tcomp.ir.parser import parse
from tcomp.ir.printer import print_module
from tcomp.ir.verify import verify

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
PROGRAMS = re.findall(r"^```tc\n(.*?)^```", (ROOT / "docs" / "lang.md").read_text(), re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]*)(?:#([^)\s]*))?\)")


@pytest.mark.parametrize("text", PROGRAMS)
def test_programs_of_the_language_page(text):
    module = parse(text)
    verify(module)
    assert print_module(module).strip() == text.strip()


def test_the_language_page_shows_every_stage():
    assert {text.split("stage ")[1].split()[0] for text in PROGRAMS} == {"graph", "tile", "placed", "reg"}


def anchors(page):
    """The anchors that a page's headings make."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    broken = []
    for path, anchor in LINK.findall(re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)):
        if "://" in path:
            continue
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(f"{path}#{anchor}")
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_that_are_named_exist(page):
    """Paths in backticks, such as `tcomp/ir/node.py` (or `node.py` after a folder was named), are files of the tree."""
    named = set(re.findall(r"`((?:tcomp|tests|tools|docs|examples)/[\w/.-]*)`", page.read_text()))
    assert sorted(n for n in named if not (ROOT / n).exists()) == []


@pytest.mark.parametrize("page", ["architecture.md", "lang.md"])
def test_files_that_are_named_without_a_folder_exist(page):
    named = set(re.findall(r"`([\w/]+\.(?:py|ll))`", (ROOT / "docs" / page).read_text()))
    files = [f"/{p.relative_to(ROOT)}" for p in (ROOT / "tcomp").rglob("*.*")]
    assert named and sorted(n for n in named if not any(f.endswith(f"/{n}") for f in files) and not (ROOT / n).exists()) == []


def test_generated_pages_are_up_to_date():
    done = subprocess.run([sys.executable, "tools/generate_docs.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_two_commands_of_the_readme_are_what_ci_runs():
    lines = (ROOT / "README.md").read_text().splitlines()
    commands = [line.strip() for line in lines if line.strip().startswith("python3 -m venv .venv")]
    assert [c.rpartition("/")[2] for c in commands] == ["00_digits.py", "pytest"]
    script = (ROOT / ".ci" / "run").read_text()
    assert "readme 00_digits.py" in script and "readme pytest" in script
