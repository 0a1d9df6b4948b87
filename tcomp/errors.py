"""Every error a user can meet: a code, the place in their source or graph, what was found, what was expected, one hint.

`CODES` is the table; `docs/errors.md` is generated from it and a test meets every row. Ranges: 01 tracing, 02 ONNX,
03 IR text and legality, 04 passes, 05 schedule and code generation, 06 calls, 07 artifacts and caches, 08 command line.
"""

from __future__ import annotations

CODES: dict[str, str] = {
    "TC0001": "a fault of tcomp itself: please report it with the reproducer that the message names",
    "TC0002": "a TCOMP_* environment variable holds a value that is not understood",
    "TC0101": "Python asked for the value of a traced array (`if`, `bool()`, `int()`, iteration): it is not known while tracing",
    "TC0102": "operands whose shapes do not fit the operation",
    "TC0103": "operands whose dtypes do not fit the operation",
    "TC0104": "an attribute (axis, permutation, size) that does not fit the operand",
    "TC0105": "a function, method or argument that tcomp does not support",
    "TC0201": "the file is not a readable ONNX model",
    "TC0202": "an ONNX operator, opset, dtype or attribute that is not supported",
    "TC0203": "a node whose operands break the operator's rules",
    "TC0204": "external data outside the model's folder, missing or cut short",
    "TC0301": "the text of a dump does not parse",
    "TC0302": "a module breaks the rules of its stage",
    "TC0401": "a pass was given a stage it does not take",
    "TC0501": "an operation that the target cannot be given code for",
    "TC0502": "an unknown target or CPU",
    "TC0601": "an input of the wrong shape",
    "TC0602": "an input of the wrong dtype",
    "TC0603": "an input is missing, unknown or given twice",
    "TC0604": "an index out of range",
    "TC0605": "a value that an assertion of the model refuses",
    "TC0606": "not enough memory for the call",
    "TC0701": "an artifact that is not readable, incomplete or altered",
    "TC0702": "an artifact without code for this machine",
    "TC0801": "a command-line argument that cannot be used",
}


class Error(Exception):
    """An error at the user's level.

    code: a row of `CODES`. found, expected: the two halves of the message. place: file:line with a caret, or an ONNX
    node with its graph path. hint: one thing to try.
    """

    def __init__(self, code: str, found: str, expected: str = "", place: str = "", hint: str = "") -> None:
        assert code in CODES, f"unknown error code {code}"
        self.code, self.found, self.expected, self.place, self.hint = code, found, expected, place, hint
        super().__init__(self.render())

    def render(self) -> str:
        """The message as the user reads it."""
        lines = [f"{self.code}: {self.found}"]
        if self.place:
            lines += [f"  {line}" for line in self.place.splitlines()]
        if self.expected:
            lines.append(f"  expected: {self.expected}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)
