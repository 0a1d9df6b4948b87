"""A program with its variants, each for some sizes, tried in order at a call: one artifact (docs/adr/0013-variants.md).

Takes a GRAPH function with `others`, which take sizes that it does not; compiles them all ahead. A variant behind the first that
cannot be compiled is left out, and the report says so: the program then takes fewer sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tcomp.driver import artifact_of, stages_of
from tcomp.errors import Error
from tcomp.frontend.jit import Options
from tcomp.ir import index
from tcomp.ir.artifact import Artifact, Constant
from tcomp.ir.graph import Fate, Func
from tcomp.ir.module import Module
from tcomp.ir.node import Node


def built(func: Func, options: Options, modules: Mapping[str, Module] | None = None) -> Artifact:
    """The artifact of a program with all its variants. modules: the stages of the first, where it is lowered already."""
    first = artifact_of(modules or stages_of(func, options), options)
    others: list[Artifact] = []
    refused: list[Fate] = []
    for other in func.others:
        try:
            others.append(artifact_of(stages_of(other, options), options))
        except Error as e:
            refused.append(Fate("all", "only those that the variants take", f"the general variant: {e.code}: {e.found}", e.place))
    widest = func.others[-1] if others else func
    report = {**first.report, "dimensions": _account(func, widest, tuple(refused))}
    if others:
        both = enumerate(zip((func, *func.others), (first, *others)))
        report["variants"] = [[k, _takes(f, widest), f"{a.report['kernels']} kernels"] for k, (f, a) in both]
    return _shared(replace(first, others=tuple(others), report=report))


def _account(func: Func, widest: Func, refused: tuple[Fate, ...]) -> list[list[str]]:
    """What became of each symbolic dimension: those that stay so in all variants, then those that did not, with why and where."""
    rows = [Fate(index.show(s), _range(s), "for all sizes of a call") for s in widest.symbols()]
    rows += [*func.account, *(f for f in widest.account if f not in func.account), *refused]
    return [[f.dimension, f.became, f.why, f.where] for f in rows]


def _range(symbol: Node) -> str:
    lo, hi = symbol["lo"], symbol["hi"]
    if hi is None:
        return f"symbolic, at least {lo}" if lo else "symbolic"
    return f"symbolic, {lo or 0} to {hi}"


def _takes(func: Func, widest: Func) -> str:
    """For which sizes a variant is, said by how its parameters differ from those of the widest."""
    pairs = [(d, e) for p, q in zip(func.params, widest.params) for d, e in zip(p.type.shape, q.type.shape) if d != e]
    told = dict.fromkeys(f"{index.show(e)} = {index.show(d)}" for d, e in pairs)
    return ", ".join(told) or "all other sizes"


def _shared(artifact: Artifact) -> Artifact:
    """The artifact with constants that are equal in several variants there once."""
    if not artifact.others:
        return artifact
    known: dict[str, Constant] = {}
    variants = []
    for variant in artifact.variants:
        constants = [replace(c, data=known.setdefault(c.digest(), c).data) for c in variant.constants]
        variants.append(replace(variant, constants=tuple(constants), others=()))
    return replace(variants[0], others=tuple(variants[1:]))
