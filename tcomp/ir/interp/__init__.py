"""Interpreters: the meaning of every stage, in NumPy."""
