"""Where in the user's source something happened: locations, carets under a line, and tracebacks without tcomp's own frames."""

from __future__ import annotations

import itertools
import linecache
import os
import sys
from functools import cache
from types import FrameType, TracebackType

import numpy as np

from tcomp import errors, knobs
from tcomp.errors import Error
from tcomp.ir.loc import Loc

_OWN = tuple(os.path.dirname(os.path.abspath(p)) + os.sep for p in (errors.__file__, np.__file__))


@cache
def _is_own(file: str) -> bool:
    """Whether `file` belongs to tcomp, to NumPy's dispatch or to the interpreter: no place a user would look at."""
    return file.startswith(_OWN) or file.startswith("<frozen")


def user_frame() -> FrameType | None:
    """The innermost frame of the user's code."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_own(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def here() -> Loc | None:
    """The user's line that is running."""
    frame = user_frame()
    return None if frame is None else Loc(frame.f_code.co_filename, frame.f_lineno, 0, frame.f_code.co_name)


def show_place() -> str:
    """The user's line that is running, with a caret under the expression: three lines of text, or nothing."""
    frame = user_frame()
    if frame is None:
        return ""
    code, line = frame.f_code, frame.f_lineno
    head = f"{code.co_filename}:{line}, in {code.co_name}"
    text = linecache.getline(code.co_filename, line, frame.f_globals)
    if not text.strip():
        return head
    start, end = _columns(frame, text)
    shown = text.strip()
    indent = len(text) - len(text.lstrip())
    return f"{head}\n  {shown}\n  {' ' * (start - indent)}{'^' * max(1, end - start)}"


def _columns(frame: FrameType, text: str) -> tuple[int, int]:
    """First and last column (exclusive) of the running expression on its line; the whole line where that is not known."""
    whole = len(text) - len(text.lstrip()), len(text.rstrip())
    positions = next(itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None), None)
    if positions is None or positions[0] != frame.f_lineno or positions[2] is None or positions[3] is None:
        return whole
    first, last, start, end = positions
    raw = text.encode()
    begin = len(raw[:start].decode(errors="replace"))
    return begin, len(raw[:end].decode(errors="replace")) if last == first else whole[1]


def fault(code: str, found: str, expected: str = "", hint: str = "") -> Error:
    """An `Error` at the user's running line."""
    return Error(code, found, expected, show_place(), hint)


def placed(error: Error) -> Error:
    """`error`, with the user's running line as its place where it has none."""
    return error if error.place else Error(error.code, error.found, error.expected, show_place(), error.hint)


def user_traceback(traceback: TracebackType | None) -> TracebackType | None:
    """`traceback` without frames of tcomp, unless TCOMP_DEBUG asks for them."""
    if knobs.DEBUG.read():
        return traceback
    frames = []
    while traceback is not None:
        if not _is_own(traceback.tb_frame.f_code.co_filename):
            frames.append(traceback)
        traceback = traceback.tb_next
    kept: TracebackType | None = None
    for entry in reversed(frames):
        kept = TracebackType(kept, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return kept
