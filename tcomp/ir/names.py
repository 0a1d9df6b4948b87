"""Names in text: bare where they read as one word that means nothing else, quoted otherwise."""

from __future__ import annotations

import json
import re

_BARE = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*|\$\d+", re.ASCII)

_KEYWORDS = """
after alias alloc allocate alone arena assert at atomic axis below bind by call carry check code const constant default dot else
false fold for func grid if in inf kernel last launch main max min module nan node none of order pad position realised reduce
region repeat reserve scan sizes spill stage store swap symbols tail target to true unroll valid when while workspace yield
"""
RESERVED = frozenset(_KEYWORDS.split())


def show_name(name: str) -> str:
    """The text of a name; the parser gives it back exactly."""
    return name if _BARE.fullmatch(name) and name not in RESERVED else json.dumps(name)
