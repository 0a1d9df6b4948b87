"""Dependent reductions: reductions over one axis that read the results of earlier ones over the same axis, as one pass.

`expression.py` writes an element as a scalar expression over what is streamed and what was reduced before; `rank.py` tests
whether finitely many accumulators suffice; `correction.py` derives them and how they change when an earlier result does;
`order.py` has the test for accumulators that select; `cascade.py` finds such chains in a GRAPH.
"""
