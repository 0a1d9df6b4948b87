"""GRAPH to TILE: each fusion group becomes a kernel by its kind; `main` launches them in order. Start with `module.py`."""

from tcomp.schedule.lower.module import lower

__all__ = ["lower"]
