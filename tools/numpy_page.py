"""docs/numpy.md: what of NumPy works on traced arrays, from the tables behind `tcomp.numpy`."""

from __future__ import annotations

import numpy as np

from tcomp.frontend.numpy_api.inspection import CONSTANTS, DTYPES, QUESTIONS
from tcomp.frontend.numpy_api.selection import SIZED_BY_VALUES
from tcomp.frontend.operators import REFUSED
from tcomp.frontend.registry import LINALG, PUBLIC, Public
from tcomp.frontend.tracer import Traced

HEAD = """# NumPy

What a function under `@tcomp.jit` (or given to `tcomp.compile`) may call on its arrays: NumPy's own functions of these names, the
operators and the methods below, and the same names of `tcomp.numpy`, which outside of such a function compile for themselves and
run at once. What has no such array among its arguments NumPy and Python do as always, once, while the function is traced.

* Results are NumPy's, dtypes too ([lang.md](lang.md), section 2). There are no complex numbers.
* A traced array never changes: no `x[i] = v`, no `out=`. `x += 1` makes a new array; the caller's stays as it is.
* A result's shape follows from shapes alone. Where it would depend on values (`x[mask]` of a traced mask, `nonzero`, `unique`)
  the error is TC0105; `where(mask, x, fill)` keeps the shape.
* A value is not known while tracing: `if x.sum() > 0`, `float(x)`, `range(n)` of a traced n are TC0101. Shapes are known, and so
  are arguments that `static_argnames=` names.
* `np.array([x, y])`, `np.asarray(x)` and `np.ascontiguousarray(x)` ask for elements: use those of `tcomp.numpy`, or `np.stack`.
* Arrays that are not arguments (globals, attributes, defaults) are compiled in, with the elements that they have at that moment.

Every other function is TC0105, at the user's line; compute what it gives before, and pass it in.

**Arguments and results** are arrays and scalars, in any nest of tuples, named tuples, lists, dicts and dataclasses, and None. A
Python number is a value of the call (of weak dtype); a text, dtype or slice is compiled in. Torch tensors in a CPU's memory give
torch tensors; what else shows itself by DLPack or `__array__` is read, and the results are NumPy arrays.

**Sizes**: `jit` compiles for each of the first four signatures, then once more with a symbol for each size that varied
(`f.programs()` lists what there is). `dynamic={"x": "f32[n, 768]"}` says from the start what varies; `tcomp.spec("f32[n, 768]")`
says it to `tcomp.compile` and `f.lower`.

"""
TITLES = {
    "elementwise": "Element by element",
    "reductions": "Reductions, orders and running sums",
    "products": "Products",
    "contraction": "Products by labels",
    "manipulation": "Movement",
    "creation": "Creation",
    "selection": "Selection and order",
    "composed": "Made of others",
    "blocks": "Block-scaled formats",
}


def page() -> str:
    """The page."""
    families: dict[str, list[str]] = {}
    for name, p in PUBLIC.items():
        if name in SIZED_BY_VALUES:
            continue
        families.setdefault(family(p), []).append(name)
    assert not families.keys() - TITLES.keys(), families.keys() - TITLES.keys()
    parts = [section(TITLES[key], families[key]) for key in TITLES if key in families]
    parts.append(section("linalg", [f"linalg.{name}" for name in LINALG]))
    methods = [n for n in dir(Traced) if hasattr(np.ndarray, n) and n not in REFUSED]
    parts.append(section("Methods and attributes of arrays", methods))
    parts.append(section("Questions, dtypes and constants", [*QUESTIONS, *DTYPES, *CONSTANTS]))
    return HEAD + "\n".join(parts)


def family(public: Public) -> str:
    """The file that a function stands in."""
    return public.function.__module__.rpartition(".")[2]


def section(title: str, names: list[str]) -> str:
    shown = ", ".join(f"`{n}`" for n in sorted(names) if not n.startswith("_"))
    return f"## {title}\n\n{shown}\n"
