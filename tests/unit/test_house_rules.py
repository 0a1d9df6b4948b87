"""The rules of the house that a program can check: who imports whom, how long things get, what code never does."""

import ast
import re
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from tcomp.errors import CODES

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "tcomp"
BASE = {"errors", "knobs", "trace", "forks", "ir"}
COMPILER = BASE | {"frontend", "passes", "codegen", "runtime", "schedule", "tuning"}
MAY_IMPORT = {
    "errors": set(),
    "knobs": {"errors"},
    "trace": {"errors", "knobs"},
    "forks": set(),
    "ir": {"errors", "knobs", "trace", "forks"},
    "frontend": BASE,
    "passes": BASE,
    "codegen": BASE,
    "runtime": BASE,
    "schedule": BASE | {"passes"},
    "tuning": BASE | {"passes", "schedule"},
    "checking": BASE,  # what happens between passes, for the driver
    "driver": COMPILER | {"checking"},
    "testing": COMPILER | {"driver"},
    "variants": COMPILER | {"driver"},
    "api": COMPILER | {"driver", "variants"},  # what `__init__` shows
    "numpy": {"frontend"},  # public names, like `__init__`
    "__init__": COMPILER | {"driver", "variants", "api", "numpy"},
    "cli": COMPILER | {"driver", "variants", "api", "testing", "__init__"},
    "__main__": {"cli"},
}
LONGEST_FUNCTION, LONGEST_FILE = 60, 600
HEAVY = ("onnx", "egglog", "z3", "ortools", "sqlalchemy", "click", "rich")


@cache
def sources() -> dict[str, ast.Module]:
    """Every file of the package and its syntax tree, by its path from the root."""
    return {str(p.relative_to(ROOT)): ast.parse(p.read_text()) for p in sorted(PACKAGE.rglob("*.py"))}


def unit_of(parts: tuple[str, ...]) -> str | None:
    """The unit of the law that a module of tcomp belongs to: `("tcomp", "ir", "node")` is `ir`, tcomp itself `__init__`."""
    if parts[:1] != ("tcomp",):
        return None
    return parts[1] if len(parts) > 1 and (parts[1] in MAY_IMPORT or (PACKAGE / f"{parts[1]}.py").exists()) else "__init__"


def imported_units(file: str, tree: ast.Module) -> list[tuple[int, str]]:
    """(line, unit) of every import of tcomp, those inside functions and under TYPE_CHECKING included."""
    package = Path(file).with_suffix("").parts[:-1]
    found = []
    for n in ast.walk(tree):
        names: list[str] = []
        if isinstance(n, ast.Import):
            names = [a.name for a in n.names]
        elif isinstance(n, ast.ImportFrom):
            base = ".".join(package[: len(package) - n.level + 1]) if n.level else ""
            module = ".".join(p for p in (base, n.module) if p)
            names = [f"{module}.{a.name}" for a in n.names]
        found += [(n.lineno, unit) for name in names if (unit := unit_of(tuple(name.split(".")))) is not None]
    return found


def breaches(file: str, tree: ast.Module) -> list[str]:
    """Imports of `file` that the law forbids."""
    here = Path(file).with_suffix("").parts[1]
    assert here in MAY_IMPORT, f"{file}: which row of the import law does it belong to?"
    allowed = MAY_IMPORT[here] | {here}
    return [f"{file}:{line} imports {unit}" for line, unit in imported_units(file, tree) if unit not in allowed]


def test_imports_follow_the_law():
    assert [b for file, tree in sources().items() for b in breaches(file, tree)] == []


@pytest.mark.parametrize(
    "file, text",
    [
        ("tcomp/ir/x.py", "def f():\n    from tcomp.passes import fusion\n"),
        ("tcomp/passes/x.py", "import tcomp.codegen.llvm.build\n"),
        ("tcomp/runtime/x.py", "from tcomp import frontend\n"),
        ("tcomp/codegen/x.py", "from ..runtime import pool\n"),
        ("tcomp/schedule/x.py", "import tcomp\n"),
        ("tcomp/driver.py", "from tcomp.cli import main\n"),
    ],
)
def test_the_law_sees_a_breach(file, text):
    assert len(breaches(file, ast.parse(text))) == 1


