"""Text as people look at it: what a ledger or a card says is anybody's text, and must not act on whoever shows it."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime

LONGEST_CELL = 200
"""Characters of a text in a table."""

_UNSHOWN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories of what is no text to look at: controls, changes of direction, halves of pairs, separators."""


def counted(number: int, one: str, many: str = "") -> str:
    """A number with what it counts: `1 card`, `2 cards`. `many` is for words that an s does not make many of."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def told_time(moment: datetime) -> str:
    """A moment to the second, in UTC: `2026-05-01 09:30:00 UTC`."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S %Z}"


def plain(text: str, longest: int = LONGEST_CELL) -> str:
    """One line of text, at most `longest` characters, without anything that could act on whoever shows it."""
    visible = "".join(" " if unicodedata.category(sign) in _UNSHOWN else sign for sign in text[: longest * 4])
    line = " ".join(visible.split())
    return line if len(line) <= longest and len(text) <= longest * 4 else line[: longest - 1] + "…"
