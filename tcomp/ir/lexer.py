"""Lines, tokens and the cursor that the parser reads them with. Every error is TC0301 with line, caret and expectation."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn, TypeVar

from tcomp.errors import Error

_QUOTED = r'"(?:[^"\\]|\\.)*"'
_WORD = r"[A-Za-z_]\w*(?:\.\w+)*"
_KINDS = {
    "comment": r"#.*",
    "string": _QUOTED,
    "value": rf"%(?:{_WORD}|{_QUOTED})",
    "at": rf"@(?:{_WORD}|{_QUOTED})",
    "digest": r"sha256:[0-9a-f]+",
    "float": r"nan:0x[0-9a-f]+|0x[0-9a-f]+(?:\.[0-9a-f]+)?p[-+]?\d+|\d+\.\d+(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+",
    "int": r"\d+",
    "word": rf"{_WORD}|\$\d+",
    "sign": r"->|\.\.|//|==|[-+*/%<=(){}\[\],:|]",
    "space": r"\s+",
}
_TOKEN = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in _KINDS.items()), re.ASCII)
_DIGITS = 100  # of an integer: more than any dtype holds, fewer than Python refuses to read
_KEPT = {"int": f"at most {_DIGITS} digits"} | dict.fromkeys(("string", "value", "at"), "text quoted as JSON does")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Token:
    """kind: string, value, at, digest, float, int, word, sign or end. text: the name itself for strings, values and @names."""

    kind: str
    text: str
    column: int


@dataclass(frozen=True, slots=True)
class Row:
    """One line that is not empty: its number from 1, indentation, text and tokens (the last of kind `end`)."""

    file: str
    number: int
    indent: int
    text: str
    tokens: tuple[Token, ...]


def fault(row: Row, column: int, found: str, expected: str) -> Error:
    """The error at a place of a line, with a caret under it."""
    place = f"{row.file}:{row.number}:{column + 1}\n{row.text}\n{' ' * column}^"
    return Error("TC0301", found, expected, place)


def rows(text: str, file: str) -> list[Row]:
    """The lines of a text that hold tokens."""
    found = (_row(file, k, line) for k, line in enumerate(text.splitlines(), 1))
    return [r for r in found if len(r.tokens) > 1]


def _row(file: str, number: int, line: str) -> Row:
    tokens: list[Token] = []
    at = 0
    while at < len(line):
        m = _TOKEN.match(line, at)
        if m is None:
            raise fault(Row(file, number, 0, line, ()), at, f"`{line[at]}`", "a name, a number or a sign")
        kind = m.lastgroup or ""
        if kind not in ("space", "comment"):
            try:
                tokens.append(Token(kind, _plain(kind, m.group()), at))
            except ValueError as error:
                raise fault(Row(file, number, 0, line, ()), at, f"a token that cannot be read: {error}", _KEPT[kind]) from None
        at = m.end()
    tokens.append(Token("end", "", len(line)))
    return Row(file, number, len(line) - len(line.lstrip(" ")), line, tuple(tokens))


def _plain(kind: str, text: str) -> str:
    """The text of a token without its quotes and its first sign. Raises ValueError where it has no meaning."""
    if kind == "int" and len(text) > _DIGITS:
        raise ValueError(f"{len(text)} digits")
    text = text[1:] if kind in ("value", "at") else text
    return str(json.loads(text)) if text.startswith('"') else text


@dataclass(slots=True)
class Cursor:
    """Reads the tokens of one line from left to right."""

    row: Row
    at: int = field(default=0)

    @property
    def token(self) -> Token:
        return self.row.tokens[self.at]

    def fail(self, expected: str, found: str | None = None) -> NoReturn:
        """Raise TC0301 at the current token."""
        end = self.token.kind == "end"
        raise fault(self.row, self.token.column, found or ("the end of the line" if end else f"`{self.token.text}`"), expected)

    def is_(self, text: str) -> bool:
        """Whether the current token is this word or sign."""
        return self.token.text == text and self.token.kind in ("word", "sign")

    def is_kind(self, *kinds: str) -> bool:
        return self.token.kind in kinds

    def accept(self, text: str) -> bool:
        """Step over this word or sign if it is the current token."""
        if not self.is_(text):
            return False
        self.at += 1
        return True

    def expect(self, text: str) -> None:
        if not self.accept(text):
            self.fail(f"`{text}`")

    def take(self, kind: str, what: str) -> str:
        """The text of the current token, which must be of this kind."""
        if self.token.kind != kind:
            self.fail(what)
        self.at += 1
        return self.row.tokens[self.at - 1].text

    def name(self, what: str = "a name") -> str:
        """A bare or quoted name."""
        return self.take("string" if self.token.kind == "string" else "word", what)

    def integer(self) -> int:
        """An integer with an optional sign."""
        negative = self.accept("-")
        value = int(self.take("int", "an integer"))
        return -value if negative else value

    def number(self) -> str:
        """The text of a number: integer or float, infinite or NaN, with an optional sign."""
        sign = "-" if self.accept("-") else ""
        if not (self.is_kind("int", "float") or self.is_("inf") or self.is_("nan")):
            self.fail("a number")
        self.at += 1
        return sign + self.row.tokens[self.at - 1].text

    def listed(self, read: Callable[[], T], close: str = ")") -> tuple[T, ...]:
        """What `read` gives, again and again with commas between, up to the closing sign, which is stepped over."""
        found: list[T] = []
        while not self.accept(close):
            found.append(read())
            if not self.is_(close):
                self.expect(",")
        return tuple(found)

    def end(self) -> None:
        """The line must end here."""
        if self.token.kind != "end":
            self.fail("the end of the line")

    def find(self, sign: str) -> int | None:
        """Where `sign` stands in the bracket that the cursor is inside of (not in inner ones), or None."""
        depth = 0
        for k in range(self.at, len(self.row.tokens)):
            token = self.row.tokens[k]
            if token.kind == "sign" and depth == 0 and token.text == sign:
                return k
            depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(token.text, 0) if token.kind == "sign" else 0
            if depth < 0:
                return None
        return None


@dataclass(slots=True)
class Rows:
    """The lines of a text, read in order; blocks are told by their indentation."""

    rows: list[Row]
    at: int = 0

    def peek(self, indent: int) -> Cursor | None:
        """The next line if it stands at this indentation; TC0301 where it stands deeper."""
        if self.at == len(self.rows) or self.rows[self.at].indent < indent:
            return None
        row = self.rows[self.at]
        if row.indent > indent:
            raise fault(row, row.indent, "a line that is indented too far", f"{indent} spaces before it")
        return Cursor(row)

    def next(self) -> None:
        self.at += 1
