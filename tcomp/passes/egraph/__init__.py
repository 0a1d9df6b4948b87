"""Equality saturation of windows of a GRAPH in index notation. Start with `terms.py`, then `worker.py`."""
