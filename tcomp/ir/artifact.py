"""What code generation hands to the runtime: native code, its ports, its constants, and the text it was made from.

The native interface (all integers are i64; every table is an array of 8-byte slots):

`i64 <entry>_plan(ptr symbols, ptr out)` computes sizes from the symbolic dimensions. It writes out[0] = bytes of the
arena, out[1] = bytes of scratch per thread, and from out[2] on the dimensions of every output, one output after the
other (-1 where only the data decides). It returns a status word: 0, or the assertion on a dimension that failed.

`void <entry>(ptr frame, i64 thread)` is `main`: all threads of a call walk it together, each with its own number.

| slot of frame | what |
|---|---|
| 0 | status word, 0 at the start: code << 32 or node; the first fault wins |
| 1 | number of threads walking; 0: one, which puts the nanoseconds of each phase into the first line of its counters |
| 2 | arena, 64-byte aligned (4096 where it is large) |
| 3 | scratch: thread t owns [base + t * scratch bytes, + scratch bytes) |
| 4 | table of constants' addresses |
| 5 | counters: `Artifact.counters` lines of 64 bytes, two for each phase of each launch, all zero at the start |
| 6 | table of symbols' values |
| 7 | table of inputs' addresses (C-contiguous; aligned to the element) |
| 8 | table of outputs' addresses; those with a data-dependent size are allocated by main with `tc_alloc` and put here |
| 9 | table of outputs' dimensions, one output after the other, all filled in when main returns |
| 10 | first of a list of blocks of `tc_alloc` that the caller frees after the call; each begins with the next; 0 at the start |

Booleans are bytes 0 or 1. Inputs are never written.

The table of symbols holds, behind the values of `Artifact.symbols`, the sizes that a call brings where an input's dimension is an
expression (`bound`): the plan compares them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from tcomp.ir import literals

FRAME_SLOTS = 11
STATUS_CODES = {1: "TC0604", 2: "TC0605", 3: "TC0606"}  # the codes that compiled programs raise


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output. A dimension is a size, a symbol's name or expression, or `?` where the data decides."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class Container:
    """An input or output that is no tensor: the ports that stand for it, by name, in order.

    kind: `sequence` (its elements one tensor after another, and their shapes i64[length, rank]), `tuple` (a sequence of as many
    tensors as there are ports), `maps` (the keys that all of them have, and a row of values for each), or with `optional ` before
    `sequence` or `tensor` (a boolean first: whether it is there).
    side: `input` or `output`.
    """

    side: str
    name: str
    kind: str
    ports: tuple[str, ...]


def bound(inputs: Iterable[Port], symbols: Iterable[str]) -> tuple[str, ...]:
    """What the table of symbols holds, in order: symbols, then the dimensions of inputs that are expressions, each once."""
    return tuple(dict.fromkeys((*symbols, *(d for port in inputs for d in port.shape if isinstance(d, str)))))


@dataclass(frozen=True, slots=True)
class CodeObject:
    """Native code for one target: a relocatable object file."""

    target: str  # "cpu:x86-64-v4", "cpu:host:<fingerprint>", ...
    features: tuple[str, ...]  # what the machine must have, as LLVM names it
    data: bytes = field(repr=False)


@dataclass(frozen=True, eq=False)
class Constant:
    """A constant as the code wants it: its bytes already in the order and padding that the kernels read."""

    name: str
    data: np.ndarray = field(repr=False)

    def digest(self) -> str:
        """What names it in text: sha256 of dtype, shape and bytes."""
        return literals.digest(self.data)


@dataclass(frozen=True, eq=False)
class Artifact:
    """A compiled program. `texts` maps a stage (graph, tile, placed, reg, llvm) to its text.

    others: the same program (inputs of the same names, dtypes and ranks) compiled for other sizes. What an artifact takes is what
    its inputs' shapes and its plan say; a call tries the first `lead` of the others, then this one, then the rest."""

    name: str
    entry: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    symbols: tuple[str, ...]
    counters: int
    objects: tuple[CodeObject, ...]
    constants: tuple[Constant, ...]
    texts: dict[str, str]
    report: dict[str, object]  # plain JSON: how each operation was realised, bytes, flops, compile times
    nodes: tuple[str, ...] = ()  # what the low half of a status word numbers: the user's place of each checked node
    defaults: tuple[tuple[str, str], ...] = ()  # overridable initializers: (input's name, constant's name)
    flops: int = 0  # of one call where the sizes are static; decides whether the GIL is let go
    containers: tuple[Container, ...] = ()
    others: tuple[Artifact, ...] = ()
    lead: int = 0

    @property
    def variants(self) -> tuple[Artifact, ...]:
        """This program and the others, in the order in which a call tries them."""
        return (*self.others[: self.lead], self, *self.others[self.lead :])

    @property
    def widest(self) -> Artifact:
        """The variant that is tried last and takes most calls: what the program says of its inputs."""
        return self.variants[-1]

    def manifest(self) -> dict[str, object]:
        """Everything but code and constants' bytes, as JSON data."""
        return {
            "name": self.name,
            "entry": self.entry,
            "inputs": [[p.name, p.dtype, list(p.shape)] for p in self.inputs],
            "outputs": [[p.name, p.dtype, list(p.shape)] for p in self.outputs],
            "symbols": list(self.symbols),
            "counters": self.counters,
            "objects": [[o.target, list(o.features), hashlib.sha256(o.data).hexdigest()] for o in self.objects],
            "constants": [[c.name, c.digest()] for c in self.constants],
            "texts": {k: hashlib.sha256(v.encode()).hexdigest() for k, v in self.texts.items()},
            "report": self.report,
            "nodes": list(self.nodes),
            "defaults": [list(d) for d in self.defaults],
            "flops": self.flops,
            "containers": [[c.side, c.name, c.kind, list(c.ports)] for c in self.containers],
            "others": [other.manifest() for other in self.others],
            "lead": self.lead,
        }

    def digest(self) -> str:
        """sha256 of the manifest, which holds the digests of all the rest."""
        return hashlib.sha256(json.dumps(self.manifest(), sort_keys=True).encode()).hexdigest()
