"""Long texts in pieces: cut between sentences, in Italian or English, and inside one only where it must be."""

from __future__ import annotations

import re
from collections.abc import Iterator

# Words that rarely end a sentence, so that a full stop after one of them is its own: Italian, then English.
_ABBREVIATED = """
    art artt avv ca cap capp cfr cod cpv dott dr ecc es fig figg ing lett mons nn nr num pag pagg par prof reg rif seg
    segg sez sig sigg tab tel vol
    approx apr aug cf def dept dr ed eds eg eq etc feb fig figs gen hrs ie incl jan jr jul jun mr mrs ms nos nov oct pp
    ref refs rev sept sr st vs
"""
_ABBREVIATIONS = frozenset(_ABBREVIATED.split())
_LONGEST_ABBREVIATION = 16

# A full stop, or a sign of its kind, with what closes the sentence after it, before white space; or the end of a line.
# Possessive, and only from the first sign of a run, so that 100,000 dots are read once.
_END = re.compile(r"(?<![.!?…])(?P<sign>[.!?…]++)[\"'’”»)\]]*+(?=\s++(?P<next>\S))|\n")
_LAST_WORD = re.compile(r"[^\W_][\w.]*\Z")


def pieces(text: str, longest: int) -> list[str]:
    """Cut a text into pieces of at most `longest` characters; nothing but white space at their edges is lost.

    Sentences stay whole and share a piece where they fit. A sentence that does not fit alone is cut between words, a
    word that does not fit alone anywhere.
    """
    packed: list[str] = []
    for part in _parts(text, longest):
        if packed and len(packed[-1]) + 1 + len(part) <= longest:
            packed[-1] = f"{packed[-1]} {part}"
        else:
            packed.append(part)
    return packed


def sentences(text: str) -> list[str]:
    """The sentences of a text, in order, without the white space around them. A line break ends a sentence."""
    found, start = [], 0
    for end in _END.finditer(text):
        if _closes(text, end):
            found.append(text[start : end.end()].strip())
            start = end.end()
    found.append(text[start:].strip())
    return [sentence for sentence in found if sentence]


def _closes(text: str, end: re.Match[str]) -> bool:
    """Whether a full stop ends a sentence rather than an abbreviation, an initial or an enumeration."""
    sign, following = end["sign"], end["next"]
    if sign is None:
        return True
    if following.islower():
        return False
    if sign != ".":
        return True
    before = text[max(0, end.start() - _LONGEST_ABBREVIATION) : end.start()]
    word = _LAST_WORD.search(before)
    stem = word.group().casefold() if word else ""
    initial = len(stem) == 1 and stem.isalpha()
    return not (initial or "." in stem or stem in _ABBREVIATIONS)


def _parts(text: str, longest: int) -> Iterator[str]:
    """Sentences, those that are too long already cut."""
    for sentence in sentences(text):
        rest = sentence
        while len(rest) > longest:
            cut = _last_space(rest, longest)
            yield rest[:cut].rstrip()
            rest = rest[cut:].lstrip()
        if rest:
            yield rest


def _last_space(text: str, longest: int) -> int:
    """Where to cut so that at most `longest` characters come before: at white space if there is any."""
    for index in range(longest, 0, -1):
        if text[index].isspace():
            return index
    return longest
