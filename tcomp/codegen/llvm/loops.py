"""Counted loops in SSA form: the test at the bottom, and once before the loop where it may not run at all."""

from __future__ import annotations

from collections.abc import Callable

from tcomp.codegen.llvm.writer import Writer

Phi = tuple[str, str]  # (LLVM type, SSA name or literal)
Body = Callable[[str, list[str]], list[str]]  # (counter, carried values) -> the next values


def counted(w: Writer, lo: str, hi: str, step: int, carried: list[Phi], body: Body, certain: bool) -> list[str]:
    """Run `body` for lo, lo + step, ... below hi, a level deeper; gives the carried values after the last time.

    `certain`: it runs at least once.
    """
    b = w.b
    head, after = b.fresh("loop"), b.fresh("after")
    with w.scope():
        before = b.block
        if certain:
            b.branch(head)
        else:
            b.branch_if(b.value(f"icmp slt i64 {lo}, {hi}"), head, after)
        b.start(head)
        phis = b.landing()
        counter = f"%{b.fresh('i')}"
        inside = [f"%{b.fresh('c')}" for _ in carried]
        following = body(counter, list(inside))
    stepped = b.value(f"add nsw i64 {counter}, {step}")
    latch = b.block
    phis.append(f"  {counter} = phi i64 [ {lo}, %{before} ], [ {stepped}, %{latch} ]")
    for name, (kind, first), last in zip(inside, carried, following):
        phis.append(f"  {name} = phi {kind} [ {first}, %{before} ], [ {last}, %{latch} ]")
    b.branch_if(b.value(f"icmp slt i64 {stepped}, {hi}"), head, after)
    b.start(after)
    if certain:
        return following
    return [
        b.value(f"phi {kind} [ {first}, %{before} ], [ {last}, %{latch} ]") for (kind, first), last in zip(carried, following)
    ]
