"""Texts of anybody inside Markdown of ours: they show as they are written, and nothing of them acts.

The Dagster UI renders Markdown with GitHub's extensions: links and images of any http address live, and a bare address
becomes a link. It looks for bare addresses once more after escapes were resolved, so that an escape alone does not stop
it: an invisible sign in the middle does.
"""

from __future__ import annotations

import re

from memory_pipeline.core.display import LONGEST_CELL, plain

WORD_JOINER = "\u2060"
"""Without width, and no place to break a line: it only keeps an address from being one."""

_MEANT = re.compile(r"[\\`*_{}\[\]()#+\-.!|<>&~^=$]")
"""ASCII punctuation that can mean something to Markdown, at the start of a line or within it."""

_ADDRESS = re.compile(r"(:(?=//)|www(?=\.)|@)", re.IGNORECASE)
"""Where a bare address is taken apart: `https:` `//…`, `www` `.…`, `name@` `host`."""


def escape(text: str, longest: int = LONGEST_CELL) -> str:
    """Markdown that shows a text and is nothing else: one line, no markup, no HTML, no link, no cell of a table.

    The text is cleaned and cut as by `plain` first. Safe at the start of a line, within a line and within a table.
    """
    apart = _ADDRESS.sub(rf"\1{WORD_JOINER}", plain(text, longest))
    return _MEANT.sub(r"\\\g<0>", apart)
