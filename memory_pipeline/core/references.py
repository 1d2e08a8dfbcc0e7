"""References inside a ledger: `seq:N` names a decision, `phase:F1` a phase, `mem-0001` a card.

The signs around a reference are judged by ASCII alone, so that PostgreSQL's regular expressions and Python's agree.
"""

from __future__ import annotations

import re

_SEQ = re.compile(r"(?:^|[^0-9A-Za-z_])seq:([0-9]{1,18})(?![0-9A-Za-z_])")
_PHASE = re.compile(r"(?:^|[^0-9A-Za-z_])phase:F([1-8])(?![0-9A-Za-z_])")
_CARD = re.compile(r"(?:^|[^0-9A-Za-z_-])(mem-[0-9]{4,18})(?![0-9A-Za-z_-])")
_PHASE_NAME = re.compile(r"F([1-8])")


def decision_of(text: str) -> int | None:
    """The number of the first `seq:N` in a text."""
    found = _SEQ.search(text)
    return int(found.group(1)) if found else None


def phase_of(text: str) -> int | None:
    """The number of the first `phase:FN` in a text, 1 to 8."""
    found = _PHASE.search(text)
    return int(found.group(1)) if found else None


def cards_of(text: str) -> tuple[str, ...]:
    """Every card id in a text, in order, each once."""
    return tuple(dict.fromkeys(_CARD.findall(text)))


def phase_number(phase: str | None) -> int | None:
    """1 to 8 for `F1` to `F8`; none for any other name."""
    found = _PHASE_NAME.fullmatch(phase) if phase else None
    return int(found.group(1)) if found else None
