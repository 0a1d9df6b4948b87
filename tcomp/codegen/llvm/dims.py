"""Index expressions as LLVM code: exactly in i64, and as doubles where only the order of magnitude matters.

`Dims` emits into the current block of a function and remembers what it has emitted, so it serves functions whose blocks
form a chain: every block dominates all later ones.
"""

from __future__ import annotations

from tcomp.codegen.llvm.builder import FunctionBuilder, literal
from tcomp.ir import index
from tcomp.ir.node import Dim, Node, walk


class Dims:
    """The values of index expressions in one function. symbols: the i64 operand of each, by name."""

    def __init__(self, f: FunctionBuilder, symbols: dict[str, str]) -> None:
        self._f = f
        self._symbols = symbols
        self._exact: dict[Node, str] = {}
        self._rough: dict[Node, str] = {}

    def inner(self, symbols: dict[str, str]) -> Dims:
        """For blocks that those after them are not dominated by, such as a loop's body: what is known here, and more symbols."""
        new = Dims(self._f, {**self._symbols, **symbols})
        new._exact, new._rough = dict(self._exact), dict(self._rough)
        return new

    def value(self, x: Dim) -> str:
        """`x` as an i64 operand. Division floors; by a symbol that is 0 it gives the dividend."""
        known = index.constant(x)
        if known is not None:
            return str(known)
        assert isinstance(x, Node)
        for n in walk([x]):
            if n not in self._exact:
                self._exact[n] = self._operation(n, [self._exact[o] for o in n.operands])
        return self._exact[x]

    def _operation(self, n: Node, v: list[str]) -> str:
        match n.op:
            case "sym":
                return self._symbols[n["name"]]
            case "affine":
                return self._sum(n, v)
            case "mul":
                total = v[0]
                for factor in v[1:]:
                    total = self._f.value(f"mul i64 {total}, {factor}")
                return total
            case "floordiv" | "mod":
                return self._division(n, *v)
            case "min" | "max":
                return self._f.call("i64", f"@llvm.s{n.op}.i64", f"i64 {v[0]}", f"i64 {v[1]}")
            case "eq" | "lt":
                bit = self._f.value(f"icmp {'eq' if n.op == 'eq' else 'slt'} i64 {v[0]}, {v[1]}")
                return self._f.value(f"zext i1 {bit} to i64")
        raise AssertionError(f"main cannot evaluate {n.op}")

    def _sum(self, n: Node, v: list[str]) -> str:
        total = str(n["constant"])
        for factor, k in zip(v, n["coefficients"]):
            term = factor if k == 1 else self._f.value(f"mul i64 {factor}, {k}")
            total = term if total == "0" else self._f.value(f"add i64 {total}, {term}")
        return total

    def _division(self, n: Node, a: str, b: str) -> str:
        """Floor division or its remainder, by at least 1."""
        kind = "div" if n.op == "floordiv" else "rem"
        if index.constant(index.as_dim(n.operands[1])) is None:
            b = self._f.call("i64", "@llvm.smax.i64", f"i64 {b}", "i64 1")
        low = index.bounds(index.as_dim(n.operands[0]))[0]
        if low is not None and low >= 0:
            return self._f.value(f"u{kind} i64 {a}, {b}")
        rest = self._f.value(f"srem i64 {a}, {b}")
        below = self._f.value(f"icmp slt i64 {rest}, 0")
        if kind == "rem":
            raised = self._f.value(f"add i64 {rest}, {b}")
            return self._f.value(f"select i1 {below}, i64 {raised}, i64 {rest}")
        quotient = self._f.value(f"sdiv i64 {a}, {b}")
        step = self._f.value(f"sext i1 {below} to i64")
        return self._f.value(f"add i64 {quotient}, {step}")

    def rough(self, x: Dim) -> str:
        """`x` as a double operand: what `value` would be without overflow, rounded, division not floored."""
        known = index.constant(x)
        if known is not None:
            return literal("double", known)
        assert isinstance(x, Node)
        for n in walk([x]):
            if n not in self._rough:
                self._rough[n] = self._rough_operation(n, [self._rough[o] for o in n.operands])
        return self._rough[x]

    def _rough_operation(self, n: Node, v: list[str]) -> str:
        match n.op:
            case "sym":
                return self._f.value(f"sitofp i64 {self._symbols[n['name']]} to double")
            case "affine":
                total = literal("double", n["constant"])
                for factor, k in zip(v, n["coefficients"]):
                    term = self._f.value(f"fmul double {factor}, {literal('double', k)}")
                    total = self._f.value(f"fadd double {total}, {term}")
                return total
            case "mul":
                total = v[0]
                for factor in v[1:]:
                    total = self._f.value(f"fmul double {total}, {factor}")
                return total
            case "floordiv":
                divisor = self._f.call("double", "@llvm.maxnum.f64", f"double {v[1]}", f"double {literal('double', 1)}")
                return self._f.value(f"fdiv double {v[0]}, {divisor}")
            case "mod":
                return v[1]
            case "min" | "max":
                return self._f.call("double", f"@llvm.{n.op}num.f64", f"double {v[0]}", f"double {v[1]}")
        return literal("double", 1)
