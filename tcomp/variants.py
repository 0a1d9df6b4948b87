"""A program with its variants, each for some sizes, tried in order at a call: one artifact (docs/adr/0013-variants.md).

Takes a GRAPH function with `others`, which take sizes that it does not, and compiles them all ahead. Where the caller has
promised a range of a dimension, its smallest sizes get a variant of their own if an estimate says that it pays. One of the
others that cannot be compiled is left out, and the report says so: the program then takes fewer sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce

from tcomp.driver import artifact_of, stages_of
from tcomp.errors import Error
from tcomp.frontend.jit import Options
from tcomp.frontend.meetings import MET
from tcomp.ir import index
from tcomp.ir.artifact import Artifact, Constant
from tcomp.ir.graph import Fate, Func
from tcomp.ir.module import Module
from tcomp.ir.node import Dim, Node
from tcomp.ir.sized import may_be_sized, sized
from tcomp.ir.stmts import Launch
from tcomp.ir.work import call_work, launch_bytes, launch_flops, launch_stores

MOST = 4  # variants of a program
FEW = 16  # sizes up to which a dimension of a larger range may have a variant of its own: a vector
PAYS = 1.15  # times the work that a variant must save
USUAL = 128  # what other dimensions are taken to be
_WIDTH, _LAUNCH = 16, 2500  # elements and bytes in a cycle, cycles of a launch: roughly, and for all programs alike

Modules = Mapping[str, Module]


def built(func: Func, options: Options, modules: Modules | None = None) -> Artifact:
    """The artifact of a program with all its variants. modules: the stages of `func`, where it is lowered already."""
    stages = modules or stages_of(func, options)
    first = artifact_of(stages, options)
    others, refused = _others(func, options)
    buckets = _buckets(func, stages, options, MOST - 1 - len(others))
    chosen = [b for b in buckets if b.chosen]
    widest = others[-1][0] if others else func
    report = {**first.report, "dimensions": _account(func, widest, refused)}
    if buckets:
        report["buckets"] = [[_takes(b.func, func), f"{b.gain:.2f}", b.decision] for b in buckets]
    made = [(b.func, artifact_of(b.modules, options)) for b in chosen]
    variants = [*made, (func, first), *others]
    if len(variants) > 1:
        report["variants"] = [[k, _takes(f, widest), f"{a.report['kernels']} kernels"] for k, (f, a) in enumerate(variants)]
    both = tuple(a for _, a in (*made, *others))
    return _shared(replace(first, others=both, lead=len(made), report=report))


def _others(func: Func, options: Options) -> tuple[list[tuple[Func, Artifact]], tuple[Fate, ...]]:
    """The variants that take further sizes, and why some are not there."""
    others: list[tuple[Func, Artifact]] = []
    refused: list[Fate] = []
    for k, other in enumerate(func.others[: MOST - 1]):
        try:
            others.append((other, artifact_of(stages_of(other, options, f"other{k}-"), options)))
        except Error as e:
            refused.append(Fate("all", "only what the variants take", f"the general one: {e.code}: {e.found}", e.place))
    return others, tuple(refused)


# --- buckets ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Bucket:
    """A program for the smallest sizes of a dimension. gain: estimated cycles of the whole program in those of this one."""

    func: Func
    modules: Modules
    gain: float
    decision: str

    @property
    def chosen(self) -> bool:
        return self.decision == "compiled"


def _buckets(func: Func, modules: Modules, options: Options, room: int) -> list[_Bucket]:
    """What was tried for dimensions of a promised range: of what pays, the `room` that pay most are chosen. Those of one size
    come first."""
    if room <= 0 or not may_be_sized(func):
        return []
    found: list[_Bucket] = []
    for symbol in (s for s in func.symbols() if s["name"] in func.promised):
        for value in _candidates(symbol):
            try:
                found.append(_bucket(func, modules, options, {symbol: value}))
            except Error:
                continue  # an operation that does not take these sizes: neither does the program
    best = sorted((b for b in found if b.chosen), key=lambda b: -b.gain)[:room]
    told = [b if b in best or not b.chosen else replace(b, decision=f"not compiled: {MOST} variants are enough") for b in found]
    return sorted(told, key=lambda b: len(b.func.symbols()))


def _bucket(func: Func, modules: Modules, options: Options, values: Mapping[Node, Dim]) -> _Bucket:
    small = sized(func, values)
    stages = stages_of(small, options, "".join(f"{s['name']}{v if isinstance(v, int) else 'few'}-" for s, v in values.items()))
    middle = {str(s["name"]): v if isinstance(v, int) else FEW // 2 for s, v in values.items()}
    at = {s["name"]: index.nearest(s, USUAL) for s in func.symbols()} | middle
    gain = _cycles(modules, at) / _cycles(stages, at)
    return _Bucket(small, stages, gain, "compiled" if gain >= PAYS else "not compiled: it would gain too little")


def _candidates(symbol: Node) -> list[Dim]:
    """Smaller sizes of a dimension that may pay: 1, and those of one vector."""
    lo, hi, multiple = symbol["lo"] or 0, symbol["hi"], symbol["multiple"]
    if hi is None or multiple != 1:
        return []
    ones: list[Dim] = [1] if lo <= 1 < hi else []
    return [*ones, *([index.symbol(symbol["name"], lo, FEW)] if lo <= FEW // 2 and hi > FEW else [])]


def _cycles(modules: Modules, sizes: Mapping[str, int]) -> float:
    """An estimate of a call on one thread by its innermost loops: elements computed and stored, masked ones too, and bytes."""
    program = modules["reg"]
    assert program.main is not None

    def work(s: Launch) -> Dim:
        kernel = program.kernel(s.kernel)
        parts = (launch_flops(s, kernel), launch_stores(s, kernel), launch_bytes(s, kernel))
        return reduce(index.add, parts)

    launches = call_work(program.main.body, lambda s: 1)
    total = index.evaluate(call_work(program.main.body, work), sizes)
    return total / _WIDTH + _LAUNCH * index.evaluate(launches, sizes)


# --- what the report says -------------------------------------------------------------------------------


def _account(func: Func, widest: Func, refused: tuple[Fate, ...]) -> list[list[str]]:
    """What became of each symbolic dimension: those that stay so in all variants, then those that did not, with why and where."""
    rows = [Fate(index.show(s), _range(s), "for all sizes of a call") for s in widest.symbols()]
    special = f"{MET}: so in a variant" if widest is not func else MET
    rows += [f if f.why != MET or f in widest.account else replace(f, why=special) for f in func.account]
    rows += [*(f for f in widest.account if f not in func.account), *refused]
    return [[f.dimension, f.became, f.why, f.where] for f in rows]


def _range(symbol: Node) -> str:
    lo, hi, multiple = symbol["lo"] or 0, symbol["hi"], symbol["multiple"]
    bounds = f"{lo} to {hi}" if hi is not None else f"at least {lo}" if lo else ""
    return ", ".join(part for part in ("symbolic", bounds, f"a multiple of {multiple}" if multiple > 1 else "") if part)


def _takes(func: Func, widest: Func) -> str:
    """For which sizes a variant is, said by how its parameters differ from those of the widest."""
    pairs = [(d, e) for p, q in zip(func.params, widest.params) for d, e in zip(p.type.shape, q.type.shape) if d != e]
    told = dict.fromkeys(_condition(d, e) for d, e in pairs)
    return ", ".join(told) or "all other sizes"


def _condition(d: Dim, e: Dim) -> str:
    """Where a dimension `e` is `d`."""
    if isinstance(d, Node) and index.show(d) == index.show(e):
        return f"{index.show(e)} up to {d['hi']}"
    return f"{index.show(e)} = {index.show(d)}"


def _shared(artifact: Artifact) -> Artifact:
    """The artifact with constants that are equal in several variants there once."""
    if not artifact.others:
        return artifact
    known: dict[str, Constant] = {}
    parts = []
    for part in (artifact, *artifact.others):
        constants = [replace(c, data=known.setdefault(c.digest(), c).data) for c in part.constants]
        parts.append(replace(part, constants=tuple(constants), others=()))
    return replace(artifact, constants=parts[0].constants, others=tuple(parts[1:]))
