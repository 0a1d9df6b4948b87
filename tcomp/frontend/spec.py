"""`tcomp.spec("f32[n, 768]")`: an argument without a value, for `lower` and `dynamic=`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from tcomp.errors import Error
from tcomp.frontend.promotion import element_type
from tcomp.ir import dtype as dt
from tcomp.ir import index
from tcomp.ir.dtype import DType
from tcomp.ir.node import Dim

_FORM = re.compile(r"\s*(\w+)\s*\[(.*)\]\s*\Z")
_SIZE = re.compile(r"(\w+)(?:\s*=\s*(\d+)\s*\.\.\s*(\d+))?\Z")


@dataclass(frozen=True, slots=True)
class Spec:
    """A dtype and a shape. A size is an int, or a symbol: `n`, or `n=1..64` with its bounds."""

    dtype: DType
    sizes: tuple[Dim, ...]
    is_leaf: ClassVar[bool] = True  # for pytree: no container

    @property
    def shape(self) -> tuple[Dim, ...]:
        return self.sizes

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(index.show, self.sizes))}]"


def spec(text: str) -> Spec:
    """The argument that `text` describes: `f32[n, 768]`, `i64[]`, `float32[batch=1..64, 3]`. TC0105 where it does not parse."""
    found = _FORM.match(text) if isinstance(text, str) else None
    if found is None:
        raise Error("TC0105", f"the argument specification `{text}`", "a dtype and sizes, such as `f32[n, 768]`")
    name, inside = found.groups()
    dtype = dt.ALL[name] if name in dt.ALL else element_type(name)
    return Spec(dtype, tuple(_size(s.strip(), text) for s in inside.split(",")) if inside.strip() else ())


def _size(word: str, text: str) -> Dim:
    found = _SIZE.match(word)
    if found is None:
        raise Error("TC0105", f"the size `{word}` of `{text}`", "an integer, or a name with or without bounds: `n`, `n=1..64`")
    name, low, high = found.groups()
    if name.isdigit():
        return int(name)
    return index.symbol(name) if low is None else index.symbol(name, int(low), int(high))
