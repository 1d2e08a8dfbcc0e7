"""How near two statements are by their words, and which numbers tell them apart. No model, no server.

"Follow-up of 6 years" and "follow-up of 5 years" are the same sentence to an encoder, and two rules to a clinician: so
the numbers are taken out before the words are compared, and compared on their own.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from memory_pipeline.core.cards import CardContent
from memory_pipeline.core.text import fold

NEAR = 0.5
"""Share of common words from which two statements are near. Statements on one topic, but not on one thing, stay below
0.45; those that differ in a number or in a word come to 0.7 and more."""

# Letters and digits; between digits also what writes dates, decimals, ranges and codes such as I48.1.
_TOKEN = re.compile(r"[^\W_]+(?:(?<=\d)[.,:/-](?=\d)[^\W_]+)*(?:(?<=\d)%)?")
_ROMAN = re.compile(r"(?=[IVX]{2})X{0,3}(?:IX|IV|V?I{0,3})")
_UNITS = {
    word: unit
    for unit, words in {
        "minute": "min minuto minuti minute minutes",
        "hour": "h ora ore hour hours",
        "day": "gg giorno giorni day days",
        "week": "settimana settimane week weeks",
        "month": "mese mesi month months",
        "year": "anno anni year years",
    }.items()
    for word in words.split()
}


class Statement(NamedTuple):
    """Subject and detail of a card, as they are compared: its folded subject, its words, and its numbers."""

    subject: str
    words: frozenset[str]
    numbers: tuple[Number, ...]


class Number(NamedTuple):
    """A number with its unit of time, where it has one; `shown` keeps the word beside it."""

    value: str
    unit: str
    shown: str


class Apart(NamedTuple):
    """Numbers that only the one statement has, and those that only the other has."""

    here: tuple[str, ...]
    there: tuple[str, ...]


def statement_of(content: CardContent) -> Statement:
    """Prepare a card's subject and detail for comparison."""
    words: set[str] = set()
    numbers: list[Number] = []
    for text in (content.subject, content.detail):
        tokens = list(_TOKEN.finditer(unicodedata.normalize("NFKC", text)))
        values = [_is_number(token.group()) for token in tokens]
        words.update(token.group().casefold() for token, number in zip(tokens, values, strict=True) if not number)
        numbers += _numbers(tokens, values)
    return Statement(fold(content.subject), frozenset(words), tuple(numbers))


def are_near(one: Statement, other: Statement) -> bool:
    """Whether two statements say nearly the same, or something else of the same subject."""
    return one.subject == other.subject or overlap(one, other) >= NEAR


def overlap(one: Statement, other: Statement) -> float:
    """Words that both have, among the words that either has: 0 to 1. Numbers do not count."""
    either = len(one.words | other.words)
    return len(one.words & other.words) / either if either else 0.0


def numbers_apart(here: Statement, there: Statement) -> Apart:
    """The numbers in which two statements differ, as they are shown: those that one has more often than the other."""
    return Apart(_beyond(here, there), _beyond(there, here))


def _is_number(token: str) -> bool:
    return any(sign.isdigit() for sign in token) or _ROMAN.fullmatch(token) is not None


def _numbers(tokens: list[re.Match[str]], values: list[bool]) -> Iterator[Number]:
    for index, (token, number) in enumerate(zip(tokens, values, strict=True)):
        if not number:
            continue
        value = token.group()
        before = tokens[index - 1].group() if index and _adjoin(tokens[index - 1], token) else ""
        after = tokens[index + 1].group() if index + 1 < len(tokens) and _adjoin(token, tokens[index + 1]) else ""
        unit = _UNITS.get(after.casefold(), "")
        yield Number(value.casefold(), unit, f"{value} {after}" if unit else f"{before} {value}".strip())


def _adjoin(left: re.Match[str], right: re.Match[str]) -> bool:
    """Whether nothing but blanks stands between two tokens."""
    return not left.string[left.end() : right.start()].strip()


def _beyond(one: Statement, other: Statement) -> tuple[str, ...]:
    left = Counter((number.value, number.unit) for number in other.numbers)
    found = []
    for number in one.numbers:
        key = (number.value, number.unit)
        if left[key]:
            left[key] -= 1
        else:
            found.append(number.shown)
    return tuple(dict.fromkeys(found))
