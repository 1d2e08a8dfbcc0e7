"""Text as identity: what two people would call the same words has one form and one hash."""

from __future__ import annotations

import hashlib
import re
import unicodedata

from memory_pipeline.core.errors import BadText

_OUTER_PUNCTUATION = ".;:,!?…"
_FIELD_SEPARATOR = "\u001f"


def fold(text: str) -> str:
    """Return the comparable form: NFKC, case-folded, white space collapsed, outer punctuation stripped.

    Letters of every script are kept. Folding a folded text changes nothing.
    """
    folded, previous = text, None
    while folded != previous:  # each step can bare work for another one
        previous = folded
        folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", folded).casefold())
        folded = " ".join(folded.split()).strip(_OUTER_PUNCTUATION)
    return folded


def fingerprint(subject: str, detail: str) -> str:
    """SHA-256, in hex, of folded subject and folded detail joined by U+001F."""
    return sha256(fold(subject) + _FIELD_SEPARATOR + fold(detail))


def sha256(text: str) -> str:
    """SHA-256 of the UTF-8 form, as 64 hex digits."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def require_storable(text: str, what: str) -> str:
    """Return `text`, or raise `BadText` where PostgreSQL could not hold it: NUL, or a lone surrogate."""
    if "\x00" in text:
        raise BadText(f"{what} contains a NUL character", hint="remove it")
    if not text.isascii() and _SURROGATE.search(text):
        raise BadText(f"{what} contains half of a surrogate pair", hint="write the character as valid Unicode")
    return text


def is_storable(text: str) -> bool:
    """Whether PostgreSQL can hold a text."""
    return "\x00" not in text and (text.isascii() or not _SURROGATE.search(text))


_SURROGATE = re.compile("[\ud800-\udfff]")
