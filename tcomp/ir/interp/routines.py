"""The meaning of `Call`: runtime routines on whole windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tcomp.ir.ops import OPS

Shapes = Sequence[tuple[int, ...]]
Routine = Callable[..., tuple[np.ndarray, ...]]  # (*inputs, shapes=of the outputs, **attrs) -> what the outputs get


def _sort(x: np.ndarray, *, shapes: Shapes, axis: int = -1, descending: bool = False) -> tuple[np.ndarray, ...]:
    """Values and positions in order along `axis`; stable; NaN counts as larger than all else."""
    values, order = OPS["sort"].reference(x, axis=axis % x.ndim, descending=descending)
    return values, order


def _top_k(x: np.ndarray, *, shapes: Shapes, axis: int = -1, largest: bool = True) -> tuple[np.ndarray, ...]:
    """Values and positions of the k largest or smallest along `axis`; k is the outputs' extent there."""
    axis %= x.ndim
    values, order = OPS["top_k"].reference(x, k=shapes[0][axis], axis=axis, largest=largest)
    return values, order


ROUTINES: dict[str, Routine] = {"sort": _sort, "top_k": _top_k}