def test_functions_and_files_stay_small():
    long = []
    for file, tree in sources().items():
        lines = (ROOT / file).read_text().count("\n")
        long += [f"{file}: {lines} lines"] * (lines > LONGEST_FILE)
        for n in ast.walk(tree):
            if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef) and (size := n.end_lineno - n.lineno + 1) > LONGEST_FUNCTION:
                long.append(f"{file}:{n.lineno} {n.name}: {size} lines")
    assert long == []


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_nothing_is_left_for_later():
    marks = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK")) + r")\b")
    files = [p for folder in ("tcomp", "tests", "examples", "tools", "docs") for p in (ROOT / folder).rglob("*.*")]
    texts = [p for p in files if p.suffix in (".py", ".ll", ".md", ".tc")]
    found = [f"{p.relative_to(ROOT)}:{k}" for p in texts for k, line in enumerate(lines(p), 1) if marks.search(line)]
    assert texts and found == []


def dangerous(n: ast.AST) -> str | None:
    """What a node does that tcomp never may: run text as Python, unpickle, start a shell, swallow every exception."""
    if isinstance(n, ast.Import | ast.ImportFrom):
        names = [a.name for a in n.names] + [getattr(n, "module", None) or ""]
        return next((f"imports {x}" for x in names if x.split(".")[0] in ("pickle", "marshal", "shelve", "dill")), None)
    if isinstance(n, ast.Call):
        called = ast.unparse(n.func)
        if called in ("eval", "exec", "os.system", "os.popen"):
            return f"calls {called}"
        if any(k.arg == "shell" and getattr(k.value, "value", True) for k in n.keywords):
            return "starts a shell"
        if any(k.arg == "allow_pickle" and getattr(k.value, "value", True) for k in n.keywords):
            return "unpickles"
    if isinstance(n, ast.ExceptHandler):
        wide = n.type is None or ast.unparse(n.type) in ("Exception", "BaseException")
        if wide and all(isinstance(s, ast.Pass | ast.Continue) for s in n.body):
            return "swallows every exception"
    return None


def test_nothing_dangerous():
    found = [f"{file}:{n.lineno} {what}" for file, tree in sources().items() for n in ast.walk(tree) if (what := dangerous(n))]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "eval(x)",
        "exec(x)",
        "os.system(x)",
        "import pickle",
        "from pickle import loads",
        "subprocess.run(x, shell=True)",
        "np.load(x, allow_pickle=True)",
        "try:\n    f()\nexcept Exception:\n    pass",
    ],
)
def test_danger_is_seen(text):
    assert any(dangerous(n) for n in ast.walk(ast.parse(text)))


def raised_codes() -> set[str]:
    """Error codes that the package's code names, beside the table itself."""
    texts = (p.read_text() for p in PACKAGE.rglob("*.py") if p.name != "errors.py")
    literal = re.compile(r"[\"'](TC\d{4})[\"']")
    return {code for text in texts for code in literal.findall(text)}


def test_every_error_code_is_raised():
    assert sorted(set(CODES) - raised_codes()) == []


def test_every_error_code_is_tested():
    texts = "".join(p.read_text() for p in (ROOT / "tests").rglob("*.*") if p.suffix in (".py", ".tc"))
    assert [code for code in CODES if code not in texts] == []


def test_no_unknown_error_code():
    assert sorted(raised_codes() - set(CODES)) == []


def run(*command: str) -> subprocess.CompletedProcess:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_import_is_light():
    code = f"import sys, tcomp; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = run(sys.executable, "-c", code)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_ruff_is_clean():
    assert find_spec("ruff"), "ruff is part of the dev extra"
    done = run(sys.executable, "-m", "ruff", "check", ".")
    assert done.returncode == 0, done.stdout


def test_mypy_is_strict_where_it_must_be():
    assert find_spec("mypy"), "mypy is part of the dev extra"
    done = run(sys.executable, "-m", "mypy", "-p", "tcomp.ir", "-p", "tcomp.passes", "-p", "tcomp.schedule")
    assert done.returncode == 0, done.stdout


SOLVES = """
import sys
import numpy as np, tcomp
f = tcomp.jit(lambda q, k, v: (q @ k.T) @ v)
rows = [np.ones((1024, 64), np.float32) for _ in range(3)]
f(*rows)
print([m for m in ("onnx", "egglog", "z3", "ortools", "networkx", "sqlalchemy") if m in sys.modules], end=" ")
print("tcomp.passes.egraph.worker" in sys.modules)
"""


def test_solvers_stay_in_their_own_process(tmp_path, monkeypatch):
    """Saturation loads them in the worker alone; a program from the cache does not even know of the worker."""
    monkeypatch.setenv("TCOMP_CACHE", "1")
    monkeypatch.setenv("TCOMP_CACHE_DIR", str(tmp_path))
    for expected in ("[] True", "[] False"):
        done = run(sys.executable, "-c", SOLVES)
        assert done.stdout.strip() == expected, done.stdout + done.stderr
