"""The audit: every e-node of every class is evaluated on random operands, and all of a class must agree.

A wrong rule, whatever it was derived through, puts two different values in one class.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tcomp.passes.egraph.engine import ENode, Frozen
from tcomp.passes.egraph.evaluate import Named, evaluate
from tcomp.passes.egraph.instances import agree, leaf_values


@dataclass(frozen=True, slots=True)
class Audit:
    """compared: e-nodes that had another of their class to agree with; wrong: those that did not; left: without a value."""

    compared: int
    wrong: tuple[ENode, ...]
    left: int


def audit(graph: Frozen, seed: int = 0, tolerance: float = 1e-5) -> Audit:
    """Evaluate everything in `graph`, whose sizes should be small."""
    leaf = leaf_values(graph.sizes, seed)
    values: dict[int, Named] = {}
    compared, wrong = 0, []
    todo = list(graph.nodes)
    while todo:
        ready = [n for n in todo if all(k in values for k in n.kids)]
        if not ready:
            break
        for n in ready:
            value = _value(n, values, leaf, graph.sizes)
            if n.cls not in values:
                if value is not None:
                    values[n.cls] = value
                continue
            compared += 1
            if value is None or not agree(values[n.cls], value, tolerance):
                wrong.append(n)
        done = set(map(id, ready))
        todo = [n for n in todo if id(n) not in done]
    return Audit(compared, tuple(wrong), len(todo))


def _value(n: ENode, values: dict[int, Named], leaf: object, sizes: dict[str, int]) -> Named | None:
    try:
        with np.errstate(all="ignore"):
            return evaluate((n.op, n.attrs, n.kids), [values[k] for k in n.kids], leaf, sizes)  # type: ignore[arg-type]
    except (ValueError, IndexError):
        return None
